"""Shows a living cluster while it runs: a board in a terminal, lines elsewhere."""

from __future__ import annotations

import asyncio
import io
import shutil
import time
from collections import deque
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live

from pykai.cli.board import draw, summary
from pykai.cli.picture import save_picture
from pykai.cli.sentences import eviction_sentences
from pykai.core.report.decisions import Plan
from pykai.kube.clock import stopped_within
from pykai.lab.cluster import LabCluster

_REDRAW_S = 0.25
_LINE_S = 5.0
_LATELY = 5
#: columns of a picture, and lines enough for everything
_WIDTH, _TALL = 120, 1000


class LiveDisplay:
    """What `kai up` prints."""

    def __init__(
        self, cluster: LabCluster, kubeconfig: Path, *, plain: bool, began_s: float, picture: Path | None = None
    ) -> None:
        self._cluster = cluster
        self._plain = plain
        self._picture = picture
        self._began_s = began_s
        self._kubectl_line = f"kubectl --kubeconfig {kubeconfig} get pods,podgroups,queues -A"
        self._endpoint_line = ""
        if cluster.endpoint is not None:
            served = "metrics, healthz, readyz, get-snapshot, get-job-order"
            self._endpoint_line = f"http://127.0.0.1:{cluster.endpoint.port}/ serves {served}"
        self._lines_shown = 0
        #: what the scheduler did lately, newest last
        self._recent_events: deque[str] = deque(maxlen=_LATELY)
        cluster.scheduler.loop.plan_listeners.append(self._on_plan)
        if cluster.autoscaler is not None:
            cluster.autoscaler.listeners.append(self._tell)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        intake = self._cluster.scheduler.intake
        for store in (intake.nodes, intake.pods, intake.groups):
            await _wait_for_either(store.synced, stop)
        click.echo(f"Ready after {time.monotonic() - self._began_s:.1f} s. Try: {self._kubectl_line}")
        if self._endpoint_line:
            click.echo(self._endpoint_line)
        if self._plain:
            await self._run_plain(stop)
        else:
            await self._run_board(stop)
        if self._picture is not None:
            console = Console(width=_WIDTH, record=True, color_system="truecolor", file=io.StringIO())
            console.print(await self._render(_TALL))
            save_picture(console, self._picture, "kai up")

    def _on_plan(self, plan: Plan) -> None:
        for sentence in eviction_sentences(plan):
            self._tell(sentence)

    def _tell(self, sentence: str) -> None:
        self._recent_events.append(f"{self._cluster.runtime.clock.now():%H:%M:%S} {sentence}")
        if self._plain:
            click.echo(f"    {sentence}")

    async def _run_plain(self, stop: asyncio.Event) -> None:
        said_s = time.monotonic()
        while not await stopped_within(stop, _REDRAW_S):
            for sentence in self._new_sentences():
                click.echo(sentence)
            if time.monotonic() - said_s >= _LINE_S:
                said_s = time.monotonic()
                click.echo(summary(await self._cluster.scheduler.loop.cluster_view()))

    async def _run_board(self, stop: asyncio.Event) -> None:
        console = Console(highlight=False)
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while not await stopped_within(stop, _REDRAW_S):
                live.update(await self._render(shutil.get_terminal_size().lines), refresh=True)
        console.print(await self._render(_TALL))

    async def _render(self, lines: int) -> Group:
        view = await self._cluster.scheduler.loop.cluster_view()
        player = self._cluster.player
        title = player.story.title or "A cluster"
        clock = self._cluster.runtime.clock
        heading = (
            f"{title}   {clock.now():%H:%M:%S}   {view.gpus_used} of {view.gpus} GPUs used, "
            f"{view.pods_placed} pods placed, {view.pods_waiting} waiting"
        )
        room = lines - 18 - _LATELY - len(view.queues) - (len(view.nodes) + 1) // 2
        return draw(
            view,
            heading=heading,
            story_lines=[each.text for each in player.lines],
            recent_events=tuple(self._recent_events),
            footer="\n".join(filter(None, (self._kubectl_line, self._endpoint_line))),
            most_waiting=max(2, room),
        )

    def _new_sentences(self) -> list[str]:
        player = self._cluster.player
        new = player.lines[self._lines_shown :]
        self._lines_shown = len(player.lines)
        return [f"[{each.at_s:.0f} s] {each.text}" for each in new]


async def _wait_for_either(first: asyncio.Event, second: asyncio.Event) -> None:
    tasks = [asyncio.create_task(first.wait()), asyncio.create_task(second.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
