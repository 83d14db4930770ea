"""The Config and the SchedulingShards: what the operator says about them, and whether each shard has its scheduler.

Statements: doctor:running.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pykai.api.installation import Config, SchedulingShard
from pykai.doctor.components import components
from pykai.doctor.facts import SHARDS, Facts
from pykai.doctor.findings import Finding, Severity
from pykai.operator.applying.conditions import AVAILABLE, DEPLOYED, FULFILLED, READY, RECONCILING
from pykai.operator.desired.arguments import shard_name
from pykai.operator.desired.settings import default

_ESSENTIAL: Final = frozenset({DEPLOYED, AVAILABLE, FULFILLED})


def unscheduled(facts: Facts) -> Iterator[Finding]:
    """Shards for whose node pool no Deployment schedules."""
    found, settings = components(facts), facts.settings
    if not found or not settings.is_enabled(settings.scheduler):
        # The schedulers run outside of the cluster, or shall not run (operations:O-15).
        return
    served = {each.flag("partition-label-value") for each in found if each.is_scheduler}
    for shard in facts.all(SHARDS):
        if default(shard.spec.partition_label_value, "") not in served:
            name = shard_name(settings, shard)
            what = f"Deployment {facts.namespace}/{name} is missing, and no other one schedules this node pool."
            fix = "The operator makes it: see its log, and the conditions of the shard. Without an operator: kai run "
            fix += "scheduler."
            yield Finding(
                Severity.ERROR, "shard-without-scheduler", f"SchedulingShard {shard.metadata.name}", what, fix
            )


def conditions(facts: Facts) -> Iterator[Finding]:
    """What the operator could not do (operations:O-35 to O-38)."""
    if facts.config is not None:
        yield from _said("Config", facts.config)
    for shard in facts.all(SHARDS):
        yield from _said("SchedulingShard", shard)


def _said(kind: str, owner: Config | SchedulingShard) -> Iterator[Finding]:
    listed = (owner.status.conditions if owner.status is not None else None) or []
    false = {str(each.get("type")): each for each in listed if each.get("status") == "False"}
    # At rest it is False; Ready only sums up the others.
    false.pop(RECONCILING, None)
    if len(false) > 1:
        false.pop(READY, None)
    name = owner.metadata.name
    for type_, each in sorted(false.items()):
        message = str(each.get("message") or each.get("reason") or "no reason is given").strip().rstrip(".")
        fix = f"kubectl describe {kind.lower()} {name}, and see the log of the operator."
        severity = Severity.ERROR if type_ in _ESSENTIAL else Severity.WARNING
        yield Finding(severity, "condition-false", f"{kind} {name}", f"{type_} is False: {message}.", fix, type_)
