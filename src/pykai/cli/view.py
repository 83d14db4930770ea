"""What a living cluster looks like right now, gathered from the caches and the last plan: the data behind the board.

Pure: objects in, a `View` out.  GPUs of a node are drawn in the order in which pods came to it; which physical device a
pod got does not matter here, only how many are taken and by whose queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isinf

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.keys import object_key
from pykai.api.quantity import QuantityError, RawQuantity, unit_value
from pykai.api.scheduling import PodGroup
from pykai.core.actions import ACTIONS
from pykai.core.report.decisions import Plan, QueueFigures
from pykai.core.report.sentences import group_text

_ENDED = ("Succeeded", "Failed")
#: length of a dash and a uid
_UID = 37


@dataclass(frozen=True, slots=True)
class GpuCell:
    """One GPU of a node: whose queue has it ("" when free), and how many pods share it (1: nobody shares)."""

    queue: str = ""
    pods: int = 1
    #: its pods are leaving
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node and its GPUs, taken ones first."""

    name: str
    model: str
    cells: tuple[GpuCell, ...]


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue, in GPUs; `None` is unlimited."""

    name: str
    title: str
    depth: int
    quota: float | None
    fair_share: float
    used: float
    wanted: float


@dataclass(frozen=True, slots=True)
class WaitingView:
    """A group with pods that wait."""

    name: str
    queue: str
    pods: int
    reason: str


@dataclass(frozen=True, slots=True)
class BoardView:
    """Everything the board shows."""

    nodes: tuple[NodeView, ...] = ()
    queues: tuple[QueueView, ...] = ()
    waiting: tuple[WaitingView, ...] = ()
    running: int = 0
    pending: int = 0
    gpus: int = 0
    gpus_used: int = 0


@dataclass(slots=True)
class _NodeOccupancy:
    """Who sits on the GPUs of one node."""

    whole_gpus: list[GpuCell] = field(default_factory=list)
    #: GPU group -> queues of the pods that share it, and whether all are leaving
    shared_gpus: dict[str, list[tuple[str, bool]]] = field(default_factory=lambda: defaultdict(list))


def build_view(
    nodes: Iterable[Node], pods: Iterable[Pod], groups: Mapping[str, PodGroup], plan: Plan | None
) -> BoardView:
    """The cluster as it is; `groups` by namespace/name."""
    occupancy: dict[str, _NodeOccupancy] = defaultdict(_NodeOccupancy)
    running = pending = 0
    for pod in pods:
        if pod.status.phase in _ENDED or pod.metadata.namespace == names.RESERVATION_NAMESPACE:
            continue
        if not pod.spec.node_name:
            pending += pod.spec.scheduler_name == names.SCHEDULER_NAME
            continue
        running += 1
        _add_pod(occupancy[pod.spec.node_name], pod, _queue_of(pod, groups))
    node_views = tuple(_node(node, occupancy[node.metadata.name]) for node in sorted(nodes, key=_natural_order))
    cells = [cell for node in node_views for cell in node.cells]
    return BoardView(
        nodes=node_views,
        queues=tuple(_queues(plan.queues)) if plan else (),
        waiting=tuple(_waiting(plan)) if plan else (),
        running=running,
        pending=pending,
        gpus=len(cells),
        gpus_used=sum(bool(cell.queue) for cell in cells),
    )


def _natural_order(node: Node) -> tuple[str, int, str]:
    """Names in reading order: `a100-2` before `a100-10`."""
    stem, _, number = node.metadata.name.rpartition("-")
    return (stem, int(number), "") if number.isdigit() else (node.metadata.name, 0, "")


def _queue_of(pod: Pod, groups: Mapping[str, PodGroup]) -> str:
    key = object_key(pod.metadata.namespace, pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION, ""))
    group = groups.get(key)
    return group.spec.queue if group is not None else "?"


def _add_pod(occupancy: _NodeOccupancy, pod: Pod, queue: str) -> None:
    terminating = pod.metadata.deletion_timestamp is not None
    shared = [
        value
        for key, value in pod.metadata.labels.items()
        if key == names.GPU_GROUP_LABEL or key.startswith(names.GPU_GROUP_LABEL_PREFIX)
    ]
    for group in shared:
        occupancy.shared_gpus[group].append((queue, terminating))
    if not shared:
        occupancy.whole_gpus += [GpuCell(queue, terminating=terminating)] * _gpus(pod)


def _gpus(pod: Pod) -> int:
    return sum(_amount(container.resources.limits.get(names.NVIDIA_GPU, "0")) for container in pod.spec.containers)


def _amount(value: RawQuantity) -> int:
    try:
        return max(0, unit_value(value))
    except QuantityError:
        return 0


def _node(node: Node, occupancy: _NodeOccupancy) -> NodeView:
    gpu_count = _amount(node.status.allocatable.get(names.NVIDIA_GPU, "0"))
    used_cells = list(occupancy.whole_gpus)
    for tenants in occupancy.shared_gpus.values():
        used_cells.append(GpuCell(tenants[0][0], len(tenants), all(leaving for _, leaving in tenants)))
    free = [GpuCell()] * max(0, gpu_count - len(used_cells))
    return NodeView(
        node.metadata.name,
        node.metadata.labels.get(names.GPU_PRODUCT_NODE_LABEL, ""),
        tuple(used_cells[:gpu_count] + free),
    )


def _queues(figures: tuple[QueueFigures, ...], parent: str = "", depth: int = 0) -> Iterable[QueueView]:
    for each in figures:
        if each.parent == parent:
            quota = each.quota[2]
            yield QueueView(
                each.name,
                each.display_name or each.name,
                depth,
                None if isinf(quota) else quota,
                each.fair_share[2],
                each.allocated[2],
                each.request[2],
            )
            yield from _queues(figures, each.name, depth + 1)


def _waiting(plan: Plan) -> Iterable[WaitingView]:
    for record in plan.unscheduled:
        if record.pending:
            lines = (line.strip().rstrip(".") for line in group_text(record).splitlines())
            reason = ". ".join(line for line in lines if line).replace(":. ", ": ")
            yield WaitingView(record.group, record.queue, record.pending, f"{reason}.")


def eviction_sentences(plan: Plan) -> list[str]:
    """What a plan takes from whom, and for whom: a sentence for every group that others make room for."""
    evicted_groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for eviction in plan.evictions:
        evicted_groups[eviction.action, eviction.preemptor].append(short_name(eviction.group))
    return [
        texts.summary.format(
            pods=f"{len(victims)} pod{'s' if len(victims) > 1 else ''}",
            victims=" and ".join(sorted(set(victims))),
            group=short_name(preemptor),
        )
        for (action, preemptor), victims in evicted_groups.items()
        if (texts := ACTIONS[action].texts) is not None
    ]


def short_name(group: str) -> str:
    """`default/pg-train-<uid>` as people call it: `train`."""
    name = group.rpartition("/")[2]
    return name[3:-_UID] if name.startswith("pg-") and len(name) > _UID + 3 else name
