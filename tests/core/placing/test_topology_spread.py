"""Topology spread constraints (cycle:FLT-4, Do better): hard ones in `predicates`, soft ones in `topologyspread`.

Nodes are in zones: a0 and a1 in zone a, b0 in zone b, and so on.  Equal scores go to the smaller name, and pods without
GPUs are packed, so a pod without anti-affinity goes where others already are, else to a0.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pykai.core.model.shapes import HARD_SPREAD
from pykai.core.placing.spread import SPREAD_TEXTS, SpreadIndex
from pykai.core.plugins import DEFAULT_PLUGINS
from tests.core.builders import Cluster, Raw, Result, cluster, placement_request_of, scores_of

TOO_MANY = "node(s) didn't match pod topology spread constraints"
NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
NO_CPU = "node(s) didn't have enough resources: CPU cores"
HOST = "kubernetes.io/hostname"
WEB = {"app": "web"}
POOL = {"nodeSelector": {"pool": "x"}}
TAINT = {"key": "only", "value": "others", "effect": "NoSchedule"}


def spread(key: str = "zone", *, skew: int = 1, anyway: bool = False, **more: Any) -> Raw:
    """A constraint on pods with app=web, unless a selector is given."""
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "ScheduleAnyway" if anyway else "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
        **more,
    }


def over(*constraints: Raw, **more: Any) -> Raw:
    """A pod's spec with these constraints."""
    return {"topologySpreadConstraints": list(constraints), **more}


def zones(**names: int) -> Cluster:
    """Nodes by zone: zones(a=2, b=1) has a0, a1 and b0."""
    made = cluster().queue("q")
    for zone, count in names.items():
        for index in range(count):
            made.node(f"{zone}{index}", labels={"zone": zone})
    return made


def soft(**names: int) -> Cluster:
    """The same, with the profile that also has the plugin `topologyspread`."""
    return zones(**names).configured({"profile": "kubernetes"})


def tiers(**arguments: str) -> Raw:
    """A configuration file as KAI's operator writes it: all plugins by name (cycle:CFG-3)."""
    listed = [{"name": name, "arguments": dict(given)} for name, given in DEFAULT_PLUGINS]
    listed[0]["arguments"] = arguments
    assert listed[0]["name"] == "predicates"
    return {"actions": "allocate", "tiers": [{"plugins": listed}]}


def there(made: Cluster, on: str, labels: dict[str, str] | None = None, **how: Any) -> Cluster:
    """A running pod of another scheduler, app=web by default."""
    name = f"there-{len(made.objects)}"
    return made.pod(name, on=on, labels=WEB if labels is None else labels, scheduler="other", **how)


def by_zone(result: Result, *groups: str) -> dict[str, int]:
    """Zone -> pods of these groups bound or pipelined there."""
    found: Counter[str] = Counter()
    for group in groups:
        for node, count in result.nodes_used(group).items():
            found[node[0]] += count
    return dict(found)


def test_pods_of_one_job_are_spread_over_the_zones() -> None:
    result = zones(a=2, b=1, c=1).gang("job", pods=6, labels=WEB, spec=over(spread())).schedule()
    assert by_zone(result, "job") == {"a": 2, "b": 2, "c": 2}


def test_hard_constraints_hold_with_the_plugin_lists_of_kai() -> None:
    made = zones(a=2, b=1, c=1).gang("job", pods=6, labels=WEB, spec=over(spread())).configured(tiers())
    assert by_zone(made.schedule(), "job") == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize("more", [{}, {"profile": "kubernetes"}])
def test_an_argument_of_predicates_leaves_hard_constraints_out(more: Raw) -> None:
    """As KAI Scheduler does; the profile prefers emptier domains for soft constraints only."""
    made = zones(a=2, b=1, c=1).gang("job", pods=6, labels=WEB, spec=over(spread()))
    made.configured({**tiers(topologySpread="false"), **more})
    assert made.schedule().nodes_used("job") == {"a0": 6}


