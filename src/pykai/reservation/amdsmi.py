"""AMD's devices through AMD SMI, a library of ROCm that is mounted into the container or part of the image.

AMD SMI may list all GPUs of the machine.  The device plugin passes the render nodes of the container's own GPUs
(`/dev/dri/renderD128`), so those whose PCI address has none are left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pykai.reservation.failures import DeviceError, NotUsable

LIBRARY: Final = "libamd_smi.so"
_GPUS_ONLY: Final = 2
#: with the zero at the end
_UUID_SIZE: Final = 38


def visible_devices(dev: Path = Path("/dev"), sysfs: Path = Path("/sys")) -> list[str]:
    """The UUIDs of the GPUs of this container, in the order of AMD SMI."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise NotUsable(f"{LIBRARY} is not in this container") from None
    _check(library.amdsmi_init(ctypes.c_uint64(_GPUS_ONLY)), "amdsmi_init")
    try:
        own = _render_nodes(dev, sysfs)
        return [_uuid(library, handle) for handle in _gpus(library) if not own or _pci_address(library, handle) in own]
    finally:
        library.amdsmi_shut_down()


def _check(status: int, call: str) -> None:
    if status != 0:
        raise DeviceError(
            f"{call} of AMD SMI failed with status {status}. Look at `amd-smi` and the kernel's log of this node."
        )


def _gpus(library: ctypes.CDLL) -> Iterator[ctypes.c_void_p]:
    for socket in _handles(library.amdsmi_get_socket_handles, "amdsmi_get_socket_handles"):
        yield from _handles(library.amdsmi_get_processor_handles, "amdsmi_get_processor_handles", socket)


def _handles(function: Any, name: str, *arguments: ctypes.c_void_p) -> list[ctypes.c_void_p]:
    """What a function lists that first tells how many there are."""
    count = ctypes.c_uint32(0)
    _check(function(*arguments, ctypes.byref(count), None), name)
    found = (ctypes.c_void_p * count.value)()
    _check(function(*arguments, ctypes.byref(count), found), name)
    return [ctypes.c_void_p(each) for each in found[: count.value]]


def _uuid(library: ctypes.CDLL, gpu: ctypes.c_void_p) -> str:
    size, text = ctypes.c_uint(_UUID_SIZE), ctypes.create_string_buffer(_UUID_SIZE)
    _check(library.amdsmi_get_gpu_device_uuid(gpu, ctypes.byref(size), text), "amdsmi_get_gpu_device_uuid")
    return text.value.decode()


def _pci_address(library: ctypes.CDLL, gpu: ctypes.c_void_p) -> str:
    """As in sysfs: function in 3 bits, device in 5, bus in 8, then the domain."""
    bdf = ctypes.c_uint64(0)
    _check(library.amdsmi_get_gpu_device_bdf(gpu, ctypes.byref(bdf)), "amdsmi_get_gpu_device_bdf")
    bits = bdf.value
    return f"{bits >> 16:04x}:{bits >> 8 & 0xFF:02x}:{bits >> 3 & 0x1F:02x}.{bits & 7:x}"


def _render_nodes(dev: Path, sysfs: Path) -> set[str]:
    """The PCI addresses of the render nodes in this container."""
    nodes = (dev / "dri").glob("renderD*")
    return {(sysfs / "class" / "drm" / node.name / "device").resolve().name for node in nodes}
