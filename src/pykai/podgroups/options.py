"""What can be set about this service (workloads:12.2), under the names of KAI's flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykai.api import names
from pykai.kube.flags import (
    BURST,
    HEALTH_ADDRESS,
    LEADER_ELECT,
    METRICS_ADDRESS,
    NAMESPACE,
    QPS,
    SHARED_CACHE,
    SKIP_CONTROLLER_NAME_VALIDATION,
    Flag,
    max_concurrent_reconciles,
    read_nonnegative_number,
    read_positive_number,
    read_text,
    settle_seconds,
)


@dataclass(frozen=True, slots=True)
class PodGroupsOptions:
    """What can be set about this service (workloads:12.2)."""

    scheduler_name: str = names.SCHEDULER_NAME
    #: fewer than KAI's 10: under load, binder and pod-grouper have priority at the API server
    max_concurrent_reconciles: int = 3
    #: ours: watch all pods that are not Failed, as a scheduler in the same process does, and so share its cache
    shared_cache: bool = False
    #: ours: wall seconds between a change and the write
    settle_s: float = 0.2
    #: ours: label of PodGroups that names their node pool
    node_pool_label: str = names.NODE_POOL_LABEL
    #: ours: cluster seconds without a sign of a scheduler after which a node pool is not served; 0 for the usual
    pool_patience_s: float = 0.0
    #: ours: status writes a wall second, once a burst of as many is used up
    writes_per_s: float = 200.0


#: workloads:12.2
FLAGS: Final[tuple[Flag, ...]] = (
    Flag("scheduler-name", names.SCHEDULER_NAME, read_text, "pods that name it count", field="scheduler_name"),
    Flag("enable-podgroup-webhook", "", read_text, "serve a webhook that checks PodGroups", no_effect=True),
    QPS,
    BURST,
    max_concurrent_reconciles(3, "PodGroups written at a time (10 in KAI Scheduler)"),
    LEADER_ELECT,
    NAMESPACE,
    Flag("log-level", "", read_text, "log verbosity; --v sets it here", no_effect=True),
    METRICS_ADDRESS,
    HEALTH_ADDRESS,
    SKIP_CONTROLLER_NAME_VALIDATION,
    SHARED_CACHE,
    settle_seconds(0.2),
    Flag(
        "nodepool-label-key",
        names.NODE_POOL_LABEL,
        read_text,
        "label of a PodGroup that names its node pool (not in KAI Scheduler)",
        field="node_pool_label",
    ),
    Flag(
        "pool-patience-seconds",
        "0",
        read_nonnegative_number,
        "how long a node pool may show no sign of a scheduler; 0 = five minutes (not in KAI Scheduler)",
        field="pool_patience_s",
    ),
    Flag(
        "writes-per-second",
        "200",
        read_positive_number,
        "status writes a second, beyond a burst of as many (not in KAI Scheduler)",
        field="writes_per_s",
    ),
)
