"""Finds a fragment of Python in a syntax tree, whatever its layout and the names in it are now.

A rule is switched off by replacing one fragment, an expression or a few statements, with another one. The fragment is
looked for inside one function or class (`where`), first as it is written; if it is not there, by its shape: every
identifier may have become another one, as long as equal ones stay equal and different ones different; if that fails
too, the contents of strings may differ as well. Renames of identifiers are applied to the replacement.

    where = "core.placing.gang:place_gang"    module below the package, and the qualified name of a function or class;
                                            nothing behind the colon: the module outside of both
    old   = "len(batch) > 1"                an expression, or statements
    new   = "len(batch) > 0"                what stands there instead; empty: the statements are gone
    nth   = 2                               which place of this shape is meant, if there are several

A body that is only `...` stands for any body, and the same sign in `new` for the one that was found, in order:
`def read(path, strict=False): ...` is the head of a function.

Subtle: names, attributes and keywords are distinct (a parameter may be renamed and the attribute of the same name not),
and builtins only match themselves. A class or module does not include the functions and classes it defines, apart from
their being there: those have qualified names of their own.
"""

from __future__ import annotations

import ast
import builtins
import copy
import difflib
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

#: parent, field and, in a list, the index
Step = tuple[ast.AST, str, int | None]
#: kind and name of an identifier
Identifier = tuple[str, str]

NAME, ATTRIBUTE, KEYWORD, TEXT = "name", "attribute", "keyword", "text"
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IDENTIFIERS = {
    (ast.Name, "id"): NAME,
    (ast.arg, "arg"): NAME,
    (ast.FunctionDef, "name"): NAME,
    (ast.AsyncFunctionDef, "name"): NAME,
    (ast.ClassDef, "name"): NAME,
    (ast.alias, "name"): NAME,
    (ast.alias, "asname"): NAME,
    (ast.ImportFrom, "module"): NAME,
    (ast.Global, "names"): NAME,
    (ast.Nonlocal, "names"): NAME,
    (ast.ExceptHandler, "name"): NAME,
    (ast.MatchAs, "name"): NAME,
    (ast.MatchStar, "name"): NAME,
    (ast.MatchMapping, "rest"): NAME,
    (ast.Attribute, "attr"): ATTRIBUTE,
    (ast.MatchClass, "kwd_attrs"): ATTRIBUTE,
    (ast.keyword, "arg"): KEYWORD,
}
#: Fields that do not affect the meaning.
_IGNORED = frozenset({"ctx", "kind", "type_comment"})
_FIXED = frozenset({*dir(builtins), "self", "cls"})


class Unanchored(Exception):
    """The fragment is not Python, or cannot be found; the text says why."""


@dataclass
class Binding:
    """What the identifiers and the bodies left open of a fragment are in the code."""

    forward: dict[Identifier, str] = field(default_factory=dict)
    backward: dict[Identifier, str] = field(default_factory=dict)
    bodies: list[list[ast.stmt]] = field(default_factory=list)

    def bind(self, kind: str, pattern: str, found: str) -> bool:
        """Whether the one may stand for the other everywhere."""
        same = self.forward.setdefault((kind, pattern), found) == found
        return self.backward.setdefault((kind, found), pattern) == pattern and same

    @property
    def renamed(self) -> dict[Identifier, str]:
        """The identifiers that have other names in the code."""
        return {key: found for key, found in self.forward.items() if key[1] != found}


@dataclass(frozen=True)
class Freedom:
    """In what the code may differ from a fragment."""

    names: bool
    texts: bool
    #: a body that is only `...` stands for any body
    bodies: bool = True


EXACT, RENAMED, REWORDED = Freedom(False, False), Freedom(True, False), Freedom(True, True)


def is_unplaced(body: object) -> bool:
    """Whether a list of statements is only `...`."""
    return (
        isinstance(body, list)
        and len(body) == 1
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and body[0].value.value is ...
    )


