"""The Deployments that a Config asks for: one row each (operations:1.1, O-4, E-2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pykai.api.installation import ComponentSpec
from pykai.operator.desired import arguments
from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.desired.settings import Settings

HEALTH_PORT: Final = 8081
#: CPU is not limited to a tenth of a processor, as in KAI Scheduler: a throttled controller makes pods wait
_RESOURCES: Final[Mapping[str, Any]] = {
    "requests": {"cpu": "50m", "memory": "256Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}


@dataclass(frozen=True, slots=True)
class Component:
    """One Deployment; its account and its container have the same name."""

    name: str
    #: in messages
    operand: str
    #: `kai run NAME`
    service: str
    #: its field of a Config
    config_field: str
    spec: Callable[[Settings], ComponentSpec]
    arguments: Callable[[Settings, ClusterFacts], list[str]]
    #: flag -> field of its part of a Config that it comes from
    fields: Mapping[str, str] = field(default_factory=dict)
    #: the old pod ends before the new one starts
    is_recreated: bool = False
    has_budget: bool = False
    health_port: Callable[[Settings], int] = lambda _: HEALTH_PORT
    resources: Mapping[str, Any] = field(default_factory=lambda: _RESOURCES)


_WORKERS: Final = {"max-concurrent-reconciles": "maxConcurrentReconciles"}

COMPONENTS: Final = (
    Component(
        "pod-grouper",
        "PodGrouper",
        "podgrouper",
        "podGrouper",
        lambda settings: settings.pod_grouper,
        arguments.pod_grouper,
        fields=_WORKERS,
        has_budget=True,
    ),
    Component(
        "podgroup-controller",
        "PodGroupController",
        "podgroups",
        "podGroupController",
        lambda settings: settings.pod_group_controller,
        arguments.pod_group_controller,
        fields=_WORKERS,
    ),
    Component(
        "queue-controller",
        "QueueController",
        "queues",
        "queueController",
        lambda settings: settings.queue_controller,
        arguments.queue_controller,
        fields={
            "queue-label-to-metric-label": "queueLabelToMetricLabel",
            "queue-label-to-default-metric-value": "queueLabelToDefaultMetricValue",
        },
    ),
    Component(
        "binder",
        "Binder",
        "binder",
        "binder",
        lambda settings: settings.binder,
        arguments.binder,
        fields={
            **_WORKERS,
            "plugins": "plugins",
            "resource-reservation-allocation-timeout": "resourceReservation.allocationTimeout",
        },
        is_recreated=True,
        health_port=lambda settings: arguments.binder_ports(settings)[1],
    ),
    Component(
        "admission",
        "KAIAdmission",
        "admission",
        "admission",
        lambda settings: settings.admission,
        arguments.admission,
        is_recreated=True,
        has_budget=True,
        health_port=lambda settings: arguments.admission_ports(settings).health,
    ),
    Component(
        "node-scale-adjuster",
        "NodeScaleAdjuster",
        "nodescale",
        "nodeScaleAdjuster",
        lambda settings: settings.node_scale_adjuster,
        arguments.node_scale_adjuster,
        fields={"gpu-memory-to-fraction-ratio": "args.gpuMemoryToFractionRatio"},
    ),
)
