"""Bad topologies, constraints, spreads and affinities do not stop other work, and are reported."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.topology import LABELS_ARE_UNIQUE, MOST_LEVELS
from tests.core.badinput import beside_haven, problems_of, schedules_haven
from tests.core.builders import Cluster, Raw, leaf
from tests.core.topologies import inside, topology

BIG = 2**63 - 1


def wishing(wish: Raw, *levels: str, **node: Any) -> Cluster:
    """A gang with this constraint and a topology of these levels, on nodes that have them all."""
    built = beside_haven(0).nodes(2, gpus=2, labels=dict.fromkeys(levels, "v"), **node)
    return topology(built, *levels).gang("odd", 2, gpu=1, group_spec=wish)


# Topologies


def test_a_topology_of_the_maximum_depth_is_used() -> None:
    levels = [f"level-{number}" for number in range(MOST_LEVELS)]
    result = schedules_haven(wishing(inside(levels[-1], ""), *levels))
    assert not problems_of(result, "Topology/net")
    assert result.bound("odd") == 2


def test_a_topology_of_too_many_levels_counts_as_absent() -> None:
    """Its tree would grow with the square of the levels, for every node."""
    levels = [f"level-{number}" for number in range(MOST_LEVELS + 1)]
    result = schedules_haven(wishing(inside(levels[0]), *levels))
    assert "17 levels, at most 16 are allowed; the topology counts as absent" in problems_of(result, "Topology/net")
    assert "Requested topology net does not exist" in result.why("odd")


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ((), "expected 1 to 16 levels, got 0"),
        (("zone", "zone"), LABELS_ARE_UNIQUE),
        (("zone", "rack", "zone"), LABELS_ARE_UNIQUE),
        (("",), "expected 1 to 316 characters, got 0"),
        (("Ü b e r",), "expected the key of a label"),
        (("z" * 400,), "expected 1 to 316 characters, got 400"),
    ],
)
def test_a_topology_the_schema_would_reject_is_reported(levels: tuple[str, ...], said: str) -> None:
    result = schedules_haven(wishing(inside(*levels[:1] or ("zone",)), *levels))
    assert said in problems_of(result, "Topology/net")


def test_aliases_that_name_each_other_are_reported() -> None:
    built = beside_haven()
    topology(built, "zone", "rack", aliases={"zone": "rack", "rack": "zone"}).gang("odd", group_spec=inside("rack"))
    assert "an alias must not equal a nodeLabel" in problems_of(schedules_haven(built), "Topology/net")


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (inside("gone"), "specified 'gone' as the required topology constraint level"),
        (inside("zone", "gone"), "specified 'gone' as the preferred topology constraint level"),
        (inside("zone", name="gone"), "Requested topology gone does not exist"),
        (inside(), "no topology constraints were found"),
    ],
)
def test_a_constraint_on_a_missing_topology_or_level_waits_with_a_reason(wish: Raw, why: str) -> None:
    result = schedules_haven(wishing(wish, "zone"))
    assert result.bound("odd") == 0
    assert why in result.why("odd")


@pytest.mark.parametrize("wish", [inside("zone", "zone"), inside("rack", "zone"), inside("", "zone")])
def test_a_constraint_that_repeats_a_level_is_kept_once(wish: Raw) -> None:
    assert schedules_haven(wishing(wish, "zone", "rack")).bound("odd") == 2


@pytest.mark.parametrize("value", ["", ".", "a.b", "é", "x" * 5000])
def test_odd_values_of_labels_make_domains_like_others(value: str) -> None:
    built = beside_haven(0).nodes(2, gpus=2, labels={"zone": value, "rack": value})
    topology(built, "zone", "rack").gang("odd", 2, gpu=1, group_spec=inside("rack", ""))
    assert schedules_haven(built).bound("odd") == 2


def test_nodes_without_the_labels_serve_no_constraint() -> None:
    built = topology(beside_haven(), "zone", "rack").gang("odd", group_spec=inside("zone"))
    assert schedules_haven(built).bound("odd") == 0


def test_subgroups_nested_to_the_limit_with_a_constraint_each() -> None:
    parts: list[Raw] = [
        {"name": f"s{depth}", "parent": f"s{depth - 1}" if depth else "", **inside("zone", "rack")}
        for depth in range(30)
    ]
    built = topology(beside_haven(0).nodes(2, labels={"zone": "z", "rack": "r"}), "zone", "rack")
    built.group("deep", subGroups=parts, **inside("zone")).pod("p", group="deep", subgroup="s29")
    assert schedules_haven(built).bound("deep") == 1


def test_hundreds_of_subgroups_that_fit_nowhere_together() -> None:
    built = topology(beside_haven(0).nodes(2, cpu=50, labels={"zone": "z", "rack": "r"}), "zone", "rack")
    built.tree("wide", *(leaf(f"s{number}", pending=1) for number in range(200)), group_spec=inside("zone", "rack"))
    assert schedules_haven(built).bound("wide") == 0


# Spread


@pytest.mark.parametrize("how", ["DoNotSchedule", "ScheduleAnyway", "", "Nonsense"])
@pytest.mark.parametrize(
    "odd",
    [
        {"maxSkew": 0},
        {"maxSkew": -3},
        {"maxSkew": BIG},
        {"maxSkew": -BIG - 1},
        {"minDomains": 0},
        {"minDomains": -BIG - 1},
        {"minDomains": BIG},
        {"topologyKey": ""},
        {"topologyKey": "gone"},
        {"labelSelector": None},
        {"labelSelector": {"matchExpressions": [{"key": "", "operator": "Odd"}]}},
        {"matchLabelKeys": ["gone", "", "app", "app"]},
        {"nodeAffinityPolicy": "?", "nodeTaintsPolicy": "?"},
    ],
    ids=str,
)
def test_an_absurd_spread_constraint_is_harmless(odd: Raw, how: str) -> None:
    spread: Raw = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": how,
        "labelSelector": {"matchLabels": {"app": "odd"}},
        **odd,
    }
    labels = {"app": "odd"}
    built = beside_haven().gang("old", 2, on="node-0", labels=labels).gang("odd", 3, labels=labels)
    for pod in built.objects[-3:]:
        pod["spec"]["topologySpreadConstraints"] = [spread, spread]
    result = schedules_haven(built)
    assert result.bound("odd") == 3 or "topology spread" in result.why("odd")


def test_hundreds_of_spread_constraints_are_checked_once_each() -> None:
    spread: Raw = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    built = beside_haven().gang("odd", 3, spec={"topologySpreadConstraints": [spread] * 300})
    assert schedules_haven(built).bound("odd") == 3


# Affinity


def preferring(kind: str, weight: int) -> Raw:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "odd"}}}
    listed = [{"weight": weight, "podAffinityTerm": term}]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": listed}}}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("weight", [0, -1, -100, 101, BIG, -BIG - 1])
def test_an_absurd_affinity_weight_is_harmless(kind: str, weight: int) -> None:
    spec, labels = preferring(kind, weight), {"app": "odd"}
    built = beside_haven().gang("old", 2, on="node-0", labels=labels, spec=spec)
    assert schedules_haven(built.gang("odd", 2, labels=labels, spec=spec)).bound("odd") == 2


@pytest.mark.parametrize(("weight", "node"), [(-BIG, "node-0"), (-1, "node-0"), (100, "node-1"), (BIG, "node-1")])
def test_a_weight_is_ignored_below_one_and_clamped_to_a_hundred(weight: int, node: str) -> None:
    """cycle:SCO-2 K8sPlugins; pods without a preference go to node-0."""
    labels = {"app": "odd"}
    built = beside_haven(0).node("node-0", cpu=50).node("node-1", cpu=100).gang("old", on="node-0", labels=labels)
    built.gang("odd", labels=labels, spec=preferring("podAntiAffinity", weight))
    assert schedules_haven(built).node_of("odd-0") == node


def test_an_absurd_weight_does_not_outweigh_two_of_the_largest() -> None:
    built = beside_haven(0).node("node-0", cpu=50).node("node-1", cpu=100)
    built.gang("old", on="node-0", labels={"app": "odd"}).gang("two", 2, on="node-1", labels={"app": "even"})
    spec = preferring("podAffinity", BIG)
    even = preferring("podAffinity", 100)["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    even[0]["podAffinityTerm"]["labelSelector"] = {"matchLabels": {"app": "even"}}
    spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] += even
    assert schedules_haven(built.gang("odd", spec=spec)).node_of("odd-0") == "node-1"


def test_an_absurd_weight_still_attracts() -> None:
    """Weights of several pods are added up, and the sum must not overflow."""
    built = beside_haven(0).node("node-0", cpu=100).node("node-1", cpu=10).gang("busy", cpu=5, on="node-1")
    built.gang("old", 2, on="node-0", labels={"app": "odd"}).gang("odd", spec=preferring("podAffinity", BIG))
    assert schedules_haven(built).node_of("odd-0") == "node-0"
    assert schedules_haven(built.gang("plain")).node_of("plain-0") == "node-1"


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("term", [{}, {"topologyKey": "zone"}, {"topologyKey": "", "labelSelector": {}}], ids=str)
def test_an_empty_required_affinity_is_harmless(kind: str, term: Raw) -> None:
    spec = {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    schedules_haven(beside_haven().gang("old", on="node-0", spec=spec).gang("odd", 2, spec=spec))


# Nodes that lost resources


def test_a_pod_on_a_node_that_lost_its_gpus_gives_none_back() -> None:
    """gpu:S-3: what a node no longer has cannot be freed there, so no pod is evicted for it."""
    built = beside_haven(0).node("whole", gpus=1).node("broken", gpus=0).priority_class("high", 100)
    built.gang("there", gpu=1, on="whole", preemptible=False).gang("old", gpu=1, on="broken")
    result = schedules_haven(built.gang("odd", gpu=1, priority="high"))
    assert not result.evictions
    assert not result.nominations
