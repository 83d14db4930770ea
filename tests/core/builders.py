"""A fluent builder for clusters.

    result = (
        cluster(nodes=2, gpus=8)
        .queue("team", quota=8)
        .gang("train", pods=4, gpu=2, queue="team")
        .schedule()
    )
    assert result.bound("train") == 4

Every run is validated: after each committed gang all sums are recomputed from the tasks (`Policy.validate`).  Nodes are
called node-0, node-1, ...; pods of a group are called <group>-0, <group>-1, ...  Names age in the order they are added
unless `age` says otherwise: a larger age (in seconds) is older.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from pykai.api import names
from pykai.api.decode import decode_object
from pykai.api.timestamp import format_timestamp
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.request import PlacementRequest
from pykai.core.hooks import ALL_NODES
from pykai.core.ledgers.claims.claimusers import HeldClaim
from pykai.core.ledgers.claims.ledger import ClaimLedger
from pykai.core.ledgers.numa.ledger import ZoneLedger
from pykai.core.ledgers.volumes.ledger import VolumeLedger
from pykai.core.model.shard import Shard
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.plan import build_plan
from pykai.core.policy import Policy
from pykai.core.report.decisions import Bind, Evict, FreeRoomOnly, Nominate, NoPlace, Plan, Unscheduled
from pykai.core.report.sentences import group_text
from pykai.core.schedule import run_actions
from pykai.scheduler.config.configuration import default_configuration, read_configuration

NOW_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
Raw = dict[str, Any]


def timestamp_before(age_s: float) -> str:
    """The timestamp `age_s` seconds before the cycle."""
    return format_timestamp(NOW_NS - int(age_s * 1e9))


def resource_list(
    cpu: str | int = 0, memory: str | int = 0, gpu: int = 0, extra: Mapping[str, str | int] | None = None
) -> dict[str, str]:
    """A resource list without zero entries."""
    amounts = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpu, **(extra or {})}
    return {name: str(amount) for name, amount in amounts.items() if amount not in (0, "0")}


def numa_record(zones: Mapping[str, Mapping[str, str | int]]) -> str:
    """A NUMA placement as annotations spell it: zone -> amounts."""
    listed = [{"zone": zone, "amount": {k: str(v) for k, v in amounts.items()}} for zone, amounts in zones.items()]
    return json.dumps(listed)


def allocation_of(node: str, *devices: str, driver: str = "gpu.example.com", request: str = "r") -> Raw:
    """What a claim has: devices of a node, in a pool called like it unless they say `pool/device`."""
    results = [
        {"request": request, "driver": driver, "pool": pool or node, "device": device}
        for pool, _, device in (each.rpartition("/") for each in devices)
    ]
    found: Raw = {"devices": {"results": results}}
    if node:
        pin = {"key": "metadata.name", "operator": "In", "values": [node]}
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [pin]}]}
    return found


@dataclass(frozen=True)
class SubgroupSpec:
    """A subgroup: a leaf with pods, or a branch with parts of its own."""

    name: str
    #: minMember or minSubGroup, None leaves the field out
    minimum: int | None
    parts: tuple[SubgroupSpec, ...] = ()
    running: int = 0
    pending: int = 0
    gated: int = 0
    #: how the pods of a leaf are, as `Cluster.pod` takes it
    pod: Raw = field(default_factory=dict)
    #: further fields of its entry as the wire spells them
    spec: Raw = field(default_factory=dict)


def leaf(
    name: str, minimum: int | None = 1, *, running: int = 0, pending: int = 0, gated: int = 0, **pod: Any
) -> SubgroupSpec:
    """A subgroup of pods; `minimum` is its minMember."""
    return SubgroupSpec(name, minimum, (), running, pending, gated, pod)


def branch(name: str, *parts: SubgroupSpec, needs: int | None = None) -> SubgroupSpec:
    """A subgroup of subgroups; `needs` is its minSubGroup."""
    return SubgroupSpec(name, needs, parts)


def _with_parents(parts: tuple[SubgroupSpec, ...], parent: str = "") -> Iterator[tuple[SubgroupSpec, str]]:
    for part in parts:
        yield part, parent
        yield from _with_parents(part.parts, part.name)


class Result:
    """A finished cycle, with queries for tests."""

    def __init__(self, cycle: Cycle, plan: Plan) -> None:
        self.cycle = cycle
        self.plan = plan
        self.binds = {f"{bind.namespace}/{bind.pod}": bind for bind in plan.binds}
        self.nominations = {f"{item.namespace}/{item.pod}": item for item in plan.nominations}
        self.evictions = {f"{item.namespace}/{item.pod}": item for item in plan.evictions}

    def _placed(self, pod: str, namespace: str) -> Bind | Nominate | None:
        key = f"{namespace}/{pod}"
        return self.binds.get(key) or self.nominations.get(key)

    def node_of(self, pod: str, namespace: str = "default") -> str:
        """Node a pod was bound or pipelined to, "" when it waits."""
        found = self._placed(pod, namespace)
        return found.node if found is not None else ""

    def bound_pods(self, group: str, namespace: str = "default") -> list[str]:
        """Names of the group's pods bound in this cycle, in the order they were bound."""
        return [bind.pod for bind in self.plan.binds if bind.group == f"{namespace}/{group}"]

    def bound(self, group: str, namespace: str = "default") -> int:
        """How many pods of the group were bound."""
        return len(self.bound_pods(group, namespace))

    def pipelined(self, group: str, namespace: str = "default") -> int:
        """How many pods of the group were pipelined."""
        return sum(item.group == f"{namespace}/{group}" for item in self.plan.nominations)

    def evicted_pods(self, group: str = "", namespace: str = "default") -> list[str]:
        """Names of pods evicted, moved ones included, in the order it was decided; of one group if it is named."""
        wanted = f"{namespace}/{group}" if group else ""
        return [item.pod for item in self.plan.evictions if not wanted or item.group == wanted]

    def evicted(self, group: str, namespace: str = "default") -> int:
        """How many pods of the group were evicted, moved ones included."""
        return len(self.evicted_pods(group, namespace))

    def eviction(self, pod: str, namespace: str = "default") -> Evict:
        """The eviction of a pod."""
        return self.evictions[f"{namespace}/{pod}"]

    def moved_to(self, pod: str, namespace: str = "default") -> str:
        """Node to which an evicted pod moves, "" when it has to wait."""
        return self.eviction(pod, namespace).moves_to

    def verdicts(self, group: str, namespace: str = "default") -> dict[str, str]:
        """Action -> why it took nothing back for the group, as the word of its rule."""
        record = self.unscheduled(group, namespace)
        return {verdict.action: verdict.rule for verdict in record.verdicts} if record is not None else {}

    def order(self) -> list[str]:
        """Names of the groups in the order their first pods were placed."""
        seen: dict[str, None] = {}
        for bind in self.plan.binds:
            seen.setdefault(bind.group.partition("/")[2])
        return list(seen)

    def nodes_used(self, group: str, namespace: str = "default") -> dict[str, int]:
        """Node -> number of the group's pods bound or pipelined there."""
        key = f"{namespace}/{group}"
        items: list[Bind | Nominate] = [*self.plan.binds, *self.plan.nominations]
        return dict(Counter(item.node for item in items if item.group == key))

    def devices_of(self, pod: str, namespace: str = "default") -> tuple[str, ...]:
        """Shared GPUs a pod was given."""
        found = self._placed(pod, namespace)
        return found.gpu_groups if found is not None else ()

    def zones_of(self, pod: str, namespace: str = "default") -> tuple[tuple[int, dict[str, int]], ...]:
        """NUMA zones a pod was given, with what it has of each in axis units."""
        moved = self.cycle.state.placements.get(f"{namespace}/{pod}")
        grants = moved.grants if moved is not None else ()
        contents: list[Any] = [grant.allocation for grant in grants if isinstance(grant.ledger, ZoneLedger)]
        return tuple((zone, dict(need)) for content in contents for zone, need in content)

    def allocated_devices(self, pod: str, namespace: str = "default") -> dict[str, list[str]]:
        """What the claims of a pod got, or were promised, by the pod's names for them: `pool/device`."""
        moved = self.cycle.state.placements.get(f"{namespace}/{pod}")
        found: dict[str, list[str]] = {}
        for grant in moved.grants if moved is not None else ():
            if isinstance(grant.ledger, ClaimLedger):
                contents: Any = grant.allocation
                ids = grant.ledger.inventory.ids
                for held in contents:
                    if isinstance(held, HeldClaim):
                        found[held.name] = [f"{ids[n].pool}/{ids[n].device}" for n in held.allocation.exclusive_devices]
        return found

    def volumes_of(self, pod: str, namespace: str = "default") -> list[str]:
        """Volumes chosen for a pod in this cycle, in the order of its claims by size."""
        moved = self.cycle.state.placements.get(f"{namespace}/{pod}")
        grants = moved.grants if moved is not None else ()
        contents: list[Any] = [grant.allocation for grant in grants if isinstance(grant.ledger, VolumeLedger)]
        return [share.volume for content in contents for share in content if share.volume]

    def unscheduled(self, group: str, namespace: str = "default") -> Unscheduled | None:
        """The record of a group with pods left waiting."""
        for item in self.plan.unscheduled:
            if item.namespace == namespace and item.group == group:
                return item
        return None

    def no_place(self, group: str, namespace: str = "default") -> NoPlace:
        """The only refusal of a group for which no node was found."""
        record = self.unscheduled(group, namespace)
        assert record is not None, f"{group} was placed"
        (refusal,) = record.refusals
        assert isinstance(refusal, NoPlace), refusal
        return refusal

    def node_reasons(self, group: str, namespace: str = "default") -> dict[str, int]:
        """Why nodes refused the group: reason -> number of nodes."""
        return {
            reason.replace("{pod}", self.no_place(group, namespace).pod): count
            for reason, count in self.no_place(group, namespace).nodes.items()
        }

    def why(self, group: str, namespace: str = "default") -> str:
        """Why pods of the group wait, as users read it; "" when none does."""
        record = self.unscheduled(group, namespace)
        return group_text(record) if record is not None else ""


