"""Queues as Prometheus gauges (queues:15.1).

A queue's series carry its name, its display name, and labels of the queue that were chosen on the command line.  When
these labels change, the new series are set before the old ones go, so that no scrape finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge

from pykai.api import names
from pykai.api.amounts import NanoAmounts
from pykai.api.scheduling import Queue, QueueResource
from pykai.queues.status import gpus_of

_NANO = 10**9
#: Name -> help text.
HELP = {
    "queue_info": "1 for each queue",
    "queue_deserved_gpus": "Quota of a queue in GPUs, -1 = unlimited",
    "queue_quota_cpu_cores": "Quota of a queue in CPU cores, -1 = unlimited",
    "queue_quota_memory_bytes": "Quota of a queue in bytes of memory, -1 = unlimited",
    "queue_allocated_gpus": "GPUs that the pods of a queue have; parts of a GPU count as such",
    "queue_allocated_cpu_cores": "CPU cores that the pods of a queue have",
    "queue_allocated_memory_bytes": "Bytes of memory that the pods of a queue have",
}


@dataclass(frozen=True, slots=True)
class ExtraLabels:
    """Labels of queues that become labels of metrics."""

    #: label of the queue -> label of the metric
    names: Mapping[str, str]
    #: label of the queue -> value where the queue lacks it
    defaults: Mapping[str, str]

    def values(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """The values for a queue, in the order of the queue labels."""
        return tuple(labels.get(key, self.defaults.get(key, "")) for key in sorted(self.names))


class QueueGauges:
    """The gauges of all queues."""

    def __init__(self, registry: CollectorRegistry, namespace: str, extra: ExtraLabels) -> None:
        labels = ["queue_name", "queue_metadata_name", "queue_display_name"]
        labels += [extra.names[key] for key in sorted(extra.names)]
        self._extra = extra
        self._gauges = {
            name: Gauge(name, text, labels, namespace=namespace, registry=registry) for name, text in HELP.items()
        }
        #: queue -> labels of its series
        self._series: dict[str, tuple[str, ...]] = {}

    def set(self, queue: Queue, allocated: NanoAmounts) -> None:
        """Set the gauges of a queue (queues:Q-360)."""
        meta, spec = queue.metadata, queue.spec
        resources = spec.resources
        nothing = QueueResource()
        gpu, cpu, memory = (
            (resources.gpu, resources.cpu, resources.memory) if resources is not None else (nothing, nothing, nothing)
        )
        values = {
            "queue_info": 1.0,
            "queue_deserved_gpus": gpu.quota,
            "queue_quota_cpu_cores": cpu.quota if cpu.quota == names.UNLIMITED else cpu.quota / 1000,
            "queue_quota_memory_bytes": memory.quota if memory.quota == names.UNLIMITED else memory.quota * 10**6,
            "queue_allocated_gpus": round(gpus_of(allocated) / _NANO, 4),
            "queue_allocated_cpu_cores": round(allocated.get(names.CPU, 0) / _NANO, 4),
            "queue_allocated_memory_bytes": round(allocated.get(names.MEMORY, 0) / _NANO, 4),
        }
        series = (meta.name, meta.name, spec.display_name, *self._extra.values(meta.labels))
        for name, value in values.items():
            self._gauges[name].labels(*series).set(value)
        before = self._series.get(meta.name)
        self._series[meta.name] = series
        if before is not None and before != series:
            self._remove(before)

    def drop(self, queue: str) -> None:
        """The queue is gone (queues:Q-41)."""
        series = self._series.pop(queue, None)
        if series is not None:
            self._remove(series)

    def _remove(self, series: tuple[str, ...]) -> None:
        for gauge in self._gauges.values():
            gauge.remove(*series)