def test_soft_constraints_wait_for_the_profile() -> None:
    spec = over(spread(anyway=True))
    assert zones(a=1, b=1).gang("job", pods=2, labels=WEB, spec=spec).schedule().nodes_used("job") == {"a0": 2}
    assert soft(a=1, b=1).gang("job", pods=2, labels=WEB, spec=spec).schedule().nodes_used("job") == {"a0": 1, "b0": 1}


def test_both_kinds_of_one_pod_count_each_placement_once() -> None:
    """With the profile two plugins share the counts."""
    spec = over(spread(skew=2), spread(HOST, anyway=True))
    result = soft(a=2, b=1).gang("job", pods=6, labels=WEB, spec=spec).schedule()
    assert result.nodes_used("job") == {"a0": 2, "a1": 2, "b0": 2}


def test_a_job_that_cannot_be_spread_waits_as_a_whole() -> None:
    made = zones(a=2).node("b0", cpu="1500m", labels={"zone": "b"})
    result = made.gang("job", pods=4, labels=WEB, cpu=1, spec=over(spread())).schedule()
    assert result.bound("job") == 0
    assert result.node_reasons("job") == {TOO_MANY: 2, NO_CPU: 1}


def test_nothing_is_counted_while_no_pod_has_a_hard_constraint() -> None:
    made = there(zones(a=1), on="a0").gang("job", labels=WEB, spec=over(spread(anyway=True)))
    assert not any(check.name == "topology spread" for check in made.cycle().context.rules.checks)
    made.gang("strict", labels=WEB, spec=over(spread()))
    assert any(check.name == "topology spread" for check in made.cycle().context.rules.checks)


def test_a_pod_beyond_the_skew_waits_with_a_reason() -> None:
    """The skew allows zone b, but the pod does not fit there."""
    made = there(zones(a=2).node("b0", cpu="500m", labels={"zone": "b"}), on="a1")
    result = made.gang("job", labels=WEB, spec=over(spread())).schedule()
    assert result.node_reasons("job") == {TOO_MANY: 2, NO_CPU: 1}


def test_a_node_without_the_topology_label_is_refused() -> None:
    result = cluster(nodes=2).queue("q")
    assert result.gang("job", labels=WEB, spec=over(spread())).schedule().node_reasons("job") == {NO_LABEL: 2}


def test_the_texts_are_those_of_kubernetes() -> None:
    assert SPREAD_TEXTS == (TOO_MANY, NO_LABEL)


def test_the_first_constraint_that_refuses_a_node_gives_the_reason() -> None:
    made = there(zones(a=1), on="a0").node("b0", cpu="500m", labels={"zone": "b", "rack": "r"})
    made.node("a9", labels={"zone": "a", "rack": "r"})
    made = there(made, on="a9")
    zone, rack = spread(), spread("rack", skew=5)
    said = made.gang("job", labels=WEB, spec=over(zone, rack)).schedule().node_reasons("job")
    assert said == {TOO_MANY: 2, NO_CPU: 1}
    made = there(there(zones(a=1), on="a0").node("a9", labels={"zone": "a", "rack": "r"}), on="a9")
    made.node("b0", cpu="500m", labels={"zone": "b", "rack": "r"})
    said = made.gang("job", labels=WEB, spec=over(rack, zone)).schedule().node_reasons("job")
    assert said == {NO_LABEL: 1, TOO_MANY: 1, NO_CPU: 1}


def test_a_larger_skew_lets_domains_differ_more() -> None:
    for skew, packed in ((1, 2), (2, 3), (3, 3)):
        made = zones(a=1, b=1).gang("job", pods=4, labels=WEB, spec=over(spread(skew=skew))).schedule()
        assert by_zone(made, "job")["a"] == packed, skew


