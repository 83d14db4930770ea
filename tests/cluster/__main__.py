"""`make cluster`: a real control plane with simulated machines, to install PyKAI on; Ctrl-C ends it.

    python -m tests.cluster [--folder DIR] [--install nothing|definitions|everything] [--nodes STORY] [--zones POLICY]

Builds etcd, Kubernetes' programs and Helm first, unless they were built before.  Machines have the labels of
operations:E-30.  The pods of our own Deployments and hooks run as processes of this machine, those of users are played,
and webhooks are called through their Services.  What is printed says how to install the chart.

With `--no-controllers` there are no machines either: nothing would lead pods to them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from pykai.api import names
from pykai.kube.credentials import connect
from pykai.kube.resources import PROMETHEUSES, SERVICE_MONITORS
from pykai.lab.processes.service import NETWORK_SOCKET
from pykai.operator.install import installation
from tests.cluster.controlplane import ControlPlane, ControlPlaneFailed
from tests.cluster.plane import install
from tests.e2e import zones
from tests.e2e.installation import (
    GATES,
    INSTALL,
    MACHINES,
    NUMA_NODES,
    Installation,
    add_machines,
    add_zones,
    machines,
)
from tests.services.operator.installed import definition
from tools import kubernetes

NOTHING, DEFINITIONS, EVERYTHING = "nothing", "definitions", "everything"
#: those of the specs, with as many GPUs each as in upstream's CI (operations:E-30)
UPSTREAM_MACHINES = [
    replace(kind, gpus=8) if kind.gpus else kind for kind in MACHINES if kind.count > 1 or not kind.gpus
]
#: what else a zone has in upstream's CI
_ZONE = {"cpu": "1", "memory": "2Gi"}
#: kinds that are there in upstream's CI, without a program that carries them out (operations:E-31)
FOREIGN_DEFINITIONS = [definition(PROMETHEUSES), definition(SERVICE_MONITORS)]
#: pods of users run until they are deleted, or this long
_RUN_S = 7 * 24 * 3600.0
#: the longest path of a socket
_SOCKET_PATH = 100
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(given: Sequence[str] | None = None) -> int:
    """Run until stopped; the exit status."""
    options = _read(given)
    kubernetes.build([*kubernetes.CONTROL_PLANE, "helm"])
    for ending in _ENDINGS:
        signal.signal(ending, _end)
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-")))
        try:
            plane, pods = _start(stack, folder.resolve(), options)
        except ControlPlaneFailed as error:
            print(error, file=sys.stderr)
            return 1
        print(welcome(plane, pods, installed=options.install, nodes=not options.no_controllers), flush=True)
        signal.pause()
    return 0


def _read(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real control plane on loopback.")
    parser.add_argument(
        "--folder",
        type=Path,
        help="an empty folder for data, logs and kubeconfig, which stay there (default: temporary)",
    )
    parser.add_argument(
        "--install",
        choices=(NOTHING, DEFINITIONS, EVERYTHING),
        default=NOTHING,
        help="of PyKAI: nothing, definitions with accounts, roles and queues, or everything as `kai install` does",
    )
    parser.add_argument("--nodes", type=Path, metavar="STORY", help="a story's file, for its machines")
    parser.add_argument(
        "--zones",
        choices=sorted(NUMA_NODES),
        metavar="POLICY",
        help="two NUMA zones for each node with GPUs, under this policy of its kubelet",
    )
    parser.add_argument(
        "--no-controllers",
        action="store_true",
        help="neither kube-controller-manager nor kube-scheduler, and no machines",
    )
    options = parser.parse_args(given)
    if options.folder is not None and options.folder.exists() and any(options.folder.iterdir()):
        parser.error(f"{options.folder} is not empty")
    if options.no_controllers and (options.install == EVERYTHING or options.nodes or options.zones):
        parser.error("--no-controllers leaves nothing that could run pods")
    if options.nodes and options.zones:
        parser.error("--zones is for the nodes that are there without --nodes")
    return options


def _start(stack: ExitStack, folder: Path, options: argparse.Namespace) -> tuple[ControlPlane, Path]:
    """The control plane and, with controllers, machines; and where pods that run as processes have their logs."""
    controllers = not options.no_controllers
    pods = folder / "pods"
    if len(str(pods / NETWORK_SOCKET)) > _SOCKET_PATH:
        pods = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-pods-")))
    plane = ControlPlane(
        folder,
        controllers=("*",) if controllers else (),
        scheduler=controllers,
        service_accounts=controllers,
        options=GATES,
        network=pods / NETWORK_SOCKET if controllers else None,
    )
    print("Starting etcd and kube-apiserver", flush=True)
    stack.enter_context(plane)
    if options.install == DEFINITIONS:
        asyncio.run(_install(plane.kubeconfig, installation()))
    if controllers:
        print("Starting kube-controller-manager, kube-scheduler and machines", flush=True)
        plane.start_controllers()
        if not options.nodes:
            asyncio.run(add_machines(plane.kubeconfig, UPSTREAM_MACHINES))
            asyncio.run(add_zones(plane.kubeconfig, _topologies(options.zones)))
        asyncio.run(_install(plane.kubeconfig, FOREIGN_DEFINITIONS))
        pods.mkdir(exist_ok=True)
        flags = [f"--nodes={options.nodes.resolve()}"] if options.nodes else []
        stack.enter_context(machines(plane, pods, *flags, run_s=_RUN_S))
    if options.install == EVERYTHING:
        print("Installing PyKAI", flush=True)
        Installation(plane).install()
    return plane, pods


def _topologies(policy: str | None) -> list[dict[str, Any]]:
    """Zones as in upstream's CI (operations:E-30), each with half of the GPUs."""
    return [
        zones.topology(kind.name.format(number), policy, [{**_ZONE, names.NVIDIA_GPU: str(kind.gpus // 2)}] * 2)
        for kind in UPSTREAM_MACHINES
        if policy and kind.gpus and not kind.dra
        for number in range(kind.count)
    ]


def _end(*_: object) -> None:
    # A second Ctrl-C still cleans everything up.
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    sys.exit(0)


async def _install(kubeconfig: Path, objects: list[dict[str, Any]]) -> None:
    transport = connect(kubeconfig)
    try:
        await install(transport, objects)
    finally:
        await transport.close()


def welcome(plane: ControlPlane, pods: Path, *, installed: str, nodes: bool) -> str:
    """What to do next."""
    kubectl, kai = kubernetes.program_path("kubectl"), os.path.relpath(Path(sys.executable).with_name("kai"))
    if installed == EVERYTHING:
        todo = [f"{kai} doctor", f"{kubectl} get queues,pods -A"]
    elif nodes and installed == NOTHING:
        todo = [
            helm_line(),
            f"{kubectl} wait --for=condition=Ready config/kai-config --timeout=5m",
            f"{kai} doctor",
        ]
    else:
        todo = [f"{kubectl} get queues,nodes", f"{kai} run scheduler"]
    lines = [
        "",
        f"A Kubernetes {kubernetes.VERSION} control plane runs at {plane.server} until Ctrl-C.",
        "",
        f"  export KUBECONFIG={plane.kubeconfig}",
        *(f"  {each}" for each in todo),
        "",
        f"Logs of its programs: {plane.folder}/*.log",
        *([f"Logs of the pods of {names.DEFAULT_NAMESPACE}: {pods}/*/*.log"] if nodes else []),
    ]
    return "\n".join(lines)


def helm_line() -> str:
    """What installs the chart."""
    return shlex.join([str(kubernetes.program_path("helm")), *INSTALL])


if __name__ == "__main__":
    sys.exit(main())
