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
Operation = tuple[str, Any]

#: What the pods of a namespace may cost a cycle as they come in: some 50 ms of work.
ALLOWANCE = 6_000
#: Terms and names that cost nothing: every pod has some.
_FREE = 16


@dataclass(frozen=True, slots=True)
class Digest:
    """What applying a batch came to."""

    operations: int
    #: changes that could not be applied, which must not happen
    problems: tuple[Problem, ...] = ()


class Backlog:
    """Lets changes pass, and holds back what one namespace has too much of."""

    def __init__(self, allowance: int = ALLOWANCE) -> None:
        self._allowance = allowance
        #: namespace -> key of a pod -> its changes, oldest first
        self._held: dict[str, dict[str, list[Operation]]] = {}
        self._begun = False

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def clear(self) -> None:
        """Everything comes again, and passes."""
        self._held.clear()
        self._begun = False

    def admit(self, operations: list[Operation]) -> list[Operation]:
        """What is applied now: first what was held back, then the changes that came since."""
        if not self._begun:
            self._begun = bool(operations)
            return operations
        if not self._held and not any(_burden(operation) for operation in operations):
            return operations
        spent: dict[str, int] = {}
        admitted: list[Operation] = []
        newer = {key for operation in operations if operation[0] == "apply" and (key := _pod_key(operation))}
        #: key of a pod -> what was assumed about it while it was held back
        assumed: dict[str, list[Operation]] = {}
        for namespace, held in list(self._held.items()):
            for key in list(held):
                if key in newer:
                    assumed[key] = held.pop(key)[1:]
                    continue
                if not self._affords(spent, namespace, max(map(_burden, held[key]))):
                    break
                admitted += held.pop(key)
            if not held:
                del self._held[namespace]
        for operation in operations:
            key = _pod_key(operation)
            namespace = key.partition("/")[0]
            held = self._held.get(namespace, {})
            if operation[0] == "assume" and (waits := held.get(key, assumed.get(key))) is not None:
                # It follows what was assumed before, and the tables may not know the pod yet.
                waits.append(operation)
                continue
            # After a deletion the tables pass over what was assumed of the pod.
            since = [*held.pop(key, ())[1:], *assumed.pop(key, ())]
            if (burden := _burden(operation)) and not self._affords(spent, namespace, burden):
                self._held.setdefault(namespace, {})[key] = [operation, *since]
            else:
                admitted += (operation, *since)
        return admitted

    def _affords(self, spent: dict[str, int], namespace: str, burden: int) -> bool:
        """Charge a namespace; one pod always passes, however large."""
        before = spent.get(namespace, 0)
        if before and before + burden > self._allowance:
            return False
        spent[namespace] = before + burden
        return True


def _pod_key(operation: Operation) -> str:
    """The pod that a change is about, "" for other kinds."""
    what, payload = operation
    if what == "apply":
        return f"{payload.metadata.namespace}/{payload.metadata.name}" if isinstance(payload, Pod) else ""
    if what == "remove":
        return f"{payload[1]}/{payload[2]}" if payload[0] == "Pod" else ""
    return payload[0] if what == "assume" else ""


def _burden(operation: Operation) -> int:
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
    return units if units > _FREE else 0


def digest(tables: Tables, operations: Iterable[Operation]) -> Digest:
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
    return Digest(count, tuple(problems))


def _subject(what: str, payload: Any) -> str:
    if what == "apply":
        meta = payload.metadata
        return "/".join(part for part in (type(payload).__name__, meta.namespace, meta.name) if part)
    if what == "remove":
        return "/".join(part for part in payload if part)
    return f"PodGroup/{payload[0]}" if what == "confine" else f"Pod/{payload[0]}"
