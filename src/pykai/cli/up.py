"""`kai up`: a GPU cluster in one process that `kubectl` can talk to, with a story played in it.

In a terminal the board is redrawn a few times a second; into a pipe goes a line for every step of the story and every
few seconds one that sums up.

With `--until-done` the exit code says whether the story ended well: 1 when a Job failed, was refused, can never finish
because nothing can change any more (`lab/stalldetection.py`), or was not done when the command was stopped.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from pykai.cli.processes import PORT, POSITIVE_NUMBER, kubeconfig_location, run_until_signal, write_kubeconfig

if TYPE_CHECKING:
    from pykai.lab.cluster import LabCluster, LabOptions
    from pykai.lab.operators.families import OperatorFamily
    from pykai.lab.stalldetection import StallDetector
    from pykai.lab.story import Story


@click.command()
@click.option("--scenario", default="", metavar="FILE|none", help="The story to play; `none` for an empty cluster.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Where to write the kubeconfig.")
@click.option("--speed", type=POSITIVE_NUMBER, default=1.0, show_default=True, help="Cluster seconds per second.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Keep the state here, in SQLite.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=PORT, default=0, help="Port to listen on; 0 takes a free one.")
@click.option(
    "--until-done", is_flag=True, help="End when every job of the story is done; exit code 1 if one cannot be."
)
@click.option(
    "--default-run-seconds",
    type=POSITIVE_NUMBER,
    default=30.0,
    show_default=True,
    help="How long pods run that say nothing of it and do not restart.",
)
@click.option(
    "--kinds",
    default="",
    metavar="NAMES",
    help="Kinds of AI workloads, with their operators: kubeflow, ray and others, separated by commas, or all.",
)
@click.option("--autoscale", is_flag=True, help="Play the story of nodes that come when pods wait, and go again.")
@click.option("--plain", is_flag=True, help="Lines instead of a board, also in a terminal.")
@click.option(
    "--picture", type=click.Path(path_type=Path, dir_okay=False), help="At the end write the board here, as SVG."
)
@click.option("--verbose", is_flag=True, help="Show the log of the services.")
def up(
    scenario: str,
    kubeconfig: Path | None,
    speed: float,
    data: Path | None,
    host: str,
    port: int,
    until_done: bool,
    default_run_seconds: float,
    kinds: str,
    autoscale: bool,
    plain: bool,
    picture: Path | None,
    verbose: bool,
) -> None:
    """Start a simulated GPU cluster with all services in this process.

    Runs until stopped with Ctrl-C. The kubectl line to try is shown; the kubeconfig is written to a folder of its own
    unless --kubeconfig says where, and removed at the end. Metrics, health, a snapshot and the job order are served on
    this machine; their address is shown, too.
    """
    from pykai.lab.cluster import LabOptions
    from pykai.lab.machines.podbehaviour import BehaviourDefaults
    from pykai.observe.logs import set_up_logging
    from pykai.operator.install import installation

    began_s = time.monotonic()
    set_up_logging(3 if verbose else 1)
    options = LabOptions(
        story=_read_story(scenario, autoscale=autoscale),
        speed=speed,
        data=data,
        host=host,
        port=port,
        objects=installation(),
        behaviour=BehaviourDefaults(run_s=default_run_seconds),
        families=_read_kinds(kinds),
        endpoint_address="127.0.0.1:0",
    )
    show = _Display(plain or not sys.stdout.isatty(), picture, began_s)
    with kubeconfig_location(kubeconfig, data) as place:
        run_until_signal(lambda stop: _run(options, place, show, until_done=until_done, stop=stop))


class _Display(NamedTuple):
    """How the cluster is shown."""

    plain: bool
    picture: Path | None
    began_s: float


def _read_story(scenario: str, *, autoscale: bool) -> Story:
    """The story to play: of a file, a built-in one without a name, or none on its machines."""
    from pykai.lab.story import AUTOSCALE_STORY, DEFAULT_STORY, ScenarioError, Story, read_story

    if autoscale and scenario:
        text = "--autoscale plays a story of its own; give --scenario alone, with nodeGroups in its file"
        raise click.UsageError(f"{text} (docs/autoscaling.md). Nothing was started.")
    try:
        if autoscale:
            return read_story(AUTOSCALE_STORY)
        if scenario == "none":
            return Story(title="An empty story", machines=read_story(DEFAULT_STORY).machines)
        return read_story(Path(scenario) if scenario else DEFAULT_STORY)
    except ScenarioError as error:
        raise click.ClickException(str(error)) from error


def _read_kinds(names: str) -> tuple[OperatorFamily, ...]:
    """The kinds to define and to run."""
    from pykai.lab.operators.families import read_families

    try:
        return read_families(names)
    except ValueError as error:
        raise click.UsageError(f"--kinds: {error}. Nothing was started.") from error


async def _run(
    options: LabOptions, place: Callable[[], Path], display: _Display, *, until_done: bool, stop: asyncio.Event
) -> None:
    """Run the cluster and its display until a signal, or until the story ends."""
    from pykai.cli.display import LiveDisplay
    from pykai.lab.stalldetection import StallDetector

    cluster = await _start(options)
    path = place()
    try:
        write_kubeconfig(cluster.server, path)
    except click.ClickException:
        await cluster.close()
        raise
    stall_detector = (
        StallDetector(cluster.runtime, cluster.scheduler, cluster.player, nodes_may_come=cluster.autoscaler is not None)
        if until_done
        else None
    )
    show = LiveDisplay(cluster, path, plain=display.plain, began_s=display.began_s, picture=display.picture)
    running = asyncio.create_task(cluster.run(stop))
    showing = asyncio.create_task(show.run(stop))
    ends = [asyncio.create_task(event.wait()) for event in (stop, *_end_events(cluster, stall_detector))]
    await asyncio.wait((running, showing, *ends), return_when=asyncio.FIRST_COMPLETED)
    failure = _failure_text(cluster, stall_detector) if stall_detector is not None else ""
    stop.set()
    await running
    await showing
    for end in ends:
        end.cancel()
    if failure:
        raise click.ClickException(failure)


async def _start(options: LabOptions) -> LabCluster:
    from pykai.lab.cluster import LabCluster

    try:
        return await LabCluster.start(options)
    except OSError as error:
        text = f"cannot listen on {options.host}:{options.port}: {error.strerror or error}"
        raise click.ClickException(text) from error


def _end_events(cluster: LabCluster, stall_detector: StallDetector | None) -> tuple[asyncio.Event, ...]:
    """What ends the command besides a signal."""
    return () if stall_detector is None else (cluster.player.finished, stall_detector.stalled)


def _failure_text(cluster: LabCluster, stall_detector: StallDetector) -> str:
    """Why the story has not ended well; empty if it has."""
    player = cluster.player
    if player.refused:
        return f"the story is not complete: {'; '.join(player.refused)}"
    if failed := player.failed():
        return f"jobs of the story failed: {', '.join(failed)}"
    if player.finished.is_set():
        return ""
    if stall_detector.stalled.is_set():
        return f"the story will never be done: {'; '.join(stall_detector.reasons)}"
    left = player.unfinished_jobs()
    return f"stopped before the story was done; jobs that have not ended: {', '.join(left) or 'those still to come'}"
