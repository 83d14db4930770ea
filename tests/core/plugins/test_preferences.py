"""Preferred node affinity and PreferNoSchedule (cycle:FLT-4, Do better): `nodeaffinity` and `tainttoleration`, and what
the profile `kubernetes` changes beside the default one.

Equal scores go to the smaller name, so a pod without a preference goes to node a.
"""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.plugins.kubernetes import NODE_AFFINITY_WEIGHT, POINT, SPREAD_WEIGHT, TAINT_WEIGHT
from pykai.core.plugins.scores import AVAILABILITY, DENSITY, GPU_SHARING, RESOURCE_TYPE
from pykai.scheduler.config.configuration import default_configuration, read_configuration
from tests.core.builders import Cluster, Raw, cluster, scores_of

KUBERNETES: Raw = {"profile": "kubernetes"}
TOPOLOGY_STEP = 100_000.0
HINT = {"key": "flaky", "value": "yes", "effect": "PreferNoSchedule"}
ANOTHER = {"key": "noisy", "value": "yes", "effect": "PreferNoSchedule"}
WALL = {"key": "only", "value": "others", "effect": "NoSchedule"}


def prefers(*terms: tuple[int, Raw], **more: Any) -> Raw:
    """A pod's spec that prefers nodes: terms with their weights."""
    listed = [{"weight": weight, "preference": preference} for weight, preference in terms]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": listed}}
    return {"affinity": affinity, **more}


def label(key: str, *values: str, operator: str = "In") -> Raw:
    """A term on one label."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def nodes(**labels: dict[str, str]) -> Cluster:
    """Nodes by name, with their labels."""
    made = cluster().queue("q").configured(KUBERNETES)
    for name, own in labels.items():
        made.node(name, labels=own)
    return made


def points(made: Cluster, weight: float, group: str = "job") -> dict[str, float]:
    """What a waiting pod's wishes are worth, in points of kube-scheduler, against the first node that fits."""
    wishful, plain = scores_of(made.cycle(), f"{group}-0"), scores_of(made.cycle(), "plain-0")
    return {node: round((wishful[node] - plain.get(node, 0.0)) / (POINT * weight), 3) for node in wishful}


def test_a_preferred_node_is_taken() -> None:
    made = nodes(a={}, b={"disk": "ssd"}).gang("job", spec=prefers((1, label("disk", "ssd"))))
    assert made.schedule().node_of("job-0") == "b"


def test_a_preference_refuses_no_node() -> None:
    made = nodes(a={}).gang("job", spec=prefers((100, label("disk", "ssd"))))
    assert made.schedule().node_of("job-0") == "a"


def test_weights_add_up_and_are_measured_by_the_best_node() -> None:
    made = nodes(a={}, b={"disk": "ssd"}, c={"zone": "x"}, d={"disk": "ssd", "zone": "x"}).gang("plain")
    made.gang("job", spec=prefers((60, label("disk", "ssd")), (20, label("zone", "x"))))
    assert points(made, NODE_AFFINITY_WEIGHT) == {"a": 0.0, "b": 75.0, "c": 25.0, "d": 100.0}


def test_the_best_is_searched_among_nodes_the_pod_could_use() -> None:
    """The node with both labels has a taint, is cordoned, or is outside the pool: b is the best there is."""
    best = {"disk": "ssd", "zone": "x"}
    wish = prefers((60, label("disk", "ssd")), (20, label("zone", "x")), nodeSelector={"pool": "p"})
    for how in ({"labels": {**best, "pool": "p"}, "taints": [WALL]}, {"labels": best}):
        made = nodes(a={"pool": "p"}, b={"pool": "p", "zone": "x"}).node("d", **how).gang("plain")
        assert points(made.gang("job", spec=wish), NODE_AFFINITY_WEIGHT) == {"a": 0.0, "b": 100.0}
    made = nodes(a={}, b={"zone": "x"}).node("d", labels=best, unschedulable=True).gang("plain")
    made.gang("job", spec=prefers((60, label("disk", "ssd")), (20, label("zone", "x"))))
    assert points(made, NODE_AFFINITY_WEIGHT) == {"a": 0.0, "b": 100.0}


