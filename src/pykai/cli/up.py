"""`kai up`: a whole GPU cluster in one process that `kubectl` can talk to, with a story that plays in it.

In a terminal the board is redrawn a few times a second; into a pipe goes a line for every step of the story and every
few seconds one that sums up.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import click


@click.command()
@click.option("--scenario", default="", metavar="FILE|none", help="The story to play; `none` for an empty cluster.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Where to write the kubeconfig.")
@click.option("--speed", default=1.0, show_default=True, help="Cluster seconds per second.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Keep the state here, in SQLite.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, help="Port to listen on; 0 takes a free one.")
@click.option("--until-done", is_flag=True, help="End when the story has been told and every job has ended.")
@click.option(
    "--default-run-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="How long pods run that say nothing of it and do not restart.",
)
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
    plain: bool,
    picture: Path | None,
    verbose: bool,
) -> None:
    """Start a simulated GPU cluster with all services in this process.

    Runs until stopped with Ctrl-C. The kubectl line to try is shown; the kubeconfig is written to a folder of its own
    unless --kubeconfig says where.
    """
    from pykai.cli.processes import default_kubeconfig, run_until_signal
    from pykai.observe.logs import set_up_logging
    from pykai.simulator.scenario import BUILT_IN, ScenarioError, Story, read_story

    set_up_logging(3 if verbose else 1)
    try:
        if scenario == "none":
            story = Story(title="An empty story", machines=read_story(BUILT_IN).machines)
        else:
            story = read_story(Path(scenario) if scenario else BUILT_IN)
    except ScenarioError as error:
        raise click.ClickException(str(error)) from error

    async def main(stop: asyncio.Event) -> None:
        from pykai.cli.show import Show
        from pykai.operator.install import installation
        from pykai.simulator.living import LivingCluster, LivingOptions
        from pykai.simulator.machines.course import Habits

        began_s = time.monotonic()
        options = LivingOptions(
            story=story,
            speed=speed,
            data=data,
            host=host,
            port=port,
            objects=installation(),
            habits=Habits(run_s=default_run_seconds),
        )
        try:
            cluster = await LivingCluster.start(options)
        except OSError as error:
            raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        path = kubeconfig or default_kubeconfig(data)
        cluster.server.kubeconfig(path)
        show = Show(cluster, path, plain=plain or not sys.stdout.isatty(), began_s=began_s, picture=picture)
        running = asyncio.create_task(cluster.run(stop))
        showing = asyncio.create_task(show.run(stop))
        told = asyncio.create_task(cluster.player.finished.wait() if until_done else stop.wait())
        await asyncio.wait((running, showing, told), return_when=asyncio.FIRST_COMPLETED)
        failed = cluster.player.failed()
        stop.set()
        await running
        await showing
        if until_done and failed:
            raise click.ClickException(f"jobs of the story failed: {', '.join(failed)}")

    run_until_signal(main)
