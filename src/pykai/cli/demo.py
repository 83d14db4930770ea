"""`kai demo`: one cycle of the engine on a made-up laboratory, and everything it decided as tables.

Nothing is read or written and no cluster is needed.  In a terminal the tables are coloured; into a pipe or file goes
plain text, 120 columns wide.  The same bytes come out every time: the scenario has its own clock.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from math import isinf
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pykai.api import names
from pykai.api.keys import object_key, split_key
from pykai.cli.picture import save_picture
from pykai.core.actions import ACTIONS
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cluster.tables import Tables
from pykai.core.model.axes import IntArray
from pykai.core.model.shapes import GpuKind, Shape
from pykai.core.model.vectors import IDLE, RELEASING
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.plan import build_plan
from pykai.core.report.decisions import Bind, Nominate, NoPlace, OverCapacity, Plan, QueueFigures, Unscheduled
from pykai.core.report.sentences import group_text, no_eviction_text
from pykai.core.schedule import run_actions
from pykai.lab.demo import NOW_NS, demo_objects
from pykai.scheduler.config.configuration import default_configuration

_WIDTH = 120


@click.command()
@click.option("--picture", type=click.Path(dir_okay=False), help="Also write the tables to this file, as SVG.")
def demo(picture: str | None) -> None:
    """Schedule a small cluster and show what was decided and why.

    A laboratory with 100 GPUs in three departments: some work runs, some waits. One cycle of the scheduler decides what
    starts where and who has to make room for it; the rest is told why it waits.
    """
    tables = Tables(None, demo_objects())
    cycle = open_cycle(tables.snapshot(NOW_NS), default_configuration().policy)
    before = cycle.context.snapshot.columns.copy()
    used_before = [row[2] / 100 for row in cycle.state.ledger.allocated]
    run_actions(cycle)
    plan = build_plan(cycle)
    console = _console(record=picture is not None)
    console.print(_heading(cycle.context.snapshot))
    console.print(_nodes(cycle, plan, before, _gpu_symbols(console)))
    console.print(_queues(plan, dict(zip(cycle.context.snapshot.tree.names, used_before, strict=True))))
    console.print(_placed(cycle, plan))
    console.print(_evicted(plan))
    console.print(_waiting(plan))
    console.print(_summary(plan))
    if picture is not None:
        save_picture(console, Path(picture), "kai demo")


def _console(*, record: bool) -> Console:
    if record:
        return Console(width=_WIDTH, highlight=False, record=True, color_system="truecolor")
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(width=_WIDTH, force_terminal=False, color_system=None, highlight=False)


def _gpu_symbols(console: Console) -> str:
    """How to draw a used and a free GPU; empty where there is no room for drawings."""
    if console.width < _WIDTH:
        return ""
    return "■□" if console.encoding.startswith("utf") else "#."


def _table(title: str, *columns: tuple[str, str]) -> Table:
    """A table with these headings; `r` aligns a column to the right, `w` gives it what width is left."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading, how in columns:
        table.add_column(
            heading, justify="right" if "r" in how else "left", overflow="fold", no_wrap="w" not in how, vertical="top"
        )
    return table


def _format_number(value: float) -> str:
    if isinf(value):
        return "-"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _gpus(snapshot: Snapshot, columns: IntArray, plane: int, row: int) -> int:
    return sum(int(columns[plane, axis, row]) for axis in snapshot.axes.gpu_axes)


def _allocatable_gpus(snapshot: Snapshot, row: int) -> int:
    return sum(int(snapshot.allocatable[axis, row]) for axis in snapshot.axes.gpu_axes)


def _heading(snapshot: Snapshot) -> str:
    rows = range(len(snapshot.nodes))
    total = sum(_allocatable_gpus(snapshot, row) for row in rows)
    return (
        f"A laboratory with {total} GPUs on {len(snapshot.nodes)} nodes and {len(snapshot.tree.names)} queues. "
        "One scheduling cycle:"
    )


