"""The scheduler's command-line flags (cycle:21), as one table.

`FLAGS` lists every flag upstream has, with its default as upstream prints it, so that an operator's command line
works unchanged.  `read_flags` turns a mapping of flag to value into `Flags`: what shapes the model goes into the
`Shard`, what shapes decisions has a field of its own, the rest is kept as read for the services that use it.

`read_flags` raises nothing, because the flags in a snapshot file of another version are read as far as they can be: a
bad value is reported and the default stays, an unknown flag is reported and skipped.  On a command line any such
problem ends the program (`cli/run.py`): one letter less in `--shadow` must not schedule for real.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pykai.api import names
from pykai.api.duration import DurationError, parse_duration
from pykai.api.suggestions import did_you_mean
from pykai.core.model.problems import Problem
from pykai.core.model.shard import Shard
from pykai.core.plugins import PROFILES
from pykai.core.policy import Policy

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def a_text(text: str) -> str:
    """Any text."""
    return text


def a_switch(text: str) -> bool:
    """A boolean as Go reads it."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("expected true or false")


def at_least(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """A whole number between two bounds."""

    def read(text: str) -> int:
        number = int(text) if _INTEGER.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise ValueError(f"expected a whole number of at least {least} and at most {most}")
        return number

    return read


a_count = at_least(0)
a_port = at_least(0, 65535)


def a_profile(text: str) -> str:
    """The name of a built-in configuration, or nothing."""
    if text and text not in PROFILES:
        raise ValueError(f"expected one of {', '.join(PROFILES)}")
    return text


def a_span(text: str) -> int:
    """A Go duration, in nanoseconds."""
    try:
        return parse_duration(text)
    except DurationError as error:
        raise ValueError(f"expected a duration such as 1m30s ({error})") from None


def a_pause(text: str) -> int:
    """A Go duration that is not negative, in nanoseconds."""
    span = a_span(text)
    if span < 0:
        raise ValueError("expected a duration that is not negative")
    return span


def a_threshold(text: str) -> int:
    """A Go duration; at or below zero means the built-in two minutes (cycle:21)."""
    span = a_span(text)
    return span if span > 0 else names.STUCK_IN_RELEASING_S * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag."""

    name: str
    #: as upstream prints it
    default: str
    read: Callable[[str], Any]
    meaning: str
    #: the statement that uses it, "" = accepted, without effect
    part: str
    #: field of the Shard, or of Flags, that it sets; "" = kept for the service that uses it
    shard: str = ""
    own: str = ""


#: cycle:21, in its order.
FLAGS: tuple[Flag, ...] = (
    Flag(
        "scheduler-name",
        names.SCHEDULER_NAME,
        a_text,
        "pods that name it are ours; event source; lease",
        "cycle:SNP-13",
        shard="scheduler_name",
    ),
    Flag("namespace", names.DEFAULT_NAMESPACE, a_text, "namespace of the lease and of records of gangs", "cycle:PRC-5"),
    Flag("metrics-namespace", names.METRICS_NAMESPACE, a_text, "metric prefix", "cycle:20"),
    Flag(
        "resource-reservation-app-label",
        names.RESERVATION_APP,
        a_text,
        "reservation pods",
        "gpu:S-2",
        shard="reservation_app",
    ),
    Flag(
        "resource-reservation-namespace",
        names.RESERVATION_NAMESPACE,
        a_text,
        "where reservation pods live, as for the binder (not in KAI Scheduler)",
        "gpu:RV-4",
        shard="reservation_namespace",
    ),
    Flag(
        "restrict-node-scheduling",
        "false",
        a_switch,
        "only labelled worker nodes",
        "cycle:SNP-4",
        shard="restrict_nodes",
    ),
    Flag("nodepool-label-key", names.NODE_POOL_LABEL, a_text, "shard label", "cycle:SNP-3", shard="node_pool_key"),
    Flag("partition-label-value", "", a_text, "shard value", "cycle:SNP-3", shard="node_pool"),
    Flag("queue-label-key", names.QUEUE_LABEL, a_text, "shared claims of one queue", "gpu:D-9", shard="queue_label"),
    Flag("scheduler-conf", "", a_text, "configuration file", "cycle:CFG-1"),
    Flag("schedule-period", "1s", a_pause, "idle time between cycles", "cycle:CYC-1"),
    Flag("leader-elect", "false", a_switch, "one of several replicas is active", "cycle:PRC-5"),
    Flag("version", "true", a_switch, "print the version at start", "cycle:19"),
    Flag("listen-address", names.METRICS_ADDRESS, a_text, "metrics", "cycle:PRC-1"),
    Flag("enable-profiler", "false", a_switch, "serve profiles", "cycle:PRC-4"),
    Flag("profiler-port", "8182", a_port, "port of the profiles", "cycle:PRC-4"),
    Flag("pyroscope-address", "", a_text, "push profiles there", "cycle:PRC-4"),
    Flag("pyroscope-mutex-profiler-rate", "5", a_count, "accepted, without effect", ""),
    Flag("pyroscope-block-profiler-rate", "5", a_count, "accepted, without effect", ""),
    Flag("v", "3", a_count, "log verbosity", "cycle:19"),
    Flag("log-json", "false", a_switch, "log as JSON", "cycle:19"),
    Flag("log-flush-frequency", "5s", a_span, "accepted, without effect", ""),
    Flag(
        "max-consolidation-preemptees",
        "16",
        at_least(-1),
        "groups that consolidation may move; 0 = off, -1 = unlimited",
        "cycle:CON-1",
        own="max_consolidation_preemptees",
    ),
    Flag("qps", "50", at_least(1), "API client: requests a second", "cycle:PRC-7"),
    Flag("burst", "300", at_least(1), "API client: requests at once", "cycle:PRC-7"),
    Flag(
        "detailed-fit-errors", "false", a_switch, "explanations node by node", "cycle:EXP-4", own="detailed_fit_errors"
    ),
    Flag("update-pod-eviction-condition", "false", a_switch, "DisruptionTarget on evicted pods", "cycle:OUT-6"),
    Flag("schedule-csi-storage", "false", a_switch, "accepted, without effect", ""),
    Flag(
        "use-scheduling-signatures",
        "true",
        a_switch,
        "do not repeat an attempt that must fail again",
        "cycle:14",
        own="use_scheduling_signatures",
    ),
    Flag(
        "full-hierarchy-fairness",
        "true",
        a_switch,
        "fairness at every level of the queues",
        "cycle:SNP-10",
        shard="full_hierarchy",
    ),
    Flag(
        "allow-consolidating-reclaim",
        "true",
        a_switch,
        "moved victims do not count as reclaimed",
        "cycle:RCL-3",
        own="allow_consolidating_reclaim",
    ),
    Flag("num-of-status-recording-workers", "5", at_least(1), "writers of statuses", "cycle:EXP-15"),
    Flag(
        "default-staleness-grace-period",
        "60s",
        a_span,
        "how long a gang may be incomplete; negative = for ever",
        "cycle:STL-3",
        own="staleness_grace_ns",
    ),
    Flag(
        "stuck-in-releasing-threshold",
        "2m",
        a_threshold,
        "after this a terminating pod counts as stuck",
        "cycle:TSK-3",
        shard="stuck_after_ns",
    ),
    Flag("plugin-server-port", "8081", a_port, "snapshots and job order; 0 takes a free port", "cycle:PRC-2"),
    Flag(
        "cpu-worker-node-label-key",
        names.CPU_WORKER_NODE_LABEL,
        a_text,
        "CPU worker nodes",
        "cycle:SNP-4",
        shard="cpu_worker_label",
    ),
    Flag(
        "gpu-worker-node-label-key",
        names.GPU_WORKER_NODE_LABEL,
        a_text,
        "GPU worker nodes",
        "cycle:SNP-4",
        shard="gpu_worker_label",
    ),
    Flag(
        "mig-worker-node-label-key",
        names.MIG_ENABLED_NODE_LABEL,
        a_text,
        "MIG nodes",
        "cycle:NOD-5",
        shard="mig_label",
    ),
    Flag(
        "honour-preemption-policy",
        "false",
        a_switch,
        "preemptionPolicy Never keeps groups of a priority class from triggering evictions (not in KAI Scheduler)",
        "cycle:POL-7",
        own="honour_preemption_policy",
    ),
    Flag(
        "profile",
        "",
        a_profile,
        "built-in configuration, before what the configuration file names (not in KAI Scheduler)",
        "cycle:FLT-4",
        own="profile",
    ),
    Flag(
        "min-cycle-interval",
        "20ms",
        a_pause,
        "shortest time between two cycles; a change starts one then (not in KAI Scheduler)",
        "cycle:CYC-1",
    ),
    Flag(
        "fast-bind",
        "true",
        a_switch,
        "bind pods that need nothing prepared without a BindRequest (not in KAI Scheduler)",
        "cycle:OUT-1",
    ),
    Flag(
        "shadow",
        "false",
        a_switch,
        "decide and log beside another scheduler, write nothing (not in KAI Scheduler)",
        "cycle:OUT-1",
    ),
    Flag(
        "strict",
        "false",
        a_switch,
        "do not start with a configuration file of which any part would be skipped (not in KAI Scheduler)",
        "cycle:CFG-1",
    ),
    # Gates of Kubernetes libraries that are not used here (operations:O-57).
    Flag("feature-gates", "", a_text, "accepted, without effect", ""),
)

_BY_NAME = {flag.name: flag for flag in FLAGS}
#: profiles are not served yet (cycle:PRC-4)
_NOT_YET = frozenset(("enable-profiler", "profiler-port", "pyroscope-address"))
#: accepted, because operators pass them, and without effect here
WITHOUT_EFFECT = _NOT_YET | {flag.name for flag in FLAGS if not flag.part}


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags as read."""

    shard: Shard = field(default_factory=Shard)
    #: jobs that consolidation may move; 0 = off, -1 = any number
    max_consolidation_preemptees: int = 16
    allow_consolidating_reclaim: bool = True
    #: reuse the outcome of equal attempts (`Policy.reuse_failures`)
    use_scheduling_signatures: bool = True
    detailed_fit_errors: bool = False
    #: how long a gang may be incomplete before it is evicted; negative = for ever
    staleness_grace_ns: int = names.STALENESS_GRACE_S * 1_000_000_000
    honour_preemption_policy: bool = False
    #: for `load_configuration`; "" = as the configuration file says
    profile: str = ""
    #: every other flag by name, defaults included
    other: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def shaping(self, policy: Policy) -> Policy:
        """The policy of the configuration file with what the flags say about decisions."""
        return replace(
            policy,
            reuse_failures=self.use_scheduling_signatures,
            detailed_fit_errors=self.detailed_fit_errors,
            max_consolidation_preemptees=self.max_consolidation_preemptees,
            allow_consolidating_reclaim=self.allow_consolidating_reclaim,
            staleness_grace_ns=self.staleness_grace_ns,
            honour_preemption_policy=self.honour_preemption_policy,
        )


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_flags(given: Mapping[str, object]) -> Flags:
    """Flags by name, with or without dashes in front; values are texts, numbers or booleans, unset ones None.

    Statements: operations:O-49.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {flag.name: flag.read(flag.default) for flag in FLAGS}
    for spelled, value in given.items():
        name = spelled.lstrip("-")
        flag = _BY_NAME.get(name)
        if flag is None:
            problems.append(
                Problem("scheduler flags", f"--{name}", f"unknown flag; skipped{did_you_mean(name, _BY_NAME, '--')}")
            )
            continue
        if value is None:
            continue
        try:
            values[name] = flag.read(_as_text(value))
        except ValueError as error:
            text = f"{value!r}: {error}; the default {flag.default!r} is used"
            problems.append(Problem("scheduler flags", f"--{name}", text))
    shard = replace(Shard(), **{flag.shard: values[flag.name] for flag in FLAGS if flag.shard})
    own = {flag.own: values[flag.name] for flag in FLAGS if flag.own}
    other = {flag.name: values[flag.name] for flag in FLAGS if not flag.shard and not flag.own}
    return Flags(shard=shard, other=other, problems=tuple(problems), **own)
