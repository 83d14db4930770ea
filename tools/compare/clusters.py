"""Random clusters as raw Kubernetes objects, and the events between two cycles.

    cluster = Cluster(seed)
    cluster.objects()          # kind, namespace, name -> object
    cluster.move_on(plan)      # objects that changed or went, given the plan of the last cycle as JSON

The same seed and plans give the same objects. Nothing of PyKAI is imported, so that no change there changes what is
compared. Every cluster has a random mix of features, and more work than it can run: early work gets more than its
share, and later work has to reclaim it.
"""

from __future__ import annotations

import random
from typing import Any

from tools.compare.workloads import Workloads, stamp

Raw = dict[str, Any]
Key = tuple[str, str, str]

NOW_NS = 1_767_225_600_000_000_000
_FEATURES = (
    "fractions",
    "gpu memory",
    "devices",
    "numa",
    "topology",
    "mig",
    "constraints",
    "volumes",
    "spread",
    "subgroups",
    "semi",
    "oddities",
)


def key_of(raw: Raw) -> Key:
    """The key of an object."""
    return raw["kind"], raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


class Cluster:
    """One cluster: its current objects and their future."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"cluster {seed}")
        self.now_ns = NOW_NS
        self.held: dict[Key, Raw] = {}
        self.features = set(self.draw.sample(_FEATURES, self.draw.randint(3, 7)))
        if seed % 5 == 0:
            self.features |= {"devices"}
        self._changed: dict[Key, Raw | None] = {}
        self._nodes()
        self._queues()
        self._classes()
        self.work = Workloads(self)
        for _ in range(self.draw.randint(4, 9)):
            self.work.arrive(running=True)
        for _ in range(self.draw.randint(3, 8)):
            self.work.arrive()
        if "oddities" in self.features:
            self.work.odd_ones()

    def put(self, raw: Raw) -> None:
        """Create or change an object."""
        self.held[key_of(raw)] = raw
        self._changed[key_of(raw)] = raw

    def drop(self, key: Key) -> None:
        """Delete an object."""
        self.held.pop(key, None)
        self._changed[key] = None

    def of(self, kind: str) -> list[Raw]:
        """All objects of a kind, in the order they were made."""
        return [raw for key, raw in self.held.items() if key[0] == kind]

    def settings(self) -> Raw:
        """The scheduler's configuration and flags, as a snapshot file has them."""
        profile = "kubernetes" if self.features & {"spread", "volumes"} else ""
        config: Raw = {}
        if "numa" in self.features:
            names = [
                *("predicates", "proportion", "priority", "elastic", "nodeavailability", "gpusharingorder", "gpupack"),
                *("resourcetype", "subgrouporder", "taskorder", "nominatednode", "dynamicresources", "nodeplacement"),
                *("minruntime", "topology", "numa", "sg-nodelocalgreedy", "sg-multinodegang"),
            ]
            arguments = {"nodeplacement": {"cpu": "spread", "gpu": "binpack"}}
            plugins = [{"name": name, "arguments": arguments.get(name, {})} for name in names]
            config, profile = {"tiers": [{"plugins": plugins}]}, ""
        return {
            "config": config,
            "schedulerParams": {
                "detailedFitErrors": self.settled("detailed", 0.2),
                "maxNumberConsolidationPreemptees": -1 if self.settled("all move", 0.5) else 16,
                "allowConsolidatingReclaim": self.settled("consolidating reclaim", 0.7),
                "fullHierarchyFairness": self.settled("hierarchy", 0.9),
                "useSchedulingSignatures": self.settled("signatures", 0.8),
            },
            "pykai": {
                "freeRoomOnly": self.work.free_room_only,
                "flags": {"profile": profile, "honour-preemption-policy": self.settled("honour", 0.3)},
            },
        }

    def settled(self, name: str, chance: float) -> bool:
        """A choice for the whole life of the cluster."""
        return random.Random(f"{sorted(self.features)} {len(self.of('Node'))} {name}").random() < chance

    def _nodes(self) -> None:
        draw = self.draw
        zones, racks = draw.randint(1, 3), draw.randint(1, 3)
        for number in range(draw.randint(4, 9)):
            name = f"node-{number}"
            gpus = draw.choice((0, 2, 4, 4, 8, 8))
            labels = {
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": f"z{number % zones}",
                "example.com/rack": f"z{number % zones}-r{number % (zones * racks)}",
                "disk": draw.choice(("ssd", "hdd")),
            }
            amounts = {"cpu": str(draw.choice((8, 16, 32))), "memory": f"{draw.choice((32, 64, 128))}Gi", "pods": "30"}
            spec: Raw = {}
            if gpus and "mig" in self.features and draw.random() < 0.4:
                labels |= {"nvidia.com/mig.strategy": "mixed", "node-role.kubernetes.io/mig-enabled": "true"}
                amounts |= {"nvidia.com/mig-1g.10gb": "4", "nvidia.com/mig-2g.20gb": "2"}
                gpus = draw.choice((0, 2))
            if gpus and "devices" in self.features and draw.random() < 0.5:
                self._slice(name, gpus)
                gpus = 0
            if gpus:
                amounts["nvidia.com/gpu"] = str(gpus)
                labels |= {"nvidia.com/gpu.count": str(gpus), "nvidia.com/gpu.memory": str(draw.choice((16384, 40960)))}
            if "constraints" in self.features and draw.random() < 0.25:
                effect = draw.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
                spec["taints"] = [{"key": "team", "value": "a", "effect": effect}]
            if "numa" in self.features and draw.random() < 0.7:
                self._zones(name, amounts, gpus)
            conditions = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": amounts, "capacity": amounts, "conditions": conditions}
            self.put(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}
                | {"status": status}
            )
        if "topology" in self.features:
            labels_ = ("topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname")
            levels = [{"nodeLabel": label} for label in labels_]
            meta = {"name": "tree"}
            self.put(
                {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": meta}
                | {"spec": {"levels": levels}}
            )
        if "devices" in self.features:
            for name, spec_ in (
                ("gpu.example.com", {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}),
                ("extended", {"extendedResourceName": "example.com/gpu"}),
            ):
                self.put(
                    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}}
                    | {"spec": spec_}
                )

    def _slice(self, node: str, count: int) -> None:
        devices = [
            {
                "name": f"gpu-{number}",
                "attributes": {"model": {"string": "big" if number % 2 else "small"}, "index": {"int": number}},
                "capacity": {"memory": {"value": "40Gi" if number % 2 else "16Gi"}},
            }
            for number in range(count)
        ]
        spec = {
            "driver": "gpu.example.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        }
        meta = {"name": f"{node}-slice"}
        self.put({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec})

    def _zones(self, node: str, amounts: Raw, gpus: int) -> None:
        cpu = int(amounts["cpu"])
        each = {"cpu": str(cpu // 2), "memory": f"{int(amounts['memory'][:-2]) // 2}Gi"}
        if gpus:
            each["nvidia.com/gpu"] = str(gpus // 2)
        policy = self.draw.choice(("single-numa-node", "restricted", "best-effort"))
        scope = self.draw.choice(("pod", "container"))
        zones = [
            {
                "name": f"zone-{number}",
                "type": "Node",
                "resources": [
                    {"name": name, "capacity": text, "allocatable": text, "available": text}
                    for name, text in each.items()
                ],
            }
            for number in range(2)
        ]
        attributes = [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": scope},
        ]
        self.put(
            {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": node}}
            | {"attributes": attributes, "zones": zones}
        )

    def _queues(self) -> None:
        """Three levels: organisations, departments, teams."""
        gpus = sum(int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) for node in self.of("Node"))
        for org in range(self.draw.randint(1, 2)):
            self._queue(f"org-{org}", "", max(1, gpus // 2))
            for department in range(self.draw.randint(1, 2)):
                self._queue(f"dep-{org}{department}", f"org-{org}", max(1, gpus // 4))
                for team in range(self.draw.randint(1, 3)):
                    self._queue(f"team-{org}{department}{team}", f"dep-{org}{department}", max(0, gpus // 8))

    def _queue(self, name: str, parent: str, quota: int) -> None:
        draw = self.draw
        gpu = {
            "quota": draw.choice((0, quota, quota, quota, quota + 2, quota + 2, -1 if not parent else quota)),
            "limit": draw.choice((-1, -1, -1, -1, -1, -1, 2 * quota + 2)),
            "overQuotaWeight": draw.choice((0, 1, 1, 3)),
        }
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        cpu = draw.choice((free, free, free, free, {"quota": 8000, "limit": -1, "overQuotaWeight": 1}))
        spec: Raw = {"resources": {"gpu": gpu, "cpu": cpu, "memory": free}, "displayName": name.title()}
        if parent:
            spec["parentQueue"] = parent
        if draw.random() < 0.4:
            spec["priority"] = draw.choice((50, 100, 200))
        if draw.random() < 0.2:
            spec |= {"preemptMinRuntime": "90s", "reclaimMinRuntime": draw.choice(("30s", "10m"))}
        meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": stamp(NOW_NS - 10**14)}
        self.put({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": meta, "spec": spec})

    def teams(self) -> list[str]:
        """Leaf queues."""
        return [raw["metadata"]["name"] for raw in self.of("Queue") if raw["metadata"]["name"].startswith("team")]

    def _classes(self) -> None:
        for name, value in (("train", 50), ("build", 75), ("serve", 125)):
            raw: Raw = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            raw["value"] = value
            if name == "build" and self.draw.random() < 0.3:
                raw["preemptionPolicy"] = "Never"
            self.put(raw)

    def apply_decisions(self, plan: Raw) -> dict[Key, Raw | None]:
        """What changed since the last cycle: objects, None for those that are gone."""
        draw = self.draw
        self._changed = {}
        self.now_ns += draw.choice((1, 20, 70, 400)) * 1_000_000_000
        self.work.carry_out(plan)
        self.work.end_some()
        for _ in range(draw.randint(1, 4)):
            self.work.arrive()
        if draw.random() < 0.4:
            self._change_node(draw.choice(self.of("Node")))
        if draw.random() < 0.4:
            self._change_queue(draw.choice(self.of("Queue")))
        return self._changed

    def settle(self, plan: Raw) -> dict[Key, Raw | None]:
        """Carry out decisions at once, plus occasional events that decide nothing.

        Once there is nothing left to do, the plan of the last cycle holds.
        """
        self._changed = {}
        self.now_ns += 1_000_000_000
        self.work.carry_out(plan, at_once=True)
        running = [pod for pod in self.of("Pod") if pod["spec"].get("nodeName")]
        if running and self.draw.random() < 0.5:
            pod = self.draw.choice(running)
            labels = {**pod["metadata"]["labels"], "seen": str(self.now_ns)}
            self.put({**pod, "metadata": {**pod["metadata"], "labels": labels}})
        return self._changed

    def _change_node(self, node: Raw) -> None:
        spec, status = dict(node["spec"]), node["status"]
        if self.draw.random() < 0.7:
            spec["unschedulable"] = not spec.get("unschedulable", False)
        else:
            status = {**status, "conditions": [{"type": "Ready", "status": self.draw.choice(("True", "False"))}]}
        self.put({**node, "spec": spec, "status": status})

    def _change_queue(self, queue: Raw) -> None:
        gpu = queue["spec"]["resources"]["gpu"]
        changed = {**gpu, "quota": self.draw.choice((0, 2, 6)), "limit": self.draw.choice((-1, -1, 4))}
        resources = {**queue["spec"]["resources"], "gpu": changed}
        self.put({**queue, "spec": {**queue["spec"], "resources": resources}})
