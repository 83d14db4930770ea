"""Metrics of the binder (gpu:14).

All series live in the given registry, so that services of one process, and tests, can share one or keep theirs apart.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from pykai.api import names


class BinderMetrics:
    """The binder's series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = f"{names.METRICS_NAMESPACE}_binder"
        self.attempts = Counter(f"{prefix}_bind_attempts", "Attempts to carry out a BindRequest", registry=registry)
        self.failures = Counter(
            f"{prefix}_bind_failures", "Attempts that failed, by the step that failed", ("reason",), registry=registry
        )
        self.reservation_wait = Histogram(
            f"{prefix}_reservation_wait_seconds",
            "Cluster time until a reservation pod knew its GPU",
            registry=registry,
            buckets=(0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60),
        )
        self.orphans_deleted = Counter(
            f"{prefix}_orphan_reservations_deleted", "Unused reservation pods that were deleted", registry=registry
        )
        self.pods_deleted = Counter(
            f"{prefix}_pods_deleted_missing_reservation",
            "Running pods deleted because the reservation of their GPU was gone",
            registry=registry,
        )
