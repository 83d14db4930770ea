"""Metrics in Prometheus' format, for every service of a process.

A service takes a `CollectorRegistry` and makes its metrics there, so that several services (and several tests) live
in one process.  `Metrics` puts the prefix in front of every name and makes each metric once, however often a service is
made in this process.  `AtomicGauges` is a set of gauges that change together: a scrape sees either all old or all new
values, and series that are no longer published vanish.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

CONTENT_TYPE = CONTENT_TYPE_LATEST


#: only counters that keep their name are made without a type, see `UnsuffixedCounter`
_UNTYPED = re.compile(rb"^(# TYPE \S+) untyped$", re.MULTILINE)


def exposition(registry: CollectorRegistry) -> bytes:
    """All metrics of the registry as Prometheus reads them."""
    return _UNTYPED.sub(rb"\1 counter", generate_latest(registry))


class Metrics:
    """Makes metrics with a common prefix."""

    def __init__(self, namespace: str = "", registry: CollectorRegistry | None = None) -> None:
        self.namespace = namespace
        self.registry = registry or CollectorRegistry()

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """A value that goes up and down."""
        return Gauge(name, text, labels, namespace=self.namespace, registry=self.registry)

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """A value that only grows; the exposition adds `_total` to its name."""
        return Counter(name, text, labels, namespace=self.namespace, registry=self.registry)

    def unsuffixed_counter(self, name: str, text: str, labels: Sequence[str] = ()) -> UnsuffixedCounter:
        """A value that only grows, under exactly this name: for names that others chose without `_total`."""
        made = UnsuffixedCounter(f"{self.namespace}_{name}" if self.namespace else name, text, labels)
        self.registry.register(made)
        return made

    def histogram(self, name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
        """Observed values, counted in buckets."""
        return Histogram(name, text, labels, namespace=self.namespace, registry=self.registry, buckets=buckets)

    def summary(self, name: str, text: str, labels: Sequence[str] = ()) -> Summary:
        """Observed values as their sum and count."""
        return Summary(name, text, labels, namespace=self.namespace, registry=self.registry)

    def atomic_gauges(self, families: Mapping[str, str], labels: Sequence[str]) -> AtomicGauges:
        """Gauges that change together; `families` maps names to help texts."""
        prefix = f"{self.namespace}_" if self.namespace else ""
        made = AtomicGauges({f"{prefix}{name}": text for name, text in families.items()}, labels, len(prefix))
        self.registry.register(made)
        return made


class UnsuffixedCounter:
    """A counter whose name stays as it is.

    Prometheus' client adds `_total` to the name of every counter, so this one is made without a type and gets it in
    `exposition`.  Readers need it: a collector that knows no type takes a series for a gauge.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Count."""
        if len(labels) != len(self._labels):
            raise ValueError(f"{self._name} has the labels {self._labels}, got {labels}")
        self._values[labels] = self._values.get(labels, 0.0) + by

    def describe(self) -> Iterable[Metric]:
        """What will be collected."""
        return [Metric(self._name, self._text, "unknown")]

    def collect(self) -> Iterable[Metric]:
        """The values now."""
        family = Metric(self._name, self._text, "unknown")
        for labels, value in list(self._values.items()):
            family.add_sample(self._name, dict(zip(self._labels, labels, strict=True)), value)
        yield family


class AtomicGauges:
    """Gauges replaced all at once."""

    def __init__(self, families: Mapping[str, str], labels: Sequence[str], prefix: int) -> None:
        self._families = families
        self._labels = labels
        self._prefix = prefix
        self._rows: tuple[tuple[tuple[str, ...], Mapping[str, float]], ...] = ()

    def publish(self, rows: Iterable[tuple[tuple[str, ...], Mapping[str, float]]]) -> None:
        """Label values with the value of each family, named without the prefix."""
        self._rows = tuple(rows)

    def describe(self) -> Iterable[Metric]:
        """What will be collected."""
        return [GaugeMetricFamily(name, text, labels=self._labels) for name, text in self._families.items()]

    def collect(self) -> Iterable[Metric]:
        """The values as they were last published."""
        rows = self._rows
        for name, text in self._families.items():
            family = GaugeMetricFamily(name, text, labels=self._labels)
            for labels, values in rows:
                value = values.get(name[self._prefix :])
                if value is not None:
                    family.add_metric(labels, value)
            yield family
