"""`kai server`: the embedded API server as a process of its own, for kubectl and for services run beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from pykai.cli.processes import PORT, POSITIVE_NUMBER, kubeconfig_location, run_until_signal, write_kubeconfig


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=PORT, default=0, help="Port to listen on; 0 takes a free one.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Keep the state here, in SQLite.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Where to write the kubeconfig.")
@click.option("--speed", type=POSITIVE_NUMBER, default=1.0, show_default=True, help="Cluster seconds per second.")
@click.option("--bare", is_flag=True, help="Install nothing but our own kinds: no namespaces, queues, roles, classes.")
@click.option("--verbose", is_flag=True, help="Show more of the log.")
def server(
    host: str, port: int, data: Path | None, kubeconfig: Path | None, speed: float, bare: bool, verbose: bool
) -> None:
    """Run the embedded API server on its own.

    It listens on this machine only, unless --host says otherwise, and keeps its state in memory, unless --data names a
    folder. Runs until stopped with Ctrl-C or SIGTERM; what was answered is stored.
    """
    from pykai.kube.clock import Clock
    from pykai.lab.apiserver.server import ApiServer, is_loopback
    from pykai.observe.logs import set_up_logging
    from pykai.operator.install import installation
    from pykai.webhooks.admission import pod_mutator, pod_validator

    set_up_logging(3 if verbose else 1)

    async def main(stop: asyncio.Event) -> None:
        api = await ApiServer.open(
            clock=Clock(speed),
            data=data,
            objects=() if bare else installation(),
            mutators=(pod_mutator(),),
            validators=(pod_validator(),),
        )
        try:
            try:
                listening = await api.serve(host, port)
            except OSError as error:
                raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
            path = place()
            write_kubeconfig(api, path, "127.0.0.1" if host in ("", "0.0.0.0", "::") else host)
            if not is_loopback(host):
                click.echo(f"Warning: {host} can be reached from outside of this machine.", err=True)
            click.echo(f"Listening on https://{host}:{listening}")
            click.echo(f"kubectl --kubeconfig {path} get nodes")
            await stop.wait()
        finally:
            await api.close()

    with kubeconfig_location(kubeconfig, data) as place:
        run_until_signal(main)
