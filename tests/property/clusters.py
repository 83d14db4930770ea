"""Random small clusters for property tests, and a plain model of what a plan does to them.

`clusters()` draws a `Cluster` of the builders: queues of one to three levels with quotas and limits, nodes of several
sizes, some tainted or cordoned, and groups of every kind: plain gangs, elastic ones, trees of subgroups; pods that want
CPU, whole GPUs, fractions, GPU memory or several shared devices; some of them running or terminating.  What
runs was placed by a scheduler that keeps to capacity, so that every cluster is one that can exist.  Ages are drawn from
few values, because ties are where orders go wrong, and most pods of a cluster have one of two requests, because that
is where gangs fit halfway and failures repeat.

`Model` reads the same raw objects again with the simplest code that could be right and shares nothing with the engine:
sums of plain integers, one pod at a time.  A test applies plans to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from pykai.api.quantity import milli_value, unit_value
from pykai.core.report.decisions import Bind, Nominate, Plan
from tests.core.builders import Cluster, Raw, cluster, resource_list, timestamp_before

GPU = "nvidia.com/gpu"
AGES = (10.0, 20.0, 30.0)
TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
LAST_START, STALE_SINCE = "kai.scheduler/last-start-timestamp", "kai.scheduler/stale-podgroup-timestamp"
TOLERATION = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}


# What a pod asks for


@dataclass(frozen=True)
class PodRequest:
    """One kind of request, as `Cluster.pod` takes it."""

    cpu: int = 1
    gpu: int = 0
    fraction: str | None = None
    gpu_memory: int | None = None
    devices: int | None = None
    #: host port, 0 = none
    port: int = 0

    def as_pod(self) -> dict[str, Any]:
        """Keyword arguments of `Cluster.pod`."""
        chosen = {"fraction": self.fraction, "gpu_memory": self.gpu_memory, "devices": self.devices}
        return {"cpu": self.cpu, "gpu": self.gpu, **{key: value for key, value in chosen.items() if value is not None}}

    def containers(self) -> list[Raw]:
        """The containers of a pod that holds a host port."""
        requests = resource_list(self.cpu, "1Gi", self.gpu)
        ports = [{"containerPort": self.port, "hostPort": self.port}]
        return [{"name": "main", "resources": {"requests": requests}, "ports": ports}]

    @property
    def shared(self) -> bool:
        """Shares its devices with others."""
        return self.fraction is not None or self.gpu_memory is not None

    @property
    def count(self) -> int:
        """Shared devices requested."""
        return (self.devices or 1) if self.shared else 0

    def mib(self, node: NodeModel) -> int:
        """Memory of each shared device on a node."""
        if self.gpu_memory is not None and self.fraction is None:
            return self.gpu_memory
        return int(float(self.fraction or 0) * node.gpu_mib)

    def hundredths(self, node: NodeModel) -> int:
        """What the queue is charged in hundredths of a GPU on a node."""
        if not self.shared:
            return 100 * self.gpu
        if self.fraction is not None:
            return self.count * int(float(self.fraction) * 100 + 0.5)
        return self.count * -(-100 * self.mib(node) // node.gpu_mib)


def random_request(dice: Random) -> PodRequest:
    """A request of any kind."""
    cpu = dice.choice((1, 1, 0, 3))
    several = dice.choice((None, None, 2))
    return dice.choice(
        (
            PodRequest(cpu),
            PodRequest(cpu, dice.choice((1, 1, 2, 3))),
            PodRequest(cpu, fraction=dice.choice(("0.1", "0.25", "0.333", "0.5", "0.9", "1")), devices=several),
            PodRequest(cpu, gpu_memory=dice.choice((100, 333, 500, 1000, 1500)), devices=several),
        )
    )


# Nodes


@dataclass
class NodeModel:
    """What is left on a node, and the tenants of its shared devices."""

    name: str
    cpu_milli: int
    memory_bytes: int
    pods: int
    gpus: int
    gpu_mib: int
    memory_known: bool = True
    open: bool = True
    tainted: bool = False
    #: shared device -> MiB in use
    devices: dict[str, int] = field(default_factory=dict)
    #: host port -> pods that hold it
    ports: Counter[int] = field(default_factory=Counter)

    def place(self, request: PodRequest, devices: tuple[str, ...], reserved: Container[str] | None = None) -> None:
        """Place a pod; figures may go below zero.  A device that is not reserved yet needs a slot for its reservation
        pod; None = all are."""
        self.cpu_milli -= 1000 * request.cpu
        self.memory_bytes -= 2**30
        self.pods -= 1
        self.gpus -= 0 if request.shared else request.gpu
        for device in devices:
            if device not in self.devices:
                self.devices[device] = 0
                self.gpus -= 1
                self.pods -= reserved is not None and device not in reserved
            self.devices[device] += request.mib(self)
        if request.port:
            self.ports[request.port] += 1

    def fits(self, request: PodRequest, devices: tuple[str, ...] = ()) -> bool:
        """Whether a pod could be placed (on these devices)."""
        after = replace(self, devices=dict(self.devices), ports=self.ports.copy())
        after.place(request, devices)
        # A resource that is not requested does not keep a pod away.
        lacking = (after.cpu_milli < 0 and request.cpu > 0) or after.memory_bytes < 0 or after.pods < 0
        lacking |= after.gpus < 0 and (request.gpu > 0 or request.shared)
        lacking |= request.port > 0 and after.ports[request.port] > 1
        return not lacking and all(after.devices[device] <= self.gpu_mib for device in devices)

    def within_capacity(self) -> bool:
        """Nothing is overdrawn."""
        figures = (self.cpu_milli, self.memory_bytes, self.pods, self.gpus)
        shared = all(used <= self.gpu_mib for used in self.devices.values())
        return shared and all(figure >= 0 for figure in figures) and all(held <= 1 for held in self.ports.values())


def _add_node(dice: Random, built: Cluster, index: int) -> NodeModel:
    gpus = dice.choice((2, 4, 4, 1, 0, 8))
    cpu = dice.choice((16, 8, 3))
    pods = dice.choice((110, 5, 2))
    gpu_memory = dice.choice((1000, 2050, 1000, None))
    tainted, cordoned = dice.choice((*[(False, False)] * 6, (True, False), (False, True)))
    name = f"node-{index}"
    built.node(
        name,
        gpus=gpus,
        cpu=cpu,
        memory="64Gi",
        pods=pods,
        gpu_memory=gpu_memory,
        taints=[TAINT] if tainted else [],
        unschedulable=cordoned,
    )
    mib = 100 if gpu_memory is None else gpu_memory - gpu_memory % 100
    return NodeModel(name, 1000 * cpu, 2**36, pods, gpus, mib, gpu_memory is not None, not cordoned, tainted)


def _place_on_random_node(
    dice: Random, rooms: list[NodeModel], ask: PodRequest, serial: int
) -> tuple[str, tuple[str, ...]] | None:
    """A node and devices for a pod that runs already, if it fits on the node drawn."""
    room = dice.choice(rooms)
    if ask.gpu_memory is not None and not room.memory_known:
        return None
    known = [device for device in sorted(room.devices) if room.fits(ask, (device,))]
    fresh = [f"{room.name}-gpu-{serial}-{index}" for index in range(ask.count)]
    devices = tuple((known + fresh)[: ask.count])
    if not room.fits(ask, devices):
        return None
    room.place(ask, devices)
    return room.name, devices


# Queues and groups


def _numbers(dice: Random) -> dict[str, Any]:
    cpu = dice.choice((*[(-1, -1, 1)] * 9, (2000, -1, 1), (0, 4000, 1), (1000, 2000, 0)))
    return {
        "quota": dice.choice((-1, 8, -1, 4, -1, 2, 1, 0.5, 0)),
        "limit": dice.choice((*[-1] * 12, 6, 3, 1, 0.5)),
        "weight": dice.choice((0, 1, 1, 3)),
        "cpu": cpu,
        "priority": dice.choice((None, None, 1, 200)),
        "age": dice.choice(AGES),
    }


def _add_queues(dice: Callable[[str], Random], built: Cluster, count: int) -> list[str]:
    """Queues of one to three levels; returns the leaves."""
    names = [f"q{index}" for index in range(count)]
    parents: dict[str, str] = {}
    depth: dict[str, int] = {}
    for index, name in enumerate(names):
        own = dice(f"queue {index}")
        above = ["", *(other for other in names[:index] if depth[other] < 2)]
        parents[name] = own.choice(above)
        depth[name] = depth[parents[name]] + 1 if parents[name] else 0
        built.queue(name, parent=parents[name], **_numbers(own))
    return [name for name in names if name not in parents.values()]


def _subgroups(dice: Random) -> tuple[list[Raw], list[str], int | None]:
    """Entries of spec.subGroups, the names of the leaves, and minSubGroup of the group."""
    entries: list[Raw] = []
    leaves: list[str] = []
    tops = 0
    for top in ("a", "b")[: dice.choice((2, 1))]:
        tops += 1
        if dice.random() < 0.5:
            entries.append({"name": top, "minMember": dice.choice((1, 2, 0))})
            leaves.append(top)
            continue
        entries.append({"name": top, **_maybe("minSubGroup", dice.choice((None, 0, 1)))})
        for number in range(1, 1 + dice.randint(1, 2)):
            name = f"{top}{number}"
            entries.append({"name": name, "parent": top, "minMember": dice.choice((1, 2, 0))})
            leaves.append(name)
    return entries, leaves, dice.choice((None, None, 0, 1, tops))


def _maybe(key: str, value: object) -> Raw:
    return {} if value is None else {key: value}


def _add_group(
    dice: Random,
    built: Cluster,
    name: str,
    queues: list[str],
    rooms: list[NodeModel],
    usual: list[PodRequest],
    leaving: bool,
) -> None:
    spec: Raw = {"priorityClassName": dice.choice(("", "low", "", "build"))}
    spec |= _maybe("preemptibility", dice.choice((None, None, "preemptible", "preemptible", "non-preemptible")))
    namespace = dice.choice(("default", "default", "other"))
    if dice.randrange(3) == 0:
        entries, leaves, needed = _subgroups(dice)
        spec |= {"subGroups": entries, **_maybe("minSubGroup", needed)}
    else:
        leaves = [""]
        spec["minMember"] = dice.choice((1, 2, 3, 0))
    queue = dice.choice(queues)
    built.group(name, namespace=namespace, queue=queue, age=dice.choice(AGES), **spec)
    ask = dice.choice(usual)
    tolerant = dice.random() < 0.5
    alike = "leaving" if leaving else dice.choice(("pending", "pending", "pending", ""))
    for leaf in leaves:
        for index in range(dice.choice((3, 2, 4, 1, 0))):
            if not alike:
                ask = random_request(dice)
            pod: dict[str, Any] = ask.as_pod()
            pod["spec"] = {"tolerations": [TOLERATION]} if tolerant else {}
            state = alike or dice.choice(("running", "pending", "running", "pending", "stuck", "gated"))
            if state == "gated":
                pod["spec"]["schedulingGates"] = [{"name": "wait"}]
            elif state != "pending":
                seat = _place_on_random_node(dice, rooms, ask, len(built.objects))
                if seat is not None:
                    pod["on"], pod["device"] = seat
                    pod |= {"running": {}, "leaving": {"deleted": 10}, "stuck": {"deleted": 1000}}[state]
            built.pod(
                f"{name}-{leaf}{index}",
                group=name,
                namespace=namespace,
                subgroup=leaf,
                memory="1Gi",
                age=dice.choice(AGES),
                **pod,
            )


@st.composite
def clusters(draw: st.DrawFn, *, most_nodes: int = 4, most_groups: int = 8) -> Cluster:
    """A small cluster with work running and waiting; its cycle allocates and is validated.

    Hypothesis draws how many of everything there are and a seed; every object is thrown with dice of its own, so that
    leaving one out does not change the others.
    """
    seed = draw(st.integers(0, 2**63 - 1))
    leaving, queue_count = draw(st.integers(0, 2)), draw(st.integers(1, 5))
    node_count, group_count = draw(st.integers(1, most_nodes)), draw(st.integers(2, most_groups))

    def dice(what: str) -> Random:
        return Random(f"{seed} {what}")

    built = cluster().priority_class("low", 10).priority_class("build", 100)
    rooms = [_add_node(dice(f"node {index}"), built, index) for index in range(node_count)]
    queues = _add_queues(dice, built, queue_count)
    # Groups with equal requests meet, and terminating pods have the size of waiting ones.
    usual = [random_request(dice(f"ask {index}")) for index in range(2)]
    for index in range(leaving + group_count):
        _add_group(dice(f"group {index}"), built, f"job{index}", queues, rooms, usual, index < leaving)
    return built


# Clusters under pressure

ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
PRIORITIES = {"low": 10, "": 50, "build": 100, "high": 125}


def _tight_queue(dice: Random) -> dict[str, Any]:
    """Numbers that are exceeded early."""
    times = {
        "preemptMinRuntime": dice.choice((*[None] * 6, "50s", "0s")),
        "reclaimMinRuntime": dice.choice((*[None] * 6, "50s", "5s")),
    }
    return {
        "quota": dice.choice((1, 2, 0, 1, 4, -1)),
        "limit": dice.choice((*[-1] * 12, 6, 4)),
        "weight": dice.choice((1, 1, 0, 3)),
        "cpu": dice.choice((*[(-1, -1, 1)] * 10, (4000, -1, 1))),
        "priority": dice.choice((None, None, None, 200)),
        "age": dice.choice(AGES),
        **{key: value for key, value in times.items() if value is not None},
    }


def _add_deep_queues(dice: Callable[[str], Random], built: Cluster, count: int, deep: bool) -> list[str]:
    """Queues of up to four levels, surely four if there are that many and they are to be deep; returns the leaves."""
    names = [f"q{index}" for index in range(count)]
    parents: dict[str, str] = {}
    depth: dict[str, int] = {}
    for index, name in enumerate(names):
        own = dice(f"queue {index}")
        above = ["", *(other for other in names[:index] if depth[other] < 3)]
        parents[name] = names[index - 1] if deep and 0 < index < 4 else own.choice(above)
        depth[name] = depth[parents[name]] + 1 if parents[name] else 0
        built.queue(name, parent=parents[name], **_tight_queue(own))
    return [name for name in names if name not in parents.values()]


def _tight_ask(dice: Random) -> PodRequest:
    return dice.choice(
        (
            PodRequest(1, 1),
            PodRequest(1, dice.choice((1, 2, 3))),
            PodRequest(0, fraction=dice.choice(("0.5", "0.25", "0.7")), devices=dice.choice((None, None, None, 2))),
            PodRequest(1, gpu_memory=dice.choice((500, 300))),
            PodRequest(dice.choice((1, 3)), port=dice.choice((0, 0, 80))),
        )
    )


def _place_all(dice: Random, rooms: list[NodeModel], ask: PodRequest, count: int, serial: int) -> list[Any] | None:
    """Nodes for so many pods, None (and nothing taken) when they do not fit."""
    before = [replace(room, devices=dict(room.devices), ports=room.ports.copy()) for room in rooms]
    seats: list[Any] = []
    for _ in range(6 * count):
        if len(seats) == count:
            break
        seat = _place_on_random_node(dice, rooms, ask, 100 * serial + len(seats))
        if seat is not None:
            seats.append(seat)
    if len(seats) == count:
        return seats
    rooms[:] = before
    return None


def _tight_spec(dice: Random) -> tuple[Raw, dict[str, int]]:
    """Spec and annotations of a group, and the minimum of every leaf."""
    kind = dice.choice((None, "preemptible", "preemptible", "preemptible", "non-preemptible", "semi-preemptible"))
    spec: Raw = {"priorityClassName": dice.choice(("", "", "low", "high", "build"))} | _maybe("preemptibility", kind)
    spec |= _maybe("preemptionDelay", dice.choice((*[None] * 8, "15s", "1h")))
    spec |= _maybe("stalenessGracePeriod", dice.choice((*[None] * 6, "0s", "-1s", "30s")))
    started = dice.choice((None, None, 10, 100))
    spec["annotations"] = {} if started is None else {LAST_START: timestamp_before(started)}
    if dice.randrange(4) == 0:
        entries, _, needed = _subgroups(dice)
        spec |= {"subGroups": entries, **_maybe("minSubGroup", needed)}
        return spec, {entry["name"]: entry["minMember"] for entry in entries if "minMember" in entry}
    spec["minMember"] = dice.choice((1, 1, 2, 3, 0))
    return spec, {"": spec["minMember"]}


def _add_tight_group(
    dice: Random, built: Cluster, name: str, queues: list[str], rooms: list[NodeModel], ask: PodRequest
) -> None:
    """A running group, if its name allows that and it fits; its surplus may wait."""
    spec, minimums = _tight_spec(dice)
    runs = not name.startswith("wait")
    lost = runs and dice.randrange(8) == 0
    surplus = dice.choice((0, 0, 1, 3))
    pods: list[tuple[str, str]] = []
    for leaf, minimum in minimums.items():
        alive = [(leaf, "running")] * (minimum - lost if minimum else 0)
        pods += [*alive, *[(leaf, dice.choice(("lost", "pending")))] * (minimum - len(alive))]
        pods += [(leaf, dice.choice(("running", "running", "pending")) if runs else "pending")] * surplus
    seated = sum(state == "running" for _, state in pods)
    seats = _place_all(dice, rooms, ask, seated, len(built.objects)) if runs else None
    if lost and seats is not None:
        spec["annotations"] |= dice.choice(
            ({}, {STALE_SINCE: timestamp_before(100)}, {STALE_SINCE: timestamp_before(45)})
        )
    leaving = dice.randrange(12) == 0
    built.group(name, queue=dice.choice(queues), age=dice.choice(AGES), **spec)
    tolerant = dice.randrange(4) > 0
    for index, (leaf, state) in enumerate(pods):
        pod: dict[str, Any] = ask.as_pod() | {"spec": {"tolerations": [TOLERATION]} if tolerant else {}}
        if ask.port:
            pod["spec"]["containers"] = ask.containers()
        if seats is not None and state == "running":
            pod["on"], pod["device"] = seats.pop()
            pod |= {"deleted": 10} if leaving else {}
        elif seats is not None and state == "lost":
            pod["phase"] = "Failed"
        built.pod(f"{name}-{leaf}{index}", group=name, subgroup=leaf, memory="1Gi", age=dice.choice(AGES), **pod)


def _fill(dice: Random, built: Cluster, room: NodeModel, queues: list[str]) -> None:
    """Elastic work on every GPU that is left of a node."""
    name, last = f"fill-{room.name}", min(room.gpus, room.pods, room.cpu_milli // 1000)
    if last <= 0 or not room.open:
        return
    kind = dice.choice(("preemptible", "preemptible", "semi-preemptible"))
    built.group(
        name,
        queue=dice.choice(queues),
        age=dice.choice(AGES),
        minMember=dice.choice((1, last)),
        priorityClassName=dice.choice(("", "low")),
        preemptibility=kind,
    )
    for index in range(last):
        room.place(PodRequest(1, 1), ())
        where: dict[str, Any] = {"on": room.name, "spec": {"tolerations": [TOLERATION]}}
        built.pod(f"{name}-{index}", group=name, gpu=1, memory="1Gi", age=dice.choice(AGES), **where)


@st.composite
def tight_clusters(draw: st.DrawFn, *, most_nodes: int = 3, most_running: int = 5, most_waiting: int = 4) -> Cluster:
    """A small cluster with more demand than capacity; its cycle runs all actions and is validated.

    Queues of up to four levels hold more than their quota, most nodes are full, and what waits has a claim, or a higher
    priority, or would fit if others moved together.
    """
    seed = draw(st.integers(0, 2**63 - 1))
    node_count, queue_count = draw(st.integers(1, most_nodes)), draw(st.integers(1, 6))
    running, waiting = draw(st.integers(1, most_running)), draw(st.integers(1, most_waiting))
    deep, filled = draw(st.booleans()), draw(st.booleans())

    def dice(what: str) -> Random:
        return Random(f"{seed} {what}")

    built = cluster().with_actions(*ACTIONS)
    for name, value in PRIORITIES.items():
        if name:
            built.priority_class(name, value)
    rooms = [_add_node(dice(f"node {index}"), built, index) for index in range(node_count)]
    queues = _add_deep_queues(dice, built, queue_count, deep)
    usual = [_tight_ask(dice(f"ask {index}")) for index in range(3)]
    for index in range(running + waiting):
        own = dice(f"group {index}")
        name = f"run{index}" if index < running else f"wait{index - running}"
        _add_tight_group(own, built, name, queues, rooms, own.choice(usual))
    if filled:
        for room in rooms:
            _fill(dice(f"fill {room.name}"), built, room, queues)
    return built


# The plain model


@dataclass(frozen=True)
class ModelPod:
    """A pod by its raw object."""

    key: str
    group: str
    leaf: str
    ask: PodRequest
    tolerant: bool
    #: pending, running, releasing, stuck, gated or failed
    state: str
    node: str
    devices: tuple[str, ...]
    #: older pods have smaller ones
    place: tuple[str, str]

    @property
    def active(self) -> bool:
        """Runs and keeps running."""
        return self.state == "running"


@dataclass(frozen=True)
class ModelQueue:
    """A queue by its raw object; -1 is unlimited."""

    parent: str
    #: CPU milli, GPU hundredths
    quota: tuple[float, float]
    limit: tuple[float, float]
    #: it has a minimum run time
    timed: bool


def _ask_of(raw: Raw) -> PodRequest:
    (container,) = raw["spec"]["containers"]
    requests = container["resources"]["requests"]
    notes = raw["metadata"]["annotations"]
    memory, devices = notes.get("gpu-memory"), notes.get("gpu-fraction-num-devices")
    return PodRequest(
        milli_value(requests.get("cpu", 0)) // 1000,
        unit_value(requests.get(GPU, 0)),
        notes.get("gpu-fraction"),
        int(memory) if memory else None,
        int(devices) if devices else None,
        next((port["hostPort"] for port in container.get("ports", ())), 0),
    )


def _pod_of(raw: Raw) -> ModelPod:
    meta, spec = raw["metadata"], raw["spec"]
    labels = meta["labels"]
    node = spec.get("nodeName", "")
    deleted = meta.get("deletionTimestamp")
    if node:
        # The clusters above delete pods either 10 or 1000 seconds before the cycle.
        state = "running" if deleted is None else "leaving" if deleted.endswith("23:59:50Z") else "stuck"
    else:
        state = "gated" if "schedulingGates" in spec else raw["status"]["phase"].lower()
    devices = [value for key, value in sorted(labels.items()) if key.startswith("runai-gpu-group")]
    return ModelPod(
        key=f"{meta['namespace']}/{meta['name']}",
        group=f"{meta['namespace']}/{meta['annotations']['pod-group-name']}",
        leaf=labels.get("kai.scheduler/subgroup-name", ""),
        ask=_ask_of(raw),
        tolerant="tolerations" in spec,
        state=state,
        node=node,
        devices=tuple(devices),
        place=(meta["creationTimestamp"], meta["uid"]),
    )


class Model:
    """The objects of a cluster, read with the simplest code that could be right."""

    def __init__(self, objects: Iterable[Raw]) -> None:
        of_kind: dict[str, list[Raw]] = {}
        for raw in objects:
            of_kind.setdefault(raw["kind"], []).append(raw)
        self._nodes = of_kind.get("Node", [])
        self.groups = {f"{g['metadata']['namespace']}/{g['metadata']['name']}": g for g in of_kind.get("PodGroup", [])}
        self.pods = {pod.key: pod for pod in map(_pod_of, of_kind.get("Pod", []))}
        self.queues = {raw["metadata"]["name"]: _queue_of(raw) for raw in of_kind.get("Queue", [])}

    def empty_nodes(self) -> dict[str, NodeModel]:
        """All nodes, empty."""
        return {raw["metadata"]["name"]: _node_model(raw) for raw in self._nodes}

    def nodes_after(
        self, placed: Iterable[Bind | Nominate], *, with_leaving: bool, without: Container[str] = ()
    ) -> dict[str, NodeModel]:
        """All nodes with what runs there and what is placed; terminating pods may be left out, and so may those
        that are named."""
        rooms = self.empty_nodes()
        reserved = {device for pod in self.pods.values() for device in pod.devices}
        for pod in self.pods.values():
            if pod.node and pod.key not in without and (with_leaving or pod.state != "leaving"):
                rooms[pod.node].place(pod.ask, pod.devices)
        for item in placed:
            rooms[item.node].place(self.pods[f"{item.namespace}/{item.pod}"].ask, item.gpu_groups, reserved)
        return rooms

    def chain(self, queue: str) -> list[str]:
        """A queue and its ancestors."""
        found = []
        while queue:
            found.append(queue)
            queue = self.queues[queue].parent
        return found

    def preemptible(self, group: str) -> bool:
        """Whether a group is preemptible."""
        spec = self.groups[group]["spec"]
        said = spec.get("preemptibility")
        return bool(said == "preemptible" if said else self.priority(group) < 100)

    def priority(self, group: str) -> int:
        """Priority of a group."""
        return PRIORITIES[self.groups[group]["spec"]["priorityClassName"]]

    def queue(self, group: str) -> str:
        """Leaf queue of a group."""
        return str(self.groups[group]["spec"]["queue"])

    def active(self, group: str) -> list[ModelPod]:
        """Pods of a group that run and will go on running, oldest first."""
        found = (pod for pod in self.pods.values() if pod.group == group and pod.active)
        return sorted(found, key=lambda pod: pod.place)

    def protected(self, group: str) -> set[str]:
        """Pods of a group that are not preemptible."""
        if self.preemptible(group):
            return set()
        running = self.active(group)
        if self.groups[group]["spec"].get("preemptibility") != "semi-preemptible":
            return {pod.key for pod in running}
        return {pod.key for pod in _protected(self.groups[group]["spec"], "", running)[1]}

    def spent(self, plan: Plan | None, *, committed: bool) -> dict[str, tuple[int, int]]:
        """CPU milli and GPU hundredths of every queue, of all work or only of what is not preemptible."""
        totals = dict.fromkeys(self.queues, (0, 0))
        rooms = self.empty_nodes()
        holders = [(pod, pod.node) for pod in self.pods.values() if pod.active]
        if plan is not None:
            gone = {f"{item.namespace}/{item.pod}" for item in plan.evictions}
            items: list[Bind | Nominate] = [*plan.binds, *plan.nominations]
            holders = [(pod, node) for pod, node in holders if pod.key not in gone]
            holders += [(self.pods[f"{item.namespace}/{item.pod}"], item.node) for item in items]
        for pod, node in holders:
            if committed and self.preemptible(pod.group):
                continue
            for queue in self.chain(self.queue(pod.group)):
                cpu, gpu = totals[queue]
                totals[queue] = (cpu + 1000 * pod.ask.cpu, gpu + pod.ask.hundredths(rooms[node]))
        return totals


def minimums(spec: Raw) -> dict[str, int]:
    """Leaf -> its minimum."""
    if not spec.get("subGroups"):
        return {"": spec["minMember"]}
    return {entry["name"]: entry["minMember"] for entry in spec["subGroups"] if "minMember" in entry}


def satisfied(spec: Raw, counts: Counter[str], entry: Raw | None = None) -> bool:
    """Whether so many pods per leaf make the group, or one subgroup of it, satisfied."""
    if entry is not None and "minMember" in entry:
        return bool(counts[entry["name"]] >= entry["minMember"])
    if entry is None and not spec.get("subGroups"):
        return bool(counts[""] >= spec["minMember"])
    name = "" if entry is None else entry["name"]
    below = [each for each in spec["subGroups"] if each.get("parent", "") == name]
    needed = (spec if entry is None else entry).get("minSubGroup", len(below))
    return sum(satisfied(spec, counts, each) for each in below) >= int(needed)


def _protected(spec: Raw, name: str, running: list[ModelPod]) -> tuple[bool, list[ModelPod]]:
    """Whether a subgroup is satisfied, and the least of its pods that satisfy it."""
    leaves = minimums(spec)
    if name in leaves:
        own = [pod for pod in running if pod.leaf == name]
        return len(own) >= leaves[name], own[: leaves[name]]
    below = [each for each in spec["subGroups"] if each.get("parent", "") == name]
    entry = next((each for each in spec["subGroups"] if each["name"] == name), spec)
    needed = entry.get("minSubGroup", len(below))
    parts = sorted((not _protected(spec, each["name"], running)[0], each["name"]) for each in below)[:needed]
    chosen = [pod for _, each in parts for pod in _protected(spec, each, running)[1]]
    return len(parts) == needed and not any(missing for missing, _ in parts), chosen


def _node_model(raw: Raw) -> NodeModel:
    offered, labels, spec = raw["status"]["allocatable"], raw["metadata"]["labels"], raw["spec"]
    label = labels.get("nvidia.com/gpu.memory")
    mib = 100 if label is None else int(label) - int(label) % 100
    return NodeModel(
        raw["metadata"]["name"],
        milli_value(offered["cpu"]),
        unit_value(offered["memory"]),
        unit_value(offered["pods"]),
        unit_value(offered.get(GPU, 0)),
        mib,
        label is not None,
        not spec["unschedulable"],
        bool(spec["taints"]),
    )


def _queue_of(raw: Raw) -> ModelQueue:
    resources = raw["spec"]["resources"]

    def pair(key: str) -> tuple[float, float]:
        cpu, gpu = resources["cpu"][key], resources["gpu"][key]
        return cpu, gpu if gpu == -1 else 100 * gpu

    timed = "preemptMinRuntime" in raw["spec"] or "reclaimMinRuntime" in raw["spec"]
    return ModelQueue(raw["spec"]["parentQueue"], pair("quota"), pair("limit"), timed)


# What was drawn

#: kind of cluster or of plan -> how many were drawn in this run
DRAWN: Counter[str] = Counter()
CLUSTER_KINDS = (
    "full",
    "over quota",
    "elastic",
    "fractional",
    "4 levels",
    "priorities",
    "preemptible",
    "non-preemptible",
    "semi-preemptible",
    "minSubGroup",
    "min run time",
    "preemption delay",
    "lost members",
    "host ports",
)
PLAN_KINDS = (
    "bound",
    "promised",
    "evicted",
    "moved",
    "reclaimed",
    "preempted",
    "consolidated",
    "stale",
)


def kinds_of(model: Model) -> set[str]:
    """What kind of cluster this is, in words of `CLUSTER_KINDS`."""
    rooms = [room for room in model.nodes_after((), with_leaving=True).values() if room.open]
    spent = model.spent(None, committed=False)
    found: set[str] = set()
    if any(room.gpus == 0 for room in rooms) and not any(room.gpus > 0 for room in rooms):
        found.add("full")
    if any(0 <= queue.quota[1] < spent[name][1] for name, queue in model.queues.items()):
        found.add("over quota")
    for group, raw in model.groups.items():
        spec, running = raw["spec"], model.active(group)
        counts = Counter(pod.leaf for pod in running)
        if len(model.chain(spec["queue"])) == 4:
            found.add("4 levels")
        if spec.get("preemptionDelay"):
            found.add("preemption delay")
        if not running:
            continue
        others = [other for other in model.groups if model.queue(other) == spec["queue"]]
        words = {
            "elastic": any(counts[leaf] > minimum for leaf, minimum in minimums(spec).items()),
            "fractional": any(pod.ask.shared for pod in running),
            "priorities": len({model.priority(other) for other in others}) > 1,
            "preemptible": model.preemptible(group),
            "semi-preemptible": spec.get("preemptibility") == "semi-preemptible",
            "non-preemptible": len(model.protected(group)) == len(running),
            "minSubGroup": "minSubGroup" in spec,
            "min run time": LAST_START in raw["metadata"].get("annotations", {})
            and any(model.queues[queue].timed for queue in model.chain(spec["queue"])),
            "lost members": not satisfied(spec, counts),
            "host ports": any(pod.ask.port for pod in running),
        }
        found |= {word for word, true in words.items() if true}
    return found


def outcomes_of(plan: Plan) -> set[str]:
    """What a plan does, in words of `PLAN_KINDS`."""
    actions = {item.action for item in plan.evictions}
    words = {
        "bound": bool(plan.binds),
        "promised": bool(plan.nominations),
        "evicted": bool(plan.evictions),
        "moved": any(item.moves_to for item in plan.evictions),
        "reclaimed": "reclaim" in actions,
        "preempted": "preempt" in actions,
        "consolidated": "consolidation" in actions,
        "stale": "stalegangeviction" in actions,
    }
    return {word for word, true in words.items() if true}
