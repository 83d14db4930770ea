"""Random small clusters for property tests.

`clusters()` draws a `Cluster` of the builders: queues of one to three levels with quotas and limits, nodes of several
sizes, some tainted or cordoned, and groups of every kind: plain gangs, elastic ones, trees of subgroups; pods that want
CPU, whole GPUs, fractions, GPU memory or several shared devices; some of them running or terminating.  What
runs was placed by a scheduler that keeps to capacity, so that every cluster is one that can exist.  Ages are drawn from
few values, because ties are where orders go wrong, and most pods of a cluster have one of two requests, because that
is where gangs fit halfway and failures repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.core.builders import Cluster, Raw, cluster, timestamp_before
from tests.property.clustermodel import LAST_START, PRIORITIES, STALE_SINCE, NodeModel, PodRequest

AGES = (10.0, 20.0, 30.0)
TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
TOLERATION = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}


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
