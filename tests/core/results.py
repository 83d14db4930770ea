"""What a cycle in a test has decided."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pykai.core.ledgers.claims.claimusers import HeldClaim
from pykai.core.ledgers.claims.ledger import ClaimLedger
from pykai.core.ledgers.numa.ledger import ZoneLedger
from pykai.core.ledgers.volumes.ledger import VolumeLedger
from pykai.core.opencycle import Cycle
from pykai.core.report.decisions import Bind, Evict, Nominate, NoPlace, Plan, Refusal, Unscheduled
from pykai.core.report.sentences import group_text


class Result:
    """A finished cycle, with queries for tests."""

    def __init__(self, cycle: Cycle, plan: Plan) -> None:
        self.cycle = cycle
        self.plan = plan
        self.binds = {f"{bind.namespace}/{bind.pod}": bind for bind in plan.binds}
        self.nominations = {f"{item.namespace}/{item.pod}": item for item in plan.nominations}
        self.evictions = {f"{item.namespace}/{item.pod}": item for item in plan.evictions}

    def _placed(self, pod: str, namespace: str) -> Bind | Nominate | None:
        key = f"{namespace}/{pod}"
        return self.binds.get(key) or self.nominations.get(key)

    def node_of(self, pod: str, namespace: str = "default") -> str:
        """Node a pod was bound or pipelined to, "" when it waits."""
        found = self._placed(pod, namespace)
        return found.node if found is not None else ""

    def bound_pods(self, group: str, namespace: str = "default") -> list[str]:
        """Names of the group's pods bound in this cycle, in the order they were bound."""
        return [bind.pod for bind in self.plan.binds if bind.group == f"{namespace}/{group}"]

    def bound(self, group: str, namespace: str = "default") -> int:
        """How many pods of the group were bound."""
        return len(self.bound_pods(group, namespace))

    def pipelined(self, group: str, namespace: str = "default") -> int:
        """How many pods of the group were pipelined."""
        return sum(item.group == f"{namespace}/{group}" for item in self.plan.nominations)

    def evicted_pods(self, group: str = "", namespace: str = "default") -> list[str]:
        """Names of pods evicted, moved ones included, in the order it was decided; of one group if it is named."""
        wanted = f"{namespace}/{group}" if group else ""
        return [item.pod for item in self.plan.evictions if not wanted or item.group == wanted]

    def evicted(self, group: str, namespace: str = "default") -> int:
        """How many pods of the group were evicted, moved ones included."""
        return len(self.evicted_pods(group, namespace))

    def eviction(self, pod: str, namespace: str = "default") -> Evict:
        """The eviction of a pod."""
        return self.evictions[f"{namespace}/{pod}"]

    def moved_to(self, pod: str, namespace: str = "default") -> str:
        """Node to which an evicted pod moves, "" when it has to wait."""
        return self.eviction(pod, namespace).moves_to

    def verdicts(self, group: str, namespace: str = "default") -> dict[str, str]:
        """Action -> why it took nothing back for the group, as the word of its rule."""
        record = self.unscheduled(group, namespace)
        return {verdict.action: verdict.rule for verdict in record.verdicts} if record is not None else {}

    def order(self) -> list[str]:
        """Names of the groups in the order their first pods were placed."""
        seen: dict[str, None] = {}
        for bind in self.plan.binds:
            seen.setdefault(bind.group.partition("/")[2])
        return list(seen)

    def nodes_used(self, group: str, namespace: str = "default") -> dict[str, int]:
        """Node -> number of the group's pods bound or pipelined there."""
        key = f"{namespace}/{group}"
        items: list[Bind | Nominate] = [*self.plan.binds, *self.plan.nominations]
        return dict(Counter(item.node for item in items if item.group == key))

    def devices_of(self, pod: str, namespace: str = "default") -> tuple[str, ...]:
        """Shared GPUs a pod was given."""
        found = self._placed(pod, namespace)
        return found.gpu_groups if found is not None else ()

    def zones_of(self, pod: str, namespace: str = "default") -> tuple[tuple[int, dict[str, int]], ...]:
        """NUMA zones a pod was given, with what it has of each in axis units."""
        moved = self.cycle.state.placements.get(f"{namespace}/{pod}")
        grants = moved.grants if moved is not None else ()
        contents: list[Any] = [grant.allocation for grant in grants if isinstance(grant.ledger, ZoneLedger)]
        return tuple((zone, dict(need)) for content in contents for zone, need in content)

    def allocated_devices(self, pod: str, namespace: str = "default") -> dict[str, list[str]]:
        """What the claims of a pod got, or were promised, by the pod's names for them: `pool/device`."""
        moved = self.cycle.state.placements.get(f"{namespace}/{pod}")
        found: dict[str, list[str]] = {}
        for grant in moved.grants if moved is not None else ():
            if isinstance(grant.ledger, ClaimLedger):
                contents: Any = grant.allocation
                ids = grant.ledger.inventory.ids
                for held in contents:
                    if isinstance(held, HeldClaim):
                        found[held.name] = [f"{ids[n].pool}/{ids[n].device}" for n in held.allocation.exclusive_devices]
        return found

    def volumes_of(self, pod: str, namespace: str = "default") -> list[str]:
        """Volumes chosen for a pod in this cycle, in the order of its claims by size."""
        moved = self.cycle.state.placements.get(f"{namespace}/{pod}")
        grants = moved.grants if moved is not None else ()
        contents: list[Any] = [grant.allocation for grant in grants if isinstance(grant.ledger, VolumeLedger)]
        return [share.volume for content in contents for share in content if share.volume]

    def unscheduled(self, group: str, namespace: str = "default") -> Unscheduled | None:
        """The record of a group with pods left waiting."""
        for item in self.plan.unscheduled:
            if item.namespace == namespace and item.group == group:
                return item
        return None

    def refusals(self, group: str, namespace: str = "default") -> tuple[Refusal, ...]:
        """Why a group waits, as records."""
        record = self.unscheduled(group, namespace)
        assert record is not None
        return record.refusals

    def no_place(self, group: str, namespace: str = "default") -> NoPlace:
        """The only refusal of a group for which no node was found."""
        record = self.unscheduled(group, namespace)
        assert record is not None, f"{group} was placed"
        (refusal,) = record.refusals
        assert isinstance(refusal, NoPlace), refusal
        return refusal

    def node_reasons(self, group: str, namespace: str = "default") -> dict[str, int]:
        """Why nodes refused the group: reason -> number of nodes."""
        return {
            reason.replace("{pod}", self.no_place(group, namespace).pod): count
            for reason, count in self.no_place(group, namespace).nodes.items()
        }

    def why(self, group: str, namespace: str = "default") -> str:
        """Why pods of the group wait, as users read it; "" when none does."""
        record = self.unscheduled(group, namespace)
        return group_text(record) if record is not None else ""
