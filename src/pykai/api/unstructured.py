"""Types of objects that are kept as decoded JSON instead of as a class of `pykai.api`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# An object that its holder may change.
JsonObject = dict[str, Any]

# An object that is only read.
JsonMapping = Mapping[str, Any]
