"""`kai soak`: kill every process of a cluster at random moments under load, and check the recording of it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click


@click.command()
@click.option("--kills", default=50, show_default=True, help="How many processes are killed in all.")
@click.option("--seed", default=1, show_default=True, help="Which kills and which work; the same seed repeats them.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Keep logs, state and recording here.")
def soak(kills: int, seed: int, folder: Path | None) -> None:
    """Kill processes under a load of gangs and shared GPUs, then check a recording of everything that was seen.

    Server, simulated machines and every service run as processes of their own and are killed with SIGKILL. The exit
    code is 1 when a promise was broken: a pod bound twice, a GPU over-filled, a gang half started, work lost, or
    something left behind.
    """
    from pykai.simulator.soak.killing import Soak, SoakFailed

    place = folder or Path(tempfile.mkdtemp(prefix="kai-soak-"))
    try:
        report = asyncio.run(Soak(place, kills=kills, seed=seed, say=click.echo).run())
    except SoakFailed as error:
        raise click.ClickException(str(error)) from error
    killed = ", ".join(f"{part} {count}" for part, count in report.kills.items())
    click.echo(f"{kills} kills ({killed}), {report.jobs} jobs, {report.lines} changes seen, {report.seconds:.0f} s")
    for problem in report.problems:
        click.echo(f"  {problem}")
    if report.problems:
        raise click.ClickException(f"{len(report.problems)} promises were broken; everything is in {place}")
    click.echo("Every promise was kept.")
