"""Flags: every one of cycle:21 with its default, and every mistake reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykai.core.model.shard import Shard
from pykai.scheduler.config.configuration import default_configuration
from pykai.scheduler.flags import FLAGS, Flags, read_flags
from tests.core.builders import cluster

#: cycle:21, name -> default.
PART_21 = {
    "scheduler-name": "kai-scheduler",
    "namespace": "kai-scheduler",
    "metrics-namespace": "kai",
    "resource-reservation-app-label": "kai-resource-reservation",
    "restrict-node-scheduling": "false",
    "nodepool-label-key": "kai.scheduler/node-pool",
    "partition-label-value": "",
    "queue-label-key": "kai.scheduler/queue",
    "scheduler-conf": "",
    "schedule-period": "1s",
    "leader-elect": "false",
    "version": "true",
    "listen-address": ":8080",
    "enable-profiler": "false",
    "profiler-port": "8182",
    "pyroscope-address": "",
    "pyroscope-mutex-profiler-rate": "5",
    "pyroscope-block-profiler-rate": "5",
    "v": "3",
    "log-json": "false",
    "log-flush-frequency": "5s",
    "max-consolidation-preemptees": "16",
    "qps": "50",
    "burst": "300",
    "detailed-fit-errors": "false",
    "update-pod-eviction-condition": "false",
    "schedule-csi-storage": "false",
    "use-scheduling-signatures": "true",
    "full-hierarchy-fairness": "true",
    "allow-consolidating-reclaim": "true",
    "num-of-status-recording-workers": "5",
    "default-staleness-grace-period": "60s",
    "stuck-in-releasing-threshold": "2m",
    "plugin-server-port": "8081",
    "cpu-worker-node-label-key": "node-role.kubernetes.io/cpu-worker",
    "gpu-worker-node-label-key": "node-role.kubernetes.io/gpu-worker",
    "mig-worker-node-label-key": "node-role.kubernetes.io/mig-enabled",
    "feature-gates": "",
}


#: Flags upstream does not have; those that would change decisions are off by default.
OURS = {
    "resource-reservation-namespace": "kai-resource-reservation",
    "honour-preemption-policy": "false",
    "queue-admission-gating": "false",
    "queue-admission-reservation-timeout": "10m",
    "profile": "",
    "min-cycle-interval": "20ms",
    "fair-share-status-interval": "15s",
    "scheduler-configmap": "",
    "fast-bind": "true",
    "shadow": "false",
    "strict": "false",
}


def test_every_flag_of_part_21_is_there_with_its_default() -> None:
    assert {flag.name: flag.default for flag in FLAGS} == {**PART_21, **OURS}


def test_own_flags_are_marked_and_change_nothing_unless_given() -> None:
    """cycle:POL-7"""
    for flag in FLAGS:
        assert ("not in KAI Scheduler" in flag.meaning) == (flag.name in OURS), flag.name
    assert not read_flags({}).honour_preemption_policy


def test_without_flags_everything_is_as_the_model_assumes() -> None:
    read = read_flags({})
    assert read.problems == ()
    assert read.shard == Shard()
    assert read.max_consolidation_preemptees == Flags().max_consolidation_preemptees == 16
    assert read.staleness_grace_ns == Flags().staleness_grace_ns == 60_000_000_000
    assert read.use_scheduling_signatures
    assert read.allow_consolidating_reclaim
    assert not read.detailed_fit_errors
    assert read.other["schedule-period"] == 1_000_000_000
    assert read.other["qps"] == 50


def test_flags_that_shape_the_model_reach_the_shard() -> None:
    read = read_flags(
        {
            "--scheduler-name": "other",
            "--nodepool-label-key": "pool",
            "--partition-label-value": "blue",
            "--resource-reservation-app-label": "held",
            "--resource-reservation-namespace": "holders",
            "--restrict-node-scheduling": "true",
            "--gpu-worker-node-label-key": "gpu",
            "--cpu-worker-node-label-key": "cpu",
            "--mig-worker-node-label-key": "mig",
            "--queue-label-key": "team",
            "--full-hierarchy-fairness": "false",
            "--stuck-in-releasing-threshold": "30s",
        }
    )
    assert read.problems == ()
    assert read.shard == Shard(
        "other", "pool", "blue", "held", True, "gpu", "cpu", "mig", "team", False, 30_000_000_000, "holders"
    )


def test_flags_that_shape_decisions_have_a_field() -> None:
    read = read_flags(
        {
            "max-consolidation-preemptees": -1,
            "use-scheduling-signatures": False,
            "allow-consolidating-reclaim": "F",
            "detailed-fit-errors": "1",
            "default-staleness-grace-period": "-1s",
            "honour-preemption-policy": "true",
        }
    )
    assert read.problems == ()
    assert read.honour_preemption_policy
    assert read.max_consolidation_preemptees == -1
    assert not read.use_scheduling_signatures
    assert not read.allow_consolidating_reclaim
    assert read.detailed_fit_errors
    assert read.staleness_grace_ns == -1_000_000_000


@pytest.mark.parametrize("value", ["0s", "-5m"])
def test_a_threshold_at_or_below_zero_means_two_minutes(value: str) -> None:
    assert read_flags({"stuck-in-releasing-threshold": value}).shard.stuck_after_ns == 120_000_000_000


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("restrict-node-scheduling", "yes"),
        ("max-consolidation-preemptees", "many"),
        ("default-staleness-grace-period", "60"),
        ("stuck-in-releasing-threshold", "soon"),
        ("schedule-period", ""),
        ("schedule-period", "-1s"),
        ("version", "TrUe"),
        ("v", " 3"),
        ("v", "1_000"),
        ("v", "3.0"),
        ("v", "-1"),
        ("v", "9" * 30),
        ("max-consolidation-preemptees", "-2"),
        ("num-of-status-recording-workers", "0"),
        ("qps", "0"),
        ("shadow", "maybe"),
        ("strict", "very"),
        ("plugin-server-port", "65536"),
        ("profiler-port", "-1"),
    ],
)
def test_a_bad_value_is_reported_with_its_flag_and_the_default_stays(flag: str, value: str) -> None:
    read = read_flags({flag: value, "scheduler-name": "other"})
    (problem,) = read.problems
    assert problem.field == f"--{flag}"
    assert repr(value) in problem.text
    assert "default" in problem.text
    assert read.shard.scheduler_name == "other"
    kept = read_flags({"scheduler-name": "other"})
    assert (read.shard, read.other, read.max_consolidation_preemptees) == (
        kept.shard,
        kept.other,
        kept.max_consolidation_preemptees,
    )


def test_an_unknown_flag_is_reported_and_skipped() -> None:
    read = read_flags({"--shadwo": "1", "partition-label-value": "blue"})
    assert [problem.field for problem in read.problems] == ["--shadwo"]
    assert "did you mean --shadow?" in read.problems[0].text
    assert read.shard.node_pool == "blue"


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True", True])
def test_what_go_reads_as_true(text: object) -> None:
    assert read_flags({"restrict-node-scheduling": text}).shard.restrict_nodes


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False", False])
def test_what_go_reads_as_false(text: object) -> None:
    assert not read_flags({"use-scheduling-signatures": text}).use_scheduling_signatures


def test_a_flag_that_was_not_given_keeps_its_default() -> None:
    read = read_flags({"v": None, "schedule-period": None})
    assert read.problems == ()
    assert read.other["v"] == 3


def test_flags_shape_the_policy_of_the_configuration() -> None:
    policy = default_configuration().policy
    assert read_flags({}).apply_to(policy) == policy
    assert not read_flags({"use-scheduling-signatures": "false"}).apply_to(policy).reuse_failures
    assert read_flags({"detailed-fit-errors": "true"}).apply_to(policy).detailed_fit_errors
    assert read_flags({"max-consolidation-preemptees": "3"}).apply_to(policy).max_consolidation_preemptees == 3
    assert not read_flags({"allow-consolidating-reclaim": "false"}).apply_to(policy).allow_consolidating_reclaim
    assert read_flags({"default-staleness-grace-period": "5s"}).apply_to(policy).staleness_grace_ns == 5_000_000_000
    assert read_flags({"honour-preemption-policy": "true"}).apply_to(policy).honour_preemption_policy


def test_without_signatures_the_same_is_decided() -> None:
    """cycle:14: signatures only save work."""
    base = cluster(nodes=2, gpus=2).queue("q").gang("a", pods=3, gpu=2).gang("b", pods=3, gpu=2).gang("c", gpu=1)
    without = read_flags({"use-scheduling-signatures": "false"}).apply_to(base.policy())
    plans = [base.with_policy(reuse_failures=skip).schedule().plan for skip in (True, without.reuse_failures)]
    assert plans[0].binds == plans[1].binds
    assert plans[0].unscheduled == plans[1].unscheduled


def test_the_table_explains_each_flag() -> None:
    for flag in FLAGS:
        assert flag.meaning
        assert flag.spec_id or flag.no_effect, flag.name


def test_the_profile_is_one_that_exists() -> None:
    """cycle:FLT-4"""
    assert read_flags({"--profile": "kubernetes"}).profile == "kubernetes"
    assert read_flags({}).profile == ""
    read = read_flags({"profile": "kube"})
    assert read.profile == ""
    assert [problem.text for problem in read.problems] == [
        "'kube': expected one of default, kubernetes; the default '' is used"
    ]


def test_queue_admission_gating_adds_its_action_last() -> None:
    """queues:Q-405, Q-406"""
    policy = default_configuration().policy
    on = read_flags({"queue-admission-gating": "true"}).apply_to(policy)
    assert on.actions == (*policy.actions, "ungate")
    assert on.admission_reservation_ns == 600_000_000_000
    listed = replace(policy, actions=("allocate", "ungate"))
    short = read_flags({"queue-admission-gating": "true", "queue-admission-reservation-timeout": "30s"})
    assert short.apply_to(listed).actions == ("allocate", "ungate")
    assert short.apply_to(listed).admission_reservation_ns == 30_000_000_000
    off = read_flags({"queue-admission-reservation-timeout": "30s"}).apply_to(policy)
    assert (off.actions, off.admission_reservation_ns) == (policy.actions, None)
