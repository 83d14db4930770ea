"""How to schedule: which actions in which order, which plugins, and the settings of cycle:21 that touch decisions.

A policy is data; reading it from a configuration file (and saying what is wrong with the file) is
`pykai.scheduler.configuration`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pykai.core.hooks import Plugin


@dataclass(frozen=True, slots=True)
class NamedPlugin:
    """A plugin with the name the configuration gave it."""

    name: str
    plugin: Plugin
    #: not built in: what it raises must not stop the cycle
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that shapes decisions besides the state of the cluster."""

    actions: tuple[str, ...]
    plugins: tuple[NamedPlugin, ...]
    #: action -> groups looked at per leaf queue; absent = all (cycle:ORD-5)
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    #: historical usage per queue name as fractions of the cluster: CPU, memory, GPU (queues:Q-335)
    usage: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    #: reuse the outcome of an equal attempt while nothing has changed; decisions are the same without
    skip_seen: bool = True
    #: say node by node why a task found no place (cycle:EXP-4)
    detailed_fit_errors: bool = False
    #: recompute every sum after every committed gang; for tests
    validate: bool = False
