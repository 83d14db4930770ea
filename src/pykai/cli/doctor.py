"""`kai doctor`: checks an installation and says what to fix; reads only."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Which cluster; else $KUBECONFIG, or the own pod's."
)
@click.option("--context", default="", help="Which context of the kubeconfig.")
@click.option("--namespace", "-n", default="", help="Where the services are; else what kai-config says.")
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Text for people, or JSON for programs.",
)
def doctor(kubeconfig: Path | None, context: str, namespace: str, output: str) -> None:
    """Check an installation, and say what to fix.

    Exit code 0: works; 1: there are warnings; 2: there are errors, or the cluster cannot be reached. Nothing is
    written to the cluster.
    """
    from pykai.doctor.facts import Facts
    from pykai.doctor.findings import Severity
    from pykai.doctor.gathering import IN_FLIGHT, gather
    from pykai.doctor.report import as_json, as_text
    from pykai.doctor.table import examine, sources, worst
    from pykai.kube.client import Client
    from pykai.kube.credentials import connect
    from pykai.kube.errors import KubeError
    from pykai.kube.limits import Limits
    from pykai.kube.readonly import ReadOnlyTransport

    async def look() -> Facts:
        client = Client(ReadOnlyTransport(connect(kubeconfig, context=context)), limits=Limits(in_flight=IN_FLIGHT))
        try:
            return await gather(client, sources(), namespace=namespace)
        finally:
            await client.close()

    try:
        facts = asyncio.run(look())
    except KubeError as error:
        click.echo(f"Error: the cluster cannot be reached: {error}", err=True)
        raise SystemExit(int(Severity.ERROR)) from None
    found = examine(facts)
    click.echo(as_json(facts, found).decode() if output == "json" else as_text(facts, found))
    raise SystemExit(int(worst(found)))
