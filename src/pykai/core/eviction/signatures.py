"""Jobs that need not be tried because an equal or easier one has failed (cycle:14, SIG-1 to SIG-4).

Jobs of one *kind* (queue, constraints of their pods, priority, what they may lose, gpu-memory) differ only in how much
they ask for.  Of each kind the easiest that failed is remembered for the rest of the action.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import msgspec

from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.reuse import Marks
from pykai.core.cycle.session import Session
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class Signature(NamedTuple):
    """What makes a gang like others."""

    #: what its numbers mean
    marks: Marks
    #: for which state it holds
    version: int
    kind: Hashable
    #: what its open tasks ask for
    requests: list[dict[str, int]]


class Failed:
    """What failed in one action."""

    def __init__(self, session: Session, *, by_queue: bool) -> None:
        self._session = session
        self._by_queue = by_queue
        self._seen: dict[Hashable, tuple[str, list[dict[str, int]]]] = {}
        self._marks = session.known.marks

    def covers(self, gang: Gang) -> str | None:
        """The group whose failure tells that this one fails too, None when it must be tried."""
        if not self._session.policy.skip_seen:
            return None
        kind, requests = self._signature(gang)
        seen = self._seen.get(kind)
        if seen is None:
            return None
        return None if _easier(requests, seen[1]) else seen[0]

    def add(self, gang: Gang) -> None:
        """A job has failed."""
        kind, requests = self._signature(gang)
        seen = self._seen.get(kind)
        if seen is None or _no_harder(requests, seen[1]):
            self._seen[kind] = (gang.key, requests)

    def _signature(self, gang: Gang) -> tuple[Hashable, list[dict[str, int]]]:
        """The kind of a gang and what its open tasks ask for."""
        state, known = self._session.state, gang.signature
        if known is None or known.marks is not self._marks or (gang.touched and known.version != state.version):
            known = gang.signature = Signature(self._marks, state.version, *self._read(gang))
        return (gang.queue if self._by_queue else -1, known.kind), known.requests

    def _read(self, gang: Gang) -> tuple[Hashable, list[dict[str, int]]]:
        is_open = self._session.state.is_open
        by_leaf = []
        requests = []
        for leaf in gang.leaves:
            waiting = [task for task in leaf.tasks if is_open(task)]
            if waiting:
                by_leaf.append(tuple(sorted(self._constraint(task) for task in waiting)))
                requests += [self._request(task.shape) for task in waiting]
        by_leaf.sort()
        if len(requests) > 1:
            requests.sort(key=lambda request: tuple(request[name] for name in sorted(request)))
        # One that can start with fewer of its tasks is easier.
        batches = self._session.next_tasks(gang)
        now = sum(len(batch.tasks) for batch in batches)
        kind = (gang.priority, gang.preemptible, gang.semi, now, _domains(gang, batches), tuple(by_leaf))
        return kind, requests

    def _constraint(self, task: Task) -> int:
        shape, marks = task.shape, self._marks
        # A spread constraint may select the pod itself.
        kind = (shape.id, tuple(sorted(task.labels.items())) if shape.spread else ())
        found = marks.constraints.get(kind)
        if found is None:
            zones = shape.numa if marks.zones else None
            found = marks.numbers.setdefault((_constraints(shape), kind[1], zones), len(marks.numbers))
            marks.constraints[kind] = found
        return found

    def _request(self, shape: Shape) -> dict[str, int]:
        found = self._marks.requests.get(shape.id)
        if found is None:
            found = self._marks.requests[shape.id] = dict(shape.requests)
            found["gpus"] = shape.gpu_hundredths
        return found


def _domains(gang: Gang, batches: list[Batch]) -> Hashable:
    """What decides which domains of a topology a gang may use: its constraints, who is placed now, and who runs.

    Statements: topo:T-55.
    """
    if not gang.group.names_topology:
        return ""
    if any(leaf.active_allocated for leaf in gang.leaves):
        return gang.key
    return gang.tree_text, tuple(batch.leaf.name for batch in batches)


def _constraints(shape: Shape) -> Hashable:
    """Everything a pod asks for except how much (cycle:TSK-8)."""
    return (
        shape.node_selector,
        repr(shape.node_terms),
        shape.tolerations,
        shape.host_ports,
        # A pod may have hundreds of terms, and their bytes are much quicker than their text.
        _ENCODER.encode(shape.affinity),
        repr(shape.preferred_nodes),
        repr(shape.spread),
        shape.config_maps,
        shape.claims,
        shape.backed,
        shape.volumes,
        shape.namespace,
        shape.gpu.kind,
        shape.gpu.memory_mib,
        shape.gpu.devices if shape.shared else 0,
        tuple(name for name, _ in shape.requests),
    )


def _at_most(a: dict[str, int], b: dict[str, int]) -> bool:
    return all(value <= b.get(name, 0) for name, value in a.items())


def _easier(job: list[dict[str, int]], failed: list[dict[str, int]]) -> bool:
    """Fewer tasks, or some task that asks for less than its counterpart (cycle:SIG-3)."""
    if len(job) < len(failed):
        return True
    if job == failed:
        return False
    return any(_at_most(a, b) and a != b for a, b in zip(job, failed, strict=False))


def _no_harder(job: list[dict[str, int]], failed: list[dict[str, int]]) -> bool:
    return len(job) <= len(failed) and all(_at_most(a, b) for a, b in zip(job, failed, strict=False))
