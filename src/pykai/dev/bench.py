"""Benchmarks of the engine against a floor measured in the same run.

Machines differ and are noisy, so seconds alone say little. Every measurement therefore has a *floor*: the minimal NumPy
work of any such scheduler for the same pods (pick the least used queue, the best node, update one row). Watch the ratio
of both. The cyclic garbage collector is paused for both.

Shapes:

- `fill`: 8 one-GPU jobs a node on an empty cluster of 8-GPU nodes, 4 queues in 2 departments;
- `gang`: n/8 gangs of 8 pods with 8 GPUs each on the same cluster;
- `apply`: microseconds to take in one changed pod on a full cluster;
- `full`: a full cluster with as many one-GPU jobs waiting, queues at their quota: nothing fits, nothing may be
  reclaimed, every job gets a reason; `second_seconds` is the next cycle with nothing changed;
- `reclaim`: one queue holds the whole cluster with one-GPU jobs, the three others ask for their quota in 8-GPU jobs;
- `frag`: 5 of 8 GPUs used on every node by one-GPU jobs, n/8 jobs waiting that need a whole node; consolidation may
  move any number of jobs;
- `racks`: 8-GPU nodes in racks of 16 and zones of 8 racks, filled by gangs of 512 one-GPU pods that require a zone and
  prefer a rack; `refusal_seconds` is a cycle on the full cluster with one such gang, and one of 64, too many;
- `racks64`: the same by gangs of 64 that require a rack;
- `living`: a full cluster of one-GPU jobs with n/5 more waiting that fit nowhere; `seconds` is the 95th percentile of
  cycles that each follow a hundred events of running pods (changed conditions and labels, jobs that finish while equal
  ones start, pods of another scheduler that come and go), including event intake and explanations; `new_pod_seconds` is
  the longest of ten cycles with a new job that fits.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from dataclasses import replace as replace_policy
from functools import partial
from time import perf_counter

import numpy as np
from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Condition, Container, Node, NodeStatus, Pod, PodSpec, PodStatus, ResourceRequirements
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import (
    PodGroup,
    PodGroupSpec,
    Queue,
    QueueResource,
    QueueResources,
    QueueSpec,
    TopologyConstraint,
)
from pykai.api.topology import Topology, TopologyLevel, TopologySpec
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.memory import CycleMemory
from pykai.core.report.decisions import Plan
from pykai.core.schedule import schedule
from pykai.scheduler.config.configuration import default_configuration
from pykai.scheduler.gccontrol import gc_paused

GPUS_PER_NODE = 8
_NOW_NS = 1_767_225_600_000_000_000
#: Engine and floor alternate, and the best time of each counts, to reduce the effect of other load.
_ROUNDS, _MOST_ROUNDS, _AT_LEAST_S = 3, 30, 2.0
#: Cycles of `living`, and events before each.
_ACTIVE_CYCLES, _EVENTS = 100, 100
#: Changes of `apply` timed at a time.
_CHUNK = 250
_QUEUES = ("team-a", "team-b", "team-c", "team-d")


class WrongSize(ValueError):
    """A shape does not work with this number of nodes; the text says which do."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line of the benchmark."""

    shape: str
    nodes: int
    pods: int
    #: from tables built to decisions and explanations finished; for `apply` per changed pod
    seconds: float
    floor_seconds: float
    ratio: float
    peak_mib: float
    decisions: int
    #: pods evicted or moved
    evictions: int = 0
    #: the next cycle with nothing changed, if measured
    second_seconds: float | None = None
    #: a cycle in which gangs are refused with a reason, if measured
    refusal_seconds: float | None = None
    #: the median, if many cycles are measured
    median_seconds: float | None = None
    #: a cycle with one new job that fits while others wait, if measured
    new_pod_seconds: float | None = None

    def record(self) -> dict[str, object]:
        """As it is printed."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def microseconds_a_pod(self) -> float:
        """Time per pod."""
        return 1e6 * self.seconds / max(self.pods, 1)


def _node(index: int, **labels: str) -> Node:
    name = f"node-{index:05}"
    marks = {"kubernetes.io/hostname": name, names.GPU_MEMORY_NODE_LABEL: "81920", **labels}
    return Node(
        metadata=ObjectMeta(name=name, labels=marks),
        status=NodeStatus(allocatable={"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}),
    )


def _queues(department_quota: float = 8, team_quota: float = 4) -> list[Queue]:
    def queue(name: str, parent: str, gpu_quota: float) -> Queue:
        open_ended = QueueResource(quota=-1, limit=-1, over_quota_weight=1)
        gpu = QueueResource(quota=gpu_quota, limit=-1, over_quota_weight=1)
        resources = QueueResources(gpu=gpu, cpu=open_ended, memory=open_ended)
        return Queue(metadata=ObjectMeta(name=name), spec=QueueSpec(parent_queue=parent, resources=resources))

    departments = [queue(f"department-{index}", "", department_quota) for index in range(2)]
    return departments + [queue(name, f"department-{index // 2}", team_quota) for index, name in enumerate(_QUEUES)]


def _job(
    index: int, pods: int, gpus: int, queue: str = "", node: str = "", topology: TopologyConstraint | None = None
) -> list[PodGroup | Pod]:
    """A job; it waits unless a node is named."""
    group = f"job-{index:06}"
    objects: list[PodGroup | Pod] = [
        PodGroup(
            metadata=ObjectMeta(name=group, namespace="bench", uid=group),
            spec=PodGroupSpec(
                queue=queue or _QUEUES[index % len(_QUEUES)],
                min_member=pods,
                preemptibility=names.PREEMPTIBLE,
                topology_constraint=topology,
            ),
        )
    ]
    requests: dict[str, str | int | float] = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    for number in range(pods):
        name = f"{group}-{number}"
        objects.append(
            Pod(
                metadata=ObjectMeta(
                    name=name, namespace="bench", uid=name, annotations={names.POD_GROUP_ANNOTATION: group}
                ),
                spec=PodSpec(
                    scheduler_name=names.SCHEDULER_NAME,
                    containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
                    node_name=node,
                ),
                status=PodStatus(phase="Running" if node else "Pending"),
            )
        )
    return objects


def _cluster(nodes: int, jobs: int, pods: int, gpus: int) -> Tables:
    tables = Tables()
    for index in range(nodes):
        tables.apply(_node(index))
    for queue in _queues():
        tables.apply(queue)
    for index in range(jobs):
        for item in _job(index, pods, gpus):
            tables.apply(item)
    return tables


def floor_seconds(nodes: int, pods: int, gpus: int) -> float:
    """The least work for the same decisions."""
    n = nodes
    free = np.full((n, 4), 8.0)
    score = np.zeros(n)
    used = [0.0] * 4
    req = np.ones(4) if gpus == 1 else np.full(4, 8.0)
    began = perf_counter()
    for _ in range(pods):
        q = used.index(min(used))
        i = int(score.argmax())
        free[i] -= req
        f = free[i, 2]
        score[i] = 9 * (1 - f / 8) if f > 0 else -1
        used[q] += 1
    return perf_counter() - began


def peak_mib() -> float:
    """The most memory this process has held."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def _measure(shape: str, nodes: int, jobs: int, pods: int, gpus: int, *, quick: bool) -> Measurement:
    return _measure_cycles(shape, _cluster(nodes, jobs, pods, gpus), nodes, jobs * pods, gpus, quick=quick)


