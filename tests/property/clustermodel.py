"""A plain model of a cluster and of what a plan does to it.

`Model` reads raw objects with the simplest code that could be right and shares nothing with the engine: sums of plain
integers, one pod at a time.  A test applies plans to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pykai.api.quantity import milli_value, unit_value
from pykai.core.report.decisions import Bind, Nominate, Plan
from tests.core.builders import Raw, resource_list

GPU = "nvidia.com/gpu"
LAST_START, STALE_SINCE = "kai.scheduler/last-start-timestamp", "kai.scheduler/stale-podgroup-timestamp"


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


PRIORITIES = {"low": 10, "": 50, "build": 100, "high": 125}


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
        # Drawn clusters delete pods either 10 or 1000 seconds before the cycle.
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
