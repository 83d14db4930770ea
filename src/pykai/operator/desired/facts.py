"""What the operator must know about a cluster to say what should be in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class LeaderPod:
    """The pod that holds the lease of a shard, once it has an address and while it is not being deleted."""

    name: str
    uid: str
    address: str


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """One look at a cluster."""

    #: some node has fake GPUs (operations:O-22)
    has_fake_gpus: bool = False
    #: what the GPU operator's ClusterPolicy says (operations:O-24)
    uses_cdi: bool = False
    #: which foreign kinds the API server knows
    has_autoscalers: bool = False
    has_prometheus: bool = False
    has_service_monitors: bool = False
    #: pull secrets that the account of reservation pods has already (operations:O-23)
    reservation_pull_secrets: tuple[str, ...] = ()
    #: shard -> the pod that leads
    leaders: Mapping[str, LeaderPod] = field(default_factory=dict)
    #: the Prometheus object that is there, for its retention and since when it is not wanted (operations:O-47)
    prometheus: Mapping[str, Any] | None = None
    #: seconds since 1970
    now_s: float = 0.0
