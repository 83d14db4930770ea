"""JSON values as jq sees them: types, order, arithmetic.

Numbers are integers up to 2^53 and floats beyond, as all are floats in jq; `True` is no number.  Deep values are
compared with a stack of our own: a tenant chooses the depth of an object.
"""

from __future__ import annotations

import math
from typing import Final, TypeGuard

from pykai.podgrouper.jq.budget import Budget, JqError, JqUnsupported

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_EXACT: Final = 1 << 53
#: of an integer that a float can hold
_MAX_BITS: Final = 1023
#: jq's order of types
_RANKS: Final = {"null": 0, "false": 1, "true": 2, "number": 3, "string": 4, "array": 5, "object": 6}
#: characters or entries that are copied or compared in one step
_CHARACTERS_PER_STEP: Final = 64
_ENTRIES_PER_STEP: Final = 8


def type_name(value: Json) -> str:
    """jq's name of a type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def truthy(value: Json) -> bool:
    """Everything but null and false."""
    return value is not None and value is not False


def describe(value: Json) -> str:
    """A value in an error: its type, and a short one itself."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"string {value!r}" if len(value) <= 60 else "a long string"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"number {value}" if abs(value) < 1e18 else "a large number"
    return f"an {type_name(value)}"


def spend_for(value: Json, budget: Budget) -> None:
    """The price of copying a value once, without what its entries hold."""
    if isinstance(value, str):
        budget.spend(1 + len(value) // _CHARACTERS_PER_STEP)
    elif isinstance(value, list | dict):
        budget.spend(1 + len(value) // _ENTRIES_PER_STEP)
    else:
        budget.spend()


def number(value: float) -> int | float:
    """An integer where that is exact, else a float; raises `JqError` for what no number can hold."""
    if isinstance(value, int):
        if -_EXACT <= value <= _EXACT:
            return value
        if value.bit_length() > _MAX_BITS:
            raise JqError("the number is too large")
        value = float(value)
    if not math.isfinite(value):
        raise JqError("the number is too large")
    return int(value) if -_EXACT <= value <= _EXACT and value == int(value) else value


def compare(left: Json, right: Json, budget: Budget) -> int:
    """Negative, 0 or positive, in jq's order of all values."""
    waiting: list[tuple[Json, Json]] = [(left, right)]
    while waiting:
        one, other = waiting.pop()
        budget.spend()
        rank = _rank(one) - _rank(other)
        if rank:
            return rank
        if isinstance(one, str) and isinstance(other, str):
            budget.spend(min(len(one), len(other)) // _CHARACTERS_PER_STEP)
            if one != other:
                return -1 if one < other else 1
        elif isinstance(one, list) and isinstance(other, list):
            budget.spend(min(len(one), len(other)))
            if len(one) != len(other):
                waiting.append((len(one), len(other)))
            waiting.extend(reversed(list(zip(one, other, strict=False))))
        elif isinstance(one, dict) and isinstance(other, dict):
            budget.spend(len(one) + len(other))
            keys = sorted(one)
            first: Json = list[Json](keys)
            second: Json = list[Json](sorted(other))
            if first != second:
                waiting.append((first, second))
            else:
                waiting.extend((one[key], other[key]) for key in reversed(keys))
        elif isinstance(one, int | float) and isinstance(other, int | float) and one != other:
            return -1 if one < other else 1
    return 0


def _rank(value: Json) -> int:
    if isinstance(value, bool):
        return _RANKS["true" if value else "false"]
    return _RANKS[type_name(value)]


def add(left: Json, right: Json, budget: Budget) -> Json:
    """`+`: numbers, text, lists, objects; null adds nothing."""
    if left is None:
        return right
    if right is None:
        return left
    if is_number(left) and is_number(right):
        return number(number(left) + number(right))
    spend_for(left, budget)
    spend_for(right, budget)
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        return left + right
    if isinstance(left, dict) and isinstance(right, dict):
        return {**left, **right}
    raise _operands("added", left, right)


def subtract(left: Json, right: Json, budget: Budget) -> Json:
    """`-`: numbers, and a list without the entries of another."""
    if is_number(left) and is_number(right):
        return number(number(left) - number(right))
    if isinstance(left, list) and isinstance(right, list):
        return [one for one in left if all(compare(one, other, budget) for other in right)]
    raise _operands("subtracted", left, right)


def multiply(left: Json, right: Json, budget: Budget) -> Json:
    """`*`: numbers only; jq also repeats text and merges objects."""
    if is_number(left) and is_number(right):
        return number(number(left) * number(right))
    raise JqUnsupported(f"{describe(left)} * {describe(right)}: only numbers are part of the subset")


def divide(left: Json, right: Json, budget: Budget) -> Json:
    """`/`: numbers only; jq also splits text."""
    if is_number(left) and is_number(right):
        if right == 0:
            raise JqError(f"{describe(left)} cannot be divided by zero")
        return number(number(left) / number(right))
    raise JqUnsupported(f"{describe(left)} / {describe(right)}: only numbers are part of the subset")


def remainder(left: Json, right: Json, budget: Budget) -> Json:
    """`%`: of whole numbers, with the sign of the dividend."""
    if is_number(left) and is_number(right):
        dividend, divisor = int(left), int(right)
        if divisor == 0:
            raise JqError(f"{describe(left)} cannot be divided by zero")
        rest = abs(dividend) % abs(divisor)
        return -rest if dividend < 0 else rest
    raise _operands("divided", left, right)


def is_number(value: Json) -> TypeGuard[int | float]:
    """Whether it is a number; Python's booleans are integers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _operands(done: str, left: Json, right: Json) -> JqError:
    return JqError(f"{describe(left)} and {describe(right)} cannot be {done}")
