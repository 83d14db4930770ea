"""`kai soak`: kill every process of a cluster at random moments under load, and check the recording of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import click

from pykai.cli.processes import POSITIVE_NUMBER, run_until_signal


@click.command()
@click.option(
    "--kills", type=click.IntRange(min=0), default=45, show_default=True, help="How many services are killed in all."
)
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="How often the API server is killed and started again.",
)
@click.option(
    "--minutes",
    type=POSITIVE_NUMBER,
    default=3.0,
    show_default=True,
    help="How long the load lasts; memory is judged from 15 on.",
)
@click.option("--seed", default=1, show_default=True, help="Which kills and which work; the same seed repeats them.")
@click.option("--faults/--no-faults", default=True, show_default=True, help="Requests, nodes and clocks fail, too.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Keep logs, state and recording here.")
def soak(kills: int, restarts: int, minutes: float, seed: int, faults: bool, folder: Path | None) -> None:
    """Kill processes under a load of gangs and shared GPUs, then check a recording of everything that was seen.

    Server, simulated machines and every service run as processes of their own and are killed with SIGKILL. The exit
    code is 1 when a promise was broken: a pod bound twice, a GPU over-filled, a gang half started, work lost,
    something left behind, or memory that grows.
    """
    from pykai.dev.soak.controlplanes import EmbeddedControlPlane
    from pykai.dev.soak.processes import SoakFailed
    from pykai.dev.soak.runner import Soak, SoakReport

    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        place = folder or Path(tempfile.mkdtemp(prefix="kai-soak-"))
    except OSError as error:
        raise click.ClickException(f"the folder {folder} cannot be made: {error.strerror or error}") from error
    run = Soak(
        place,
        EmbeddedControlPlane(place, click.echo),
        kills=kills,
        restarts=restarts,
        seconds=minutes * 60,
        seed=seed,
        faults=faults,
        say=click.echo,
    )
    reports: list[SoakReport] = []

    async def main(stop: asyncio.Event) -> None:
        soaking = asyncio.create_task(run.run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((soaking, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not soaking.done():
            # Cancelled, it ends its processes on the way out.
            soaking.cancel()
            await asyncio.wait((soaking,))
            raise click.Abort
        stopping.cancel()
        reports.append(soaking.result())

    keep = folder is not None
    try:
        run_until_signal(main)
        click.echo(reports[0].text())
        if reports[0].problems:
            keep = True
            raise click.ClickException(f"everything is in {place}")
    except SoakFailed as error:
        keep = True
        raise click.ClickException(f"{error}; everything is in {place}") from error
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
