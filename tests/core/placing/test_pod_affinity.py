"""Required affinity and anti-affinity between pods (cycle:FLT-2, FLT-3, FLT-6; cycle:9.1 step 11).

Nodes are in zones: a0 and a1 in zone a, b0 in zone b, and so on.  Equal scores go to the smaller name, and pods without
GPUs are packed, so a pod without anti-affinity goes where others already are, else to a0.
"""

from typing import Any

import pytest

from pykai.core.placing.affinity import affinity_index
from tests.core.builders import Cluster, Raw, Result, cluster

NO_COMPANY = "node(s) didn't match pod affinity rules"
BAD_COMPANY = "node(s) didn't match pod anti-affinity rules"
UNWELCOME = "node(s) didn't satisfy existing pods anti-affinity rules"
HOST = "kubernetes.io/hostname"


def term(key: str = "zone", *, labels: dict[str, str] | None = None, **more: Any) -> Raw:
    """A term that selects pods with these labels, app=web unless given."""
    found: Raw = {"topologyKey": key, **more}
    if "labelSelector" not in more:
        found["labelSelector"] = {"matchLabels": {"app": "web"} if labels is None else labels}
    return found


def near(*terms: Raw) -> Raw:
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def apart(*terms: Raw) -> Raw:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


WEB = {"app": "web"}


def zones(**names: int) -> Cluster:
    """Nodes by zone: zones(a=2, b=1) has a0, a1 and b0."""
    made = cluster().queue("q")
    for zone, count in names.items():
        for index in range(count):
            made.node(f"{zone}{index}", labels={"zone": zone})
    return made


def there(made: Cluster, name: str, on: str, labels: dict[str, str] | None = None, **how: Any) -> Cluster:
    """A running pod of another scheduler."""
    return made.pod(name, on=on, labels=labels or {}, scheduler="other", **how)


def test_a_pod_goes_to_the_domain_of_pods_matching_its_affinity() -> None:
    made = there(zones(a=1, b=2), "web", on="b1", labels=WEB)
    assert made.gang("job", spec=near(term())).schedule().node_of("job-0").startswith("b")
    host = there(zones(a=1, b=2), "web", on="b1", labels=WEB).gang("job", spec=near(term(HOST))).schedule()
    assert host.node_of("job-0") == "b1"


def test_without_a_match_for_its_affinity_a_pod_waits() -> None:
    """cycle:FLT-3"""
    result = zones(a=1, b=1).gang("job", spec=near(term())).schedule()
    assert result.node_reasons("job") == {NO_COMPANY: 2}


def test_the_first_pod_with_affinity_to_itself_may_go_anywhere() -> None:
    """It matches its own terms and no other pod does yet."""
    result = zones(a=1, b=1).gang("job", labels=WEB, spec=near(term())).schedule()
    assert result.bound("job") == 1


def test_the_first_may_go_anywhere_only_while_no_other_pod_matches() -> None:
    """The only match is in zone b, which is full: the pod waits although it matches itself."""
    made = there(zones(a=1).node("b0", cpu=1, labels={"zone": "b"}), "web", on="b0", labels=WEB)
    result = made.gang("job", labels=WEB, spec=near(term())).schedule()
    assert result.node_reasons("job") == {NO_COMPANY: 1, "node(s) didn't have enough resources: CPU cores": 1}


def test_a_match_outside_every_domain_does_not_count() -> None:
    """The match runs on a node without the label, so it makes no domain, and the pod is still the first."""
    made = there(zones(a=1).node("loose"), "web", on="loose", labels=WEB)
    assert made.gang("job", labels=WEB, spec=near(term())).schedule().node_of("job-0") == "a0"


def test_the_first_needs_a_node_with_the_topology_label_too() -> None:
    result = cluster(nodes=2).queue("q").gang("job", labels=WEB, spec=near(term())).schedule()
    assert result.node_reasons("job") == {NO_COMPANY: 2}


def test_the_first_must_match_all_of_its_own_terms() -> None:
    both = near(term(), term(labels={"tier": "front"}))
    assert zones(a=1).gang("job", labels=WEB, spec=both).schedule().bound("job") == 0
    assert zones(a=1).gang("job", labels={**WEB, "tier": "front"}, spec=both).schedule().bound("job") == 1


