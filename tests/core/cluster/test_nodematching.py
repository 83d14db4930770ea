"""Taints and tolerations, node selectors and required node affinity, decided as Kubernetes decides them.

cycle:FLT-2 (TaintToleration, NodeAffinity), cycle:FLT-3 (texts), cycle:9.1 step 11.
"""

from collections.abc import Mapping

import pytest

from pykai.api.core import NodeSelectorRequirement, Toleration
from pykai.core.cluster.nodematching import matches_requirement, tolerates
from pykai.core.model.nodes import NodeTaint
from tests.core.builders import Raw, Result, cluster

UNTOLERATED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"


def taint(key: str = "dedicated", value: str = "", effect: str = "NoSchedule") -> Raw:
    return {"key": key, "value": value, "effect": effect}


def on_tainted(taints: list[Raw], *tolerations: Raw) -> Result:
    """A pod with these tolerations in a cluster of one node with these taints."""
    return cluster().node(taints=taints).queue("q").gang("job", spec={"tolerations": list(tolerations)}).schedule()


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_hard_taint_keeps_pods_away(effect: str) -> None:
    """cycle:FLT-2, FLT-3"""
    result = on_tainted([taint(effect=effect)])
    assert result.bound("job") == 0
    assert result.node_reasons("job") == {UNTOLERATED: 1}


def test_prefer_no_schedule_keeps_no_pod_away() -> None:
    """cycle:FLT-4"""
    assert on_tainted([taint(effect="PreferNoSchedule")]).bound("job") == 1


def test_every_hard_taint_must_be_tolerated() -> None:
    taints = [taint("a"), taint("b"), taint("c", effect="PreferNoSchedule")]
    assert on_tainted(taints, {"key": "a", "operator": "Exists"}).bound("job") == 0
    both = [{"key": key, "operator": "Exists"} for key in ("b", "a")]
    assert on_tainted(taints, *both).bound("job") == 1


def test_a_taint_with_an_effect_of_no_consequence_hides_no_other() -> None:
    assert on_tainted([taint(effect="PreferNoSchedule"), taint("b")]).bound("job") == 0


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"key": "k", "operator": "Equal"}, False),
        ({"key": "other", "operator": "Equal", "value": "v"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        # Without a key every key is meant, whatever the operator.
        ({"operator": "Equal", "value": "v"}, True),
        ({"operator": "Equal", "value": "w"}, False),
        ({}, False),
        ({"key": "k", "operator": "Superset", "value": "v"}, False),
        # tolerationSeconds does not decide whether a pod may be placed.
        ({"key": "k", "operator": "Exists", "tolerationSeconds": 0}, True),
    ],
)
def test_a_toleration_covers_a_taint_by_key_operator_value_and_effect(toleration: Raw, covers: bool) -> None:
    result = on_tainted([taint("k", "v")], toleration)
    assert result.bound("job") == covers


def test_an_empty_value_equals_an_absent_one() -> None:
    assert on_tainted([{"key": "k", "effect": "NoSchedule"}], {"key": "k", "operator": "Equal"}).bound("job") == 1
    assert on_tainted([{"key": "k", "effect": "NoSchedule"}], {"key": "k", "value": ""}).bound("job") == 1


@pytest.mark.parametrize(
    ("operator", "value", "tainted", "covers"),
    [
        ("Lt", "10", "9", True),
        ("Lt", "10", "10", False),
        ("Lt", "10", "11", False),
        ("Gt", "10", "11", True),
        ("Gt", "10", "10", False),
        ("Gt", "10", "9", False),
        ("Gt", "9", "10", True),
        ("Gt", "-5", "0", True),
        ("Gt", "ten", "11", False),
        ("Gt", "10", "eleven", False),
        ("Lt", "10", "", False),
        ("Lt", "1_0", "9", False),
        ("Lt", "9223372036854775808", "9", False),
    ],
)
def test_numeric_tolerations_compare_the_value_of_the_taint_with_theirs(
    operator: str, value: str, tainted: str, covers: bool
) -> None:
    toleration = Toleration(key="k", operator=operator, value=value)
    assert tolerates(toleration, NodeTaint("k", tainted, "NoSchedule")) is covers


def test_pods_with_different_tolerations_have_different_shapes() -> None:
    result = (
        cluster()
        .node("free", cpu=1)
        .node("dedicated", taints=[taint()])
        .queue("q")
        .gang("first")
        .gang("second")
        .gang("third", spec={"tolerations": [{"key": "dedicated", "operator": "Exists"}]})
        .schedule()
    )
    assert result.node_of("first-0") == "free"
    assert result.node_of("second-0") == ""
    assert result.node_of("third-0") == "dedicated"


