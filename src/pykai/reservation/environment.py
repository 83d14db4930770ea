"""Devices by the environment variables that device plugins, CDI specifications and DRA drivers set.

For vendors whose library is not in the container, Intel among them.  A variable lists identities or indices, which are
unique on the node, or names of CDI, `vendor.com/class=name`.  Words such as `all` and `void` name no device.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from pykai.reservation.failures import NotUsable

VARIABLES: Final = (
    "NVIDIA_VISIBLE_DEVICES",
    "AMD_VISIBLE_DEVICES",
    "INTEL_VISIBLE_DEVICES",
    "HABANA_VISIBLE_DEVICES",
)
#: what container runtimes take for "every device", "none", and "passed in another way"
_NO_DEVICES: Final = frozenset(("", "all", "none", "void"))


def visible_devices(variables: Mapping[str, str] = os.environ) -> list[str]:
    """The devices that the first variable names that names any."""
    for variable in VARIABLES:
        listed = [_identity(part) for part in variables.get(variable, "").split(",")]
        if found := [each for each in listed if each not in _NO_DEVICES]:
            return found
    raise NotUsable(f"none of {', '.join(VARIABLES)} names a device")


def _identity(part: str) -> str:
    """A device without the vendor and class of CDI."""
    return part.strip().rpartition("=")[2]