def _measure_cycles(shape: str, tables: Tables, nodes: int, pods: int, gpus: int, *, quick: bool) -> Measurement:
    """Cycles on these tables, or (quick) one; the floor is that of placing `pods` pods of `gpus` GPUs."""
    policy = replace_policy(default_configuration().policy, max_consolidation_preemptees=-1)
    seconds = floor = second = float("inf")
    finish = perf_counter() + _AT_LEAST_S
    rounds = 0
    while rounds < 1 if quick else rounds < _ROUNDS or (perf_counter() < finish and rounds < _MOST_ROUNDS):
        rounds += 1
        gc.collect()
        with gc_paused():
            memory = CycleMemory()
            began = perf_counter()
            plan = schedule(tables.snapshot(_NOW_NS), policy, memory)
            seconds = min(seconds, perf_counter() - began)
            began = perf_counter()
            schedule(tables.snapshot(_NOW_NS), policy, memory)
            second = min(second, perf_counter() - began)
            floor = min(floor, floor_seconds(nodes, pods, gpus))
    return Measurement(
        shape,
        nodes,
        pods,
        round(seconds, 6),
        round(floor, 6),
        round(seconds / floor, 2),
        peak_mib(),
        len(plan.binds) + len(plan.nominations),
        len(plan.evictions),
        round(second, 6) if shape == "full" else None,
    )


