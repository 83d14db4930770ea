"""What Prometheus is asked for usage, and how its answers are read (queues:14.3); pure.

For each resource there is a query for the capacity of the cluster and one for what queues were allocated, both summed
over the window; usage is one over the other.  The queue controller exports the allocations (operations:O-48), and
kube-state-metrics the capacity; `extraParams` names others.

All windows are subqueries of instant queries.  KAI sends range queries for tumbling windows and those of a cron
schedule, which no Prometheus answers (queues:Q-342).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

import msgspec

from pykai.api.duration import DAY, HOUR, MILLISECOND, MINUTE, SECOND, WEEK
from pykai.core.model.queuetree import CPU, GPU, MEMORY, RESOURCES
from pykai.core.queueing.usagehistory import UsageAmounts, UsageWindow, fractions
from pykai.scheduler.config.usagedb import UsageConfig

#: in the order of `UsageAmounts`
RESOURCE_NAMES = ("cpu", "memory", "nvidia.com/gpu")
_QUEUE = "queue_name"
#: a window that has begun this moment holds no samples
_SHORTEST_WINDOW_NS = SECOND
_UNITS = (("w", WEEK), ("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND))


class UsageError(Exception):
    """Usage cannot be had now; the text says why."""


class UsageQueries(NamedTuple):
    """PromQL for CPU, memory and GPUs."""

    capacity: tuple[str, ...]
    allocated: tuple[str, ...]


def usage_queries(config: UsageConfig, now_ns: int) -> UsageQueries | None:
    """The queries at an instant; None for a window that has not begun (queues:Q-338, Q-341, Q-342).

    Series of one queue are added up: a restarted exporter, or a changed label, makes several (queues:Q-343).
    """
    size_ns = now_ns - config.window.begin_ns(now_ns)
    if size_ns < _SHORTEST_WINDOW_NS:
        return None
    # Steps are multiples of the resolution since 1970: a window as short as one step might hold none.
    step_ns = min(config.resolution_ns, max(size_ns // 2, MILLISECOND))
    reach = f"[{promql_duration(size_ns)}:{promql_duration(step_ns)}]"
    capacity, allocated = (
        tuple(f"sum_over_time(({decayed(metric, config.window, now_ns)}){reach})" for metric in metrics)
        for metrics in (config.capacity_metrics, config.allocation_metrics)
    )
    return UsageQueries(capacity, tuple(f"sum by ({_QUEUE}) ({query})" for query in allocated))


def decayed(metric: str, window: UsageWindow, now_ns: int) -> str:
    """A metric of which each sample is halved for every half-life since (queues:Q-337)."""
    if window.half_life_ns <= 0:
        return metric
    return f"(({metric}) * (0.5^(({now_ns // SECOND} - time()) / {window.half_life_ns / SECOND:f})))"


def promql_duration(nanoseconds: int) -> str:
    """A duration in PromQL, to the millisecond: `1w`, `1h30m`."""
    parts = []
    for unit, size in _UNITS:
        count, nanoseconds = divmod(nanoseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


class _Sample(msgspec.Struct):
    value: tuple[float, str]
    metric: dict[str, str] = {}


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct, rename="camel"):
    status: str = ""
    error: str = ""
    data: _Data | None = None
    warnings: list[str] = []


class InstantVector(NamedTuple):
    """The answer to an instant query."""

    #: queue ("" for a sum over all) and value, in the order of the answer
    samples: Sequence[tuple[str, float]]
    warnings: Sequence[str]


def read_vector(body: bytes) -> InstantVector:
    """The answer of `/api/v1/query`; raises `UsageError` where it is none, or not a vector."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UsageError("the answer is not that of a Prometheus") from None
    if answer.status != "success" or answer.data is None:
        raise UsageError(answer.error or "the answer is not that of a Prometheus")
    if answer.data.result_type != "vector":
        raise UsageError(f"unexpected query result: got {answer.data.result_type}, expected vector")
    try:
        samples = msgspec.json.decode(answer.data.result, type=list[_Sample])
        found = [(each.metric.get(_QUEUE, ""), _sane(float(each.value[1]))) for each in samples]
    except (msgspec.DecodeError, ValueError):
        raise UsageError("the answer holds a sample that is not a number") from None
    return InstantVector(found, answer.warnings)


def _sane(value: float) -> float:
    """NaN, infinite and negative values mean nothing (queues:Q-144)."""
    return value if 0.0 < value < inf else 0.0


def first_value(vector: InstantVector) -> float:
    """The first value, 0 for an empty vector (queues:Q-339)."""
    return vector.samples[0][1] if vector.samples else 0.0


def usage_fractions(
    capacity: Sequence[float], allocated: Sequence[Sequence[tuple[str, float]]]
) -> Mapping[str, UsageAmounts]:
    """Queue -> fraction of the cluster, from the sums of each resource (queues:Q-335, Q-339)."""
    sums: dict[str, list[float]] = {}
    for resource in range(RESOURCES):
        for queue, value in allocated[resource]:
            if queue:
                sums.setdefault(queue, [0.0] * RESOURCES)[resource] += value
    total = (capacity[CPU], capacity[MEMORY], capacity[GPU])
    return {queue: fractions((each[CPU], each[MEMORY], each[GPU]), total) for queue, each in sorted(sums.items())}
