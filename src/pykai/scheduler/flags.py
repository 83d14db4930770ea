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


def read_text(text: str) -> str:
    """Any text."""
    return text


def read_bool(text: str) -> bool:
    """A boolean as Go reads it."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("expected true or false")


def bounded_int(minimum: int, maximum: int = 2**31 - 1) -> Callable[[str], int]:
    """A whole number between two bounds."""

    def read(text: str) -> int:
        number = int(text) if _INTEGER.fullmatch(text) else None
        if number is None or not minimum <= number <= maximum:
            raise ValueError(f"expected a whole number of at least {minimum} and at most {maximum}")
        return number

    return read


read_count = bounded_int(0)
read_port = bounded_int(0, 65535)


def read_profile(text: str) -> str:
    """The name of a built-in configuration, or nothing."""
    if text and text not in PROFILES:
        raise ValueError(f"expected one of {', '.join(PROFILES)}")
    return text


def read_go_duration(text: str) -> int:
    """A Go duration, in nanoseconds."""
    try:
        return parse_duration(text)
    except DurationError as error:
        raise ValueError(f"expected a duration such as 1m30s ({error})") from None


def read_nonnegative_duration(text: str) -> int:
    """A Go duration that is not negative, in nanoseconds."""
    span = read_go_duration(text)
    if span < 0:
        raise ValueError("expected a duration that is not negative")
    return span


def read_stuck_threshold(text: str) -> int:
    """A Go duration; at or below zero means the built-in two minutes (cycle:21)."""
    span = read_go_duration(text)
    return span if span > 0 else names.STUCK_IN_RELEASING_S * 1_000_000_000


@dataclass(frozen=True, slots=True)
class SchedulerFlag:
    """One flag."""

    name: str
    #: as upstream prints it
    default: str
    read: Callable[[str], Any]
    meaning: str
    #: the statement that uses it, "" = accepted, without effect
    spec_id: str
    #: field of the Shard, or of Flags, that it sets; "" = kept for the service that uses it
    shard_field: str = ""
    flags_field: str = ""


#: cycle:21, in its order.
FLAGS: tuple[SchedulerFlag, ...] = (
    SchedulerFlag(
        "scheduler-name",
        names.SCHEDULER_NAME,
        read_text,
        "pods that name it are ours; event source; lease",
        "cycle:SNP-13",
        shard_field="scheduler_name",
    ),
    SchedulerFlag(
        "namespace", names.DEFAULT_NAMESPACE, read_text, "namespace of the lease and of records of gangs", "cycle:PRC-5"
    ),
    SchedulerFlag("metrics-namespace", names.METRICS_NAMESPACE, read_text, "metric prefix", "cycle:20"),
    SchedulerFlag(
        "resource-reservation-app-label",
        names.RESERVATION_APP,
        read_text,
        "reservation pods",
        "gpu:S-2",
        shard_field="reservation_app",
    ),
    SchedulerFlag(
        "resource-reservation-namespace",
        names.RESERVATION_NAMESPACE,
        read_text,
        "where reservation pods live, as for the binder (not in KAI Scheduler)",
        "gpu:RV-4",
        shard_field="reservation_namespace",
    ),
    SchedulerFlag(
        "restrict-node-scheduling",
        "false",
        read_bool,
        "only labelled worker nodes",
        "cycle:SNP-4",
        shard_field="restrict_nodes",
    ),
    SchedulerFlag(
        "nodepool-label-key",
        names.NODE_POOL_LABEL,
        read_text,
        "shard label",
        "cycle:SNP-3",
        shard_field="node_pool_key",
    ),
    SchedulerFlag("partition-label-value", "", read_text, "shard value", "cycle:SNP-3", shard_field="node_pool"),
    SchedulerFlag(
        "queue-label-key",
        names.QUEUE_LABEL,
        read_text,
        "shared claims of one queue",
        "gpu:D-9",
        shard_field="queue_label",
    ),
    SchedulerFlag("scheduler-conf", "", read_text, "configuration file", "cycle:CFG-1"),
    SchedulerFlag("schedule-period", "1s", read_nonnegative_duration, "idle time between cycles", "cycle:CYC-1"),
    SchedulerFlag("leader-elect", "false", read_bool, "one of several replicas is active", "cycle:PRC-5"),
    SchedulerFlag("version", "true", read_bool, "print the version at start", "cycle:19"),
    SchedulerFlag("listen-address", names.METRICS_ADDRESS, read_text, "metrics", "cycle:PRC-1"),
    SchedulerFlag("enable-profiler", "false", read_bool, "serve profiles", "cycle:PRC-4"),
    SchedulerFlag("profiler-port", "8182", read_port, "port of the profiles", "cycle:PRC-4"),
    SchedulerFlag("pyroscope-address", "", read_text, "push profiles there", "cycle:PRC-4"),
    SchedulerFlag("pyroscope-mutex-profiler-rate", "5", read_count, "accepted, without effect", ""),
    SchedulerFlag("pyroscope-block-profiler-rate", "5", read_count, "accepted, without effect", ""),
    SchedulerFlag("v", "3", read_count, "log verbosity", "cycle:19"),
    SchedulerFlag("log-json", "false", read_bool, "log as JSON", "cycle:19"),
    SchedulerFlag("log-flush-frequency", "5s", read_go_duration, "accepted, without effect", ""),
    SchedulerFlag(
        "max-consolidation-preemptees",
        "16",
        bounded_int(-1),
        "groups that consolidation may move; 0 = off, -1 = unlimited",
        "cycle:CON-1",
        flags_field="max_consolidation_preemptees",
    ),
    SchedulerFlag("qps", "50", bounded_int(1), "API client: requests a second", "cycle:PRC-7"),
    SchedulerFlag("burst", "300", bounded_int(1), "API client: requests at once", "cycle:PRC-7"),
    SchedulerFlag(
        "detailed-fit-errors",
        "false",
        read_bool,
        "explanations node by node",
        "cycle:EXP-4",
        flags_field="detailed_fit_errors",
    ),
    SchedulerFlag(
        "update-pod-eviction-condition", "false", read_bool, "DisruptionTarget on evicted pods", "cycle:OUT-6"
    ),
    SchedulerFlag("schedule-csi-storage", "false", read_bool, "accepted, without effect", ""),
    SchedulerFlag(
        "use-scheduling-signatures",
        "true",
        read_bool,
        "do not repeat an attempt that must fail again",
        "cycle:14",
        flags_field="use_scheduling_signatures",
    ),
    SchedulerFlag(
        "full-hierarchy-fairness",
        "true",
        read_bool,
        "fairness at every level of the queues",
        "cycle:SNP-10",
        shard_field="full_hierarchy",
    ),
    SchedulerFlag(
        "allow-consolidating-reclaim",
        "true",
        read_bool,
        "moved victims do not count as reclaimed",
        "cycle:RCL-3",
        flags_field="allow_consolidating_reclaim",
    ),
    SchedulerFlag("num-of-status-recording-workers", "5", bounded_int(1), "writers of statuses", "cycle:EXP-15"),
    SchedulerFlag(
        "default-staleness-grace-period",
        "60s",
        read_go_duration,
        "how long a gang may be incomplete; negative = for ever",
        "cycle:STL-3",
        flags_field="staleness_grace_ns",
    ),
    SchedulerFlag(
        "stuck-in-releasing-threshold",
        "2m",
        read_stuck_threshold,
        "after this a terminating pod counts as stuck",
        "cycle:TSK-3",
        shard_field="stuck_after_ns",
    ),
    SchedulerFlag(
        "plugin-server-port", "8081", read_port, "snapshots and job order; 0 takes a free port", "cycle:PRC-2"
    ),
    SchedulerFlag(
        "cpu-worker-node-label-key",
        names.CPU_WORKER_NODE_LABEL,
        read_text,
        "CPU worker nodes",
        "cycle:SNP-4",
        shard_field="cpu_worker_label",
    ),
    SchedulerFlag(
        "gpu-worker-node-label-key",
        names.GPU_WORKER_NODE_LABEL,
        read_text,
        "GPU worker nodes",
        "cycle:SNP-4",
        shard_field="gpu_worker_label",
    ),
    SchedulerFlag(
        "mig-worker-node-label-key",
        names.MIG_ENABLED_NODE_LABEL,
        read_text,
        "MIG nodes",
        "cycle:NOD-5",
        shard_field="mig_label",
    ),
    SchedulerFlag(
        "honour-preemption-policy",
        "false",
        read_bool,
        "preemptionPolicy Never keeps groups of a priority class from triggering evictions (not in KAI Scheduler)",
        "cycle:POL-7",
        flags_field="honour_preemption_policy",
    ),
    SchedulerFlag(
        "profile",
        "",
        read_profile,
        "built-in configuration, before what the configuration file names (not in KAI Scheduler)",
        "cycle:FLT-4",
        flags_field="profile",
    ),
    SchedulerFlag(
        "min-cycle-interval",
        "20ms",
        read_nonnegative_duration,
        "shortest time between two cycles; a change starts one then (not in KAI Scheduler)",
        "cycle:CYC-1",
    ),
    SchedulerFlag(
        "fast-bind",
        "true",
        read_bool,
        "bind pods that need nothing prepared without a BindRequest (not in KAI Scheduler)",
        "cycle:OUT-1",
    ),
    SchedulerFlag(
        "shadow",
        "false",
        read_bool,
        "decide and log beside another scheduler, write nothing (not in KAI Scheduler)",
        "cycle:OUT-1",
    ),
    SchedulerFlag(
        "strict",
        "false",
        read_bool,
        "do not start with a configuration file of which any part would be skipped (not in KAI Scheduler)",
        "cycle:CFG-1",
    ),
    # Gates of Kubernetes libraries that are not used here (operations:O-57).
    SchedulerFlag("feature-gates", "", read_text, "accepted, without effect", ""),
)

_BY_NAME = {flag.name: flag for flag in FLAGS}
#: profiles are not served yet (cycle:PRC-4)
_NOT_YET = frozenset(("enable-profiler", "profiler-port", "pyroscope-address"))
#: accepted, because operators pass them, and without effect here
WITHOUT_EFFECT = _NOT_YET | {flag.name for flag in FLAGS if not flag.spec_id}


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

    def apply_to(self, policy: Policy) -> Policy:
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
    shard = replace(Shard(), **{flag.shard_field: values[flag.name] for flag in FLAGS if flag.shard_field})
    own = {flag.flags_field: values[flag.name] for flag in FLAGS if flag.flags_field}
    other = {flag.name: values[flag.name] for flag in FLAGS if not flag.shard_field and not flag.flags_field}
    return Flags(shard=shard, other=other, problems=tuple(problems), **own)
