"""`tools/architecture.py` on a tiny tree, where each figure is known; and what must be zero for the project itself."""

import json
from pathlib import Path

import pytest

from tools.architecture import cycles, longest_chain, main, measure

#: put together here, because citations in the tests of this project must exist
CYCLE, KUBE = "cycle", "kube"
LONG = "def long() -> None:\n" + "    pass\n" * 60

FILES = {
    "src/pykai/__init__.py": "",
    "src/pykai/top.py": "from pykai.deep import middle\nimport pykai.deep.bottom\n\n\nclass Plan:\n    pass\n",
    "src/pykai/deep/__init__.py": '"""Deep."""\n',
    "src/pykai/deep/middle.py": "from . import bottom\nfrom .bottom import Row\n\nPlan = dict[str, int]\n" + LONG,
    "src/pykai/deep/bottom.py": (
        "from typing import TYPE_CHECKING, NewType\n"
        "if TYPE_CHECKING:\n    from pykai.deep.middle import Plan\n"
        'Row = NewType("Row", int)\n'
        f"# {CYCLE}:ZZZ-1, {CYCLE}:ZZZ-2 and {KUBE}:ZZZ-3\n"
    ),
    "src/pykai/late.py": "def late() -> None:\n    from pykai import top\n    from pykai.late import late\n",
    "src/pykai/wide.py": "from pykai import top, late\n" + "x = 1\n" * 600,
    "tests/test_wide.py": "x = 1\n" * 601,
    "tests/test_narrow.py": "x = 1\n" * 600,
    "docs/spec/scheduling-cycle.md": '- <a id="ZZZ-1"></a>**ZZZ-1** Snapshots are taken once.\n',
    "docs/spec/queues.md": '- <a id="ZZZ-2"></a>**ZZZ-2** Another document.\n',
    "docs/spec/ours.md": f'- <a id="{KUBE}:ZZZ-3"></a>**{KUBE}:ZZZ-3** A statement of our own.\n',
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_every_figure_of_a_small_tree(tree: Path) -> None:
    assert measure(tree) == {
        "modules": 7,
        "packages": 2,
        "lines": sum(len(text.splitlines()) for name, text in FILES.items() if name.startswith("src")),
        # The two modules of the type-only cycle are one step.
        "longest import chain": [["pykai.wide"], ["pykai.top"], ["pykai.deep.bottom", "pykai.deep.middle"]],
        "import cycles, runtime": [],
        "import cycles, with type-only imports": [["pykai.deep.bottom", "pykai.deep.middle"]],
        "import cycles, with imports in functions": [],
        "type-only imports": 1,
        "imports in functions": 1,
        "modules with more than 15 imports of ours": [],
        "largest fan-in": [
            ("pykai.deep.bottom", 2),
            ("pykai.deep.middle", 2),
            ("pykai.late", 1),
            ("pykai.top", 1),
        ],
        "functions with more than 60 lines": [("pykai.deep.middle:long", 61)],
        "modules with more than 600 lines": [("pykai.wide", 601)],
        "test modules with more than 600 lines": [("tests/test_wide.py", 601)],
        "duplicate type names": {"Plan": ["pykai.deep.middle", "pykai.top"]},
        "ids without anchor": [f"{CYCLE}:ZZZ-2"],
    }


def test_no_two_types_of_the_project_share_a_name() -> None:
    found = measure(Path(__file__).parents[2])
    assert found["modules"] > 500
    assert found["duplicate type names"] == {}


def test_an_import_in_a_function_closes_a_cycle_of_its_own_kind(tree: Path) -> None:
    (tree / "src/pykai/top.py").write_text("from pykai.late import late\n")
    found = measure(tree)
    assert found["import cycles, with imports in functions"] == [["pykai.late", "pykai.top"]]
    assert found["import cycles, runtime"] == []


def test_many_imports_are_counted_by_module(tree: Path) -> None:
    for number in range(16):
        (tree / f"src/pykai/small{number}.py").write_text("")
    (tree / "src/pykai/late.py").write_text("".join(f"import pykai.small{number}\n" for number in range(16)))
    (tree / "src/pykai/top.py").write_text("".join(f"import pykai.small{number}\n" for number in range(15)))
    assert measure(tree)["modules with more than 15 imports of ours"] == [("pykai.late", 16)]


def test_cycles_and_chains_of_graphs() -> None:
    graph = {"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": ["e"], "e": [], "f": ["e"]}
    assert cycles(graph) == [["a", "b", "c"]]
    assert longest_chain(graph) == [["a", "b", "c"], ["d"], ["e"]]


def test_two_checkouts_stand_side_by_side(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    (other / "src/pykai").mkdir(parents=True)
    (other / "src/pykai/__init__.py").write_text("")
    assert main(["--root", str(tree), "--tree", str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [str(other), "here"]
    assert lines[1].split() == ["modules", "1", "7"]
    assert main(["--root", str(tree), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["modules"] == 7
