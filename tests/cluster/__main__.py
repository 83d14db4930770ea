"""`make cluster`: a real control plane with our definitions, for experiments; Ctrl-C ends it and leaves nothing behind.

    python -m tests.cluster [--folder DIR] [--no-controllers]

Builds etcd and Kubernetes' programs first, unless they were built before.  Our definitions, accounts, roles and default
queues are installed; nodes and our services are not: what is printed says how to start a service.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pykai.kube.credentials import connect
from pykai.operator.install import installation
from tests.cluster.controlplane import ControlPlane, ControlPlaneFailed
from tests.cluster.plane import install
from tools import kubernetes

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(given: Sequence[str] | None = None) -> int:
    """Run until stopped; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real control plane on loopback.")
    parser.add_argument(
        "--folder",
        type=Path,
        help="an empty folder for data, logs and kubeconfig, which stay there (default: temporary)",
    )
    parser.add_argument(
        "--no-controllers", action="store_true", help="neither kube-controller-manager nor kube-scheduler"
    )
    options = parser.parse_args(given)
    if options.folder is not None and options.folder.exists() and any(options.folder.iterdir()):
        parser.error(f"{options.folder} is not empty")
    kubernetes.build(kubernetes.CONTROL_PLANE)
    for ending in _ENDINGS:
        signal.signal(ending, _end)
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-")))
        controllers = not options.no_controllers
        plane = ControlPlane(
            folder.resolve(),
            controllers=("*",) if controllers else (),
            scheduler=controllers,
            service_accounts=controllers,
        )
        try:
            print("Starting etcd and kube-apiserver", flush=True)
            stack.enter_context(plane)
            asyncio.run(_install(plane.kubeconfig))
            if controllers:
                print("Starting kube-controller-manager and kube-scheduler", flush=True)
                plane.start_controllers()
        except ControlPlaneFailed as error:
            print(error, file=sys.stderr)
            return 1
        print(_welcome(plane), flush=True)
        signal.pause()
    return 0


def _end(*_: object) -> None:
    # A second Ctrl-C still cleans everything up.
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    sys.exit(0)


async def _install(kubeconfig: Path) -> None:
    transport = connect(kubeconfig)
    try:
        await install(transport, installation())
    finally:
        await transport.close()


def _welcome(plane: ControlPlane) -> str:
    kubectl = kubernetes.program_path("kubectl")
    ours = Path(sys.executable).with_name("kai")
    return f"""
A Kubernetes {kubernetes.VERSION} control plane runs at {plane.server} until Ctrl-C; it has no nodes yet.

  export KUBECONFIG={plane.kubeconfig}
  {kubectl} get queues,nodes
  {os.path.relpath(ours)} run scheduler

Logs of its programs: {plane.folder}/*.log"""


if __name__ == "__main__":
    sys.exit(main())
