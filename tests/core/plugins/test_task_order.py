"""The order of the pods of one leaf (cycle:8.5).

Everything fits, so that the order of the binds is the order of the tasks.  Pods are listed by name, oldest first; where
a rule must decide, the pod it prefers is called `z`: it is the youngest, so that no fallback explains the outcome.
"""

from typing import Any

import pytest

from tests.core.builders import Cluster, cluster

ROLE = "training.kubeflow.org/job-role"
RAY = "ray.io/node-type"
PRIORITY = "kai.scheduler/task-priority"


def gang(minimum: int = 1, **node: Any) -> Cluster:
    return cluster(nodes=1, **{"gpus": 100, **node}).queue("q").group("job", minMember=minimum)


def order(*labels: dict[str, str], configuration: dict[str, Any] | None = None) -> str:
    """The pods of one gang in the order they were bound; they are called a, b, ... except for the last, which is z."""
    built = gang(len(labels))
    names = [*"abcdefg"[: len(labels) - 1], "z"]
    for name, marks in zip(names, labels, strict=True):
        built.pod(name, group="job", gpu=1, labels=marks)
    if configuration is not None:
        built.configured(configuration)
    return "".join(built.schedule().bound_pods("job"))


# Clause 1: kubeflow


@pytest.mark.parametrize("role", ["master", "launcher"])
def test_kubeflow_masters_and_launchers_go_first(role: str) -> None:
    """cycle:8.5 clause 1"""
    assert order({ROLE: "worker"}, {}, {ROLE: role}) == "zab"


def test_other_kubeflow_roles_are_like_none() -> None:
    """cycle:8.5 clause 1: the value must be the word itself."""
    assert order({}, {ROLE: "worker"}, {ROLE: "Master"}) == "abz"


def test_a_master_and_a_launcher_are_equal() -> None:
    """cycle:8.5 clause 1"""
    assert order({ROLE: "launcher"}, {ROLE: "master"}) == "az"


# Clause 2: ray


def test_ray_heads_go_first() -> None:
    """cycle:8.5 clause 2"""
    assert order({RAY: "worker"}, {}, {RAY: "head"}) == "zab"


def test_other_ray_node_types_are_like_none() -> None:
    """cycle:8.5 clause 2"""
    assert order({}, {RAY: "worker"}) == "az"


# Clause 3: taskorder


def test_the_higher_task_priority_goes_first() -> None:
    """cycle:8.5 clause 3"""
    assert order({PRIORITY: "1"}, {PRIORITY: "2"}, {PRIORITY: "10"}) == "zba"


def test_if_one_fits_the_pod_with_the_higher_task_priority_is_bound() -> None:
    """Case cycle:T-3."""
    built = gang(gpus=1).pod("one", group="job", gpu=1, labels={PRIORITY: "1"})
    result = built.pod("two", group="job", gpu=1, labels={PRIORITY: "2"}).schedule()
    assert result.bound_pods("job") == ["two"]


def test_task_priorities_may_be_negative() -> None:
    """cycle:8.5 clause 3: and are still present."""
    assert order({PRIORITY: "-5"}, {}, {PRIORITY: "-1"}) == "zab"


def test_a_task_priority_goes_before_none() -> None:
    """cycle:8.5 clause 3: even one of zero."""
    assert order({}, {PRIORITY: "0"}) == "za"


@pytest.mark.parametrize("text", ["high", "", "1.5", "1_000"])
def test_an_unreadable_task_priority_loses_to_a_readable_one(text: str) -> None:
    """cycle:8.5 clause 3"""
    assert order({PRIORITY: text}, {PRIORITY: "-7"}) == "za"


def test_an_unreadable_task_priority_is_still_present() -> None:
    """cycle:8.5 clause 3: presence is compared first, and values only if both are present."""
    assert order({}, {PRIORITY: "high"}) == "za"


def test_two_unreadable_task_priorities_are_equal() -> None:
    """cycle:8.5 clause 3: upstream lets each lose to the other."""
    assert order({PRIORITY: "low"}, {PRIORITY: "high"}) == "az"


# Clause 4: age and uid


def test_otherwise_the_older_pod_goes_first() -> None:
    """cycle:8.5 clause 4"""
    built = gang(2).pod("a", group="job", gpu=1, age=1, uid="a").pod("b", group="job", gpu=1, age=2, uid="b")
    assert built.schedule().bound_pods("job") == ["b", "a"]


def test_of_one_age_the_smaller_uid_goes_first() -> None:
    """cycle:8.5 clause 4: not the name."""
    built = gang(2).pod("a", group="job", gpu=1, age=1, uid="2").pod("b", group="job", gpu=1, age=1, uid="1")
    assert built.schedule().bound_pods("job") == ["b", "a"]


def test_the_order_of_input_objects_does_not_matter() -> None:
    """cycle:8.5"""
    built = gang(3)
    for name in "cab":
        built.pod(name, group="job", gpu=1, age=1)
    assert built.schedule().bound_pods("job") == ["a", "b", "c"]


# Together


def test_the_clauses_come_in_their_order() -> None:
    """cycle:8.5: a master, then a head, then a task priority, then age."""
    assert order({}, {PRIORITY: "9"}, {RAY: "head"}, {ROLE: "master"}) == "zcba"


def test_later_clauses_decide_among_equals_of_the_earlier() -> None:
    """cycle:8.5"""
    assert order({ROLE: "master"}, {ROLE: "master", PRIORITY: "1"}, {ROLE: "master", RAY: "head"}) == "zba"


def test_clauses_come_in_the_order_of_the_plugins() -> None:
    """cycle:7.2: the first plugin that distinguishes two tasks wins, in configured order."""
    names = ("predicates", "proportion", "taskorder", "kubeflow")
    configuration = {"tiers": [{"plugins": [{"name": name} for name in names]}]}
    assert order({PRIORITY: "1"}, {ROLE: "master"}, configuration=configuration) == "az"


def test_without_the_plugins_only_age_and_uid_decide() -> None:
    """cycle:8.5: the fallback."""
    configuration = {"tiers": [{"plugins": [{"name": "predicates"}, {"name": "proportion"}]}]}
    assert order({}, {PRIORITY: "1"}, {RAY: "head"}, {ROLE: "master"}, configuration=configuration) == "abcz"


def test_the_order_decides_which_pods_fill_the_minimum() -> None:
    """cycle:6.2 pick: candidates by task order."""
    built = gang(2, gpus=2).pod("a", group="job", gpu=1).pod("b", group="job", gpu=1, labels={PRIORITY: "1"})
    result = built.pod("c", group="job", gpu=1, labels={ROLE: "master"}).schedule()
    assert result.bound_pods("job") == ["c", "b"]
