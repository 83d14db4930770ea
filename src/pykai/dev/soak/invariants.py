"""What must be true of a recording, whichever processes were killed.

A recording is a file with one JSON document per line, written by a process that does nothing but watch
(`recording.py`): when it was seen, what kind of object, and the object, or only its key when it is gone.

    {"at": 12.3, "resource": "pods", "key": "default/a", "object": {...}}
    {"at": 12.9, "resource": "pods", "key": "default/a", "object": null}

Lines with `"more": true` belong together with the next one: they come from one list, in no order. `check_recording`
replays it and returns one sentence per violation:

- no pod is bound twice: once set, the node of a pod never changes;
- no device is over its memory: the portions of one GPU group add up to at most one, its pods are on one node, and a
  node never holds more whole GPUs, reservations included, than it has;
- no GPU is assigned to two pods at once (the simulated device ids of a node);
- no gang is half started for longer than the stale grace period;
- nothing is lost: every submitted Job has completed, unless its user deleted it;
- at the end nothing is left: no reservation pod, no BindRequest, no pending pod, no unfinished Job.

Subtle: the recorder may miss states between two watches but never invents them, so only recorded states count. A gang
that is ending is not half started: succeeded pods count, even when they are gone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pykai.api import names
from pykai.api.sharing import ReservationRule

#: portions are written with two decimals; sums of them are compared in hundredths
_WHOLE_GPU = 100
_RULE = ReservationRule()


@dataclass(slots=True)
class RecordedChange:
    """One line of a recording."""

    at_s: float
    resource: str
    key: str
    object: dict[str, Any] | None
    #: whether the next line comes from the same list
    more: bool = False


def read_recording(path: Path) -> Iterator[RecordedChange]:
    """The lines of a file; a last line that was cut off is left out."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                return
            document = json.loads(line)
            more = document.get("more", False)
            yield RecordedChange(document["at"], document["resource"], document["key"], document["object"], more)


@dataclass(slots=True)
class _GangState:
    minimum: int = 1
    #: uids of succeeded pods, including removed ones
    done: set[str] = field(default_factory=set)
    #: since when some but too few pods run; None: enough or none
    incomplete_since_s: float | None = None
    reported: bool = False


@dataclass(slots=True)
class _ClusterState:
    grace_s: float
    problems: list[str] = field(default_factory=list)
    objects: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    #: pod uid -> node
    nodes: dict[str, str] = field(default_factory=dict)
    on_node: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    members: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    gangs: dict[str, _GangState] = field(default_factory=lambda: defaultdict(_GangState))
    #: Jobs that have completed or were deleted by their user
    settled: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)
    #: nodes and gangs that have changed since the last check
    nodes_to_check: set[str] = field(default_factory=set)
    gangs_to_check: set[str] = field(default_factory=set)
    now_s: float = 0.0

    def report(self, once: str, problem: str) -> None:
        if once not in self.reported:
            self.reported.add(once)
            self.problems.append(f"{self.now_s:.2f}s: {problem}")


def check_recording(
    recording: Iterable[RecordedChange],
    *,
    grace_s: float,
    ended: bool = True,
    submitted: Iterable[str] = (),
    given_up: Iterable[str] = (),
) -> list[str]:
    """One sentence per violation.

    `grace_s` is how long a gang may be half started, in recorded seconds; `submitted` are keys of Jobs, `given_up`
    those that their users deleted.
    """
    cluster = _ClusterState(grace_s, settled=set(given_up))
    for change in recording:
        cluster.now_s = change.at_s
        before = cluster.objects[change.resource].get(change.key)
        if change.object is None:
            cluster.objects[change.resource].pop(change.key, None)
        else:
            cluster.objects[change.resource][change.key] = change.object
        if change.resource == "pods":
            _pod_changed(cluster, change.key, before, change.object)
        elif change.resource == "jobs":
            _job_changed(cluster, change.key, before, change.object)
        elif change.resource == "podgroups" and change.object is not None:
            cluster.gangs[change.key].minimum = _minimum(change.object)
            cluster.gangs_to_check.add(change.key)
        if not change.more:
            _check_changed(cluster)
    _check_changed(cluster)
    for key in list(cluster.gangs):
        _check_gang(cluster, key)
    if ended:
        _check_leftovers(cluster)
        for key in sorted(set(submitted) - cluster.settled):
            cluster.report(f"lost/{key}", f"job {key} was submitted and never completed")
    return cluster.problems


def _check_changed(world: _ClusterState) -> None:
    for node in sorted(world.nodes_to_check):
        _check_node(world, node)
    for gang in sorted(world.gangs_to_check):
        _check_gang(world, gang)
    world.nodes_to_check.clear()
    world.gangs_to_check.clear()


