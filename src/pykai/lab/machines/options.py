"""What can be chosen about a simulated cluster, and the flags of `kai run machines` that choose it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pykai.kube.flags import Flag, read_bool, read_nonnegative_number, read_positive_number, read_text
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
    #: the pods of these namespaces run as processes of this machine
    processes: tuple[str, ...] = ()
    #: where their logs and files are
    process_folder: str = ""


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


FLAGS: Final[tuple[Flag, ...]] = (
    Flag(
        "default-run-seconds",
        "30",
        read_positive_number,
        "how long a pod runs that says nothing of it and does not restart",
        field="behaviour.run_s",
    ),
    Flag(
        "refused-pods",
        "0",
        read_nonnegative_number,
        "part of all pods that kubelets refuse although there is room, 0 to 1",
        field="behaviour.refused",
    ),
    Flag(
        "all-nodes",
        "true",
        read_bool,
        "every node is simulated, not only those with the label of simulated nodes",
        field="all_nodes",
    ),
    Flag(
        "controllers",
        "true",
        read_bool,
        "run the controllers; false where a controller manager does",
        field="controllers",
    ),
    Flag(
        "default-scheduler",
        "true",
        read_bool,
        "run the default scheduler; false where a kube-scheduler does",
        field="default_scheduler",
    ),
    Flag(
        "nodes",
        "",
        read_text,
        "nodes to create: a story's file for its machines, or none; those of the lab without it",
        field="nodes",
    ),
    Flag(
        "processes",
        "",
        _names,
        "namespaces, separated by commas, whose pods run as processes of this machine; they may start only `kai`",
        field="processes",
    ),
    Flag(
        "process-folder",
        "",
        read_text,
        "folder of those processes: logs, mounted files, and the socket of their network",
        field="process_folder",
    ),
)