def test_affinity_to_another_namespace_does_not_match_the_pod_itself() -> None:
    """The terms select pods of namespace other only; the pod itself is not there, so it does not match itself."""
    away = near(term(namespaces=["other"]))
    assert zones(a=1).gang("job", labels=WEB, spec=away).schedule().bound("job") == 0


def test_a_pod_counts_only_if_it_matches_all_terms() -> None:
    """Two pods that match one term each do not meet the affinity, together or apart."""
    both = near(term(), term(HOST, labels={"tier": "front"}))
    halves = there(there(zones(a=1), "one", on="a0", labels=WEB), "two", on="a0", labels={"tier": "front"})
    assert halves.gang("job", spec=both).schedule().node_reasons("job") == {NO_COMPANY: 1}
    whole = there(zones(a=1), "one", on="a0", labels={**WEB, "tier": "front"})
    assert whole.gang("job", spec=both).schedule().bound("job") == 1


def test_every_term_needs_its_own_domain() -> None:
    """In zone a, but not on the host of the match: the first term holds and the second does not."""
    both = near(term(), term(HOST))
    made = there(zones(a=1).node("a9", cpu=1, labels={"zone": "a"}), "web", on="a9", labels=WEB)
    assert made.gang("job", spec=both).schedule().node_reasons("job")[NO_COMPANY] == 1


def test_a_node_without_a_topology_label_meets_no_affinity() -> None:
    made = there(zones(a=1).node("loose"), "web", on="a0", labels=WEB)
    result = made.gang("job", pods=2, spec=near(term())).schedule()
    assert result.nodes_used("job") == {"a0": 2}
    lonely = there(cluster(nodes=1).queue("q"), "web", on="node-0", labels=WEB)
    assert lonely.gang("job", spec=near(term())).schedule().node_reasons("job") == {NO_COMPANY: 1}


def test_a_pod_avoids_the_domains_of_pods_matching_its_anti_affinity() -> None:
    made = there(zones(a=2, b=1), "web", on="a1", labels=WEB)
    assert made.gang("job", spec=apart(term())).schedule().node_of("job-0") == "b0"
    host = there(zones(a=2), "web", on="a0", labels=WEB).gang("job", spec=apart(term(HOST))).schedule()
    assert host.node_of("job-0") == "a1"


def test_anti_affinity_on_every_node_is_the_reason() -> None:
    """cycle:FLT-3"""
    made = there(zones(a=2), "web", on="a1", labels=WEB)
    assert made.gang("job", spec=apart(term())).schedule().node_reasons("job") == {BAD_COMPANY: 2}


def test_any_anti_affinity_term_is_enough() -> None:
    either = apart(term(labels={"app": "db"}), term())
    made = there(zones(a=1), "web", on="a0", labels=WEB)
    assert made.gang("job", spec=either).schedule().node_reasons("job") == {BAD_COMPANY: 1}


def test_a_node_without_the_topology_label_is_in_no_domain() -> None:
    made = there(cluster(nodes=1).queue("q"), "web", on="node-0", labels=WEB)
    assert made.gang("job", spec=apart(term())).schedule().bound("job") == 1


def test_the_anti_affinity_of_a_running_pod_repels_matching_pods() -> None:
    """cycle:FLT-3"""
    made = there(zones(a=2, b=1), "loner", on="a0", spec=apart(term()))
    assert made.gang("job", labels=WEB).schedule().node_of("job-0") == "b0"
    full = there(zones(a=2), "loner", on="a0", spec=apart(term()))
    assert full.gang("job", labels=WEB).schedule().node_reasons("job") == {UNWELCOME: 2}


def test_the_anti_affinity_of_a_running_pod_repels_matching_pods_only() -> None:
    made = there(zones(a=1), "loner", on="a0", spec=apart(term()))
    assert made.gang("job", labels={"app": "db"}).schedule().bound("job") == 1
    loose = there(cluster(nodes=1).queue("q"), "loner", on="node-0", spec=apart(term()))
    assert loose.gang("job", labels=WEB).schedule().bound("job") == 1


def test_the_affinity_of_a_running_pod_does_not_bind_other_pods() -> None:
    made = there(zones(a=1, b=1), "web", on="b0", spec=near(term(labels={"app": "db"})))
    assert made.gang("job", pods=2, labels={"app": "db"}).schedule().bound("job") == 2


