"""The immutable inputs of a cycle."""

from __future__ import annotations

from dataclasses import dataclass

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.hooks import Rules
from pykai.core.listening import SILENT, CycleListener
from pykai.core.policy import Policy


@dataclass(frozen=True, slots=True)
class CycleContext:
    """The cluster, the policy and the rules of one cycle."""

    snapshot: Snapshot
    policy: Policy
    rules: Rules
    #: MiB per GPU by which gpu-memory requests are converted: pessimistic and optimistic (gpu:C-6); 0 = no conversion
    smallest_gpu_mib: int
    largest_gpu_mib: int
    #: hears how the cycle goes
    listener: CycleListener = SILENT

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, rules: Rules, listener: CycleListener = SILENT) -> CycleContext:
        """The context of a snapshot."""
        smallest_gpu_mib, largest_gpu_mib = snapshot.gpu_memory_range() or (0, 0)
        return cls(snapshot, policy, rules, smallest_gpu_mib, largest_gpu_mib, listener)
