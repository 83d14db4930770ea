"""How `tools/anchors.py` finds code again, and `tools/mutants.py --repair` writes down where it is."""

import ast
import subprocess
import tomllib
from pathlib import Path

import pytest

from tools.anchors import Fragment, Sources, Unanchored, find
from tools.listing import as_toml
from tools.mutants import main
from tools.splicing import spliced

SOURCE = '''"""Prices."""

from dataclasses import dataclass

RATES = {"low": 7, "high": 19}


@dataclass(frozen=True)
class Offer:
    """What something costs."""

    net: int
    rate: str = "low"

    def gross(self, factor: int = 1) -> int:
        # a comment
        net = self.net
        if net < 0:
            net = 0
        tax = net * RATES[self.rate] // 100
        return factor * (net + tax)


def total(offers: list[Offer], most: int) -> int:
    spent = 0
    for offer in offers:
        if spent + offer.gross() > most:
            break
        spent += offer.gross()
    return spent


def name(offer: Offer) -> str:
    return f"{offer.rate} rate of {offer.net}"
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "src/shop").mkdir(parents=True)
    (tmp_path / "src/shop/__init__.py").write_text("")
    (tmp_path / "src/shop/prices.py").write_text(SOURCE)
    return tmp_path


def changed(root: Path, where: str, old: str, new: str, nth: int | None = None) -> tuple[str, str]:
    """Where a fragment was found, and the lines that its replacement adds there."""
    fragment = Fragment.parse(old, new)
    place = find(Sources(root), where, fragment, nth)
    before = place.source.text.splitlines()
    after = spliced(place, fragment.filled(place.binding))
    ast.parse(after)
    return place.where, "\n".join(line.strip() for line in after.splitlines() if line not in before)


def rewrite(root: Path, *pairs: tuple[str, str]) -> None:
    path = root / "src/shop/prices.py"
    text = path.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    ast.parse(text)
    path.write_text(text)


@pytest.mark.parametrize(
    ("where", "old", "new", "line"),
    [
        ("prices:Offer.gross", "net < 0", "net < 1", "if net < 1:"),
        ("prices:Offer.gross", "net + tax", "net", "return factor * (net)"),
        ("prices:Offer.gross", "net * RATES[self.rate]", "net + 1", "tax = (net + 1) // 100"),
        ("prices:Offer.gross", "if net < 0: ...", "...", "net = 0"),
        ("prices:Offer.gross", "if net < 0: ...", "if net < 0:\n    ...\nelse:\n    net = 1", "else:\nnet = 1"),
        ("prices:Offer.gross", "net = 0", "", "pass"),
        (
            "prices:Offer.gross",
            "def gross(self, factor: int = 1) -> int: ...",
            "def gross(self, factor: int = 2) -> int: ...",
            "def gross(self, factor: int=2) -> int:",
        ),
        ("prices:Offer", "rate: str = 'low'", "rate: str = 'high'", "rate: str = 'high'"),
        ("prices:Offer", "dataclass(frozen=True)", "dataclass(frozen=False)", "@dataclass(frozen=False)"),
        ("prices:", "19", "20", 'RATES = {"low": 7, "high": 20}'),
        ("prices:name", "offer.net", "offer.rate", "return f'{offer.rate} rate of {offer.rate}'"),
        ("prices:total", "break", "continue", "continue"),
    ],
)
def test_expressions_statements_heads_and_fields_are_replaced(
    shop: Path, where: str, old: str, new: str, line: str
) -> None:
    assert changed(shop, where, old, new) == (where, line)


def test_layout_comments_and_moved_lines_do_not_matter(shop: Path) -> None:
    rewrite(
        shop,
        ("        tax = net * RATES[self.rate] // 100\n", ""),
        (
            "        # a comment\n",
            "        tax = (\n            self.net  # now\n  * RATES[self.rate] // 100\n        )\n",
        ),
    )
    where, line = changed(shop, "prices:Offer.gross", "self.net * RATES[self.rate] // 100", "0")
    assert (where, line) == ("prices:Offer.gross", "0")


def test_renamed_variables_and_attributes_are_renamed_in_the_replacement(shop: Path) -> None:
    rewrite(shop, ("spent", "sum_so_far"), ("offer.", "each."), ("for offer in", "for each in"), ("gross", "price"))
    assert changed(shop, "prices:total", "spent + offer.gross() > most", "offer.gross() > spent") == (
        "prices:total",
        "if each.price() > sum_so_far:",
    )


def test_an_exact_match_wins_over_one_by_shape(shop: Path) -> None:
    rewrite(
        shop,
        (
            "    return spent\n",
            "    if most < 0:\n        return 0\n    if spent < 0:\n        return 1\n    return spent\n",
        ),
    )
    assert changed(shop, "prices:total", "spent < 0", "False")[1] == "if False:"
    assert changed(shop, "prices:total", "most < 0", "most > 0")[1] == "if most > 0:"


def test_identifiers_must_be_renamed_consistently_and_builtins_not_at_all(shop: Path) -> None:
    with pytest.raises(Unanchored, match="has no such code"):
        changed(shop, "prices:total", "spent + spent > most", "False")
    with pytest.raises(Unanchored, match="has no such code"):
        changed(shop, "prices:total", "spent + offer.gross() > offer", "False")
    rewrite(shop, ("    return spent\n", "    return max(spent, most)\n"))
    with pytest.raises(Unanchored, match="has no such code"):
        changed(shop, "prices:total", "min(spent, most)", "spent")


def test_places_that_look_alike_need_a_number(shop: Path) -> None:
    with pytest.raises(Unanchored, match=r"2 places of prices:total look like this \(lines 27, 29\)"):
        changed(shop, "prices:total", "offer.gross()", "1")
    assert changed(shop, "prices:total", "offer.gross()", "1", nth=1)[1] == "if spent + 1 > most:"
    assert changed(shop, "prices:total", "offer.gross()", "1", nth=2)[1] == "spent += 1"
    rewrite(shop, ("gross", "price"), ("offer.price", "each.price"), ("for offer in", "for each in"))
    assert changed(shop, "prices:total", "offer.gross()", "1", nth=2)[1] == "spent += 1"


def test_a_reworded_text_is_found_if_nothing_else_looks_like_it(shop: Path) -> None:
    rewrite(shop, (" rate of ", " of "))
    assert changed(shop, "prices:name", "f'{offer.rate} rate of {offer.net}'", "f'{offer.net} rate of '")[1] == (
        "return f'{offer.net} of '"
    )
    with pytest.raises(Unanchored, match="has no such code"):
        changed(shop, "prices:Offer.gross", "tax = net * RATES[self.rate] // 90", "pass")


def test_a_missing_function_is_searched_everywhere(shop: Path) -> None:
    text = (shop / "src/shop/prices.py").read_text()
    (shop / "src/shop/prices.py").write_text("")
    (shop / "src/shop/sums.py").write_text(text.replace("def total", "def summed_up").replace("most", "limit"))
    assert changed(shop, "prices:total", "spent + offer.gross() > most", "most > 0") == (
        "sums:summed_up",
        "if limit > 0:",
    )
    with pytest.raises(Unanchored, match="prices:total is gone, and several places look like this: sums:"):
        changed(shop, "prices:total", "offer.gross()", "1")


def test_code_that_is_nowhere_names_the_nearest(shop: Path) -> None:
    with pytest.raises(Unanchored, match=r"prices:total has no such code; nearest: `spent \+ offer.gross\(\) > most`"):
        changed(shop, "prices:total", "spent * 2 + offer.gross() > most", "False")
    with pytest.raises(Unanchored, match=r"prices:totals is gone, and such code is nowhere; nearest: prices:total"):
        changed(shop, "prices:totals", "spent ** 2", "spent")
    with pytest.raises(Unanchored, match=r"price:total is gone, and such code is nowhere; nearest: prices"):
        changed(shop, "price:total", "spent ** 2", "spent")


def test_repair_writes_the_present_names_and_keeps_the_rest(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mutants = shop / "mutants"
    mutants.mkdir()
    tables = """# The shop.

[[mutant]]
id = "shop:1"
title = "the limit is not held"
where = "prices:total"
old = "break"
new = \'\'\'
if most > 0:
    continue\'\'\'
tests = ["tests/test_the_cost_of_groups.py"]

# What is shown.

[[mutant]]
id = "shop:2"
title = "the rate is not shown"
where = "prices:name"
old = "offer.rate"
new = "offer.net"
tests = ["tests/test_the_cost_of_groups.py"]
nth = 1

[[mutant]]
id = "shop:3"
title = "taxes are low"
where = "prices:"
old = "19"
new = "RATES"
tests = ["tests/test_the_cost_of_groups.py"]
"""
    (mutants / "prices.toml").write_text(tables)
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=shop, check=True)
    assert main(["--root", str(shop), "--repair"]) == 0
    assert "0 mutants rewritten" in capsys.readouterr().out
    text = (shop / "src/shop/prices.py").read_text()
    (shop / "src/shop/prices.py").unlink()
    for old, new in {
        "def total": "def spending",
        "most": "limit",
        "def name": "def title",
        "offer": "item",
        "rate": "level",
        "RATES": "LEVELS",
    }.items():
        text = text.replace(old, new)
    (shop / "src/shop/sums.py").write_text(text)
    status = main(["--root", str(shop), "--repair"])
    output = capsys.readouterr().out
    assert status == 0, output
    assert "prices.toml: shop:1 (the limit is not held): prices:total -> sums:spending" in output
    found = tomllib.loads((mutants / "prices.toml").read_text())["mutant"]
    assert [(each["where"], each["old"], each["new"], each.get("nth")) for each in found] == [
        ("sums:spending", "break", "if limit > 0:\n    continue", None),
        ("sums:title", "item.level", "item.net", 1),
        ("sums:", "19", "LEVELS", None),
    ]
    kept = (mutants / "prices.toml").read_text()
    assert "# The shop.\n\n[[mutant]]" in kept
    assert "# What is shown.\n\n[[mutant]]" in kept
    assert main(["--root", str(shop), "--repair"]) == 0
    (shop / "src/shop/sums.py").write_text(text.replace("break", "return 0"))
    assert main(["--root", str(shop), "--repair"]) == 1
    assert (
        "error: prices.toml: shop:1 (the limit is not held): sums:spending has no such code" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "text", ["", "a", "it's", 'a "b"', "a\\n", 'it\'s "b"', "a\n'b'\n", "'''\n\\", "x['''a''']", "'"]
)
def test_any_text_can_be_written_into_a_list(text: str) -> None:
    assert tomllib.loads(f"x = {as_toml(text)}")["x"] == text
