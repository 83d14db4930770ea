"""Where the default scheduler puts a pod, and what it says when it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.core import Node
from pykai.api.decode import decode_as
from pykai.api.workloads import MachinePod
from pykai.lab.machines.placement import NoNodeFits, PodRequirements, SchedulerCache, requirements_of
from tests.lab.simulatedcluster import pod

READY = {"type": "Ready", "status": "True"}
TAINT = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


def a_node(name: str, *, labels: dict[str, str] | None = None, ready: str = "True", **more: Any) -> Node:
    has = {"cpu": "8", "memory": "8Gi", "pods": "10", **more.pop("has", {})}
    return decode_as(
        Node,
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": more,
            "status": {"allocatable": has, "conditions": [{"type": "Ready", "status": ready}] if ready else []},
        },
    )


def places(*nodes: Node) -> SchedulerCache:
    made = SchedulerCache()
    for node in nodes:
        made.put_node(node)
    return made


def wanting(**fields: Any) -> PodRequirements:
    return requirements_of(decode_as(MachinePod, pod(**fields)))


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def refusal(found: str | NoNodeFits) -> str:
    assert isinstance(found, NoNodeFits)
    return found.message


def test_the_least_loaded_node_is_taken_and_of_equals_the_first_by_name() -> None:
    made = places(a_node("b"), a_node("c"), a_node("a"))
    assert made.choose_node(wanting(cpu="1")) == "a"
    made.add_pod("1", "a", wanting(cpu="1").requests)
    assert made.choose_node(wanting(cpu="1")) == "b"
    made.add_pod("2", "b", wanting(memory="4Gi").requests)
    made.add_pod("3", "c", wanting(memory="5Gi").requests)
    assert made.choose_node(wanting()) == "a"
    made.add_pod("4", "a", wanting(cpu="5").requests)
    assert made.choose_node(wanting()) == "b"


def test_the_load_counts_with_the_pod_on_the_node() -> None:
    made = places(a_node("small", has={"cpu": "2"}), a_node("wide", has={"cpu": "64"}))
    made.add_pod("1", "wide", wanting(cpu="1").requests)
    assert made.choose_node(wanting(cpu="2")) == "wide"


def test_pods_that_ask_for_nothing_spread_too() -> None:
    made = places(a_node("a"), a_node("b"))
    chosen = []
    for number in range(4):
        name = made.choose_node(wanting())
        assert isinstance(name, str)
        made.add_pod(str(number), name, wanting().requests)
        chosen.append(name)
    assert chosen == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"cpu": "9"}, "0/2 nodes are available: 2 Insufficient cpu."),
        ({"memory": "9Gi", "cpu": "9"}, "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory."),
        ({"gpus": 1}, "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
    ],
)
def test_what_is_short_is_said(asked: dict[str, Any], expected: str) -> None:
    assert refusal(places(a_node("a"), a_node("b")).choose_node(wanting(**asked))) == expected


def test_what_is_held_is_not_given_again_until_it_is_released() -> None:
    made = places(a_node("a"))
    made.add_pod("1", "a", wanting(cpu="5").requests)
    assert made.choose_node(wanting(cpu="3")) == "a"
    assert "Insufficient cpu" in refusal(made.choose_node(wanting(cpu="4")))
    assert made.remove_pod("1")
    assert not made.remove_pod("1")
    assert made.choose_node(wanting(cpu="8")) == "a"


def test_a_pod_is_held_once_and_on_one_node() -> None:
    made = places(a_node("a"))
    made.add_pod("1", "a", wanting(cpu="5").requests)
    made.add_pod("1", "a", wanting(cpu="5").requests)
    assert made.choose_node(wanting(cpu="3")) == "a"
    made.add_pod("1", "elsewhere", wanting(cpu="5").requests)
    assert made.choose_node(wanting(cpu="8")) == "a"


def test_a_node_takes_only_so_many_pods() -> None:
    made = places(a_node("a", has={"pods": "1"}))
    made.add_pod("1", "a", wanting().requests)
    assert refusal(made.choose_node(wanting())) == "0/1 nodes are available: 1 Too many pods."


def test_what_was_held_on_a_node_that_comes_back_is_still_held() -> None:
    made = SchedulerCache()
    made.add_pod("1", "a", wanting(cpu="5").requests)
    assert refusal(made.choose_node(wanting())) == "no nodes available to schedule pods"
    made.put_node(a_node("a"))
    made.drop_node("a")
    made.put_node(a_node("a"))
    assert "Insufficient cpu" in refusal(made.choose_node(wanting(cpu="4")))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (a_node("n", unschedulable=True), "1 node(s) were unschedulable"),
        (a_node("n", ready="False"), "1 node(s) were not ready"),
        (a_node("n", ready="Unknown"), "1 node(s) were not ready"),
        (a_node("n", ready=""), "1 node(s) were not ready"),
        (a_node("n", taints=[TAINT]), "1 node(s) had untolerated taint {dedicated: ml}"),
        (a_node("n", taints=[{"key": "x", "effect": "NoExecute"}]), "1 node(s) had untolerated taint {x: }"),
    ],
)
def test_a_node_that_is_unready_or_unschedulable_takes_no_pod(node: Node, expected: str) -> None:
    assert refusal(places(node).choose_node(wanting())) == f"0/1 nodes are available: {expected}."


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Equal", "value": "web"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_keeps_away_pods_that_do_not_tolerate_it(toleration: dict[str, str], fits: bool) -> None:
    made = places(a_node("n", taints=[TAINT]))
    assert isinstance(made.choose_node(wanting(tolerations=[toleration])), str) == fits


def test_a_taint_that_only_asks_to_stay_away_does_not_matter() -> None:
    assert places(a_node("n", taints=[{**TAINT, "effect": "PreferNoSchedule"}])).choose_node(wanting()) == "n"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {"zone": "east"}}, "e"),
        ({"nodeSelector": {"zone": "west", "disk": "fast"}}, "w"),
        ({"nodeSelector": {"zone": "east", "disk": "fast"}}, ""),
        ({"affinity": required(label("zone", "In", "west"))}, "w"),
        ({"affinity": required(label("zone", "NotIn", "east", "north"))}, "w"),
        ({"affinity": required(label("disk", "Exists"))}, "w"),
        ({"affinity": required(label("zone", "In", "north"), label("disk", "DoesNotExist"))}, "e"),
        ({"affinity": required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["w"]}]})}, "w"),
        ({"affinity": required({})}, ""),
        ({"affinity": required(label("zone", "In", "west")), "nodeSelector": {"zone": "east"}}, ""),
        ({"affinity": {"nodeAffinity": {}}}, "e"),
    ],
)
def test_a_pod_goes_where_selector_and_affinity_let_it(spec: dict[str, Any], expected: str) -> None:
    made = places(a_node("e", labels={"zone": "east"}), a_node("w", labels={"zone": "west", "disk": "fast"}))
    found = made.choose_node(wanting(**spec))
    if expected:
        assert found == expected
    else:
        assert refusal(found) == "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."


def test_every_node_is_counted_under_its_own_reason() -> None:
    made = places(
        a_node("a", unschedulable=True), a_node("b", taints=[TAINT]), a_node("c"), a_node("d", has={"cpu": "1"})
    )
    assert refusal(made.choose_node(wanting(cpu="9"))) == (
        "0/4 nodes are available: 1 node(s) had untolerated taint {dedicated: ml}, 1 node(s) were unschedulable, "
        "2 Insufficient cpu."
    )


def test_a_change_of_a_node_counts_from_the_next_choice_on() -> None:
    made = places(a_node("a"))
    assert made.choose_node(wanting(nodeSelector={"zone": "east"})) != "a"
    assert made.put_node(a_node("a", labels={"zone": "east"}))
    assert made.choose_node(wanting(nodeSelector={"zone": "east"})) == "a"
    assert made.put_node(a_node("a", labels={"zone": "east"}, has={"cpu": "1"}))
    assert made.choose_node(wanting(nodeSelector={"zone": "east"}, cpu="2")) != "a"
    assert made.put_node(a_node("a", labels={"zone": "east"}, has={"cpu": "1"}, unschedulable=True))
    assert not made.put_node(a_node("a", labels={"zone": "east"}, has={"cpu": "1"}, unschedulable=True))


def test_pods_that_want_the_same_are_equal() -> None:
    assert wanting(name="p", cpu="1") == wanting(name="q", cpu="1000m")
    assert wanting(cpu="1") != wanting(cpu="2")
    assert wanting(nodeSelector={"a": "b"}) != wanting()
    assert wanting(tolerations=[{"operator": "Exists"}]) != wanting()
    assert wanting(affinity=required(label("zone", "Exists"))) != wanting(affinity=required(label("disk", "Exists")))
