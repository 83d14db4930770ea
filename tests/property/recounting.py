"""A snapshot in comparable form, and its sums recomputed by code that shares nothing with the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, cast

import numpy as np

from pykai.core.cluster.groupindex import HeldTasks
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.queuetree import QueueTree
from pykai.core.model.shapes import GpuKind, Shape
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import FREE, IDLE, RELEASING, USED


def canonical(snapshot: Snapshot) -> dict[str, object]:
    """Everything a snapshot says, without the numbers that depend on history: axes, rows, slots, ids of shapes."""
    names, axes = snapshot.nodes.names, snapshot.axes
    return {
        "now": snapshot.now_ns,
        "nodes": [asdict(facts) for facts in snapshot.nodes.facts],
        "node columns": {
            field.name: getattr(snapshot.nodes, field.name).tolist()
            for field in fields(snapshot.nodes)
            if isinstance(getattr(snapshot.nodes, field.name), np.ndarray)
        },
        "offered": _by_name(names, axes.names, snapshot.allocatable[None]),
        "columns": _by_name(names, axes.names, snapshot.columns),
        "devices": {names[row]: dict(sorted(found.items())) for row, found in sorted(snapshot.devices.items())},
        "ports": {names[row]: dict(sorted(found.items())) for row, found in sorted(snapshot.ports.items())},
        "foreign": {names[row]: load for row, load in sorted(snapshot.foreign_usage.items())},
        "totals": snapshot.cluster_totals(),
        "GPU memory": snapshot.gpu_memory_range(),
        "groups": {
            key: {
                field.name: getattr(entry, field.name)
                for field in fields(entry)
                if field.name not in ("version", "load")
            }
            | {"tasks": sorted(entry.tasks)}
            for key, entry in sorted(snapshot.group_entries.items())
        },
        "tasks": {key: _task(task) for key, task in sorted(snapshot.task_records.items())},
        "tasks on": {name: sorted(tasks) for name, tasks in sorted(snapshot.tasks_by_node.items())},
        "with affinity": sorted(snapshot.tasks_with_affinity),
        "without group": sorted(snapshot.tasks_without_group),
        "legacy MIG": sorted(snapshot.legacy_mig_tasks),
        "victims": sorted(snapshot.victims),
        "ungrouped": sorted(task.key for task in snapshot.ungrouped_tasks()),
        "queues": _tree(snapshot.tree),
        "priority classes": {name: repr(item) for name, item in sorted(snapshot.priority_classes.items())},
        "config maps": sorted(snapshot.config_maps),
        "namespaces": dict(sorted(snapshot.namespaces.items())),
        "disruption budgets": _allowances(snapshot),
        "problems": snapshot.problems,
    }


def _allowances(snapshot: Snapshot) -> dict[str, int]:
    """What each budget of a namespace with pods allows."""
    tasks = snapshot.task_records.values()
    found: dict[str, int] = {}
    for namespace in sorted({task.namespace for task in tasks}):
        budgets = snapshot.disruption_budgets.counted(namespace, tasks)
        found |= budgets.allowances() if budgets is not None else {}
    return found


def _by_name(nodes: list[str], axes: list[str], planes: Any) -> dict[str, list[dict[str, int]]]:
    return {
        node: [
            {axis: int(value) for axis, value in sorted(zip(axes, plane[:, row], strict=True)) if value}
            for plane in planes
        ]
        for row, node in enumerate(nodes)
    }


def _task(task: Task) -> dict[str, object]:
    said: dict[str, object] = {field.name: getattr(task, field.name) for field in fields(task)}
    return {**said, "shape": _shape(task.shape), "holds node": task.holds_node}


def _shape(shape: Shape) -> dict[str, object]:
    return {field.name: repr(getattr(shape, field.name)) for field in fields(shape) if field.name != "id"}


def _tree(tree: QueueTree) -> dict[str, object]:
    return {field.name: getattr(tree, field.name) for field in fields(tree)}


def recounted(snapshot: Snapshot) -> dict[str, object]:
    """What the sums of a snapshot should be, counted from its tasks and by resource name."""
    nodes = {facts.name: facts for facts in snapshot.nodes.facts}
    columns = {name: [dict(facts.allocatable), {}, dict(facts.allocatable), {}] for name, facts in nodes.items()}
    ports: dict[str, dict[object, int]] = {}
    foreign: dict[str, list[int]] = {}
    tenants: dict[tuple[str, str], list[tuple[TaskStatus, int]]] = {}
    reservations: dict[tuple[str, str], list[bool]] = {}
    holders = ("ALLOCATED", "PIPELINED", "BINDING", "BOUND", "RUNNING", "RELEASING", "STUCK_IN_RELEASING")
    for task in snapshot.task_records.values():
        facts = nodes.get(task.node)
        if facts is None or not (task.status.name in holders or task.status is TaskStatus.UNKNOWN):
            continue
        going = {IDLE: -1, RELEASING: 1, FREE: 0, USED: 1}
        signs = {
            TaskStatus.RELEASING: going,
            TaskStatus.PIPELINED: {IDLE: 0, RELEASING: -1, FREE: -1, USED: 1},
        }.get(task.status, {IDLE: -1, RELEASING: 0, FREE: -1, USED: 1})
        for resource, asked_for in task.shape.requests:
            if resource not in dict(facts.allocatable):
                continue
            held_for_nobody = task.is_reservation and resource.endswith("/gpu")
            amount = asked_for
            if held_for_nobody and task.gpu_groups and resource == facts.shared_resource and amount > 0:
                stays = task.status in (TaskStatus.BOUND, TaskStatus.RUNNING)
                reservations.setdefault((task.node, task.gpu_groups[0]), []).append(stays)
                amount -= 1
            for plane, sign in (going if held_for_nobody else signs).items():
                there = columns[task.node][plane]
                there[resource] = there.get(resource, 0) + sign * amount
        for port in task.shape.host_ports:
            held = ports.setdefault(task.node, {})
            held[port] = held.get(port, 0) + 1
        if not task.for_this_scheduler and not task.is_utility and task.status is not TaskStatus.UNKNOWN:
            load = foreign.setdefault(task.node, [0, 0, 0])
            asked = dict(task.shape.requests)
            for index, amount in enumerate((asked.get("cpu", 0), asked.get("memory", 0), task.shape.gpu_hundredths)):
                load[index] += amount
        if facts.shared_resource and not task.is_reservation:
            ask = task.shape.gpu
            mib = ask.memory_mib or int(ask.portion * facts.gpu_mib)
            if ask.memory_mib and ask.memory_mib <= facts.gpu_label_mib:
                mib = min(mib, facts.gpu_mib)
            for group in task.gpu_groups:
                tenants.setdefault((task.node, group), []).append((task.status, mib))
    devices: dict[str, dict[str, tuple[int, ...]]] = {}
    for node, group in sorted(tenants.keys() | reservations.keys()):
        sharing = tenants.get((node, group), [])
        reserving = reservations.get((node, group), [])
        releasing = [mib for status, mib in sharing if status is TaskStatus.RELEASING]
        pipelined = [mib for status, mib in sharing if status is TaskStatus.PIPELINED]
        total = sum(mib for _, mib in sharing)
        live = len(sharing) - len(releasing) - len(pipelined)
        devices.setdefault(node, {})[group] = (
            live,
            len(releasing),
            len(pipelined),
            total,
            total - sum(pipelined),
            sum(releasing) - sum(pipelined),
            reserving.count(True),
            reserving.count(False),
        )
        resource = nodes[node].shared_resource
        taken = -max(bool(live or releasing), len(reserving))
        coming = -taken - bool(live or pipelined)
        for plane, change in ((IDLE, taken), (RELEASING, coming), (FREE, taken + coming)):
            columns[node][plane][resource] = columns[node][plane].get(resource, 0) + change
    return {
        "columns": {
            node: [{resource: value for resource, value in sorted(plane.items()) if value} for plane in planes]
            for node, planes in columns.items()
        },
        "devices": {node: dict(sorted(found.items())) for node, found in devices.items()},
        "ports": {node: dict(sorted(found.items(), key=repr)) for node, found in sorted(ports.items())},
        "foreign": {node: tuple(load) for node, load in sorted(foreign.items()) if any(load)},
        "groups": _group_sums(snapshot),
    }


def _with_held_task(snapshot: Snapshot, task: Task, held: HeldTasks) -> HeldTasks:
    group = snapshot.group_entries[task.group_key].group
    if group is not None and task.subgroup not in group.leaf_index:
        return held
    asked, gpu = dict(task.shape.requests), task.shape.gpu
    mib = gpu.devices * gpu.memory_mib if gpu.kind is GpuKind.MEMORY else 0
    cpu, memory, gpus = held.requested
    requested = (cpu + asked.get("cpu", 0), memory + asked.get("memory", 0), gpus + task.shape.gpu_hundredths)
    return HeldTasks(held.tasks + 1, requested, held.requested_mib + mib)


def _group_sums(snapshot: Snapshot) -> dict[str, dict[str, object]]:
    nodes = {facts.name: facts for facts in snapshot.nodes.facts}
    sums: dict[str, dict[str, Any]] = {}
    for task in snapshot.task_records.values():
        if not task.group_key:
            continue
        mine = sums.setdefault(
            task.group_key,
            {"tasks": [], "pending": 0, "gated": 0, "requested_mib": 0, "held": HeldTasks(0, (0, 0, 0), 0)}
            | {name: [0, 0, 0] for name in ("allocated", "requested", "terminating", "slow_terminating")},
        )
        mine["tasks"] = sorted([*mine["tasks"], task.key])
        mine["pending"] += task.for_this_scheduler and task.status is TaskStatus.PENDING
        mine["gated"] += task.for_this_scheduler and task.status is TaskStatus.GATED
        gpu, hundredths = task.shape.gpu, task.shape.gpu_hundredths
        into: list[list[int]]
        if task.status is TaskStatus.PENDING:
            into = [mine["requested"]]
            group = snapshot.group_entries[task.group_key].group
            if group is not None and task.subgroup not in group.leaf_index:
                continue
            mine["requested_mib"] += gpu.devices * gpu.memory_mib if gpu.kind is GpuKind.MEMORY else 0
        elif task.status in (TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING) or _leaves(
            task
        ):
            into = [mine["terminating"]] if _leaves(task) else [mine["allocated"]]
            if _leaves(task) and _lasts(task, snapshot.now_ns):
                into.append(mine["slow_terminating"])
            facts = nodes.get(task.node)
            if gpu.memory_mib and facts is not None:
                mib = min(gpu.memory_mib, facts.gpu_mib) if gpu.memory_mib <= facts.gpu_label_mib else gpu.memory_mib
                hundredths = gpu.devices * -(-100 * mib // facts.gpu_mib)
        else:
            if task.held_by_queue:
                mine["held"] = _with_held_task(snapshot, task, mine["held"])
            continue
        asked = dict(task.shape.requests)
        for index, amount in enumerate((asked.get("cpu", 0), asked.get("memory", 0), hundredths)):
            for sum_ in into:
                sum_[index] += amount
    return dict(sorted(sums.items()))


def _leaves(task: Task) -> bool:
    return bool(task.node) and task.status in (TaskStatus.RELEASING, TaskStatus.STUCK_IN_RELEASING)


def _lasts(task: Task, now_ns: int) -> bool:
    """Whether a task that leaves will not have gone soon: 2 minutes after its time, or given more than 2 minutes."""
    late = task.deletion_ns is not None and now_ns > task.deletion_ns + 120_000_000_000
    long = task.deletion_grace_ns > 120_000_000_000 and task.evicted_for is None
    return late or long or task.status is TaskStatus.STUCK_IN_RELEASING


def kept(said: dict[str, object]) -> dict[str, object]:
    """The same sums as a snapshot says them."""
    groups = cast("Mapping[str, dict[str, Any]]", said["groups"])
    ports = cast("Mapping[str, dict[Any, int]]", said["ports"])
    return {
        "columns": said["columns"],
        "devices": said["devices"],
        "ports": {node: dict(sorted(found.items(), key=repr)) for node, found in ports.items()},
        "foreign": said["foreign"],
        "groups": {
            key: {
                name: list(value) if isinstance(value, tuple) and not isinstance(value, HeldTasks) else value
                for name, value in entry.items()
                if name not in ("group", "in_other_shard", "denial")
            }
            for key, entry in groups.items()
            if entry["tasks"]
        },
    }
