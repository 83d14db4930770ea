"""`kai reserve`: the program in reservation pods."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import click


@click.command()
@click.option("--print-only", is_flag=True, help="Print the device of this container and end; no cluster is needed.")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Which cluster; else $KUBECONFIG, or the own pod's."
)
def reserve(print_only: bool, kubeconfig: Path | None) -> None:
    """Write the GPU of this container into an annotation of its pod, then wait.

    The binder starts it in reservation pods; the pod is named by the environment variables POD_NAMESPACE and POD_NAME.
    Ends with SIGTERM or Ctrl-C.
    """
    from pykai.reservation.devices import own_device
    from pykai.reservation.failures import DeviceError

    try:
        if print_only:
            click.echo(own_device())
        else:
            _hold(own_device, kubeconfig)
    except DeviceError as error:
        raise click.ClickException(str(error)) from error


def _hold(find: Callable[[], str], kubeconfig: Path | None) -> None:
    from pykai.cli.processes import run_until_signal
    from pykai.kube.client import Client
    from pykai.kube.credentials import connect
    from pykai.observe.logs import set_up_logging
    from pykai.reservation.program import ReservationError, hold_device, own_pod

    set_up_logging()

    async def main(stop: asyncio.Event) -> None:
        pod = own_pod(os.environ)
        client = Client(connect(kubeconfig))
        try:
            await hold_device(client, pod, find, stop)
        finally:
            await client.close()

    try:
        run_until_signal(main)
    except ReservationError as error:
        raise click.ClickException(str(error)) from error