def test_all_constraints_hold_at_once() -> None:
    """The zone would allow a0 and b0 alike; on a0 the host is taken."""
    made = there(there(zones(a=2, b=1), on="a0"), on="b0")
    assert made.gang("job", labels=WEB, spec=over(spread(), spread(HOST))).schedule().node_of("job-0") == "a1"


def test_a_pod_that_is_not_selected_adds_nothing() -> None:
    """One pod in zone a, none in b: a second one of them would be too many, another pod is not."""
    full = there(zones(a=1, b=1), on="a0")
    assert full.gang("job", labels={"app": "db"}, spec=over(spread())).schedule().node_of("job-0") == "a0"
    full = there(zones(a=1, b=1), on="a0")
    assert full.gang("job", labels=WEB, spec=over(spread())).schedule().node_of("job-0") == "b0"


def test_two_pods_with_one_shape_may_differ_in_whether_they_count_themselves() -> None:
    """They alternate: a0 (counted), then b0 (counted), and pods that are not counted are packed on a0."""
    made = zones(a=1, b=1)
    for index, labels in enumerate((WEB, {"app": "db"}, WEB, {"app": "db"}, WEB, {"app": "db"})):
        made.gang(f"job-{index}", labels=labels, spec=over(spread()))
    result = made.schedule()
    assert [result.node_of(f"job-{index}-0") for index in range(6)] == ["a0", "a0", "b0", "a0", "a0", "a0"]


def test_pods_of_other_namespaces_do_not_count() -> None:
    made = there(zones(a=1, b=1), on="a0", namespace="other")
    assert made.gang("job", labels=WEB, spec=over(spread())).schedule().node_of("job-0") == "a0"


def test_equal_pods_of_two_namespaces_are_spread_apart_from_each_other() -> None:
    made = zones(a=1, b=1)
    for namespace in ("one", "two"):
        made.gang("job", pods=2, namespace=namespace, labels=WEB, spec=over(spread()))
    result = made.schedule()
    for namespace in ("one", "two"):
        assert result.nodes_used("job", namespace) == {"a0": 1, "b0": 1}


@pytest.mark.parametrize("how", [{"deleted": 10}, {"phase": "Succeeded"}, {"phase": "Unknown", "deleted": 10}])
def test_terminating_and_finished_pods_do_not_count(how: Raw) -> None:
    made = there(zones(a=1, b=1), on="a0", **how)
    assert made.gang("job", labels=WEB, spec=over(spread())).schedule().node_of("job-0") == "a0"


def test_a_pod_in_phase_unknown_counts() -> None:
    made = there(zones(a=1, b=1), on="a0", phase="Unknown")
    assert made.gang("job", labels=WEB, spec=over(spread())).schedule().node_of("job-0") == "b0"


def test_a_pod_that_is_being_bound_counts() -> None:
    made = zones(a=1, b=1).pod("first", labels=WEB).bind_request("first", "a0")
    assert made.gang("job", labels=WEB, spec=over(spread())).schedule().node_of("job-0") == "b0"


def test_too_few_domains_count_as_an_empty_one() -> None:
    """One pod in each of two zones: the third exceeds the skew where three zones are required."""
    for wanted, placed in ((1, 1), (2, 1), (3, 0)):
        made = there(there(zones(a=1, b=1), on="a0"), on="b0")
        result = made.gang("job", labels=WEB, spec=over(spread(minDomains=wanted))).schedule()
        assert result.bound("job") == placed, wanted


def pool(made: Cluster, **nodes: str) -> Cluster:
    """More nodes in the pool x, by name and zone."""
    for name, zone in nodes.items():
        made.node(name, labels={"zone": zone, "pool": "x"})
    return made