def same(pattern: object, found: object, freedom: Freedom, binding: Binding) -> bool:
    """Whether the code is what the fragment says; the binding grows on the way."""
    if isinstance(pattern, list):
        if not isinstance(found, list):
            return False
        if freedom.bodies and is_unplaced(pattern) and found and isinstance(found[0], ast.stmt):
            binding.bodies.append(found)
            return True
        return len(pattern) == len(found) and all(
            same(*pair, freedom, binding) for pair in zip(pattern, found, strict=True)
        )
    if not isinstance(pattern, ast.AST):
        return type(pattern) is type(found) and repr(pattern) == repr(found)
    if type(pattern) is not type(found):
        return False
    if isinstance(pattern, ast.Constant) and isinstance(found, ast.Constant):
        if freedom.texts and isinstance(pattern.value, str) and isinstance(found.value, str):
            return binding.bind(TEXT, pattern.value, found.value)
        return type(pattern.value) is type(found.value) and repr(pattern.value) == repr(found.value)
    for name in pattern._fields:
        if name in _IGNORED:
            continue
        was, becomes = getattr(pattern, name, None), getattr(found, name, None)
        kind = _IDENTIFIERS.get((type(pattern), name))
        if kind is None:
            if not same(was, becomes, freedom, binding):
                return False
            continue
        pairs = (was, becomes) if isinstance(was, list) and isinstance(becomes, list) else ([was], [becomes])
        if len(pairs[0]) != len(pairs[1]):
            return False
        for old, new in zip(*pairs, strict=True):
            if old is None or new is None:
                if old is not new:
                    return False
            elif (old != new and not (freedom.names and _may_become(kind, old, new))) or not binding.bind(
                kind, old, new
            ):
                return False
    return True


def _may_become(kind: str, old: str, new: str) -> bool:
    """Whether an identifier may have another name: builtins keep theirs."""
    return kind != NAME or {old, new}.isdisjoint(_FIXED)