def test_all_expressions_of_a_term_must_hold() -> None:
    both: Raw = {
        "matchExpressions": [*label("disk", "ssd")["matchExpressions"], *label("zone", "x")["matchExpressions"]]
    }
    made = nodes(a={"disk": "ssd"}, b={"disk": "ssd", "zone": "x"}).gang("job", spec=prefers((10, both)))
    assert made.schedule().node_of("job-0") == "b"


def test_a_node_can_be_preferred_by_name() -> None:
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
    assert nodes(a={}, b={}).gang("job", spec=prefers((10, field))).schedule().node_of("job-0") == "b"


@pytest.mark.parametrize(
    "term",
    [
        pytest.param((0, label("disk", "ssd")), id="no weight"),
        pytest.param((10, {}), id="empty"),
        pytest.param((10, label("disk", operator="In")), id="broken"),
        pytest.param((-5, label("disk", "ssd", operator="NotIn")), id="negative"),
    ],
)
def test_an_invalid_term_prefers_nothing(term: tuple[int, Raw]) -> None:
    made = nodes(a={}, b={"disk": "ssd"}).gang("plain").gang("job", spec=prefers(term))
    assert points(made, NODE_AFFINITY_WEIGHT) == {"a": 0.0, "b": 0.0}


def test_a_negative_weight_is_ignored_beside_others_too() -> None:
    made = nodes(a={"zone": "x"}, b={"zone": "x", "disk": "ssd"}).gang("plain")
    made.gang("job", spec=prefers((10, label("zone", "x")), (-5, label("disk", "ssd"))))
    assert points(made, NODE_AFFINITY_WEIGHT) == {"a": 100.0, "b": 100.0}


def test_an_absurd_weight_counts_as_the_largest_there_is() -> None:
    made = nodes(a={"zone": "x"}, b={"disk": "ssd"}).gang("plain")
    made.gang("job", spec=prefers((2**62, label("disk", "ssd")), (50, label("zone", "x"))))
    assert points(made, NODE_AFFINITY_WEIGHT) == {"a": 50.0, "b": 100.0}


def test_a_soft_taint_is_respected_where_there_is_a_choice() -> None:
    made = cluster().queue("q").configured(KUBERNETES).node("a", taints=[HINT]).node("b").gang("job")
    assert made.schedule().node_of("job-0") == "b"
    alone = cluster().queue("q").configured(KUBERNETES).node("a", taints=[HINT]).gang("job")
    assert alone.schedule().node_of("job-0") == "a"


def test_a_tolerated_soft_taint_does_not_count() -> None:
    tolerant = {"tolerations": [{"key": "flaky", "operator": "Exists", "effect": "PreferNoSchedule"}]}
    made = cluster().queue("q").configured(KUBERNETES).node("a", taints=[HINT]).node("b").gang("job", spec=tolerant)
    assert made.schedule().node_of("job-0") == "a"


def test_a_toleration_of_another_effect_does_not_help() -> None:
    other = {"tolerations": [{"key": "flaky", "operator": "Exists", "effect": "NoSchedule"}]}
    made = cluster().queue("q").configured(KUBERNETES).node("a", taints=[HINT]).node("b").gang("job", spec=other)
    assert made.schedule().node_of("job-0") == "b"


def test_more_soft_taints_are_worse_and_the_most_tainted_candidate_sets_the_scale() -> None:
    """Node d has the most, but the pod does not tolerate its hard taint."""
    walled = [HINT, ANOTHER, {**HINT, "key": "old"}, WALL]
    made = cluster().queue("q").configured(KUBERNETES).node("a", taints=[HINT, ANOTHER]).node("b", taints=[HINT])
    made.node("c").node("d", taints=walled).gang("job")
    bare = {"tolerations": [{"operator": "Exists", "effect": "PreferNoSchedule"}]}
    assert points(made.gang("plain", spec=bare), TAINT_WEIGHT) == {"a": -100.0, "b": -50.0, "c": 0.0}


