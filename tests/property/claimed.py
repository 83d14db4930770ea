"""Random clusters whose pods claim devices, and plain code that checks what they got.

Few nodes with few devices of several kinds (whole GPUs with attributes, partitions that share counters, devices that
all or some nodes reach), and more pods than devices: claims from templates, claims that pods share, alternatives,
constraints, administrators, extended resources that some nodes serve by a device plugin.  `faults` reads the objects of
the cluster again and shares nothing with the engine.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from pykai.api.core import Pod
from pykai.api.resource import Device, ResourceClaim, ResourceSliceSpec
from pykai.core.cluster.tables import Tables
from tests.core.builders import Cluster, Raw

GPU, NIC = "gpu.example.com", "nic.example.com"
ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
NODES = 3
#: what the class of a request wants of a device: its driver, and attributes
CLASSES: dict[str, tuple[str, dict[str, str]]] = {
    "gpu": (GPU, {}),
    "fast-gpu": (GPU, {"speed": "fast"}),
    "nic": (NIC, {}),
}


def _selector(driver: str, attributes: dict[str, str]) -> str:
    rules = [f'device.driver == "{driver}"']
    rules += [f'device.attributes["{driver}"].?{name}.orValue("") == "{value}"' for name, value in attributes.items()]
    return " && ".join(rules)


def device(name: str, more: Raw | None = None, **attributes: str) -> Raw:
    """A device of a slice."""
    return {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}, **(more or {})}


def _partitions(random: Random) -> list[Raw]:
    """A whole GPU of eight, and parts of it."""

    def takes(amount: int) -> Raw:
        return {"consumesCounters": [{"counterSet": "memory", "counters": {"memory": {"value": str(amount)}}}]}

    parts = [device("whole", takes(8), type="gpu", speed="fast", numa="0")]
    for number in range(random.randrange(1, 4)):
        parts.append(device(f"part-{number}", takes(random.choice([2, 4])), type="mig", speed="slow", numa="1"))
    return parts


def slices(world: Cluster, random: Random, generation: int = 1) -> None:
    """What nodes offer."""
    for number in range(NODES):
        node = f"node-{number}"
        if random.randrange(6) == 0:
            counters = [{"name": "memory", "counters": {"memory": {"value": "8"}}}]
            world.slice(node, _partitions(random), generation=generation, sharedCounters=counters)
        elif random.randrange(6):
            offered = [
                device(f"gpu-{n}", speed=random.choice(["fast", "slow"]), numa=str(n % 2))
                for n in range(random.randrange(1, 5))
            ]
            world.slice(node, offered, generation=generation)
    if random.randrange(2):
        everywhere = [device(f"nic-{n}", numa="0") for n in range(random.randrange(1, 3))]
        world.slice("", everywhere, pool="net", driver=NIC, generation=generation, allNodes=True)
    if random.randrange(2):
        term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r0"]}]}
        near = [device("near-0", numa="1")]
        selector = {"nodeSelectorTerms": [term]}
        world.slice("", near, pool="near", driver=NIC, generation=generation, nodeSelector=selector)


def _exactly(kind: str, count: int, **more: Any) -> Raw:
    return {"deviceClassName": kind, "allocationMode": "ExactCount", "count": count, **more}


def _requests(random: Random) -> list[Raw]:
    kind = random.choice(["gpu", "gpu", "gpu", "fast-gpu", "nic"])
    one = {"name": "r", "exactly": _exactly(kind, random.choice([1, 1, 1, 2, 3]))}
    first = {
        "name": "r",
        "firstAvailable": [{"name": "f", **_exactly("fast-gpu", 2)}, {"name": "g", **_exactly("gpu", 1)}],
    }
    every = {"name": "r", "exactly": {"deviceClassName": kind, "allocationMode": "All"}}
    look = {"name": "r", "exactly": _exactly("gpu", 1, adminAccess=True)}
    return random.choice([[one]] * 5 + [[one, {**one, "name": "s"}], [first], [every], [look]])


def _claim(world: Cluster, random: Random, name: str, **how: Any) -> None:
    requests = _requests(random)
    if random.randrange(4) == 0:
        how["constraints"] = [{"matchAttribute": f"{GPU}/numa"}]
        how["requests"] = [{"name": "r", "exactly": _exactly("gpu", 2)}]
    world.device_claim(name, **{"requests": requests, **how})


def job(world: Cluster, random: Random, name: str) -> None:
    """A gang that claims something."""
    queue = random.choice(["a", "b"])
    pods = random.choice([1, 1, 2, 3])
    how: Raw = {"cpu": random.choice([1, 1, 4])}
    kind = random.randrange(8)
    if kind < 2:
        how["shares"] = (f"shared-{queue}-{random.randrange(2)}",)
    if kind in (2, 3):
        how["extra"] = {random.choice(["example.com/gpu", "example.com/nic"]): random.choice([1, 1, 2])}
    preemptible = random.choice([True, True, True, False])
    priority = random.choice(["low", "high"])
    spec: Raw = {"minMember": random.choice([1, pods]), "priorityClassName": priority, "preemptibility": "preemptible"}
    world.group(name, queue=queue, **{**spec, **({} if preemptible else {"preemptibility": "non-preemptible"})})
    for number in range(pods):
        pod = f"{name}-{number}"
        claimed = kind != 2
        if claimed:
            _claim(world, random, f"{pod}-devices", owner=pod)
            spec_of = {"resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "t"}]}
            world.pod(pod, group=name, spec=spec_of, **how)
            made = [{"name": "devices", "resourceClaimName": f"{pod}-devices"}]
            world.objects[-1]["status"]["resourceClaimStatuses"] = made
        else:
            world.pod(pod, group=name, **how)


def a_cluster(random: Random, jobs: int = 9) -> Cluster:
    """A crowded cluster in which nothing runs yet."""
    world = Cluster().priority_class("low", 50).priority_class("high", 75)
    for number in range(NODES):
        plugin: Raw = random.choice([{}, {}, {"example.com/gpu": 2}])
        world.node(cpu=random.choice([6, 20]), labels={"rack": f"r{number % 2}"}, extra=plugin)
    for queue in ("a", "b"):
        world.queue(queue, quota=random.choice([1, 2, 4]))
        for number in range(2):
            _claim(world, random, f"shared-{queue}-{number}", queue=queue)
    serving = {"gpu": "example.com/gpu", "nic": "example.com/nic"}
    for name, (driver, attributes) in CLASSES.items():
        more: Raw = {"extendedResourceName": serving[name]} if name in serving else {}
        world.device_class(name, _selector(driver, attributes), age=10, **more)
    world.namespace("default", **random.choice([{}, {"resource.kubernetes.io/admin-access": "true"}]))
    slices(world, random)
    for number in range(random.randrange(1, jobs)):
        job(world, random, f"j{number}")
    return world.with_actions(*ACTIONS)


# Whether it is right


def _reaches(said: ResourceSliceSpec, node: str, labels: dict[str, str]) -> bool:
    if said.node_name:
        return said.node_name == node
    return said.all_nodes or (said.node_selector is not None and labels.get("rack") == "r0")


def _text(item: Device, name: str) -> str:
    value = item.attributes.get(name)
    return (value.string_value or "") if value is not None else ""


def claim_faults(tables: Tables) -> list[str]:
    """What is wrong with the claims of a cluster: devices given twice, to the wrong claim or node, too many."""
    problems: list[str] = []
    offered: dict[tuple[str, str, str], tuple[ResourceSliceSpec, Device]] = {}
    limits: dict[tuple[str, str], int] = {}
    for item in tables.claims.slices.values():
        for each in item.spec.devices:
            offered[item.spec.driver, item.spec.pool.name, each.name] = (item.spec, each)
        for counters in item.spec.shared_counters:
            limits[item.spec.pool.name, counters.name] = int(counters.counters["memory"].value)
    owners: Counter[tuple[str, str, str]] = Counter()
    for key, claim in tables.claims.claims.items():
        if claim.status.allocation is not None:
            results = claim.status.allocation.devices.results
            owners.update((r.driver, r.pool, r.device) for r in results if not r.admin_access)
            problems += _misfits(key, claim, offered)
    problems += [f"{device} has {count} claims" for device, count in owners.items() if count > 1]
    spent: Counter[tuple[str, str]] = Counter()
    for identity in owners:
        for share in offered[identity][1].consumes_counters:
            spent[identity[1], share.counter_set] += int(share.counters["memory"].value)
    problems += [f"counter {counter} is exceeded" for counter, amount in spent.items() if amount > limits[counter]]
    for pod in _running(tables):
        task = tables._tasks[f"{pod.metadata.namespace}/{pod.metadata.name}"]
        labels = tables._node_facts[pod.spec.node_name].labels
        for key in (*task.claim_keys, *([task.extended_key] if task.extended_key else [])):
            claim = tables.claims.claims[key]
            if claim.status.allocation is None or pod.metadata.uid not in {u.uid for u in claim.status.reserved_for}:
                problems.append(f"{task.key} runs without {key}")
                continue
            for result in claim.status.allocation.devices.results:
                said, _ = offered[result.driver, result.pool, result.device]
                if not _reaches(said, pod.spec.node_name, labels):
                    problems.append(f"{task.key} cannot reach {result.device}")
    return problems


def _misfits(key: str, claim: ResourceClaim, offered: dict[tuple[str, str, str], Any]) -> list[str]:
    """Whether a claim has what it requests."""
    assert claim.status.allocation is not None
    problems: list[str] = []
    got: dict[str, list[Device]] = {}
    for result in claim.status.allocation.devices.results:
        item = offered[result.driver, result.pool, result.device][1]
        name, _, alternative = result.request.partition("/")
        request = next(each for each in claim.spec.devices.requests if each.name == name)
        ways = [request.exactly] if request.exactly is not None else request.first_available
        way = next(each for each in ways if not alternative or getattr(each, "name", "") == alternative)
        assert way is not None
        driver, attributes = CLASSES[way.device_class_name]
        if result.driver != driver or any(_text(item, each) != value for each, value in attributes.items()):
            problems.append(f"{key} got {result.device}, which is no {way.device_class_name}")
        got.setdefault(result.request, []).append(item)
        if way.allocation_mode != "All" and len(got[result.request]) > max(way.count, 1):
            problems.append(f"{key} got too many")
    if len({name.partition("/")[0] for name in got}) != len(claim.spec.devices.requests):
        problems.append(f"{key} got too little")
    for constraint in claim.spec.devices.constraints:
        values = {
            _text(item, (constraint.match_attribute or "").partition("/")[2]) for some in got.values() for item in some
        }
        if len(values) > 1:
            problems.append(f"{key} got devices that differ")
    return problems


def _running(tables: Tables) -> list[Pod]:
    return [pod for pod in tables._pods.values() if pod.spec.node_name]