def selecting(labels: Mapping[str, str], spec: Raw) -> int:
    """Whether a pod with this spec goes to a node with these labels."""
    result = cluster().node("node", labels=labels).queue("q").gang("job", spec=spec).schedule()
    if not result.bound("job"):
        assert result.node_reasons("job") == {NOT_SELECTED: 1}
    return result.bound("job")


def required(*terms: Raw) -> Raw:
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        }
    }


def expressions(*requirements: tuple[str, str, list[str]]) -> Raw:
    return {"matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in requirements]}


def fields(*requirements: tuple[str, str, list[str]]) -> Raw:
    return {"matchFields": [{"key": key, "operator": op, "values": values} for key, op, values in requirements]}


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ({"zone": "a"}, {"zone": "a"}, True),
        ({"zone": "a"}, {"zone": "b"}, False),
        ({"zone": "a"}, {}, False),
        ({"zone": ""}, {}, False),
        ({"zone": ""}, {"zone": ""}, True),
        ({"zone": "a", "disk": "ssd"}, {"zone": "a", "disk": "ssd"}, True),
        ({"zone": "a", "disk": "ssd"}, {"zone": "a"}, False),
        ({}, {}, True),
    ],
)
def test_a_node_selector_requires_all_of_its_labels(selector: Raw, labels: dict[str, str], matches: bool) -> None:
    assert selecting(labels, {"nodeSelector": selector}) == matches


@pytest.mark.parametrize(
    ("operator", "values", "label", "matches"),
    [
        ("In", ["a", "b"], "b", True),
        ("In", ["a", "b"], "c", False),
        ("In", ["a", "b"], None, False),
        ("In", [""], None, False),
        ("In", [""], "", True),
        ("NotIn", ["a", "b"], "c", True),
        ("NotIn", ["a", "b"], "b", False),
        ("NotIn", ["a", "b"], None, True),
        ("Exists", [], "a", True),
        ("Exists", [], "", True),
        ("Exists", [], None, False),
        ("DoesNotExist", [], None, True),
        ("DoesNotExist", [], "a", False),
        ("Gt", ["5"], "6", True),
        ("Gt", ["5"], "5", False),
        ("Gt", ["5"], "4", False),
        ("Gt", ["5"], "10", True),
        ("Gt", ["5"], None, False),
        ("Gt", ["5"], "many", False),
        ("Gt", ["5"], "1_0", False),
        ("Gt", ["5"], "6.5", False),
        ("Gt", ["05"], "6", True),
        ("Gt", ["5"], "9223372036854775807", True),
        ("Gt", ["5"], "9223372036854775808", False),
        ("Lt", ["5"], "4", True),
        ("Lt", ["5"], "5", False),
        ("Lt", ["10"], "9", True),
        ("Lt", ["5"], None, False),
        ("Lt", ["5"], "few", False),
    ],
)
def test_node_affinity_supports_every_operator(
    operator: str, values: list[str], label: str | None, matches: bool
) -> None:
    labels = {} if label is None else {"size": label}
    assert selecting(labels, required(expressions(("size", operator, values)))) == matches


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("In", []),
        ("NotIn", []),
        ("Exists", ["a"]),
        ("DoesNotExist", ["a"]),
        ("Gt", []),
        ("Gt", ["1", "2"]),
        ("Lt", ["one"]),
        ("Lt", ["-1"]),
        ("NotIn", ["no label value!"]),
        ("NotIn", ["x" * 64]),
        ("Near", ["a"]),
    ],
)
def test_a_term_with_a_broken_expression_selects_no_node(operator: str, values: list[str]) -> None:
    """NotIn and DoesNotExist would otherwise select nodes without the label."""
    assert selecting({}, required(expressions(("size", operator, values)))) == 0
    assert selecting({"size": "3"}, required(expressions(("size", operator, values)))) == 0
    sound = expressions(("other", "DoesNotExist", []))
    assert selecting({}, required(expressions(("size", operator, values)), sound)) == 1


def test_one_matching_term_is_enough() -> None:
    terms = [expressions(("zone", "In", ["a"])), expressions(("zone", "In", ["b"]))]
    assert selecting({"zone": "a"}, required(*terms)) == 1
    assert selecting({"zone": "b"}, required(*terms)) == 1
    assert selecting({"zone": "c"}, required(*terms)) == 0


def test_all_expressions_of_a_term_must_match() -> None:
    term = expressions(("zone", "In", ["a"]), ("disk", "Exists", []))
    assert selecting({"zone": "a", "disk": "ssd"}, required(term)) == 1
    assert selecting({"zone": "a"}, required(term)) == 0
    assert selecting({"disk": "ssd"}, required(term)) == 0


