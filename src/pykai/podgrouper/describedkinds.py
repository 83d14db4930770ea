"""Kinds without a grouper of ours that administrators describe: by Karta objects.

Holds the watch of Kartas and the groupers that follow from them.  The definition of Kartas need not be installed; while
it is missing, the server is asked for it no more than once a minute (workloads:KT-2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pykai.api import names
from pykai.kube import resources
from pykai.kube.events import EventRecorder, InvolvedObject
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change, Store
from pykai.podgrouper.karta.definition import Karta
from pykai.podgrouper.karta.registry import KartaGroupers
from pykai.podgrouper.metadata import Grouper, GroupVersionKind

#: Wall seconds after which a missing definition of Kartas is looked for again.
_ABSENT_PAUSE_S: Final = 60.0

#: Told of a kind whose grouper is another one now.
KindChanged = Callable[[GroupVersionKind], None]


class DescribedKinds:
    """The groupers of described kinds, as of the last change."""

    def __init__(self, runtime: Runtime, recorder: EventRecorder, *, kartas: bool) -> None:
        self._recorder = recorder
        self._kartas = KartaGroupers(self._report_karta)
        self.stores: tuple[Store[Karta], ...] = ()
        if kartas:
            store = runtime.caches.store(resources.KARTAS, Karta, optional=True, absent_pause_s=_ABSENT_PAUSE_S)
            self.stores = (store,)

    @property
    def tables(self) -> tuple[Mapping[GroupVersionKind, Grouper], ...]:
        """Groupers by kind, the table that wins first."""
        return (self._kartas.by_kind,)

    def subscribe(self, on_change: KindChanged) -> None:
        """Follow changes from now on."""

        def karta_changed(change: Change[Karta]) -> None:
            for kind in self._kartas.changed(change):
                on_change(kind)

        for store in self.stores:
            store.subscribe(karta_changed)

    def _report_karta(self, karta: Karta, reason: str) -> None:
        meta = karta.metadata
        about = InvolvedObject(resources.KARTAS.api_version, resources.KARTAS.kind, "", meta.name, meta.uid)
        self._recorder.event(about, "Warning", f"{names.EVENT_INVALID_PREFIX}{resources.KARTAS.kind}", reason)
