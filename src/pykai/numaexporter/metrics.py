"""Metrics of the exporter of NUMA placements."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.observe.metrics import Metrics


class NumaExporterMetrics:
    """The series of one node's exporter."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        make = Metrics(names.METRICS_NAMESPACE, registry)
        rounds = make.counter(
            "numa_exporter_rounds",
            "Rounds of asking the kubelet and annotating pods: done, or failed in some part",
            ["result"],
        )
        self._done, self._failed = rounds.labels("done"), rounds.labels("failed")
        self._annotated = make.counter("numa_exporter_pods_annotated", "Pods whose annotation was written")

    def count_round(self, *, failed: bool) -> None:
        """Count a round."""
        (self._failed if failed else self._done).inc()

    def count_annotated_pod(self) -> None:
        """Count a pod whose annotation was written."""
        self._annotated.inc()
