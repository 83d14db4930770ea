"""The installation that the specs share: a lab in a thread, or PyKAI installed on a real control plane.

Nodes are those of operations:E-30, with fewer GPUs each: eight machines with four GPUs and one without. Two more have
eight GPUs that a driver publishes in ResourceSlices, and one has a single such GPU. Four have two NUMA zones, and a
taint that only pods of these specs tolerate.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.credentials import connect
from pykai.kube.errors import AlreadyExists
from pykai.kube.resources import (
    CONFIGS,
    CUSTOM_RESOURCE_DEFINITIONS,
    KARTAS,
    NODE_RESOURCE_TOPOLOGIES,
    SCHEDULING_SHARDS,
)
from pykai.lab.cluster import LabCluster, LabOptions
from pykai.lab.machines import create_nodes
from pykai.lab.machines.nodes import MachineKind, machine_objects
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from pykai.lab.operators.families import ALL, definitions, read_families
from pykai.lab.processes.service import NETWORK_SOCKET
from pykai.lab.timestamps import to_timestamp
from pykai.operator.install import installation
from tests.cluster.controlplane import API_SERVER, CONTROLLERS, SCHEDULER, ControlPlane, die_with_parent
from tests.e2e import zones
from tests.e2e.endtoend import DEVICE_PLUGIN_LABEL, DRA_LABEL, NUMA_LABEL, is_in_force
from tests.e2e.labshard import LabShard
from tests.lab.operators.test_families import create_when_served
from tests.services.podgrouper.grouped import definition
from tools import kubernetes

QUICK = BehaviourDefaults(start_s=0.01, run_s=3600.0, stop_s=0.01, init_s=0.01, reservation_start_s=0.01)
_LABELS = {
    "run.ai/simulated-gpu-node-pool": "default",
    DEVICE_PLUGIN_LABEL: "true",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
}
#: policy of the Topology Manager -> its node
NUMA_NODES = {policy: f"numa-{policy}" for policy in ("single-numa-node", "restricted", "best-effort", "none")}
#: half of the node each
_ZONE = {"cpu": "16", "memory": "64Gi", names.NVIDIA_GPU: "2"}


def numa_machine(name: str) -> MachineKind:
    """A node with NUMA zones."""
    taint = {"key": NUMA_LABEL, "value": "true", "effect": "NoSchedule"}
    return MachineKind(
        name=name, gpus=4, gpu_memory_mib=11441, cpu="32", memory="128Gi", labels={NUMA_LABEL: "true"}, taints=(taint,)
    )


#: operations:E-30
MACHINES = (
    MachineKind(count=8, name="gpu-{}", gpus=4, gpu_memory_mib=11441, cpu="32", memory="128Gi", labels=_LABELS),
    MachineKind(count=1, name="cpu-{}", cpu="32", memory="128Gi"),
    MachineKind(count=2, name="dra-{}", gpus=8, dra=True, cpu="32", memory="128Gi", labels={DRA_LABEL: "true"}),
    MachineKind(count=1, name="dra-small", gpus=1, dra=True, cpu="32", memory="128Gi", labels={DRA_LABEL: "true"}),
    *map(numa_machine, NUMA_NODES.values()),
)


#: kinds of other projects that need no operator
FOREIGN_KINDS = (zones.DEFINITION, definition(KARTAS.group, KARTAS.version, KARTAS.plural, KARTAS.kind, "Cluster"))
#: those whose operators the lab plays; where they are defined, upstream's suites expect the operators
OPERATED_KINDS = tuple(definitions(read_families(ALL)))


def _topologies(kinds: Sequence[MachineKind] = MACHINES) -> list[dict[str, Any]]:
    """What says that some nodes have zones."""
    there = {kind.name for kind in kinds}
    return [zones.topology(name, policy, [_ZONE, _ZONE]) for policy, name in NUMA_NODES.items() if name in there]


async def add_machines(kubeconfig: Path, kinds: Sequence[MachineKind] = MACHINES) -> None:
    """Create the nodes and their zones, where they are not there from the start as in a lab."""
    await add_zones(kubeconfig, _topologies(kinds))
    transport = connect(kubeconfig)
    try:
        await create_nodes(Client(transport), Clock(), kinds)
    finally:
        await transport.close()


async def add_zones(kubeconfig: Path, topologies: Sequence[Mapping[str, Any]]) -> None:
    """Create what says that nodes have zones, its definition, and those of other kinds that are not ours."""
    await define(kubeconfig, FOREIGN_KINDS)
    transport = connect(kubeconfig)
    client = Client(transport)
    try:
        for topology in topologies:
            with suppress(AlreadyExists):
                await create_when_served(client, NODE_RESOURCE_TOPOLOGIES, dict(topology))
    finally:
        await transport.close()


async def define(kubeconfig: Path, kinds: Iterable[Mapping[str, Any]]) -> None:
    """Create definitions, where they are not there."""
    transport = connect(kubeconfig)
    client = Client(transport)
    try:
        for each in kinds:
            with suppress(AlreadyExists):
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, each)
    finally:
        await transport.close()


@contextmanager
def lab(folder: Path) -> Iterator[Path]:
    """A lab in a thread of its own; yields the kubeconfig of its administrator."""
    kubeconfig = folder / "kubeconfig"
    shard = LabShard(kubeconfig)
    shard.write()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    stop = asyncio.Event()

    async def start() -> LabCluster:
        now = to_timestamp(Clock().now().timestamp())
        options = LabOptions(
            objects=[
                *installation(),
                *FOREIGN_KINDS,
                *OPERATED_KINDS,
                *_topologies(),
                *machine_objects(MACHINES, now),
            ],
            behaviour=QUICK,
            scheduler_flags={"scheduler-conf": str(shard.path)},
        )
        cluster = await LabCluster.start(options)
        cluster.server.kubeconfig(kubeconfig)
        return cluster

    cluster = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    running = asyncio.run_coroutine_threadsafe(cluster.run(stop), loop)
    try:
        yield kubeconfig
    finally:
        loop.call_soon_threadsafe(stop.set)
        running.result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


#: what the specs of upstream's CI set (operations:E-31)
VALUES: Mapping[str, str] = {"global.gpuSharing": "true"}
SET = [f"--set={name}={value}" for name, value in VALUES.items()]
#: of Kubernetes, for claims in the place of extended resources (operations:E-30)
_GATES = "--feature-gates=DRAExtendedResource=true"
GATES = {program: [_GATES] for program in (API_SERVER, CONTROLLERS, SCHEDULER)}
CHART = Path(__file__).parents[2] / "charts" / "kai-scheduler"
RELEASE = "kai-scheduler"
#: with each command of Helm
OF_THE_RELEASE = (f"--namespace={names.DEFAULT_NAMESPACE}", "--wait")
#: how users install it, and so does `make cluster` tell them (docs/install.md)
INSTALL = ("install", RELEASE, os.path.relpath(CHART), *OF_THE_RELEASE, "--create-namespace", *SET)


class Installation:
    """PyKAI as its chart installs it: its pods run as processes of this machine."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubeconfig = plane.kubeconfig

    def install(self, *arguments: str) -> None:
        """Install the chart with the values of the specs, and wait until everything works."""
        self.kai("install", *SET, *arguments)
        self.await_available()

    def install_release(self, *arguments: str) -> None:
        """The same with Helm."""
        self.helm(*INSTALL, *arguments)
        self.await_available()

    def await_available(self) -> None:
        """Wait until the Config and all shards say that everything works."""
        asyncio.run(self.available())

    def kai(self, *arguments: str) -> str:
        """Run kai as an administrator does; what it says."""
        return self._run(Path(sys.executable).with_name("kai"), *arguments, "--namespace", names.DEFAULT_NAMESPACE)

    def helm(self, *arguments: str) -> str:
        """Run the Helm that KAI_HELM names; what it says."""
        return self._run(Path(os.environ["KAI_HELM"]), *arguments)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl as an administrator does; what it says."""
        return self._run(kubernetes.program_path("kubectl"), *arguments)

    def _run(self, program: Path, *arguments: str) -> str:
        done = subprocess.run(
            [str(program), *arguments, "--kubeconfig", str(self.kubeconfig)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program.name} {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    async def available(self) -> None:
        """Wait until the Config and all shards say that everything works."""
        transport = connect(self.kubeconfig)
        client = Client(transport)
        caches = Caches(client)
        stores = [caches.store(kind, dict) for kind in (CONFIGS, SCHEDULING_SHARDS)]
        await caches.start()
        try:
            for store in stores:
                await store.wait_until(
                    lambda found: bool(found.values()) and all(map(is_in_force, found.values())), 300
                )
        finally:
            await caches.stop()
            await transport.close()


@contextmanager
def installation_on_a_control_plane(folder: Path, kinds: Sequence[MachineKind] = MACHINES) -> Iterator[Installation]:
    """A real control plane with machines, on which nothing is installed yet."""
    with ExitStack() as stack:
        # The path of a socket has at most a hundred letters.
        pods = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kai-pods-")))
        plane = ControlPlane(
            folder,
            controllers=("*",),
            scheduler=True,
            service_accounts=True,
            audit=True,
            options=GATES,
            network=pods / NETWORK_SOCKET,
        )
        stack.enter_context(plane)
        plane.start_controllers()
        asyncio.run(define(plane.kubeconfig, OPERATED_KINDS))
        asyncio.run(add_machines(plane.kubeconfig, kinds))
        stack.enter_context(machines(plane, pods))
        yield Installation(plane)


@contextmanager
def machines(plane: ControlPlane, pods: Path, *flags: str, run_s: float = 3600.0) -> Iterator[None]:
    """Kubelets for all nodes, where pods of users run so long; the pods of our own Deployments run as processes, whose
    logs are below `pods`."""
    with (plane.folder / "machines.log").open("ab") as log:
        process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("kai")),
                *("run", "machines", f"--kubeconfig={plane.kubeconfig}", f"--default-run-seconds={run_s:g}"),
                *("--controllers=false", "--default-scheduler=false"),
                *(f"--processes={names.DEFAULT_NAMESPACE}", f"--process-folder={pods}"),
                *flags,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
