"""Which resources are GPUs, and of which vendor: the one place that knows (cycle:R-3, gpu:G-14).

A resource is a GPU if its name ends in `/gpu`, as device plugins of most vendors name them, or if it is in the table:
Intel's plugin names GPUs after their driver.  Names that only look similar are not, such as Intel's `i915_monitoring`,
which watches all GPUs of a node and takes none.

Parts of a GPU are shared by pods that read `NVIDIA_VISIBLE_DEVICES`, and a pod of the device plugin's own resource
holds the whole GPU meanwhile.  Both exist for `nvidia.com/gpu` only, so no other GPU is shared (docs/vendors.md): the
binder's reservation pods and scaling pods ask for `SHAREABLE_GPU`, and shares count as parts of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pykai.api import names


@dataclass(frozen=True, slots=True)
class GpuVendor:
    """A vendor whose device plugin is known by name."""

    name: str
    #: resources of whole GPUs
    resources: tuple[str, ...]
    #: node label with the model
    product_label: str
    #: node label with the memory: of one GPU in MiB, of all in bytes, or, with the amount in its key, their number
    memory_label: str


NVIDIA: Final = GpuVendor("NVIDIA", (names.NVIDIA_GPU,), names.GPU_PRODUCT_NODE_LABEL, names.GPU_MEMORY_NODE_LABEL)
AMD: Final = GpuVendor(
    "AMD", (names.AMD_GPU,), names.AMD_GPU_PRODUCT_NODE_LABEL, names.AMD_GPU_MEMORY_NODE_LABEL_PREFIX
)
INTEL: Final = GpuVendor(
    "Intel",
    (names.INTEL_GPU_I915, names.INTEL_GPU_XE),
    names.INTEL_GPU_PRODUCT_NODE_LABEL,
    names.INTEL_GPU_MEMORY_NODE_LABEL,
)
VENDORS: Final = (NVIDIA, AMD, INTEL)

#: the resource whose devices pods can share (ADR-37)
SHAREABLE_GPU: Final = NVIDIA.resources[0]

_BY_RESOURCE: Final[Mapping[str, GpuVendor]] = {each: vendor for vendor in VENDORS for each in vendor.resources}


def is_gpu(resource: str) -> bool:
    """Whether the resource is a whole GPU of some vendor (gpu:G-14, cycle:R-3)."""
    return resource.endswith(names.GPU_SUFFIX) or resource in _BY_RESOURCE


def is_shareable(resource: str) -> bool:
    """Whether pods can share GPUs of this resource (ADR-37)."""
    return resource == SHAREABLE_GPU


def vendor_of(resource: str) -> GpuVendor | None:
    """The vendor of a resource, None for one that is not in the table."""
    return _BY_RESOURCE.get(resource)
