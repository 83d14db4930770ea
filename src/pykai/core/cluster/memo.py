"""Values that are kept as long as what they were made from does not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Made = TypeVar("Made")

#: Values kept at a time; keys that differ in every pod must not fill the memory.
_MAX_ENTRIES = 4096


class Memo(dict[object, object]):
    """Values by key, made on first use."""

    __slots__ = ()

    def remember(self, key: object, make: Callable[[], Made]) -> Made:
        """The value of a key; None is not kept."""
        value = self.get(key)
        if value is None:
            if len(self) >= _MAX_ENTRIES:
                self.clear()
            value = self[key] = make()
        # `make` has said the type.
        return value  # type: ignore[return-value]
