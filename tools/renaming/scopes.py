"""Which thing every name of a Python file means, by the rules of Python's scopes.

Flows in: a `Source`. Flows out: its occurrences of names, each with the scope in which the name is bound, and the
imports. `Names` puts the files together and follows imports and re-exports to the module that defines a thing.

Subtle: a class is no scope for the functions inside it, the first iterable of a comprehension belongs to the scope
around it, and annotations in quotes are code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tools.renaming.sources import Source

MODULE, CLASS, FUNCTION = "module", "class", "function"
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass
class Scope:
    """A namespace of a file."""

    kind: str
    #: qualified name within the module; functions inside functions have `<locals>` in it as Python writes it
    qualified: str
    parent: Scope | None
    line: int = 0
    bound: set[str] = field(default_factory=set)
    #: names that belong to the module or to a function around
    elsewhere: set[str] = field(default_factory=set)
    #: names bound by imports: module and name in it, or None when the module itself is meant
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    #: names bound by anything but imports
    plain: set[str] = field(default_factory=set)

    def owner(self, name: str) -> Scope | None:
        """The scope in which a name used here is bound; None for builtins."""
        scope: Scope | None = self
        while scope is not None:
            if (scope.kind != CLASS or scope is self) and name in scope.bound and name not in scope.elsewhere:
                return scope
            scope = scope.parent
        return None

    @property
    def typed(self) -> str:
        """The qualified name of a class as mypy writes it: one inside a function has its line behind an @."""
        name = self.qualified.rpartition(".")[2]
        if self.parent is not None and self.parent.kind == CLASS:
            return f"{self.parent.typed}.{name}"
        return f"{name}@{self.line}" if "<locals>" in self.qualified else name

    def inner(self, name: str) -> str:
        """The qualified name of something defined here."""
        if self.kind == MODULE:
            return name
        return f"{self.qualified}.{name}" if self.kind == CLASS else f"{self.qualified}.<locals>.{name}"


@dataclass(frozen=True)
class Occurrence:
    """A name in the text."""

    name: str
    start: int
    #: in which it is looked up
    scope: Scope = field(hash=False, compare=False)
    #: the thing it names is not the local binding but the one it is imported from: `from a import name as other`
    imported: tuple[str, str] | None = None


class Names:
    """All occurrences of one file."""

    def __init__(self, source: Source, module: str) -> None:
        self.source = source
        self.module = module
        self.is_package = source.path.endswith("/__init__.py")
        self.top = Scope(MODULE, "", None)
        self.occurrences: list[Occurrence] = []
        #: scopes of functions by the line and name of their definition
        self.functions: dict[tuple[int, str], Scope] = {}
        self.classes: dict[ast.ClassDef, Scope] = {}
        self.import_scopes: dict[ast.Import | ast.ImportFrom, Scope] = {}
        #: parameters of functions by the line of their definition
        self.arguments: dict[int, set[str]] = {}
        #: the scope in which each name node is looked up
        self.scope_of: dict[ast.Name, Scope] = {}
        for statement in source.tree.body:
            self._visit(statement, self.top)

    def absolute(self, node: ast.ImportFrom) -> str:
        """The module a statement imports from."""
        if not node.level:
            return node.module or ""
        own = self.module.split(".")
        own = own[: len(own) - node.level + self.is_package]
        return ".".join([*own, *([node.module] if node.module else [])])

    def _bind(self, name: str, scope: Scope, start: int | None, *, plain: bool = True) -> None:
        if name not in scope.elsewhere:
            scope.bound.add(name)
            if plain:
                scope.plain.add(name)
        if start is not None:
            self.occurrences.append(Occurrence(name, start, scope))

    def _find(self, pattern: str, start: int) -> int:
        match = re.compile(pattern).search(self.source.text, start)
        assert match is not None, (self.source.path, pattern)
        return match.start(1)

    def _visit_all(self, nodes: Iterable[ast.AST | None], scope: Scope) -> None:
        for node in nodes:
            if node is not None:
                self._visit(node, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        source = self.source
        match node:
            case ast.Name():
                self.scope_of[node] = scope
                if isinstance(node.ctx, ast.Load):
                    self.occurrences.append(Occurrence(node.id, source.span(node)[0], scope))
                else:
                    self._bind(node.id, scope, source.span(node)[0])
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                keyword = "class" if isinstance(node, ast.ClassDef) else "def"
                self._bind(node.name, scope, self._find(rf"{keyword}\s+({node.name})\b", source.span(node)[0]))
                self._visit_all(node.decorator_list, scope)
                if isinstance(node, ast.ClassDef):
                    self._visit_all([*node.bases, *node.keywords], scope)
                    inner = self.classes[node] = Scope(CLASS, scope.inner(node.name), scope, node.lineno)
                    self._visit_all(node.body, inner)
                else:
                    self._function(node, scope)
            case ast.Lambda():
                self._function(node, scope)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node, scope)
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.Global() | ast.Nonlocal():
                scope.elsewhere.update(node.names)
                start = source.span(node)[0]
                for name in node.names:
                    self.occurrences.append(Occurrence(name, self._find(rf"\b({name})\b", start + 6), scope))
            case ast.ExceptHandler(name=str(name)):
                after = source.span(node.type)[1] if node.type is not None else 0
                self._bind(name, scope, self._find(rf"\bas\s+({name})\b", after))
                self._visit_all([node.type, *node.body], scope)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self._bind(name, scope, source.span(node)[1] - len(name))
                self._visit_all(ast.iter_child_nodes(node), scope)
            case ast.MatchMapping(rest=str(rest)):
                self._bind(rest, scope, source.text.rindex(rest, *source.span(node)))
                self._visit_all(ast.iter_child_nodes(node), scope)
            case ast.NamedExpr():
                target = scope
                while target.kind == "comprehension" and target.parent is not None:
                    target = target.parent
                self.scope_of[node.target] = target
                self._bind(node.target.id, target, source.span(node.target)[0])
                self._visit(node.value, scope)
            case ast.AnnAssign():
                self._visit_all([node.target, node.value], scope)
                self._annotation(node.annotation, scope)
            case ast.Call(func=ast.Name(id="cast"), args=[first, *rest]):
                self._visit_all([node.func, *rest, *node.keywords], scope)
                self._annotation(first, scope)
            case _:
                self._visit_all(ast.iter_child_nodes(node), scope)

    def _annotation(self, node: ast.expr | None, scope: Scope) -> None:
        if node is None:
            return
        self._visit(node, scope)
        for part in ast.walk(node):
            if not (isinstance(part, ast.Constant) and isinstance(part.value, str)):
                continue
            start, end = self.source.span(part)
            if self.source.text[start + 1 : end - 1] != part.value:
                continue
            for word in re.finditer(r"(?<![\w.])[A-Za-z_]\w*", part.value):
                self.occurrences.append(Occurrence(word[0], start + 1 + word.start(), scope))

    def _function(self, node: _FunctionNode, scope: Scope) -> None:
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        inner = Scope(FUNCTION, scope.inner(name), scope, node.lineno)
        self.functions[node.lineno, name] = inner
        given = node.args
        arguments = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
        if not isinstance(node, ast.Lambda):
            self.arguments[node.lineno] = {argument.arg for argument in arguments if argument is not None}
        for argument in arguments:
            if argument is not None:
                self._bind(argument.arg, inner, self.source.span(argument)[0])
                self._annotation(argument.annotation, scope)
        self._visit_all([*given.defaults, *given.kw_defaults], scope)
        if isinstance(node, ast.Lambda):
            self._visit(node.body, inner)
        else:
            self._annotation(node.returns, scope)
            self._visit_all(node.body, inner)

    def _comprehension(self, node: ast.AST, scope: Scope) -> None:
        inner = Scope("comprehension", scope.inner("<comprehension>"), scope, getattr(node, "lineno", 0))
        assert isinstance(node, _COMPREHENSIONS)
        for number, part in enumerate(node.generators):
            self._visit(part.iter, inner if number else scope)
            self._visit_all([part.target, *part.ifs], inner)
        self._visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], inner)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        self.import_scopes[node] = scope
        for alias in node.names:
            start = self.source.span(alias)[0]
            if isinstance(node, ast.Import):
                name = alias.asname or alias.name.partition(".")[0]
                scope.imports[name] = (alias.name if alias.asname else name, None)
                self._bind(name, scope, None, plain=False)
                continue
            module = self.absolute(node)
            name = alias.asname or alias.name
            scope.imports[name] = (module, alias.name)
            self._bind(name, scope, None, plain=False)
            self.occurrences.append(Occurrence(alias.name, start, scope, (module, alias.name)))


class Program:
    """The names of all files together."""

    def __init__(self, names: Mapping[str, Names]) -> None:
        #: by name of the module
        self.files = names
        parts = (name.split(".") for name in names)
        self._modules = {".".join(each[:end]) for each in parts for end in range(1, len(each) + 1)}

    def is_module(self, name: str) -> bool:
        """Whether a file or a folder of the project has this name."""
        return name in self._modules

    def defined(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> str:
        """The full name of what `module.name` is, through re-exports."""
        whole = f"{module}.{name}"
        names = self.files.get(module)
        if names is None or (module, name) in seen:
            return whole
        if name not in names.top.plain and name in names.top.imports:
            origin, inner = names.top.imports[name]
            return origin if inner is None else self.defined(origin, inner, seen | {(module, name)})
        return whole

    def meaning(self, names: Names, occurrence: Occurrence) -> str | Scope | None:
        """What a name means: the full name of a thing of a module or class, or the scope that has it as a local."""
        if occurrence.imported is not None:
            return self.defined(*occurrence.imported)
        return self.lookup(names, occurrence.name, occurrence.scope)

    def lookup(self, names: Names, name: str, scope: Scope) -> str | Scope | None:
        """What a name means in a scope."""
        owner = scope.owner(name)
        if owner is None:
            # A name that `global` binds in a function only.
            return f"{names.module}.{name}" if name in scope.elsewhere else None
        if name in owner.imports and name not in owner.plain:
            module, inner = owner.imports[name]
            return module if inner is None else self.defined(module, inner)
        if owner.kind == MODULE:
            return self.defined(names.module, name)
        return f"{names.module}.{owner.typed}.{name}" if owner.kind == CLASS else owner

    def dotted(self, names: Names, node: ast.expr) -> str | None:
        """The full name that a chain of attributes on an imported module means."""
        if isinstance(node, ast.Name):
            scope = names.scope_of.get(node)
            found = self.lookup(names, node.id, scope) if scope is not None else None
            return found if isinstance(found, str) else None
        if isinstance(node, ast.Attribute):
            base = self.dotted(names, node.value)
            if base is None or not self.is_module(base):
                return None
            whole = f"{base}.{node.attr}"
            return whole if self.is_module(whole) else self.defined(base, node.attr)
        return None
