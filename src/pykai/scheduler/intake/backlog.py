"""Changes on their way into the tables, and those deferred to a later cycle.

    Intake --operations--> Backlog.admit --> apply_operations (engine's thread) --> Tables

Taking in a pod costs as much as it contains: every term of affinity and every name of a resource is read once.  A
tenant may write hundreds of either into one pod, and thousands of such pods at once.  So a namespace has an allowance
for each cycle, in units counted from the objects; the excess goes first into the next cycle, which follows at once.

Subtle: only pods without a node are held back.  A pod on a node uses resources that no other pod may get, so it is
taken in at once, and so is everything the first cycle sees.  A newer version of a pod replaces the one held back, and a
deletion removes it, so the tables never see outdated versions.

Statements: crowds:backlog, neighbours:backlog.
"""

from __future__ import annotations

from pykai.api.core import Pod
from pykai.api.keys import split_key
from pykai.scheduler.intake.operations import ApplyObject, AssumeStatus, TableOperation

#: The allowance of a namespace for new pods per cycle: some 50 ms of work.
NAMESPACE_ALLOWANCE = 6_000
#: Free terms and names: every pod has some.
_FREE_UNITS = 16


class Backlog:
    """Passes changes on, and holds back the excess of a namespace."""

    def __init__(self, allowance: int = NAMESPACE_ALLOWANCE) -> None:
        self._allowance = allowance
        #: namespace -> key of a pod -> its changes, oldest first
        self._deferred: dict[str, dict[str, list[TableOperation]]] = {}
        self._first_batch_admitted = False

    def __len__(self) -> int:
        return sum(map(len, self._deferred.values()))

    def clear(self) -> None:
        """Drop what is held back: every object will be taken in again, without limit."""
        self._deferred.clear()
        self._first_batch_admitted = False

    def admit(self, operations: list[TableOperation]) -> list[TableOperation]:
        """The changes to apply now: first those held back, then the new ones."""
        if not self._first_batch_admitted:
            self._first_batch_admitted = bool(operations)
            return operations
        if not self._deferred and not any(_intake_cost(operation) for operation in operations):
            return operations
        spent_units: dict[str, int] = {}
        admitted: list[TableOperation] = []
        newer = {key for operation in operations if isinstance(operation, ApplyObject) and (key := operation.pod_key)}
        #: key of a pod -> what was assumed about it while it was held back
        assumed: dict[str, list[TableOperation]] = {}
        for namespace, deferred in list(self._deferred.items()):
            for key in list(deferred):
                if key in newer:
                    assumed[key] = deferred.pop(key)[1:]
                    continue
                if not self._charge(spent_units, namespace, max(map(_intake_cost, deferred[key]))):
                    break
                admitted += deferred.pop(key)
            if not deferred:
                del self._deferred[namespace]
        for operation in operations:
            key = operation.pod_key
            namespace, _ = split_key(key)
            deferred = self._deferred.get(namespace, {})
            is_assumption = isinstance(operation, AssumeStatus)
            if is_assumption and (deferred_operations := deferred.get(key, assumed.get(key))) is not None:
                # It follows earlier assumptions, and the tables may not know the pod yet.
                deferred_operations.append(operation)
                continue
            # After a deletion the tables ignore assumptions about the pod.
            later_assumptions = [*deferred.pop(key, ())[1:], *assumed.pop(key, ())]
            if (cost := _intake_cost(operation)) and not self._charge(spent_units, namespace, cost):
                self._deferred.setdefault(namespace, {})[key] = [operation, *later_assumptions]
            else:
                admitted += (operation, *later_assumptions)
        return admitted

    def _charge(self, spent_units: dict[str, int], namespace: str, cost: int) -> bool:
        """Charge a namespace; one pod always passes, however large."""
        before = spent_units.get(namespace, 0)
        if before and before + cost > self._allowance:
            return False
        spent_units[namespace] = before + cost
        return True


def _intake_cost(operation: TableOperation) -> int:
    """The cost of taking in a waiting pod; 0 for changes that are never held back."""
    if not isinstance(operation, ApplyObject) or not isinstance(operation.item, Pod):
        return 0
    spec = operation.item.spec
    if spec.node_name:
        return 0
    units = 0
    if spec.affinity is not None:
        for terms in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
            if terms is not None:
                units += len(terms.required) + len(terms.preferred)
    for container in (*spec.containers, *spec.init_containers):
        units += len(container.resources.requests) + len(container.resources.limits)
    return units if units > _FREE_UNITS else 0
