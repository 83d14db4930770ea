"""Groups whose namespace may not use their queue (access:engine, ancestors, broken, withdrawn)."""

from __future__ import annotations

from typing import Any

from pykai.core.cluster.tables import Tables
from pykai.core.report.decisions import PlannedBind, QueueAccessDenied
from pykai.core.report.sentences import access_denied_text
from pykai.core.resume import UnfinishedBinds, resume
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, Result, cluster
from tests.core.cluster.tablereading import apply


def denied(result: Result, group: str, namespace: str) -> QueueAccessDenied | None:
    found = result.unscheduled(group, namespace)
    only = found.refusals[0] if found is not None else None
    return only if isinstance(only, QueueAccessDenied) else None


def two_namespaces(**queue: Any) -> Cluster:
    """Each of the namespaces a and b has a group of one pod in queue q."""
    built = cluster(nodes=1, gpus=8).queue("q", **queue)
    return built.gang("g", namespace="a", gpu=1).gang("g", namespace="b", gpu=1)


def test_a_group_of_another_namespace_is_not_scheduled() -> None:
    """access:engine"""
    result = two_namespaces(allowed="a").schedule()
    assert (result.bound("g", "a"), result.bound("g", "b")) == (1, 0)
    assert denied(result, "g", "b") == QueueAccessDenied("b", "q", "q")
    assert result.why("g", "b") == (
        "QueueAccessDenied: Namespace 'b' may not use queue 'q'. Queue 'q' is open to other namespaces only "
        "(annotations kai.scheduler/allowed-namespaces, kai.scheduler/allowed-namespace-selector). "
        "Use another queue, or ask an administrator to allow the namespace there."
    )


def test_a_denied_group_is_no_demand_of_its_queue() -> None:
    """access:engine: otherwise its queue would get a larger share, and others less."""
    built = cluster(nodes=1, gpus=8).queue("q", quota=0, allowed="a").queue("other", quota=0)
    built.gang("g", 8, namespace="b", gpu=1, queue="q").gang("o", 8, min=1, namespace="b", gpu=1, queue="other")
    result = built.schedule()
    assert result.bound("o", "b") == 8
    (figures,) = (each for each in result.plan.queues if each.name == "q")
    assert figures.request == (0.0, 0.0, 0.0)
    assert figures.fair_share[2] == 0


def test_a_denied_group_evicts_nothing() -> None:
    """access:engine"""

    def built(allowed: str) -> Cluster:
        found = cluster(nodes=1, gpus=2).queue("q", quota=2, allowed=allowed).queue("other", quota=0)
        found.gang("old", 2, min=1, namespace="a", gpu=1, queue="other", on="node-0")
        return found.gang("g", namespace="b", gpu=2, queue="q").with_actions("allocate", "reclaim", "preempt")

    assert built("b").schedule().evicted_pods()
    assert not built("a").schedule().evicted_pods()


def test_every_queue_above_must_allow_the_namespace_too() -> None:
    """access:ancestors"""
    built = cluster(nodes=1, gpus=8).queue("top", allowed="a").queue("q", parent="top", allowed="a,b")
    built.gang("g", namespace="a", gpu=1).gang("g", namespace="b", gpu=1)
    result = built.schedule()
    assert (result.bound("g", "a"), result.bound("g", "b")) == (1, 0)
    assert denied(result, "g", "b") == QueueAccessDenied("b", "q", "top")
    assert "Queue 'top', which is above 'q', is open to other namespaces only" in result.why("g", "b")


def test_a_queue_that_is_its_own_ancestor_is_walked_once() -> None:
    built = cluster(nodes=1, gpus=8).queue("p", parent="q", allowed="a").queue("q", parent="p")
    result = built.gang("g", namespace="a", gpu=1).gang("g", namespace="b", gpu=1).schedule()
    assert denied(result, "g", "a") is None
    assert denied(result, "g", "b") is not None
    assert not result.plan.binds


def test_a_selector_reads_the_labels_of_the_namespace() -> None:
    """access:lists"""
    built = two_namespaces(allowed_labels="team=red").namespace("a", team="red").namespace("b", team="blue")
    result = built.schedule()
    assert (result.bound("g", "a"), result.bound("g", "b")) == (1, 0)


def test_a_broken_list_closes_its_queue_and_no_other() -> None:
    """access:broken"""
    built = two_namespaces(allowed="a,").queue("fine").gang("f", namespace="b", gpu=1, queue="fine")
    result = built.schedule()
    assert (result.bound("g", "a"), result.bound("g", "b"), result.bound("f", "b")) == (0, 0, 1)
    assert "Queue 'q' is closed, because its annotation kai.scheduler/allowed-namespaces cannot be read: ''" in (
        result.why("g", "a")
    )
    (problem,) = result.plan.problems
    assert problem.startswith("Queue/q: metadata.annotations[kai.scheduler/allowed-namespaces]: ")
    assert "starts until this is fixed" in problem


