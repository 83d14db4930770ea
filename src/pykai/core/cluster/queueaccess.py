"""Which groups may not use the queue that they name.

A namespace may use a queue if the list of the queue and the lists of all queues above it allow it; a queue without a
list allows every namespace (access:ancestors).  The verdict is the same for all groups of a namespace in a queue.  So
it is kept by namespace and queue, and computed again when a queue or a namespace changes; groups are counted again
only where it differs from before.  While no queue has a list, nothing is kept and nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pykai.api.scheduling import Queue
from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.model.groups import Group
from pykai.core.model.queueaccess import QueueAccess
from pykai.core.report.decisions import QueueAccessDenied


class _Use(NamedTuple):
    """A namespace that uses a queue."""

    namespace: str
    queue: str


def find_denial(
    namespace: str,
    queue: str,
    queue_of: Callable[[str], Queue | None],
    access_of: Callable[[str], QueueAccess | None],
    labels: Mapping[str, str] | None,
) -> QueueAccessDenied | None:
    """Why a namespace with these labels may not use a queue; None if it may.

    `queue_of` and `access_of` give a queue and its list by name.
    """
    seen: set[str] = set()
    name = queue
    while name and name not in seen:
        seen.add(name)
        access = access_of(name)
        if access is not None and not access.allows(namespace, labels):
            return QueueAccessDenied(namespace, queue, name, access.broken_annotation, access.fault)
        found = queue_of(name)
        name = found.spec.parent_queue if found is not None else ""
    return None


class QueueAccessIndex:
    """The verdicts about all groups, while some queue has a list."""

    __slots__ = ("_groups", "_is_stale", "_labels", "_lists", "_queues", "_uses", "_verdicts")

    def __init__(self, queues: Mapping[str, Queue], labels: Mapping[str, Mapping[str, str]]) -> None:
        self._queues = queues
        #: namespace -> its labels
        self._labels = labels
        #: queue -> its list; only queues that have one
        self._lists: dict[str, QueueAccess] = {}
        self._verdicts: dict[_Use, QueueAccessDenied | None] = {}
        #: namespace and queue -> keys of the groups
        self._groups: dict[_Use, dict[str, None]] = {}
        #: key of a group -> its namespace and queue
        self._uses: dict[str, _Use] = {}
        self._is_stale = False

    @property
    def in_use(self) -> bool:
        """Whether some queue has a list."""
        return bool(self._lists)

    def set_list(self, queue: str, access: QueueAccess | None) -> bool:
        """Set or remove the list of a queue; whether it changed."""
        if self._lists.get(queue) == access:
            return False
        if access is None:
            del self._lists[queue]
        else:
            self._lists[queue] = access
        self._is_stale = True
        return True

    def expire(self) -> None:
        """A queue or the labels of a namespace changed."""
        self._is_stale = bool(self._lists) or self._is_stale

    def changed_groups(self, entries: Mapping[str, GroupEntry]) -> list[str]:
        """Groups whose verdict is another than before, since lists, queues or labels changed."""
        if not self._is_stale:
            return []
        self._is_stale = False
        before = self._verdicts
        if not self._lists:
            denied = [key for use, keys in self._groups.items() if before[use] is not None for key in keys]
            self._verdicts, self._groups, self._uses = {}, {}, {}
            return denied
        self._verdicts = {}
        if not before:
            # The first list of all: the groups have not been sorted yet.
            for key, entry in entries.items():
                if entry.group is not None:
                    self._place(key, entry.group)
        return [key for use, keys in self._groups.items() if self._verdict(use) != before.get(use) for key in keys]

    def denial(self, key: str, group: Group | None) -> QueueAccessDenied | None:
        """Why a group that came, changed or went may not use its queue."""
        if not self._lists:
            return None
        use = self._uses.get(key)
        if use is not None and (group is None or use != (group.namespace, group.queue)):
            self._remove(key, use)
        return None if group is None else self._verdict(self._place(key, group))

    def _place(self, key: str, group: Group) -> _Use:
        use = self._uses[key] = _Use(group.namespace, group.queue)
        self._groups.setdefault(use, {})[key] = None
        return use

    def _remove(self, key: str, use: _Use) -> None:
        del self._uses[key]
        keys = self._groups[use]
        del keys[key]
        if not keys:
            del self._groups[use]
            self._verdicts.pop(use, None)

    def _verdict(self, use: _Use) -> QueueAccessDenied | None:
        if use not in self._verdicts:
            labels = self._labels.get(use.namespace)
            self._verdicts[use] = find_denial(use.namespace, use.queue, self._queues.get, self._lists.get, labels)
        return self._verdicts[use]