def test_a_node_gives_the_reasons_of_affinity_in_order() -> None:
    """Affinity, then the pod's own anti-affinity, then that of pods there, in the order of Kubernetes."""
    lonely = near(term(labels={"app": "db"}))["affinity"]
    wary = apart(term(labels={"app": "loner"}))["affinity"]
    made = there(zones(a=1), "loner", on="a0", labels={"app": "loner"}, spec=apart(term()))
    all_three = {"affinity": {**lonely, **wary}}
    assert made.gang("job", labels=WEB, spec=all_three).schedule().node_reasons("job") == {NO_COMPANY: 1}
    made = there(zones(a=1), "loner", on="a0", labels={"app": "loner"}, spec=apart(term()))
    assert made.gang("job", labels=WEB, spec={"affinity": wary}).schedule().node_reasons("job") == {BAD_COMPANY: 1}


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ({"matchLabels": {"app": "web"}}, {"app": "web"}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "db"}, False),
        ({"matchLabels": {"app": "web", "tier": "front"}}, {"app": "web"}, False),
        ({"matchLabels": {"app": ""}}, {}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}, {"app": "web"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}, {"app": "web"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}, {}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}, {"app": "web"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, {"app": "web"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"app": ""}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {"app": "web"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}, {"app": "web"}, False),
        (
            {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            {"app": "web"},
            False,
        ),
        # An empty selector selects every pod, an absent one none.
        ({}, {}, True),
        (None, {}, False),
        (None, {"app": "web"}, False),
    ],
)
def test_a_label_selector_selects_pods(selector: Raw | None, labels: dict[str, str], selected: bool) -> None:
    made = there(zones(a=1), "other", on="a0", labels=labels)
    assert made.gang("job", spec=apart(term(labelSelector=selector))).schedule().bound("job") == (not selected)


def in_namespace(made: Cluster, namespace: str) -> Cluster:
    return there(made, "web", on="b0", labels=WEB, namespace=namespace)


@pytest.mark.parametrize(
    ("term_fields", "namespace", "looked_at"),
    [
        # Neither: the namespace of the pod itself.
        ({}, "default", True),
        ({}, "team", False),
        ({"namespaces": []}, "default", True),
        ({"namespaces": ["team"]}, "team", True),
        ({"namespaces": ["team"]}, "default", False),
        ({"namespaces": ["team", "default"]}, "default", True),
        ({"namespaceSelector": {"matchLabels": {"kind": "prod"}}}, "team", True),
        ({"namespaceSelector": {"matchLabels": {"kind": "prod"}}}, "lab", False),
        ({"namespaceSelector": {"matchLabels": {"kind": "prod"}}}, "default", False),
        ({"namespaceSelector": {"matchExpressions": [{"key": "kind", "operator": "DoesNotExist"}]}}, "lab", True),
        ({"namespaceSelector": {"matchExpressions": [{"key": "kind", "operator": "DoesNotExist"}]}}, "team", False),
        # An empty selector is every namespace, unknown ones included.
        ({"namespaceSelector": {}}, "lab", True),
        ({"namespaceSelector": {}}, "unheard-of", True),
        ({"namespaces": ["lab"], "namespaceSelector": {}}, "team", True),
        # A list and a selector add up.
        ({"namespaces": ["lab"], "namespaceSelector": {"matchLabels": {"kind": "prod"}}}, "lab", True),
        ({"namespaces": ["lab"], "namespaceSelector": {"matchLabels": {"kind": "prod"}}}, "team", True),
        ({"namespaces": ["lab"], "namespaceSelector": {"matchLabels": {"kind": "prod"}}}, "default", False),
    ],
)
def test_a_term_selects_pods_of_its_namespaces(term_fields: Raw, namespace: str, looked_at: bool) -> None:
    def company() -> Cluster:
        return in_namespace(zones(a=1, b=1), namespace).namespace("team", kind="prod").namespace("lab")

    affine = company().gang("job", spec=near(term(**term_fields))).schedule()
    assert affine.node_of("job-0") == ("b0" if looked_at else "")
    averse = company().gang("job", pods=2, min=1, spec=apart(term(HOST, **term_fields))).schedule()
    assert ("b0" not in averse.nodes_used("job")) == looked_at