def _job_changed(world: _ClusterState, key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
    if new is not None and is_complete(new):
        world.settled.add(key)
    if new is None and old is not None and key not in world.settled:
        world.report(f"lost/{key}", f"job {key} was deleted before it had completed")


def _pod_changed(world: _ClusterState, key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
    if old is not None and (new is None or _uid(old) != _uid(new)):
        _forget(world, key, old)
    if new is None:
        return
    uid, node = _uid(new), new["spec"].get("nodeName", "")
    known = world.nodes.setdefault(uid, node) or node
    if known and node != known:
        world.report(uid, f"pod {key} was bound to {known} and then to {node or 'no node'}")
    world.nodes[uid] = known
    group = _group_of(new)
    if group:
        world.members[group][key] = new
        world.gangs_to_check.add(group)
    if node:
        world.on_node[node][key] = new
        world.nodes_to_check.add(node)


def _forget(world: _ClusterState, key: str, pod: dict[str, Any]) -> None:
    node, group = pod["spec"].get("nodeName", ""), _group_of(pod)
    world.on_node[node].pop(key, None)
    if group:
        world.members[group].pop(key, None)
        world.gangs_to_check.add(group)


def _check_node(world: _ClusterState, node: str) -> None:
    """Check the devices of one node: whole GPUs, portions of groups, assigned ids."""
    whole, portions, owners = 0, defaultdict[str, int](int), dict[str, str]()
    for key, pod in world.on_node[node].items():
        if not _holds_devices(pod):
            continue
        gpus = _gpus(pod)
        whole += gpus
        for group in _gpu_groups(pod):
            if not _is_reservation(pod):
                portions[group] += _portion(pod)
        annotations = _annotations(pod)
        devices = annotations.get(names.DEVICES_ANNOTATION) or annotations.get(names.RESERVED_GPU_ANNOTATION, "")
        for device in filter(None, devices.split(",")):
            if owners.setdefault(device, key) != key:
                world.report(f"{device}/{key}", f"GPU {device} of {node} belongs to {owners[device]} and to {key}")
    for group, used in portions.items():
        if used > _WHOLE_GPU:
            world.report(f"{group}/{used}", f"GPU group {group} on {node} is filled to {used} %")
    has = world.objects["nodes"].get(node)
    if has is not None:
        offered = int(has.get("status", {}).get("allocatable", {}).get(names.NVIDIA_GPU, 0))
        if whole > offered:
            world.report(f"{node}/{whole}", f"{node} has {offered} GPUs and runs pods with {whole}")


def _check_gang(world: _ClusterState, key: str) -> None:
    gang, members = world.gangs[key], world.members[key].values()
    gang.done.update(_uid(pod) for pod in members if pod.get("status", {}).get("phase") == "Succeeded")
    running = sum(1 for pod in members if _is_running(pod))
    is_incomplete = running > 0 and running + len(gang.done) < gang.minimum
    if (
        gang.incomplete_since_s is not None
        and world.now_s - gang.incomplete_since_s > world.grace_s
        and not gang.reported
    ):
        gang.reported = True
        lasted = world.now_s - gang.incomplete_since_s
        world.report(f"gang/{key}", f"gang {key} ran with fewer than its {gang.minimum} pods for {lasted:.1f} s")
    if not is_incomplete:
        gang.incomplete_since_s, gang.reported = None, False
    elif gang.incomplete_since_s is None:
        gang.incomplete_since_s = world.now_s


def _check_leftovers(world: _ClusterState) -> None:
    for key, pod in sorted(world.objects["pods"].items()):
        if _is_reservation(pod):
            world.report(f"left/{key}", f"reservation pod {key} is left")
        elif not is_of_the_installation(pod) and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            world.report(f"left/{key}", f"pod {key} is left in phase {pod.get('status', {}).get('phase')}")
    for key in sorted(world.objects["bindrequests"]):
        world.report(f"unbound/{key}", f"BindRequest {key} is left")
    for key, job in sorted(world.objects["jobs"].items()):
        if not is_complete(job):
            world.report(f"lost/{key}", f"job {key} has not completed")


def is_of_the_installation(pod: dict[str, Any]) -> bool:
    """Whether it is a pod of PyKAI itself, which runs until the end."""
    return bool(pod["metadata"].get("namespace") == names.DEFAULT_NAMESPACE)


def is_complete(job: dict[str, Any]) -> bool:
    """Whether a Job has completed."""
    conditions = job.get("status", {}).get("conditions") or []
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)


def _uid(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["uid"])


def _annotations(pod: dict[str, Any]) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def _group_of(pod: dict[str, Any]) -> str:
    name = _annotations(pod).get(names.POD_GROUP_ANNOTATION, "")
    return f"{pod['metadata'].get('namespace', '')}/{name}" if name else ""


def _minimum(group: dict[str, Any]) -> int:
    return int(group.get("spec", {}).get("minMember", 1))


def _is_running(pod: dict[str, Any]) -> bool:
    """Whether the pod is bound, not finished and not terminating."""
    return bool(pod["spec"].get("nodeName")) and _holds_devices(pod) and "deletionTimestamp" not in pod["metadata"]


def _holds_devices(pod: dict[str, Any]) -> bool:
    """Whether the pod still has its devices."""
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _gpus(pod: dict[str, Any]) -> int:
    return sum(
        int(container.get("resources", {}).get("limits", {}).get(names.NVIDIA_GPU, 0))
        for container in pod["spec"].get("containers", [])
    )


def _portion(pod: dict[str, Any]) -> int:
    return round(float(_annotations(pod).get(names.GPU_FRACTION_ANNOTATION, "0")) * _WHOLE_GPU)


def _gpu_groups(pod: dict[str, Any]) -> Iterator[str]:
    labels = pod["metadata"].get("labels") or {}
    for key, value in labels.items():
        if key == names.GPU_GROUP_LABEL or key.startswith(f"{names.GPU_GROUP_LABEL}/"):
            yield value


def _is_reservation(pod: dict[str, Any]) -> bool:
    meta, node = pod["metadata"], pod["spec"].get("nodeName", "")
    return bool(_RULE.group_held_by(str(meta.get("namespace")), meta["name"], meta.get("labels") or {}, node))
