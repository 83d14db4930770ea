"""Host ports: one holder per address, protocol and port of a node (cycle:FLT-2 NodePorts)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.model.axes import IntArray, Rows, row_numbers
from pykai.core.model.shapes import HostPort

_ANY_ADDRESS = "0.0.0.0"


def ports_conflict(requested: Iterable[HostPort], held: Iterable[HostPort]) -> bool:
    """Whether some wanted port is taken; the wildcard address clashes with every address."""
    taken: dict[tuple[str, int], set[str]] = {}
    for port in held:
        taken.setdefault((port.protocol, port.port), set()).add(port.ip)
    for port in requested:
        addresses = taken.get((port.protocol, port.port))
        if addresses and (port.ip == _ANY_ADDRESS or _ANY_ADDRESS in addresses or port.ip in addresses):
            return True
    return False


def port_conflict_codes(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    """[rows] 1 where a host port of the request is in use."""
    numbers = row_numbers(rows, len(state.snapshot.nodes))
    requested = request.shape.host_ports
    codes = np.zeros(len(numbers), dtype=np.int64)
    for position, row in enumerate(numbers):
        held = state.ports.get(row)
        if held and ports_conflict(requested, held):
            codes[position] = 1
    return codes
