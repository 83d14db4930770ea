"""Kinds without a grouper of ours that administrators describe: in a file, in a ConfigMap, or by Karta objects.

Holds the watches of that ConfigMap and of Kartas, and the groupers that follow from them; of several descriptions of a
kind the file's counts, then the ConfigMap's.  The definition of Kartas need not be installed; while it is missing, the
server is asked for it no more than once a minute (workloads:KT-2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pykai.api import names
from pykai.kube import resources
from pykai.kube.events import WARNING, EventRecorder, InvolvedObject
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change, Store
from pykai.podgrouper.declaredkinds import DeclaredKinds, read_declared_kinds
from pykai.podgrouper.karta.definition import Karta
from pykai.podgrouper.karta.registry import KartaGroupers
from pykai.podgrouper.kinddefaults import TextConfigMap
from pykai.podgrouper.kinds import GrouperTable
from pykai.podgrouper.metadata import GroupVersionKind
from pykai.podgrouper.options import PodGrouperOptions

_log = logging.getLogger(__name__)

#: Wall seconds after which a missing definition of Kartas is looked for again.
_ABSENT_PAUSE_S: Final = 60.0
#: The key of the ConfigMap.
_KINDS_KEY: Final = "kinds"
_FIRST_PROBLEMS: Final = 5

#: Called with a kind whose grouper is another one now.
KindChanged = Callable[[GroupVersionKind], None]


class DescribedKinds:
    """The groupers of described kinds, as of the last change."""

    def __init__(self, runtime: Runtime, recorder: EventRecorder, options: PodGrouperOptions) -> None:
        self._recorder = recorder
        self._in_file = _read_file(options.workload_kinds_file)
        self._in_config_map = read_declared_kinds("")
        self._config_maps: Store[TextConfigMap] | None = None
        if options.workload_kinds_configmap_name:
            self._config_maps = runtime.caches.store(
                resources.CONFIG_MAPS,
                TextConfigMap,
                namespace=options.namespace,
                field_selector=f"metadata.name={options.workload_kinds_configmap_name}",
            )
        self._karta_groupers = KartaGroupers(self._report_karta)
        self._kartas: Store[Karta] | None = None
        if options.generic_karta_fallback:
            self._kartas = runtime.caches.store(resources.KARTAS, Karta, optional=True, absent_pause_s=_ABSENT_PAUSE_S)

    @property
    def stores(self) -> tuple[Store[Any], ...]:
        """What is watched."""
        return tuple(store for store in (self._config_maps, self._kartas) if store is not None)

    @property
    def tables(self) -> tuple[GrouperTable, ...]:
        """Groupers by kind, the table that wins first."""
        return self._in_file.groupers, self._in_config_map.groupers, self._karta_groupers.by_kind

    def subscribe(self, on_change: KindChanged) -> None:
        """Follow changes from now on."""

        def karta_changed(change: Change[Karta]) -> None:
            for kind in self._karta_groupers.changed(change):
                on_change(kind)

        def config_map_changed(change: Change[TextConfigMap]) -> None:
            for kind in self._declare(change.new):
                on_change(kind)

        if self._config_maps is not None:
            self._config_maps.subscribe(config_map_changed)
        if self._kartas is not None:
            self._kartas.subscribe(karta_changed)

    def _declare(self, config_map: TextConfigMap | None) -> set[GroupVersionKind]:
        """Take the kinds of the ConfigMap; those that are declared otherwise now."""
        before = self._in_config_map
        now = self._in_config_map = read_declared_kinds(config_map.text(_KINDS_KEY) if config_map is not None else "")
        if config_map is not None and now.problems and now.problems != before.problems:
            meta = config_map.metadata
            _log_problems(f"ConfigMap {meta.namespace}/{meta.name}", now)
            text = ". ".join(now.problems[:_FIRST_PROBLEMS])
            about = InvolvedObject("v1", "ConfigMap", meta.namespace, meta.name, meta.uid)
            self._recorder.event(about, WARNING, names.EVENT_INVALID_CONFIGURATION, text)
        return {
            kind for kind in before.kinds.keys() | now.kinds.keys() if before.kinds.get(kind) != now.kinds.get(kind)
        }

    def _report_karta(self, karta: Karta, reason: str) -> None:
        meta = karta.metadata
        about = InvolvedObject(resources.KARTAS.api_version, resources.KARTAS.kind, "", meta.name, meta.uid)
        self._recorder.event(about, WARNING, f"{names.EVENT_INVALID_PREFIX}{resources.KARTAS.kind}", reason)


def _read_file(path: str) -> DeclaredKinds:
    if not path:
        return read_declared_kinds("")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _log.error("--workload-kinds-file: %s cannot be read: %s; it declares no kinds", path, error)
        return read_declared_kinds("")
    found = read_declared_kinds(text)
    _log_problems(path, found)
    return found


def _log_problems(source: str, found: DeclaredKinds) -> None:
    for problem in found.problems:
        _log.warning("Workload kinds: %s, %s", source, problem)
