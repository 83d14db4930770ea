"""`tools/mutants.py` on a tiny project: what it catches, what it complains about, what it leaves alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.mutants import main

PROJECT = Path(__file__).parents[2]

SOURCE = '''"""Prices."""


def total(net: int, tax: int) -> int:
    if net < 0:
        net = 0
    return net + tax


def spare(net: int) -> int:
    return net * 2
'''

TESTS = """from shop.prices import total


def test_tax_is_added() -> None:
    assert total(3, 2) == 5


def test_nobody_is_paid_for_shopping() -> None:
    assert total(-3, 2) == 2
"""

#: what changing a function of an imported module alone would not show: a constant, a function that is called while
#: tests are collected, another process, a module that is imported late
TANGLED_SOURCE = '''"""Prices in euros."""

FACTOR = 2


def rates() -> list[int]:
    return [1, 2, 3]


def in_cents(euros: int) -> int:
    return euros * 100


def printed(euros: int) -> str:
    return f"{euros} EUR"
'''
TANGLED_TESTS = """import subprocess
import sys

import pytest

from shop.euros import FACTOR, in_cents, rates


def test_factor() -> None:
    assert FACTOR == 2


@pytest.mark.parametrize("rate", rates())
def test_rates(rate: int) -> None:
    assert rate < 4


def test_another_process() -> None:
    code = "from shop.euros import printed; print(printed(3))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"3 EUR\\n"


def test_cents() -> None:
    assert in_cents(2) == 200


def test_late() -> None:
    from shop.late import answer

    assert answer() == 42
"""

NO_TAX = ("shop:1", "tax is taken off", "net + tax", "net - tax")
NO_FLOOR = ("shop:2", "a net price may be negative", "net = 0", "pass")
UNTESTED = ("shop:3", "spare is thrice", "net * 2", "net * 3", "prices:spare")

Run = Callable[..., tuple[int, str]]


def table(
    statement: str, title: str, old: str, new: str, where: str = "prices:total", test: str = "", more: str = ""
) -> str:
    tests = json.dumps([test or "tests/test_the_cost_of_groups.py"])
    anchor = f'file = "{where}"' if "/" in where else f'where = "{where}"'
    return (
        f'[[mutant]]\nid = "{statement}"\ntitle = "{title}"\n{anchor}\n'
        f"old = '''{old}'''\nnew = '''{new}'''\ntests = {tests}\n{more}"
    )


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with two tested rules and an untested one."""
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
    """Runs the command on the shop with these mutants; the exit status and what it printed."""

    def run_it(*tables: str, arguments: tuple[str, ...] = (), required: str = "") -> tuple[int, str]:
        (shop / "mutants" / "prices.toml").write_text("\n".join(tables))
        (shop / "mutants" / "required.txt").write_text(required)
        status = main(["--root", str(shop), "--jobs", "1", *arguments])
        return status, capsys.readouterr().out

    return run_it


def test_mutants_that_tests_notice_are_caught_and_counted(run: Run, shop: Path) -> None:
    before = {path: path.read_bytes() for path in shop.rglob("*.py")}
    status, output = run(
        table(*NO_TAX),
        table(*NO_FLOOR),
        required="# both\nshop:1\nshop:2\n",
        arguments=("--jobs", "2", "--json", str(shop / "out")),
    )
    assert status == 0, output
    assert "caught    shop:1         tax is taken off" in output
    assert "caught    shop:2         a net price may be negative" in output
    assert "prices.toml     2 of 2 caught" in output
    assert "total           2 of 2 caught" in output
    found = json.loads((shop / "out").read_text())
    assert (found["total"], found["caught"], found["survived"], found["invalid"]) == (2, 2, 0, 0)
    assert [mutant["verdict"] for mutant in found["mutants"]] == ["caught", "caught"]
    assert {path: path.read_bytes() for path in shop.rglob("*.py")} == before


def test_a_mutant_that_no_test_notices_survives_and_is_shown(run: Run) -> None:
    status, output = run(table(*UNTESTED), table(*NO_TAX))
    assert status == 1
    assert "SURVIVED  shop:3" in output
    assert "caught    shop:1" in output
    assert "-    return net * 2\n+    return net * 3" in output
    assert "prices.toml     1 of 2 caught, 1 survived" in output


