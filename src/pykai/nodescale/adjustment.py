"""Which scaling pods to delete and for which pods to create one (gpu:SA-4, SA-7).  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from pykai.nodescale.demand import UnschedulableShare
from pykai.nodescale.scalingpod import back_reference


@dataclass(frozen=True, slots=True)
class ScalingPod:
    """A scaling pod in the cluster."""

    name: str
    uid: str
    #: the labels that name its pod
    back_reference: tuple[str, str]
    gpus: int
    has_ended: bool


def unneeded(existing: Iterable[ScalingPod], wanted: Set[tuple[str, str]]) -> list[ScalingPod]:
    """Scaling pods that have done their work or whose pod no longer needs them (gpu:SA-4).

    `wanted` are back references of pods that are unschedulable, or about which no scheduler has said anything yet.
    """
    return [pod for pod in existing if pod.has_ended or pod.back_reference not in wanted]


def to_create(
    shares: Sequence[UnschedulableShare], existing: Sequence[ScalingPod], needed: int, most: int
) -> list[UnschedulableShare]:
    """The pods to create a scaling pod for (gpu:SA-7), so that there are at most so many.

    One for a pod that has none, while the GPUs of all scaling pods are too few for all shares, or no scaling pod has
    as many GPUs as the pod asks for.
    """
    have = {pod.back_reference for pod in existing}
    gpus = sum(pod.gpus for pod in existing)
    largest = max((pod.gpus for pod in existing), default=0)
    chosen: list[UnschedulableShare] = []
    for share in in_turn(shares):
        if len(existing) + len(chosen) >= most:
            break
        devices = share.request.devices
        if back_reference(share.namespace, share.name) not in have and (needed > gpus or devices > largest):
            chosen.append(share)
            gpus += devices
            largest = max(largest, devices)
    return chosen


def in_turn(shares: Iterable[UnschedulableShare]) -> Iterator[UnschedulableShare]:
    """The oldest share of each namespace, then the second of each, and so on: no namespace takes every turn."""
    by_namespace: dict[str, int] = {}
    ordered = []
    for share in sorted(shares, key=lambda each: (each.created, each.namespace, each.name)):
        turn = by_namespace[share.namespace] = by_namespace.get(share.namespace, 0) + 1
        ordered.append((turn, share))
    ordered.sort(key=lambda each: each[0])
    return (share for _, share in ordered)
