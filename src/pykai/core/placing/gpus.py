"""Which devices a shared request gets on a node (cycle:SCO-4; gpu:F-4 to F-8).

Candidates are the shared GPUs with room and one entry for every whole GPU that is idle or being released.  Plugins
score them (packing prefers the fullest, spreading an untouched one); equal scores go by device id, whole GPUs last.
A whole GPU gets a new id, made from the pod and the time of the cycle, so that a replay makes the same one.  Among the
whole ones are GPUs of which there is nothing left but the reservation pod: those keep their id and come first, since
that pod is there already and no idle GPU is taken from others.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from pykai.core.cycle.state import State
from pykai.core.hooks import Ask
from pykai.core.model.axes import PODS
from pykai.core.model.sharedgpus import DeviceUse, tenant_mib
from pykai.core.placing.fit import fits_idle_row, shared_axes


class Seating(NamedTuple):
    """Devices chosen for a shared request."""

    groups: tuple[str, ...]
    #: some of it is not idle yet: the task may only be pipelined
    pipelined: bool
    #: how many of the groups are new, each needing a reservation pod
    fresh: int


def new_group(state: State, ask: Ask, index: int) -> str:
    """A new device id in the form of a UUID, the same for the same pod, device and cycle."""
    task = ask.task
    digest = blake2b(f"{state.snapshot.now_ns}/{task.key}/{task.uid}/{index}".encode(), digest_size=16).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:]}"


def _own_devices(state: State, ask: Ask, row: int, devices: dict[str, DeviceUse]) -> list[str]:
    """Devices of the node that a task was told to leave and that would be free without it."""
    leaving = state.leaving.get(ask.task.key) if state.leaving else None
    if leaving is None or leaving.row != row:
        return []
    return [group for group in leaving.gpu_groups if not (devices[group].live or devices[group].pipelined)]


def choose_devices(
    state: State, ask: Ask, row: int, *, pipeline_only: bool, may_stay: bool = True, roomiest: bool = False
) -> Seating | None:
    """Devices for a shared request on one node, None when there are too few.

    Without `may_stay` the answer is that of any task of the shape, wherever it was.  `roomiest` takes the devices with
    most room instead of those the plugins prefer.
    """
    facts = state.snapshot.nodes.facts[row]
    axis = int(shared_axes(state.snapshot)[row])
    if axis < 0:
        return None
    count = ask.shape.gpu.devices
    mib = tenant_mib(ask.shape.gpu, facts.gpu_mib, facts.gpu_label_mib)
    devices = state.devices.get(row, {})

    def score(device: DeviceUse | None) -> float:
        if roomiest:
            return 0.0 if device is None else -float(device.used_mib)
        return sum(scorer(state, ask, row, device) for scorer in state.gpu_scores)

    ranked = sorted((-score(device), group) for group, device in devices.items() if device.has_room(mib, facts.gpu_mib))
    whole = max(int(state.free[axis, row]), 0)
    whole_score = -score(None) if whole else 0.0
    idle_whole = int(state.idle[axis, row])
    startable = not pipeline_only and fits_idle_row(state, ask, row)

    groups: list[str] = []
    fresh = number = 0
    own = _own_devices(state, ask, row, devices) if may_stay else []
    vacant = sorted((group for group, device in devices.items() if device.vacant), reverse=True)
    pipelined = not startable
    position = 0
    while len(groups) < count:
        take_shared = position < len(ranked) and (fresh >= whole or ranked[position][0] <= whole_score)
        if take_shared:
            group = ranked[position][1]
            position += 1
            pipelined |= not devices[group].has_idle_room(mib, facts.gpu_mib)
            groups.append(group)
        elif own:
            # It may stay on the device it was told to leave, which nobody else holds or was promised.
            groups.append(own.pop())
            whole -= 1
            pipelined = True
        elif vacant and fresh < whole:
            groups.append(vacant.pop())
            whole -= 1
        elif fresh < whole:
            # A pod that comes back under its old uid must not find its old name on a device of others.
            while (name := new_group(state, ask, number)) in devices:
                number += 1
            groups.append(name)
            number += 1
            fresh += 1
            # A device is never promised twice: beyond the idle ones only those being released are left.
            pipelined |= fresh > idle_whole
        else:
            return None
    # Every device that is not shared yet needs a reservation pod, and that a slot beside the pod's own.
    pipelined |= state.idle.item(PODS, row) < 1 + fresh
    if roomiest and state.free.item(PODS, row) < 1 + fresh:
        # The check of slots looked at the devices the plugins prefer.
        return None
    return Seating(tuple(groups), pipelined, fresh)
