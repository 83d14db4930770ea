"""Prints figures of the source tree: `python tools/architecture.py`.

Reads every module below `src/pykai` with `ast`, and counts the lines of test modules. It imports nothing, and so
measures any checkout, whatever its layout:

    python tools/architecture.py                      # this checkout
    python tools/architecture.py --tree ../before     # another one beside it, in a second column
    python tools/architecture.py --json               # for programs, with every name behind a figure

An import has one of three kinds. *Runtime*: it runs when the module is imported. *Type-only*: it stands below
`if TYPE_CHECKING`. *Local*: it stands inside a function. The longest chain, fan-in and the number of imports count
runtime and type-only imports, as import-linter does by default; local ones have figures of their own.

Subtle: cycles make the longest path endless, so the chain runs through the condensation of the graph: the modules of
one cycle are one step. `from package import module` is an import of the module, not of the package; what a package's
`__init__.py` defines or imports counts as the package.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE = "pykai"
MANY_IMPORTS = 15
LONG_FUNCTION = 60
LONG_MODULE = 600
RUNTIME, TYPE_ONLY, LOCAL = "runtime", "type-only", "local"

#: where statements are cited
_CITING = ("src", "tests", "mutants")
#: a statement: document, letters, number, and a letter for a clause
_ID = re.compile(r"\b([a-z][a-z-]*):([A-Z]{1,5}-?\d+[a-z]?)\b")
_ALIAS_MAKERS = frozenset({"NewType", "TypeVar", "NamedTuple", "TypedDict", "namedtuple", "ParamSpec"})

Graph = Mapping[str, Iterable[str]]


@dataclass
class Module:
    """Facts about one file."""

    name: str
    path: Path
    lines: int
    #: imported modules of ours by kind
    imports: dict[str, set[str]] = field(default_factory=lambda: {RUNTIME: set(), TYPE_ONLY: set(), LOCAL: set()})
    #: qualified name and number of lines of every function
    functions: list[tuple[str, int]] = field(default_factory=list)
    #: classes and type aliases at any level
    types: list[str] = field(default_factory=list)

    @property
    def known(self) -> set[str]:
        """Modules it imports outside functions."""
        return self.imports[RUNTIME] | self.imports[TYPE_ONLY]


class _TableReader(ast.NodeVisitor):
    """Fills one `Module`."""

    def __init__(self, module: Module, modules: Mapping[str, Path]) -> None:
        self._module = module
        self._modules = modules
        self._scope: list[str] = []
        self._in_function = 0
        self._for_types = 0

    def visit_If(self, node: ast.If) -> None:
        for_types = ast.unparse(node.test).endswith("TYPE_CHECKING")
        self.visit(node.test)
        self._for_types += for_types
        for statement in node.body:
            self.visit(statement)
        self._for_types -= for_types
        for statement in node.orelse:
            self.visit(statement)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        source = node.module or ""
        if node.level:
            own = self._module.name.split(".")
            if self._module.path.name != "__init__.py":
                own.pop()
            source = ".".join([*own[: len(own) - node.level + 1], *([source] if source else [])])
        for alias in node.names:
            name = f"{source}.{alias.name}"
            self._add(name if name in self._modules else source)

    def _add(self, name: str) -> None:
        kind = LOCAL if self._in_function else TYPE_ONLY if self._for_types else RUNTIME
        if name in self._modules and name != self._module.name:
            self._module.imports[kind].add(name)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        name = ".".join([*self._scope, node.name])
        self._module.functions.append((name, (node.end_lineno or node.lineno) - node.lineno + 1))
        self._in_function += 1
        self._inside(node)
        self._in_function -= 1

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._module.types.append(node.name)
        self._inside(node)

    def _inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if not self._in_function and isinstance(target, ast.Name) and _is_alias(target.id, node.value):
            self._module.types.append(target.id)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name) and ast.unparse(node.annotation).endswith("TypeAlias"):
            self._module.types.append(node.target.id)
        self.generic_visit(node)


def _is_alias(name: str, value: ast.expr) -> bool:
    """Whether an assignment defines a type: `Row = NewType(...)`, `Key = tuple[str, int]`, `Sum = int | None`."""
    if not name.lstrip("_")[:1].isupper() or name.isupper():
        return False
    if isinstance(value, ast.Call):
        called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return called in _ALIAS_MAKERS and called not in ("TypeVar", "ParamSpec")
    return isinstance(value, (ast.Subscript, ast.BinOp, ast.Name, ast.Attribute))


def module_names(source: Path) -> dict[str, Path]:
    """The files below a source folder by the name under which Python imports them."""
    found = {}
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def read_tree(root: Path) -> dict[str, Module]:
    """Every module of a checkout."""
    names = module_names(root / "src")
    modules = {}
    for name, path in names.items():
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, path, len(text.splitlines()))
        _TableReader(modules[name], names).visit(ast.parse(text, str(path)))
    return modules


def components(graph: Graph) -> list[list[str]]:
    """Strongly connected components, those that import nothing of the others first (Tarjan, without recursion)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    done: list[list[str]] = []
    placed: set[str] = set()
    for start in graph:
        if start in number:
            continue
        work: list[tuple[str, Iterator[str]]] = [(start, iter(sorted(graph[start])))]
        number[start] = low[start] = len(number)
        stack.append(start)
        while work:
            name, rest = work[-1]
            for other in rest:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other not in placed:
                    low[name] = min(low[name], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == number[name]:
                    at = stack.index(name)
                    done.append(sorted(stack[at:]))
                    placed.update(stack[at:])
                    del stack[at:]
    return done


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of modules that import one another."""
    return sorted(group for group in components(graph) if len(group) > 1)


def longest_chain(graph: Graph) -> list[list[str]]:
    """The longest path, importer first; a step is a module, or all modules of a cycle."""
    best: dict[str, list[list[str]]] = {}
    longest: list[list[str]] = []
    for group in components(graph):
        below = {other for name in group for other in graph[name]} - set(group)
        tail = max((best[other] for other in sorted(below)), key=len, default=[])
        chain = [group, *tail]
        best.update(dict.fromkeys(group, chain))
        longest = max(longest, chain, key=len)
    return longest


def ids_without_anchor(root: Path) -> list[str]:
    """Statements cited in code, tests and mutants that have no `<a id="...">` in docs/spec.

    `cycle:SNP-1` is the anchor SNP-1 of a document with a word in its name that begins with `cycle`, or the anchor
    cycle:SNP-1 of any.
    """
    anchors: dict[str, set[str]] = {}
    for path in sorted((root / "docs" / "spec").glob("*.md")):
        anchors[path.stem] = set(re.findall(r'<a id="([^"]+)"', path.read_text(encoding="utf-8")))
    whole = set[str]().union(*anchors.values())
    cited: set[tuple[str, str]] = set()
    for folder in _CITING:
        for path in (root / folder).rglob("*"):
            if path.suffix in (".py", ".toml", ".txt"):
                cited.update(_ID.findall(path.read_text(encoding="utf-8")))
    return sorted(
        f"{document}:{number}"
        for document, number in cited
        if f"{document}:{number}" not in whole
        and not any(
            number in numbers and any(word.startswith(document) for word in stem.split("-"))
            for stem, numbers in anchors.items()
        )
    )


def measure(root: Path) -> dict[str, Any]:
    """All figures of a checkout, each with the items it counts."""
    modules = read_tree(root)
    outside = {name: module.known for name, module in modules.items()}
    runtime = {name: module.imports[RUNTIME] for name, module in modules.items()}
    everything = {name: module.known | module.imports[LOCAL] for name, module in modules.items()}
    importers: dict[str, int] = defaultdict(int)
    for imported in outside.values():
        for name in imported:
            importers[name] += 1
    defined: dict[str, list[str]] = defaultdict(list)
    for name, module in modules.items():
        for type_name in module.types:
            defined[type_name].append(name)
    runtime_cycles = cycles(runtime)
    typed_cycles = [group for group in cycles(outside) if group not in runtime_cycles]
    local_cycles = [group for group in cycles(everything) if group not in runtime_cycles + typed_cycles]
    functions = [(f"{m.name}:{name}", lines) for m in modules.values() for name, lines in m.functions]
    return {
        "modules": len(modules),
        "packages": sum(1 for module in modules.values() if module.path.name == "__init__.py"),
        "lines": sum(module.lines for module in modules.values()),
        "longest import chain": longest_chain(outside),
        "import cycles, runtime": runtime_cycles,
        "import cycles, with type-only imports": typed_cycles,
        "import cycles, with imports in functions": local_cycles,
        "type-only imports": sum(len(module.imports[TYPE_ONLY]) for module in modules.values()),
        "imports in functions": sum(len(module.imports[LOCAL]) for module in modules.values()),
        f"modules with more than {MANY_IMPORTS} imports of ours": _largest(
            (name, len(known)) for name, known in outside.items() if len(known) > MANY_IMPORTS
        ),
        "largest fan-in": _largest(importers.items())[:5],
        f"functions with more than {LONG_FUNCTION} lines": _largest(
            (name, lines) for name, lines in functions if lines > LONG_FUNCTION
        ),
        f"modules with more than {LONG_MODULE} lines": _largest(
            (module.name, module.lines) for module in modules.values() if module.lines > LONG_MODULE
        ),
        f"test modules with more than {LONG_MODULE} lines": _largest(
            (str(path.relative_to(root)), lines)
            for path in sorted((root / "tests").rglob("*.py"))
            if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONG_MODULE
        ),
        "duplicate type names": {name: places for name, places in sorted(defined.items()) if len(places) > 1},
        "ids without anchor": ids_without_anchor(root),
    }


def _largest(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(counts, key=lambda each: (-each[1], each[0]))


def figure(name: str, value: Any) -> str:
    """A value as the table shows it."""
    if name == "largest fan-in":
        return f"{value[0][1]} ({value[0][0].removeprefix(PACKAGE + '.')})" if value else "0"
    return f"{value:,}" if isinstance(value, int) else str(len(value))


def details(name: str, value: Any) -> list[str]:
    """The items behind a figure, one line each."""
    if name == "longest import chain":
        return [" = ".join(step) for step in value]
    if name.startswith("import cycles"):
        return [" = ".join(group) for group in value]
    if isinstance(value, dict):
        return [f"{key}: {', '.join(places)}" for key, places in value.items()]
    if name == "ids without anchor":
        return [", ".join(value)] if value else []
    return [f"{count:>5}  {each}" for each, count in value] if isinstance(value, list) else []


def table(columns: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The figures of several checkouts side by side."""
    names = list(columns[0][1])
    rows = [["", *(title for title, _ in columns)]]
    rows += [[name, *(figure(name, figures[name]) for _, figures in columns)] for name in names]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(prog="architecture.py", description="Figures of the source tree.")
    parser.add_argument("--tree", metavar="DIR", type=Path, action="append", default=[], help="another checkout, too")
    parser.add_argument("--root", metavar="DIR", type=Path, default=Path(__file__).parents[1], help="the project")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--details", action="store_true", help="print what stands behind the figures of the project")
    options = parser.parse_args(given)
    measured = [(str(tree), measure(tree)) for tree in (*options.tree, options.root)]
    if options.json:
        print(json.dumps(dict(measured) if options.tree else measured[0][1], indent=2))
        return 0
    titles = [*(title for title, _ in measured[:-1]), "here"] if options.tree else [""]
    columns = [(title, figures) for title, (_, figures) in zip(titles, measured, strict=True)]
    print(table(columns))
    for name, value in measured[-1][1].items():
        lines = details(name, value)
        if lines and (options.details or name in ("longest import chain", "import cycles, runtime")):
            print(f"\n{name}")
            print("\n".join(f"  {line}" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
