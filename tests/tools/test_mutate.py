"""`tools/mutate.py` on a tiny project: what it generates, what survives, and what becomes of accepted survivors."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.anchors import Source
from tools.mutate import main
from tools.operators import changes

SOURCE = '''"""Prices."""

import logging

__all__ = ["total"]
_log = logging.getLogger(__name__)


def total(net: int, tax: int, most: int = 9) -> int:
    """The price of something."""
    _log.info("net %d", 1 + net)
    if net < 0:
        net = 0
    return min(net + tax, most)


def spare(net: int) -> int | None:
    return net * 2
'''
TESTS = """from shop.prices import total


def test_tax_is_added() -> None:
    assert total(3, 2) == 5


def test_nobody_is_paid_for_shopping() -> None:
    assert total(-3, 2) == 2


def test_there_is_a_limit() -> None:
    assert total(8, 2) == 9
"""

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for name, text in {
        "src/shop/__init__.py": "",
        "src/shop/prices.py": SOURCE,
        "tests/test_the_cost_of_groups.py": TESTS,
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n',
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "mutants").mkdir()
    return tmp_path


@pytest.fixture
def run(shop: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_it(*arguments: str, survivors: str = "") -> tuple[int, str]:
        (shop / "mutants" / "survivors.toml").write_text(survivors)
        status = main(["--root", str(shop), "--jobs", "1", *arguments])
        return status, capsys.readouterr().out

    return run_it


def survivor(old: str, new: str, where: str = "prices:total", reason: str = "reason = 'the same'") -> str:
    return f"[[survivor]]\nwhere = '{where}'\nold = '{old}'\nnew = '{new}'\n{reason}\n\n"


def added(text: str) -> list[str]:
    """The lines that the changes of a text add, or `-` and the line that one takes away."""
    found = []
    for change in changes(Source("x.py", "x", text)):
        after, before = change.after().splitlines(), text.splitlines()
        new = [line.strip() for line in after if line not in before]
        gone = [f"- {line.strip()}" for line in before if line not in after]
        found.append("; ".join(new or gone))
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", ["return a <= b"]),
        ("return a == b", ["return a != b"]),
        ("return a and b", ["return a or b", "return b", "return a"]),
        ("return not a", ["return a"]),
        ("return a + 1", ["return a - 1", "return a + 2"]),
        ("return a + 'x'", []),
        ("return max(a, b)", ["return min(a, b)"]),
        ("return True", ["return False"]),
        ("a += b", ["- a += b", "a -= b"]),
        ("a.c = b", ["- a.c = b"]),
        ("c = b", []),
        ("a = b", ["- a = b"]),
        ("a.c(b)", ["- a.c(b)"]),
        ("return [c for c in a if c]", ["return [c for c in a if not c]"]),
        ("raise ValueError(a + b)", []),
        ("assert a + b", []),
        ("a: Literal[1] = b", ["- a: Literal[1] = b"]),
        ("_log.info(a + 1)", []),
        ("if a < b:\n        log.info(a)", []),
        ("return zip(a, b, strict=True)", []),
        ("await asyncio.sleep(0)", []),
        ("while True:\n        yield a", []),
        ("if a:\n        a.c(b)", ["- if a:; - a.c(b)", "if not a:"]),
        ("return f'{a + 1}'", []),
    ],
)
def test_changes_are_small_and_matter(body: str, expected: list[str]) -> None:
    assert added(f'def f(a, b):\n    """Says 1 + 1."""\n    {body}\n') == expected


def test_attributes_that_would_never_be_bound_stay() -> None:
    text = "class A:\n    def __init__(self, b):\n        self.b = b\n        {}\n    def c(self): return self.b\n"
    assert added(text.format("self.d = b")) == ["- self.d = b"]
    assert added(text.format("self.b = None")) == ["- self.b = None"]


def test_chosen_figures_and_storage_stay() -> None:
    assert added("_MOST = 10\n_LONGEST: Final = 2 << 4\nclass A(Struct, frozen=True):\n    port: int = 80\n") == []
    assert added("def f(*, most: int = 10, least=12): return f(limit_s=20)\n") == []
    assert added("_MOST = 3\nclass A(Struct, array_like=True):\n    port: int = 0\n") == [
        "_MOST = 4",
        "class A(Struct, array_like=False):",
        "port: int = 1",
    ]
    assert added("def f(a):\n    return a > 10\n") == ["return a >= 10", "return a > 11"]


def test_branches_and_conditions_are_left_out_and_turned_round() -> None:
    assert added(
        "def f(a, b):\n    if a:\n        return 'a'\n    elif b in a:\n        return 'b'\n    return a\n"
    ) == [
        "if not a:",
        "- elif b in a:; - return 'b'",
        "elif b not in a:",
    ]


def test_none_is_returned_only_where_it_may_be() -> None:
    assert added("def f(a) -> int:\n    return a\n") == []
    assert added("def f(a) -> int | None:\n    return a\n") == ["return None"]


def test_survivors_and_code_without_tests_are_shown_as_a_patch_and_a_table(run: Run) -> None:
    status, output = run("prices.py")
    assert status == 1
    assert "-    if net < 0:\n+    if net <= 0:" in output
    assert '[[survivor]]\nwhere = "prices:total"\nold = "net < 0"\nnew = "net <= 0"' in output
    assert "SURVIVED: prices:spare:18 one more; no test calls this function" in output
    assert "return net * 3" in output
    assert "net - tax" not in output
    assert "most: int=10" not in output
    assert output.splitlines()[-1].endswith("0 accepted, 4 to judge, 0 stale"), output


def test_accepted_survivors_need_a_reason_and_must_still_survive(run: Run, shop: Path) -> None:
    good = (
        survivor("net < 0", "net <= 0")
        + survivor("return net * 2", "return None", where="prices:spare")
        + survivor("2", "3", where="prices:spare")
    )
    status, output = run("prices.py", survivors=good)
    assert status == 1
    assert output.splitlines()[-1].endswith("3 accepted, 1 to judge, 0 stale"), output
    assert "if net < 1:" in output
    good += survivor("net < 0", "net < 1")
    status, output = run("prices.py", survivors=good)
    assert (status, "SURVIVED" in output) == (0, False), output
    stale = (("net + tax", "net - tax"), ("net % tax", "net"), ("net + tax", "net * tax"))
    status, output = run("prices.py", survivors=good + "".join(survivor(*each) for each in stale))
    assert status == 1
    assert "stale: survivors.toml: survivor 5 (prices:total: net + tax): is caught now" in output
    assert "stale: survivors.toml: survivor 6 (prices:total: net % tax): prices:total has no such code" in output
    assert "stale: survivors.toml: survivor 7 (prices:total: net + tax): is no longer generated" in output
    assert output.splitlines()[-1].endswith("4 accepted, 0 to judge, 3 stale"), output
    for reason in ("", "reason = ' '"):
        status, output = run("prices.py", survivors=survivor("net < 0", "net <= 0", reason=reason))
        assert (status, output) == (1, "error: survivors.toml: survivor 1 (prices:total: net < 0): no reason\n")


def test_a_sample_holds_one_change_for_each_line_and_stays_the_same() -> None:
    def sampled(text: str) -> dict[int, str]:
        source = Source("src/shop/prices.py", "prices", text)
        found = list(changes(source, sample_every=1))
        assert len({change.line for change in found}) == len(found)
        return {change.line: change.title for change in found}

    everything = {change.line for change in changes(Source("src/shop/prices.py", "prices", SOURCE))}
    sample = sampled(SOURCE)
    assert sample.keys() == everything
    moved = sampled(SOURCE.replace("import logging\n", "import logging\nimport os\n"))
    assert moved == {line + 1: title for line, title in sample.items()}


def test_a_sparser_sample_is_a_part_of_the_sample() -> None:
    source = Source("src/shop/prices.py", "prices", SOURCE + "\n\n" + SOURCE.replace("def ", "def other_"))
    all_lines, sparse = ({change.line for change in changes(source, sample_every=every)} for every in (1, 3))
    assert sparse < all_lines
    assert 0 < len(sparse) <= len(all_lines) // 2


def test_a_sample_need_not_hold_the_accepted_survivors(run: Run) -> None:
    accepted = [("net < 0", "net <= 0"), ("net < 0", "net < 1"), ("net + tax", "net * tax")]
    _, output = run("--sample", "prices.py", survivors="".join(survivor(*each) for each in accepted))
    assert output.splitlines()[-1].endswith(" 0 stale"), output


def test_what_differs_from_a_revision_is_changed(run: Run, shop: Path) -> None:
    identity = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=shop, check=True, env={**os.environ, **identity})
    assert run("--base", "HEAD") == (0, "no module differs from HEAD\n")
    (shop / "src/shop/prices.py").write_text(SOURCE.replace("net * 2", "net * 4"))
    status, output = run("--base", "HEAD", "--list")
    assert status == 0
    assert "changes of 1 modules" in output
    assert "prices:total:14  another function" in output