def test_one_worker_mends_its_copy_after_each_mutant(run: Run) -> None:
    status, output = run(table(*NO_TAX), table(*UNTESTED), table(*NO_FLOOR))
    assert status == 1
    assert [line.split()[0] for line in output.splitlines() if "s)" in line] == ["caught", "SURVIVED", "caught"]


def test_mutants_are_caught_wherever_their_code_runs_and_harmless_ones_survive(run: Run, shop: Path) -> None:
    (shop / "src/shop/euros.py").write_text(TANGLED_SOURCE)
    (shop / "src/shop/late.py").write_text("def answer() -> int:\n    return 42\n")
    (shop / "tests/test_euros.py").write_text(TANGLED_TESTS)

    def of(title: str, old: str, new: str, where: str = "euros:in_cents") -> str:
        return table("shop:1", title, old, new, where=where, test="tests/test_euros.py")

    status, output = run(
        of("cents", "euros * 100", "euros * 10"),
        of("constant", "FACTOR = 2", "FACTOR = 3", "euros:"),
        of("collected", "[1, 2, 3]", "[1, 2, 4]", "euros:rates"),
        of("process", "f'{euros} EUR'", "f'{euros} USD'", "euros:printed"),
        of("late", "42", "41", "late:answer"),
        of("harmless", "euros * 100", "100 * euros"),
        of("cents again", "euros * 100", "euros + 100"),
        of("still harmless", "euros * 100", "100 * euros * 1"),
        of("harmless constant", "FACTOR = 2", "FACTOR = int(2)", "euros:"),
        of("harmless order", "[1, 2, 3]", "[3, 2, 1]", "euros:rates"),
        of("no end", "return euros * 100", "while True:\n    pass"),
        of("death", "return euros * 100", "import os\nos.abort()"),
        arguments=("--json", str(shop / "out"), "--timeout", "2", "--jobs", "2"),
    )
    assert status == 1
    found = {mutant["title"]: mutant for mutant in json.loads((shop / "out").read_text())["mutants"]}
    assert {title: mutant["verdict"] for title, mutant in found.items()} == {
        "cents": "caught",
        "constant": "caught",
        "collected": "caught",
        "process": "caught",
        "late": "caught",
        "harmless": "survived",
        "cents again": "caught",
        "still harmless": "survived",
        "harmless constant": "survived",
        "harmless order": "survived",
        "no end": "invalid",
        "death": "invalid",
    }, output
    assert {title for title, mutant in found.items() if mutant["imported"]} == {
        "constant",
        "collected",
        "harmless constant",
        "harmless order",
    }
    assert output.endswith(" s; 4 of 12 mutants imported the project again\n")


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ([table("shop:1", "gone", "net % tax", "0")], "(gone): prices:total has no such code; nearest: `net + tax`"),
        (
            [table("shop:1", "twice", "int", "str", "prices:total")],
            "(twice): 3 places of prices:total look like this (lines 4, 4, 4): say which with `nth`",
        ),
        (
            [table("shop:1", "fourth", "int", "str", more="nth = 4")],
            "(fourth): `nth` is 4, but 3 places of prices:total look like this",
        ),
        (
            [table("shop:1", "lost", "net % tax", "0", where="prices:totals")],
            "(lost): prices:totals is gone, and such code is nowhere; nearest: prices:total",
        ),
        ([table(*NO_TAX, test="tests/test_gone.py::test_x")], "(tax is taken off): tests/test_gone.py does not exist"),
        ([table("shop:1", "idle", "net + tax", "net + tax")], "(idle): changes nothing"),
        ([table("shop:1", "broken", "net + tax", "net +")], "(broken): `new` is not Python"),
        ([table("shop:1", "stranger", "net + tax", "gross")], "(stranger): `new` uses what is not there: gross"),
        ([table("shop:1", "field", "net + tax", "net.gross")], "(field): `new` uses what is not there: gross"),
        (
            [table(*NO_TAX), table("shop:9", "as before", "return net + tax", "return net - tax")],
            "(as before): is the same as prices.toml: shop:1 (tax is taken off)",
        ),
        (['[[mutant]]\nid = "shop:1"\ntitle = "short"'], "mutant 1 (shop:1, short): no old, new, tests"),
        ([table(*NO_TAX) + "file = 'x'"], "mutant 1 (shop:1, tax is taken off): either where or file"),
        ([table(*NO_TAX) + "nth = '1'"], "mutant 1 (shop:1, tax is taken off): nth: expected a number"),
        ([table(*NO_TAX) + "note = 'x'"], "mutant 1 (shop:1, tax is taken off): unknown field note"),
        ([table("shop:1", "text", "net", "x", where="src/shop/prices.py")], "(text): src/shop/prices.py is Python"),
        ([table("shop:1", "text", "a", "b", where="src/shop/gone.txt")], "(text): src/shop/gone.txt does not exist"),
        (["[[mutant]"], "prices.toml: not TOML"),
        ([], "no mutants are listed"),
    ],
)
def test_a_mutant_that_cannot_be_run_is_an_error_that_names_it(run: Run, tables: list[str], complaint: str) -> None:
    status, output = run(*tables)
    assert status == 1
    assert complaint in output
    assert "Running" not in output


