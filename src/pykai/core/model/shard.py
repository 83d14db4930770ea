"""Which part of a cluster one scheduler schedules, and its names there."""

from __future__ import annotations

from dataclasses import dataclass

from pykai.api import names
from pykai.api.meta import ObjectMeta


@dataclass(frozen=True, slots=True)
class Shard:
    """Which objects this scheduler reads, and its names (the flags of cycle:21 that affect the model)."""

    scheduler_name: str = names.SCHEDULER_NAME
    node_pool_key: str = names.NODE_POOL_LABEL
    node_pool: str = ""
    reservation_app: str = names.RESERVATION_APP
    restrict_nodes: bool = False
    gpu_worker_label: str = names.GPU_WORKER_NODE_LABEL
    cpu_worker_label: str = names.CPU_WORKER_NODE_LABEL
    mig_label: str = names.MIG_ENABLED_NODE_LABEL
    queue_label: str = names.QUEUE_LABEL
    full_hierarchy: bool = True
    stuck_after_ns: int = names.STUCK_IN_RELEASING_S * 1_000_000_000
    #: where reservation pods live; asked of live objects only (`scheduler/sanitising/sharedgpus.py`), snapshots are
    #: taken as they are
    reservation_namespace: str = names.RESERVATION_NAMESPACE

    def covers(self, meta: ObjectMeta) -> bool:
        """Whether an object belongs to this shard (cycle:SNP-3; queues:Q-60, Q-67; operations:O-33)."""
        if not self.node_pool_key:
            return True
        value = meta.labels.get(self.node_pool_key)
        return value == self.node_pool if self.node_pool else value is None

    def covers_node(self, meta: ObjectMeta) -> bool:
        """The same for a node; where work is kept to worker nodes, others do not count (cycle:SNP-4)."""
        if not self.covers(meta):
            return False
        if not self.restrict_nodes:
            return True
        return self.gpu_worker_label in meta.labels or self.cpu_worker_label in meta.labels
