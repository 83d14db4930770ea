"""The work of a random cluster: groups of pods that arrive, start, end, are evicted and come back.

Binds of a plan are carried out as a binder would: labels for shared GPUs, allocations of claims, NUMA records; some
stay BindRequests for a cycle.  Evicted pods leave at once or take their time, and come back as new pods.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any, Protocol

Raw = dict[str, Any]
Key = tuple[str, str, str]
GROUP_LABEL = "runai-gpu-group"


class Place(Protocol):
    """What this module needs from its cluster."""

    draw: random.Random
    now_ns: int
    held: dict[Key, Raw]
    features: set[str]

    def put(self, raw: Raw) -> None: ...
    def drop(self, key: Key) -> None: ...
    def of(self, kind: str) -> list[Raw]: ...
    def teams(self) -> list[str]: ...


def stamp(ns: int) -> str:
    """A timestamp as Kubernetes writes it."""
    return datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Workloads:
    """Groups of pods and their lives."""

    def __init__(self, cluster: Place) -> None:
        self._cluster = cluster
        self._count = 0
        #: groups whose binds have failed too often, as a snapshot file has them
        self.free_room_only: dict[str, Raw] = {}
        #: node -> GPUs and CPUs that pods running from the start may still have
        self._free = {
            node["metadata"]["name"]: [
                int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)),
                int(node["status"]["allocatable"]["cpu"]) - 1,
            ]
            for node in cluster.of("Node")
        }

    def arrive(self, *, running: bool = False) -> None:
        """One more group with its pods."""
        draw, features = self._cluster.draw, self._cluster.features
        self._count += 1
        name = f"job-{self._count}"
        namespace = draw.choice(("alpha", "beta"))
        pods = draw.choice((1, 1, 2, 3, 4, 6))
        spec: Raw = {
            "queue": draw.choice(self._cluster.teams()),
            "minMember": draw.choice((pods, pods, max(1, pods // 2), 1)),
            "priorityClassName": draw.choice(("train", "train", "build", "serve")),
        }
        choices = ["", "preemptible", "preemptible", "preemptible", "non-preemptible"]
        choices += ["semi-preemptible"] * 4 if "semi" in features else []
        if preemptibility := draw.choice(choices):
            spec["preemptibility"] = preemptibility
        if draw.random() < 0.1:
            spec |= {"preemptionDelay": "60s"} if draw.random() < 0.5 else {"schedulingBackoff": 1}
        if draw.random() < 0.1:
            spec["markUnschedulable"] = False
        annotations: dict[str, str] = {}
        kind = self._kind(running)
        subgroups: list[str] = []
        if "subgroups" in features and pods > 1 and draw.random() < 0.6:
            subgroups = self._subgroups(spec, pods)
        if "topology" in features and draw.random() < 0.6:
            spec["topologyConstraint"] = self._levels()
        created_ns = self._cluster.now_ns - draw.randint(1, 500) * 1_000_000_000
        if running:
            annotations["kai.scheduler/last-start-timestamp"] = stamp(self._cluster.now_ns - 60_000_000_000)
        if draw.random() < 0.08:
            annotations["kai.scheduler/stale-podgroup-timestamp"] = stamp(self._cluster.now_ns - 300_000_000_000)
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": stamp(created_ns)}
        self._cluster.put(
            {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": meta, "spec": spec}
            | {"metadata": {**meta, "annotations": annotations}}
        )
        extra = self._extra(name)
        role = draw.choice(("", "", "", "ray", "kubeflow", "priority"))
        for number in range(pods):
            pod = self._pod(f"{name}-{number}", namespace, name, kind, extra, created_ns)
            if subgroups:
                pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] = subgroups[number % len(subgroups)]
            pod["metadata"]["labels"] |= self._role(role, number)
            if running:
                self._run_from_the_start(pod, kind)
            elif draw.random() < 0.03:
                pod["spec"]["schedulingGates"] = [{"name": "wait"}]
            self._cluster.put(pod)

    def _role(self, role: str, number: int) -> dict[str, str]:
        """Labels that change the order of pods."""
        if role == "ray":
            return {"ray.io/node-type": "head" if number == 1 else "worker"}
        if role == "kubeflow":
            return {"training.kubeflow.org/job-role": "master" if number == 1 else "worker"}
        if role == "priority":
            return {"kai.scheduler/task-priority": ("1", "5", "high")[number % 3]}
        return {}

    def _kind(self, running: bool) -> Raw:
        """The requests of a group's pods."""
        draw, features = self._cluster.draw, self._cluster.features
        kinds: list[Raw] = [{"gpus": 1}, {"gpus": 1}, {"gpus": 2}, {"gpus": draw.choice((4, 8))}, {"cpu": 4}]
        if running:
            return draw.choice([*kinds[:3], {"cpu": 2}])
        if "fractions" in features:
            shares = ("0.25", "0.3", "0.5", "0.7")
            kinds += [{"fraction": draw.choice(shares)}] * 2 + [{"fraction": draw.choice(shares), "devices": 2}]
        if "gpu memory" in features:
            kinds += [{"memory": draw.choice((2000, 8000, 20000))}] * 2 + [{"memory": 4000, "devices": 2}]
        if "mig" in features:
            kinds += [{"mig": "nvidia.com/mig-1g.10gb"}] * 2 + [{"mig": "nvidia.com/mig-2g.20gb"}]
        if "devices" in features:
            kinds += [{"claims": 1}, {"claims": draw.choice((1, 2))}, {"extended": draw.choice((1, 2))}] * 2
        if "numa" in features:
            kinds += [{"gpus": draw.choice((0, 1, 2)), "cpu": draw.choice((2, 4, 6)), "guaranteed": True}] * 3
        return draw.choice(kinds)

    def _subgroups(self, spec: Raw, pods: int) -> list[str]:
        draw = self._cluster.draw
        names = ["a", "b"] if pods < 4 else ["a", "b", "c"]
        groups: list[Raw] = []
        for name in names:
            group: Raw = {"name": name, "minMember": 1 if draw.random() < 0.5 else max(1, pods // len(names))}
            if "topology" in self._cluster.features and draw.random() < 0.5:
                group["topologyConstraint"] = self._levels()
            groups.append(group)
        if draw.random() < 0.4:
            groups.insert(0, {"name": "upper", "minSubGroup": draw.choice((1, 2))})
            for group in groups[1:3]:
                group["parent"] = "upper"
        spec["subGroups"] = groups
        if draw.random() < 0.7:
            spec.pop("minMember")
        if draw.random() < 0.3:
            spec.pop("minMember", None)
            spec["minSubGroup"] = 1
        return names

    def _levels(self) -> Raw:
        draw = self._cluster.draw
        labels = ("topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname")
        found: Raw = {"topology": "tree" if draw.random() < 0.95 else "missing"}
        form = draw.randint(0, 2)
        if form != 1:
            found["requiredTopologyLevel"] = draw.choice(labels if draw.random() < 0.95 else ("no-such-level",))
        if form != 0:
            found["preferredTopologyLevel"] = draw.choice(labels)
        return found

    def _extra(self, name: str) -> Raw:
        """The constraints of a group's pods beside resources."""
        draw, features = self._cluster.draw, self._cluster.features
        spec: Raw = {}
        chance = 0.5 if "constraints" in features else 0.0
        if draw.random() < chance * 0.5:
            spec["nodeSelector"] = {"disk": draw.choice(("ssd", "hdd"))}
        if draw.random() < chance:
            effect = draw.choice(("NoSchedule", "NoExecute"))
            spec["tolerations"] = [{"key": "team", "operator": "Equal", "value": "a", "effect": effect}]
        affinity: Raw = {}
        if draw.random() < chance * 0.5:
            expression = {"key": "disk", "operator": draw.choice(("In", "NotIn")), "values": ["ssd"]}
            terms = [{"matchExpressions": [expression]}]
            affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        if draw.random() < chance * 0.6:
            word = draw.choice(("podAffinity", "podAntiAffinity", "podAntiAffinity"))
            key = draw.choice(("kubernetes.io/hostname", "topology.kubernetes.io/zone"))
            other = name if draw.random() < 0.7 else f"job-{draw.randint(1, self._count)}"
            term = {"labelSelector": {"matchLabels": {"job": other}}, "topologyKey": key}
            if draw.random() < 0.7:
                affinity[word] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            else:
                weighted = [{"weight": 50, "podAffinityTerm": term}]
                affinity[word] = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
        if affinity:
            spec["affinity"] = affinity
        if draw.random() < chance * 0.3:
            spec["port"] = draw.choice((8080, 9090))
        if draw.random() < chance * 0.3:
            spec["configMap"] = draw.choice(("present", "absent"))
        if "spread" in features and draw.random() < 0.5:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": draw.choice((1, 2)),
                    "topologyKey": draw.choice(("kubernetes.io/hostname", "topology.kubernetes.io/zone")),
                    "whenUnsatisfiable": draw.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": {"matchLabels": {"job": name}},
                }
            ]
        if "volumes" in features and draw.random() < 0.6:
            spec["volume"] = draw.choice(("bound", "waits", "waits", "missing"))
        return spec

    def _pod(self, name: str, namespace: str, group: str, kind: Raw, extra: Raw, created_ns: int) -> Raw:
        spec = {key: value for key, value in extra.items() if key not in ("port", "configMap", "volume")}
        annotations = {"pod-group-name": group}
        requests = {"cpu": str(kind.get("cpu", 1)), "memory": "1Gi"}
        limits: dict[str, str] = {}
        if kind.get("gpus"):
            limits["nvidia.com/gpu"] = str(kind["gpus"])
        if "mig" in kind:
            limits[kind["mig"]] = "1"
        if "extended" in kind:
            limits["example.com/gpu"] = str(kind["extended"])
        if "fraction" in kind:
            annotations["gpu-fraction"] = kind["fraction"]
        if "memory" in kind:
            annotations["gpu-memory"] = str(kind["memory"])
        if "devices" in kind:
            annotations["gpu-fraction-num-devices"] = str(kind["devices"])
        requests |= limits
        container: Raw = {"name": "main", "image": "example", "resources": {"requests": requests, "limits": limits}}
        status: Raw = {"phase": "Pending"}
        if kind.get("guaranteed"):
            container["resources"] = {"requests": requests, "limits": requests}
            status["qosClass"] = "Guaranteed"
        if "port" in extra:
            container["ports"] = [{"hostPort": extra["port"], "containerPort": 80, "protocol": "TCP"}]
        if "configMap" in extra:
            container["envFrom"] = [{"configMapRef": {"name": extra["configMap"]}}]
            if extra["configMap"] == "present":
                present = {"name": "present", "namespace": namespace}
                self._cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": present})
        if "volume" in extra:
            claim = self._volume(name, namespace, extra["volume"])
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        if "claims" in kind:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
            container["resources"]["claims"] = [{"name": "gpu"}]
            self._claim(f"{name}-gpu", namespace, kind["claims"], self._queue_of(namespace, group))
        meta: Raw = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": stamp(created_ns),
            "labels": {"job": group},
            "annotations": annotations,
        }
        spec |= {"schedulerName": "kai-scheduler", "containers": [container]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}

    def _queue_of(self, namespace: str, group: str) -> str:
        found = self._cluster.held.get(("PodGroup", namespace, group))
        return str(found["spec"]["queue"]) if found is not None else ""

    def _claim(self, name: str, namespace: str, count: int, queue: str) -> None:
        """A claim of devices; one without the label of its queue is refused."""
        draw = self._cluster.draw
        exactly: Raw = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": count}
        if draw.random() < 0.5:
            model = draw.choice(("big", "small"))
            text = f"device.attributes['gpu.example.com'].model == '{model}'"
            exactly["selectors"] = [{"cel": {"expression": text}}]
        devices = {"requests": [{"name": "r", "exactly": exactly}]}
        meta: Raw = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        if draw.random() < 0.9:
            meta["labels"] = {"kai.scheduler/queue": queue}
        self._cluster.put(
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta}
            | {"spec": {"devices": devices}, "status": {}}
        )

    def _volume(self, pod: str, namespace: str, form: str) -> str:
        name = f"{pod}-data"
        nodes = [node["metadata"]["name"] for node in self._cluster.of("Node")]
        common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow"}
        spec: Raw = {**common, "resources": {"requests": {"storage": "5Gi"}}}
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        status = {"phase": "Pending"}
        if form == "missing":
            return name
        waits = {"provisioner": "maker.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
        self._cluster.put(
            {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow"}, **waits}
        )
        if form == "bound":
            host = {"key": "kubernetes.io/hostname", "operator": "In", "values": [self._cluster.draw.choice(nodes)]}
            required = {"nodeSelectorTerms": [{"matchExpressions": [host]}]}
            claim = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
            volume: Raw = {**common, "capacity": {"storage": "5Gi"}, "claimRef": claim}
            volume["nodeAffinity"] = {"required": required}
            volume["csi"] = {"driver": "maker.example.com", "volumeHandle": name}
            made = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"pv-{name}"}, "spec": volume}
            self._cluster.put({**made, "status": {"phase": "Bound"}})
            spec["volumeName"], status = f"pv-{name}", {"phase": "Bound"}
            meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}  # type: ignore[assignment]
        made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
        self._cluster.put({**made, "status": status})
        return name

    def _run_from_the_start(self, pod: Raw, kind: Raw) -> None:
        """Give a pod a node that has room, if there is one."""
        draw = self._cluster.draw
        gpus, cpus = kind.get("gpus", 0), kind.get("cpu", 1)
        fitting = [name for name, (free, cpu) in self._free.items() if free >= gpus and cpu >= cpus]
        if not fitting:
            return
        node = draw.choice(fitting)
        self._free[node][0] -= gpus
        self._free[node][1] -= cpus
        pod["spec"]["nodeName"] = node
        pod["status"] = {**pod["status"], "phase": "Running"}
        pod["metadata"]["annotations"]["received-resource-type"] = "Regular"
        if draw.random() < 0.12:
            ago = draw.choice((5, 500)) * 1_000_000_000
            pod["metadata"]["deletionTimestamp"] = stamp(self._cluster.now_ns - ago)

    def odd_ones(self) -> None:
        """Objects that cannot be used as they are."""
        self.arrive()
        group = self._cluster.of("PodGroup")[-1]
        draw = self._cluster.draw
        for each in self._cluster.of("PodGroup")[-4:-1]:
            key = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
            self.free_room_only[key] = {"type": "FreeRoomOnly", "failures": 3, "cause": "the node refused"}
        wrong = draw.choice(({"queue": "nowhere"}, {"queue": "org-0"}, {"minMember": 50}))
        self._cluster.put({**group, "spec": {**group["spec"], **wrong}})
        lone = self._pod("lone", "alpha", "no-such-group", {"gpus": 1}, {}, self._cluster.now_ns)
        self._cluster.put(lone)
        stray = self._pod("stray", "beta", "job-1", {"gpus": 1}, {}, self._cluster.now_ns)
        stray["metadata"]["labels"]["kai.scheduler/subgroup-name"] = "unheard-of"
        self._cluster.put(stray)
        other = self._pod("foreign", "alpha", "", {"gpus": 1}, {}, self._cluster.now_ns)
        other["metadata"]["annotations"] = {}
        other["spec"]["schedulerName"] = "default-scheduler"
        self._run_from_the_start(other, {"gpus": 1})
        self._cluster.put(other)

    def carry_out(self, plan: Raw, *, at_once: bool = False) -> None:
        """Carry out binds and evictions of a plan, some later unless `at_once`; nominated pods keep waiting."""
        draw = self._cluster.draw
        for pod in self._cluster.of("Pod"):
            if pod["metadata"].get("deletionTimestamp") and draw.random() < (1.0 if at_once else 0.6):
                self._gone(pod)
        for request in self._cluster.of("BindRequest"):
            key = ("Pod", request["metadata"]["namespace"], request["spec"]["podName"])
            self._cluster.drop(("BindRequest", *key[1:]))
            if key in self._cluster.held and draw.random() < 0.8:
                self._start(self._cluster.held[key], request["spec"])
        for bind in plan["binds"]:
            bound = self._found(bind)
            if bound is None:
                continue
            request = _request(bind)
            if not at_once and draw.random() < 0.2:
                owner = {"apiVersion": "v1", "kind": "Pod", "name": bind["pod"], "uid": bind["uid"]}
                meta = {"name": bind["pod"], "namespace": bind["namespace"], "ownerReferences": [owner]}
                made = {"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest", "metadata": meta}
                self._cluster.put({**made, "spec": request, "status": {"phase": "Pending"}})
            else:
                self._start(bound, request)
        for eviction in plan["evictions"]:
            evicted = self._found(eviction)
            if evicted is None:
                continue
            if eviction["unbound"]:
                self._cluster.drop(("BindRequest", eviction["namespace"], eviction["pod"]))
            elif not at_once and draw.random() < 0.5:
                leaving = {**evicted["metadata"], "deletionTimestamp": stamp(self._cluster.now_ns)}
                self._cluster.put({**evicted, "metadata": leaving})
            else:
                self._gone(evicted)

    def _found(self, decision: Raw) -> Raw | None:
        """The pod of a decision, if it is still the same."""
        pod = self._cluster.held.get(("Pod", decision["namespace"], decision["pod"]))
        return pod if pod is not None and pod["metadata"]["uid"] == decision["uid"] else None

    def _start(self, pod: Raw, request: Raw) -> None:
        meta, labels = pod["metadata"], dict(pod["metadata"].get("labels") or {})
        groups = request.get("selectedGPUGroups") or []
        if len(groups) == 1:
            labels[GROUP_LABEL] = groups[0]
        for group in groups if len(groups) > 1 else ():
            labels[f"{GROUP_LABEL}/{group}"] = group
        annotations = {**meta["annotations"], "received-resource-type": request["receivedResourceType"]}
        if request.get("predictedNUMAZones"):
            annotations["kai.scheduler/numa-placement-predicted"] = json.dumps(request["predictedNUMAZones"])
        status = {**pod["status"], "phase": "Running"}
        for each in request.get("resourceClaimAllocations") or ():
            (named,) = [one for one in pod["spec"]["resourceClaims"] if one["name"] == each["name"]]
            self._reserve(pod, named["resourceClaimName"], each["allocation"])
        extended = request.get("extendedResourceClaimAllocation")
        if extended and extended.get("allocation"):
            name = f"{meta['name']}-extended"
            claim = {"name": name, "namespace": meta["namespace"], "uid": f"uid-{name}"}
            claim["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
            claim["ownerReferences"] = [{"kind": "Pod", "name": meta["name"], "uid": meta["uid"]}]
            devices = {"requests": extended.get("deviceRequests") or []}
            self._cluster.put(
                {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": claim}
                | {"spec": {"devices": devices}, "status": {}}
            )
            self._reserve(pod, name, extended["allocation"])
            status["extendedResourceClaimStatus"] = {"resourceClaimName": name}
        spec = {**pod["spec"], "nodeName": request["selectedNode"]}
        self._cluster.put(
            {**pod, "metadata": {**meta, "labels": labels, "annotations": annotations}, "spec": spec, "status": status}
        )

    def _reserve(self, pod: Raw, claim: str, allocation: Raw) -> None:
        held = self._cluster.held.get(("ResourceClaim", pod["metadata"]["namespace"], claim))
        if held is not None:
            user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            self._cluster.put({**held, "status": {"allocation": allocation, "reservedFor": [user]}})

    def _gone(self, pod: Raw, *, returns: bool = True) -> None:
        """The pod leaves; its owner creates another."""
        meta, spec = pod["metadata"], pod["spec"]
        namespace = meta["namespace"]
        self._cluster.drop(("Pod", namespace, meta["name"]))
        self._cluster.drop(("ResourceClaim", namespace, f"{meta['name']}-extended"))
        for each in spec.get("resourceClaims") or ():
            held = self._cluster.held.get(("ResourceClaim", namespace, each["resourceClaimName"]))
            if held is not None:
                self._cluster.put({**held, "status": {}})
        if not returns or spec["schedulerName"] != "kai-scheduler":
            return
        labels = {key: value for key, value in meta["labels"].items() if not key.startswith(GROUP_LABEL)}
        dropped = ("received-resource-type", "kai.scheduler/numa-placement-predicted")
        annotations = {key: value for key, value in meta["annotations"].items() if key not in dropped}
        fresh = {key: value for key, value in meta.items() if key != "deletionTimestamp"}
        fresh |= {"uid": f"{meta['uid']}x", "creationTimestamp": stamp(self._cluster.now_ns)}
        fresh |= {"labels": labels, "annotations": annotations}
        kept = {key: value for key, value in pod["status"].items() if key == "qosClass"}
        waiting = {key: value for key, value in spec.items() if key != "nodeName"}
        self._cluster.put({**pod, "metadata": fresh, "spec": waiting, "status": {**kept, "phase": "Pending"}})

    def end_some(self) -> None:
        """A few pods finish, a few are deleted."""
        draw = self._cluster.draw
        for pod in self._cluster.of("Pod"):
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
                chance = draw.random()
                if chance < 0.06:
                    self._cluster.put({**pod, "status": {**pod["status"], "phase": "Succeeded"}})
                elif chance < 0.10:
                    self._gone(pod, returns=chance < 0.08)


def _request(bind: Raw) -> Raw:
    """The spec of the BindRequest for a bind of a plan."""
    return {
        "podName": bind["pod"],
        "selectedNode": bind["node"],
        "receivedResourceType": bind["received_type"],
        "receivedGPU": {"count": bind["gpu_count"], "portion": bind["gpu_portion"]},
        "selectedGPUGroups": bind["gpu_groups"],
        "resourceClaimAllocations": [{"name": name, "allocation": given} for name, given in bind["claims"]],
        **({"extendedResourceClaimAllocation": bind["extended_claim"]} if bind["extended_claim"] else {}),
        "predictedNUMAZones": [{"zone": zone, "amount": dict(amounts)} for zone, amounts in bind["numa_zones"]],
    }
