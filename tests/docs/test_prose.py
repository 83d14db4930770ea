"""Our prose avoids patterns that are never right in it: docs, docstrings, comments and texts of the program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pykai"
TESTS = ROOT / "tests"

#: Pattern -> what to write instead.
PATTERNS = {
    r"\b\d+\. time\b": '"3 times in a row", "the third time"',
    r"\b(any|every|no|some)body\b|\bno one\b": "the pod, process or user that is meant",
    r"\bwho(so)?ever\b|\bwhom\b|\bwhomever\b": "the pod, process or user that is meant",
    r"\b(he|him|his|himself|she|her|hers)\b": "the noun, or it",
    r"(^|[.:;] )Who [a-z]+ [^?]*$": "the thing as subject: who is for questions",
    r"\bbooks?\b": "ledger, or record",
    r"\bcensus\b": "group index",
    r"\b(the|an|this|equal|own) asks?\b|\basks (with|that)\b": "request",
    r"\bseats?\b": "placement, or device",
    r"\bno news\b|\bthe news\b|\bis news\b": "status diff, or change",
    r"\bcomplaints?\b": "problem",
    r"\bhopeless\b": "unresolvable",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bby and by\b|\bnow and then\b|\bin (his|its|their) stead\b|\bin vain\b|\bbe it\b": "plain words",
    r"^\W*[-=]{3,}\W*\w|\w\W*[-=]{4,}$": "no separators: a module is divided by its functions",
}
COMPILED = [
    (re.compile(pattern, re.IGNORECASE if "Who" not in pattern else 0), why) for pattern, why in PATTERNS.items()
]

#: The six documents taken over from the specification of KAI Scheduler.
TAKEN_OVER = {
    "gpu-sharing-and-binding.md",
    "operations.md",
    "queues-and-fairness.md",
    "scheduling-cycle.md",
    "topology.md",
    "workloads-and-pod-groups.md",
}
#: Modules whose texts are KAI's or Kubernetes' own, or old names; their comments and docstrings are ours.
FOREIGN_TEXTS = {"core/report/sentences.py", "api/crds.py", "api/names.py", "deprecated.py"}

#: Words that are never right in the name of a test.
NAME = re.compile(
    r"_(any|every|no|some)body(_|s?$)|_who(so)?ever_|_whom_|_(he|him|his|anew|told|books|leavers?)(_|$)|^test_who_"
)


#: A string, in which a # is no comment, or a comment. Python's tokenizer takes fifteen times as long.
LITERAL_OR_COMMENT = re.compile(
    r"""\"{3}(?:\\.|.)*?\"{3}|'{3}(?:\\.|.)*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*""", re.DOTALL
)


class Prose(NamedTuple):
    line: int
    text: str


def pages() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(page for page in found if page.name not in TAKEN_OVER)


