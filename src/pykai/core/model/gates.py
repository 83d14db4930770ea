"""Scheduling gates of pods: that of queue admission gating, and those of others (queues:Q-405).

While the scheduler writes that the gate of a queue is removed, its tables have `OPENING_GATE` in its place: the pod was
admitted, but no API server would bind it yet.  While the removal pauses because the server refuses it, they have
`REFUSED_GATE`, which counts as foreign: nothing is decided about the pod.  No API server accepts gates of these names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from pykai.api import names
from pykai.api.core import SchedulingGate
from pykai.api.timestamp import TimestampError, parse_timestamp

OPENING_GATE: Final = f"{names.ADMISSION_GATE} (being removed)"
REFUSED_GATE: Final = f"{names.ADMISSION_GATE} (removal refused)"


class Gate(IntEnum):
    """Which gates hold a pod."""

    NONE = 0
    #: that of its queue and no other
    QUEUE = 1
    #: that of its queue, which is being removed
    OPENING = 2
    #: at least one of another program, which is never touched
    FOREIGN = 3


def read_gate(gates: Sequence[SchedulingGate]) -> Gate:
    """What the gates of a pod amount to."""
    found = {gate.name for gate in gates}
    if not found:
        return Gate.NONE
    if found == {names.ADMISSION_GATE}:
        return Gate.QUEUE
    return Gate.OPENING if found == {OPENING_GATE} else Gate.FOREIGN


def admitted_ns(annotations: Mapping[str, str]) -> int | None:
    """When a pod was admitted to its queue; None if it does not say so in a readable way."""
    text = annotations.get(names.ADMITTED_TIMESTAMP_ANNOTATION)
    if text is None:
        return None
    try:
        return parse_timestamp(text)
    except TimestampError:
        return None
