"""How a Deployment moves from old pods to new ones: pure arithmetic.

`plan_rollout` takes the actual and desired replicas of each ReplicaSet and returns how many each should have next. With
RollingUpdate the new one grows as far as `maxSurge` allows, and the old ones shrink as far as enough pods stay
available (`maxUnavailable`), unhealthy ones first. With Recreate the old ones shrink to zero first, and the new one
starts when the last old pod is gone.

Not done: a Deployment that is scaled in the middle of a rollout spreads the difference over the new ReplicaSet only,
not over all of them in proportion.

Statements: sim:rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pykai.api.workloads import Deployment
from pykai.lab.controllers.controller import int_or_percent, replicas_of


@dataclass(frozen=True, slots=True)
class ReplicaSetNumbers:
    """A ReplicaSet of a Deployment in numbers."""

    name: str
    replicas: int
    available: int
    #: existing pods, including terminating ones
    pods: int


def surge_and_unavailable(deployment: Deployment) -> tuple[int, int]:
    """maxSurge and maxUnavailable as numbers of pods."""
    if deployment.spec.strategy.type == "Recreate":
        return 0, 0
    rolling, total = deployment.spec.strategy.rolling_update, replicas_of(deployment)
    surge = int_or_percent(rolling.max_surge if rolling is not None else None, total, up=True, default="25%")
    missing = int_or_percent(rolling.max_unavailable if rolling is not None else None, total, up=False, default="25%")
    if surge == 0 and missing == 0:
        missing = 1
    return surge, min(missing, total)


def plan_rollout(
    deployment: Deployment, new: ReplicaSetNumbers | None, old: Sequence[ReplicaSetNumbers]
) -> dict[str, int]:
    """Name of a ReplicaSet -> replicas it should have next; only those that change.  `old`: oldest first."""
    desired = replicas_of(deployment)
    changes: dict[str, int] = {}
    if deployment.spec.paused:
        newest = new if new is not None and (new.replicas or not any(g.replicas for g in old)) else None
        target = newest or next((generation for generation in reversed(old) if generation.replicas), None)
        if target is not None and sum(g.replicas for g in (*old, *([new] if new else []))) == target.replicas:
            changes[target.name] = desired
    elif deployment.spec.strategy.type == "Recreate":
        for generation in old:
            changes[generation.name] = 0
        if new is not None and not any(generation.pods for generation in old):
            changes[new.name] = desired
    elif new is not None:
        _plan_rolling_update(deployment, desired, new, old, changes)
    replicas = {generation.name: generation.replicas for generation in (*old, *([new] if new is not None else []))}
    return {name: count for name, count in changes.items() if replicas.get(name) != count}


def _plan_rolling_update(
    deployment: Deployment,
    desired: int,
    new: ReplicaSetNumbers,
    old: Sequence[ReplicaSetNumbers],
    changes: dict[str, int],
) -> None:
    surge, missing = surge_and_unavailable(deployment)
    total = new.replicas + sum(generation.replicas for generation in old)
    grown = new.replicas
    if new.replicas > desired:
        grown = desired
    elif new.replicas < desired:
        grown = new.replicas + max(0, min(desired + surge - total, desired - new.replicas))
    if grown != new.replicas:
        changes[new.name] = grown
    total += grown - new.replicas
    min_available = desired - missing
    # New pods that are not available yet cannot replace old ones.
    removable = total - min_available - (grown - min(grown, new.available))
    left = {generation.name: generation.replicas for generation in old}
    for generation in old:
        unhealthy = min(max(0, removable), max(0, generation.replicas - generation.available))
        left[generation.name] -= unhealthy
        removable -= unhealthy
    removable_available = min(new.available, grown) + sum(min(g.available, left[g.name]) for g in old) - min_available
    for generation in old:
        taken = min(max(0, removable), max(0, removable_available), left[generation.name])
        left[generation.name] -= taken
        removable_available -= taken
        removable -= taken
    changes |= left
