"""NVIDIA's devices through NVML, the library of the driver.

The container runtime mounts `libnvidia-ml.so.1` of the host's driver into the container, for the device plugin, CDI and
DRA alike, and NVML shows the devices of the container only.

Statements: gpu:RP-2.
"""

from __future__ import annotations

from pykai.reservation.failures import DeviceError, NotUsable


def visible_devices() -> list[str]:
    """The UUIDs of the GPUs of this container, in the order of NVML."""
    try:
        import pynvml
    except ImportError:
        raise NotUsable("the package nvidia-ml-py is missing; pip install 'pykai[nvidia]'") from None
    try:
        pynvml.nvmlInit()
        try:
            count = pynvml.nvmlDeviceGetCount()
            return [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError_LibraryNotFound:
        raise NotUsable("libnvidia-ml.so.1 is not in this container") from None
    except pynvml.NVMLError as error:
        raise DeviceError(f"NVML failed: {error}. Look at `nvidia-smi` and the kernel's log of this node.") from error
