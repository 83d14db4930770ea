"""What can be set about the pod grouper (workloads:12.1), under the names of KAI's flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    max_concurrent_reconciles,
    read_bool,
    read_positive_number,
    read_text,
)
from pykai.podgrouper.metadata import GroupingSettings


@dataclass(frozen=True, slots=True)
class PodGrouperOptions:
    """Defaults are KAI's; options that KAI does not have are marked as ours."""

    scheduler_name: str = names.SCHEDULER_NAME
    queue_label_key: str = names.QUEUE_LABEL
    node_pool_label_key: str = names.NODE_POOL_LABEL
    search_legacy_pg: bool = True
    knative_gang_schedule: bool = True
    generic_karta_fallback: bool = True
    #: both needed: the ConfigMap with the defaults of kinds
    default_priorities_configmap_name: str = ""
    default_priorities_configmap_namespace: str = ""
    #: `k=v,k=v`
    pod_label_selector: str = ""
    namespace_label_selector: str = ""
    #: more than KAI's 10: a pod waits for its group before anything else can happen to it
    max_concurrent_reconciles: int = 50
    #: ours: declarations of workload kinds, and the ConfigMap that holds some
    workload_kinds_file: str = ""
    workload_kinds_configmap_name: str = ""
    #: where the services run, and that ConfigMap is
    namespace: str = names.DEFAULT_NAMESPACE
    #: ours: watch all pods that are not Failed, as a scheduler in the same process does, and so share its cache
    shared_cache: bool = False
    #: ours: move a group to the queue its workload names now, while none of its pods has a node
    follow_queue: bool = False
    #: ours: for how long owners of kinds that are not watched are remembered, in cluster seconds
    owner_memory_s: float = 60.0
    #: ours: see `GroupingSettings`
    workload_api: bool = False
    kueue_pod_groups: bool = False
    kueue_priority_classes: bool = False

    def settings(self) -> GroupingSettings:
        """The settings of groupers."""
        return GroupingSettings(
            self.queue_label_key,
            self.node_pool_label_key,
            self.search_legacy_pg,
            self.knative_gang_schedule,
            workload_api=self.workload_api,
            kueue_pod_groups=self.kueue_pod_groups,
            kueue_priority_classes=self.kueue_priority_classes,
        )


#: workloads:12.1
FLAGS: Final[tuple[Flag, ...]] = (
    SCHEDULER_NAME,
    Flag(
        "queue-label-key",
        names.QUEUE_LABEL,
        read_text,
        "label of workloads and pods that names their queue",
        field="queue_label_key",
    ),
    Flag(
        "nodepool-label-key",
        names.NODE_POOL_LABEL,
        read_text,
        "label that names a node pool",
        field="node_pool_label_key",
    ),
    Flag(
        "search-legacy-pg",
        "true",
        read_bool,
        "pods of a Job keep the group of their own that old releases made",
        field="search_legacy_pg",
    ),
    Flag(
        "knative-gang-schedule",
        "true",
        read_bool,
        "gang-schedule the pods of a Knative revision",
        field="knative_gang_schedule",
    ),
    Flag(
        "generic-karta-fallback",
        "true",
        read_bool,
        "group unknown kinds as Karta objects describe them",
        field="generic_karta_fallback",
    ),
    Flag(
        "default-priorities-configmap-name",
        "",
        read_text,
        "ConfigMap with the default priorities of kinds",
        field="default_priorities_configmap_name",
    ),
    Flag(
        "default-priorities-configmap-namespace",
        "",
        read_text,
        "namespace of that ConfigMap",
        field="default_priorities_configmap_namespace",
    ),
    Flag("pod-label-selector", "", read_text, "k=v,k=v: only pods with these labels", field="pod_label_selector"),
    Flag(
        "namespace-label-selector",
        "",
        read_text,
        "k=v,k=v: only pods in namespaces with these labels",
        field="namespace_label_selector",
    ),
    QPS,
    BURST,
    max_concurrent_reconciles(50, "pods worked on at a time (10 in KAI Scheduler)"),
    LEADER_ELECT,
    replace(NAMESPACE, meaning="where the lease is, and the ConfigMap of workload kinds", field="namespace"),
    METRICS_ADDRESS,
    HEALTH_ADDRESS,
    SHARED_CACHE,
    Flag(
        "follow-queue",
        "false",
        read_bool,
        "move a group to the queue its workload names now, while none of its pods has a node (not in KAI Scheduler)",
        field="follow_queue",
    ),
    Flag(
        "workload-kinds-file",
        "",
        read_text,
        "file that declares workload kinds, read at the start (not in KAI Scheduler)",
        field="workload_kinds_file",
    ),
    Flag(
        "workload-kinds-configmap-name",
        "",
        read_text,
        "ConfigMap that declares workload kinds under its key kinds, followed (not in KAI Scheduler)",
        field="workload_kinds_configmap_name",
    ),
    Flag(
        "owner-memory-seconds",
        "60",
        read_positive_number,
        "how long owners of kinds that are not watched are remembered (not in KAI Scheduler)",
        field="owner_memory_s",
    ),
    Flag(
        "workload-api",
        "false",
        read_bool,
        "make groups of the gangs of Kubernetes, scheduling.k8s.io Workloads and PodGroups (not in KAI Scheduler)",
        field="workload_api",
    ),
    Flag(
        "kueue-pod-groups",
        "false",
        read_bool,
        "make one group of the pods of a Kueue pod group (not in KAI Scheduler)",
        field="kueue_pod_groups",
    ),
    Flag(
        "kueue-priority-classes",
        "false",
        read_bool,
        f"read {names.KUEUE_PRIORITY_CLASS_LABEL} as the name of a PriorityClass (not in KAI Scheduler)",
        field="kueue_priority_classes",
    ),
)


def selector_pairs(text: str) -> dict[str, str]:
    """`k=v,k=v`; pairs without `=` are ignored, blanks trimmed (workloads:GR-2)."""
    pairs = (part.partition("=") for part in text.split(","))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals and key.strip()}