@pytest.mark.parametrize(
    ("term_fields", "namespace", "kept_away"),
    [
        ({}, "team", True),
        ({}, "default", False),
        ({"namespaces": ["default"]}, "default", True),
        ({"namespaces": ["default"]}, "team", False),
        ({"namespaceSelector": {}}, "default", True),
        ({"namespaceSelector": {"matchLabels": {"kind": "prod"}}}, "team", True),
        ({"namespaceSelector": {"matchLabels": {"kind": "prod"}}}, "default", False),
    ],
)
def test_the_anti_affinity_of_a_running_pod_covers_its_namespaces(
    term_fields: Raw, namespace: str, kept_away: bool
) -> None:
    """Its own namespace, here team, unless it says otherwise."""
    made = there(zones(a=1), "loner", on="a0", namespace="team", spec=apart(term(**term_fields)))
    made.namespace("team", kind="prod").gang("job", namespace=namespace, labels=WEB)
    assert made.schedule().bound("job", namespace) == (not kept_away)


def test_equal_terms_in_two_namespaces_are_two_terms() -> None:
    """Each of two equal pods selects pods of its own namespace."""
    made = there(zones(a=1, b=1), "web", on="a0", labels=WEB)
    made = there(made, "web", on="b0", labels=WEB, namespace="team")
    made.gang("job", spec=near(term())).gang("job", namespace="team", spec=near(term()))
    result = made.schedule()
    assert result.node_of("job-0") == "a0"
    assert result.node_of("job-0", "team") == "b0"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_meets_no_affinity(phase: str) -> None:
    made = there(zones(a=1, b=1), "web", on="b0", labels=WEB, phase=phase)
    assert made.gang("job", spec=near(term())).schedule().bound("job") == 0
    made = there(zones(a=1), "loner", on="a0", phase=phase, spec=apart(term()))
    assert made.gang("job", labels=WEB).schedule().bound("job") == 1


def test_a_terminating_pod_still_counts() -> None:
    made = there(zones(a=1), "web", on="a0", labels=WEB, deleted=0)
    assert made.gang("job", spec=apart(term())).schedule().node_reasons("job") == {BAD_COMPANY: 1}
    made = there(zones(a=1), "web", on="a0", labels=WEB, deleted=0)
    assert made.gang("job", spec=near(term())).schedule().bound("job") == 1


def test_a_pod_on_a_node_of_another_shard_does_not_count() -> None:
    made = there(zones(a=1), "web", on="far", labels=WEB)
    assert made.gang("job", spec=apart(term())).schedule().bound("job") == 1


def spread(result: Result, group: str) -> list[int]:
    return sorted(result.nodes_used(group).values())


def test_pods_that_avoid_each_other_spread_within_one_cycle() -> None:
    """cycle:FLT-6, Do better: placements of the same cycle count."""
    result = zones(a=4).gang("job", pods=4, labels=WEB, spec=apart(term(HOST))).schedule()
    assert spread(result, "job") == [1, 1, 1, 1]
    fifth = zones(a=4).gang("job", pods=5, min=1, labels=WEB, spec=apart(term(HOST))).schedule()
    assert fifth.bound("job") == 4
    assert fifth.node_reasons("job") == {BAD_COMPANY: 4}


def test_pods_that_seek_each_other_gather_within_one_cycle() -> None:
    """The first goes anywhere, the others to its zone; zone a is too small for a second pod."""
    made = cluster().queue("q").node("a0", cpu=1, labels={"zone": "a"}).nodes(2, cpu=2, labels={"zone": "b"})
    result = made.gang("job", pods=4, min=1, cpu=1, labels=WEB, spec=near(term())).schedule()
    assert result.nodes_used("job") == {"a0": 1}
    assert result.node_reasons("job")[NO_COMPANY] == 2
    roomy = cluster().queue("q").nodes(2, cpu=2, labels={"zone": "a"}).nodes(2, cpu=2, labels={"zone": "b"})
    together = roomy.gang("job", pods=4, cpu=1, labels=WEB, spec=near(term())).schedule()
    assert together.nodes_used("job") == {"node-0": 2, "node-1": 2}


def test_a_placement_changes_the_answer_for_its_whole_domain() -> None:
    """Not just for its own node; the pods request nothing, so that no score causes a rescan of all nodes."""
    free: Raw = {"cpu": 0, "memory": 0, "labels": WEB}
    result = zones(a=2, b=2).gang("job", pods=3, min=1, spec=apart(term()), **free).schedule()
    assert result.nodes_used("job") == {"a0": 1, "b0": 1}
    assert result.node_reasons("job") == {BAD_COMPANY: 4}
    gathered = zones(a=2, b=2).gang("job", spec=near(term()), **free).gang("web", spec=apart(term(HOST)), **free)
    assert gathered.schedule().node_of("web-0") == "a1"


