"""What was committed becomes decisions: binds, nominations, evictions (cycle:16)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from pykai.api import names
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.journal import BindFieldSource, CommitResult, Placement
from pykai.core.cycle.session import Session
from pykai.core.model.shapes import GpuKind, Shape
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import Bind, Evict, Nominate


class EvictionCause(NamedTuple):
    """Why pods are evicted."""

    action: str
    #: what the event of one pod says
    message: Callable[[Gang, Task], str]
    #: the group they make room for
    preemptor: str = ""
    preemptor_uid: str = ""


class _Received(NamedTuple):
    type: str
    devices: int
    portion: str


_CPU_ONLY = _Received(names.RECEIVED_REGULAR, 0, "0.00")
_MIG = _Received(names.RECEIVED_MIG, 0, "0.00")


@lru_cache(maxsize=64)
def _whole_gpus(devices: int) -> _Received:
    return _Received(names.RECEIVED_REGULAR, devices, "1.00")


def _received_resources(session: Session, shape: Shape, row: int) -> _Received:
    """What the BindRequest says a pod received (cycle:OUT-1; gpu:C-8)."""
    gpu = shape.gpu
    if gpu.kind is GpuKind.NONE:
        return _CPU_ONLY
    if gpu.kind is GpuKind.WHOLE:
        return _whole_gpus(gpu.devices)
    if gpu.kind is GpuKind.MIG:
        return _MIG
    portion = session.state.amounts_on(shape, row)[2] / gpu.devices / 100.0
    return _Received(names.RECEIVED_FRACTION, gpu.devices, f"{portion:.2f}")


def record_decisions(session: Session, outcome: CommitResult, cause: EvictionCause | None = None) -> None:
    """Turn what was committed into decisions (cycle:ALC-6)."""
    for key, gang in outcome.gangs_by_task.items():
        # What this cycle had decided for the task before no longer holds.
        session.nominations.pop(key, None)
        if session.binds.pop(key, None) is not None and gang.key in session.started and not _holds_node(gang):
            del session.started[gang.key]
            gang.started_before = False
        if (eviction := session.evictions.get(key)) is not None:
            session.evictions[key] = replace(eviction, moves_to="")
    node_names = session.snapshot.nodes.names
    has_pipelined: dict[str, bool] = {}
    for gang, task, placement in outcome.placed:
        node = node_names[placement.row]
        is_pipelined = placement.status is TaskStatus.PIPELINED
        has_pipelined[gang.key] = is_pipelined or has_pipelined.get(gang.key, False)
        if is_pipelined:
            session.nominations[task.key] = Nominate(
                task.namespace,
                task.name,
                task.uid,
                gang.key,
                node,
                placement.gpu_groups,
                session.start_refusals.get(gang.key) if cause is None else None,
            )
        else:
            session.binds[task.key] = _bind(session, gang, task, placement, node)
    for gang, _, _ in outcome.placed:
        if not has_pipelined[gang.key] and not gang.started_before:
            gang.started_before = True
            session.started[gang.key] = None
    if cause is None:
        return
    for gang, task, placement in outcome.evicted:
        session.evicted_groups.add(gang.key)
        target = session.nominations.get(task.key)
        session.evictions[task.key] = Evict(
            namespace=task.namespace,
            pod=task.name,
            uid=task.uid,
            group=gang.key,
            node=node_names[placement.row],
            action=cause.action,
            gang_size=len(outcome.evicted),
            message=cause.message(gang, task),
            preemptor=cause.preemptor,
            preemptor_uid=cause.preemptor_uid,
            moves_to=target.node if target is not None else "",
            unbound=task.status is TaskStatus.BINDING,
        )


def _holds_node(gang: Gang) -> bool:
    """Whether some task of a gang holds a node, not only the promise of one."""
    return any(leaf.active_allocated > leaf.pipelined for leaf in gang.leaves)


# The bind names the GPU groups that were chosen (gpu:F-11).
def _bind(session: Session, gang: Gang, task: Task, placement: Placement, node: str) -> Bind:
    received = _received_resources(session, task.shape, placement.row)
    annotations: dict[str, str] = {}
    for annotate in session.rules.bind_annotations:
        annotations.update(annotate(task, node))
    return Bind(
        task.namespace,
        task.name,
        task.uid,
        gang.key,
        node,
        received.type,
        received.devices,
        received.portion,
        placement.gpu_groups,
        annotations,
        **_discrete_bind_fields(task, placement),
    )


def _discrete_bind_fields(task: Task, placement: Placement) -> dict[str, Any]:
    """What the bind says of things that were granted with the place."""
    bind_fields: dict[str, Any] = {}
    for ledger, allocation in placement.grants:
        if isinstance(ledger, BindFieldSource):
            bind_fields |= ledger.bind_fields(task, placement.row, allocation)
    return bind_fields
