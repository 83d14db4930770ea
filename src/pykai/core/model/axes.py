"""Resource names as rows of the node columns, and the unit of each.

Columns are resource-major, `column[axis, node]`, so one comparison covers a resource of every node.  Three axes always
exist: cpu (milli), memory (bytes) and pods (count).  Every other name gets its own axis when a node first offers it,
which is why fit is per resource name: a pod that requests `nvidia.com/gpu` never fits the `amd.com/gpu` of another
node.  For quota, fair share and scores all `*/gpu` axes are one dimension of whole devices (cycle:R-3), and a MIG slice
counts as many GPUs as its profile says (cycle:R-6).

A name that no node offers has no axis: pods may name any number of resources, and each axis costs every snapshot a row
over all nodes.  A pod that requests such a name fits nowhere (`vectors`).

Amounts are `int64` and saturate at 2^53: however absurd the pods of a node are, their sum is exact and so is undo.

Statements: design:1.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pykai.api import names
from pykai.api.gpuvendors import is_gpu
from pykai.api.quantity import milli_value, unit_value

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
#: Node rows to evaluate: all of a range, or those listed.
Rows = slice | IntArray

CPU, MEMORY, PODS = 0, 1, 2
# Pods are an amount like any other, one for each (cycle:NOD-6).
_FIXED_AXES = ("cpu", "memory", "pods")

#: Amounts stop here.  A thousand of the largest still add up in an int64, and each is exact as a float.
MAX_AMOUNT = 2**53

#: A demand no node can meet: stands for names that no node offers.
UNSATISFIABLE = 2**62

#: A demand every node meets: stands for "not requested" in a comparison over all axes (cycle:R-4, Do better).
NOT_REQUESTED = -(2**62)

_WHOLE_UNITS = frozenset(("memory", "pods", "ephemeral-storage", "storage"))
#: Three digits are more slices than any GPU has; a name with more is not a profile and must not overflow a sum.
_MIG_PROFILE = re.compile(r"^nvidia\.com/mig-(?:\d+c\.)?(\d{1,3})g\.(\d+)gb(?:\.[a-z0-9.]+)?$")


def is_mig(name: str) -> bool:
    """Whether the resource is a slice of a partitioned NVIDIA GPU."""
    return name.startswith(names.MIG_PREFIX)


@lru_cache(maxsize=4096)
def mig_gpus(name: str) -> int:
    """How many GPUs of quota one slice of this profile costs; 0 for a name that is not a profile (gpu:G-16)."""
    match = _MIG_PROFILE.match(name)
    return int(match.group(1)) if match else 0


@lru_cache(maxsize=4096)
def is_tracked(name: str) -> bool:
    """Whether Kubernetes treats the name as something a node can run out of (cycle:R-2)."""
    if name in ("cpu", *_WHOLE_UNITS):
        return True
    if name.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "/" in name and not name.startswith("requests.")


def amount(name: str, raw: str | int | float) -> int:
    """The amount in the unit of its axis: milli for cpu and unknown scalars, whole for the rest."""
    value = unit_value(raw) if name in _WHOLE_UNITS or is_gpu(name) or is_mig(name) else milli_value(raw)
    return max(-MAX_AMOUNT, min(MAX_AMOUNT, value))


class Axes:
    """The register of resource names; it only ever grows, so an axis keeps its number (cycle:R-1)."""

    __slots__ = ("gpu_axes", "index", "mig_axes", "names")

    def __init__(self) -> None:
        #: axis -> resource name
        self.names: list[str] = []
        #: resource name -> axis
        self.index: dict[str, int] = {}
        #: axes of whole GPUs
        self.gpu_axes: list[int] = []
        #: axes of MIG slices
        self.mig_axes: list[int] = []
        for name in _FIXED_AXES:
            self.axis(name)

    def __len__(self) -> int:
        return len(self.names)

    def axis(self, name: str) -> int:
        """The axis of a resource that a node offers, a new one for a new name."""
        existing = self.index.get(name)
        if existing is not None:
            return existing
        axis = len(self.names)
        self.names.append(name)
        self.index[name] = axis
        if is_gpu(name):
            self.gpu_axes.append(axis)
        elif is_mig(name):
            self.mig_axes.append(axis)
        return axis


def row_numbers(rows: Rows, size: int) -> range | list[int]:
    """The rows one by one."""
    return range(*rows.indices(size)) if isinstance(rows, slice) else rows.tolist()