def test_nodes_the_pod_cannot_select_make_no_domain() -> None:
    """One pod in a and one in b, none in c, which is outside the pool: it counts only if node affinity is ignored."""
    for policy, placed in (("Honor", 1), ("Ignore", 0), ("", 1)):
        made = there(there(pool(zones(c=1), a0="a", b0="b"), on="a0"), on="b0")
        own: Raw = {"nodeAffinityPolicy": policy} if policy else {}
        result = made.gang("job", labels=WEB, spec=over(spread(**own), **POOL)).schedule()
        assert result.bound("job") == placed, policy


def test_pods_on_nodes_the_pod_cannot_select_do_not_count() -> None:
    for policy, node in (("Honor", "a0"), ("Ignore", "b0")):
        made = there(pool(zones(a=0).node("a9", labels={"zone": "a"}), a0="a", b0="b"), on="a9")
        result = made.gang("job", labels=WEB, spec=over(spread(nodeAffinityPolicy=policy), **POOL)).schedule()
        assert result.node_of("job-0") == node, policy


def test_required_node_affinity_limits_the_domains_like_a_selector() -> None:
    term = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    made = there(there(pool(zones(c=1), a0="a", b0="b"), on="a0"), on="b0")
    spec = over(spread(), affinity={"nodeAffinity": affinity})
    assert made.gang("job", labels=WEB, spec=spec).schedule().bound("job") == 1


def test_tainted_nodes_make_a_domain_unless_taints_are_honoured() -> None:
    for policy, placed in (("Honor", 1), ("Ignore", 0), ("", 0)):
        made = there(there(zones(a=1, b=1).node("c0", labels={"zone": "c"}, taints=[TAINT]), on="a0"), on="b0")
        own: Raw = {"nodeTaintsPolicy": policy} if policy else {}
        result = made.gang("job", labels=WEB, spec=over(spread(**own))).schedule()
        assert result.bound("job") == placed, policy


def test_a_tolerated_taint_does_not_take_a_node_out_of_its_domain() -> None:
    made = there(there(zones(a=1, b=1).node("c0", cpu=0, labels={"zone": "c"}, taints=[TAINT]), on="a0"), on="b0")
    spec = over(spread(nodeTaintsPolicy="Honor"), tolerations=[{"key": "only", "operator": "Exists"}])
    assert made.gang("job", labels=WEB, spec=spec).schedule().node_reasons("job") == {TOO_MANY: 2, NO_CPU: 1}


def test_a_node_without_the_label_of_another_constraint_does_not_count() -> None:
    """Zone c is empty, but its only node is in no rack: for a pod spread over zones and racks it is no domain."""
    made = zones(c=1)
    for zone in "ab":
        made.node(f"{zone}0", labels={"zone": zone, "rack": zone})
    made = there(there(made, on="a0"), on="b0")
    result = made.gang("job", labels=WEB, spec=over(spread(), spread("rack"))).schedule()
    assert result.bound("job") == 1


def test_only_pods_with_the_same_value_of_the_named_labels_count() -> None:
    """Zone a is full of the old version."""
    for keys, node in (([], "b0"), (["version"], "a0"), (["nowhere"], "b0")):
        made = there(zones(a=1, b=1), on="a0", labels={**WEB, "version": "1"})
        spec = over(spread(matchLabelKeys=keys))
        assert made.gang("job", labels={**WEB, "version": "2"}, spec=spec).schedule().node_of("job-0") == node, keys


def test_versions_of_one_shape_are_spread_apart_from_each_other() -> None:
    made = zones(a=1, b=1)
    for version in "12":
        made.gang(
            f"v{version}", pods=2, labels={**WEB, "version": version}, spec=over(spread(matchLabelKeys=["version"]))
        )
    result = made.schedule()
    assert result.nodes_used("v1") == result.nodes_used("v2") == {"a0": 1, "b0": 1}


def test_the_named_labels_do_not_make_up_for_a_missing_selector() -> None:
    made = there(zones(a=1, b=1), on="a0")
    spec = over(spread(labelSelector=None, matchLabelKeys=["app"]))
    assert made.gang("job", labels=WEB, spec=spec).schedule().node_of("job-0") == "a0"


