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
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from pykai.api import names
from pykai.api.decode import decode_object
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.request import PlacementRequest
from pykai.core.hooks import ALL_NODES
from pykai.core.model.shard import Shard
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.plan import build_plan
from pykai.core.policy import Policy
from pykai.core.report.decisions import FreeRoomOnly
from pykai.core.schedule import run_actions
from pykai.scheduler.config.configuration import default_configuration, read_configuration
from tests.core.devicebuilders import DeviceObjects, allocation_of, numa_record
from tests.core.gatheredobjects import NOW_NS, Raw, resource_list, timestamp_before
from tests.core.results import Result
from tests.core.storageobjects import StorageObjects
from tests.core.subgroupspecs import SubgroupSpec, branch, leaf, with_parents

#: what tests import from here
__all__ = [
    "NOW_NS",
    "Cluster",
    "Raw",
    "Result",
    "SubgroupSpec",
    "allocation_of",
    "branch",
    "cluster",
    "leaf",
    "numa_record",
    "placement_request_of",
    "resource_list",
    "scores_of",
    "timestamp_before",
]


class Cluster(StorageObjects, DeviceObjects):
    """Objects being gathered; every method returns the cluster itself."""

    def __init__(self) -> None:
        super().__init__()
        self.configuration: Raw | None = None
        self.policy_changes: dict[str, Any] = {}
        self.shard = Shard()
        self.assumed: dict[str, TaskStatus] = {}
        self.free_room_only_groups: dict[str, FreeRoomOnly] = {}
        self._nodes = 0

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
        for part, parent in with_parents(parts):
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
        for part, _ in with_parents(parts):
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

    def config_map(self, name: str, namespace: str = "default") -> Cluster:
        """A ConfigMap."""
        return self.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})

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