def _nodes(cycle: Cycle, plan: Plan, before: IntArray, marks: str) -> Table:
    """GPUs of every node before and after; a shared GPU counts as used."""
    snapshot, after = cycle.context.snapshot, cycle.state.columns
    promises = Counter[str]()
    for item in plan.nominations:
        promises[item.node] += snapshot.task_records[object_key(item.namespace, item.pod)].shape.gpu.devices
    table = _table(
        "Cluster",
        ("node", ""),
        ("memory", "r"),
        ("GPUs", "r"),
        ("before", ""),
        ("used", "r"),
        ("free", "r"),
        ("after", ""),
        ("used", "r"),
        ("free", "r"),
        ("remarks", "w"),
    )
    totals = [0] * 5
    for row, facts in enumerate(snapshot.nodes.facts):
        offered = _allocatable_gpus(snapshot, row)
        idle = [_gpus(snapshot, columns, IDLE, row) for columns in (before, after)]
        remarks = []
        if facts.unschedulable_reason:
            remarks.append(facts.unschedulable_reason)
        remarks += [f"only for {taint.key}={taint.value}" for taint in facts.taints]
        promised = promises[facts.name]
        # The engine counts pipelined pods against what is being released.
        if leaving := _gpus(snapshot, after, RELEASING, row) + promised:
            remarks.append(f"{leaving} being released")
        if promised:
            remarks.append(f"{promised} promised")
        bars = [_bar(offered, free, marks) for free in idle]
        figures = [offered, offered - idle[0], idle[0], offered - idle[1], idle[1]]
        totals = [total + figure for total, figure in zip(totals, figures, strict=True)]
        cells = [str(figure) for figure in figures] if offered else ["-"] * 5
        memory = f"{facts.gpu_label_mib / 1024:.0f} GiB" if offered else "no GPU"
        table.add_row(facts.name, memory, cells[0], bars[0], *cells[1:3], bars[1], *cells[3:], ", ".join(remarks))
    table.add_section()
    sums = [str(total) for total in totals]
    table.add_row("total", "", sums[0], "", *sums[1:3], "", *sums[3:], "")
    return table


def _bar(offered: int, idle: int, marks: str) -> Text:
    return Text(marks[:1] * (offered - idle), style="green") + Text(marks[1:] * idle, style="dim")


def _queues(plan: Plan, used_before: dict[str, float]) -> Table:
    table = _table(
        "Queues, in GPUs",
        ("queue", ""),
        ("quota", "r"),
        ("limit", "r"),
        ("wanted", "r"),
        ("fair share", "r"),
        ("used", "r"),
        ("used after", "r"),
        ("not preemptible", "r"),
    )
    for figures, depth in _by_parent(plan.queues):
        table.add_row(
            "  " * depth + figures.name,
            _format_number(figures.quota[2]),
            _format_number(figures.limit[2]),
            _format_number(figures.request[2]),
            _format_number(figures.fair_share[2]),
            _format_number(used_before[figures.name]),
            _format_number(figures.allocated[2]),
            _format_number(figures.allocated_non_preemptible[2]),
            style="bold" if depth == 0 else None,
        )
    return table


def _by_parent(queues: tuple[QueueFigures, ...], parent: str = "", depth: int = 0) -> list[tuple[QueueFigures, int]]:
    ordered: list[tuple[QueueFigures, int]] = []
    for figures in queues:
        if figures.parent == parent:
            ordered += [(figures, depth), *_by_parent(queues, figures.name, depth + 1)]
    return ordered


@dataclass(slots=True)
class _PlacedJob:
    """What one group got in this cycle."""

    request: str
    bound: Counter[str] = field(default_factory=Counter)
    promised: Counter[str] = field(default_factory=Counter)
    devices: set[tuple[str, str]] = field(default_factory=set)


def _placed(cycle: Cycle, plan: Plan) -> Table:
    jobs: dict[str, _PlacedJob] = {}
    items: list[Bind | Nominate] = [*plan.binds, *_promised(plan)]
    for item in items:
        shape = cycle.context.snapshot.task_records[object_key(item.namespace, item.pod)].shape
        job = jobs.setdefault(item.group, _PlacedJob(_request_text(shape)))
        (job.bound if isinstance(item, Bind) else job.promised)[item.node] += 1
        job.devices.update((item.node, device) for device in item.gpu_groups)
    table = _table("Placed", ("job", ""), ("queue", ""), ("pods", "r"), ("each asks for", ""), ("where", "w"))
    for key, job in jobs.items():
        queue, name = split_key(key)
        where = [_where(job.bound)] if job.bound else []
        if job.promised:
            where.append(f"{_where(job.promised)} as soon as it is free")
        if job.devices:
            count = len(job.devices)
            where.append(f"on {count} shared GPU{'s' if count > 1 else ''}")
        total = job.bound.total() + job.promised.total()
        table.add_row(name, queue, str(total), job.request, ", ".join(where))
    return table