def fill(nodes: int, *, quick: bool = False) -> Measurement:
    """8 one-GPU jobs a node."""
    return _measure("fill", nodes, nodes * GPUS_PER_NODE, 1, 1, quick=quick)


def gang(nodes: int, *, quick: bool = False) -> Measurement:
    """Gangs of 8 pods that take a node each."""
    return _measure("gang", nodes, nodes // 8, 8, GPUS_PER_NODE, quick=quick)


def _cluster_with_quotas(nodes: int) -> Tables:
    """A cluster whose quotas add up to its GPUs, without work."""
    tables = Tables()
    for index in range(nodes):
        tables.apply(_node(index))
    for queue in _queues(nodes * GPUS_PER_NODE / 2, nodes * GPUS_PER_NODE / 4):
        tables.apply(queue)
    return tables


def _add(tables: Tables, index: int, gpus: int, queue: str = "", node: int | None = None) -> None:
    for item in _job(index, 1, gpus, queue, "" if node is None else f"node-{node:05}"):
        tables.apply(item)


def full(nodes: int, *, quick: bool = False) -> Measurement:
    """As much work waiting as runs."""
    tables = _cluster_with_quotas(nodes)
    jobs = nodes * GPUS_PER_NODE
    for index in range(2 * jobs):
        _add(tables, index, 1, node=index // GPUS_PER_NODE if index < jobs else None)
    return _measure_cycles("full", tables, nodes, jobs, 1, quick=quick)


def reclaim(nodes: int, *, quick: bool = False) -> Measurement:
    """Three queues reclaim what the fourth has."""
    tables = _cluster_with_quotas(nodes)
    held = nodes * GPUS_PER_NODE
    for index in range(held):
        _add(tables, index, 1, _QUEUES[0], index // GPUS_PER_NODE)
    wanted = 3 * nodes // 4
    for index in range(wanted):
        _add(tables, held + index, GPUS_PER_NODE, _QUEUES[1 + index % 3])
    return _measure_cycles("reclaim", tables, nodes, wanted, GPUS_PER_NODE, quick=quick)


def frag(nodes: int, *, quick: bool = False) -> Measurement:
    """Every node has a little room and none has enough."""
    tables = _cluster_with_quotas(nodes)
    for index in range(5 * nodes):
        _add(tables, index, 1, node=index // 5)
    wanted = nodes // 8
    for index in range(wanted):
        _add(tables, 5 * nodes + index, GPUS_PER_NODE)
    return _measure_cycles("frag", tables, nodes, wanted, GPUS_PER_NODE, quick=quick)


_NODES_PER_RACK, _RACKS_PER_ZONE = 16, 8
_LARGEST_GANG = 512
_NET = "net"
_IN_ZONE = TopologyConstraint(topology=_NET, required_topology_level="zone", preferred_topology_level="rack")
_IN_RACK = TopologyConstraint(topology=_NET, required_topology_level="rack")


def racks(nodes: int, *, quick: bool = False) -> Measurement:
    """Gangs of 512 fill zones, rack by rack."""
    return _racks("racks", nodes, _LARGEST_GANG, _IN_ZONE, quick=quick)


def racks64(nodes: int, *, quick: bool = False) -> Measurement:
    """Gangs of 64 fill racks."""
    return _racks("racks64", nodes, 64, _IN_RACK, quick=quick)


def _racks(shape: str, nodes: int, pods: int, topology: TopologyConstraint, *, quick: bool) -> Measurement:
    nodes_per_gang = pods // GPUS_PER_NODE
    if nodes % nodes_per_gang:
        raise WrongSize(f"{shape} fills the cluster to the last GPU: it needs a multiple of {nodes_per_gang} nodes")
    tables = Tables()
    for index in range(nodes):
        rack = index // _NODES_PER_RACK
        tables.apply(_node(index, zone=f"z{rack // _RACKS_PER_ZONE}", rack=f"r{rack % _RACKS_PER_ZONE}"))
    levels = [TopologyLevel(node_label="zone"), TopologyLevel(node_label="rack")]
    tables.apply(Topology(metadata=ObjectMeta(name=_NET), spec=TopologySpec(levels=levels)))
    for queue in _queues(nodes * GPUS_PER_NODE / 2, nodes * GPUS_PER_NODE / 4):
        tables.apply(queue)
    gangs = nodes * GPUS_PER_NODE // pods
    waiting: dict[str, Pod] = {}
    for index in range(gangs):
        for item in _job(index, pods, 1, topology=topology):
            tables.apply(item)
            if isinstance(item, Pod):
                waiting[item.metadata.name] = item
    measurement = _measure_cycles(shape, tables, nodes, gangs * pods, 1, quick=quick)
    for bind in schedule(tables.snapshot(_NOW_NS), default_configuration().policy).binds:
        tables.apply(_with_phase(waiting[bind.pod], bind.node, "Running"))
    for index, (size, level) in enumerate(((_LARGEST_GANG, _IN_ZONE), (64, _IN_RACK)), gangs):
        for item in _job(index, size, 1, topology=level):
            tables.apply(item)
    refusal = _measure_cycles(shape, tables, nodes, 1, 1, quick=quick)
    assert not refusal.decisions, "the cluster was full"
    return replace_policy(measurement, refusal_seconds=refusal.seconds)


def apply(nodes: int, *, quick: bool = False) -> Measurement:
    """Running pods of a full cluster finish and come back: seconds are for one changed pod.

    The floor is one dictionary update a pod, since no array work is needed.
    """
    changes = _CHUNK if quick else 16 * _CHUNK
    tables = _cluster(nodes, 0, 0, 0)
    running: list[Pod] = []
    for index in range(nodes * 4):
        for item in _job(index, 1, 1):
            if isinstance(item, Pod):
                item = _with_phase(item, f"node-{index % nodes:05}", "Running")
                running.append(item)
            tables.apply(item)
    order = np.random.default_rng(7).integers(0, len(running), changes).tolist()
    changed = [_with_phase(running[position], running[position].spec.node_name, "Succeeded") for position in order]
    gc.collect()
    seconds = floor = float("inf")
    with gc_paused():
        for first in range(0, changes, _CHUNK):
            chunk = list(zip(changed, order, strict=True))[first : first + _CHUNK]
            began = perf_counter()
            for pod, position in chunk:
                tables.apply(pod)
                tables.apply(running[position])
            seconds = min(seconds, (perf_counter() - began) / (2 * len(chunk)))
            began = perf_counter()
            seen: dict[str, Pod] = {}
            for pod, _ in chunk:
                seen[pod.metadata.name] = pod
            floor = min(floor, (perf_counter() - began) / len(chunk))
    return Measurement(
        "apply", nodes, 1, round(seconds, 9), round(floor, 9), round(seconds / floor, 2), peak_mib(), 2 * changes
    )


def living(nodes: int, *, quick: bool = False) -> Measurement:
    """A busy cluster: many events, none of which helps the waiting jobs.

    The floor is one dictionary update per event and one visit of every node.
    """
    cluster = _ActiveCluster(nodes)
    policy, memory = default_configuration().policy, CycleMemory()
    taken: list[float] = []
    floor = float("inf")

    def cycle(events: Sequence[Callable[[], None]]) -> tuple[float, Plan]:
        gc.collect(0)
        with gc_paused():
            began = perf_counter()
            for event in events:
                event()
            plan = schedule(cluster.tables.snapshot(_NOW_NS), policy, memory)
            return perf_counter() - began, plan

    cycle(())
    gc.collect()
    cycles = 2 * len(cluster.kinds) if quick else _ACTIVE_CYCLES
    for number in range(cycles):
        seconds, plan = cycle(cluster.events(number))
        assert not plan.binds, "those that wait fit nowhere"
        taken.append(seconds)
        floor = min(floor, _active_floor(nodes))
    fitting = [_job(3 * 10**6 + number, 1, 0) for number in range(2 if quick else 10)]
    new_job_seconds: list[float] = []
    for job in fitting:
        seconds, plan = cycle([partial(cluster.tables.apply, item) for item in job])
        assert len(plan.binds) == 1, "the new job fits"
        new_job_seconds.append(seconds)
        pod = job[1]
        assert isinstance(pod, Pod)
        cluster.tables.apply(_with_phase(pod, plan.binds[0].node, "Running"))
    taken.sort()
    worst = taken[-1 - len(taken) // 20]
    return Measurement(
        "living",
        nodes,
        cluster.waiting,
        round(worst, 6),
        round(floor, 6),
        round(worst / floor, 2),
        peak_mib(),
        len(fitting),
        median_seconds=round(taken[len(taken) // 2], 6),
        new_pod_seconds=round(max(new_job_seconds), 6),
    )


def _active_floor(nodes: int) -> float:
    free = np.zeros((4, nodes))
    began = perf_counter()
    seen = {number: number for number in range(_EVENTS)}
    (free >= len(seen)).all(axis=0).any()
    return perf_counter() - began


class _ActiveCluster:
    """A full cluster and the events of its running pods."""

    def __init__(self, nodes: int) -> None:
        self.tables = _cluster_with_quotas(nodes)
        self.pods: list[Pod] = []
        self.waiting = nodes // 5
        self._nodes = nodes
        for index in range(nodes * GPUS_PER_NODE):
            for item in _job(index, 1, 1, node=f"node-{index // GPUS_PER_NODE:05}"):
                self.tables.apply(item)
                if isinstance(item, Pod):
                    self.pods.append(item)
        for index in range(self.waiting):
            _add(self.tables, 10**6 + index, 1)
        self.kinds = (self._conditions, self._labels, self._successors, self._foreign)

    def events(self, number: int) -> list[Callable[[], None]]:
        """The events before a cycle: one kind of change to a hundred pods."""
        happens = self.kinds[number % len(self.kinds)]
        size = len(self.pods)
        return [event for offset in range(_EVENTS) for event in happens(number, (number * _EVENTS + offset) % size)]

    def _set(self, place: int, pod: Pod) -> list[Callable[[], None]]:
        self.pods[place] = pod
        return [partial(self.tables.apply, pod)]

    def _conditions(self, number: int, place: int) -> list[Callable[[], None]]:
        pod = self.pods[place]
        said = [Condition(type="Ready", status="True", reason=f"heard-{number}")]
        return self._set(place, replace(pod, status=replace(pod.status, conditions=said)))

    def _labels(self, number: int, place: int) -> list[Callable[[], None]]:
        pod = self.pods[place]
        return self._set(place, replace(pod, metadata=replace(pod.metadata, labels={"seen": str(number)})))

    def _successors(self, number: int, place: int) -> list[Callable[[], None]]:
        """A job ends, and one of the same queue starts in its place."""
        if place % 2:
            return []
        old = self.pods[place]
        queue = _QUEUES[place % len(_QUEUES)]
        group, pod = _job(2 * 10**6 + number * len(self.pods) + place, 1, 1, queue, old.spec.node_name)
        assert isinstance(pod, Pod)
        remove = self.tables.remove
        gone = [
            partial(remove, "Pod", "bench", old.metadata.name),
            partial(remove, "PodGroup", "bench", old.metadata.annotations[names.POD_GROUP_ANNOTATION]),
        ]
        return [*gone, partial(self.tables.apply, group), *self._set(place, pod)]

    def _foreign(self, number: int, place: int) -> list[Callable[[], None]]:
        """Pods that another scheduler started, as many as it ended."""
        name = f"other-{place % _EVENTS}"
        phase = "Running" if number // len(self.kinds) % 2 else "Succeeded"
        requests: dict[str, str | int | float] = {"cpu": "100m", "memory": "1Mi"}
        pod = Pod(
            metadata=ObjectMeta(name=name, namespace="other", uid=name),
            spec=PodSpec(
                scheduler_name="default-scheduler",
                containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
                node_name=f"node-{place % self._nodes:05}",
            ),
            status=PodStatus(phase=phase),
        )
        return [partial(self.tables.apply, pod)]


def _with_phase(pod: Pod, node: str, phase: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node), status=PodStatus(phase=phase))


SHAPES = {
    "fill": fill,
    "gang": gang,
    "full": full,
    "reclaim": reclaim,
    "frag": frag,
    "racks": racks,
    "racks64": racks64,
    "living": living,
    "apply": apply,
}

#: What `make bench` runs.
SIZES = {
    "fill": (100, 500, 1000, 5000),
    "gang": (128, 512, 1024),
    "full": (100, 500, 1000),
    "reclaim": (100, 500, 1000),
    "frag": (100, 500, 1000),
    "racks": (256, 1024),
    "racks64": (256, 1024),
    "living": (1000, 5000),
    "apply": (500, 5000),
}

#: Sizes whose time per pod is compared.
COMPARED = {
    "fill": (500, 5000),
    "gang": (128, 1024),
    "full": (100, 1000),
    "reclaim": (100, 1000),
    "frag": (100, 1000),
    "racks": (256, 1024),
    "racks64": (256, 1024),
    "living": (1000, 5000),
    "apply": (500, 5000),
}
