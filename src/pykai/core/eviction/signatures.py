"""Skips jobs because an equal or easier one has failed (cycle:14, SIG-1 to SIG-4).

Jobs of one *kind* (queue, constraints of their pods, priority, what they may lose, gpu-memory) differ only in the
amounts they request.  Of each kind the easiest that failed is remembered for the rest of the action.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import msgspec

from pykai.core import caching
from pykai.core.cycle.cyclegangs import CycleGangs
from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.reuse import SignatureNumbers
from pykai.core.cycle.state import State
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class GangSignature(NamedTuple):
    """What gangs are compared by."""

    #: the numbering of its numbers
    numbers: SignatureNumbers
    #: the version of the state it is valid for
    version: int
    kind: Hashable
    #: the requests of its unplaced tasks
    requests: list[dict[str, int]]


class FailedGangs:
    """The failures of one action."""

    def __init__(self, state: State, gangs: CycleGangs, *, by_queue: bool, reuse_failures: bool = True) -> None:
        self._state = state
        self._gangs = gangs
        self._by_queue = by_queue
        self._reuse_failures = reuse_failures
        self._seen: dict[Hashable, tuple[str, list[dict[str, int]]]] = {}
        self._numbers = gangs.reuse.signature_numbers

    def failed_alike(self, gang: Gang) -> str | None:
        """The group whose failure implies that this one fails too, None if it must be tried."""
        if not self._reuse_failures:
            return None
        kind, requests = self._signature(gang)
        easiest_failed = self._seen.get(kind)
        if easiest_failed is None:
            return None
        return None if _is_easier(requests, easiest_failed[1]) else easiest_failed[0]

    def add(self, gang: Gang) -> None:
        """Add a failed job."""
        kind, requests = self._signature(gang)
        easiest_failed = self._seen.get(kind)
        if easiest_failed is None or _is_no_harder(requests, easiest_failed[1]):
            self._seen[kind] = (gang.key, requests)

    def _signature(self, gang: Gang) -> tuple[Hashable, list[dict[str, int]]]:
        """The kind of a gang and the requests of its unplaced tasks."""
        state, signature = self._state, gang.signature
        if (
            signature is None
            or signature.numbers is not self._numbers
            or (gang.touched and signature.version != state.version)
        ):
            signature = GangSignature(self._numbers, state.version, *self._compute_signature(gang))
            if caching.enabled:
                gang.signature = signature
        return (gang.queue if self._by_queue else -1, signature.kind), signature.requests

    def _compute_signature(self, gang: Gang) -> tuple[Hashable, list[dict[str, int]]]:
        is_unplaced = self._state.is_unplaced
        by_leaf = []
        requests = []
        for leaf in gang.leaves:
            waiting = [task for task in leaf.tasks if is_unplaced(task)]
            if waiting:
                by_leaf.append(tuple(sorted(self._constraint_number(task) for task in waiting)))
                requests += [self._request_of_shape(task.shape) for task in waiting]
        by_leaf.sort()
        if len(requests) > 1:
            requests.sort(key=lambda request: tuple(request[name] for name in sorted(request)))
        # A gang that can start with fewer of its tasks is easier.
        batches = self._gangs.next_tasks(gang)
        next_task_count = sum(len(batch.tasks) for batch in batches)
        kind = (
            gang.priority,
            gang.preemptible,
            gang.semi_preemptible,
            next_task_count,
            _domain_signature(gang, batches),
            tuple(by_leaf),
        )
        return kind, requests

    def _constraint_number(self, task: Task) -> int:
        shape, numbers = task.shape, self._numbers
        # A spread constraint may select the pod itself.
        kind = (shape.id, tuple(sorted(task.labels.items())) if shape.spread else ())
        number = numbers.constraint_numbers.get(kind)
        if number is None:
            zones = shape.numa if numbers.count_zones else None
            number = numbers.numbers_by_constraint.setdefault(
                (_constraints(shape), kind[1], zones), len(numbers.numbers_by_constraint)
            )
            numbers.constraint_numbers[kind] = number
        return number

    def _request_of_shape(self, shape: Shape) -> dict[str, int]:
        request = self._numbers.requests_by_shape.get(shape.id)
        if request is None:
            request = self._numbers.requests_by_shape.store(shape.id, dict(shape.requests))
            request["gpus"] = shape.gpu_hundredths
        return request


def _domain_signature(gang: Gang, batches: list[Batch]) -> Hashable:
    """What decides which domains of a topology a gang may use: its constraints, the tasks placed now, and those that
    run.

    Statements: topo:T-55.
    """
    if not gang.group.names_topology:
        return ""
    if any(leaf.active_allocated for leaf in gang.leaves):
        return gang.key
    return gang.tree_text, tuple(batch.leaf.name for batch in batches)


def _constraints(shape: Shape) -> Hashable:
    """Everything a pod requests except the amounts (cycle:TSK-8)."""
    return (
        shape.node_selector,
        repr(shape.node_terms),
        shape.tolerations,
        shape.host_ports,
        # A pod may have hundreds of terms, and their bytes are much faster than their text.
        _ENCODER.encode(shape.affinity),
        repr(shape.preferred_nodes),
        repr(shape.spread),
        shape.config_maps,
        shape.claims,
        shape.dra_backed,
        shape.volumes,
        shape.namespace,
        shape.gpu.kind,
        shape.gpu.memory_mib,
        shape.gpu.devices if shape.shared else 0,
        tuple(name for name, _ in shape.requests),
    )


def _requests_at_most(a: dict[str, int], b: dict[str, int]) -> bool:
    return all(value <= b.get(name, 0) for name, value in a.items())


def _is_easier(job: list[dict[str, int]], failed: list[dict[str, int]]) -> bool:
    """Some task requests less than its counterpart (cycle:SIG-3); gangs of one kind have equally many."""
    return job != failed and any(_requests_at_most(a, b) and a != b for a, b in zip(job, failed, strict=True))


def _is_no_harder(job: list[dict[str, int]], failed: list[dict[str, int]]) -> bool:
    return all(_requests_at_most(a, b) for a, b in zip(job, failed, strict=True))
