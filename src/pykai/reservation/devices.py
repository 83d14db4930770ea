"""Which device this container was given: one way of asking for each vendor.

A way gives the identities that it sees, as the runtime of its vendor takes them in its `..._VISIBLE_DEVICES`, or says
why it cannot be used here (`NotUsable`).  The first usable one decides.  A reservation pod asked for one GPU, so it
must see exactly one: with two it is unknown which of them the kubelet gave away, and a guess would let two groups share
a GPU.

Statements: gpu:RP-2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pykai.reservation import amdsmi, environment, nvml
from pykai.reservation.failures import DeviceError, NotUsable


class DeviceSource(NamedTuple):
    """A way to learn which devices are here."""

    #: as in messages
    name: str
    #: the identities of the devices; raises `NotUsable`, or `DeviceError` where the driver fails
    ask: Callable[[], Sequence[str]]


SOURCES: Final = (
    DeviceSource("NVML", nvml.visible_devices),
    DeviceSource("AMD SMI", amdsmi.visible_devices),
    DeviceSource("the environment", environment.visible_devices),
)

_NO_DRIVER: Final = (
    "Run reservation pods with the runtime class of the GPU driver"
    " (`--runtime-class-name` of the binder, `spec.binder.resourceReservation.runtimeClassName` of the Config),"
    " and check the driver and the device plugin of this node"
)
_TOO_MANY: Final = (
    "The container sees more than the kubelet gave it: it must not be privileged, and the container runtime must not"
    " pass all GPUs (NVIDIA_VISIBLE_DEVICES=all)"
)


def own_device(sources: Sequence[DeviceSource] = SOURCES) -> str:
    """The identity of the one device of this container; raises `DeviceError`."""
    reasons = []
    for source in sources:
        try:
            found = source.ask()
        except NotUsable as reason:
            reasons.append(f"{source.name}: {reason}")
            continue
        if len(found) == 1:
            return found[0]
        listed = f" ({', '.join(found)})" if found else ""
        advice = _TOO_MANY if found else _NO_DRIVER
        raise DeviceError(f"{source.name} found {len(found)} devices{listed}, 1 was expected. {advice}.")
    raise DeviceError(f"No GPU was found. {'; '.join(reasons)}. {_NO_DRIVER}.")