def test_an_empty_term_selects_no_node_and_does_not_spoil_others() -> None:
    assert selecting({}, required({})) == 0
    assert selecting({"zone": "a"}, required({}, expressions(("zone", "In", ["a"])))) == 1


def test_no_terms_select_no_node() -> None:
    assert selecting({}, required()) == 0


def test_selector_and_affinity_must_both_match() -> None:
    both = {"nodeSelector": {"disk": "ssd"}, **required(expressions(("zone", "In", ["a"])))}
    assert selecting({"zone": "a", "disk": "ssd"}, both) == 1
    assert selecting({"zone": "a"}, both) == 0
    assert selecting({"disk": "ssd"}, both) == 0


@pytest.mark.parametrize(
    ("operator", "values", "chosen"),
    [
        ("In", ["node-1"], "node-1"),
        ("In", ["node-9"], ""),
        ("NotIn", ["node-0"], "node-1"),
        # A name takes one value, and only In and NotIn.
        ("In", ["node-0", "node-1"], ""),
        ("NotIn", ["node-0", "node-1"], ""),
        ("Exists", [], ""),
        ("Gt", ["0"], ""),
    ],
)
def test_match_fields_choose_nodes_by_name(operator: str, values: list[str], chosen: str) -> None:
    spec = required(fields(("metadata.name", operator, values)))
    result = cluster(nodes=2).queue("q").gang("job", spec=spec).schedule()
    assert result.node_of("job-0") == chosen


def test_nodes_have_no_other_field_than_their_name() -> None:
    spec = required(fields(("metadata.uid", "In", ["node-1"])))
    assert cluster(nodes=2).queue("q").gang("job", spec=spec).schedule().bound("job") == 0


def test_fields_and_expressions_of_a_term_must_both_match() -> None:
    term = {**fields(("metadata.name", "In", ["node"])), **expressions(("zone", "In", ["a"]))}
    assert selecting({"zone": "a"}, required(term)) == 1
    assert selecting({"zone": "b"}, required(term)) == 0
    other = {**fields(("metadata.name", "In", ["elsewhere"])), **expressions(("zone", "In", ["a"]))}
    assert selecting({"zone": "a"}, required(other)) == 0


def test_preferred_node_affinity_keeps_no_pod_away() -> None:
    """cycle:FLT-4"""
    preferred = [{"weight": 1, "preference": expressions(("zone", "In", ["a"]))}]
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}
    assert selecting({"zone": "b"}, spec) == 1


def test_topology_spread_is_enforced() -> None:
    """cycle:FLT-4, ADR 26"""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    result = (
        cluster(nodes=2)
        .queue("q")
        .gang("job", pods=4, labels={"app": "web"}, spec={"topologySpreadConstraints": [spread]})
        .schedule()
    )
    assert result.nodes_used("job") == {"node-0": 2, "node-1": 2}


def test_equal_constraints_of_different_pods_give_equal_answers() -> None:
    """Columns are kept by the constraint itself, not by the pod that brought it."""
    wanted = required(expressions(("zone", "In", ["b"])))
    result = (
        cluster()
        .node("a", labels={"zone": "a"})
        .node("b", labels={"zone": "b"})
        .queue("q")
        .gang("small", cpu=1, spec=wanted)
        .gang("large", cpu=2, spec=wanted)
        .gang("other", cpu=1, spec=required(expressions(("zone", "In", ["a"]))))
        .gang("selector", cpu=1, spec={"nodeSelector": {"zone": "a"}})
        .schedule()
    )
    assert [result.node_of(f"{name}-0") for name in ("small", "large", "other", "selector")] == ["b", "b", "a", "a"]


def test_refused_nodes_are_counted_by_reason() -> None:
    """cycle:EXP-1, FLT-3"""
    result = (
        cluster()
        .nodes(3, taints=[taint()])
        .nodes(2, labels={"zone": "b"})
        .queue("q")
        .gang("job", spec={"nodeSelector": {"zone": "a"}})
        .schedule()
    )
    assert result.node_reasons("job") == {UNTOLERATED: 3, NOT_SELECTED: 2}
    assert result.why("job") == (
        "PodSchedulingErrors: Resources were not found for pod default/job-0 due to: "
        f"no nodes with enough resources were found: 2 {NOT_SELECTED}. \n3 {UNTOLERATED}.."
    )


def test_an_absent_label_meets_not_in_and_does_not_exist_only() -> None:
    for operator, values in (("In", ["a"]), ("Exists", []), ("Gt", ["1"]), ("Lt", ["1"])):
        assert not matches_requirement(NodeSelectorRequirement(key="k", operator=operator, values=tuple(values)), None)
    for operator, values in (("NotIn", ["a"]), ("DoesNotExist", [])):
        assert matches_requirement(NodeSelectorRequirement(key="k", operator=operator, values=tuple(values)), None)
