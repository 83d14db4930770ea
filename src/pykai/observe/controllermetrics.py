"""Metrics of every controller and process, under the names of controller-runtime and of Prometheus' clients.

Statements: operations:8.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, ProcessCollector

from pykai.observe.metrics import Metrics

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SUCCESS, REQUEUE_AFTER, ERROR = "success", "requeue_after", "error"


def process_registry() -> CollectorRegistry:
    """A registry with what this process uses: processor, memory, files, and when it started."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class ControllerMetrics:
    """Metrics of the controllers of a process; without a registry they are not exported."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        make = Metrics("", registry)
        self.registry = make.registry
        self._reconciles = make.counter(
            "controller_runtime_reconcile",
            "Objects that a controller looked at: success, error, or requeue_after to look again later",
            ["controller", "result"],
        )
        self._errors = make.counter("controller_runtime_reconcile_errors", "Those that failed", ["controller"])
        self._seconds = make.histogram(
            "controller_runtime_reconcile_time_seconds", "Seconds that one took", _SECONDS, ["controller"]
        )
        self._workers = make.gauge("controller_runtime_max_concurrent_reconciles", "Objects at a time", ["controller"])
        self._active = make.gauge("controller_runtime_active_workers", "Objects being worked on", ["controller"])
        self._depth = make.gauge("workqueue_depth", "Objects that wait for their turn", ["name"])

    def watch(
        self, controller: str, workers: int, active: Callable[[], int], depth: Callable[[], int]
    ) -> Callable[[str, float], None]:
        """Export a controller; returns what it calls with the result and the seconds of each object."""
        self._workers.labels(controller).set(workers)
        self._active.labels(controller).set_function(active)
        self._depth.labels(controller).set_function(depth)
        results = {result: self._reconciles.labels(controller, result) for result in (SUCCESS, REQUEUE_AFTER, ERROR)}
        errors, seconds = self._errors.labels(controller), self._seconds.labels(controller)

        def record(result: str, took_s: float) -> None:
            results[result].inc()
            seconds.observe(took_s)
            if result == ERROR:
                errors.inc()

        return record
