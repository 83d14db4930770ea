"""What mypy knows of every attribute, call and pattern: whose member `x.open` is.

mypy checks the whole tree once, with libraries from its cache, and keeps its syntax trees and the types of all
expressions. They are found by position: mypy and `ast` count lines and columns alike. `Types` answers for an attribute
which classes define it, for a keyword which function or class takes it. An answer with `UNKNOWN` in it means that mypy
has no type there (`Any`, or code it holds to be unreachable); such places are reported for a person to look at.

Subtle: mypy is compiled, so its visitors cannot be subclassed here; the trees are walked by the attributes of their
nodes.
"""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from mypy import build, nodes
from mypy.main import process_options
from mypy.patterns import ClassPattern, Pattern
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    LiteralType,
    NoneType,
    Overloaded,
    TupleType,
    Type,
    TypedDictType,
    TypeType,
    TypeVarLikeType,
    UninhabitedType,
    UnionType,
    get_proper_type,
)

UNKNOWN = "?"
#: a cache of its own, relative to the tree; the check after the renaming uses it too
CACHE = ".mypy_cache/renaming"
#: references out of the tree
_REFERENCES = frozenset({"node", "info", "type", "names", "def_var", "metadata", "typ", "alias"})
_WALKED = (nodes.CallExpr, nodes.MemberExpr, nodes.SuperExpr, nodes.FuncDef, nodes.ClassDef, ClassPattern)

Place = tuple[int, int, int, int]