def test_a_required_statement_without_a_mutant_is_an_error(run: Run) -> None:
    status, output = run(table(*NO_TAX), required="shop:1\nshop:2  # the floor\n")
    assert status == 1
    assert "error: required.txt: shop:2 has no mutant" in output
    assert "shop:1 has no" not in output


def test_recorded_cases_do_not_count(run: Run, shop: Path) -> None:
    (shop / "tests" / "conformance").mkdir()
    (shop / "tests" / "conformance" / "test_cases.py").write_text(TESTS)
    status, output = run(table(*NO_TAX, test="tests/conformance/test_cases.py"))
    assert status == 1
    assert "recorded cases do not count" in output


def test_code_that_no_longer_imports_is_invalid_not_caught(run: Run) -> None:
    status, output = run(table("shop:1", "no import", "'Prices.'", "1 / 0", where="prices:"))
    assert status == 1
    assert "INVALID   shop:1" in output
    assert "the tests could not be collected" in output
    assert "ZeroDivisionError" in output


def test_code_that_cannot_be_compiled_is_invalid(run: Run) -> None:
    status, output = run(table("shop:1", "no compiler", "net = 0", "break"), table(*NO_TAX))
    assert status == 1
    assert "is not Python: 'break' outside loop" in output
    assert "caught    shop:1" in output


def test_tests_without_end_are_invalid(run: Run) -> None:
    status, output = run(
        table("shop:1", "no end", "return net + tax", "while True:\n    pass"), arguments=("--timeout", "1")
    )
    assert status == 1
    assert "the tests had not ended after 1 s" in output


def test_tests_that_fail_by_themselves_catch_nothing(run: Run, shop: Path) -> None:
    (shop / "tests" / "test_the_cost_of_groups.py").write_text(TESTS.replace("== 5", "== 6"))
    status, output = run(table(*NO_TAX))
    assert status == 1
    assert "the tests must pass before anything is broken" in output
    assert "caught" not in output


def test_only_and_list_choose_by_id_or_title(run: Run) -> None:
    tables = (table(*NO_TAX), table(*NO_FLOOR), table(*UNTESTED))
    for pattern, expected in {"shop:2": "2", "2": "2", "shop:*": "123", "spare": "3"}.items():
        status, output = run(*tables, arguments=("--list", "--only", pattern), required="shop:99")
        assert status == 0
        assert [line.split()[0] for line in output.splitlines()] == [f"shop:{number}" for number in expected]
    status, output = run(*tables, arguments=("--only", "shop:4"))
    assert status == 1
    assert "no mutant fits 'shop:4'" in output


def test_a_text_that_is_not_python_is_replaced_as_it_is(run: Run, shop: Path) -> None:
    (shop / "src/shop/limit.txt").write_text("most: 5\n")
    test = "from pathlib import Path\n\nimport shop\n\n\ndef test_limit() -> None:\n"
    test += '    assert (Path(shop.__file__).parent / "limit.txt").read_text() == "most: 5\\n"\n'
    (shop / "tests/test_limit.py").write_text(test)
    limit = table("shop:4", "no limit", "5", "9", where="src/shop/limit.txt", test="tests/test_limit.py")
    status, output = run(limit)
    assert status == 0, output
    assert "caught    shop:4" in output


@pytest.mark.skipif(not (PROJECT / "mutants").exists(), reason="a copy of the tree without its mutants")
def test_every_mutant_of_the_project_applies_and_every_required_statement_has_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["--list"])
    output = capsys.readouterr().out
    assert [line for line in output.splitlines() if line.startswith("error")] == []
    assert status == 0
