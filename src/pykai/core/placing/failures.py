"""Why an attempt to place tasks failed, without names, so that equal attempts share it."""

from __future__ import annotations

from typing import NamedTuple

from pykai.core.report.decisions import Refusal


class PlacementFailure(NamedTuple):
    """Where an attempt failed and why, without the names of the pods (see `placing/gang.py`)."""

    batch: int
    position: int
    base: str
    nodes: dict[str, int]
    unresolvable: bool
    #: instead of all that: why there is no set of nodes to try, without the name of the group
    refusals: tuple[Refusal, ...] = ()