def test_running_pods_stay_and_are_charged_when_access_is_withdrawn_and_new_ones_wait() -> None:
    """access:withdrawn"""
    built = cluster(nodes=1, gpus=4).queue("q", allowed="a").group("g", namespace="b", minMember=1)
    built.pod("old", group="g", namespace="b", gpu=2, on="node-0").pod("new", group="g", namespace="b", gpu=1)
    result = built.with_actions("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction").schedule()
    assert not result.plan.binds
    assert not result.plan.evictions
    (figures,) = result.plan.queues
    assert figures.allocated[2] == 2
    assert figures.request[2] == 2


def test_pods_whose_access_was_withdrawn_are_not_moved() -> None:
    """access:withdrawn: they would not start elsewhere."""

    def built(allowed: str) -> Cluster:
        found = cluster(nodes=2, gpus=4).queue("q", allowed=allowed).queue("other").with_actions("consolidation")
        for index in range(2):
            found.gang(f"old-{index}", namespace="b", gpu=2, queue="q", on=f"node-{index}")
        return found.gang("new", namespace="a", gpu=3, queue="other")

    assert built("a,b").schedule().plan.evictions
    assert not built("a").schedule().plan.evictions


def test_waiting_pods_of_a_denied_group_take_no_place_when_others_of_it_are_evicted() -> None:
    """access:engine: the search for victims serves victims again, with what waits beside them."""

    def placed(allowed: str) -> str:
        built = cluster(nodes=2, gpus=4).queue("q", quota=0, allowed=allowed).queue("other", quota=4)
        built.group("g", namespace="b", minMember=2, preemptibility="preemptible")
        built.pod("old", group="g", namespace="b", gpu=2, on="node-0")
        # It fits beside the old pod, and not where that is now.
        built.pod("waits", group="g", namespace="b", gpu=1, spec={"nodeSelector": {"kubernetes.io/hostname": "node-1"}})
        built.gang("busy", namespace="b", gpu=1, queue="other", on="node-1")
        here = {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}
        built.gang("new", namespace="b", gpu=3, queue="other", spec=here).with_actions("reclaim")
        result = built.schedule()
        assert result.evicted_pods("g", "b") == ["old"]
        return result.node_of("waits", "b")

    assert placed("b") == "node-1"
    assert placed("a") == ""


def test_a_plan_left_behind_binds_no_pod_of_a_denied_group() -> None:
    """access:engine"""
    built = two_namespaces(allowed="a")
    plans = [UnfinishedBinds(f"{each}/g", "g", "q", (PlannedBind("g-0", "g-0", "node-0"),)) for each in "ab"]
    found = resume(built.tables().snapshot(NOW_NS), built.policy(), plans)
    assert [bind.namespace for bind in found.binds] == ["a"]
    assert found.refused["b/g-0"] == access_denied_text(QueueAccessDenied("b", "q", "q"))


def test_gated_pods_and_pods_of_groups_in_back_off_are_not_reported() -> None:
    built = two_namespaces(allowed="c")
    built.group("gated", namespace="b").pod("gated", group="gated", namespace="b", spec={"schedulingGates": [{}]})
    result = built.schedule()
    assert result.unscheduled("gated", "b") is None
    assert denied(result, "g", "b") is not None


class Life:
    """Tables to which changes come one by one, with a cycle after each."""

    def __init__(self, built: Cluster) -> None:
        self._built = built
        self.tables: Tables = built.tables()

    def after(self, *changes: Cluster) -> set[str]:
        """The namespaces whose group is bound after these changes."""
        for change in changes:
            apply(self.tables, change)
        plan = schedule(self.tables.snapshot(NOW_NS), self._built.policy())
        return {bind.namespace for bind in plan.binds}


def test_changes_of_lists_and_labels_count_at_once() -> None:
    """access:engine: the first list, another one, labels that come and go, no list any more."""
    life = Life(two_namespaces())
    assert life.after() == {"a", "b"}
    assert life.after(cluster().queue("q", allowed="a")) == {"a"}
    assert life.after(cluster().queue("q", allowed="b")) == {"b"}
    assert life.after(cluster().queue("q", allowed_labels="team")) == set()
    assert life.after(cluster().namespace("a", team="x")) == {"a"}
    assert life.after(cluster().namespace("a").namespace("b", team="x")) == {"b"}
    life.tables.remove("Namespace", "", "b")
    assert life.after() == set()
    assert life.after(cluster().queue("q")) == {"a", "b"}


def test_a_queue_that_gets_a_parent_gets_its_list() -> None:
    """access:ancestors"""
    life = Life(two_namespaces().queue("top", allowed="a"))
    assert life.after() == {"a", "b"}
    assert life.after(cluster().queue("q", parent="top")) == {"a"}
    assert life.after(cluster().queue("q")) == {"a", "b"}


def test_a_group_that_changes_its_queue_is_judged_again() -> None:
    """access:engine"""
    life = Life(two_namespaces(allowed="a").queue("open"))
    assert life.after(cluster().group("g", namespace="b", queue="open", minMember=1)) == {"a", "b"}
    assert life.after(cluster().group("g", namespace="b", queue="q", minMember=1)) == {"a"}


def test_without_lists_nothing_is_kept() -> None:
    """access:engine: a cluster without lists pays nothing."""
    life = Life(two_namespaces(allowed="a"))
    assert life.after() == {"a"}
    life.after(cluster().queue("q"))
    access = life.tables._access
    assert not access.in_use
    assert not any((access._verdicts, access._groups, access._uses))
