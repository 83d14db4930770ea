"""Clusters that are hard to schedule, and what one cycle on each of them costs.

    python -m bench.shapes [--nodes 100 1000] [--only SHAPE ...] [--runs 3]
    python -m bench.shapes --list
    python -m bench.shapes --objects SHAPE --nodes 100

The first measures one cycle on each shape as `kai bench objects` does, and prints how the cost grows from one size to
the next; the last prints a cluster as Kubernetes objects, one JSON object a line. Nodes have 8 GPUs, 64 cores and
512 GiB. Queues are four in two departments, jobs are preemptible groups of one-GPU pods, unless a shape says otherwise.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from typing import Any, Final

from pykai.api import names
from pykai.api.timestamp import format_timestamp
from pykai.dev.objectsbench import ObjectsMeasurement, measure_objects

Document = dict[str, Any]

_GPUS: Final = 8
_TEAMS: Final = ("team-a", "team-b", "team-c", "team-d")
_CLASS: Final = "train"
_QUEUES_SINCE_S: Final = 1_767_139_200
_JOBS_SINCE_S: Final = 1_767_000_000
_SEED: Final = 7
_RACK, _ZONE = 16, 128


@dataclass
class Cluster:
    """Objects of a cluster, and the number of the next job."""

    nodes: int
    #: node -> labels beyond those of all nodes
    labels: Callable[[int], dict[str, str]] = lambda _: {}
    objects: list[Document] = field(default_factory=list)
    _jobs: int = 0

    def __post_init__(self) -> None:
        self.objects.append(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": _CLASS},
                "value": 50,
            }
        )
        self.objects += [_node(number, self.labels(number)) for number in range(self.nodes)]

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return _GPUS * self.nodes

    def queue(self, name: str, quota: float, parent: str = "") -> None:
        """Add a queue with a quota of GPUs."""
        self.objects.append(_queue(name, parent, quota))

    def teams(self, quota: float) -> None:
        """Add four queues with this quota, two in each of two departments."""
        for department in range(2):
            self.queue(f"department-{department}", 2 * quota)
        for number, name in enumerate(_TEAMS):
            self.queue(name, quota, f"department-{number // 2}")

    def job(
        self,
        *,
        queue: str | None = None,
        pods: int = 1,
        gpus: int = 1,
        on: Sequence[int] | None = None,
        cpu: str = "1",
        memory: str = "1Gi",
        topology: Document | None = None,
    ) -> None:
        """Add a group, waiting or on these nodes; its queue is the next team where none is given."""
        number = self._jobs
        self._jobs += 1
        name, created = f"job-{number:06}", format_timestamp((_JOBS_SINCE_S + number) * 10**9)
        spec: Document = {
            "queue": queue or _TEAMS[number % len(_TEAMS)],
            "minMember": pods,
            "preemptibility": names.PREEMPTIBLE,
            "priorityClassName": _CLASS,
        }
        if topology:
            spec["topologyConstraint"] = topology
        self.objects.append(
            {
                "apiVersion": f"{names.SCHEDULING_GROUP}/v2alpha2",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": "bench", "uid": name, "creationTimestamp": created},
                "spec": spec,
            }
        )
        requests = {"cpu": cpu, "memory": memory, names.NVIDIA_GPU: str(gpus)}
        for member in range(pods):
            self.objects.append(_pod(name, member, created, requests, None if on is None else on[member]))


def _node(number: int, labels: dict[str, str]) -> Document:
    name = f"node-{number:05}"
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", names.NVIDIA_GPU: str(_GPUS)}
    own = {
        names.HOSTNAME_LABEL: name,
        names.GPU_MEMORY_NODE_LABEL: "81920",
        names.GPU_COUNT_NODE_LABEL: str(_GPUS),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**own, **labels}},
        "spec": {},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _queue(name: str, parent: str, quota: float) -> Document:
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    return {
        "apiVersion": f"{names.SCHEDULING_GROUP}/v2",
        "kind": "Queue",
        "metadata": {"name": name, "uid": name, "creationTimestamp": format_timestamp(_QUEUES_SINCE_S * 10**9)},
        "spec": {
            "displayName": name,
            **({"parentQueue": parent} if parent else {}),
            "resources": {"gpu": {**unlimited, "quota": quota}, "cpu": unlimited, "memory": unlimited},
        },
    }


def _pod(group: str, member: int, created: str, requests: dict[str, str], node: int | None) -> Document:
    name = f"{group}-{member}"
    spec: Document = {
        "schedulerName": names.SCHEDULER_NAME,
        "containers": [{"name": "main", "image": "x", "resources": {"requests": requests}}],
    }
    if node is not None:
        spec["nodeName"] = f"node-{node:05}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "bench",
            "uid": name,
            "annotations": {names.POD_GROUP_ANNOTATION: group},
            "labels": {},
            "creationTimestamp": created,
        },
        "spec": spec,
        "status": {"phase": "Pending" if node is None else "Running"},
    }


def _with_teams(nodes: int) -> Cluster:
    """A cluster that four queues share equally."""
    cluster = Cluster(nodes)
    cluster.teams(2 * nodes)
    return cluster


def fill(nodes: int) -> Cluster:
    """One-GPU jobs for an empty cluster; queues have quotas of a few GPUs."""
    cluster = Cluster(nodes)
    cluster.teams(4)
    for _ in range(cluster.gpus):
        cluster.job()
    return cluster


def gang(nodes: int) -> Cluster:
    """Gangs of 8 whole nodes for an empty cluster."""
    cluster = Cluster(nodes)
    cluster.teams(4)
    for _ in range(nodes // 8):
        cluster.job(pods=8, gpus=8)
    return cluster


def full(nodes: int) -> Cluster:
    """A full cluster, and as many jobs that wait; queues are at their quota."""
    cluster = _with_teams(nodes)
    for number in range(cluster.gpus):
        cluster.job(on=[number // _GPUS])
    for _ in range(cluster.gpus):
        cluster.job()
    return cluster


def _reclaim(nodes: int, places: Iterable[int]) -> Cluster:
    """One queue holds all with one-GPU jobs on these nodes; the three others want their quota in whole nodes."""
    cluster = _with_teams(nodes)
    for place in places:
        cluster.job(queue=_TEAMS[0], on=[place])
    for number in range(3 * nodes // 4):
        cluster.job(queue=_TEAMS[1 + number % 3], gpus=8)
    return cluster


def reclaim(nodes: int) -> Cluster:
    """Whole nodes are reclaimed; jobs of a node are neighbours in the order of victims."""
    return _reclaim(nodes, (number // _GPUS for number in range(_GPUS * nodes)))


def reclaim_strewn(nodes: int) -> Cluster:
    """The same, but neighbours in the order of victims are on different nodes."""
    return _reclaim(nodes, (number % nodes for number in range(_GPUS * nodes)))


def reclaim_shuffled(nodes: int) -> Cluster:
    """The same in random order."""
    return _reclaim(nodes, (place % nodes for place in _shuffled(_GPUS * nodes)))


def _shuffled(count: int) -> list[int]:
    places = list(range(count))
    random.Random(_SEED).shuffle(places)
    return places


def _fragmented(nodes: int, places: Iterable[int]) -> Cluster:
    """Jobs with one GPU on these nodes; jobs that need a whole node wait."""
    cluster = _with_teams(nodes)
    for place in places:
        cluster.job(on=[place])
    for _ in range(nodes // 8):
        cluster.job(gpus=8)
    return cluster


def frag(nodes: int) -> Cluster:
    """5 of 8 GPUs are used on each node; whole nodes are wanted."""
    return _fragmented(nodes, (number // 5 for number in range(5 * nodes)))


def frag_strewn(nodes: int) -> Cluster:
    """The same, but neighbours in the order of victims are on different nodes."""
    return _fragmented(nodes, (number % nodes for number in range(5 * nodes)))


def frag_shuffled(nodes: int) -> Cluster:
    """The same in random order."""
    return _fragmented(nodes, (place % nodes for place in _shuffled(5 * nodes)))


def _reclaim_from_gangs(nodes: int, place: Callable[[int, int], int]) -> Cluster:
    """One queue holds all with gangs of 8 one-GPU pods; gangs of 4 whole nodes want their quota."""
    cluster = _with_teams(nodes)
    for number in range(nodes):
        cluster.job(queue=_TEAMS[0], pods=8, on=[place(number, member) for member in range(8)])
    for number in range(3 * nodes // 16):
        cluster.job(queue=_TEAMS[1 + number % 3], pods=4, gpus=8)
    return cluster


def reclaim_gangs(nodes: int) -> Cluster:
    """Victims are gangs whose pods are on 8 nodes."""
    return _reclaim_from_gangs(nodes, lambda number, member: (number + member * max(1, nodes // 8)) % nodes)


def reclaim_gangs_local(nodes: int) -> Cluster:
    """Victims are gangs, each on one node."""
    return _reclaim_from_gangs(nodes, lambda number, _: number)


def queues1000(nodes: int) -> Cluster:
    """1,000 leaf queues in 40 departments; odd ones hold everything, all ask for more."""
    cluster = Cluster(nodes)
    for number in range(40):
        cluster.queue(f"d{number}", cluster.gpus / 40)
    for number in range(1000):
        cluster.queue(f"l{number}", cluster.gpus / 1000, f"d{number % 40}")
    for number in range(cluster.gpus):
        cluster.job(queue=f"l{(2 * number + 1) % 1000}", on=[number % nodes])
    for number in range(cluster.gpus // 2):
        cluster.job(queue=f"l{number % 1000}")
    return cluster


def deep6(nodes: int) -> Cluster:
    """Six levels of three children: 729 leaves, of which a third holds everything and the others want their quota."""
    cluster = Cluster(nodes)
    cluster.queue("root", cluster.gpus)
    level = [("root", float(cluster.gpus))]
    for _ in range(6):
        below = []
        for parent, quota in level:
            for number in range(3):
                name = f"t{number}" if parent == "root" else f"{parent}{number}"
                cluster.queue(name, quota / 3, parent)
                below.append((name, quota / 3))
        level = below
    leaves = [name for name, _ in level]
    for number in range(cluster.gpus):
        cluster.job(queue=leaves[number % (len(leaves) // 3)], on=[number % nodes])
    for number in range(cluster.gpus // 2):
        cluster.job(queue=leaves[-1 - number % (2 * len(leaves) // 3)])
    return cluster


def _many_requests(nodes: int, running: int) -> Cluster:
    """10,000 waiting jobs with 3,000 different requests, beside so many GPUs in use."""
    cluster = _with_teams(nodes)
    for number in range(running):
        cluster.job(on=[number % nodes])
    for number in range(10_000):
        kind = number % 3000
        cluster.job(gpus=1 + kind % 4, cpu=f"{100 + kind}m", memory=f"{64 + 7 * (kind // 3)}Mi")
    return cluster


def shapes3000(nodes: int) -> Cluster:
    """3,000 different requests for an empty cluster."""
    return _many_requests(nodes, 0)


def shapes_half(nodes: int) -> Cluster:
    """3,000 different requests for a cluster that is half full."""
    return _many_requests(nodes, _GPUS * nodes // 2)


def shapes3000_full(nodes: int) -> Cluster:
    """3,000 different requests for a full cluster."""
    return _many_requests(nodes, _GPUS * nodes)


def _racks(nodes: int, wants_nodes: Callable[[int], bool]) -> Cluster:
    """Racks of 16 nodes with 1 to 7 GPUs in use on each node; gangs that require a rack wait."""
    cluster = Cluster(nodes, lambda number: {"zone": f"z{number // _ZONE}", "rack": f"r{number // _RACK}"})
    levels = [{"nodeLabel": "zone"}, {"nodeLabel": "rack"}]
    cluster.objects.append(
        {
            "apiVersion": "kai.scheduler/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": "net"},
            "spec": {"levels": levels},
        }
    )
    cluster.teams(2 * nodes)
    rng = random.Random(_SEED)
    for node in range(nodes):
        for _ in range(rng.randint(1, 7)):
            cluster.job(on=[node])
    constraint = {"topology": "net", "requiredTopologyLevel": "rack"}
    for number in range(nodes // 8):
        pods, gpus = (8, 8) if wants_nodes(number) else (24, 1)
        cluster.job(pods=pods, gpus=gpus, topology=constraint)
    return cluster


def topo_frag(nodes: int) -> Cluster:
    """Gangs that require a rack: every second wants 8 whole nodes, the others 24 GPUs."""
    return _racks(nodes, lambda number: number % 2 == 1)


def topo_frag_fit(nodes: int) -> Cluster:
    """Gangs that require 24 GPUs in a rack."""
    return _racks(nodes, lambda _: False)


def _large_gangs(nodes: int, holders: Sequence[str], takers: Sequence[str]) -> Cluster:
    """Every GPU is held by a one-GPU group; gangs of 16 whole nodes wait."""
    cluster = _with_teams(nodes)
    for number in range(cluster.gpus):
        cluster.job(queue=holders[number % len(holders)], on=[number % nodes])
    for number in range(max(1, nodes // 64)):
        cluster.job(queue=takers[number % len(takers)], pods=16, gpus=8)
    return cluster


def gang_victims(nodes: int) -> Cluster:
    """Large gangs reclaim from a queue that holds everything."""
    return _large_gangs(nodes, _TEAMS[:1], _TEAMS[1:])


def gang_victims_refused(nodes: int) -> Cluster:
    """The same gangs where no queue holds more than its quota."""
    return _large_gangs(nodes, _TEAMS, _TEAMS)


SHAPES: Final = {
    shape.__name__: shape
    for shape in (
        fill,
        gang,
        full,
        reclaim,
        reclaim_strewn,
        reclaim_shuffled,
        frag,
        frag_strewn,
        frag_shuffled,
        reclaim_gangs,
        reclaim_gangs_local,
        queues1000,
        deep6,
        shapes3000,
        shapes_half,
        shapes3000_full,
        topo_frag,
        topo_frag_fit,
        gang_victims,
        gang_victims_refused,
    )
}


def lines(shape: str, nodes: int) -> Iterator[str]:
    """The objects of a cluster, one a line."""
    return (json.dumps(each) for each in SHAPES[shape](nodes).objects)


def measure(shape: str, nodes: int, runs: int) -> ObjectsMeasurement:
    """One cycle on a shape, the median of fresh processes."""
    with tempfile.TemporaryDirectory(prefix="shapes-") as folder:
        path = Path(folder) / f"{shape}.jsonl"
        # Written by another process: the peak of a process counts as one of those that it starts.
        command = [sys.executable, "-m", "bench.shapes", "--objects", shape, "--nodes", str(nodes)]
        with path.open("wb") as file:
            subprocess.run(command, stdout=file, check=True)
        return measure_objects(path, runs)


def line(shape: str, found: ObjectsMeasurement, smaller: ObjectsMeasurement | None) -> str:
    """A measurement for readers, with the growth from the next smaller size."""
    text = (
        f"{shape:>20} {found.nodes:>6} nodes {found.pods:>6} pods {found.cpu_seconds:>8.3f} s CPU, "
        f"unchanged {found.second_cpu_seconds:.4f} s, tables {found.tables_seconds:.2f} s, "
        f"peak {found.peak_mib:.0f} MiB; {found.binds} bound, {found.nominations} nominated, {found.evictions} evicted"
    )
    if found.ended_searches:
        text += f"; {found.ended_searches} searches ENDED by their budget"
    if smaller is not None and smaller.nodes < found.nodes:
        power = log(found.cpu_seconds / smaller.cpu_seconds) / log(found.nodes / smaller.nodes)
        text += f"; grows with n^{power:.2f}"
    return text


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description="What one cycle costs on clusters that are hard to schedule.")
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000], help="sizes (100 1000)")
    parser.add_argument("--only", nargs="+", choices=SHAPES, metavar="SHAPE", help="these shapes (all)")
    parser.add_argument("--runs", type=int, default=3, help="processes for each measurement (3)")
    parser.add_argument("--list", action="store_true", help="list the shapes")
    parser.add_argument("--objects", choices=SHAPES, metavar="SHAPE", help="print the objects of a shape instead")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = arguments(given)
    if options.list:
        for name, shape in SHAPES.items():
            print(f"{name:>20}  {shape.__doc__}")
        return
    if options.objects:
        sys.stdout.writelines(f"{each}\n" for each in lines(options.objects, options.nodes[0]))
        return
    for name in options.only or SHAPES:
        smaller = None
        for nodes in sorted(options.nodes):
            found = measure(name, nodes, options.runs)
            print(line(name, found, smaller), flush=True)
            smaller = found


if __name__ == "__main__":
    main()
