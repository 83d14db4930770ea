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

from pykai.api.core import Node, Pod
from pykai.api.scheduling import PodGroup
from pykai.cli.board import draw, summary
from pykai.cli.picture import save_picture
from pykai.cli.view import View, happened, look
from pykai.core.report.decisions import Plan
from pykai.kube import resources
from pykai.lab.cluster import LivingCluster

_REDRAW_S = 0.25
_LINE_S = 5.0
_LATELY = 5
#: columns of a picture, and lines enough for everything
_WIDTH, _TALL = 120, 1000


class Show:
    """What `kai up` prints."""

    def __init__(
        self, cluster: LivingCluster, kubeconfig: Path, *, plain: bool, began_s: float, picture: Path | None = None
    ) -> None:
        self._cluster = cluster
        self._plain = plain
        self._picture = picture
        self._began_s = began_s
        caches = cluster.runtime.caches
        self._nodes = caches.store(resources.NODES, Node)
        self._pods = caches.store(resources.PODS, Pod, field_selector="status.phase!=Failed")
        self._groups = caches.store(resources.POD_GROUPS, PodGroup)
        self._try = f"kubectl --kubeconfig {kubeconfig} get pods,podgroups,queues -A"
        self._pages = ""
        if cluster.pages is not None:
            served = "metrics, healthz, readyz, get-snapshot, get-job-order"
            self._pages = f"http://127.0.0.1:{cluster.pages.port}/ serves {served}"
        self._told = 0
        #: what the scheduler did lately, newest last
        self._lately: deque[str] = deque(maxlen=_LATELY)
        cluster.scheduler.loop.plan_listeners.append(self._planned)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        for store in (self._nodes, self._pods, self._groups):
            await _either(store.synced, stop)
        click.echo(f"Ready after {time.monotonic() - self._began_s:.1f} s. Try: {self._try}")
        if self._pages:
            click.echo(self._pages)
        if self._plain:
            await self._lines(stop)
        else:
            await self._board(stop)
        if self._picture is not None:
            console = Console(width=_WIDTH, record=True, color_system="truecolor", file=io.StringIO())
            console.print(self._drawn(_TALL))
            save_picture(console, self._picture, "kai up")

    def _planned(self, plan: Plan) -> None:
        at = f"{self._cluster.runtime.clock.now():%H:%M:%S}"
        for sentence in happened(plan):
            self._lately.append(f"{at} {sentence}")
            if self._plain:
                click.echo(f"    {sentence}")

    async def _lines(self, stop: asyncio.Event) -> None:
        said_s = time.monotonic()
        while not await _paused(stop, _REDRAW_S):
            for sentence in self._new_sentences():
                click.echo(sentence)
            if time.monotonic() - said_s >= _LINE_S:
                said_s = time.monotonic()
                click.echo(summary(self._look()))

    async def _board(self, stop: asyncio.Event) -> None:
        console = Console(highlight=False)
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while not await _paused(stop, _REDRAW_S):
                live.update(self._drawn(shutil.get_terminal_size().lines), refresh=True)
        console.print(self._drawn(_TALL))

    def _drawn(self, lines: int) -> Group:
        view = self._look()
        player = self._cluster.player
        title = player.story.title or "A cluster"
        clock = self._cluster.runtime.clock
        heading = (
            f"{title}   {clock.now():%H:%M:%S}   {view.gpus_used} of {view.gpus} GPUs used, "
            f"{view.running} pods placed, {view.pending} waiting"
        )
        room = lines - 18 - _LATELY - len(view.queues) - (len(view.nodes) + 1) // 2
        return draw(
            view,
            heading=heading,
            told=[each.text for each in player.told],
            lately=tuple(self._lately),
            footer="\n".join(filter(None, (self._try, self._pages))),
            most_waiting=max(2, room),
        )

    def _look(self) -> View:
        groups = {f"{group.metadata.namespace}/{group.metadata.name}": group for group in self._groups.values()}
        return look(self._nodes.values(), self._pods.values(), groups, self._cluster.scheduler.loop.plan)

    def _new_sentences(self) -> list[str]:
        player = self._cluster.player
        new = player.told[self._told :]
        self._told = len(player.told)
        return [f"[{each.at_s:.0f} s] {each.text}" for each in new]


async def _paused(stop: asyncio.Event, seconds: float) -> bool:
    """Wait that long; whether it is time to stop."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    tasks = [asyncio.create_task(first.wait()), asyncio.create_task(second.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