def test_a_pod_placed_this_cycle_repels_pods_matching_its_anti_affinity() -> None:
    """cycle:FLT-6, Do better: the last pod asks for the same as the first and is not decided by an older answer."""
    result = (
        zones(a=1, b=1)
        .gang("before", labels=WEB)
        .gang("loner", labels={"app": "loner"}, spec=apart(term()))
        .gang("after", labels=WEB)
        .schedule()
    )
    assert result.node_of("before-0") == "a0"
    assert result.node_of("loner-0") == "b0"
    assert result.node_of("after-0") == "a0"


def test_a_filter_that_did_not_concern_a_pod_concerns_its_twin_later() -> None:
    """cycle:FLT-6, Do better: when the first pod is placed there is no anti-affinity; when its twin comes there is.

    Packing prefers a0 for the twin, where the first pod and the one with anti-affinity to it are.
    """
    result = (
        zones(a=1, b=1)
        .gang("first", labels={"app": "db"})
        .gang("loner", cpu=5, spec=apart(term()))
        .gang("second", labels={"app": "db"})
        .gang("web", labels=WEB)
        .schedule()
    )
    assert result.node_of("loner-0") == "a0"
    assert result.node_of("second-0") == "a0"
    assert result.node_of("web-0") == "b0"


def test_a_pod_placed_this_cycle_meets_affinity() -> None:
    result = zones(a=1, b=1).gang("web", labels=WEB).gang("job", spec=near(term())).schedule()
    assert result.node_of("job-0") == result.node_of("web-0") == "a0"


def test_a_gang_that_was_rolled_back_leaves_no_trace() -> None:
    """Three pods with mutual anti-affinity find two nodes; after the rollback they repel nothing."""
    result = (
        zones(a=2)
        .gang("gang", pods=3, labels={"app": "loner"}, spec=apart(term(HOST, labels={"app": "loner"}), term(HOST)))
        .gang("web", pods=2, labels=WEB)
        .gang("near", spec=near(term(labels={"app": "loner"})))
        .schedule()
    )
    assert result.bound("gang") == 0
    assert result.bound("web") == 2
    assert result.node_reasons("near") == {NO_COMPANY: 2}


def test_after_a_failed_gang_its_twin_is_first_again() -> None:
    """The special case of the first pod holds for the second gang as for the one that was rolled back."""
    nodes = cluster().queue("q").node("a0", cpu=1, labels={"zone": "a"}).node("b0", cpu=1, labels={"zone": "b"})
    result = (
        nodes.gang("pair", pods=2, cpu=1, labels=WEB, spec=near(term()))
        .gang("single", cpu=1, labels=WEB, spec=near(term()))
        .schedule()
    )
    assert result.bound("pair") == 0
    assert result.bound("single") == 1


def test_pods_with_different_labels_have_different_shapes() -> None:
    """Labels are not part of a request, but decide which pods are repelled."""
    made = there(zones(a=1, b=1), "loner", on="a0", spec=apart(term()))
    result = made.gang("web", labels=WEB).gang("db", labels={"app": "db"}).gang("web-too", labels=WEB).schedule()
    assert result.node_of("web-0") == "b0"
    assert result.node_of("web-too-0") == "b0"
    assert result.bound("db") == 1


def test_preferred_terms_keep_no_pod_away() -> None:
    preferred = [{"weight": 100, "podAffinityTerm": term()}]
    wish = {
        "affinity": {
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
        }
    }
    made = there(zones(a=1), "web", on="a0", labels=WEB, spec=wish)
    assert made.gang("job", labels=WEB, spec=wish).schedule().bound("job") == 1


def test_without_terms_anywhere_the_index_is_empty() -> None:
    """cycle:PERF-9"""
    assert not affinity_index(zones(a=1).gang("job", labels=WEB).cycle().context.snapshot).active
    assert affinity_index(zones(a=1).gang("job", spec=near(term())).cycle().context.snapshot).active


def test_the_reason_of_a_gang_counts_the_pods_placed() -> None:
    """cycle:ALC-8, EXP-1"""
    result = zones(a=2).gang("job", pods=3, labels=WEB, spec=apart(term(HOST))).schedule()
    assert result.why("job") == (
        "PodSchedulingErrors: Resources were found for 2 pods while 3 are required for gang scheduling. "
        "Additional pods cannot be scheduled due to: no nodes with enough resources were found: "
        f"2 {BAD_COMPANY}.."
    )
