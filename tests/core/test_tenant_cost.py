"""What a tenant may create many of, and the cost of each: counted work, never seconds.

The attacks themselves, with milliseconds, are in `bench/crowds.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.scheduling import DEEPEST_SUBGROUP, MOST_SUBGROUPS
from pykai.core.hooks import ALL_NODES
from pykai.core.model.affinityterms import selector_matches
from pykai.core.opencycle import Cycle
from pykai.core.placing.affinity import AffinityIndex, affinity_index
from tests.core.builders import NOW_NS, Cluster, Raw, cluster, placement_request_of

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
HOST = "kubernetes.io/hostname"


def term(app: str, key: str = HOST, **more: Any) -> Raw:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, "namespaceSelector": {}, **more}


def apart(*terms: Raw) -> Raw:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def near(*terms: Raw) -> Raw:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def drawn(*terms: Raw) -> Raw:
    weighed = [{"weight": 1, "podAffinityTerm": each} for each in terms]
    return {"affinity": {"podAffinity": {PREFERRED: weighed}}}


def index_of(cycle: Cycle) -> AffinityIndex:
    return affinity_index(cycle.context.snapshot)


def test_terms_about_keys_that_no_node_has_are_not_counted() -> None:
    made = cluster(nodes=3).queue("q")
    made.gang("crowd", spec=apart(*(term(f"a{n}", f"example.com/key-{n}") for n in range(40))))
    made.gang("drawn", spec=drawn(*(term(f"a{n}", f"example.com/key-{n}") for n in range(40))))
    result = made.schedule()
    assert (result.bound("crowd"), result.bound("drawn")) == (1, 1)
    assert index_of(result.cycle).selections == 0
    labels = [key for key in result.cycle.context.snapshot.nodes.memo if isinstance(key, tuple) and key[0] == "label"]
    assert not [key for key in labels if "example.com" in str(key)]


def test_equal_terms_of_many_pods_are_counted_once() -> None:
    made = cluster(nodes=3).queue("q")
    for number in range(10):
        made.gang(f"job{number}", cpu=f"{number + 1}m", spec=apart(term("db"), term("web")))
    cycle = made.cycle()
    for number in range(10):
        cycle.rankings.ranking_for(cycle.state, placement_request_of(cycle, f"job{number}-0"), ALL_NODES)
    assert index_of(cycle).selections == 2


def test_affinity_to_many_costs_one_selection() -> None:
    """All of the terms must be met by one pod, so only such pods are counted."""
    made = cluster(nodes=2).queue("q").gang("crowd", spec=near(*(term(f"a{n}") for n in range(50))))
    result = made.schedule()
    assert result.node_reasons("crowd") == {"node(s) didn't match pod affinity rules": 2}
    assert index_of(result.cycle).selections == 1


def test_a_pod_that_no_term_selects_keeps_its_ranking_while_others_are_placed() -> None:
    """Terms of other pods must not make every placement rescan all nodes."""
    made = cluster(nodes=3).queue("q")
    made.pod("holder", on="node-0", labels={"app": "x"}, spec=apart(*(term(f"a{n}") for n in range(20))))
    made.gang("plain", 3, min=1)
    cycle = made.cycle()
    ask = placement_request_of(cycle, "plain-0")
    before = cycle.rankings.ranking_for(cycle.state, ask, ALL_NODES)
    cycle.state.place(ask.gang, ask.leaf, ask.task, 1, (), pipelined=False)
    assert cycle.rankings.ranking_for(cycle.state, placement_request_of(cycle, "plain-1"), ALL_NODES) is before


def test_terms_are_read_when_a_pod_comes_and_not_again() -> None:
    made = cluster(nodes=2).queue("q").gang("crowd", spec=apart(*(term(f"a{n}") for n in range(30))))
    made.pod("holder", on="node-0", spec=apart(*(term(f"h{n}") for n in range(30))))
    tables = made.tables()
    read = tables.snapshot(NOW_NS).terms.terms_read
    assert read == 60
    for _ in range(3):
        made.schedule()
        AffinityIndex(tables.snapshot(NOW_NS))
    assert tables.snapshot(NOW_NS).terms.terms_read == read


def test_the_victim_search_is_skipped_where_no_affinity_can_be_met() -> None:
    """cycle:FLT-9 in spirit: whichever pods are evicted, the pods its affinity requires do not exist."""
    made = cluster(nodes=2, gpus=2).queue("poor", quota=4).queue("rich", quota=0)
    for number in range(4):
        made.gang(f"run{number}", gpu=1, queue="rich", on=f"node-{number // 2}")
    made.gang("crowd", gpu=1, queue="poor", spec=near(term("nobody")))
    result = made.with_actions("allocate", "reclaim").schedule()
    assert result.plan.evictions == ()
    assert result.verdicts("crowd") == {"reclaim": "generators_exhausted"}
    # Two placements are tried, and no eviction.
    assert result.plan.work <= 2


def test_required_affinity_may_be_met_by_the_own_gang() -> None:
    made = cluster(nodes=1, gpus=2).queue("poor", quota=2).queue("rich", quota=0)
    made.gang("run", gpu=2, queue="rich", on="node-0")
    made.group("crowd", queue="poor", minMember=2)
    made.pod("crowd-a", group="crowd", gpu=1, labels={"app": "db"})
    made.pod("crowd-b", group="crowd", gpu=1, spec=near(term("db")))
    assert made.with_actions("allocate", "reclaim").schedule().evicted("run") == 1


def test_the_victim_search_is_skipped_where_the_topology_does_not_exist() -> None:
    made = cluster(nodes=2, gpus=2).queue("poor", quota=4).queue("rich", quota=0)
    for number in range(4):
        made.gang(f"run{number}", gpu=1, queue="rich", on=f"node-{number // 2}")
    wanted = {"topology": "nowhere", "requiredTopologyLevel": "rack"}
    made.gang("crowd", gpu=1, queue="poor", group_spec={"topologyConstraint": wanted})
    result = made.with_actions("allocate", "reclaim").schedule()
    assert result.plan.evictions == ()
    assert result.verdicts("crowd") == {"reclaim": "generators_exhausted"}


def tree(count: int, levels: int = 1) -> list[Raw]:
    """So many subgroups, the first of them below each other."""
    parts: list[Raw] = []
    for number in range(count):
        part: Raw = {"name": f"s{number}"}
        if 0 < number < levels:
            part["parent"] = f"s{number - 1}"
        if number >= levels - 1:
            part["minMember"] = 0
        parts.append(part)
    return parts


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (tree(MOST_SUBGROUPS), ""),
        (tree(MOST_SUBGROUPS + 1), f"{MOST_SUBGROUPS + 1} subgroups, at most {MOST_SUBGROUPS} are allowed"),
        (tree(DEEPEST_SUBGROUP, DEEPEST_SUBGROUP), ""),
        (tree(DEEPEST_SUBGROUP + 1, DEEPEST_SUBGROUP + 1), f"is nested deeper than {DEEPEST_SUBGROUP} levels"),
    ],
)
def test_a_group_beyond_the_limits_is_skipped_with_a_reason(parts: list[Raw], problem: str) -> None:
    made = cluster(nodes=1).queue("q").group("crowd", subGroups=parts).gang("mine")
    last = parts[-1]["name"]
    result = made.pod("crowd-0", group="crowd", subgroup=last).schedule()
    assert result.bound("mine") == 1
    assert result.bound("crowd") == (0 if problem else 1)
    told = [line for line in result.plan.problems if line.startswith("PodGroup/default/crowd: spec.subGroups: ")]
    assert bool(told) == bool(problem)
    assert problem in (told[0] if told else "")


def test_at_least_the_documented_limits_are_allowed() -> None:
    assert MOST_SUBGROUPS >= 1024
    assert DEEPEST_SUBGROUP >= 16


def test_the_reason_of_a_pod_with_countless_resources_is_shortened() -> None:
    made = cluster(nodes=1).queue("q")
    made.gang("crowd", extra={f"example.com/thing-{number:03}": 1 for number in range(100)})
    text = made.schedule().why("crowd")
    assert "example.com/thing-031: 1 and 68 more resources" in text
    assert "example.com/thing-032" not in text


@pytest.mark.parametrize(
    "requirement",
    [
        {"key": "app", "operator": "NotIn", "values": ["web", "db"]},
        {"key": "app", "operator": "DoesNotExist"},
    ],
)
def test_pods_excluded_by_a_selector_without_a_label_do_not_match(requirement: Raw) -> None:
    made = cluster(nodes=3).queue("q")
    made.pod("web", on="node-0", labels={"app": "web"}, scheduler="other")
    made.pod("plain", on="node-1", scheduler="other")
    made.pod("elsewhere", on="node-2", namespace="other", scheduler="other")
    raw = {"topologyKey": HOST, "labelSelector": {"matchExpressions": [requirement]}}
    cycle = made.gang("job", spec=apart(raw)).cycle()
    (check,) = (check for check in cycle.context.rules.checks if check.name == "pod affinity")
    assert check.evaluate(cycle.state, placement_request_of(cycle, "job-0"), slice(None)).tolist() == [0, 2, 0]


def test_an_anti_affinity_selector_without_a_label_repels_pods_that_lack_it() -> None:
    requirement = {"key": "app", "operator": "NotIn", "values": ["web"]}
    raw = {"topologyKey": HOST, "labelSelector": {"matchExpressions": [requirement]}}
    made = cluster(nodes=1).queue("q").pod("holder", on="node-0", scheduler="other", spec=apart(raw))
    made.gang("plain").gang("web", labels={"app": "web"})
    result = made.schedule()
    assert result.node_reasons("plain") == {"node(s) didn't satisfy existing pods anti-affinity rules": 1}
    assert result.bound("web") == 1


labels = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz"), max_size=2)
expressions = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Nonsense"]),
        st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True),
    ),
    max_size=2,
)
selectors = st.tuples(labels, expressions)
namespaces = st.sampled_from([{}, {"namespaces": ["n0"]}, {"namespaceSelector": {}}])


def selector(drawn_one: tuple[dict[str, str], list[tuple[str, str, list[str]]]]) -> Raw:
    match, listed = drawn_one
    return {
        "matchLabels": match,
        "matchExpressions": [
            {"key": key, "operator": operator, "values": values if operator in ("In", "NotIn") else []}
            for key, operator, values in listed
        ],
    }


@given(
    st.lists(st.tuples(labels, st.integers(0, 3), st.sampled_from(["n0", "default"])), max_size=6),
    st.lists(st.tuples(selectors, st.sampled_from([HOST, "zone"]), namespaces), min_size=1, max_size=3),
)
def test_counting_by_labels_finds_the_same_pods_as_a_full_scan(
    pods: list[tuple[dict[str, str], int, str]], terms: list[tuple[Any, str, Raw]]
) -> None:
    """Where anti-affinity allows a pod, by the definition."""
    made = Cluster().queue("q")
    zones = ["a", "a", "b", None]
    for number, zone in enumerate(zones):
        made.node(f"node-{number}", labels={"zone": zone} if zone else {})
    for number, (own, node, namespace) in enumerate(pods):
        made.pod(f"p{number}", on=f"node-{node}", labels=own, namespace=namespace, scheduler="other")
    raw = [{"topologyKey": key, "labelSelector": selector(each), **more} for each, key, more in terms]
    cycle = made.gang("job", spec=apart(*raw)).cycle()
    ask = placement_request_of(cycle, "job-0")
    (refused,) = (check for check in cycle.context.rules.checks if check.name == "pod affinity")
    shape = ask.shape
    assert shape.affinity is not None
    assert shape.affinity.pod_anti_affinity is not None

    def domain(key: str, node: int) -> str | None:
        return f"node-{node}" if key == HOST else zones[node]

    for node in range(4):
        company = False
        for each in shape.affinity.pod_anti_affinity.required:
            for own, where, namespace in pods:
                meant = (
                    each.namespace_selector is not None or namespace in (each.namespaces or ("default",))
                ) and selector_matches(each.label_selector, own)
                here = domain(each.topology_key, node)
                company |= meant and here is not None and here == domain(each.topology_key, where)
        assert bool(refused.evaluate(cycle.state, ask, slice(None))[node]) == company
