"""The devices of a machine and the pods that hold them.

A machine that has `nvidia.com/gpu: 8` has eight GPUs with identities that depend on its name alone, so that they are
the same after a restart. A pod that asks for whole devices gets free ones; it keeps them until its containers have
stopped. The assignment is stored in an annotation of the pod and read back after a restart, so no device is ever
assigned twice.

A reservation pod (which stands in for pods that share a GPU) gets a device like any other pod, and publishes its
identity in the annotation that the binder waits for (gpu:RP-2).

Statements: sim:devices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache

from pykai.api import names
from pykai.api.gpuvendors import is_gpu

#: Devices of a kind beyond this number get no identities.
MAX_DEVICES = 1024


def is_device(resource: str) -> bool:
    """Whether units of this resource have identities."""
    return is_gpu(resource) or resource.startswith(names.MIG_PREFIX)


@lru_cache(maxsize=1 << 15)
def device_id(node: str, resource: str, index: int) -> str:
    """The identity of one device of a machine."""
    digest = hashlib.blake2b(f"{node}/{resource}/{index}".encode(), digest_size=16).hexdigest()
    kind = "MIG" if resource.startswith(names.MIG_PREFIX) else "GPU"
    return f"{kind}-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


class DeviceLedger:
    """The devices of one machine and their holders."""

    def __init__(self, node: str) -> None:
        self._node = node
        #: device -> pod
        self._holders: dict[str, str] = {}
        #: pod -> its devices
        self._held: dict[str, tuple[str, ...]] = {}

    def held_by(self, pod: str) -> tuple[str, ...]:
        """The devices of a pod."""
        return self._held.get(pod, ())

    def record_assignment(self, pod: str, devices: Iterable[str]) -> None:
        """Record devices that a pod already has; one that another pod holds stays there."""
        mine = tuple(device for device in devices if self._holders.setdefault(device, pod) == pod)
        if mine:
            self._held[pod] = mine

    def assign(self, pod: str, requests: Mapping[str, int], capacity: Mapping[str, int]) -> tuple[str, ...]:
        """Devices for all that a pod asks for; what it already holds is kept."""
        held = self._held.get(pod)
        if held is not None:
            return held
        assigned: list[str] = []
        for resource, count in requests.items():
            if count <= 0 or not is_device(resource):
                continue
            free = 0
            for index in range(min(MAX_DEVICES, capacity.get(resource, 0))):
                device = device_id(self._node, resource, index)
                if device not in self._holders:
                    assigned.append(device)
                    free += 1
                    if free == count:
                        break
        if assigned:
            self.record_assignment(pod, assigned)
        return tuple(assigned)

    def release(self, pod: str) -> None:
        """The devices of a pod are free again."""
        for device in self._held.pop(pod, ()):
            del self._holders[device]