class Types:
    """The checked tree."""

    def __init__(self, root: Path, folders: Iterable[str], interesting: Iterable[str]) -> None:
        """`interesting`: paths of files whose expressions will be asked for."""
        here = Path.cwd()
        os.chdir(root)
        try:
            sources, options = process_options(["--config-file", "pyproject.toml", *folders])
            options.preserve_asts = True
            options.export_types = True
            # What mypy reads from its cache has no syntax trees, so the cache may know libraries only.
            options.sqlite_cache = False
            options.cache_dir = CACHE
            for package in {"pykai", *folders}:
                for cached in Path(CACHE).glob(f"*/{package}"):
                    shutil.rmtree(cached)
                for cached in Path(CACHE).glob(f"*/{package}.*"):
                    cached.unlink()
            self._result = build.build(sources, options)
        finally:
            os.chdir(here)
        #: what mypy complains about before anything is renamed
        self.errors = list(self._result.errors)
        self._attributes: dict[str, dict[Place, nodes.MemberExpr | nodes.SuperExpr]] = {}
        self._calls: dict[str, dict[Place, nodes.CallExpr]] = {}
        self._patterns: dict[str, dict[Place, ClassPattern]] = {}
        self._functions: dict[str, dict[tuple[int, str], nodes.FuncDef]] = {}
        self.classes: dict[str, nodes.TypeInfo] = {}
        self._paths = {str(file.path).removeprefix("./"): file for file in self._result.files.values() if file.path}
        wanted = set(interesting)
        ours = tuple(f"{folder}/" for folder in folders)
        for path, file in self._paths.items():
            if path.startswith(ours):
                self._index(path, file, whole=path in wanted)

    def _index(self, path: str, file: nodes.MypyFile, *, whole: bool) -> None:
        if not whole:
            for _, symbol, _ in file.local_definitions():
                if isinstance(symbol.node, nodes.TypeInfo):
                    self.classes[symbol.node.fullname] = symbol.node
            return
        attributes = self._attributes.setdefault(path, {})
        calls = self._calls.setdefault(path, {})
        patterns = self._patterns.setdefault(path, {})
        functions = self._functions.setdefault(path, {})
        for node in _walk(file):
            match node:
                case nodes.MemberExpr() | nodes.SuperExpr():
                    attributes[_place(node)] = node
                case nodes.CallExpr():
                    calls[_place(node)] = node
                case ClassPattern():
                    patterns[_place(node)] = node
                case nodes.FuncDef():
                    functions[node.line, node.name] = node
                case nodes.ClassDef() if node.info:
                    self.classes[node.info.fullname] = node.info

    def attribute(self, path: str, node: ast.Attribute) -> set[str]:
        """The full names of the members an attribute may be."""
        found = self._attributes.get(path, {}).get(_place_of(node))
        if found is None:
            return {UNKNOWN}
        if isinstance(found, nodes.SuperExpr):
            return {_member(found.info.mro[1:], node.attr)} if found.info else {UNKNOWN}
        if found.node is not None and found.fullname:
            return {found.fullname}
        return self._members(self._result.types.get(found.expr), node.attr)

    def _members(self, of: Type | None, name: str) -> set[str]:
        infos = list(_infos(of))
        return {UNKNOWN if info is None else _member(info.mro, name) for info in infos} or {UNKNOWN}

    def argument(self, path: str, node: ast.Call, at: int, name: str) -> set[str]:
        """The full names of the members `name` of a call's argument, as in `getattr(gang, "open")`."""
        found = self._calls.get(path, {}).get(_place_of(node))
        if found is None or at >= len(found.args):
            return {UNKNOWN}
        return self._members(self._result.types.get(found.args[at]), name)

    def pattern(self, path: str, node: ast.MatchClass, name: str) -> set[str]:
        """The full names of the members a keyword of a class pattern may be."""
        found = self._patterns.get(path, {}).get(_place_of(node))
        info = found.class_ref.node if found is not None else None
        if isinstance(info, nodes.TypeAlias):
            return self._members(info.target, name)
        return {_member(info.mro, name)} if isinstance(info, nodes.TypeInfo) else {UNKNOWN}

    def keyword(self, path: str, node: ast.Call, name: str) -> set[str]:
        """Takers of a keyword: `module.function(name)`, `module.Class.method(name)`, or a field `module.Class.name`."""
        call = self._calls.get(path, {}).get(_place_of(node))
        if call is None:
            return {UNKNOWN}
        takers = self._takers(call.callee, call, name)
        return {f"{path}:{taker}" if taker[0].isdigit() else taker for taker in takers}

    def _takers(self, callee: nodes.Expression, call: nodes.CallExpr, name: str) -> set[str]:
        if isinstance(callee, nodes.RefExpr):
            if callee.fullname in ("dataclasses.replace", "copy.replace", "msgspec.structs.replace") and call.args:
                return self._members(self._result.types.get(call.args[0]), name)
            if callee.fullname == "functools.partial" and call.args and callee is call.callee:
                return self._takers(call.args[0], call, name)
            if isinstance(callee, nodes.MemberExpr) and callee.name == "_replace":
                return self._members(self._result.types.get(callee.expr), name)
            function = callee.node.func if isinstance(callee.node, nodes.Decorator) else callee.node
            if isinstance(function, nodes.FuncDef):
                return {taken_by(function, name)}
            if isinstance(function, nodes.TypeInfo):
                return {_constructor(function, name)}
            if isinstance(function, nodes.OverloadedFuncDef):
                return {f"{function.fullname}({name})"}
            if isinstance(callee, nodes.MemberExpr) and function is None:
                methods = self._methods(self._result.types.get(callee.expr), callee.name, name)
                if methods is not None:
                    return methods
        if isinstance(callee, nodes.SuperExpr) and callee.info:
            for info in callee.info.mro[1:]:
                if callee.name in info.names:
                    return _taken(info, callee.name, name)
        return set(self._called(self._result.types.get(callee), name)) or {UNKNOWN}

    def _methods(self, of: Type | None, method: str, name: str) -> set[str] | None:
        """Takers of a keyword among the methods of a type; None when it has none of this name."""
        takers: set[str] = set()
        for info in _infos(of):
            owner = next((each for each in info.mro if method in each.names), None) if info is not None else None
            if owner is None:
                return None
            taken = _taken(owner, method, name)
            if not taken:
                return None
            takers |= taken
        return takers

    def _called(self, of: Type | None, name: str) -> Iterator[str]:
        proper = get_proper_type(of)
        match proper:
            case CallableType() if proper.is_type_obj():
                yield _constructor(proper.type_object(), name)
            case CallableType():
                definition = proper.definition
                function = definition.func if isinstance(definition, nodes.Decorator) else definition
                yield taken_by(function, name) if isinstance(function, nodes.FuncDef) else UNKNOWN
            case Overloaded():
                yield from self._called(proper.items[0], name)
            case UnionType():
                for item in proper.items:
                    yield from self._called(item, name)
            case TypeType():
                for info in _infos(proper.item):
                    yield _constructor(info, name) if info is not None else UNKNOWN
            case Instance():
                yield from self._methods(proper, "__call__", name) or {UNKNOWN}
            case None | NoneType():
                return
            case _:
                yield UNKNOWN

    def function(self, path: str, line: int, name: str) -> nodes.FuncDef | None:
        """A function by the line of its definition."""
        return self._functions.get(path, {}).get((line, name))

    def family(self, owner: str, name: str) -> tuple[set[str], list[str]]:
        """All classes that define a member together with `owner`, by inheritance, and bases of others that do."""
        group = {owner}
        foreign: list[str] = []
        while True:
            before = len(group)
            for info in self.classes.values():
                definers = [each for each in info.mro if name in each.names]
                if not group & {each.fullname for each in definers}:
                    continue
                for each in definers:
                    if each.fullname in self.classes:
                        group.add(each.fullname)
                    elif each.fullname not in foreign:
                        foreign.append(each.fullname)
            if len(group) == before:
                return group, foreign

    def protocols(self, owner: str, name: str) -> list[str]:
        """Protocols with a member that a class with all their members may stand for, and such classes of a protocol."""
        own = self.classes.get(owner)
        if own is None:
            return []
        found = []
        for info in self.classes.values():
            if info is own or name not in info.names:
                continue
            protocol, other = (info, own) if info.is_protocol else (own, info)
            if protocol.is_protocol and protocol not in other.mro:
                if all(any(member in each.names for each in other.mro) for member in protocol.protocol_members):
                    found.append(info.fullname)
        return found

    def has_member(self, owner: str, name: str) -> bool:
        """Whether a class or a base of it has a member."""
        info = self.classes.get(owner)
        return info is not None and any(name in each.names for each in info.mro)

    def is_struct(self, owner: str) -> bool:
        """Whether a class is a msgspec Struct."""
        info = self.classes.get(owner)
        return info is not None and any(each.fullname == "msgspec.Struct" for each in info.mro)


