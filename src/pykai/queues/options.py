"""What can be set about this service (queues:4.1), under the names of KAI's flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pykai.api import names
from pykai.kube.flags import (
    BURST,
    HEALTH_ADDRESS,
    LEADER_ELECT,
    NAMESPACE,
    QPS,
    SKIP_CONTROLLER_NAME_VALIDATION,
    Flag,
    max_concurrent_reconciles,
    read_pairs,
    read_text,
    settle_seconds,
)


@dataclass(frozen=True, slots=True)
class QueuesOptions:
    """What can be set about this service (queues:4.1)."""

    metrics_namespace: str = names.METRICS_NAMESPACE
    #: label of a queue -> label of its metrics, and the value where the queue lacks it
    queue_label_to_metric_label: Mapping[str, str] = field(default_factory=dict)
    queue_label_to_default_metric_value: Mapping[str, str] = field(default_factory=dict)
    #: ours: wall seconds between a change and the write
    settle_s: float = 0.5
    #: ours: queues written at the same time
    max_concurrent_reconciles: int = 4


#: queues:4.1
FLAGS: Final[tuple[Flag, ...]] = (
    LEADER_ELECT,
    NAMESPACE,
    Flag("enable-webhook", "", read_text, "serve a webhook that checks queues", no_effect=True),
    Flag("enable-quota-validation", "", read_text, "let that webhook check quotas", no_effect=True),
    SKIP_CONTROLLER_NAME_VALIDATION,
    Flag("metrics-listen-address", "", read_text, "where metrics and health are served; nowhere without it"),
    HEALTH_ADDRESS,
    Flag("metrics-namespace", names.METRICS_NAMESPACE, read_text, "prefix of the metrics", field="metrics_namespace"),
    Flag(
        "queue-label-to-metric-label",
        "",
        read_pairs,
        "k=m,k=m: label of a queue to label of its metrics",
        field="queue_label_to_metric_label",
    ),
    Flag(
        "queue-label-to-default-metric-value",
        "",
        read_pairs,
        "k=v,k=v: value where a queue lacks the label",
        field="queue_label_to_default_metric_value",
    ),
    QPS,
    BURST,
    max_concurrent_reconciles(4, "queues written at a time (not in KAI Scheduler)"),
    settle_seconds(0.5),
)
