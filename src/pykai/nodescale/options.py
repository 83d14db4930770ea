"""What can be set about the node scale adjuster (operations:9), under the names of KAI's flags."""

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
    SCHEDULER_NAME,
    SHARED_CACHE,
    Flag,
    read_nonnegative_number,
    read_positive,
    read_positive_number,
    read_text,
    settle_seconds,
)

_IMAGE: Final = "pykai/kai-scheduler/scalingpod"


@dataclass(frozen=True, slots=True)
class NodeScaleOptions:
    """The settings of the node scale adjuster."""

    scheduler_name: str = names.SCHEDULER_NAME
    scaling_pod_image: str = _IMAGE
    #: where scaling pods are
    namespace: str = names.SCALE_ADJUST_NAMESPACE
    scaling_pod_app: str = names.SCALING_POD_APP
    scaling_pod_service_account: str = names.SCALING_POD_APP
    #: portion of a GPU that a request for GPU memory counts where no node tells the size of its GPUs
    gpu_memory_to_fraction_ratio: float = 0.1
    #: ours: cluster seconds between the removal of a scaling pod and the next creation (60 in KAI)
    cooldown_s: float = 60.0
    #: ours: scaling pods at a time
    max_scaling_pods: int = 100
    #: ours: wall seconds in which changes of pods are gathered
    settle_s: float = 0.5
    #: ours: watch all pods that are not Failed, as a scheduler in the same process does, and so share its cache
    shared_cache: bool = False


FLAGS: Final[tuple[Flag, ...]] = (
    Flag("scaling-pod-image", _IMAGE, read_text, "image of scaling pods, which only end", field="scaling_pod_image"),
    Flag(
        "scale-adjust-namespace",
        names.SCALE_ADJUST_NAMESPACE,
        read_text,
        "where scaling pods are created",
        field="namespace",
    ),
    SCHEDULER_NAME,
    Flag("scaling-pod-app-label", names.SCALING_POD_APP, read_text, "their label `app`", field="scaling_pod_app"),
    Flag(
        "scaling-pod-service-account",
        names.SCALING_POD_APP,
        read_text,
        "who they are",
        field="scaling_pod_service_account",
    ),
    Flag(
        "gpu-memory-to-fraction-ratio",
        "0.1",
        read_positive_number,
        "portion of a GPU that a request for GPU memory counts while no node tells the memory of its GPUs",
        field="gpu_memory_to_fraction_ratio",
    ),
    Flag(
        "cooldown-seconds",
        "60",
        read_nonnegative_number,
        "pause between the removal of a scaling pod and the next one (not in KAI Scheduler)",
        field="cooldown_s",
    ),
    Flag(
        "max-scaling-pods",
        "100",
        read_positive,
        "scaling pods at a time (not in KAI Scheduler)",
        field="max_scaling_pods",
    ),
    QPS,
    BURST,
    LEADER_ELECT,
    NAMESPACE,
    METRICS_ADDRESS,
    HEALTH_ADDRESS,
    SHARED_CACHE,
    settle_seconds(0.5),
)
