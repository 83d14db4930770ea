"""What can be chosen about a simulated cluster, and the flags of `kai run machines` that choose it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pykai.kube import options
from pykai.lab.machines.podbehaviour import BehaviourDefaults


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """What a simulated cluster is to be like."""

    behaviour: BehaviourDefaults = field(default_factory=BehaviourDefaults)
    #: every node is a simulated machine, not only those that carry the label `simulator.kai.scheduler/node=true`
    all_nodes: bool = True
    #: whether the controllers run, too; off where a real controller manager does
    controllers: bool = True
    #: whether pods of `default-scheduler` are placed, too; off where a real kube-scheduler does
    default_scheduler: bool = True
    #: which nodes to create: a story's file for its machines, "none", or "" for those of the lab in an empty cluster
    nodes: str = ""


_BEHAVIOUR_FLAGS: Final[Mapping[str, str]] = {"default-run-seconds": "run_s", "refused-pods": "refused"}
_OPTION_FLAGS: Final[Mapping[str, str]] = {
    "all-nodes": "all_nodes",
    "controllers": "controllers",
    "default-scheduler": "default_scheduler",
    "nodes": "nodes",
}
#: Flag -> field, of the options or of their habits.
FLAGS: Final[Mapping[str, str]] = {**_BEHAVIOUR_FLAGS, **_OPTION_FLAGS}


def read_options(given: Mapping[str, object]) -> MachineOptions:
    """Options from flags."""
    behaviour_flags = {name: value for name, value in given.items() if name.lstrip("-") in _BEHAVIOUR_FLAGS}
    others = {name: value for name, value in given.items() if name not in behaviour_flags}
    behaviour = options.read_options(BehaviourDefaults(), _BEHAVIOUR_FLAGS, behaviour_flags)
    return replace(options.read_options(MachineOptions(), _OPTION_FLAGS, others), behaviour=behaviour)
