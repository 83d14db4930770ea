"""Draws a `ClusterView` for the terminal: queues, nodes with their GPUs, what waits and why, and the story so far."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pykai.cli.sentences import short_name
from pykai.core.clusterview import ClusterView, GpuView, NodeView, QueueView

#: colours of leaf queues, in order of appearance
_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red", "bright_green", "bright_cyan", "bright_magenta")
_USED, _SHARED, _RELEASING, _FREE = "■", "▣", "◪", "□"


def draw(
    view: ClusterView,
    *,
    heading: str,
    story_lines: Sequence[str] = (),
    recent_events: Sequence[str] = (),
    footer: str = "",
    most_waiting: int = 8,
) -> Group:
    """The whole board."""
    colours = _colours(view.queues)
    parts: list[RenderableType] = [Text(heading, style="bold")]
    if story_lines:
        parts.append(Text(story_lines[-1], style="italic"))
    parts += [_queues(view.queues, colours), _nodes(view.nodes, colours), _waiting(view, colours, most_waiting)]
    if recent_events:
        parts.append(Text("Lately", style="bold") + Text("".join(f"\n  {each}" for each in recent_events)))
    if footer:
        parts.append(Panel(Text(footer, overflow="fold"), box=box.ROUNDED, style="dim", expand=False))
    return Group(*parts)


def summary(view: ClusterView) -> str:
    """The board in one line, for logs and pipes."""
    use = ", ".join(
        f"{queue.name} {_format_number(queue.used)}/{_format_number(queue.fair_share)}"
        for queue in view.queues
        if queue.depth
    )
    return (
        f"{view.gpus_used} of {view.gpus} GPUs used, {view.pods_placed} pods placed, {view.pods_waiting} waiting"
        f"{'; GPUs used/fair share: ' + use if use else ''}"
    )


def _colours(queues: tuple[QueueView, ...]) -> dict[str, str]:
    parents = {queue.name for queue, below in pairwise(queues) if below.depth > queue.depth}
    leaves = [queue.name for queue in queues if queue.name not in parents]
    return {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(leaves)}


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _queues(queues: tuple[QueueView, ...], colours: dict[str, str]) -> Table:
    table = _table("Queues, in GPUs")
    table.add_column("queue")
    for heading in ("quota", "fair share", "used", "wanted"):
        table.add_column(heading, justify="right")
    table.add_column("use of the fair share")
    for queue in filter(_is_shown, queues):
        quota = "-" if queue.quota is None else _format_number(queue.quota)
        colour = colours.get(queue.name, "")
        table.add_row(
            Text("  " * queue.depth + queue.title, style=colour or "bold"),
            quota,
            _format_number(queue.fair_share),
            _format_number(queue.used),
            _format_number(queue.wanted),
            _bar(queue, colour or "white"),
        )
    return table


def _is_shown(queue: QueueView) -> bool:
    """Hides queues without quota and allocation, mostly the default ones, because they only take up room."""
    return bool(queue.quota is None or queue.quota or queue.used or queue.wanted)


def _bar(queue: QueueView, colour: str, width: int = 24) -> Text:
    """Used against the fair share; what is beyond it is drawn lighter."""
    if queue.fair_share <= 0 and queue.used <= 0:
        return Text("")
    scale = max(queue.fair_share, queue.used)
    within = round(width * min(queue.used, queue.fair_share) / scale)
    beyond = round(width * max(0.0, queue.used - queue.fair_share) / scale)
    rest = max(0, width - within - beyond)
    return Text("█" * within, style=colour) + Text("▒" * beyond, style=colour) + Text("·" * rest, style="dim")


def _nodes(nodes: tuple[NodeView, ...], colours: dict[str, str]) -> Table:
    table = _table(f"Nodes  ({_USED} used  {_SHARED} shared  {_RELEASING} being released  {_FREE} free)")
    for _ in range(2):
        table.add_column("node")
        table.add_column("GPUs", no_wrap=True)
        table.add_column("used", justify="right")
    nodes = tuple(sorted(nodes, key=_reading_order))
    half = (len(nodes) + 1) // 2
    for left in range(half):
        row: list[RenderableType] = []
        for at in (left, left + half):
            row += _node(nodes[at], colours) if at < len(nodes) else ["", "", ""]
        table.add_row(*row)
    return table


def _node(node: NodeView, colours: dict[str, str]) -> list[RenderableType]:
    symbols = Text()
    for gpu in node.gpus:
        symbols += Text(_gpu_symbol(gpu), style=colours.get(gpu.queue, "white") if gpu.queue else "dim")
    return [node.name, symbols, f"{node.gpus_used}/{len(node.gpus)}"]


def _reading_order(node: NodeView) -> tuple[str, int, str]:
    """`a100-2` before `a100-10`."""
    stem, _, number = node.name.rpartition("-")
    return (stem, int(number), "") if number.isdigit() else (node.name, 0, "")


def _gpu_symbol(gpu: GpuView) -> str:
    if not gpu.queue:
        return _FREE
    if gpu.terminating:
        return _RELEASING
    return _SHARED if gpu.pods > 1 else _USED


def _waiting(view: ClusterView, colours: dict[str, str], most: int) -> Table:
    table = _table(f"Waiting: {len(view.waiting)} groups, {sum(each.waiting for each in view.waiting)} pods")
    table.add_column("group", no_wrap=True, max_width=32, overflow="ellipsis")
    table.add_column("queue")
    table.add_column("pods", justify="right")
    table.add_column("why", overflow="fold")
    for each in view.waiting[:most]:
        queue = Text(each.queue, style=colours.get(each.queue, ""))
        table.add_row(short_name(each.key), queue, str(each.waiting), _single_line(each.reason))
    if len(view.waiting) > most:
        table.add_row("...", "", "", f"and {len(view.waiting) - most} more groups")
    return table


def _single_line(reason: str) -> str:
    lines = (line.strip().rstrip(".") for line in reason.splitlines())
    return ". ".join(line for line in lines if line).replace(":. ", ": ") + "."


def _format_number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
