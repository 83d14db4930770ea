"""The filters over columns against slow ones that check one pod and one node at a time.

The oracles below are Kubernetes' rules written down word by word (TaintToleration, NodeAffinity, NodePorts and
InterPodAffinity), over the raw objects.  They share no code with the product.  Keys, values and namespaces are few, so
that nearly everything meets nearly everything; broken requirements occur, because an API server may have let them in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.core.cluster.nodematching import has_untolerated_taint, matches_node_selector
from pykai.core.cycle.request import PlacementRequest
from pykai.core.model.shapes import HostPort
from pykai.core.opencycle import Cycle
from pykai.core.placing.affinity import affinity_index
from pykai.core.placing.ports import ports_conflict
from tests.core.builders import Cluster, Raw, Result, cluster

KEYS = ("a", "b")
VALUES = ("", "x", "y", "1", "2", "10", "1_0")
ALL = slice(None)


def ask_of(cycle: Cycle, group: str = "default/job") -> PlacementRequest:
    """The first task of a group, as it looks for a place."""
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[group])
    (leaf,) = gang.leaves
    return PlacementRequest(leaf.tasks[0], gang, leaf, cycle.context.snapshot.vectors[leaf.tasks[0].shape])


def go_integer(text: str) -> int | None:
    if not re.fullmatch("[+-]?[0-9]+", text):
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


def sometimes(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


def without_nones(raw: Raw) -> Raw:
    return {key: value for key, value in raw.items() if value is not None}


labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2)


# Taints

EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
taints = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(KEYS), "value": st.sampled_from(VALUES), "effect": st.sampled_from(EFFECTS)}
    ),
    max_size=3,
)
tolerations = st.lists(
    st.fixed_dictionaries(
        {
            "key": sometimes(st.sampled_from(KEYS)),
            "operator": sometimes(st.sampled_from(("Equal", "Exists", "Lt", "Gt", "Near"))),
            "value": sometimes(st.sampled_from(VALUES)),
            "effect": sometimes(st.sampled_from(EFFECTS)),
        }
    ).map(without_nones),
    max_size=3,
)


def oracle_tolerates(toleration: Raw, taint: Raw) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    value = toleration.get("value", "")
    match toleration.get("operator", "Equal"):
        case "Exists":
            return True
        case "Equal":
            return bool(value == taint["value"])
        case "Lt" | "Gt" as operator:
            have, bound = go_integer(taint["value"]), go_integer(value)
            if have is None or bound is None:
                return False
            return have < bound if operator == "Lt" else have > bound
    return False


def oracle_tainted(pod: list[Raw], node: list[Raw]) -> bool:
    for taint in node:
        if taint["effect"] in ("NoSchedule", "NoExecute"):
            if not any(oracle_tolerates(toleration, taint) for toleration in pod):
                return True
    return False


@settings(max_examples=150, deadline=None)
@given(st.lists(taints, min_size=1, max_size=4), tolerations)
def test_taints_filter_as_in_kubernetes(nodes: list[list[Raw]], pod: list[Raw]) -> None:
    """cycle:FLT-2 TaintToleration"""
    made = cluster().queue("q").gang("job", spec={"tolerations": pod})
    for node in nodes:
        made.node(taints=node)
    cycle = made.cycle()
    column = has_untolerated_taint(cycle.context.snapshot.nodes, ask_of(cycle).shape)
    assert column.tolist() == [oracle_tainted(pod, node) for node in nodes]


# Node selectors and affinity

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
#: Number of values an operator takes, beside which others occur: a term with a wrong one is broken.
RIGHT_SIZES = {"In": (1, 2), "NotIn": (1, 2), "Exists": (0,), "DoesNotExist": (0,), "Gt": (1,), "Lt": (1,)}


@st.composite
def requirements(draw: st.DrawFn) -> Raw:
    operator = draw(st.sampled_from((*OPERATORS, *OPERATORS, "Near")))
    sizes = RIGHT_SIZES.get(operator, (1,))
    size = draw(st.sampled_from((*sizes, *sizes, *sizes, 0, 1, 2)))
    pool = ("1", "2", "10", "5") if operator in ("Gt", "Lt") and draw(st.booleans()) else (*VALUES, "no label!", "-1")
    values = draw(st.lists(st.sampled_from(pool), min_size=size, max_size=size))
    return {"key": draw(st.sampled_from(KEYS)), "operator": operator, "values": values}


field_requirements = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(("In", "NotIn", "In", "NotIn", "Exists")),
        "values": st.lists(st.sampled_from(("node-0", "node-1", "node-9")), min_size=1, max_size=2),
    }
)
terms = st.fixed_dictionaries(
    {
        "matchExpressions": sometimes(st.lists(requirements(), max_size=2)),
        "matchFields": sometimes(st.lists(field_requirements, max_size=2)),
    }
).map(without_nones)
node_affinities = sometimes(st.lists(terms, max_size=3))


def oracle_broken(requirement: Raw) -> bool:
    operator, values = requirement["operator"], requirement["values"]
    label = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
    if any(len(value) > 63 or not re.fullmatch(label, value) for value in values):
        return True
    match operator:
        case "In" | "NotIn":
            return len(values) == 0
        case "Exists" | "DoesNotExist":
            return len(values) != 0
        case "Gt" | "Lt":
            return len(values) != 1 or go_integer(values[0]) is None
    return True


def oracle_meets(requirement: Raw, node: Mapping[str, str]) -> bool:
    key, values = requirement["key"], requirement["values"]
    match requirement["operator"]:
        case "In":
            return key in node and node[key] in values
        case "NotIn":
            return key not in node or node[key] not in values
        case "Exists":
            return key in node
        case "DoesNotExist":
            return key not in node
    if key not in node:
        return False
    have, bound = go_integer(node[key]), go_integer(values[0])
    assert bound is not None
    return have is not None and (have > bound if requirement["operator"] == "Gt" else have < bound)


def oracle_term(term: Raw, name: str, node: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions", []), term.get("matchFields", [])
    if not expressions and not fields:
        return False
    if any(oracle_broken(requirement) for requirement in expressions):
        return False
    if any(len(field["values"]) != 1 or field["operator"] not in ("In", "NotIn") for field in fields):
        return False
    for field in fields:
        if (field["values"][0] == name) != (field["operator"] == "In"):
            return False
    return all(oracle_meets(requirement, node) for requirement in expressions)


def oracle_selected(
    selector: Mapping[str, str], affinity: list[Raw] | None, name: str, node: Mapping[str, str]
) -> bool:
    for key, value in selector.items():
        if key not in node or node[key] != value:
            return False
    return affinity is None or any(oracle_term(term, name, node) for term in affinity)


@settings(max_examples=150, deadline=None)
@given(st.lists(labels, min_size=1, max_size=4), st.one_of(st.just({}), labels), node_affinities)
def test_nodes_are_selected_as_in_kubernetes(
    nodes: list[dict[str, str]], selector: dict[str, str], affinity: list[Raw] | None
) -> None:
    """cycle:FLT-2 NodeAffinity"""
    spec: Raw = {"nodeSelector": selector}
    if affinity is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": affinity}}
        spec["affinity"] = {"nodeAffinity": required}
    made = cluster().queue("q").gang("job", spec=spec)
    for node in nodes:
        made.node(labels=node)
    cycle = made.cycle()
    column = matches_node_selector(cycle.context.snapshot.nodes, ask_of(cycle).shape)
    expected = [oracle_selected(selector, affinity, f"node-{row}", node) for row, node in enumerate(nodes)]
    assert column.tolist() == expected


# Host ports

ports = st.builds(
    HostPort,
    ip=st.sampled_from(("0.0.0.0", "10.0.0.1", "10.0.0.2")),
    protocol=st.sampled_from(("TCP", "UDP")),
    port=st.sampled_from((80, 81)),
)


def oracle_clash(wanted: HostPort, held: HostPort) -> bool:
    if wanted.port != held.port or wanted.protocol != held.protocol:
        return False
    return wanted.ip == held.ip or "0.0.0.0" in (wanted.ip, held.ip)


@given(st.lists(ports, max_size=3), st.lists(ports, max_size=3))
def test_host_ports_conflict_as_in_kubernetes(wanted: list[HostPort], held: list[HostPort]) -> None:
    """cycle:FLT-2 NodePorts"""
    assert ports_conflict(wanted, held) == any(oracle_clash(one, other) for one in wanted for other in held)


# Affinity between pods

NAMESPACES: dict[str, dict[str, str]] = {"default": {"a": "x"}, "other": {"a": "y"}, "third": {}}
TOPOLOGY = ("zone", "rack")
#: Labels of pods: fewer than those of nodes, so that selectors often select.
pod_labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(("x", "y")), max_size=2)
selector_requirements = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(KEYS),
            "operator": st.sampled_from(("In", "NotIn")),
            "values": st.lists(st.sampled_from(("x", "y")), min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {"key": st.sampled_from(KEYS), "operator": st.sampled_from(("Exists", "DoesNotExist"))},
    ),
)
selectors = st.fixed_dictionaries(
    {"matchLabels": sometimes(pod_labels), "matchExpressions": sometimes(st.lists(selector_requirements, max_size=1))}
).map(without_nones)
pod_terms = st.fixed_dictionaries(
    {
        "topologyKey": st.sampled_from(TOPOLOGY),
        "labelSelector": st.one_of(selectors, selectors, selectors, st.none()),
        "namespaces": sometimes(st.lists(st.sampled_from(tuple(NAMESPACES)), max_size=2)),
        "namespaceSelector": st.one_of(st.none(), st.none(), selectors),
    }
).map(without_nones)


def rules_of(near: list[Raw], apart: list[Raw]) -> Raw:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"podAffinity": {required: near}, "podAntiAffinity": {required: apart}}


pods = st.fixed_dictionaries(
    {
        "namespace": st.sampled_from(tuple(NAMESPACES)),
        "labels": pod_labels,
        "near": st.lists(pod_terms, max_size=2),
        "apart": st.lists(pod_terms, max_size=1),
    }
)
topology_labels = st.fixed_dictionaries(
    {"zone": sometimes(st.sampled_from("AB")), "rack": sometimes(st.sampled_from("1234"))}
).map(without_nones)


def oracle_selects(selector: Raw | None, there: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    if any(there.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    requirements = [{"values": [], **requirement} for requirement in selector.get("matchExpressions", [])]
    return all(oracle_meets(requirement, there) for requirement in requirements)


def oracle_matches(term: Raw, owner: Raw, pod: Raw) -> bool:
    """Whether a term of one pod means another."""
    listed, by_label = term.get("namespaces", []), term.get("namespaceSelector")
    if not listed and by_label is None:
        inside = pod["namespace"] == owner["namespace"]
    else:
        inside = pod["namespace"] in listed or oracle_selects(by_label, NAMESPACES[pod["namespace"]])
    return inside and oracle_selects(term.get("labelSelector"), pod["labels"])


Placed = list[tuple[Raw, int]]


def oracle_affinity(pod: Raw, row: int, placed: Placed, nodes: list[dict[str, str]]) -> int:
    """0 or which of the three rules keeps the pod off the node; `placed` are pods with the rows they are on."""
    node = nodes[row]

    def same_domain(other_row: int, key: str) -> bool:
        return key in node and key in nodes[other_row] and node[key] == nodes[other_row][key]

    def matches_all(other: Raw) -> bool:
        return all(oracle_matches(term, pod, other) for term in pod["near"])

    if pod["near"]:
        if any(term["topologyKey"] not in node for term in pod["near"]):
            return 1
        satisfied = all(
            any(matches_all(other) and same_domain(where, term["topologyKey"]) for other, where in placed)
            for term in pod["near"]
        )
        if not satisfied:
            somewhere = any(
                matches_all(other) and term["topologyKey"] in nodes[where]
                for other, where in placed
                for term in pod["near"]
            )
            if somewhere or not matches_all(pod):
                return 1
    for term in pod["apart"]:
        if any(oracle_matches(term, pod, other) and same_domain(where, term["topologyKey"]) for other, where in placed):
            return 2
    for other, where in placed:
        for term in other["apart"]:
            if oracle_matches(term, other, pod) and same_domain(where, term["topologyKey"]):
                return 3
    return 0


def nodes_and_pods(nodes: list[dict[str, str]], running: Placed) -> Cluster:
    made = cluster().queue("q")
    for name, marks in NAMESPACES.items():
        made.namespace(name, **marks)
    for node in nodes:
        made.node(labels=node)
    for index, (pod, row) in enumerate(running):
        made.pod(
            f"there-{index}",
            on=f"node-{row % len(nodes)}",
            namespace=pod["namespace"],
            labels=pod["labels"],
            scheduler="other",
            spec={"affinity": rules_of(pod["near"], pod["apart"])},
        )
    return made


def wait(made: Cluster, name: str, pod: Raw, count: int = 1) -> Cluster:
    # Pods without requests change no score, so results for other nodes are not refreshed by accident.
    return made.gang(
        name,
        pods=count,
        cpu=0,
        memory=0,
        namespace=pod["namespace"],
        labels=pod["labels"],
        spec={"affinity": rules_of(pod["near"], pod["apart"])},
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(topology_labels, min_size=1, max_size=4),
    st.lists(st.tuples(pods, st.integers(0, 3)), max_size=5),
    pods,
)
def test_pod_affinity_and_anti_affinity_work_as_in_kubernetes(
    nodes: list[dict[str, str]], running: Placed, pod: Raw
) -> None:
    """cycle:FLT-2 InterPodAffinity: the reason of every node."""
    placed = [(other, row % len(nodes)) for other, row in running]
    cycle = wait(nodes_and_pods(nodes, running), "job", pod).cycle()
    ask = ask_of(cycle, f"{pod['namespace']}/job")
    index = affinity_index(cycle.context.snapshot)
    codes = index.refusal_codes(cycle.state, ask, ALL).tolist() if index.applies_to(ask) else [0] * len(nodes)
    assert codes == [oracle_affinity(pod, row, placed, nodes) for row in range(len(nodes))]


REASONS = {
    1: "node(s) didn't match pod affinity rules",
    2: "node(s) didn't match pod anti-affinity rules",
    3: "node(s) didn't satisfy existing pods anti-affinity rules",
}


def bound_to(result: Result, name: str, namespace: str) -> list[int]:
    """Rows of the nodes the pods of a group were bound to, in order."""
    binds: Iterable[Any] = result.plan.binds
    return [int(bind.node.removeprefix("node-")) for bind in binds if bind.group == f"{namespace}/{name}"]


@settings(max_examples=90, deadline=None)
@given(
    st.lists(topology_labels, min_size=1, max_size=4),
    st.lists(st.tuples(pods, st.integers(0, 3)), max_size=3),
    st.lists(st.tuples(pods, st.integers(1, 2)), min_size=1, max_size=5),
)
def test_placements_of_a_cycle_count_and_undone_ones_do_not(
    nodes: list[dict[str, str]], running: Placed, waiting: Placed
) -> None:
    """cycle:FLT-6, Do better: the cycle told again, pod by pod, with the oracle looking at everyone placed so far.

    Gangs come in the order of their age.  A single pod is placed if and only if the oracle knows a node; a gang of two
    may fail by the choice for its first pod, and must then leave no trace.
    """
    made = nodes_and_pods(nodes, running)
    for index, (pod, count) in enumerate(waiting):
        wait(made, f"job-{index}", pod, count)
    result = made.schedule()
    placed = [(other, row % len(nodes)) for other, row in running]
    for index, (pod, count) in enumerate(waiting):
        rows = bound_to(result, f"job-{index}", pod["namespace"])
        codes = [oracle_affinity(pod, row, placed, nodes) for row in range(len(nodes))]
        if count == 1 and not rows:
            assert result.node_reasons(f"job-{index}", pod["namespace"]) == Counter(REASONS[code] for code in codes)
        assert len(rows) == count or not rows
        assert bool(rows) == (0 in codes) or count > 1
        for row in rows:
            assert oracle_affinity(pod, row, placed, nodes) == 0
            placed.append((pod, row))