@pytest.mark.parametrize("selector", [None, {}])
def test_without_a_selector_no_pod_counts(selector: Raw | None) -> None:
    made = there(there(zones(a=1, b=1), on="a0"), on="a0")
    made = made.gang("job", pods=3, labels=WEB, spec=over(spread(labelSelector=selector)))
    assert made.schedule().nodes_used("job") == {"a0": 3}


def test_expressions_select_like_labels_do() -> None:
    """No label that all of them share leads to these pods."""
    anyone = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]}
    made = there(zones(a=1, b=1, c=1), on="a0", labels={"app": "api"}).pod("plain", on="b0", labels={"app": "db"})
    result = made.gang("job", pods=2, labels=WEB, spec=over(spread(labelSelector=anyone))).schedule()
    assert by_zone(result, "job") == {"b": 1, "c": 1}


def test_pods_placed_earlier_in_the_cycle_count_though_they_have_no_constraint() -> None:
    made = zones(a=1, b=1).gang("first", labels=WEB, age=20.0)
    result = made.gang("second", labels=WEB, age=10.0, spec=over(spread())).schedule()
    assert (result.node_of("first-0"), result.node_of("second-0")) == ("a0", "b0")


def test_a_pod_placed_before_its_constraint_is_first_counted_counts_once() -> None:
    made = zones(a=1, b=1).gang("job", labels=WEB, spec=over(spread())).cycle()
    task = made.context.snapshot.task_records["default/job-0"]
    index = SpreadIndex(made.context.snapshot)
    index.task_added(task, 0)
    (rule,) = index._constraints_of(task, HARD_SPREAD)
    assert rule.domain_counts.counts[rule.domain_counts.codes].tolist() == [1, 0]


def test_pods_of_other_namespaces_placed_earlier_in_the_cycle_do_not_count() -> None:
    made = zones(a=1, b=1).gang("first", labels=WEB, namespace="other", age=20.0)
    result = made.gang("second", labels=WEB, age=10.0, spec=over(spread())).schedule()
    assert (result.node_of("first-0", "other"), result.node_of("second-0")) == ("a0", "a0")


def test_a_zone_is_closed_on_all_of_its_nodes_at_once() -> None:
    """Nothing about a1 changes when a pod is placed on a0, not even the range of the packing scores."""
    made = zones(a=2, b=2).node("full").pod("load", on="full", cpu=100, scheduler="other")
    assert made.gang("job", pods=2, labels=WEB, spec=over(spread())).schedule().nodes_used("job") == {"a0": 1, "b0": 1}


def test_jobs_of_different_size_share_what_they_count() -> None:
    made = zones(a=1, b=1)
    for index in range(4):
        made.gang(f"job-{index}", cpu=1 + index, labels=WEB, spec=over(spread()))
    assert by_zone(made.schedule(), *(f"job-{index}" for index in range(4))) == {"a": 2, "b": 2}


def test_an_attempt_that_failed_leaves_no_count_behind() -> None:
    """The gang needs four slots and there are three; the pod after it finds the zones unchanged."""
    made = zones(a=1).node("b0", pods=1, labels={"zone": "b"})
    made.gang("big", pods=4, labels=WEB, age=20.0, spec=over(spread()))
    result = made.gang("small", labels=WEB, age=10.0, spec=over(spread())).schedule()
    assert result.bound("big") == 0
    assert result.node_of("small-0") == "a0"


def test_pods_are_evicted_for_a_job_blocked_only_by_the_skew() -> None:
    """Only zone a has resources, and the low priority pod there, with or without a constraint, exceeds the skew."""
    for spec in (over(), over(spread())):
        made = zones(a=1).node("b0", cpu="500m", labels={"zone": "b"})
        made.priority_class("high", 90).priority_class("low", 10)
        made.gang("old", labels=WEB, on="a0", priority="low", spec=spec)
        made.gang("new", labels=WEB, priority="high", spec=over(spread()))
        result = made.with_actions("allocate", "preempt").schedule()
        assert result.evicted_pods() == ["old-0"]
        assert result.node_of("new-0") == "a0"


