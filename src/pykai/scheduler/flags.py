"""The scheduler's command-line flags (cycle:21), as one table.

`FLAGS` lists every flag upstream has, with its default as upstream prints it.  `read_flags` turns a mapping of flag to
value into `Flags`: what shapes the model goes into the `Shard`, what shapes decisions has a field of its own, the rest
is kept by name for the part of the service that uses it.

`read_flags` reports problems, as readers of snapshot files need it; `checked_flags` raises, as a command line needs it:
a typo in `--shadow` must not schedule for real.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pykai.api import names
from pykai.core.model.problems import Problem
from pykai.core.model.shard import Shard
from pykai.core.plugins import PROFILES
from pykai.core.policy import Policy
from pykai.kube import flags as service_flags
from pykai.kube.flags import (
    FEATURE_GATES,
    Flag,
    bounded_int,
    read_bool,
    read_count,
    read_duration,
    read_nonnegative_duration,
    read_port,
    read_positive,
    read_text,
    set_fields,
)


def read_profile(text: str) -> str:
    """The name of a built-in configuration, or nothing."""
    if text and text not in PROFILES:
        raise ValueError(f"expected one of {', '.join(PROFILES)}")
    return text


def read_stuck_threshold(text: str) -> int:
    """A Go duration; at or below zero means the built-in two minutes (cycle:21)."""
    span = read_duration(text)
    return span if span > 0 else names.STUCK_IN_RELEASING_S * 1_000_000_000


#: cycle:21, in its order.
FLAGS: tuple[Flag, ...] = (
    Flag(
        "scheduler-name",
        names.SCHEDULER_NAME,
        read_text,
        "pods that name it are ours; event source; lease",
        spec_id="cycle:SNP-13",
        field="shard.scheduler_name",
    ),
    Flag(
        "namespace",
        names.DEFAULT_NAMESPACE,
        read_text,
        "namespace of the lease and of records of gangs",
        spec_id="cycle:PRC-5",
    ),
    Flag("metrics-namespace", names.METRICS_NAMESPACE, read_text, "metric prefix", spec_id="cycle:20"),
    Flag(
        "resource-reservation-app-label",
        names.RESERVATION_APP,
        read_text,
        "reservation pods",
        spec_id="gpu:S-2",
        field="shard.reservation_app",
    ),
    Flag(
        "resource-reservation-namespace",
        names.RESERVATION_NAMESPACE,
        read_text,
        "where reservation pods live, as for the binder (not in KAI Scheduler)",
        spec_id="gpu:RV-4",
        field="shard.reservation_namespace",
    ),
    Flag(
        "restrict-node-scheduling",
        "false",
        read_bool,
        "only labelled worker nodes",
        spec_id="cycle:SNP-4",
        field="shard.restrict_nodes",
    ),
    Flag(
        "nodepool-label-key",
        names.NODE_POOL_LABEL,
        read_text,
        "shard label",
        spec_id="cycle:SNP-3",
        field="shard.node_pool_key",
    ),
    Flag("partition-label-value", "", read_text, "shard value", spec_id="cycle:SNP-3", field="shard.node_pool"),
    Flag(
        "queue-label-key",
        names.QUEUE_LABEL,
        read_text,
        "shared claims of one queue",
        spec_id="gpu:D-9",
        field="shard.queue_label",
    ),
    Flag("scheduler-conf", "", read_text, "configuration file", spec_id="cycle:CFG-1"),
    Flag(
        "scheduler-configmap",
        "",
        read_text,
        "ConfigMap in --namespace with that file and these flags, followed through the API (not in KAI Scheduler)",
        spec_id="operations:OD-10",
    ),
    Flag("schedule-period", "1s", read_nonnegative_duration, "idle time between cycles", spec_id="cycle:CYC-1"),
    Flag("leader-elect", "false", read_bool, "one of several replicas is active", spec_id="cycle:PRC-5"),
    Flag("version", "true", read_bool, "print the version at start", spec_id="cycle:19"),
    Flag("listen-address", names.METRICS_ADDRESS, read_text, "metrics", spec_id="cycle:PRC-1"),
    Flag("enable-profiler", "false", read_bool, "serve profiles", spec_id="cycle:PRC-4", no_effect=True),
    Flag("profiler-port", "8182", read_port, "port of the profiles", spec_id="cycle:PRC-4", no_effect=True),
    Flag("pyroscope-address", "", read_text, "push profiles there", spec_id="cycle:PRC-4", no_effect=True),
    Flag("pyroscope-mutex-profiler-rate", "5", read_count, "share of mutex events in profiles", no_effect=True),
    Flag("pyroscope-block-profiler-rate", "5", read_count, "share of blocking events in profiles", no_effect=True),
    Flag("v", "3", read_count, "log verbosity", spec_id="cycle:19"),
    Flag("log-json", "false", read_bool, "log as JSON", spec_id="cycle:19"),
    Flag("log-flush-frequency", "5s", read_duration, "how often logs are flushed", no_effect=True),
    Flag(
        "max-consolidation-preemptees",
        "16",
        bounded_int(-1),
        "groups that consolidation may move; 0 = off, -1 = unlimited",
        spec_id="cycle:CON-1",
        field="max_consolidation_preemptees",
    ),
    Flag("qps", "50", read_positive, "API client: requests a second", spec_id="cycle:PRC-7"),
    Flag("burst", "300", read_positive, "API client: requests at once", spec_id="cycle:PRC-7"),
    Flag(
        "detailed-fit-errors",
        "false",
        read_bool,
        "explanations node by node",
        spec_id="cycle:EXP-4",
        field="detailed_fit_errors",
    ),
    Flag(
        "update-pod-eviction-condition", "false", read_bool, "DisruptionTarget on evicted pods", spec_id="cycle:OUT-6"
    ),
    Flag("schedule-csi-storage", "false", read_bool, "schedule pods by CSI storage capacity", no_effect=True),
    Flag(
        "use-scheduling-signatures",
        "true",
        read_bool,
        "do not repeat an attempt that must fail again",
        spec_id="cycle:14",
        field="use_scheduling_signatures",
    ),
    Flag(
        "full-hierarchy-fairness",
        "true",
        read_bool,
        "fairness at every level of the queues",
        spec_id="cycle:SNP-10",
        field="shard.full_hierarchy",
    ),
    Flag(
        "allow-consolidating-reclaim",
        "true",
        read_bool,
        "moved victims do not count as reclaimed",
        spec_id="cycle:RCL-3",
        field="allow_consolidating_reclaim",
    ),
    Flag("num-of-status-recording-workers", "5", read_positive, "writers of statuses", spec_id="cycle:EXP-15"),
    Flag(
        "default-staleness-grace-period",
        "60s",
        read_duration,
        "how long a gang may be incomplete; negative = forever",
        spec_id="cycle:STL-3",
        field="staleness_grace_ns",
    ),
    Flag(
        "stuck-in-releasing-threshold",
        "2m",
        read_stuck_threshold,
        "after this a terminating pod counts as stuck",
        spec_id="cycle:TSK-3",
        field="shard.stuck_after_ns",
    ),
    Flag(
        "plugin-server-port", "8081", read_port, "snapshots and job order; 0 takes a free port", spec_id="cycle:PRC-2"
    ),
    Flag(
        "cpu-worker-node-label-key",
        names.CPU_WORKER_NODE_LABEL,
        read_text,
        "CPU worker nodes",
        spec_id="cycle:SNP-4",
        field="shard.cpu_worker_label",
    ),
    Flag(
        "gpu-worker-node-label-key",
        names.GPU_WORKER_NODE_LABEL,
        read_text,
        "GPU worker nodes",
        spec_id="cycle:SNP-4",
        field="shard.gpu_worker_label",
    ),
    Flag(
        "mig-worker-node-label-key",
        names.MIG_ENABLED_NODE_LABEL,
        read_text,
        "MIG nodes",
        spec_id="cycle:NOD-5",
        field="shard.mig_label",
    ),
    Flag(
        "honour-preemption-policy",
        "false",
        read_bool,
        "preemptionPolicy Never keeps groups of a priority class from triggering evictions (not in KAI Scheduler)",
        spec_id="cycle:POL-7",
        field="honour_preemption_policy",
    ),
    Flag(
        "profile",
        "",
        read_profile,
        "built-in configuration, before what the configuration file names (not in KAI Scheduler)",
        spec_id="cycle:FLT-4",
        field="profile",
    ),
    Flag(
        "min-cycle-interval",
        "20ms",
        read_nonnegative_duration,
        "shortest time between two cycles; a change starts one then (not in KAI Scheduler)",
        spec_id="cycle:CYC-1",
    ),
    Flag(
        "fast-bind",
        "true",
        read_bool,
        "bind pods that need nothing prepared without a BindRequest (not in KAI Scheduler)",
        spec_id="cycle:OUT-1",
    ),
    Flag(
        "shadow",
        "false",
        read_bool,
        "decide and log beside another scheduler, write nothing (not in KAI Scheduler)",
        spec_id="cycle:OUT-1",
    ),
    Flag(
        "strict",
        "false",
        read_bool,
        "do not start with a configuration file of which any part would be skipped (not in KAI Scheduler)",
        spec_id="cycle:CFG-1",
    ),
    Flag(
        "queue-admission-gating",
        "false",
        read_bool,
        "hold pods over quota or limit behind a gate, in queues that ask for it (not in KAI Scheduler)",
        spec_id="queues:Q-405",
        field="admission_gating",
    ),
    Flag(
        "queue-admission-reservation-timeout",
        f"{names.ADMISSION_RESERVATION_S // 60}m",
        read_nonnegative_duration,
        "how long an admitted pod that waits for a node is charged to its queue (not in KAI Scheduler)",
        spec_id="queues:Q-406",
        field="admission_reservation_ns",
    ),
    Flag(
        "fair-share-status-interval",
        "15s",
        read_nonnegative_duration,
        "shortest time between two writes of a queue's fair share into its status; 0s: never (not in KAI Scheduler)",
        spec_id="status:fair-share",
    ),
    # Gates of Kubernetes libraries that are not used here (operations:O-57).
    FEATURE_GATES,
)


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
    #: how long a gang may be incomplete before it is evicted; negative = forever
    staleness_grace_ns: int = names.STALENESS_GRACE_S * 1_000_000_000
    honour_preemption_policy: bool = False
    admission_gating: bool = False
    #: how long an admitted pod that waits is charged to its queue
    admission_reservation_ns: int = names.ADMISSION_RESERVATION_S * 1_000_000_000
    #: for `load_configuration`; "" = as the configuration file says
    profile: str = ""
    #: every other flag by name, defaults included
    other: Mapping[str, Any] = field(default_factory=dict)
    #: every flag by name, to compare with another command line
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)
    problems: tuple[Problem, ...] = ()

    def apply_to(self, policy: Policy) -> Policy:
        """The policy of the configuration file with the decision flags applied."""
        actions = policy.actions
        if self.admission_gating and names.ACTION_UNGATE not in actions:
            actions = (*actions, names.ACTION_UNGATE)
        return replace(
            policy,
            actions=actions,
            admission_reservation_ns=self.admission_reservation_ns if self.admission_gating else None,
            reuse_failures=self.use_scheduling_signatures,
            detailed_fit_errors=self.detailed_fit_errors,
            max_consolidation_preemptees=self.max_consolidation_preemptees,
            allow_consolidating_reclaim=self.allow_consolidating_reclaim,
            staleness_grace_ns=self.staleness_grace_ns,
            honour_preemption_policy=self.honour_preemption_policy,
        )


def read_flags(given: Mapping[str, object]) -> Flags:
    """Flags by name, with or without dashes in front; values are texts, numbers or booleans, unset ones None.

    Statements: operations:O-49.
    """
    reading = service_flags.read_flags(FLAGS, given)
    values = {flag.name: flag.read(flag.default) for flag in FLAGS} | reading.values
    problems = tuple(
        Problem(
            "scheduler flags",
            f"--{each.name}",
            f"{each.text}; skipped{each.hint}"
            if each.default is None
            else f"{each.text}; the default {each.default!r} is used",
        )
        for each in reading.problems
    )
    other = {flag.name: values[flag.name] for flag in FLAGS if not flag.field}
    return set_fields(Flags(other=other, values=values, problems=problems), FLAGS, values)


def checked_flags(given: Mapping[str, object]) -> Flags:
    """The flags of a command line; raises `OptionError` that names everything that is wrong."""
    service_flags.checked_values(FLAGS, given)
    return read_flags(given)