class Cluster:
    """Objects being gathered; every method returns the cluster itself."""

    def __init__(self) -> None:
        self.objects: list[Raw] = []
        self.configuration: Raw | None = None
        self.policy_changes: dict[str, Any] = {}
        self.shard = Shard()
        self.assumed: dict[str, TaskStatus] = {}
        self.free_room_only_groups: dict[str, FreeRoomOnly] = {}
        self._nodes = 0
        self._age = 1_000_000.0

    def _older(self, age: float | None) -> str:
        if age is not None:
            return timestamp_before(age)
        self._age -= 1
        return timestamp_before(self._age)

    def add(self, *objects: Raw) -> Cluster:
        """Raw Kubernetes objects."""
        self.objects.extend(objects)
        return self

    def nodes(self, count: int, **how: Any) -> Cluster:
        """Several equal nodes."""
        for _ in range(count):
            self.node(**how)
        return self

    def node(
        self,
        name: str | None = None,
        *,
        gpus: int = 0,
        cpu: str | int = 100,
        memory: str | int = "1000Gi",
        pods: int = 110,
        gpu_memory: int | None = 1000,
        labels: Mapping[str, str] | None = None,
        taints: list[Raw] | None = None,
        conditions: Mapping[str, str] | None = None,
        unschedulable: bool = False,
        extra: Mapping[str, str | int] | None = None,
    ) -> Cluster:
        """One node; `gpu_memory` is the label in MiB, None leaves it out."""
        name = name or f"node-{self._nodes}"
        self._nodes += 1
        node_labels = {"kubernetes.io/hostname": name, **(labels or {})}
        if gpus and gpu_memory is not None:
            node_labels["nvidia.com/gpu.memory"] = str(gpu_memory)
        allocatable = resource_list(cpu, memory, gpus, {"pods": pods, **(extra or {})})
        return self.add(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": node_labels},
                "spec": {"unschedulable": unschedulable, "taints": taints or []},
                "status": {
                    "allocatable": allocatable,
                    "conditions": [
                        {"type": kind, "status": value}
                        for kind, value in {"Ready": "True", **(conditions or {})}.items()
                    ],
                },
            }
        )

    def queue(
        self,
        name: str,
        *,
        parent: str = "",
        quota: float = -1,
        limit: float = -1,
        weight: float = 1,
        cpu: tuple[float, float, float] = (-1, -1, 1),
        memory: tuple[float, float, float] = (-1, -1, 1),
        priority: int | None = None,
        age: float | None = None,
        display_name: str = "",
        labels: Mapping[str, str] | None = None,
        allowed: str | None = None,
        allowed_labels: str | None = None,
        **more: Any,
    ) -> Cluster:
        """A queue; quota, limit and weight are those of GPUs, `cpu` and `memory` are (quota, limit, weight), `allowed`
        names the namespaces that may use it, `allowed_labels` selects them, `more` are further fields of its spec as
        the wire spells them."""

        def block(numbers: tuple[float, float, float]) -> Raw:
            return {"quota": numbers[0], "limit": numbers[1], "overQuotaWeight": numbers[2]}

        spec: Raw = {
            "parentQueue": parent,
            "displayName": display_name,
            "resources": {"gpu": block((quota, limit, weight)), "cpu": block(cpu), "memory": block(memory)},
            **more,
        }
        if priority is not None:
            spec["priority"] = priority
        meta: Raw = {"name": name, "uid": name, "creationTimestamp": self._older(age), "labels": dict(labels or {})}
        access = {
            names.ALLOWED_NAMESPACES_ANNOTATION: allowed,
            names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: allowed_labels,
        }
        meta["annotations"] = {key: text for key, text in access.items() if text is not None}
        return self.add({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": meta, "spec": spec})

    def priority_class(self, name: str, value: int, *, default: bool = False, policy: str = "") -> Cluster:
        """A PriorityClass; `policy` is its preemptionPolicy."""
        return self.add(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "globalDefault": default,
                "preemptionPolicy": policy,
            }
        )

    def disruption_budget(
        self,
        name: str,
        allowed: int = 0,
        *,
        namespace: str = "default",
        desired: int = 0,
        generation: int = 1,
        **selector: Any,
    ) -> Cluster:
        """A PodDisruptionBudget that allows so many evictions; `selector` is as the wire spells it, all pods without,
        `generation` that of its spec, of which its controller has seen the first."""
        return self.add(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": namespace, "generation": generation},
                "spec": {"selector": selector},
                "status": {"disruptionsAllowed": allowed, "desiredHealthy": desired, "observedGeneration": 1},
            }
        )

    def group(
        self, name: str, *, namespace: str = "default", queue: str = "q", age: float | None = None, **spec: Any
    ) -> Cluster:
        """A PodGroup without pods; `spec` are fields of its spec as the wire spells them."""
        meta = {"name": name, "uid": name, "namespace": namespace, "creationTimestamp": self._older(age)}
        for place in ("annotations", "labels"):
            if place in spec:
                meta[place] = spec.pop(place)
        return self.add(
            {
                "apiVersion": "scheduling.run.ai/v2alpha2",
                "kind": "PodGroup",
                "metadata": meta,
                "spec": {"queue": queue, **spec},
            }
        )

    def pod(
        self,
        name: str,
        *,
        group: str = "",
        namespace: str = "default",
        cpu: str | int = 1,
        memory: str | int = "1Gi",
        gpu: int = 0,
        fraction: float | str | None = None,
        gpu_memory: int | str | None = None,
        devices: int | str | None = None,
        on: str = "",
        device: str | tuple[str, ...] = (),
        phase: str | None = None,
        subgroup: str = "",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        age: float | None = None,
        deleted: float | None = None,
        extra: Mapping[str, str | int] | None = None,
        scheduler: str = "kai-scheduler",
        nominated: str = "",
        spec: Raw | None = None,
        uid: str | None = None,
        qos: str = "",
        numa: Mapping[str, Mapping[str, str | int]] | None = None,
        claims: tuple[str, ...] = (),
        ephemeral: tuple[str, ...] = (),
        template: int | list[Raw] | None = None,
        given: tuple[str, ...] = (),
        shares: tuple[str, ...] = (),
    ) -> Cluster:
        """A pod.  `on` puts it on a node (Running unless `phase`), `device` on shared GPUs there, `deleted` is how many
        seconds ago its deletion ended; `spec` is merged into the spec as the wire spells it; `qos` is
        its QoS class, `numa` what the exporter saw it hold: zone -> amounts; `claims` are the volume claims it uses,
        `ephemeral` those made for it alone; `template` makes it a claim of so many GPUs (or of these requests), of
        which it has the devices `given`, and `shares` are claims of devices it names."""
        pod_annotations = dict(annotations or {})
        if numa is not None:
            pod_annotations["kai.scheduler/numa-placement-observed"] = numa_record(numa)
        pod_labels = dict(labels or {})
        if group:
            pod_annotations["pod-group-name"] = group
        for key, value in (
            ("gpu-fraction", fraction),
            ("gpu-memory", gpu_memory),
            ("gpu-fraction-num-devices", devices),
        ):
            if value is not None:
                pod_annotations[key] = str(value)
        on_devices = (device,) if isinstance(device, str) else device
        if len(on_devices) == 1:
            pod_labels["runai-gpu-group"] = on_devices[0]
        for one in on_devices if len(on_devices) > 1 else ():
            pod_labels[f"runai-gpu-group/{one}"] = one
        if subgroup:
            pod_labels["kai.scheduler/subgroup-name"] = subgroup
        meta: Raw = {
            "name": name,
            "uid": uid or name,
            "namespace": namespace,
            "labels": pod_labels,
            "annotations": pod_annotations,
            "creationTimestamp": self._older(age),
        }
        if deleted is not None:
            meta["deletionTimestamp"] = timestamp_before(deleted)
        body: Raw = {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "resources": {"requests": resource_list(cpu, memory, gpu, extra)}}],
            **(spec or {}),
        }
        volumes: list[Raw] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
        volumes += [{"name": each, "ephemeral": {}} for each in ephemeral]
        if volumes:
            body["volumes"] = [*body.get("volumes", ()), *volumes]
        if on:
            body["nodeName"] = on
        status: Raw = {"phase": phase or ("Running" if on else "Pending")}
        if nominated:
            status["nominatedNodeName"] = nominated
        if qos:
            status["qosClass"] = qos
        entries: list[Raw] = [{"name": each, "resourceClaimName": each} for each in shares]
        if template is not None:
            made = f"{name}-devices"
            entries.append({"name": "devices", "resourceClaimTemplateName": "template"})
            status["resourceClaimStatuses"] = [{"name": "devices", "resourceClaimName": made}]
            wanted = {"count": template} if isinstance(template, int) else {"requests": template}
            held: Raw = {"given": given, "on": on, "users": (meta["uid"],)} if given else {}
            self.device_claim(made, owner=meta["uid"], namespace=namespace, **wanted, **held)
        if entries:
            body["resourceClaims"] = [*body.get("resourceClaims", ()), *entries]
        return self.add({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body, "status": status})

    def gang(
        self,
        name: str,
        pods: int = 1,
        *,
        min: int | None = None,
        queue: str = "q",
        namespace: str = "default",
        priority: str = "",
        preemptible: bool | None = True,
        age: float | None = None,
        group_spec: Raw | None = None,
        **pod: Any,
    ) -> Cluster:
        """A PodGroup with equal pods; `min` is minMember (all pods unless given), the rest describes a pod."""
        spec: Raw = {"minMember": pods if min is None else min, "priorityClassName": priority, **(group_spec or {})}
        if preemptible is not None:
            spec["preemptibility"] = "preemptible" if preemptible else "non-preemptible"
        self.group(name, namespace=namespace, queue=queue, age=age, **spec)
        for index in range(pods):
            self.pod(f"{name}-{index}", group=name, namespace=namespace, **pod)
        return self

    def tree(
        self,
        name: str,
        *parts: SubgroupSpec,
        needs: int | None = None,
        on: str = "node-0",
        queue: str = "q",
        namespace: str = "default",
        age: float | None = None,
        group_spec: Raw | None = None,
        **pod: Any,
    ) -> Cluster:
        """A preemptible PodGroup with subgroups; `needs` is minSubGroup, running pods are on the node `on`.

        Pods of a leaf are called <group>-<leaf>-0, ..., first the running, then the pending, then the gated ones.
        """
        entries: list[Raw] = []
        for part, parent in _with_parents(parts):
            entry: Raw = {"name": part.name}
            if parent:
                entry["parent"] = parent
            if part.minimum is not None:
                entry["minSubGroup" if part.parts else "minMember"] = part.minimum
            entries.append({**entry, **part.spec})
        spec: Raw = {"preemptibility": "preemptible", "subGroups": entries, **(group_spec or {})}
        if needs is not None:
            spec["minSubGroup"] = needs
        self.group(name, namespace=namespace, queue=queue, age=age, **spec)
        gates: Raw = {"schedulingGates": [{"name": "wait"}]}
        for part, _ in _with_parents(parts):
            for index in range(part.running + part.pending + part.gated):
                how: Raw = {"group": name, "namespace": namespace, "subgroup": part.name, **pod, **part.pod}
                if index < part.running:
                    how["on"] = on
                elif index >= part.running + part.pending:
                    how["spec"] = gates
                self.pod(f"{name}-{part.name}-{index}", **how)
        return self

    def bind_request(
        self,
        pod: str,
        node: str,
        *,
        name: str | None = None,
        namespace: str = "default",
        devices: tuple[str, ...] = (),
        phase: str = "",
        attempts: int = 0,
        backoff: int | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        numa: Mapping[str, Mapping[str, str | int]] | None = None,
        claims: Mapping[str, Raw] | None = None,
        extended_claim: Raw | None = None,
    ) -> Cluster:
        """A BindRequest of a pod to a node, under the pod's name by default; `owner` is the uid of its owner, `claims`
        what it gives to the pod's claims and `extended_claim` to the one behind its extended resources."""
        owners = [] if owner is None else [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": owner}]
        spec: Raw = {"podName": pod, "selectedNode": node, "selectedGPUGroups": list(devices)}
        if backoff is not None:
            spec["backoffLimit"] = backoff
        if numa is not None:
            spec["predictedNUMAZones"] = json.loads(numa_record(numa))
        if claims is not None:
            spec["resourceClaimAllocations"] = [{"name": key, "allocation": item} for key, item in claims.items()]
        if extended_claim is not None:
            spec["extendedResourceClaimAllocation"] = {"allocation": extended_claim}
        return self.add(
            {
                "apiVersion": "scheduling.run.ai/v1alpha2",
                "kind": "BindRequest",
                "metadata": {
                    "name": name or pod,
                    "namespace": namespace,
                    "labels": dict(labels or {}),
                    "ownerReferences": owners,
                },
                "spec": spec,
                "status": {"phase": phase, "failedAttempts": attempts},
            }
        )

    def zones(
        self,
        node: str,
        *zones: Mapping[str, str | int],
        policy: str = "single-numa-node",
        scope: str = "pod",
        available: tuple[Mapping[str, str | int], ...] | None = None,
    ) -> Cluster:
        """The NUMA zones of a node, zone-0, zone-1, ...: what each may give and, if it differs, what is left of it."""
        left = zones if available is None else available
        return self.add(
            {
                "apiVersion": "topology.node.k8s.io/v1alpha2",
                "kind": "NodeResourceTopology",
                "metadata": {"name": node},
                "attributes": [
                    {"name": "topologyManagerPolicy", "value": policy},
                    {"name": "topologyManagerScope", "value": scope},
                ],
                "zones": [
                    {
                        "name": f"zone-{number}",
                        "type": "Node",
                        "resources": [
                            {"name": name, "allocatable": str(amount), "available": str(left[number].get(name, 0))}
                            for name, amount in zone.items()
                        ],
                    }
                    for number, zone in enumerate(zones)
                ],
            }
        )

    def config_map(self, name: str, namespace: str = "default") -> Cluster:
        """A ConfigMap."""
        return self.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})

    def storage_class(
        self,
        name: str = "fast",
        *,
        provisioner: str = "kubernetes.io/no-provisioner",
        waits: bool = True,
        zones: tuple[str, ...] = (),
    ) -> Cluster:
        """A StorageClass, of existing volumes unless it has a provisioner; `zones` where it may provision."""
        terms = [{"matchLabelExpressions": [{"key": "zone", "values": list(zones)}]}] if zones else []
        return self.add(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
                "allowedTopologies": terms,
            }
        )

    def volume(
        self,
        name: str,
        *,
        size: str | int = "10Gi",
        on: str | tuple[str, ...] = (),
        zone: str = "",
        of: str | None = "fast",
        claim: str = "",
        claim_uid: str = "",
        phase: str | None = None,
        modes: tuple[str, ...] = ("ReadWriteOnce",),
        labels: Mapping[str, str] | None = None,
        driver: str = "",
        deleted: bool = False,
        namespace: str = "default",
        **spec: Any,
    ) -> Cluster:
        """A PersistentVolume of class `of` that the nodes `on` reach (or those of a zone, or all), kept for or bound to
        `claim`; `spec` are further fields as the wire spells them."""
        meta: Raw = {"name": name, "labels": dict(labels or {})}
        if deleted:
            meta["deletionTimestamp"] = timestamp_before(10)
        body: Raw = {"capacity": {"storage": size}, "accessModes": list(modes), "storageClassName": of or "", **spec}
        nodes = (on,) if isinstance(on, str) else on
        if nodes or zone:
            key, values = ("kubernetes.io/hostname", list(nodes)) if nodes else ("zone", [zone])
            term = {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}
            body["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        if claim:
            body["claimRef"] = {"name": claim, "namespace": namespace, "uid": claim_uid}
        if driver:
            body["csi"] = {"driver": driver, "volumeHandle": name}
        status = {"phase": phase or ("Bound" if claim else "Available")}
        return self.add(
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": body, "status": status}
        )

    def claim(
        self,
        name: str,
        *,
        size: str | int = "5Gi",
        of: str | None = "fast",
        bound_to: str = "",
        selected_node: str = "",
        phase: str | None = None,
        modes: tuple[str, ...] = ("ReadWriteOnce",),
        deleted: bool = False,
        owner: str = "",
        annotations: Mapping[str, str] | None = None,
        namespace: str = "default",
        uid: str = "",
        **spec: Any,
    ) -> Cluster:
        """A PersistentVolumeClaim of class `of`, bound to a volume or waiting; `owner` is the uid of the pod it was
        made for, `spec` are further fields as the wire spells them."""
        notes = dict(annotations or {})
        if bound_to:
            notes["pv.kubernetes.io/bind-completed"] = "yes"
        if selected_node:
            notes["volume.kubernetes.io/selected-node"] = selected_node
        meta: Raw = {"name": name, "namespace": namespace, "uid": uid or name, "annotations": notes}
        if deleted:
            meta["deletionTimestamp"] = timestamp_before(10)
        if owner:
            meta["ownerReferences"] = [{"kind": "Pod", "uid": owner, "controller": True}]
        body: Raw = {
            "accessModes": list(modes),
            "resources": {"requests": {"storage": size}},
            "volumeName": bound_to,
            **spec,
        }
        if of is not None:
            body["storageClassName"] = of
        status = {"phase": phase or ("Bound" if bound_to else "Pending")}
        return self.add(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": body, "status": status}
        )

    def csi_driver(self, name: str, *, tells_capacity: bool = True) -> Cluster:
        """A CSIDriver."""
        spec = {"storageCapacity": tells_capacity}
        return self.add(
            {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name}, "spec": spec}
        )

    def csi_node(self, name: str, **most: int | None) -> Cluster:
        """A CSINode: how many volumes each driver attaches there at most, None for any number."""
        drivers = [
            {"name": driver, "allocatable": None if count is None else {"count": count}}
            for driver, count in most.items()
        ]
        spec = {"drivers": drivers}
        return self.add(
            {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": spec}
        )

    def storage_capacity(
        self,
        name: str,
        *,
        of: str = "fast",
        room: str | int | None = "10Gi",
        largest: str | int | None = None,
        on: str = "",
        zone: str = "",
        nowhere: bool = False,
    ) -> Cluster:
        """A CSIStorageCapacity for one node, one zone, or all nodes; `nowhere` leaves the topology out."""
        labels = {"kubernetes.io/hostname": on} if on else {"zone": zone} if zone else {}
        return self.add(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIStorageCapacity",
                "metadata": {"name": name, "namespace": "csi"},
                "storageClassName": of,
                "nodeTopology": None if nowhere else {"matchLabels": labels},
                "capacity": room,
                "maximumVolumeSize": largest,
            }
        )

    def device_class(self, name: str, *selectors: str, age: float | None = None, **spec: Any) -> Cluster:
        """A DeviceClass with CEL selectors; `spec` are further fields as the wire spells them."""
        rules = [{"cel": {"expression": text}} for text in selectors]
        meta = {"name": name, "creationTimestamp": self._older(age)}
        return self.add(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": meta,
                "spec": {"selectors": rules, **spec},
            }
        )

    def slice(
        self,
        node: str,
        devices: int | list[Raw] = 1,
        *,
        name: str = "",
        driver: str = "gpu.example.com",
        pool: str = "",
        generation: int = 1,
        of: int = 1,
        **spec: Any,
    ) -> Cluster:
        """A ResourceSlice: devices gpu-0, gpu-1, ... (or these) that one node reaches; `of` is how many slices the pool
        has, `spec` are further fields as the wire spells them."""
        listed = [{"name": f"gpu-{number}"} for number in range(devices)] if isinstance(devices, int) else devices
        where: Raw = {"nodeName": node} if node else {}
        body = {"driver": driver, "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": of}}
        meta = {"name": name or f"{pool or node}-{driver}"}
        return self.add(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": meta,
                "spec": {**body, **where, "devices": listed, **spec},
            }
        )

    def device_claim(
        self,
        name: str,
        *,
        count: int = 1,
        of: str = "gpu",
        requests: list[Raw] | None = None,
        given: tuple[str, ...] = (),
        on: str = "",
        users: tuple[str, ...] = (),
        owner: str = "",
        queue: str | None = None,
        namespace: str = "default",
        deleted: bool = False,
        annotations: Mapping[str, str] | None = None,
        driver: str = "gpu.example.com",
        **devices: Any,
    ) -> Cluster:
        """A ResourceClaim of `count` devices of the class `of`, or of these requests; it has the devices `given` of the
        node `on` and is reserved for the pods `users`; `owner` is the uid of the pod it was made for."""
        meta: Raw = {"name": name, "namespace": namespace, "uid": name, "annotations": dict(annotations or {})}
        if owner:
            meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "uid": owner, "controller": True}]
        if queue is not None:
            meta["labels"] = {"kai.scheduler/queue": queue}
        if deleted:
            meta["deletionTimestamp"] = timestamp_before(10)
        exactly = {"deviceClassName": of, "allocationMode": "ExactCount", "count": count}
        wanted = requests if requests is not None else [{"name": "r", "exactly": exactly}]
        status: Raw = {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in users]}
        if given:
            status["allocation"] = allocation_of(on, *given, driver=driver)
        return self.add(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": meta,
                "spec": {"devices": {"requests": wanted, **devices}},
                "status": status,
            }
        )

    def namespace(self, name: str, **labels: str) -> Cluster:
        """A Namespace with labels."""
        return self.add({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def configured(self, configuration: Raw) -> Cluster:
        """Use this scheduler configuration instead of the built-in one."""
        self.configuration = configuration
        return self

    def with_actions(self, *actions: str) -> Cluster:
        """Run these actions instead of allocate."""
        return self.with_policy(actions=actions)

    def with_policy(self, **changes: Any) -> Cluster:
        """Change fields of the policy (queue_depth, usage, reuse_failures, ...)."""
        self.policy_changes.update(changes)
        return self

    def sharded(self, **changes: Any) -> Cluster:
        """Change fields of the shard (node_pool, restrict_nodes, ...)."""
        self.shard = replace(self.shard, **changes)
        return self

    def assume(self, pod: str, status: TaskStatus, namespace: str = "default") -> Cluster:
        """Force the state of a pod."""
        self.assumed[f"{namespace}/{pod}"] = status
        return self

    def free_room_only(self, group: str, why: FreeRoomOnly, namespace: str = "default") -> Cluster:
        """Let a group use free resources only."""
        self.free_room_only_groups[f"{namespace}/{group}"] = why
        return self

    def tables(self) -> Tables:
        """The tables of this cluster."""
        tables = Tables(self.shard, [decode_object(raw) for raw in self.objects])
        for key, status in self.assumed.items():
            tables.assume(key, status)
        for key, why in self.free_room_only_groups.items():
            tables.set_free_room_only(key, why)
        return tables

    def policy(self) -> Policy:
        """The policy of this cluster: allocate only, validated."""
        found = default_configuration() if self.configuration is None else read_configuration(self.configuration)
        return replace(found.policy, **{"actions": ("allocate",), "validate": True, **self.policy_changes})

    def cycle(self) -> Cycle:
        """A cycle before its actions ran."""
        return open_cycle(self.tables().snapshot(NOW_NS), self.policy())

    def schedule(self) -> Result:
        """Run one cycle."""
        cycle = self.cycle()
        run_actions(cycle)
        return Result(cycle, build_plan(cycle))


def cluster(nodes: int = 0, **node: Any) -> Cluster:
    """A cluster, to begin with of equal nodes."""
    return Cluster().nodes(nodes, **node)


def placement_request_of(cycle: Cycle, pod: str, namespace: str = "default") -> PlacementRequest:
    """A waiting pod as the placement hooks of a cycle see it."""
    task = cycle.context.snapshot.task_records[f"{namespace}/{pod}"]
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[task.group_key])
    return PlacementRequest(
        task, gang, gang.leaves[gang.group.leaf_index[task.subgroup]], cycle.context.snapshot.vectors[task.shape]
    )


def scores_of(cycle: Cycle, pod: str, namespace: str = "default") -> dict[str, float]:
    """Node -> score of a waiting pod, for the nodes that fit."""
    ranking = cycle.rankings.ranking_for(cycle.state, placement_request_of(cycle, pod, namespace), ALL_NODES)
    scores = zip(cycle.context.snapshot.nodes.names, ranking.scores.tolist(), strict=True)
    return {node: score for node, score in scores if score != -inf}