class _Filled(ast.NodeTransformer):
    """A fragment with the identifiers, texts and bodies of the code."""

    def __init__(self, names: dict[Identifier, str], bodies: Sequence[list[ast.stmt]] = ()) -> None:
        self._names = names
        self._bodies = iter(bodies)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in node._fields:
            kind = _IDENTIFIERS.get((type(node), name))
            value = getattr(node, name, None)
            if kind and isinstance(value, str):
                setattr(node, name, self._names.get((kind, value), value))
            elif kind and isinstance(value, list):
                setattr(node, name, [self._names.get((kind, each), each) for each in value])
            elif is_unplaced(value) and (body := next(self._bodies, None)) is not None:
                setattr(node, name, body)
                continue
            elif isinstance(value, list) and any(isinstance(each, ast.stmt) for each in value):
                setattr(node, name, self._statements(value))
            elif isinstance(value, list):
                setattr(node, name, [self.visit(each) if isinstance(each, ast.AST) else each for each in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node

    def _statements(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Statements in which a `...` among others is a body too."""
        filled: list[ast.stmt] = []
        for statement in statements:
            body = next(self._bodies, None) if is_unplaced([statement]) else None
            filled += body if body is not None else [self.visit(statement)]
        return filled

    def statements(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        return self._statements(list(statements))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            node.value = self._names.get((TEXT, node.value), node.value)
        return node


@dataclass(frozen=True)
class Fragment:
    """What to look for, and its replacement."""

    #: one expression, or statements
    old: Sequence[ast.expr] | Sequence[ast.stmt]
    new: Sequence[ast.expr] | Sequence[ast.stmt]

    @classmethod
    def parse(cls, old: str, new: str) -> Fragment:
        """An expression if both are one; otherwise statements."""
        parsed = []
        for name, text in (("old", old), ("new", new)):
            try:
                parsed.append(ast.parse(textwrap.dedent(text.strip("\n"))).body)
            except SyntaxError as error:
                raise Unanchored(f"`{name}` is not Python: {error}") from None
        if not parsed[0]:
            raise Unanchored("`old` is empty")
        if all(len(body) == 1 and isinstance(body[0], ast.Expr) for body in parsed):
            return cls(*([body[0].value] for body in parsed))  # type: ignore[attr-defined]
        return cls(*parsed)

    @property
    def is_expression(self) -> bool:
        """Whether it stands for an expression, which may be anywhere."""
        return isinstance(self.old[0], ast.expr)

    def filled(self, binding: Binding) -> list[ast.expr] | list[ast.stmt]:
        """The replacement, in the names of the code."""
        filler = _Filled(binding.renamed, [copy.deepcopy(body) for body in binding.bodies])
        new = copy.deepcopy(list(self.new))
        if self.is_expression:
            return [filler.visit(node) for node in new]
        return filler.statements(new)  # type: ignore[arg-type]

    def renamed(self, names: dict[Identifier, str]) -> tuple[str, str]:
        """Both texts with other identifiers; the bodies left open stay open."""
        filler = _Filled(names)
        return tuple(  # type: ignore[return-value]
            "\n".join(ast.unparse(filler.visit(node)) for node in copy.deepcopy(list(nodes)))
            for nodes in (self.old, self.new)
        )


@dataclass(frozen=True)
class Place:
    """Where a fragment was found."""

    source: Source
    qualname: str
    #: from the module to the fragment; the last step leads to its (first) node
    steps: tuple[Step, ...]
    #: how many nodes it takes there
    length: int
    binding: Binding

    @property
    def line(self) -> int:
        parent, name, index = self.steps[-1]
        value = getattr(parent, name)
        return getattr(value if index is None else value[index], "lineno", 1)

    @property
    def where(self) -> str:
        return f"{self.source.module}:{self.qualname}"


class Source:
    """One module: its tree, and the functions and classes in it."""

    def __init__(self, file: str, module: str, text: str) -> None:
        self.file = file
        self.module = module
        self.text = text

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def scopes(self) -> dict[str, list[tuple[Step, ...]]]:
        """Steps to every function and class; a name may be defined more than once, as that of a property is."""
        found: dict[str, list[tuple[Step, ...]]] = defaultdict(list)

        def look(node: ast.AST, qualname: str, steps: tuple[Step, ...]) -> None:
            for step, child in children(node):
                if isinstance(child, DEFINITIONS):
                    name = f"{qualname}.{child.name}" if qualname else child.name
                    found[name].append((*steps, step))
                    look(child, name, (*steps, step))
                elif not isinstance(child, ast.expr):
                    look(child, qualname, (*steps, step))

        look(self.tree, "", ())
        return dict(found)

    def nodes(self, qualname: str) -> Iterator[tuple[tuple[Step, ...], ast.AST]]:
        """Everything in a function or class, or in the module outside of both."""
        if not qualname:
            yield from _below(self.tree, (), closed=True)
        for steps in self.scopes.get(qualname, ()):
            parent, name, index = steps[-1]
            node = getattr(parent, name)[index]
            yield steps, node
            yield from _below(node, steps, closed=isinstance(node, ast.ClassDef))

    def places(self, fragment: Fragment, qualname: str, freedom: Freedom) -> list[Place]:
        """Where the fragment is found in a scope, in the order of the text."""
        kind = type(fragment.old[0])
        nodes = ((steps, node) for steps, node in self.nodes(qualname) if type(node) is kind)
        return [Place(self, qualname, *found) for found in _fitting(nodes, fragment, freedom)]

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[tuple[tuple[Step, ...], ast.AST]]]:
        kinds: dict[type[ast.AST], list[tuple[tuple[Step, ...], ast.AST]]] = defaultdict(list)
        for steps, node in _below(self.tree, (), closed=False):
            kinds[type(node)].append((steps, node))
        return kinds

    def everywhere(self, fragment: Fragment, freedom: Freedom) -> list[Place]:
        """Where the fragment is found in the module, each place in its innermost scope."""
        nodes = self._by_kind.get(type(fragment.old[0]), [])
        return [Place(self, self._scope(found[0]), *found) for found in _fitting(nodes, fragment, freedom)]

    def _scope(self, steps: tuple[Step, ...]) -> str:
        """The innermost function or class on the way."""
        names: list[str] = []
        for parent, name, index in steps:
            node = getattr(parent, name) if index is None else getattr(parent, name)[index]
            names += [node.name] if isinstance(node, DEFINITIONS) else []
        return ".".join(names)


def children(node: ast.AST) -> Iterator[tuple[Step, ast.AST]]:
    """The nodes directly below one, with the way to them."""
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield (node, name, None), value
        elif isinstance(value, list):
            for index, each in enumerate(value):
                if isinstance(each, ast.AST):
                    yield (node, name, index), each


def _fitting(
    nodes: Iterable[tuple[tuple[Step, ...], ast.AST]], fragment: Fragment, freedom: Freedom
) -> Iterator[tuple[tuple[Step, ...], int, Binding]]:
    """Those of the nodes where the fragment begins."""
    length = len(fragment.old)
    for steps, node in nodes:
        parent, name, index = steps[-1]
        here = [node] if fragment.is_expression else getattr(parent, name)[index:][:length]
        binding = Binding()
        if len(here) == length and all(same(*pair, freedom, binding) for pair in zip(fragment.old, here, strict=True)):
            yield steps, length, binding


def _below(node: ast.AST, steps: tuple[Step, ...], *, closed: bool) -> Iterator[tuple[tuple[Step, ...], ast.AST]]:
    for step, child in children(node):
        yield (*steps, step), child
        if not (closed and isinstance(child, DEFINITIONS)):
            yield from _below(child, (*steps, step), closed=closed)


class Sources:
    """All modules of a project by the names that anchors use."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._packages = sorted(path.parent for path in root.glob("src/*/__init__.py"))
        self._read: dict[str, Source | None] = {}

    def get(self, module: str) -> Source | None:
        """A module below the package or, as `tests.core.builders`, below the root."""
        if module not in self._read:
            self._read[module] = self._find(module)
        return self._read[module]

    def _find(self, module: str) -> Source | None:
        path = Path(*module.split("."))
        for folder in (*self._packages, self._root):
            for file in (folder / path.with_suffix(".py"), folder / path / "__init__.py"):
                if module and file.is_file():
                    return Source(str(file.relative_to(self._root)), module, file.read_text(encoding="utf-8"))
        return None

    def module(self, file: Path) -> str:
        """The name of a file in anchors."""
        folder = next((each for each in self._packages if file.is_relative_to(each)), self._root)
        path = file.relative_to(folder).with_suffix("")
        return ".".join(path.parts[:-1] if path.name == "__init__" and len(path.parts) > 1 else path.parts)

    @cached_property
    def modules(self) -> list[str]:
        """All modules of the packages."""
        return [self.module(file) for package in self._packages for file in sorted(package.rglob("*.py"))]

    def everywhere(self, fragment: Fragment, freedom: Freedom, limit: int = 4) -> list[Place]:
        """Where the fragment is found in the project; some of the places, when there are many."""
        found: list[Place] = []
        for source in filter(None, map(self.get, self.modules)):
            found += source.everywhere(fragment, freedom)
            if len(found) >= limit:
                break
        return found


def find(sources: Sources, where: str, fragment: Fragment, nth: int | None = None) -> Place:
    """The place that an anchor means; `Unanchored` says why there is none."""
    module, _, qualname = where.partition(":")
    source = sources.get(module)
    if source is None or (qualname and qualname not in source.scopes):
        return _moved(sources, where, fragment)
    exact = source.places(fragment, qualname, EXACT)
    if len(exact) == 1:
        return exact[0]
    shaped = source.places(fragment, qualname, RENAMED)
    if not shaped and not exact:
        shaped = source.places(fragment, qualname, REWORDED)
        if not shaped:
            raise Unanchored(f"{where} has no such code{_nearest(source, qualname, fragment)}")
        nth = None
    if len(shaped) == 1:
        return shaped[0]
    lines = ", ".join(str(place.line) for place in shaped)
    if nth is None:
        raise Unanchored(
            f"{len(shaped)} places of {where} look like this (lines {lines}): say which with `nth`, or give more of it"
        )
    if not 1 <= nth <= len(shaped):
        raise Unanchored(f"`nth` is {nth}, but {len(shaped)} places of {where} look like this (lines {lines})")
    chosen = shaped[nth - 1]
    if exact and chosen.steps not in [place.steps for place in exact]:
        raise Unanchored(f"`nth` is {nth}, but that place of {where} has other names (lines {lines})")
    return chosen


def position(place: Place, fragment: Fragment) -> int | None:
    """The `nth` of a place: None where it is the only one of its shape."""
    shaped = [each.steps for each in place.source.places(fragment, place.qualname, RENAMED)]
    return shaped.index(place.steps) + 1 if len(shaped) > 1 and place.steps in shaped else None


def _moved(sources: Sources, where: str, fragment: Fragment) -> Place:
    """The only place in the project with such code, when its function is gone."""
    for freedom in (EXACT, RENAMED):
        found = sources.everywhere(fragment, freedom)
        if len(found) == 1:
            return found[0]
        if found:
            places = ", ".join(f"{place.where} (line {place.line})" for place in found[:3])
            raise Unanchored(f"{where} is gone, and several places look like this: {places}")
    module = where.partition(":")[0]
    source = sources.get(module)
    if source is None:
        names, wanted = sources.modules, module
    else:
        names, wanted = [f"{module}:{name}" for name in source.scopes], where
    near = difflib.get_close_matches(wanted, names, 3, 0.4)
    raise Unanchored(f"{where} is gone, and such code is nowhere{_listed(near)}")


def _nearest(source: Source, qualname: str, fragment: Fragment) -> str:
    """The code in the scope that resembles the fragment most."""
    wanted = "\n".join(ast.unparse(node) for node in fragment.old)
    ratios = {
        f"`{_short(text)}` (line {getattr(node, 'lineno', 1)})": difflib.SequenceMatcher(None, wanted, text).ratio()
        for _, node in source.nodes(qualname)
        if isinstance(node, type(fragment.old[0])) and (text := ast.unparse(node))
    }
    return _listed(sorted((near for near in ratios if ratios[near] > 0.4), key=lambda near: -ratios[near])[:3])


def _short(text: str) -> str:
    first, _, rest = text.partition("\n")
    return first[:80] + (" ..." if rest or len(first) > 80 else "")


def _listed(near: Sequence[str]) -> str:
    return f"; nearest: {', '.join(near)}" if near else ""