def prose_of_page(text: str) -> Iterator[Prose]:
    """The lines of a page without code and links."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not re.match(r"^\|[-|]+\|$", line):
            yield Prose(number, re.sub(r"`[^`]*`|\]\([^)]*\)|<a id=[^>]*>|^\s*\|", " ", line))


def without_values(line: str) -> str:
    """A line without names in backticks and single words in quotes."""
    return re.sub(r"`[^`]*`|\"\w+\"", " ", line)


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """All statements of a module. Most nodes are expressions: a walk without them takes a fraction of `ast.walk`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            for each in getattr(node, name, ()):
                waiting.append(each)
                if isinstance(each, ast.stmt):
                    yield each


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in (tree, *statements(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.value


def sentences(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings and other strings of several words; a single word is a value, not prose."""
    yield from (each for each in docstrings(tree) if " " not in str(each.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node


def prose_of_module(source: str, tree: ast.Module, *, texts: bool) -> Iterator[Prose]:
    """Comments, docstrings and, if wanted, other strings that are sentences."""
    for match in LITERAL_OR_COMMENT.finditer(source):
        if match.group().startswith("#"):
            line = source.count("\n", 0, match.start()) + 1
            yield Prose(line, without_values(match.group().lstrip("#: ")))
    for node in sentences(tree) if texts else docstrings(tree):
        for offset, line_of_text in enumerate(str(node.value).splitlines()):
            yield Prose(node.lineno + offset, without_values(line_of_text))


def findings(prose: Iterator[Prose], name: str) -> list[str]:
    return [
        f"{name}:{each.line}: {match.group().strip()!r} -> {why}"
        for each in prose
        for pattern, why in COMPILED
        if (match := pattern.search(each.text))
    ]


def package_of(path: Path) -> str:
    """The package below pykai: `core/placing`, `kube`; a module at the top is its own."""
    parts = path.relative_to(SOURCE).parts
    return "/".join(parts[:-1][:2]) or parts[-1]


PACKAGES = sorted({package_of(path) for path in SOURCE.rglob("*.py")})


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page: Path) -> None:
    found = findings(prose_of_page(page.read_text(encoding="utf-8")), page.name)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize("package", PACKAGES)
def test_modules(package: str) -> None:
    found = [
        line
        for path in sorted(SOURCE.rglob("*.py"))
        if package_of(path) == package
        for name in [str(path.relative_to(SOURCE))]
        for source in [path.read_text(encoding="utf-8")]
        for line in findings(prose_of_module(source, ast.parse(source), texts=name not in FOREIGN_TEXTS), name)
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def names_of_tests(tree: ast.Module) -> Iterator[Prose]:
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Prose(node.lineno, node.name)


TEST_FOLDERS = sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("*.py")})


@pytest.mark.parametrize("folder", TEST_FOLDERS)
def test_tests(folder: str) -> None:
    root = TESTS / folder
    found = []
    for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
        name, source = str(path.relative_to(TESTS)), path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        found += findings(prose_of_module(source, tree, texts=False), name)
        found += [f"{name}:{each.line}: {each.text}" for each in names_of_tests(tree) if NAME.search(each.text)]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize(
    "text",
    [
        "for the 3. time",
        "before anybody is told why he waits",
        "Who lost its lease writes nothing",
        "has books of its own",
    ],
)
def test_what_is_found(text: str) -> None:
    assert findings(prose_of_page(text), "page")

    def found(source: str, *, texts: bool = False) -> list[str]:
        return findings(prose_of_module(source, ast.parse(source), texts=texts), "module")

    assert found(f"# {text}\n")[0].startswith("module:1: ")
    assert found(f"x = \"# \\\"\"\ny = '''\n\"'''  # {text}\n")[0].startswith("module:3: ")
    assert found(f'"""{text}."""\n')
    assert found(f'if x:\n    pass\nelse:\n    def f():\n        """\n{text}"""\n')[0].startswith("module:6: ")
    assert not found(f'x = "{text}"\n')
    assert not found(f'x = "# {text}"\n')
    assert found(f'x = "{text}"\n', texts=True)


@pytest.mark.parametrize("text", ["Who may write a status?", "The pod asks for 3 GPUs.", "| who | may |", "`books`"])
def test_what_is_fine(text: str) -> None:
    assert not findings(prose_of_page(text), "page")


@pytest.mark.parametrize(
    "name",
    [
        "test_a_gang_evicts_nobody",
        "test_who_waits_is_known",
        "test_tables_built_anew_are_equal",
        "test_pods_are_told_why",
    ],
)
def test_which_names_are_found(name: str) -> None:
    (found,) = names_of_tests(ast.parse(f"class Test:\n    def {name}():\n        pass\n"))
    assert NAME.search(found.text)


@pytest.mark.parametrize("name", ["test_the_operator_is_nominated", "test_a_ledger_is_rebuilt"])
def test_which_names_are_fine(name: str) -> None:
    assert not NAME.search(name)
