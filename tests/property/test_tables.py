"""The tables are a function of the current objects, never of their history.

A random stream of changes is applied to one `Tables` as it comes, with snapshots and whole cycles in between; a second
one is built in one pass from the objects that are left, in another order.  Both must show the same cluster and lead to
the same plan, byte for byte.  The sums are also recomputed from the tasks, by code that shares nothing with the
tables.  There are few names, so that streams hit the same objects again and again: pods before their nodes and groups,
nodes that change the memory of their GPUs under running pods, BindRequests for pods and nodes that come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from pykai.api import names
from pykai.api.decode import WireObject, decode_object
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.validate import check_state
from pykai.core.model.shard import Shard
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import open_cycle
from pykai.core.plan import build_plan
from pykai.core.schedule import run_actions
from pykai.scheduler.config.configuration import default_configuration
from tests.core.builders import NOW_NS, timestamp_before
from tests.property.recounting import canonical, kept, recounted

Raw = dict[str, Any]
Key = tuple[str, str, str]


class Gone(NamedTuple):
    """One of the objects there are goes, counted round and round in the order of their keys."""

    number: int


class Assumed(NamedTuple):
    """Something is assumed about a pod, or no longer."""

    pod: str
    status: TaskStatus | None


#: An object as it is now, one that goes, an assumption, or a cycle so many seconds later.
Step = Raw | Gone | Assumed | float

POLICY = replace(default_configuration().policy, actions=("allocate",), validate=True)
NODES = ("node-a", "node-b", "node-c")
PODS = ("a/p0", "a/p1", "a/p2", "a/p3", "b/p0")
GROUPS = ("a/g0", "a/g1", "b/g0")
QUEUES = ("q0", "q1", "q2")
POOL = "kai.scheduler/node-pool"
#: namespaces that may use a queue: by name, by label, none since the text is broken
ACCESS: tuple[dict[str, str], ...] = (
    {names.ALLOWED_NAMESPACES_ANNOTATION: "a"},
    {names.ALLOWED_NAMESPACES_ANNOTATION: "b"},
    {names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: "tenant=red"},
    {names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: "tenant=("},
)


def _meta(name: str, namespace: str = "", **more: Any) -> Raw:
    return {"name": name, "namespace": namespace, "creationTimestamp": timestamp_before(100), **more}


GPU_MEMORY = "nvidia.com/gpu.memory"
TWO_DEVICES = {"runai-gpu-group/d0": "d0", "runai-gpu-group/d1": "d1"}


def _chance(random: Random, one_in: int) -> bool:
    return random.randrange(one_in) == 0


def _node(random: Random) -> Raw:
    """A node: CPU only, with GPUs of several sizes, with MIG slices, cordoned, tainted, or of another pool."""
    offered = random.choice(
        [
            {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4"},
            {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "2", "example.com/nic": "3"},
            {"cpu": "4", "memory": "8Gi", "pods": "5"},
            {"cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/mig-1g.5gb": "3"},
            {"cpu": "4", "memory": "8Gi", "pods": "110", "amd.com/gpu": "1", "hugepages-2Mi": "1Gi"},
            {"cpu": "lots", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "1"},
        ]
    )
    labels = {"zone": random.choice(["x", "y"])}
    labels |= random.choice([{}, {GPU_MEMORY: "1000"}, {GPU_MEMORY: "11441"}, {GPU_MEMORY: "?"}])
    if _chance(random, 8):
        labels[POOL] = "elsewhere"
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    spec = random.choice([{}, {}, {}, {"unschedulable": True}, {"taints": [taint]}])
    meta = _meta(random.choice(NODES), labels=labels, annotations=random.choice([{}, {"beat": "1"}]))
    return _raw("v1", "Node", meta, spec=spec, status={"allocatable": offered})


def _affinity(kind: str) -> Raw:
    term = {"labelSelector": {"matchLabels": {"team": "blue"}}, "topologyKey": "zone"}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


#: requests, annotations, labels and parts of the spec of a pod
ASKS: tuple[tuple[Raw, Raw, Raw, Raw], ...] = (
    ({"cpu": "1", "memory": "1Gi"}, {}, {"team": "blue"}, {}),
    ({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}, {}, {"kai.scheduler/task-priority": "3"}, {}),
    ({"cpu": "500m", "nvidia.com/gpu": "2"}, {}, {"kai.scheduler/subgroup-name": "x"}, {}),
    ({"cpu": "1", "nvidia.com/gpu": "1"}, {}, {"app": "kai-resource-reservation"}, {}),
    ({"cpu": "1", "nvidia.com/gpu": "1"}, {}, {"app": "kai-resource-reservation", "runai-gpu-group": "d0"}, {}),
    ({"cpu": "1", "nvidia.com/gpu": "2"}, {}, {"app": "kai-resource-reservation", "runai-gpu-group": "d1"}, {}),
    ({"cpu": "1", "nvidia.com/gpu": "1"}, {}, {"app": "kai-scale-adjust"}, {}),
    ({"cpu": "1"}, {"gpu-fraction": "0.5"}, {"runai-gpu-group": "d0"}, {}),
    ({"cpu": "1"}, {"gpu-fraction": "0.4"}, {"runai-gpu-group": "d1"}, {}),
    ({"cpu": "1"}, {"gpu-fraction": "0.3", "gpu-fraction-num-devices": "2"}, TWO_DEVICES, {}),
    ({"cpu": "1"}, {"gpu-memory": "400"}, {"runai-gpu-group": "d0"}, {}),
    ({"cpu": "1"}, {"gpu-memory": "11441"}, {"runai-gpu-group": "d1"}, {}),
    ({"cpu": "1", "nvidia.com/mig-1g.5gb": "1"}, {}, {}, {}),
    ({"cpu": "1", "example.com/nic": "1"}, {}, {}, {}),
    ({"cpu": "1", "example.com/unheard-of": "1"}, {}, {}, {}),
    ({"cpu": "1"}, {"nvidia.com/mig-2g.10gb": "1"}, {}, {}),
    ({"cpu": "1"}, {}, {"team": "blue"}, {"affinity": _affinity("podAntiAffinity")}),
    ({"cpu": "1"}, {}, {}, {"affinity": _affinity("podAffinity")}),
    ({"cpu": "1"}, {}, {}, {"schedulingGates": [{"name": "wait"}]}),
    ({"cpu": "1", "nvidia.com/gpu": "1"}, {}, {}, {"schedulingGates": [{"name": "kai.scheduler/queue-admission"}]}),
    ({"cpu": "1"}, {"gpu-memory": "400"}, {}, {"schedulingGates": [{"name": "kai.scheduler/queue-admission"}]}),
    ({"cpu": "much"}, {}, {}, {}),
)


def _pod(random: Random) -> Raw:
    """A pod in any state of its life."""
    namespace, name = random.choice(PODS).split("/")
    requests, annotations, labels, spec = random.choice(ASKS)
    group = random.choice(["g0", "g0", "g0", "g1", "absent", ""])
    phase = random.choice(["Pending"] * 4 + ["Running"] * 4 + ["Succeeded", "Odd"])
    container: Raw = {"name": "main", "resources": {"requests": requests}}
    if _chance(random, 5):
        container["ports"] = [{"containerPort": 80, "hostPort": random.choice([80, 81])}]
    if _chance(random, 10):
        container["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    meta = _meta(
        name,
        namespace,
        uid=f"{name}-{random.choice(['old', 'old', 'new'])}",
        labels=labels,
        annotations={**annotations, **({"pod-group-name": group} if group else {})},
    )
    if _chance(random, 5):
        meta["deletionTimestamp"] = timestamp_before(random.choice([-30, 60, 600]))
        meta["deletionGracePeriodSeconds"] = random.choice([30, 30, 600])
    status: Raw = {"phase": phase}
    if _chance(random, 5):
        condition = {"type": "kai.scheduler/EvictedFor", "status": "True"}
        status["conditions"] = [{**condition, "message": random.choice(["", "a/g0/g0", "b/g0/g0"])}]
    body = {"schedulerName": random.choice(["kai-scheduler"] * 5 + ["other"]), "containers": [container], **spec}
    if phase == "Running" or _chance(random, 6):
        body["nodeName"] = random.choice(NODES)
    return _raw("v1", "Pod", meta, spec=body, status=status)


def _group(random: Random) -> Raw:
    """A PodGroup: plain, elastic, with a broken tree, backing off, or of another pool."""
    namespace, name = random.choice(GROUPS).split("/")
    spec: Raw = {"queue": random.choice([*QUEUES, *QUEUES, "absent"]), "minMember": random.randrange(3)}
    spec |= random.choice(
        [
            {},
            {},
            {"preemptibility": "non-preemptible"},
            {"priorityClassName": "high"},
            {"subGroups": [{"name": "x", "parent": "y"}]},
            {"subGroups": [{"name": "x", "minMember": 1}]},
            {"stalenessGracePeriod": "long"},
            {"schedulingBackoff": 1},
        ]
    )
    condition = {"nodePool": random.choice(["default", "other"]), "transitionID": "1"}
    meta = _meta(name, namespace, labels=random.choice([{}] * 7 + [{POOL: "elsewhere"}]))
    status = {"schedulingConditions": random.choice([[], [condition]])}
    return _raw("scheduling.run.ai/v2alpha2", "PodGroup", meta, spec=spec, status=status)


def _queue(random: Random) -> Raw:
    """A queue anywhere in a forest that need not be sound."""
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    gpu = {
        "quota": random.choice([0, 2, -1]),
        "limit": random.choice([2, -1]),
        "overQuotaWeight": random.choice([1, 1, -3]),
    }
    spec = {
        "parentQueue": random.choice(["", "", "", "", "q0", "absent"]),
        "resources": {"gpu": gpu, "cpu": unlimited, "memory": unlimited},
    }
    meta = _meta(random.choice(QUEUES), labels=random.choice([{}] * 7 + [{POOL: "elsewhere"}]))
    meta["annotations"] = random.choice([{}, {}, {}, *ACCESS])
    return _raw("scheduling.run.ai/v2", "Queue", meta, spec=spec)


def _request(random: Random) -> Raw:
    """A BindRequest, under the name of its pod as it should be or under another."""
    namespace, pod = random.choice(PODS).split("/")
    uid = random.choice([None, None, f"{pod}-old", f"{pod}-new"])
    owners = [] if uid is None else [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}]
    meta = _meta(
        random.choice([pod, pod, "another"]),
        namespace,
        ownerReferences=owners,
        labels=random.choice([{}, {}, {POOL: "elsewhere"}]),
    )
    spec: Raw = {
        "podName": pod,
        "selectedNode": random.choice([*NODES, "node-z"]),
        "selectedGPUGroups": random.choice([[], ["d0"], ["d0", "d1"]]),
        **random.choice([{}, {"backoffLimit": 3}]),
    }
    status = {"phase": random.choice(["", "", "Succeeded", "Failed"]), "failedAttempts": random.choice([0, 2, 3])}
    return _raw("scheduling.run.ai/v1alpha2", "BindRequest", meta, spec=spec, status=status)


def _raw(api_version: str, kind: str, meta: Raw, **more: Any) -> Raw:
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **more}


def _budget(namespace: str, allowed: int, **selector: Any) -> Raw:
    """A disruption budget that wants one healthy pod."""
    status = {"disruptionsAllowed": allowed, "desiredHealthy": 1}
    return _raw("policy/v1", "PodDisruptionBudget", _meta("b", namespace), spec={"selector": selector}, status=status)


OTHERS: tuple[Raw, ...] = (
    _budget("a", 1),
    _budget("a", 2, matchLabels={"team": "blue"}),
    _budget("a", 3, matchExpressions=[{"key": "app", "operator": "DoesNotExist"}]),
    _budget("b", 0),
    _raw("scheduling.k8s.io/v1", "PriorityClass", _meta("high"), value=125),
    _raw("scheduling.k8s.io/v1", "PriorityClass", _meta("high"), value=60),
    _raw("scheduling.k8s.io/v1", "PriorityClass", _meta("usual"), value=110, globalDefault=True),
    _raw("v1", "ConfigMap", _meta("settings", "a")),
    _raw("v1", "ConfigMap", _meta("settings", "b")),
    _raw("v1", "Namespace", _meta("a", labels={"tenant": "red"})),
    _raw("v1", "Namespace", _meta("a", labels={"tenant": "green"})),
    _raw("kai.scheduler/v1alpha1", "Topology", _meta("racks"), spec={"levels": [{"nodeLabel": "zone"}]}),
)


def _step(random: Random) -> Step:
    makers: tuple[Callable[[Random], Step], ...] = (
        _pod,
        _node,
        _request,
        _group,
        _queue,
        lambda random: random.choice(OTHERS),
        lambda random: Gone(random.randrange(1000)),
        lambda random: Assumed(
            random.choice(PODS), random.choice([*[TaskStatus.RELEASING] * 3, TaskStatus.RUNNING, None])
        ),
        lambda random: random.choice([0.0, 0.0, 30.0, 200.0]),
    )
    (make,) = random.choices(makers, (12, 3, 5, 2, 2, 1, 4, 2, 2))
    return make(random)


def _sound() -> list[Step]:
    """A cluster in which work gets placed, so that not every stream ends in ruins."""
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"gpu": unlimited, "cpu": unlimited, "memory": unlimited}
    offered = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4"}
    steps: list[Step] = []
    for name in NODES:
        meta = _meta(name, labels={"zone": name, GPU_MEMORY: "1000"})
        steps.append(_raw("v1", "Node", meta, status={"allocatable": offered}))
    for name in QUEUES:
        steps.append(_raw("scheduling.run.ai/v2", "Queue", _meta(name), spec={"resources": resources}))
    for key in GROUPS:
        namespace, name = key.split("/")
        spec = {"queue": "q0", "minMember": 1}
        steps.append(_raw("scheduling.run.ai/v2alpha2", "PodGroup", _meta(name, namespace), spec=spec))
    return steps


@dataclass
class World:
    """The objects there are now, and what is assumed about their pods."""

    objects: dict[Key, WireObject] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    assumed: dict[str, TaskStatus] = field(default_factory=dict)

    def apply(self, tables: Tables, raw: Raw) -> None:
        kind, meta = raw["kind"], raw["metadata"]
        item = decode_object(raw)
        self.objects[kind, meta["namespace"], meta["name"]] = item
        if kind == "Pod":
            pod = f"{meta['namespace']}/{meta['name']}"
            if self.uids.get(pod) != meta["uid"]:
                self.assumed.pop(pod, None)
            self.uids[pod] = meta["uid"]
        tables.apply(item)

    def remove(self, tables: Tables, number: int) -> None:
        if not self.objects:
            return
        key = kind, namespace, name = sorted(self.objects)[number % len(self.objects)]
        del self.objects[key]
        if kind == "Pod":
            self.uids.pop(f"{namespace}/{name}", None)
            self.assumed.pop(f"{namespace}/{name}", None)
        tables.remove(kind, namespace, name)

    def assume(self, tables: Tables, pod: str, status: TaskStatus | None) -> None:
        if status is None:
            self.assumed.pop(pod, None)
        elif pod in self.uids:
            self.assumed[pod] = status
        tables.assume(pod, status)

    def built_at_once(self, shard: Shard, order: Callable[[list[WireObject]], list[WireObject]]) -> Tables:
        tables = Tables(shard, order(list(self.objects.values())))
        for pod, status in self.assumed.items():
            tables.assume(pod, status)
        return tables


SHARDS = (
    Shard(),
    Shard(),
    Shard(),
    Shard(),
    Shard(node_pool="elsewhere"),
    Shard(node_pool_key=""),
    Shard(full_hierarchy=False),
)


Order = Callable[[list[WireObject]], list[WireObject]]
ORDERS: tuple[Order, ...] = (
    lambda items: items,
    lambda items: items[::-1],
    lambda items: items[1::2] + items[::2],
    lambda items: sorted(items, key=lambda item: type(item).__name__),
)


def _cycle(tables: Tables, now_ns: int) -> tuple[dict[str, object], bytes]:
    """What a snapshot says, with its sums checked, and the plan of a cycle on it, which must not change the tables."""
    snapshot = tables.snapshot(now_ns)
    said = canonical(snapshot)
    _expect_equal("recounted", kept(said), recounted(snapshot))
    cycle = open_cycle(snapshot, POLICY)
    check_state(cycle.state, cycle.gangs)
    run_actions(cycle)
    _expect_equal("after the cycle", said, canonical(tables.snapshot(now_ns)))
    return said, build_plan(cycle).encoded()


def _expect_equal(what: str, mine: Mapping[str, object], theirs: Mapping[str, object]) -> None:
    for part in mine:
        assert mine[part] == theirs[part], f"{what}: {part}"


def replay(shard: Shard, steps: list[Step], order: Order, late_s: float) -> None:
    """Take the steps one by one, build the rest of them at once, and compare."""
    world, tables, now_ns = World(), Tables(shard), NOW_NS
    for step in steps:
        if isinstance(step, dict):
            world.apply(tables, step)
        elif isinstance(step, float):
            now_ns += int(step * 1e9)
            _cycle(tables, now_ns)
        elif isinstance(step, Gone):
            world.remove(tables, step.number)
        else:
            world.assume(tables, step.pod, step.status)
    now_ns += int(late_s * 1e9)

    fresh = world.built_at_once(shard, order)
    said, plan = _cycle(tables, now_ns)
    fresh_said, fresh_plan = _cycle(fresh, now_ns)
    _expect_equal("built at once", said, fresh_said)
    assert plan == fresh_plan
    assert tables.stale_bind_requests() == fresh.stale_bind_requests()
    assert sorted(tables.named.topologies) == sorted(fresh.named.topologies)


def _fails(shard: Shard, steps: list[Step], order: Order, late_s: float) -> bool:
    try:
        replay(shard, steps, order, late_s)
    except Exception:
        return True
    return False


# The stream comes from a seed, since independent steps meet more often than those Hypothesis would draw; leaving out
# steps, below, is all the shrinking that is needed.
@settings(max_examples=150, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(random=st.randoms(use_true_random=True))
def test_tables_kept_up_to_date_equal_tables_built_at_once(random: Random) -> None:
    """cycle:NOD-1, PERF-1; cycle:SNP-6 to SNP-9."""
    shard, order, late_s = random.choice(SHARDS), random.choice(ORDERS), random.choice([0.0, 150.0])
    steps = random.choice([[], _sound(), _sound()[:-3], _sound()[::-1]])
    steps += [_step(random) for _ in range(random.randrange(10, 45))]
    if not _fails(shard, steps, order, late_s):
        return
    for index in reversed(range(len(steps))):
        fewer = steps[:index] + steps[index + 1 :]
        if _fails(shard, fewer, order, late_s):
            steps = fewer
    for step in steps:
        note(f"step: {step}")
    replay(shard, steps, order, late_s)
