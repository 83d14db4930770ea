"""`kai bench`: how fast the engine is, against a floor measured in the same run."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import log
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pykai.dev.bench import Measurement

#: Of `kinds`: one workload of each kind.
_FEWEST_PODS = 200


@click.command()
@click.argument("shape", required=False)
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--nodes", type=click.IntRange(min=1), default=500, show_default=True, help="Size of the cluster.")
@click.option(
    "--pods",
    type=click.IntRange(min=_FEWEST_PODS),
    default=10_000,
    show_default=True,
    help="How many pods `kinds` groups.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@click.option("--quick", is_flag=True, help="Measure once instead of for two seconds: to see that it works.")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Processes of `objects`.")
@click.option("--once", is_flag=True, help="Measure `objects` in this process instead.")
@click.option("--all", "everything", is_flag=True, help="Run every shape at its usual sizes and compare the sizes.")
def bench(
    shape: str | None,
    file: Path | None,
    nodes: int,
    pods: int,
    as_json: bool,
    quick: bool,
    runs: int,
    once: bool,
    everything: bool,
) -> None:
    """Measure SHAPE (fill, gang, full, reclaim, frag, racks, racks64, living or apply) on a cluster of --nodes nodes.

    The ratio is the engine's time over that of the least NumPy work for the same decisions, so it can be compared
    between machines; seconds cannot.

    The shape kinds measures the pod grouper instead: --pods pods of workloads of ten kinds, created at once on an
    embedded API server, until all of them are in their groups.

    `objects FILE` measures one cycle on the Kubernetes objects of a file, one JSON object a line, and a second one with
    nothing changed: medians of --runs fresh processes.
    """
    from pykai.dev.bench import COMPARED, SHAPES, SIZES, WrongSize

    def show(measurement: Measurement) -> None:
        if as_json:
            click.echo(json.dumps(measurement.record()))
        else:
            click.echo(_line(measurement))

    if not everything:
        if shape == "kinds":
            _measure_kinds(_FEWEST_PODS if quick else pods, as_json=as_json)
            return
        if shape == "objects":
            if file is None:
                raise click.UsageError("objects: name a file with one JSON object a line")
            _measure_objects(file, 0 if once else runs, as_json=as_json)
            return
        if shape not in SHAPES:
            raise click.UsageError(f"name a shape ({', '.join(SHAPES)}, kinds, objects FILE) or use --all")
        try:
            show(SHAPES[shape](nodes, quick=quick))
        except WrongSize as error:
            raise click.UsageError(str(error)) from error
        return
    for name, sizes in SIZES.items():
        measurements: dict[int, Measurement] = {}
        for size in sizes:
            measurements[size] = SHAPES[name](size, quick=quick)
            show(measurements[size])
        small, large = COMPARED[name]
        if not as_json:
            growth = measurements[large].microseconds_a_pod / measurements[small].microseconds_a_pod
            power = 1 + log(growth) / log(large / small)
            click.echo(
                f"{name:>7}: a pod costs {growth:.2f} times as much at {large} nodes as at {small} "
                f"(the cycle grows with n^{power:.2f})"
            )
    _measure_kinds(_FEWEST_PODS if quick else pods, as_json=as_json)


def _line(measurement: Measurement) -> str:
    """A measurement for readers; figures that a shape does not have are left out."""
    optional = (
        (", too many refused in", measurement.refusal_seconds),
        (", unchanged", measurement.second_seconds),
        (", median", measurement.median_seconds),
        (", a new pod", measurement.new_pod_seconds),
    )
    return (
        f"{measurement.shape:>7} {measurement.nodes:>6} nodes {measurement.pods:>6} pods "
        f"{measurement.seconds:>12.6f} s "
        f"{measurement.microseconds_a_pod:>8.1f} us/pod  floor {measurement.floor_seconds:.6f} s  "
        f"ratio {measurement.ratio:>7.2f}  peak {measurement.peak_mib:>6.1f} MiB  "
        f"{measurement.decisions} decisions"
        + (f", {measurement.evictions} evictions" if measurement.evictions else "")
        + "".join(f"{text} {seconds:.6f} s" for text, seconds in optional if seconds is not None)
    )


def _measure_kinds(pods: int, *, as_json: bool) -> None:
    import asyncio

    from pykai.dev.kindsbench import measure_kinds

    found = asyncio.run(measure_kinds(pods))
    if as_json:
        click.echo(json.dumps(found.record()))
        return
    click.echo(
        f"  kinds {found.pods:>6} pods of {found.workloads} workloads of {found.kinds} kinds: "
        f"{found.groups} groups right after {found.seconds:.3f} s, "
        f"at most {found.most_writes_of_a_pod} write for a pod and {found.most_writes_of_a_group} for a group, "
        f"{found.reads} reads, {found.writes_after_update} writes after an update of every owner"
    )


def _measure_objects(file: Path, runs: int, *, as_json: bool) -> None:
    """In fresh processes, or in this one for no runs."""
    from pykai.dev.cases import CaseError
    from pykai.dev.objectsbench import measure_objects, measure_once

    try:
        found = measure_objects(file, runs) if runs else measure_once(file)
    except CaseError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    ended = f", {found.ended_searches} searches ended by their budget" if found.ended_searches else ""
    click.echo(
        f"objects {found.nodes} nodes, {found.pods} pods: {found.cpu_seconds:.3f} s CPU ({found.seconds:.3f} s), "
        f"unchanged {found.second_cpu_seconds:.4f} s CPU; {found.binds} bound, {found.nominations} nominated, "
        f"{found.evictions} evicted{ended}; tables {found.tables_seconds:.2f} s, peak {found.peak_mib:g} MiB"
    )
