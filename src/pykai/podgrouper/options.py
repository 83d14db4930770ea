"""What can be set about the pod grouper (workloads:12.1), under the names of KAI's flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pykai.api import names
from pykai.kube import options
from pykai.podgrouper.metadata import GroupingSettings


@dataclass(frozen=True, slots=True)
class PodGrouperOptions:
    """Defaults are KAI's; what KAI has not says so."""

    scheduler_name: str = names.SCHEDULER_NAME
    queue_label_key: str = names.QUEUE_LABEL
    node_pool_label_key: str = names.NODE_POOL_LABEL
    search_legacy_pg: bool = True
    #: both needed: where the defaults of kinds stand
    default_priorities_configmap_name: str = ""
    default_priorities_configmap_namespace: str = ""
    #: `k=v,k=v`
    pod_label_selector: str = ""
    namespace_label_selector: str = ""
    #: more than KAI's 10: a pod waits for its group before anything else can happen to it
    max_concurrent_reconciles: int = 50
    #: ours: watch all pods that are not Failed, as a scheduler in the same process does, and so share its cache
    shared_cache: bool = False
    #: ours: move a group to the queue its workload names now, while none of its pods has a node
    follow_queue: bool = False
    #: ours: for how long owners of kinds that are not watched are remembered, in cluster seconds
    owner_memory_s: float = 60.0

    def settings(self) -> GroupingSettings:
        """What groupers look at."""
        return GroupingSettings(self.queue_label_key, self.node_pool_label_key, self.search_legacy_pg)


#: Flag -> field of the options; "" for what is accepted without effect.
FLAGS: Final[Mapping[str, str]] = {
    "scheduler-name": "scheduler_name",
    "queue-label-key": "queue_label_key",
    "nodepool-label-key": "node_pool_label_key",
    "search-legacy-pg": "search_legacy_pg",
    "knative-gang-schedule": "",
    "generic-karta-fallback": "",
    "default-priorities-configmap-name": "default_priorities_configmap_name",
    "default-priorities-configmap-namespace": "default_priorities_configmap_namespace",
    "pod-label-selector": "pod_label_selector",
    "namespace-label-selector": "namespace_label_selector",
    "qps": "",
    "burst": "",
    "max-concurrent-reconciles": "max_concurrent_reconciles",
    "leader-elect": "",
    "namespace": "",
    "metrics-bind-address": "",
    "health-probe-bind-address": "",
    "shared-cache": "shared_cache",
    "follow-queue": "follow_queue",
    "owner-memory-seconds": "owner_memory_s",
}


def read_options(given: Mapping[str, object]) -> PodGrouperOptions:
    """Options from flags."""
    return options.read_options(PodGrouperOptions(), FLAGS, given)


def selector_pairs(text: str) -> dict[str, str]:
    """`k=v,k=v`; pairs without `=` are ignored, blanks trimmed (workloads:GR-2)."""
    pairs = (part.partition("=") for part in text.split(","))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals and key.strip()}
