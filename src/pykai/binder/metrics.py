"""Metrics of the binder (gpu:14).

All series live in the given registry, so that services of one process, and tests, can share one or keep theirs apart.
"""

from __future__ import annotations

from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary

from pykai.api import names
from pykai.binder.lifecycle import BindStep


class BinderMetrics:
    """The binder's series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = f"{names.METRICS_NAMESPACE}_binder"
        self.attempts = Counter(f"{prefix}_bind_attempts", "Attempts to carry out a BindRequest", registry=registry)
        self.failures = Counter(
            f"{prefix}_bind_failures",
            f"Attempts that failed, by the step that failed: {', '.join(get_args(BindStep))}",
            ("reason",),
            registry=registry,
        )
        for step in get_args(BindStep):
            self.failures.labels(step)
        self.reservation_wait = Histogram(
            f"{prefix}_reservation_wait_seconds",
            "Cluster time until a reservation pod knew its GPU",
            registry=registry,
            buckets=(0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60),
        )
        # A sum and a count: buckets of thousands of nodes would be more than all other metrics together.
        self._node_binds = Summary(
            f"{prefix}_node_bind_seconds",
            "Cluster time to prepare and bind a pod, by node: sum and count",
            ("node",),
            registry=registry,
        )
        self._bound_nodes: set[str] = set()
        self.orphans_deleted = Counter(
            f"{prefix}_orphan_reservations_deleted", "Unused reservation pods that were deleted", registry=registry
        )
        self.pods_deleted = Counter(
            f"{prefix}_pods_deleted_missing_reservation",
            "Running pods deleted because the reservation of their GPU was gone",
            registry=registry,
        )

    # operations:OD-17
    def observe_bind(self, node: str, seconds: float) -> None:
        """Record a pod that was bound."""
        self._node_binds.labels(node).observe(seconds)
        self._bound_nodes.add(node)

    def forget_node(self, node: str) -> None:
        """Remove the series of a deleted node."""
        if node in self._bound_nodes:
            self._bound_nodes.remove(node)
            self._node_binds.remove(node)
