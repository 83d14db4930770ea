"""Validation of Topologies (gpu:A-11, topo:T-9); pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykai.api.decode import DecodeError, decode_as
from pykai.api.topology import Topology, alias_problems
from pykai.webhooks.validationresult import ValidationResult


def validate(document: Mapping[str, Any]) -> ValidationResult:
    """The verdict about a Topology that is created, or updated to this."""
    try:
        topology = decode_as(Topology, dict(document))
    except DecodeError as error:
        return ValidationResult((str(error),))
    problem = alias_problems(topology)
    return ValidationResult((problem,) if problem else ())