def _where(nodes: Counter[str]) -> str:
    return ", ".join(f"{node} x {count}" if count > 1 else node for node, count in sorted(nodes.items()))


def _request_text(shape: Shape) -> str:
    gpu = shape.gpu
    if gpu.kind is GpuKind.FRACTION:
        return f"{gpu.portion:g} of a GPU"
    if gpu.kind is GpuKind.MEMORY:
        return f"{gpu.memory_mib} MiB of a GPU"
    if gpu.kind is GpuKind.NONE:
        cpu_milli = dict(shape.requests).get("cpu", 0)
        return f"{cpu_milli / 1000:g} CPU cores"
    return f"{gpu.devices} GPU{'s' if gpu.devices > 1 else ''}"


def _promised(plan: Plan) -> list[Nominate]:
    """Pipelined pods of waiting gangs; pods that are moved have their own table."""
    moved = {item.uid for item in plan.evictions}
    return [item for item in plan.nominations if item.uid not in moved]


#: Action -> why it takes a pod away for a job of some queue.
_CAUSES = {
    "reclaim": "reclaim: {queue} is below its fair share",
    "preempt": "preempt: more urgent in the same queue",
    "consolidation": "consolidation: moved together, both fit",
    "stalegangeviction": "stalegangeviction: too little of its gang is left",
}


def _evicted(plan: Plan) -> Table:
    table = _table(
        "Evicted, and for which job",
        ("pod", ""),
        ("queue", ""),
        ("from", ""),
        ("moves to", ""),
        ("makes room for", ""),
        ("because", "w"),
    )
    for item in plan.evictions:
        queue, job = split_key(item.preemptor)
        target = item.moves_to or "has to wait"
        cause = _CAUSES.get(item.action, item.action).format(queue=queue)
        table.add_row(item.pod, item.namespace, item.node, target, f"{job} ({queue})" if job else "-", cause)
    return table


def _unscheduled_groups(plan: Plan) -> list[Unscheduled]:
    """Jobs with pods that wait for another cycle."""
    return [record for record in plan.unscheduled if record.pending]


def _waiting(plan: Plan) -> Table:
    table = _table("Waiting, and why", ("job", ""), ("queue", ""), ("pods", "r"), ("reason", "w"))
    for record in _unscheduled_groups(plan):
        lines = (_reason(record), _no_eviction_text(record))
        table.add_row(record.group, record.queue, str(record.pending), "\n".join(line for line in lines if line))
    return table


def _reason(record: Unscheduled) -> str:
    """The explanation in one paragraph; its own line breaks separate sentences, and the table wraps them again."""
    lines = (line.strip().rstrip(".") for line in group_text(record).splitlines())
    return ". ".join(line for line in lines if line).replace(":. ", ": ") + "."


#: Of the verdicts of several actions the first is shown: why pods are not moved comes last.
_ACTION_ORDER = sorted(ACTIONS, key=names.ACTION_CONSOLIDATION.__eq__)


def _no_eviction_text(record: Unscheduled) -> str:
    """Why nothing is evicted, "" where that would not help anyway."""
    for refusal in record.refusals:
        if isinstance(refusal, OverCapacity) or (isinstance(refusal, NoPlace) and refusal.unresolvable):
            return ""
    verdicts = sorted(record.verdicts, key=lambda verdict: _ACTION_ORDER.index(verdict.action))
    return f"No {no_eviction_text(verdicts[0])}." if verdicts else ""


def _summary(plan: Plan) -> str:
    promised, waiting = _promised(plan), _unscheduled_groups(plan)
    moved = sum(bool(item.moves_to) for item in plan.evictions)
    return (
        f"Start now: {len(plan.binds)} pods of {len({bind.group for bind in plan.binds})} jobs. "
        f"Start when their place is free: {len(promised)} of {len({item.group for item in promised})}. "
        f"Evicted: {len(plan.evictions)}, of which {moved} moved. "
        f"Wait: {sum(record.pending for record in waiting)} of {len(waiting)}."
    )