def taken_by(function: nodes.FuncDef, name: str) -> str:
    """How a parameter of a function is called: by file position when the function is inside another one."""
    return f"{function.fullname}({name})" if "." in function.fullname else f"{function.line}:{function.name}({name})"


def _taken(info: nodes.TypeInfo, method: str, name: str) -> set[str]:
    node = info.names[method].node
    function = node.func if isinstance(node, nodes.Decorator) else node
    if isinstance(function, nodes.FuncDef):
        return {taken_by(function, name)}
    return {f"{function.fullname}({name})"} if isinstance(function, nodes.OverloadedFuncDef) else set()


def _constructor(info: nodes.TypeInfo, name: str) -> str:
    """A keyword of a constructor: of an `__init__` that was written, or a field where it was made."""
    for each in info.mro:
        for method in ("__init__", "__new__"):
            symbol = each.names.get(method)
            if symbol is None or each.fullname == "builtins.object":
                continue
            if symbol.plugin_generated or each.is_named_tuple:
                return _member(info.mro, name)
            return f"{each.fullname}.{method}({name})"
    return _member(info.mro, name)


def _member(mro: Iterable[nodes.TypeInfo], name: str) -> str:
    for info in mro:
        if name in info.names:
            return f"{info.fullname}.{name}"
    return f"{UNKNOWN} {name}"


def _infos(of: Type | None) -> Iterator[nodes.TypeInfo | None]:
    """The classes of a type; None for one that is not known."""
    proper = get_proper_type(of)
    match proper:
        case Instance():
            yield proper.type
        case UnionType():
            for item in proper.items:
                yield from _infos(item)
        case TypeType():
            yield from _infos(proper.item)
        case CallableType():
            yield proper.type_object() if proper.is_type_obj() else proper.fallback.type
        case Overloaded():
            yield from _infos(proper.items[0])
        case TupleType():
            yield proper.partial_fallback.type
        case TypeVarLikeType():
            yield from _infos(proper.upper_bound)
        case LiteralType() | TypedDictType():
            yield proper.fallback.type
        case NoneType():
            return
        case None | AnyType() | UninhabitedType() | _:
            yield None


_fields: dict[type, list[str]] = {}


def _walk(file: nodes.MypyFile) -> Iterator[object]:
    """The nodes of a file that `Types` asks for."""
    seen: set[int] = set()
    stack: list[object] = [file]
    while stack:
        node = stack.pop()
        if isinstance(node, (list, tuple)):
            stack.extend(node)
            continue
        if not isinstance(node, (nodes.Node, Pattern)) or id(node) in seen or isinstance(node, nodes.TypeInfo):
            continue
        if isinstance(node, nodes.MypyFile) and node is not file:
            continue
        seen.add(id(node))
        if isinstance(node, _WALKED):
            yield node
        kind = type(node)
        if kind not in _fields:
            names = {name for each in kind.__mro__ for name in getattr(each, "__mypyc_attrs__", vars(each))}
            _fields[kind] = sorted(name for name in names - _REFERENCES if not name.startswith("__"))
        for name in _fields[kind]:
            child = getattr(node, name, None)
            if isinstance(child, (list, tuple, nodes.Node, Pattern)):
                stack.append(child)


def _place(node: nodes.Node | Pattern) -> Place:
    return node.line, node.column, node.end_line or 0, node.end_column or 0


def _place_of(node: ast.expr | ast.pattern) -> Place:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0
