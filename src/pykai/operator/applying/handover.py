"""Whether what ran before has ended, so that ours may start: a Deployment knows no pods but its own.

Another operator's Deployment of our name, such as KAI Scheduler's, is deleted with all that it owns, and ours is made
once no pod of that app is left.  Two schedulers would give the last free GPU away, and a strategy `Recreate` is about
the pods of one Deployment.

Subtle: a pod whose node is lost never ends.  It counts until a while after it should have ended; one that is not
deleted counts as long as it runs.

Statements: install:handover.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pykai.api.timestamp import parse_timestamp
from pykai.api.unstructured import JsonMapping

#: what runs pods
WORKLOADS: Final = ("Deployment", "DaemonSet")
#: cluster seconds after the end of its grace in which a pod that does not end is waited for
PATIENCE_S: Final = 300.0
_ENDED: Final = ("Succeeded", "Failed")


def pods_in_the_way(wanted: JsonMapping, pods: Iterable[JsonMapping], now_s: float) -> list[str]:
    """The names of pods that must end before a workload that is not there is made; none for other kinds."""
    if wanted["kind"] not in WORKLOADS:
        return []
    labels = wanted["spec"]["selector"]["matchLabels"].items()
    return sorted(
        each["metadata"]["name"]
        for each in pods
        if labels <= (each["metadata"].get("labels") or {}).items() and _may_run(each, now_s)
    )


def waiting_text(wanted: JsonMapping, pods: Sequence[str] = ()) -> str:
    """What a workload waits for, as a condition says it: the end of pods, or of the object that owns them."""
    before = f"these pods have ended: {', '.join(pods)}" if pods else "the old one is gone, with its pods"
    return f"{wanted['kind']} {wanted['metadata']['name']} is made once {before}"


def _may_run(pod: JsonMapping, now_s: float) -> bool:
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return False
    # The API server adds the grace to the moment of the deletion.
    ends = pod["metadata"].get("deletionTimestamp")
    return ends is None or now_s < parse_timestamp(ends) / 1e9 + PATIENCE_S
