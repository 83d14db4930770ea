"""Changes on their way into the tables, and those that have to wait for a later cycle.

    Intake --operations--> Backlog.admit --> digest (engine's thread) --> Tables

Taking a pod in costs what it says: every term of affinity and every name of a resource is read once.  A tenant may
write hundreds of either into one pod, and thousands of such pods at once.  So a namespace has an allowance for each
cycle, in units counted from the objects; what is beyond it goes first into the next cycle, which follows at once.

Subtle: only pods without a node are held back.  A pod on a node uses room that others must not be given, so it is taken
in at once, and so is everything the first cycle sees.  A newer version of a pod takes the place of the one held back,
and a deletion ends it, so the tables never see news of the past.

Statements: crowds:backlog, neighbours:backlog.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pykai.api.core import Pod
from pykai.core.cluster.tables import Tables
from pykai.core.model.problems import Problem

log = logging.getLogger(__name__)

#: One change of the tables: what to do, and with what.
TableOperation = tuple[str, Any]

#: What the pods of a namespace may cost a cycle as they come in: some 50 ms of work.
NAMESPACE_ALLOWANCE = 6_000
#: Terms and names that cost nothing: every pod has some.
_FREE_UNITS = 16


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What applying a batch came to."""

    operations: int
    #: changes that could not be applied, which must not happen
    problems: tuple[Problem, ...] = ()


class Backlog:
    """Lets changes pass, and holds back what one namespace has too much of."""

    def __init__(self, allowance: int = NAMESPACE_ALLOWANCE) -> None:
        self._allowance = allowance
        #: namespace -> key of a pod -> its changes, oldest first
        self._deferred: dict[str, dict[str, list[TableOperation]]] = {}
        self._first_batch_admitted = False

    def __len__(self) -> int:
        return sum(map(len, self._deferred.values()))

    def clear(self) -> None:
        """Everything comes again, and passes."""
        self._deferred.clear()
        self._first_batch_admitted = False

    def admit(self, operations: list[TableOperation]) -> list[TableOperation]:
        """What is applied now: first what was held back, then the changes that came since."""
        if not self._first_batch_admitted:
            self._first_batch_admitted = bool(operations)
            return operations
        if not self._deferred and not any(_intake_cost(operation) for operation in operations):
            return operations
        spent_units: dict[str, int] = {}
        admitted: list[TableOperation] = []
        newer = {key for operation in operations if operation[0] == "apply" and (key := _pod_key(operation))}
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
            key = _pod_key(operation)
            namespace = key.partition("/")[0]
            deferred = self._deferred.get(namespace, {})
            if operation[0] == "assume" and (deferred_operations := deferred.get(key, assumed.get(key))) is not None:
                # It follows what was assumed before, and the tables may not know the pod yet.
                deferred_operations.append(operation)
                continue
            # After a deletion the tables pass over what was assumed of the pod.
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


def _pod_key(operation: TableOperation) -> str:
    """The pod that a change is about, "" for other kinds."""
    what, payload = operation
    if what == "apply":
        return f"{payload.metadata.namespace}/{payload.metadata.name}" if isinstance(payload, Pod) else ""
    if what == "remove":
        return f"{payload[1]}/{payload[2]}" if payload[0] == "Pod" else ""
    return payload[0] if what == "assume" else ""


def _intake_cost(operation: TableOperation) -> int:
    """What it costs to take a waiting pod in; 0 for what is never held back."""
    what, pod = operation
    if what != "apply" or not isinstance(pod, Pod) or pod.spec.node_name:
        return 0
    spec = pod.spec
    units = 0
    if spec.affinity is not None:
        for terms in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
            if terms is not None:
                units += len(terms.required) + len(terms.preferred)
    for container in (*spec.containers, *spec.init_containers):
        units += len(container.resources.requests) + len(container.resources.limits)
    return units if units > _FREE_UNITS else 0


def apply_operations(tables: Tables, operations: Iterable[TableOperation]) -> ApplyResult:
    """Apply changes to the tables; runs in the engine's thread while nothing else touches the tables."""
    problems: list[Problem] = []
    count = 0
    for what, payload in operations:
        count += 1
        try:
            if what == "apply":
                tables.apply(payload)
            elif what == "remove":
                tables.remove(*payload)
            elif what == "confine":
                tables.restrict_to_free_resources(*payload)
            else:
                tables.assume(*payload)
        except Exception as error:
            log.exception("a change could not be taken in: %s", what)
            problems.append(Problem(_subject(what, payload), "", f"{type(error).__name__}: {error}"))
    return ApplyResult(count, tuple(problems))


def _subject(what: str, payload: Any) -> str:
    if what == "apply":
        meta = payload.metadata
        return "/".join(part for part in (type(payload).__name__, meta.namespace, meta.name) if part)
    if what == "remove":
        return "/".join(part for part in payload if part)
    return f"PodGroup/{payload[0]}" if what == "confine" else f"Pod/{payload[0]}"