def test_a_victim_may_go_where_its_node_does_not_count() -> None:
    """Both pods of the old job have to leave; outside the pool, in the same zone, they do not count."""
    made = pool(zones(), a0="a").node("a9", labels={"zone": "a"})
    made.node("b0", cpu="500m", labels={"zone": "b", "pool": "x"})
    made.priority_class("high", 90).priority_class("low", 10).group("old", minMember=2, priorityClassName="low")
    for node in ("a0", "a9"):
        made.pod(f"old-{node}", group="old", labels=WEB, on=node)
    made.gang("new", labels=WEB, priority="high", spec=over(spread(), **POOL))
    result = made.with_actions("allocate", "preempt").schedule()
    assert result.node_of("new-0") == "a0"
    assert result.evicted_pods() == ["old-a0"]
    assert result.moved_to("old-a0") == "a9"


def test_nothing_is_evicted_where_the_skew_would_not_change() -> None:
    made = zones(a=1).node("b0", cpu="500m", labels={"zone": "b"}).priority_class("high", 90).priority_class("low", 10)
    made = there(made, on="a0").gang("old", labels={"app": "db"}, on="a0", priority="low")
    result = (
        made.gang("new", labels=WEB, priority="high", spec=over(spread()))
        .with_actions("allocate", "preempt")
        .schedule()
    )
    assert result.evicted_pods() == []
    assert result.node_reasons("new") == {TOO_MANY: 1, NO_CPU: 1}


@pytest.mark.parametrize(("labels", "skew"), [({"app": "db"}, 1), (WEB, 2)])
def test_a_job_with_another_constraint_is_tried_though_an_equally_large_one_failed(
    labels: dict[str, str], skew: int
) -> None:
    """cycle:SIG-1, SIG-4: with other labels, or another constraint, it can take the place of the old job."""
    made = zones(a=0).node("a0", cpu=2, labels={"zone": "a"}).node("b0", cpu="500m", labels={"zone": "b"})
    made.priority_class("high", 90).priority_class("low", 10)
    made = there(made, on="a0").gang("old", labels={"app": "db"}, on="a0", priority="low")
    made.gang("hopeless", labels=WEB, priority="high", age=20.0, spec=over(spread()))
    made.gang("other", labels=labels, priority="high", age=10.0, spec=over(spread(skew=skew)))
    result = made.with_actions("allocate", "preempt").schedule()
    assert result.evicted_pods() == ["old-0"]
    assert result.node_of("other-0") == "a0"


def test_anyway_prefers_the_emptier_zone_and_refuses_none() -> None:
    made = there(soft(a=1, b=1), on="a0")
    assert made.gang("job", labels=WEB, spec=over(spread(anyway=True))).schedule().node_of("job-0") == "b0"
    lonely = there(soft(a=1), on="a0").node("loose", cpu="500m")
    assert lonely.gang("job", labels=WEB, spec=over(spread(anyway=True))).schedule().node_of("job-0") == "a0"


def test_anyway_refuses_no_node_beside_a_strict_constraint_either() -> None:
    made = there(soft(a=1).node("b0", cpu="500m", labels={"zone": "b"}), on="a0")
    spec = over(spread(HOST, skew=5), spread(anyway=True))
    assert made.gang("job", labels=WEB, spec=spec).schedule().node_of("job-0") == "a0"


def test_anyway_follows_the_pods_of_the_cycle() -> None:
    result = soft(a=2, b=1, c=1).gang("job", pods=6, labels=WEB, spec=over(spread(anyway=True))).schedule()
    assert by_zone(result, "job") == {"a": 2, "b": 2, "c": 2}


