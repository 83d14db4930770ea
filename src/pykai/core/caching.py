"""One discipline for caches: every cache has an owner, a key and an explicit end.

A cache ends in one of four ways (docs/caches.md lists all of them):

- with its owner: `Memo` and `Cache` are cleared or dropped together with the table, cycle or search they belong to;
- with the version of the state: `VersionedCache` and `VersionedValue` forget what was stored for another version;
- with a row of a node: `State.changed_rows` names the rows to repair;
- with a gang: `Gang.mark_changed`.

Caches save work and change nothing.  Inside `caches_disabled()` nothing is stored, so that a test can compare plans.
Lookups are those of a dict; only storing checks whether caches are on.

Statements: caches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

#: Default capacity; keys that differ in every pod must not eat the memory.
_MAX_ENTRIES = 4096

#: Whether values are stored; only `caches_disabled` changes it.
enabled = True


@contextmanager
def caches_disabled() -> Iterator[None]:
    """For tests: store nothing."""
    global enabled
    before, enabled = enabled, False
    try:
        yield
    finally:
        enabled = before


class Cache(dict[Key, Value]):
    """Values by key, until the owner ends; a new key clears a full cache first."""

    __slots__ = ("_max_entries",)

    def __init__(self, max_entries: int = _MAX_ENTRIES) -> None:
        super().__init__()
        self._max_entries = max_entries

    def store(self, key: Key, value: Value) -> Value:
        """Keep a value, if caches are on."""
        if enabled:
            if len(self) >= self._max_entries and key not in self:
                self.clear()
            self[key] = value
        return value


class Memo(Cache[object, object]):
    """Values of any kind by key, computed on first use."""

    __slots__ = ()

    def remember(self, key: object, make: Callable[[], Value]) -> Value:
        """The value of a key; None is computed again every time."""
        value = self.get(key)
        if value is None:
            value = self.store(key, make())
        # The caller that computed it knows its type.
        return value  # type: ignore[return-value]


class VersionedCache(Generic[Key, Value]):
    """Values by key, each good for the version of the state it was stored for."""

    __slots__ = ("_entries", "_versions")

    def __init__(self) -> None:
        self._entries: dict[Key, tuple[int, Value]] = {}
        #: those that values were stored for
        self._versions: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def may_have(self, version: int) -> bool:
        """Whether a value was ever stored for this version: if not, no key need be made."""
        return version in self._versions

    def current(self, key: Key, version: int) -> Value | None:
        """The value for this version, None if there is none."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and entry[0] == version else None

    def store(self, key: Key, version: int, value: Value) -> Value:
        """Keep a value for a version, if caches are on."""
        if enabled:
            self._entries[key] = (version, value)
            self._versions.add(version)
        return value


class VersionedValue(Generic[Value]):
    """One value, good for one version of the state."""

    __slots__ = ("_value", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._value: Value | None = None

    def current(self, version: int) -> Value | None:
        """The value for this version, None if there is none."""
        return self._value if self._version == version else None

    @property
    def version(self) -> int:
        """The version that the value is for."""
        return self._version

    @property
    def latest(self) -> Value | None:
        """The value, whatever version it is for: to be repaired and stored again."""
        return self._value

    def store(self, version: int, value: Value) -> Value:
        """Keep a value for a version, if caches are on."""
        if enabled:
            self._version, self._value = version, value
        return value
