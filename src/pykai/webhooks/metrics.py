"""Metrics of the admission service."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from pykai.api import names
from pykai.webhooks.table import PATHS

_ANSWERS: Final = {True: "true", False: "false"}


class AdmissionMetrics:
    """The series of the admission service."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        prefix = f"{names.METRICS_NAMESPACE}_admission"
        self.reviews = Counter(
            f"{prefix}_reviews", "Reviews that were answered, by webhook", ("path", "allowed"), registry=registry
        )
        self.duration = Histogram(
            f"{prefix}_review_duration_seconds",
            "Wall time from the request of an API server to the answer",
            ("path",),
            registry=registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        for path in PATHS:
            self.duration.labels(path)
            for allowed in _ANSWERS.values():
                self.reviews.labels(path, allowed)
        self.certificate_expiry = Gauge(
            f"{prefix}_certificate_expiry_timestamp_seconds",
            "When the certificate that is served ends; 0 where it comes from files",
            registry=registry,
        )

    def observe(self, path: str, allowed: bool, duration_s: float) -> None:
        """Count an answered review."""
        self.reviews.labels(path, _ANSWERS[allowed]).inc()
        self.duration.labels(path).observe(duration_s)