def test_a_node_without_the_topology_label_is_the_last_choice() -> None:
    made = there(soft(b=1).node("a-loose"), on="b0")
    assert made.gang("job", labels=WEB, spec=over(spread(anyway=True))).schedule().node_of("job-0") == "b0"


def points(made: Cluster) -> dict[str, float]:
    """What waiting job-0 gives to nodes more than plain-0, in points of kube-scheduler before they are weighed."""
    wishful = scores_of(made.cycle(), "job-0")
    plain = scores_of(made.cycle(), "plain-0")
    return {node: round((wishful[node] - plain[node]) / 200.0, 3) for node in wishful}


def test_points_fall_from_one_hundred_with_the_pods_in_the_domain() -> None:
    """Two pods in zone a, one in b: (2 + 0 - n) / 2 of 100."""
    made = there(there(there(soft(a=1, b=1, c=1), on="a0"), on="a0"), on="b0").gang("plain", labels=WEB)
    made.gang("job", labels=WEB, spec=over(spread(anyway=True)))
    assert points(made) == {"a0": 0.0, "b0": 50.0, "c0": 100.0}


def test_a_larger_skew_reduces_the_difference() -> None:
    """Of three zones a pod weighs ln 5; skew 3 adds 2 to every node."""
    made = there(soft(a=1, b=1, c=1), on="a0").gang("plain", labels=WEB)
    made.gang("job", labels=WEB, spec=over(spread(anyway=True, skew=3)))
    assert points(made) == {"a0": 55.41, "b0": 100.0, "c0": 100.0}


def test_a_domain_of_many_weighs_more_than_one_of_few() -> None:
    """Three hosts weigh ln 5, two zones ln 4: a1 shares the zone of the pod, a0 also its host."""
    made = there(soft(a=2, b=1), on="a0").gang("plain", labels=WEB)
    made.gang("job", labels=WEB, spec=over(spread(anyway=True), spread(HOST, anyway=True)))
    assert points(made) == {"a0": 0.0, "a1": 53.724, "b0": 100.0}


def test_points_are_measured_over_nodes_the_pod_could_use() -> None:
    """The fullest zone is closed by a taint, so zone a is the worst there is."""
    made = soft(a=1, b=1).node("c0", labels={"zone": "c"}, taints=[TAINT])
    for node in ("a0", "c0", "c0", "c0"):
        made = there(made, on=node)
    made.gang("plain", labels=WEB).gang("job", labels=WEB, spec=over(spread(anyway=True)))
    assert points(made) == {"a0": 0.0, "b0": 100.0}


def test_without_any_pod_all_labelled_nodes_are_best() -> None:
    made = soft(a=1, b=1).node("loose").gang("plain", labels=WEB)
    made.gang("job", labels=WEB, spec=over(spread(anyway=True)))
    assert points(made) == {"a0": 100.0, "b0": 100.0, "loose": 0.0}


def test_an_unknown_when_unsatisfiable_constrains_nothing() -> None:
    made = there(zones(a=1, b=1), on="a0")
    spec = over(spread(whenUnsatisfiable="Perhaps"))
    assert made.gang("job", labels=WEB, spec=spec).schedule().node_of("job-0") == "a0"


def test_pods_without_constraints_share_a_shape_and_an_answer() -> None:
    """Labels and namespaces distinguish requests only where a constraint reads them."""
    made = zones(a=1)
    for namespace, app in (("one", "web"), ("two", "db")):
        made.gang("plain", namespace=namespace, labels={"app": app})
        made.gang("job", namespace=namespace, labels={"app": app}, spec=over(spread()))
    cycle = made.cycle()
    keys = {
        (pod, namespace): cycle.rankings.request_key(placement_request_of(cycle, f"{pod}-0", namespace))
        for pod in ("plain", "job")
        for namespace in ("one", "two")
    }
    assert keys["plain", "one"] == keys["plain", "two"]
    assert keys["job", "one"] != keys["job", "two"]
