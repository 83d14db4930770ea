"""The parts of a parsed expression; each gives the results of its own for one input.

As in jq, a part may have no, one or many results, and an operator has one for each combination of its operands'.
`run` is a generator, so that nothing is computed that is not asked for: `first(...)` and `any` end early.

`reads` says which fields of the input a part looks at, as far as that stands in its text: `.metadata.labels["a"]` reads
`("metadata", "labels", "a")`, and `length` reads everything, `()`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from pykai.podgrouper.jq import values
from pykai.podgrouper.jq.budget import MAX_DEPTH, Budget, JqError, JqLimit, JqUnsupported
from pykai.podgrouper.jq.values import Json, compare, describe, truthy

FieldPath = tuple[str, ...]


class TooDeep(Exception):
    """An expression has too many levels."""

    def __init__(self, position: int) -> None:
        self.position = position


@dataclass(frozen=True, slots=True)
class JqScope:
    """What is known around a part."""

    budget: Budget
    variables: Mapping[str, Json] = field(default_factory=dict)

    def bound(self, name: str, value: Json) -> JqScope:
        """The same with one more variable."""
        return JqScope(self.budget, {**self.variables, name: value})


class JqNode(ABC):
    """A part of an expression."""

    __slots__ = ("children", "depth", "position")

    def __init__(self, position: int, *children: JqNode) -> None:
        self.position = position
        self.children = children
        self.depth: int = 1 + max((child.depth for child in children), default=0)
        if self.depth > MAX_DEPTH:
            raise TooDeep(position)

    @abstractmethod
    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """The results for an input."""

    def reads(self) -> Iterator[FieldPath]:
        """The fields of the input that this part looks at."""
        return chain.from_iterable(child.reads() for child in self.children)

    def failed(self, error: JqError) -> JqError:
        """An error with this part's position, unless an inner part has named its own."""
        if error.position is None:
            error.position = self.position
        return error


class Identity(JqNode):
    """`.`"""

    __slots__ = ()

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        scope.budget.spend()
        yield value

    def reads(self) -> Iterator[FieldPath]:
        """See `JqNode`."""
        yield ()


class Literal(JqNode):
    """A number or a text."""

    __slots__ = ("value",)

    def __init__(self, position: int, value: Json) -> None:
        super().__init__(position)
        self.value = value

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        scope.budget.spend()
        yield self.value


class Variable(JqNode):
    """`$name`"""

    __slots__ = ("name",)

    def __init__(self, position: int, name: str) -> None:
        super().__init__(position)
        self.name = name

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        scope.budget.spend()
        yield scope.variables[self.name]


class Index(JqNode):
    """`TERM[KEY]` and `TERM.key`, with `?` (`optional`) only where it fits; KEY has the input of the whole."""

    __slots__ = ("base", "key", "optional")

    def __init__(self, position: int, base: JqNode, key: JqNode, *, optional: bool = False) -> None:
        super().__init__(position, base, key)
        self.base, self.key, self.optional = base, key, optional

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        for key in self.key.run(value, scope):
            for each in self.base.run(value, scope):
                scope.budget.spend()
                if isinstance(key, str) and (each is None or isinstance(each, dict)):
                    yield each.get(key) if each else None
                elif values.is_number(key) and (each is None or isinstance(each, list)):
                    place = int(key)
                    yield each[place] if each and -len(each) <= place < len(each) else None
                elif isinstance(key, list | dict):
                    raise JqUnsupported(f"{describe(key)} as a key is not part of the subset", self.position)
                elif not self.optional:
                    raise JqError(f"{describe(each)} has no entry for {describe(key)}", self.position)

    def reads(self) -> Iterator[FieldPath]:
        """See `JqNode`."""
        if isinstance(self.key, Literal) and isinstance(self.key.value, str):
            return ((*path, self.key.value) for path in self.base.reads())
        return super().reads()


class Iterate(JqNode):
    """`TERM[]`, with `?` (`optional`) only of what has entries"""

    __slots__ = ("base", "optional")

    def __init__(self, position: int, base: JqNode, *, optional: bool = False) -> None:
        super().__init__(position, base)
        self.base, self.optional = base, optional

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        for each in self.base.run(value, scope):
            if not isinstance(each, list | dict):
                if self.optional:
                    continue
                raise JqError(f"{describe(each)} has no entries to go through", self.position)
            for entry in each if isinstance(each, list) else each.values():
                scope.budget.spend()
                yield entry


class Suppress(JqNode):
    """`TERM?` behind anything but a path step: an error ends the results without being one."""

    __slots__ = ("base",)

    def __init__(self, position: int, base: JqNode) -> None:
        super().__init__(position, base)
        self.base = base

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        try:
            yield from self.base.run(value, scope)
        except (JqLimit, JqUnsupported):
            raise
        except JqError:
            return


