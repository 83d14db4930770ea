"""`kai soak`: kill every process of a cluster at random moments under load, and check the recording of it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click


@click.command()
@click.option("--kills", default=45, show_default=True, help="How many services are killed in all.")
@click.option("--restarts", default=5, show_default=True, help="How often the API server is killed and started again.")
@click.option("--minutes", default=3.0, show_default=True, help="How long the load lasts; memory is judged from 15 on.")
@click.option("--seed", default=1, show_default=True, help="Which kills and which work; the same seed repeats them.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Keep logs, state and recording here.")
def soak(kills: int, restarts: int, minutes: float, seed: int, folder: Path | None) -> None:
    """Kill processes under a load of gangs and shared GPUs, then check a recording of everything that was seen.

    Server, simulated machines and every service run as processes of their own and are killed with SIGKILL. The exit
    code is 1 when a promise was broken: a pod bound twice, a GPU over-filled, a gang half started, work lost,
    something left behind, or memory that grows.
    """
    from pykai.simulator.soak.killing import Soak
    from pykai.simulator.soak.planes import EmbeddedPlane
    from pykai.simulator.soak.processes import SoakFailed

    place = folder or Path(tempfile.mkdtemp(prefix="kai-soak-"))
    run = Soak(
        place,
        EmbeddedPlane(place, click.echo),
        kills=kills,
        restarts=restarts,
        seconds=minutes * 60,
        seed=seed,
        say=click.echo,
    )
    try:
        report = asyncio.run(run.run())
    except SoakFailed as error:
        raise click.ClickException(str(error)) from error
    click.echo(report.text())
    if report.problems:
        raise click.ClickException(f"everything is in {place}")
