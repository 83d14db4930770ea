"""Plan reuse: an unchanged cluster is not scheduled twice, and the results are equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pykai.api.decode import decode_object
from pykai.api.duration import MINUTE, SECOND
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.memory import CycleMemory
from pykai.core.cycle.state import State
from pykai.core.hooks import EvictionProposal, Hooks
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import open_cycle
from pykai.core.policy import NamedPlugin, Policy
from pykai.core.report.decisions import Plan
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, Raw, cluster, timestamp_before

ALL_ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")


class Service:
    """A cluster that is scheduled repeatedly with plan reuse."""

    def __init__(self, built: Cluster) -> None:
        self.tables: Tables = built.tables()
        self.policy: Policy = built.policy()
        self.memory = CycleMemory()

    def cycle(self, after_s: float = 0) -> Plan:
        """A cycle so many seconds after the first; it must equal one without reuse."""
        now_ns = NOW_NS + int(after_s * SECOND)
        plan = schedule(self.tables.snapshot(now_ns), self.policy, self.memory)
        assert plan.encoded() == schedule(self.tables.snapshot(now_ns), self.policy).encoded()
        return plan

    def recalls(self, after_s: float = 0) -> bool:
        """Whether a cycle at that time would reuse the plan."""
        return self.memory.recall(self.tables.snapshot(NOW_NS + int(after_s * SECOND)), self.policy) is not None

    def apply(self, change: Cluster) -> None:
        for raw in change.objects:
            self.tables.apply(decode_object(raw))


def full() -> Cluster:
    """A full node, and a gang that therefore waits."""
    return (
        cluster(nodes=1, gpus=2)
        .with_actions(*ALL_ACTIONS)
        .queue("q", quota=2)
        .priority_class("usual", 50)
        .config_map("there")
        .gang("running", 2, gpu=1, on="node-0", preemptible=False)
        .gang("waiting", gpu=1)
    )


# As long as nothing changes


def test_an_unchanged_cluster_is_not_scheduled_twice() -> None:
    service = Service(full())
    first = service.cycle()
    assert service.recalls(3600)
    later = service.cycle(3600)
    assert later.now_ns == NOW_NS + 3600 * SECOND
    assert later.unscheduled == first.unscheduled
    assert later.queues == first.queues
    assert service.memory.valid_until_ns is None


def test_nothing_is_reused_before_the_first_cycle() -> None:
    assert not Service(full()).recalls()


def test_time_that_goes_back_is_not_trusted() -> None:
    service = Service(full())
    service.cycle(10)
    assert not service.recalls(9)
    assert service.recalls(10)


TOPOLOGY: Raw = {
    "apiVersion": "kai.scheduler/v1alpha1",
    "kind": "Topology",
    "metadata": {"name": "racks"},
    "spec": {"levels": [{"nodeLabel": "rack"}]},
}
CHANGES: dict[str, Callable[[Service], None]] = {
    "a pod": lambda service: service.apply(cluster().pod("other", gpu=1)),
    "the same pod with less": lambda service: service.apply(cluster().pod("running-0", group="running", on="node-0")),
    "a node": lambda service: service.apply(cluster().node("new", gpus=1)),
    "a queue": lambda service: service.apply(cluster().queue("q", quota=3)),
    "a group": lambda service: service.apply(cluster().group("waiting", minMember=1)),
    "a priority class": lambda service: service.apply(cluster().priority_class("high", 125)),
    "a config map": lambda service: service.apply(cluster().config_map("settings")),
    "a topology": lambda service: service.apply(cluster().add(TOPOLOGY)),
    "a namespace": lambda service: service.apply(cluster().namespace("default")),
    "a bind request": lambda service: service.apply(cluster().bind_request("waiting-0", "node-0")),
    "a pod that goes": lambda service: service.tables.remove("Pod", "default", "running-0"),
    "a node that goes": lambda service: service.tables.remove("Node", "", "node-0"),
    "a queue that goes": lambda service: service.tables.remove("Queue", "", "q"),
    "a priority class that goes": lambda service: service.tables.remove("PriorityClass", "", "usual"),
    "a config map that goes": lambda service: service.tables.remove("ConfigMap", "default", "there"),
    "a group that goes": lambda service: service.tables.remove("PodGroup", "default", "waiting"),
    "an assumption": lambda service: service.tables.assume("default/running-0", TaskStatus.RELEASING),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_the_cluster_ends_the_plan(change: str) -> None:
    service = Service(full())
    service.cycle()
    assert service.recalls(1)
    CHANGES[change](service)
    assert not service.recalls(1)
    service.cycle(1)


def test_another_policy_is_another_plan() -> None:
    service = Service(full())
    service.cycle()
    usual = service.policy
    service.policy = replace(usual, queue_depth={"allocate": 0})
    assert not service.recalls(1)
    assert service.cycle(1).unscheduled[0].refusals == ()
    service.policy = usual
    assert not service.recalls(2), "the last plan was made under the other policy"


def test_a_policy_read_again_is_the_same_policy() -> None:
    service = Service(full())
    service.cycle()
    service.policy = full().policy()
    assert service.recalls(1)


def test_usage_that_changes_counts_at_once() -> None:
    """queues:Q-335: usage comes with the policy."""
    service = Service(full())
    service.cycle()
    service.policy = replace(service.policy, usage={"q": (0.0, 0.0, 0.5)})
    assert not service.recalls(1)


# Plans that are not kept


def test_a_plan_that_starts_something_is_not_kept() -> None:
    service = Service(cluster(nodes=1, gpus=1).queue("q").gang("job", gpu=1))
    assert service.cycle().binds
    assert not service.recalls(1)
    assert service.cycle(1).binds, "it is decided again until the watch shows it"


def test_a_plan_with_evictions_is_not_kept() -> None:
    built = cluster(nodes=1, gpus=1).with_actions("preempt").priority_class("high", 90).queue("q")
    service = Service(built.gang("low", gpu=1, on="node-0").gang("urgent", gpu=1, priority="high"))
    assert service.cycle().evictions
    assert not service.recalls(1)


def leaving(**ask: Any) -> Cluster:
    """Work waits for a GPU that is being released."""
    built = cluster(nodes=1, gpus=1).queue("q").group("old").pod("old", group="old", gpu=1, on="node-0", deleted=0)
    return built.gang("next", **ask)


def test_a_nomination_is_kept_unless_it_names_a_new_device() -> None:
    """New names of shared GPUs are made from the time of the cycle."""
    whole, shared = Service(leaving(gpu=1)), Service(leaving(fraction=0.5))
    assert whole.cycle().nominations
    assert whole.recalls(1)
    assert shared.cycle().nominations[0].gpu_groups
    assert not shared.recalls(1)
    assert shared.cycle(1).nominations[0].gpu_groups != shared.cycle(2).nominations[0].gpu_groups


def test_a_plan_that_cannot_be_kept_does_not_leave_the_one_before() -> None:
    service = Service(full())
    service.cycle()
    service.apply(cluster().node("new", gpus=1))
    assert service.cycle(1).binds
    assert not service.recalls(2)


# Rules about time


def expires(service: Service, at_s: int, differs: Callable[[Plan], object]) -> None:
    """The plan holds until an instant and no longer; `differs` is what the instant changes."""
    before = service.cycle()
    assert service.memory.valid_until_ns == NOW_NS + at_s * SECOND
    assert service.recalls(at_s - 1e-6)
    assert differs(service.cycle(at_s - 1e-6)) == differs(before)
    assert not service.recalls(at_s)
    assert differs(service.cycle(at_s)) != differs(before)


def test_pol4_a_preemption_delay_ends_the_plan() -> None:
    """cycle:POL-4"""
    built = cluster(nodes=1, gpus=1).with_actions(*ALL_ACTIONS).priority_class("high", 90).queue("q")
    delayed = {"preemptionDelay": "30s"}
    built.gang("low", gpu=1, on="node-0").gang("urgent", gpu=1, priority="high", age=10, group_spec=delayed)
    expires(Service(built), 20, lambda plan: len(plan.evictions))


def started(name: str, age_s: float, **queue: Any) -> Cluster:
    """Work that started some seconds ago, and a claim on what it holds."""
    notes: Raw = {"annotations": {"kai.scheduler/last-start-timestamp": timestamp_before(age_s)}}
    built = cluster(nodes=1, gpus=1).with_actions(*ALL_ACTIONS).priority_class("high", 90)
    built.queue("poor", quota=1).queue("rich", quota=0, weight=0, **queue)
    return built.gang(name, gpu=1, queue="rich", on="node-0", group_spec=notes)


def withdrawn(pods: int) -> Cluster:
    """Allocate binds a job; in the same cycle reclaim takes the GPUs back before anything has started.

    Queue rich looks poor until its second job, which asks for CPU alone, has had its turn too.
    """
    built = (
        cluster().node("gpu", gpus=2).node("cpu", labels={"kind": "cpu"}).with_actions("allocate", "reclaim", "preempt")
    )
    built.priority_class("high", 90).priority_class("low", 10)
    built.queue("poor", quota=2).queue("rich", quota=2, cpu=(1000, -1, 1))
    built.group("old", queue="poor").pod("old", group="old", cpu=100, on="cpu", deleted=10)
    delayed = {"preemptionDelay": "5s"}
    built.gang("first", pods, min=1, gpu=2, queue="rich", priority="high", age=20, group_spec=delayed)
    built.gang("second", 3, queue="rich", spec={"nodeSelector": {"kind": "cpu"}})
    return built.gang("claim", 2, gpu=1, cpu=30, queue="poor", priority="low")


def test_pol4_a_withdrawn_bind_is_not_an_eviction() -> None:
    """cycle:POL-4, queues:Q-321: nothing was evicted, so no delay begins."""
    service = Service(withdrawn(2))
    plan = service.cycle()
    assert (plan.binds, plan.evictions) == ((), ())
    service.cycle(1)


def test_exp10_a_pod_whose_bind_is_withdrawn_waits() -> None:
    """cycle:EXP-10: it is neither bound nor nominated, so it is listed."""
    plan = Service(withdrawn(1)).cycle()
    assert (plan.binds, plan.evictions) == ((), ())
    assert {item.group: item.pending for item in plan.unscheduled if item.pending} == {"first": 1}


def test_q301_a_minimum_run_time_ends_the_plan() -> None:
    """queues:Q-301: for reclaim and for preemption."""
    reclaim = started("running", 10, reclaimMinRuntime="1m").gang("claim", gpu=1, queue="poor")
    expires(Service(reclaim), 50, lambda plan: len(plan.evictions))
    preempt = started("running", 10, preemptMinRuntime="40s").gang("urgent", gpu=1, queue="rich", priority="high")
    expires(Service(preempt), 30, lambda plan: len(plan.evictions))


def broken(since_s: float | None) -> Cluster:
    """A gang of two of which one is left."""
    notes = {} if since_s is None else {"kai.scheduler/stale-podgroup-timestamp": timestamp_before(since_s)}
    built = cluster(nodes=1, gpus=2).with_actions(*ALL_ACTIONS).queue("q").group("gang", minMember=2, annotations=notes)
    return built.pod("gang-0", group="gang", gpu=1, on="node-0").pod(
        "gang-1", group="gang", on="node-0", phase="Failed"
    )


def test_stl3_a_staleness_grace_period_ends_the_plan() -> None:
    """cycle:STL-3: 60 seconds of which 45 have passed."""
    expires(Service(broken(45)), 15, lambda plan: [item.evicted for item in plan.stale])


def test_stl2_a_plan_with_a_newly_stale_gang_is_not_kept() -> None:
    """cycle:STL-2: its timestamp is the time of the cycle."""
    service = Service(broken(None))
    assert service.cycle().stale[0].since_ns == NOW_NS
    assert not service.recalls(1)
    assert service.cycle(1).stale[0].since_ns == NOW_NS + SECOND


def test_stl3_an_infinite_grace_period_never_ends_the_plan() -> None:
    """cycle:STL-3: a negative period is without end."""
    service = Service(broken(45).with_policy(staleness_grace_ns=-1))
    service.cycle()
    assert service.memory.valid_until_ns is None
    assert service.recalls(10**6)


def test_tsk3_a_pod_that_gets_stuck_ends_the_plan() -> None:
    """cycle:TSK-3: two minutes after the end of its grace period it no longer releases anything."""
    service = Service(leaving(gpu=1))
    assert service.cycle().nominations
    assert service.recalls(120)
    assert not service.recalls(121)
    assert not service.cycle(121).nominations


def test_the_first_of_several_instants_counts() -> None:
    built = started("running", 10, reclaimMinRuntime="1m").gang("claim", gpu=1, queue="poor")
    delayed = {"preemptionDelay": "30s"}
    service = Service(built.gang("later", gpu=1, queue="poor", age=5, group_spec=delayed))
    service.cycle()
    assert service.memory.valid_until_ns == NOW_NS + 25 * SECOND
    service.cycle(25)
    assert service.memory.valid_until_ns == NOW_NS + 50 * SECOND


# State.passed


def test_an_instant_has_passed_when_it_is_now() -> None:
    state = full().cycle().state
    assert state.passed(NOW_NS)
    assert state.passed(NOW_NS - 1)
    assert state.valid_until_ns is None, "an instant that has passed does not count again"
    assert not state.passed(NOW_NS + 1)
    assert state.valid_until_ns == NOW_NS + 1


def test_the_nearest_instant_is_kept() -> None:
    state = full().cycle().state
    for instant in (30, 10, 20):
        assert not state.passed(NOW_NS + instant)
    assert state.valid_until_ns == NOW_NS + 10


class Curfew:
    """A third-party plugin: nothing is reclaimed before a time."""

    def __init__(self, end_ns: int) -> None:
        self.end_ns = end_ns

    def prepare(self, snapshot: Snapshot) -> Hooks:
        def gate(state: State, taking: EvictionProposal) -> str | None:
            return None if state.passed(self.end_ns) else "it is night"

        return Hooks(reclaim_gate=gate)


def test_a_plugin_deadline_ends_the_plan_too() -> None:
    """docs/plugins.md: rules about time use `state.passed`."""
    built = started("running", 100).gang("claim", gpu=1, queue="poor")
    plugin = NamedPlugin("curfew", Curfew(NOW_NS + 5 * MINUTE), third_party=True)
    service = Service(built.with_policy(plugins=(*built.policy().plugins, plugin)))
    expires(service, 300, lambda plan: len(plan.evictions))


def test_a_cycle_does_not_know_about_plan_reuse() -> None:
    """A later cycle cannot change the reused objects through its own copies."""
    service = Service(full())
    first = service.cycle().encoded()
    cycle = open_cycle(service.tables.snapshot(NOW_NS), service.policy)
    gang: Gang = next(
        gang
        for gang in map(cycle.gangs.gang, cycle.context.snapshot.group_entries.values())
        if gang.key.endswith("running")
    )
    cycle.state.evict(gang, gang.leaves[0], next(iter(gang.entry.tasks.values())))
    assert service.cycle().encoded() == first
