"""Small changes of a module that a test should notice, one at a time, for `tools/mutate.py`.

In: a module. Out: every change with its place, its replacement and the changed text of the module. The changes: a
comparison off by one or turned round, `and` for `or`, an operand or a `not` left out, a condition turned round, a
branch left out, a statement left out, None or the other truth value returned, a whole number one larger, `+` for `-`,
`min` for `max`, `any` for `all`.

Skipped is what has no effect for a caller: annotations, docstrings, decorators, assertions, texts of errors and of
logs, `__all__`, imports for type checkers, `zip(strict=True)`, how a record is stored, a pause of no time. So are
changes that every test notices, such as a name or an attribute that is never bound, and figures of two digits or more
that are a default, have a name of their own or count seconds: a test of them would only repeat the figure.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tools.anchors import DEFINITIONS, Binding, Fragment, Place, Source, Step, Unanchored, children, position
from tools.splicing import spliced

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SUMS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGGERS = frozenset({"log", "_log", "logger", "_logger", "LOG", "_LOG"})
#: Keywords of a class that say how its records are stored or made, and not what they hold.
_STORAGE = frozenset({"cache_hash", "dict", "frozen", "gc", "kw_only", "slots", "weakref"})
#: Named figures and defaults from here on are a choice; below, they count something.
_CHOSEN = 10
#: A statement this long is named by its head.
_LONG = 160


@dataclass(frozen=True, eq=False)
class Change:
    """One small change."""

    place: Place
    old: Sequence[ast.expr] | Sequence[ast.stmt]
    new: Sequence[ast.expr] | Sequence[ast.stmt]
    title: str

    @property
    def line(self) -> int:
        """The line on which the changed code begins."""
        return self.old[0].lineno

    def digest(self) -> bytes:
        """Orders the changes of a line at random, but the same way in every run and wherever the line stands."""
        texts = [self.place.qualname, self.title, *(ast.unparse(node) for node in (*self.old, *self.new))]
        return hashlib.blake2b("\0".join(texts).encode(), digest_size=8).digest()

    def after(self) -> str:
        """The text of the module with the change."""
        return spliced(self.place, self.new)

    def anchor(self) -> dict[str, str | int]:
        """The change as `mutants/survivors.toml` names it."""
        old, new = (copy.deepcopy(list(nodes)) for nodes in (self.old, self.new))
        head = old[0]
        if not new and len(ast.unparse(head)) > _LONG and isinstance(body := getattr(head, "body", None), list):
            body[:] = [ast.Expr(ast.Constant(...))]
        texts = ["\n".join(map(ast.unparse, nodes)) for nodes in (old, new)]
        nth = position(self.place, Fragment.parse(*texts))
        return {"where": self.place.where, "old": texts[0], "new": texts[1], **({"nth": nth} if nth else {})}


def changes(source: Source, *, sample_every: int = 0) -> Iterator[Change]:
    """All changes of a module, each text once; with `sample_every` one for each line, and of those one in so many."""
    seen: set[str] = {source.text}
    sampled: set[int] = set()
    generated: Iterable[Change] = _Walk(source).module()
    if sample_every:
        generated = sorted(generated, key=Change.digest)
    for change in generated:
        if sample_every and change.line in sampled:
            continue
        try:
            text = change.after()
        except Unanchored:
            continue
        if text not in seen:
            seen.add(text)
            sampled.add(change.line)
            if not sample_every or int.from_bytes(change.digest()) % sample_every == 0:
                yield change


class _Walk:
    """Walks a module and keeps track of the enclosing function or class."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._qualname = ""
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self._read = {
            node.attr
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }

    def module(self) -> Iterator[Change]:
        yield from self._below(self._source.tree, ())

    def _below(self, node: ast.AST, steps: tuple[Step, ...]) -> Iterator[Change]:
        for step, child in children(node):
            if _says_nothing(node, step[1], child):
                continue
            here = (*steps, step)
            if isinstance(child, ast.stmt):
                yield from self._statement(child, here)
            elif isinstance(child, ast.expr):
                yield from self._expression(child, here, node, step[1])
            yield from self._inside(child, here)

    def _inside(self, node: ast.AST, steps: tuple[Step, ...]) -> Iterator[Change]:
        if not isinstance(node, DEFINITIONS):
            yield from self._below(node, steps)
            return
        outer = self._qualname
        self._qualname = f"{outer}.{node.name}" if outer else node.name
        if not isinstance(node, ast.ClassDef):
            self._functions.append(node)
        yield from self._below(node, steps)
        if not isinstance(node, ast.ClassDef):
            self._functions.pop()
        self._qualname = outer

    def _change(self, steps: tuple[Step, ...], old: ast.AST, new: Sequence[ast.AST], title: str) -> Change:
        place = Place(self._source, self._qualname, steps, 1, Binding())
        return Change(place, [old], new, title)  # type: ignore[arg-type]

    def _statement(self, node: ast.stmt, steps: tuple[Step, ...]) -> Iterator[Change]:
        if isinstance(node, ast.If) and not node.orelse:
            yield self._change(steps, node, [], "a branch is left out")
        elif isinstance(node, ast.If) and steps[-1][1] == "orelse":
            yield self._change(steps, node, node.orelse, "a branch is left out")
        elif _is_whole_branch(steps[-1]):
            pass
        elif isinstance(node, ast.Continue | ast.Break) or self._can_go(node):
            yield self._change(steps, node, [], "a statement is left out")
        elif isinstance(node, ast.Return) and node.value is not None and self._may_return_none():
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                yield self._change(steps, node, [ast.Return(ast.Constant(None))], "None is returned")
        if isinstance(node, ast.AugAssign) and type(node.op) in _SUMS:
            yield self._change(steps, node, [_with(node, op=_SUMS[type(node.op)]())], "plus and minus")

    def _can_go(self, node: ast.stmt) -> bool:
        """Whether the code still runs without the statement."""
        if not self._functions:
            return False
        if isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            return isinstance(value, ast.Call)
        if isinstance(node, ast.AugAssign):
            return True
        targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        return bool(targets) and all(self._stays_bound(target, node) for target in targets)

    def _stays_bound(self, target: ast.AST, node: ast.stmt) -> bool:
        """Whether something else binds the target, too."""
        function = self._functions[-1]
        before = [each for each in ast.walk(function) if getattr(each, "lineno", node.lineno) < node.lineno]
        if isinstance(target, ast.Attribute):
            return function.name != "__init__" or target.attr not in self._read or _is_stored(target, before)
        if isinstance(target, ast.Subscript):
            return True
        if not isinstance(target, ast.Name):
            return False
        arguments = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
        stored = {each.id for each in before if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        return target.id in arguments | stored

    def _may_return_none(self) -> bool:
        returns = self._functions[-1].returns if self._functions else None
        return returns is not None and any(
            isinstance(each, ast.Constant) and each.value is None for each in ast.walk(returns)
        )

    def _expression(self, node: ast.expr, steps: tuple[Step, ...], parent: ast.AST, name: str) -> Iterator[Change]:
        if (name == "test" and isinstance(parent, ast.If | ast.IfExp)) or name == "ifs":
            yield self._change(steps, node, [_negated(node)], "a condition is turned round")
        for new, title in _variants(node):
            yield self._change(steps, node, [new], title)


def _variants(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    """Replacements for an expression."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            ops = [*node.ops[:index], _COMPARISONS[type(operator)](), *node.ops[index + 1 :]]
            yield _with(node, ops=ops), "another comparison"
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And()), "and for or"
        for index in range(len(node.values)):
            rest = [*node.values[:index], *node.values[index + 1 :]]
            yield rest[0] if len(rest) == 1 else _with(node, values=rest), "an operand is left out"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand, "an operator is left out"
    elif (
        isinstance(node, ast.BinOp) and type(node.op) in _SUMS and not _is_text(node.left) and not _is_text(node.right)
    ):
        yield _with(node, op=_SUMS[type(node.op)]()), "plus and minus"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value), "the other truth value"
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1), "one more"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield _with(node, func=ast.Name(_CALLS[node.func.id], ast.Load())), "another function"


def _is_stored(target: ast.Attribute, nodes: Iterable[ast.AST]) -> bool:
    """Whether one of the nodes binds the attribute."""
    return any(
        isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and each.attr == target.attr
        for each in nodes
    )


def _negated(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in (ast.Eq, ast.Is, ast.In):
        return ast.Compare(node.left, [_COMPARISONS[type(node.ops[0])]()], node.comparators)
    return ast.UnaryOp(ast.Not(), node)


def _with(node: ast.AST, **fields: object) -> Any:
    """A shallow copy with other fields."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _is_whole_branch(step: Step) -> bool:
    """Whether leaving it out is leaving out the branch around it."""
    parent, name, _ = step
    return isinstance(parent, ast.If) and name == "body" and len(parent.body) == 1 and not parent.orelse


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _says_nothing(parent: ast.AST, name: str, node: ast.AST) -> bool:
    """Whether this part has no effect for a caller."""
    if name in ("annotation", "returns", "decorator_list", "slice" if _is_type(parent) else ""):
        return True
    if isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Raise):
        return True
    if isinstance(node, ast.keyword) and (node.arg == "strict" or (name == "keywords" and _is_storage(parent, node))):
        # `strict` of zip is an assertion, too.
        return True
    if _is_pause(node) or _is_chosen(parent, name, node):
        return True
    if isinstance(parent, ast.While) and name == "test" and isinstance(node, ast.Constant):
        # A service that never begins.
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_log(node.value) or _is_pause(node.value)
    if isinstance(node, ast.If) and (ast.unparse(node.test).endswith("TYPE_CHECKING") or _only_logs(node)):
        return True
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _is_type(node: ast.AST) -> bool:
    """Whether it is a type with arguments, as `Literal[1, 2]`."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in ("Literal", "cast")


def _only_logs(node: ast.If) -> bool:
    return all(isinstance(each, ast.Expr) and _is_log(each.value) for each in (*node.body, *node.orelse))


def _is_storage(parent: ast.AST, node: ast.keyword) -> bool:
    return isinstance(parent, ast.ClassDef) and node.arg in _STORAGE


def _is_pause(node: ast.AST) -> bool:
    """Whether it only lets others run, as `await asyncio.sleep(0)`."""
    called = node.value if isinstance(node, ast.Await) else node
    return isinstance(called, ast.Call) and ast.unparse(called) == "asyncio.sleep(0)"


def _is_chosen(parent: ast.AST, name: str, node: ast.AST) -> bool:
    """Whether it is a figure that somebody chose: a default, or the value of a named constant or of a field."""
    if isinstance(parent, ast.keyword):
        return (parent.arg or "").endswith("_s") and _is_figure(node)
    if isinstance(parent, ast.arguments):
        return name in ("defaults", "kw_defaults") and _is_figure(node)
    if isinstance(parent, ast.Assign | ast.AnnAssign) and name == "value":
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        is_field = isinstance(parent, ast.AnnAssign)
        return _is_figure(node) and all(
            isinstance(target, ast.Name) and (is_field or target.id.isupper()) for target in targets
        )
    return False


def _is_figure(node: ast.AST) -> bool:
    """Whether it is a number of two digits or more, or arithmetic."""
    if isinstance(node, ast.BinOp):
        parts = (node.left, node.right)
        return all(isinstance(part, ast.Constant | ast.Name | ast.Attribute) or _is_figure(part) for part in parts)
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= _CHOSEN


def _is_log(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(owner := node.func.value, ast.Name | ast.Attribute)
        and (owner.id if isinstance(owner, ast.Name) else owner.attr) in _LOGGERS
    )
