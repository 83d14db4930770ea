"""With or without plan reuse, on incremental or rebuilt tables, decisions are equal byte by byte.

What happens between cycles is of every kind: things that mean nothing (conditions, notes), things that mean nothing to
waiting work (labels of running pods, equal pods that replace each other), things that change a sum, and things
that change everything.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from pykai.api import names
from pykai.api.decode import decode_object
from pykai.api.duration import SECOND
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.memory import CycleMemory
from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import Plan
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, Raw, cluster
from tests.property.clusters import clusters, tight_clusters

#: Seconds between cycles: those of the rules about time in the clusters, and some between.
PAUSES = (0.0, 0.0, 0.0, 1.0, 5.0, 15.0, 30.0, 40.0, 120.0, 4000.0)
Key = tuple[str, str, str]


def key_of(raw: Raw) -> Key:
    """Kind, namespace and name of an object."""
    return (raw["kind"], raw["metadata"].get("namespace", ""), raw["metadata"]["name"])


def reservation(name: str, node: str, device: str) -> Raw:
    """A reservation pod, with or without a group."""
    labels = {"app": "kai-resource-reservation"}
    pod = cluster().pod(name, cpu=0, gpu=1, on=node, device=device, scheduler="other", namespace="held", labels=labels)
    return pod.objects[0]


class Life:
    """A cluster to which things happen."""

    def __init__(self, built: Cluster) -> None:
        self._built = built
        self.tables: Tables = built.tables()
        self.objects: dict[Key, Raw] = {key_of(raw): raw for raw in built.objects}
        #: pods as they were in the beginning
        self.pods = {key: raw for key, raw in self.objects.items() if key[0] == "Pod"}
        self.assumed: dict[str, TaskStatus] = dict(built.assumed)
        self._made = 0

    def rebuilt(self) -> Tables:
        """The same cluster as if it had always been so."""
        tables = Tables(self._built.shard, [decode_object(raw) for raw in self.objects.values()])
        for pod, status in self.assumed.items():
            tables.assume(pod, status)
        return tables

    def apply(self, raw: Raw) -> None:
        key = key_of(raw)
        if key[0] == "Pod" and key in self.objects and self.objects[key]["metadata"]["uid"] != raw["metadata"]["uid"]:
            self.assumed.pop("/".join(key[1:]), None)
        self.objects[key] = raw
        self.tables.apply(decode_object(raw))

    def remove(self, key: Key) -> None:
        if self.objects.pop(key, None) is not None and key[0] == "Pod":
            self.assumed.pop("/".join(key[1:]), None)
        self.tables.remove(*key)

    def of_kind(self, kind: str) -> list[Key]:
        return sorted(key for key in self.objects if key[0] == kind)

    def placed(self) -> list[Key]:
        """Pods on nodes."""
        return [key for key in self.of_kind("Pod") if self.objects[key]["spec"].get("nodeName")]

    def changed(self, key: Key) -> Raw:
        return deepcopy(self.objects[key])

    # What may happen

    def plan_happens(self, draw: Any, plan: Plan) -> None:
        """What was bound runs, and what was evicted is gone."""
        for bind in plan.binds:
            key = ("Pod", bind.namespace, bind.pod)
            if key not in self.objects:
                # It has gone since.
                continue
            raw = self.changed(key)
            labels = {f"runai-gpu-group/{device}": device for device in bind.gpu_groups}
            if len(bind.gpu_groups) == 1:
                labels = {"runai-gpu-group": bind.gpu_groups[0]}
            raw["metadata"]["labels"] |= labels
            raw["spec"]["nodeName"] = bind.node
            raw["status"]["phase"] = draw(st.sampled_from(["Pending", "Running"]))
            self.apply(raw)
        for item in plan.evictions:
            self.remove(("Pod", item.namespace, item.pod))

    def pod_goes(self, draw: Any, plan: Plan) -> None:
        if self.of_kind("Pod"):
            self.remove(draw(st.sampled_from(self.of_kind("Pod"))))

    def pod_comes_back(self, draw: Any, plan: Plan) -> None:
        if self.pods:
            self.apply(self.pods[draw(st.sampled_from(sorted(self.pods)))])

    def pod_leaves(self, draw: Any, plan: Plan) -> None:
        if self.of_kind("Pod"):
            _, namespace, name = draw(st.sampled_from(self.of_kind("Pod")))
            status = draw(st.sampled_from([TaskStatus.RELEASING, None]))
            self.assumed.pop(f"{namespace}/{name}", None)
            if status is not None:
                self.assumed[f"{namespace}/{name}"] = status
            self.tables.assume(f"{namespace}/{name}", status)

    def pods_tell_of_themselves(self, draw: Any, plan: Plan) -> None:
        """Conditions and notes of some pods, labels of those that run."""
        self._made += 1
        for key in self.of_kind("Pod"):
            raw = self.changed(key)
            what = draw(st.sampled_from(["conditions", "notes", "labels", "nothing", "phase"]))
            if what == "conditions":
                raw["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": str(self._made)}]
            elif what == "notes":
                raw["metadata"]["annotations"]["example.com/seen"] = str(self._made)
            elif what == "labels":
                raw["metadata"]["labels"]["seen"] = str(self._made)
            elif what == "phase" and raw["spec"].get("nodeName"):
                raw["status"]["phase"] = "Pending" if raw["status"]["phase"] == "Running" else "Running"
            self.apply(raw)

    def successor_comes(self, draw: Any, plan: Plan) -> None:
        """A pod that runs makes place for an equal one."""
        if self.placed():
            key = draw(st.sampled_from(self.placed()))
            self._made += 1
            raw = self.changed(key)
            raw["metadata"]["name"] += f"-{self._made}"
            raw["metadata"]["uid"] += f"-{self._made}"
            self.remove(key)
            self.apply(raw)

    def stranger_comes(self, draw: Any, plan: Plan) -> None:
        nodes = [name for _, _, name in self.of_kind("Node")]
        pod = cluster().pod("stranger", cpu=1, on=draw(st.sampled_from(nodes)), scheduler="other", namespace="other")
        self.apply(pod.objects[0])

    def stranger_goes(self, draw: Any, plan: Plan) -> None:
        self.remove(("Pod", "other", "stranger"))

    def reservation_comes(self, draw: Any, plan: Plan) -> None:
        """A GPU is held for existing tenants, or for none."""
        node = draw(st.sampled_from([name for _, _, name in self.of_kind("Node")]))
        tenants = [self.objects[key] for key in self.placed() if self.objects[key]["spec"]["nodeName"] == node]
        shared = {pod["metadata"]["labels"].get("runai-gpu-group", "") for pod in tenants}
        self._made += 1
        self.apply(reservation(f"held-{self._made}", node, draw(st.sampled_from(sorted({"lone", *shared})))))

    def node_is_told_again(self, draw: Any, plan: Plan) -> None:
        self.apply(self.objects[draw(st.sampled_from(self.of_kind("Node")))])

    def node_is_cordoned(self, draw: Any, plan: Plan) -> None:
        raw = self.changed(draw(st.sampled_from(self.of_kind("Node"))))
        raw["spec"]["unschedulable"] = not raw["spec"]["unschedulable"]
        self.apply(raw)

    def group_changes(self, draw: Any, plan: Plan) -> None:
        if self.of_kind("PodGroup"):
            raw = self.changed(draw(st.sampled_from(self.of_kind("PodGroup"))))
            raw["spec"] |= draw(
                st.sampled_from([{}, {"preemptibility": "non-preemptible"}, {"preemptibility": "semi-preemptible"}])
            )
            self.apply(raw)

    def group_goes(self, draw: Any, plan: Plan) -> None:
        if self.of_kind("PodGroup"):
            self.remove(draw(st.sampled_from(self.of_kind("PodGroup"))))

    def queue_changes(self, draw: Any, plan: Plan) -> None:
        raw = self.changed(draw(st.sampled_from(self.of_kind("Queue"))))
        raw["spec"]["resources"]["gpu"]["quota"] = draw(st.sampled_from([0, 1, 4, -1]))
        self.apply(raw)

    def access_changes(self, draw: Any, plan: Plan) -> None:
        raw = self.changed(draw(st.sampled_from(self.of_kind("Queue"))))
        allowed = draw(st.sampled_from([{}, {}, {names.ALLOWED_NAMESPACES_ANNOTATION: "elsewhere"}]))
        raw["metadata"]["annotations"] = allowed
        self.apply(raw)

    def class_changes(self, draw: Any, plan: Plan) -> None:
        for key in self.of_kind("PriorityClass"):
            raw = self.changed(key)
            raw["value"] = draw(st.sampled_from([10, 90, 125]))
            self.apply(raw)

    def budget_changes(self, draw: Any, plan: Plan) -> None:
        """A disruption budget, of all pods or of those with a label, allows more or less."""
        selector = draw(st.sampled_from([{}, {"matchExpressions": [{"key": "seen", "operator": "Exists"}]}]))
        budget = cluster().disruption_budget("budget", draw(st.integers(0, 2)), **selector)
        self.apply(budget.objects[0])

    def nothing_happens(self, draw: Any, plan: Plan) -> None:
        pass


EVENTS: tuple[Callable[[Life, Any, Plan], None], ...] = (
    *[Life.nothing_happens, Life.pods_tell_of_themselves, Life.successor_comes, Life.plan_happens] * 2,
    *(Life.pod_goes, Life.pod_comes_back, Life.pod_leaves, Life.stranger_comes, Life.stranger_goes),
    *[Life.reservation_comes] * 3,
    *(Life.node_is_told_again, Life.node_is_cordoned, Life.group_changes, Life.group_goes),
    *(Life.queue_changes, Life.access_changes, Life.class_changes, Life.budget_changes),
)


@settings(max_examples=25, deadline=None)
@given(st.one_of(tight_clusters(), clusters()), st.data())
def test_neither_reuse_nor_increments_change_a_decision(built: Cluster, data: st.DataObject) -> None:
    life, policy, memory = Life(built), built.policy(), CycleMemory()
    now_ns, recalled = NOW_NS, 0
    for _ in range(data.draw(st.integers(2, 6))):
        recalled += memory.recall(life.tables.snapshot(now_ns), policy) is not None
        plan = schedule(life.tables.snapshot(now_ns), policy, memory)
        assert plan.encoded() == schedule(life.tables.snapshot(now_ns), policy).encoded()
        assert plan.encoded() == schedule(life.rebuilt().snapshot(now_ns), policy).encoded()
        for happens in data.draw(st.lists(st.sampled_from(EVENTS), min_size=1, max_size=2)):
            note(happens.__name__)
            happens(life, data.draw, plan)
        now_ns += int(data.draw(st.sampled_from(PAUSES)) * SECOND)
    note(f"{recalled} plans came from memory")
