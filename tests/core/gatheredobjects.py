"""Kubernetes objects of a cluster in a test, with ages in the order in which they are added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pykai.api.timestamp import format_timestamp

NOW_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
Raw = dict[str, Any]


def timestamp_before(age_s: float) -> str:
    """The timestamp `age_s` seconds before the cycle."""
    return format_timestamp(NOW_NS - int(age_s * 1e9))


def resource_list(
    cpu: str | int = 0, memory: str | int = 0, gpu: int = 0, extra: Mapping[str, str | int] | None = None
) -> dict[str, str]:
    """A resource list without zero entries."""
    amounts = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpu, **(extra or {})}
    return {name: str(amount) for name, amount in amounts.items() if amount not in (0, "0")}


class GatheredObjects:
    """Objects being gathered, the later the younger; every method returns the collection itself."""

    def __init__(self) -> None:
        self.objects: list[Raw] = []
        self._age = 1_000_000.0

    def _older(self, age: float | None) -> str:
        if age is not None:
            return timestamp_before(age)
        self._age -= 1
        return timestamp_before(self._age)

    def add(self, *objects: Raw) -> Self:
        """Raw Kubernetes objects."""
        self.objects.extend(objects)
        return self
