"""PodGroups that have scheduling conditions, as the watch shows them."""

from __future__ import annotations

from pykai.api.scheduling import PodGroup
from pykai.kube.store import Change


class ConditionedGroups:
    """Follows the watch; `current` is read by the engine's thread, so it is replaced and never changed."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._current: frozenset[str] | None = frozenset()

    def on_group_change(self, change: Change[PodGroup]) -> None:
        """Handle a change of a PodGroup."""
        had_conditions = change.key in self._keys
        if change.new is not None and change.new.status.scheduling_conditions:
            if not had_conditions:
                self._keys.add(change.key)
                self._current = None
        elif had_conditions:
            self._keys.discard(change.key)
            self._current = None

    def current(self) -> frozenset[str]:
        """Keys of the groups that have conditions now."""
        if self._current is None:
            self._current = frozenset(self._keys)
        return self._current