def test_the_preferences_of_a_pod_stay_between_topology_and_shared_gpus() -> None:
    """cycle:SCO-2: all together below one step of topology, a full one above everything smaller together."""
    weights = (SPREAD_WEIGHT, NODE_AFFINITY_WEIGHT, TAINT_WEIGHT)
    assert sum(weights) * 100 * POINT < TOPOLOGY_STEP
    assert min(weights) * 100 * POINT > GPU_SHARING + AVAILABILITY + RESOURCE_TYPE + DENSITY


def sharing() -> Cluster:
    """Node a has a shared GPU with room, node b is what the pod prefers."""
    made = cluster().queue("q").configured(KUBERNETES).node("a", gpus=2).node("b", gpus=2, labels={"disk": "ssd"})
    return made.gang("tenant", fraction=0.5, on="a", device="g")


def test_a_full_preference_outweighs_joining_a_shared_gpu() -> None:
    assert sharing().gang("job", fraction=0.5).schedule().node_of("job-0") == "a"
    wishful = sharing().gang("job", fraction=0.5, spec=prefers((1, label("disk", "ssd"))))
    assert wishful.schedule().node_of("job-0") == "b"


def test_jobs_that_differ_in_their_preference_do_not_represent_each_other() -> None:
    """cycle:SIG-1"""
    made = nodes(a={}).gang("one").gang("two", spec=prefers((1, label("disk", "ssd"))))
    made.gang("three", spec=prefers((2, label("disk", "ssd")))).gang("four")
    tasks = made.cycle().context.snapshot.task_records
    shapes = [tasks[f"default/{name}-0"].shape for name in ("one", "two", "three", "four")]
    assert len({shape.id for shape in shapes}) == 3
    assert shapes[0] is shapes[3]


def wishful() -> Cluster:
    """Pods with all three wishes on nodes that grant them to different degrees; none of them refuses a node."""
    made = cluster().queue("q")
    for name, zone, taints in (("a", "x", [HINT]), ("b", "x", []), ("c", "y", [])):
        made.node(name, gpus=2, labels={"zone": zone, "disk": "ssd" if name == "c" else "hdd"}, taints=taints)
    web = {"app": "web"}
    constraint = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": web},
    }
    spec = prefers((10, label("disk", "ssd")), topologySpreadConstraints=[constraint])
    return made.gang("spread", pods=4, labels=web, spec=spec).gang("gpu", pods=2, gpu=1, labels=web, spec=spec)


def test_in_the_default_configuration_no_preference_changes_any_decision() -> None:
    """Without the wishes the plan is the same, pod by pod; with the profile it is another."""
    plain = cluster().queue("q")
    for name in ("a", "b", "c"):
        plain.node(name, gpus=2)
    plain.gang("spread", pods=4, labels={"app": "web"}).gang("gpu", pods=2, gpu=1, labels={"app": "web"})
    expected = plain.schedule().plan.binds
    assert wishful().schedule().plan.binds == expected
    assert wishful().configured(KUBERNETES).schedule().plan.binds != expected


def test_the_default_profile_has_none_of_them_and_kubernetes_all() -> None:
    more = ["topologyspread", "nodeaffinity", "tainttoleration", "volumelimits"]
    default, kubernetes = default_configuration(), default_configuration("kubernetes")
    names = [named.name for named in default.policy.plugins]
    assert not set(more) & set(names)
    assert [named.name for named in kubernetes.policy.plugins] == [*names, *more]
    assert kubernetes.problems == ()
    assert read_configuration(KUBERNETES) == kubernetes
    assert read_configuration({"profile": "default"}) == default


def test_without_preferences_the_profile_decides_like_the_default_one() -> None:
    made = (
        cluster(nodes=3, gpus=4).queue("q").gang("one", pods=3, gpu=2).gang("two", pods=5, fraction=0.5).gang("three")
    )
    expected = made.schedule().plan
    assert made.configured(KUBERNETES).schedule().plan.binds == expected.binds
