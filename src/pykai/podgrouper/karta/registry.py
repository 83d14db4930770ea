"""The groupers of the Kartas of a cluster, one for each kind that exactly one usable Karta describes (workloads:KT-1).

`changed` takes each change of a Karta and says for which kind the grouper is now another one.  A Karta is compiled when
its spec changes, never while pods are grouped.  Kartas are found by three labels that the Karta operator writes, as in
KAI; one without them is not used.

Subtle: two usable Kartas for one kind contradict each other, and neither is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pykai.api import names
from pykai.kube.store import Change
from pykai.podgrouper.karta.compiled import KartaError, compile_karta
from pykai.podgrouper.karta.definition import Karta
from pykai.podgrouper.karta.grouper import KartaGrouper
from pykai.podgrouper.metadata import Grouper, GroupVersionKind

_log = logging.getLogger(__name__)

_LABELS: Final = (names.KARTA_GROUP_LABEL, names.KARTA_VERSION_LABEL, names.KARTA_KIND_LABEL)

#: Told of a Karta that cannot be used, and why.
KartaReport = Callable[[Karta, str], None]


class KartaGroupers:
    """See the module."""

    def __init__(self, report: KartaReport) -> None:
        self._report = report
        #: the grouper of each kind that one Karta describes
        self.by_kind: dict[GroupVersionKind, Grouper] = {}
        #: usable Kartas of each kind by name
        self._usable: dict[GroupVersionKind, dict[str, tuple[Karta, KartaGrouper]]] = {}
        self._kinds: dict[str, GroupVersionKind] = {}

    def changed(self, change: Change[Karta]) -> set[GroupVersionKind]:
        """Take a change; the kinds whose grouper is another one now."""
        old, new = change.old, change.new
        if old is not None and new is not None and _essence(old) == _essence(new):
            return set()
        affected = set()
        before = self._kinds.pop(change.key, None)
        if before is not None:
            del self._usable[before][change.key]
            affected.add(before)
        grouper = self._compiled(new) if new is not None else None
        if new is not None and grouper is not None:
            kind = grouper.karta.kind
            self._kinds[change.key] = kind
            self._usable.setdefault(kind, {})[change.key] = (new, grouper)
            affected.add(kind)
        return {kind for kind in affected if self._choose(kind)}

    def _compiled(self, karta: Karta) -> KartaGrouper | None:
        if karta.metadata.deletion_timestamp is not None:
            return None
        try:
            compiled = compile_karta(karta)
        except KartaError as error:
            self._refuse(karta, str(error))
            return None
        if compiled is None:
            return None
        labels = tuple(karta.metadata.labels.get(key, "") for key in _LABELS)
        if compiled.kind != labels:
            _log.info("Karta %s is not used: its labels %s do not name its root kind", karta.metadata.name, labels)
            return None
        return KartaGrouper(compiled)

    def _choose(self, kind: GroupVersionKind) -> bool:
        """Use the Karta of a kind if there is one and no other; whether that changes anything."""
        usable = self._usable[kind]
        before = self.by_kind.pop(kind, None)
        if len(usable) == 1:
            ((_, self.by_kind[kind]),) = usable.values()
        elif usable:
            listed = ", ".join(sorted(usable))
            for karta, _ in usable.values():
                self._refuse(karta, f"Kartas {listed} describe one kind, {_written(kind)}; none is used: keep one")
        else:
            del self._usable[kind]
        return self.by_kind.get(kind) is not before

    def _refuse(self, karta: Karta, reason: str) -> None:
        _log.warning("Karta %s is not used: %s", karta.metadata.name, reason)
        self._report(karta, reason)


def _essence(karta: Karta) -> tuple[object, ...]:
    """What a grouper is made of; a Karta's status changes more often."""
    meta = karta.metadata
    labels = tuple(meta.labels.get(key) for key in _LABELS)
    return meta.uid, labels, meta.deletion_timestamp is not None, karta.spec


def _written(kind: GroupVersionKind) -> str:
    group, version, name = kind
    return f"{group}/{version} {name}" if group else f"{version} {name}"
