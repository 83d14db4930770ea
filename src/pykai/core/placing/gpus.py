"""Which devices a shared request gets on a node (cycle:SCO-4; gpu:F-4 to F-8).

Candidates are the shared GPUs with room and one entry for every whole GPU that is idle or being released.  Plugins
score them (packing prefers the fullest, spreading an untouched one); equal scores go by device id, whole GPUs last. A
whole GPU gets a new id, made from the pod and the time of the cycle, so that a replay makes the same one.  Among the
whole ones are GPUs with nothing left but the reservation pod: those keep their id and come first, since that pod exists
already and no idle GPU is taken from others.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.model.axes import PODS
from pykai.core.model.sharedgpus import DeviceUse, tenant_mib
from pykai.core.placing.fit import fits_idle_row, shared_axes


class DeviceAssignment(NamedTuple):
    """Devices chosen for a shared request."""

    groups: tuple[str, ...]
    #: some of it is not idle yet: the task may only be pipelined
    pipelined: bool
    #: how many of the groups are new, each needing a reservation pod
    new_groups: int


def new_gpu_group(state: State, request: PlacementRequest, index: int) -> str:
    """A new device id in the form of a UUID, the same for the same pod, device and cycle."""
    task = request.task
    digest = blake2b(f"{state.snapshot.now_ns}/{task.key}/{task.uid}/{index}".encode(), digest_size=16).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:]}"


def _devices_to_keep(state: State, request: PlacementRequest, row: int, devices: dict[str, DeviceUse]) -> list[str]:
    """Devices of the node that a task was evicted from and that would be free without it."""
    evicted_from = state.evicted_from.get(request.task.key) if state.evicted_from else None
    if evicted_from is None or evicted_from.row != row:
        return []
    return [group for group in evicted_from.gpu_groups if not (devices[group].live or devices[group].pipelined)]


def choose_devices(
    state: State,
    request: PlacementRequest,
    row: int,
    *,
    pipeline_only: bool,
    allow_stay: bool = True,
    most_free_first: bool = False,
) -> DeviceAssignment | None:
    """Devices for a shared request on one node, None if there are too few.

    Without `allow_stay` the result is that of any task of the shape, wherever it was.  `most_free_first` takes the
    devices with most room instead of those the plugins prefer.
    """
    facts = state.snapshot.nodes.facts[row]
    axis = int(shared_axes(state.snapshot)[row])
    if axis < 0:
        return None
    mib = tenant_mib(request.shape.gpu, facts.gpu_mib, facts.gpu_label_mib)
    devices = state.devices.get(row, {})

    def score(device: DeviceUse | None) -> float:
        if most_free_first:
            return 0.0 if device is None else -float(device.used_mib)
        return sum(scorer(state, request, row, device) for scorer in state.gpu_scores)

    ranked = sorted(
        (-score(device), group) for group, device in devices.items() if device.fits_tenant(mib, facts.gpu_mib)
    )
    whole_gpus = max(int(state.free[axis, row]), 0)
    candidates = _DeviceCandidates(
        ranked,
        whole_gpus,
        whole_score=-score(None) if whole_gpus else 0.0,
        idle_whole=int(state.idle[axis, row]),
        keepable=_devices_to_keep(state, request, row, devices) if allow_stay else [],
        only_reserved=sorted((group for group, device in devices.items() if device.is_only_reserved), reverse=True),
    )
    assignment = _pick_devices(state, request, row, candidates, mib)
    if assignment is None:
        return None
    slots = 1 + assignment.new_groups
    if most_free_first and state.free.item(PODS, row) < slots:
        # The check of slots read the devices that the plugins prefer.
        return None
    # Every device that is not shared yet needs a reservation pod, which needs a slot beside the pod's own.
    pipelined = (
        assignment.pipelined
        or state.idle.item(PODS, row) < slots
        or pipeline_only
        or not fits_idle_row(state, request, row)
    )
    return assignment._replace(pipelined=pipelined)


class _DeviceCandidates(NamedTuple):
    """What a node has for a shared request."""

    #: shared GPUs with room by score, best first
    ranked: list[tuple[float, str]]
    #: whole GPUs, idle or being released, their score, and how many of them are idle
    whole_gpus: int
    whole_score: float
    idle_whole: int
    #: devices the task was evicted from and may keep
    keepable: list[str]
    #: GPUs with nothing but a reservation pod
    only_reserved: list[str]


def _pick_devices(
    state: State, request: PlacementRequest, row: int, candidates: _DeviceCandidates, mib: int
) -> DeviceAssignment | None:
    """As many devices as the request needs, the best first; `pipelined`: whether one of them is not idle."""
    devices, gpu_mib = state.devices.get(row, {}), state.snapshot.nodes.facts[row].gpu_mib
    ranked, whole_gpus, whole_score, idle_whole, keepable, only_reserved = candidates
    groups: list[str] = []
    new_groups = number = position = 0
    pipelined = False
    while len(groups) < request.shape.gpu.devices:
        take_shared = position < len(ranked) and (new_groups >= whole_gpus or ranked[position][0] <= whole_score)
        if take_shared:
            group = ranked[position][1]
            position += 1
            pipelined |= not devices[group].fits_tenant_now(mib, gpu_mib)
            groups.append(group)
        elif keepable:
            # It may stay on the device it was evicted from, if no other task holds it or is pipelined onto it.
            groups.append(keepable.pop())
            whole_gpus -= 1
            pipelined = True
        elif only_reserved and new_groups < whole_gpus:
            groups.append(only_reserved.pop())
            whole_gpus -= 1
        elif new_groups < whole_gpus:
            # A pod that comes back under its old uid must not find its old name on a device of others.
            while (name := new_gpu_group(state, request, number)) in devices:
                number += 1
            groups.append(name)
            number += 1
            new_groups += 1
            # A device is never pipelined twice: beyond the idle ones only those being released are left.
            pipelined |= new_groups > idle_whole
        else:
            return None
    return DeviceAssignment(tuple(groups), pipelined, new_groups)
