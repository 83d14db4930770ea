"""`kai bench`: how fast the engine is, against a floor measured in the same run."""

from __future__ import annotations

import json
from math import log

import click


@click.command()
@click.argument("shape", required=False)
@click.option("--nodes", type=click.IntRange(min=1), default=500, show_default=True, help="Size of the cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@click.option("--quick", is_flag=True, help="Measure once instead of for two seconds: to see that it works.")
@click.option("--all", "everything", is_flag=True, help="Run every shape at its usual sizes and compare the sizes.")
def bench(shape: str | None, nodes: int, as_json: bool, quick: bool, everything: bool) -> None:
    """Measure SHAPE (fill, gang, full, reclaim, frag, racks, racks64, living or apply) on a cluster of --nodes nodes.

    The ratio is the engine's time over that of the least NumPy work for the same decisions, so it can be compared
    between machines; seconds cannot.
    """
    from pykai.dev.bench import COMPARED, SHAPES, SIZES, Measurement, WrongSize

    def show(measurement: Measurement) -> None:
        if as_json:
            click.echo(json.dumps(measurement.record()))
        else:
            click.echo(
                f"{measurement.shape:>7} {measurement.nodes:>6} nodes {measurement.pods:>6} pods "
                f"{measurement.seconds:>12.6f} s "
                f"{measurement.microseconds_a_pod:>8.1f} us/pod  floor {measurement.floor_seconds:.6f} s  "
                f"ratio {measurement.ratio:>7.2f}  peak {measurement.peak_mib:>6.1f} MiB  "
                f"{measurement.decisions} decisions"
                + (f", {measurement.evictions} evictions" if measurement.evictions else "")
                + (
                    f", too many refused in {measurement.refusal_seconds:.6f} s"
                    if measurement.refusal_seconds is not None
                    else ""
                )
                + (f", unchanged {measurement.second_seconds:.6f} s" if measurement.second_seconds is not None else "")
                + (f", median {measurement.median_seconds:.6f} s" if measurement.median_seconds is not None else "")
                + (
                    f", a new pod {measurement.new_pod_seconds:.6f} s"
                    if measurement.new_pod_seconds is not None
                    else ""
                )
            )

    if not everything:
        if shape not in SHAPES:
            raise click.UsageError(f"name a shape ({', '.join(SHAPES)}) or use --all")
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