class Pipe(JqNode):
    """`A | B`"""

    __slots__ = ("first", "then")

    def __init__(self, position: int, first: JqNode, then: JqNode) -> None:
        super().__init__(position, first, then)
        self.first, self.then = first, then

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        for each in self.first.run(value, scope):
            yield from self.then.run(each, scope)

    def reads(self) -> Iterator[FieldPath]:
        """See `JqNode`: what follows reads the results of the first."""
        return self.first.reads()


class JqBind(JqNode):
    """`TERM as $name | BODY`"""

    __slots__ = ("body", "name", "source")

    def __init__(self, position: int, source: JqNode, name: str, body: JqNode) -> None:
        super().__init__(position, source, body)
        self.source, self.name, self.body = source, name, body

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        for each in self.source.run(value, scope):
            yield from self.body.run(value, scope.bound(self.name, each))


class Comma(JqNode):
    """`A, B`"""

    __slots__ = ()

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        for child in self.children:
            yield from child.run(value, scope)


class JqAlternative(JqNode):
    """`A // B`: the results of A that are neither null nor false; without any, those of B."""

    __slots__ = ("first", "otherwise")

    def __init__(self, position: int, first: JqNode, otherwise: JqNode) -> None:
        super().__init__(position, first, otherwise)
        self.first, self.otherwise = first, otherwise

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        found = False
        for each in self.first.run(value, scope):
            if truthy(each):
                found = True
                yield each
        if not found:
            yield from self.otherwise.run(value, scope)


class Logic(JqNode):
    """`A and B`, `A or B`; B is not evaluated where A decides."""

    __slots__ = ("decisive", "first", "then")

    def __init__(self, position: int, first: JqNode, then: JqNode, *, decisive: bool) -> None:
        super().__init__(position, first, then)
        self.first, self.then, self.decisive = first, then, decisive

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        for one in self.first.run(value, scope):
            if truthy(one) is self.decisive:
                yield self.decisive
                continue
            for other in self.then.run(value, scope):
                yield truthy(other)


_Operation = Callable[[Json, Json, Budget], Json]

OPERATIONS: Final[dict[str, _Operation]] = {
    "+": values.add,
    "-": values.subtract,
    "*": values.multiply,
    "/": values.divide,
    "%": values.remainder,
    "==": lambda one, other, budget: compare(one, other, budget) == 0,
    "!=": lambda one, other, budget: compare(one, other, budget) != 0,
    "<": lambda one, other, budget: compare(one, other, budget) < 0,
    "<=": lambda one, other, budget: compare(one, other, budget) <= 0,
    ">": lambda one, other, budget: compare(one, other, budget) > 0,
    ">=": lambda one, other, budget: compare(one, other, budget) >= 0,
}


class Operation(JqNode):
    """Arithmetic and comparison; the results of the right side vary slowest."""

    __slots__ = ("left", "operation", "right")

    def __init__(self, position: int, operator: str, left: JqNode, right: JqNode) -> None:
        super().__init__(position, left, right)
        self.left, self.right, self.operation = left, right, OPERATIONS[operator]

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        for other in self.right.run(value, scope):
            for one in self.left.run(value, scope):
                scope.budget.spend()
                try:
                    result = self.operation(one, other, scope.budget)
                except JqError as error:
                    raise self.failed(error) from None
                yield result


class Collect(JqNode):
    """`[A]`: the results of A as one list; `[]` without A."""

    __slots__ = ()

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        scope.budget.spend()
        yield [each for child in self.children for each in child.run(value, scope)]


class If(JqNode):
    """`if A then B else C end`; without C the input."""

    __slots__ = ("condition", "otherwise", "then")

    def __init__(self, position: int, condition: JqNode, then: JqNode, otherwise: JqNode) -> None:
        super().__init__(position, condition, then, otherwise)
        self.condition, self.then, self.otherwise = condition, then, otherwise

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        for each in self.condition.run(value, scope):
            yield from (self.then if truthy(each) else self.otherwise).run(value, scope)


class JqCall(JqNode):
    """A function with its arguments, which it evaluates itself."""

    __slots__ = ("function", "name")

    def __init__(self, position: int, name: str, function: Function, arguments: tuple[JqNode, ...]) -> None:
        super().__init__(position, *arguments)
        self.name, self.function = name, function

    def run(self, value: Json, scope: JqScope) -> Iterator[Json]:
        """See `JqNode`."""
        scope.budget.spend()
        try:
            yield from self.function(value, self.children, scope)
        except JqError as error:
            if error.position is None and not isinstance(error, JqLimit):
                error.reason = f"{self.name}: {error.reason}"
            raise self.failed(error) from None

    def reads(self) -> Iterator[FieldPath]:
        """See `JqNode`: most functions read their input."""
        yield ()


#: a function of jq: its input, its arguments, the scope
Function = Callable[[Json, tuple[JqNode, ...], JqScope], Iterator[Json]]
