"""Resource lists that we write: read leniently, added exactly, written only where a value changes.

Amounts are ints of billionths by resource name, so sums are exact and additions can be undone.  Objects carry them as
quantities.  `read_amounts` accepts any content of a status (nothing, garbage, nulls) and keeps the readable amounts;
`amounts_patch` returns the smallest merge patch to the desired amounts, and compares by value: `1000m` and `1` are
equal.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykai.api import names
from pykai.api.quantity import QuantityError, format_quantity, nano_value

#: Resource name -> billionths.
NanoAmounts = dict[str, int]

_BYTES = frozenset((names.MEMORY, names.EPHEMERAL_STORAGE, names.STORAGE))


def read_amounts(listed: object) -> NanoAmounts:
    """The amounts of a resource list; invalid ones are left out."""
    amounts: NanoAmounts = {}
    if isinstance(listed, Mapping):
        for name, raw in listed.items():
            if isinstance(name, str) and isinstance(raw, str | int | float) and not isinstance(raw, bool):
                try:
                    amounts[name] = nano_value(raw)
                except QuantityError:
                    continue
    return amounts


def add_amounts(into: NanoAmounts, other: Mapping[str, int], sign: int = 1) -> None:
    """Add, or subtract (`sign` -1); zero amounts are removed."""
    for name, value in other.items():
        total = into.get(name, 0) + sign * value
        if total:
            into[name] = total
        else:
            into.pop(name, None)


def format_amount(name: str, nanos: int) -> str:
    """The quantity as text; bytes in powers of 1024 where that is exact."""
    return format_quantity(nanos, binary=name in _BYTES or name.startswith(names.HUGEPAGES_PREFIX))


def amounts_patch(listed: object, desired: Mapping[str, int]) -> dict[str, str | None]:
    """A merge patch from the present list to the desired amounts; empty for none."""
    current = read_amounts(listed)
    patch: dict[str, str | None] = {
        name: format_amount(name, value) for name, value in desired.items() if current.get(name) != value
    }
    if isinstance(listed, Mapping):
        patch.update((name, None) for name in listed if name not in desired)
    return patch
