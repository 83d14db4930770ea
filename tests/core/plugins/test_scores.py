"""Which node a task takes among those that fit (cycle:SCO-1 to SCO-5, gpu:F-9, cycle:T-47)."""

from collections.abc import Mapping
from typing import Any

import pytest

from pykai.core.hooks import ALL_NODES
from pykai.core.placing.ranking import Rankings
from tests.core.builders import Cluster, Raw, Result, cluster, placement_request_of, scores_of

SLICE = "nvidia.com/mig-1g.5gb"


def plugins(*names: str, **arguments: Mapping[str, str]) -> Raw:
    """A configuration with these plugins; keywords are the arguments of a plugin."""
    listed: list[Raw] = [{"name": name} for name in ("predicates", "proportion", *names)]
    for entry in listed:
        if entry["name"] in arguments:
            entry["arguments"] = dict(arguments[entry["name"]])
    return {"tiers": [{"plugins": listed}]}


def placing(**strategies: str) -> Raw:
    """The plugins of the built-in configuration that score, with other strategies."""
    return plugins(
        "nodeavailability", "gpusharingorder", "gpupack", "resourcetype", "nodeplacement", nodeplacement=strategies
    )


#: As the operator configures an installation, where pods may prefer each other's company.
WITH_AFFINITY = plugins(
    "nodeavailability", "resourcetype", "podaffinity", "nominatednode", "gpupack", "nodeplacement", "gpusharingorder"
)


#: Without shared GPUs a row that changed is scored by itself, which must not make a difference.
NO_SHARING = plugins("nodeavailability", "resourcetype", "nodeplacement")
either_way = pytest.mark.parametrize("configuration", [placing(), NO_SHARING], ids=["sharing", "no-sharing"])


def node_of(of: Cluster, **ask: Any) -> str:
    """The node one more pod goes to; nodes that are scored one by one have the scores of all together."""
    made = of.queue("q").gang("new", **ask)
    cycle = made.cycle()
    request = placement_request_of(cycle, "new-0")
    one_by_one, together = (
        Rankings(cycle.context.rules, few_rows).ranking_for(cycle.state, request, ALL_NODES).scores.tolist()
        for few_rows in (len(cycle.context.snapshot.nodes), 0)
    )
    assert one_by_one == together
    return made.schedule().node_of("new-0")


def preferring(label: str, weight: int, *, away: bool = False) -> Raw:
    """A spec that prefers nodes with (or without) pods of this label."""
    term = {
        "weight": weight,
        "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": label}}},
    }
    kind = "podAntiAffinity" if away else "podAffinity"
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}


# Order of nodes.


def test_equal_nodes_go_by_name() -> None:
    """cycle:SCO-1: ascending, whatever order they were made in."""
    assert node_of(cluster().node("b").node("c").node("a")) == "a"
    assert node_of(cluster().node("node-10", gpus=1).node("node-9", gpus=1), gpu=1) == "node-10"


def test_the_best_node_that_fits_is_taken() -> None:
    """cycle:SCO-1: the fullest does not fit, so the next does."""
    nodes = cluster().node("a", gpus=8).node("b", gpus=8).node("c", gpus=8)
    nodes.pod("x", on="b", gpu=7).pod("y", on="c", gpu=4)
    assert node_of(nodes, gpu=2) == "c"


def test_every_candidate_sets_the_scale_also_those_that_do_not_fit() -> None:
    """cycle:SCO-1, cycle:SCO-3: nodes are scored before anything is filtered."""
    nodes = cluster().node("full", cpu=10).pod("w", on="full", cpu=10).node("barred", cpu=30, unschedulable=True)
    nodes.node("half", cpu=10).pod("x", on="half", cpu=5).node("empty", cpu=10).queue("q").gang("j")
    # Free CPU goes from 0 (full) to 30 (barred); both are out of the question.
    expected = {"half": 1010 + 9 * (1 - 5 / 30), "empty": 1010 + 9 * (1 - 10 / 30)}
    assert scores_of(nodes.cycle(), "j-0") == pytest.approx(expected)


def test_scores_follow_what_was_placed_before_in_the_same_cycle() -> None:
    """cycle:SCO-1: the first pod makes its node the fullest."""
    result = cluster(nodes=3, gpus=4).queue("q").gang("j", pods=6, gpu=1).schedule()
    assert result.nodes_used("j") == {"node-0": 4, "node-1": 2}


def test_scores_follow_a_rollback() -> None:
    """cycle:SCO-1: a gang that failed leaves no trace."""
    nodes = cluster().node("a", gpus=2).node("b", gpus=2).pod("x", on="b", gpu=1).queue("q")
    result = nodes.gang("big", pods=4, gpu=1).gang("small", gpu=1).schedule()
    assert result.bound("big") == 0
    assert result.node_of("small-0") == "b"


@either_way
def test_a_node_that_has_become_full_is_no_longer_a_candidate(configuration: Raw) -> None:
    """cycle:SCO-1: also where the amounts that make the scale have not changed."""
    result = cluster(nodes=2).queue("q").configured(configuration).gang("j", pods=2, cpu=0, memory="600Gi").schedule()
    assert [result.node_of(f"j-{pod}") for pod in range(2)] == ["node-0", "node-1"]


@either_way
def test_a_filtered_node_stays_filtered_when_other_pods_are_placed_there(configuration: Raw) -> None:
    """cycle:SCO-1"""
    nodes = (
        cluster()
        .node("a", taints=[{"key": "t", "effect": "NoSchedule"}])
        .node("b")
        .queue("q")
        .configured(configuration)
    )
    tolerant = {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"kubernetes.io/hostname": "a"}}
    result = nodes.gang("first", cpu=0).gang("other", cpu=0, spec=tolerant).gang("second", cpu=0).schedule()
    assert [result.node_of(f"{gang}-0") for gang in ("first", "other", "second")] == ["b", "a", "b"]


@either_way
def test_a_node_that_has_nothing_idle_left_is_no_longer_preferred(configuration: Raw) -> None:
    """cycle:SCO-1, cycle:SCO-2 Availability: what is left there is still being released."""
    nodes = (
        cluster()
        .node("a")
        .pod("old", on="a", cpu=0, memory="600Gi", deleted=0)
        .node("b")
        .queue("q")
        .configured(configuration)
    )
    result = nodes.gang("first", cpu=0, memory="300Gi").gang("second", cpu=0, memory="300Gi").schedule()
    assert [result.node_of(f"{gang}-0") for gang in ("first", "second")] == ["a", "b"]
    assert result.pipelined("second") == 0


@either_way
def test_pods_without_cpu_leave_the_nodes_equally_full(configuration: Raw) -> None:
    """cycle:SCO-1, cycle:SCO-3: so all of them go to the first."""
    result = cluster(nodes=3).queue("q").configured(configuration).gang("j", pods=3, cpu=0).schedule()
    assert result.nodes_used("j") == {"node-0": 3}


@either_way
def test_the_scale_follows_placements_and_their_undoing(configuration: Raw) -> None:
    """cycle:SCO-3: a new least, and the old one again when the only node that had it is emptied."""
    cycle = cluster(nodes=3, cpu=10).queue("q").configured(configuration).gang("j", cpu=4).gang("probe", cpu=1).cycle()
    equal = {"node-0": 1019, "node-1": 1019, "node-2": 1019}
    assert scores_of(cycle, "probe-0") == equal
    mark = cycle.state.mark()
    assert cycle.placer.place_gang(placement_request_of(cycle, "j-0").gang)
    assert scores_of(cycle, "probe-0") == {"node-0": 1019, "node-1": 1010, "node-2": 1010}
    cycle.state.rollback(mark)
    assert scores_of(cycle, "probe-0") == equal


# Magnitudes.


def test_the_magnitudes() -> None:
    """cycle:SCO-2: every class with its number, packing apart."""
    nodes = cluster().node("a", cpu=10, gpus=2).pod("x", on="a", cpu=1, fraction=0.5, device="g", labels={"app": "x"})
    nodes.node("b", cpu=9).node("full", cpu=8).pod("old", on="full", cpu=8, deleted=0).queue("q")
    nodes.configured(WITH_AFFINITY)
    nodes.gang("cpu", nominated="b").gang("friend", spec=preferring("x", 3)).gang(
        "foe", spec=preferring("x", 2, away=True)
    )
    cycle = nodes.cycle()
    packing = {"a": 0.0, "b": 0.0, "full": 9.0}
    for pod, expected in {
        "cpu-0": {"a": 11_000, "b": 10_001_010, "full": 10},
        "friend-0": {"a": 3_011_000, "b": 1_010, "full": 10},
        "foe-0": {"a": -1_989_000, "b": 1_010, "full": 10},
    }.items():
        assert scores_of(cycle, pod) == {node: score + packing[node] for node, score in expected.items()}


def test_a_nominated_node_wins_over_packing_and_sharing() -> None:
    """cycle:SCO-2 NominatedNode"""
    nodes = cluster().node("a", gpus=2).pod("x", on="a", fraction=0.5, device="g").node("b", gpus=2)
    assert node_of(nodes, fraction=0.5) == "a"
    nodes = cluster().node("a", gpus=2).pod("x", on="a", fraction=0.5, device="g").node("b", gpus=2)
    assert node_of(nodes, fraction=0.5, nominated="b") == "b"


def test_a_nominated_node_where_the_pod_must_wait_still_wins() -> None:
    """cycle:SCO-2: above availability."""
    nodes = cluster().node("a", gpus=1).node("b", gpus=1).pod("old", on="b", gpu=1, deleted=0)
    result = nodes.queue("q").gang("j", gpu=1, nominated="b").schedule()
    assert (result.node_of("j-0"), result.pipelined("j")) == ("b", 1)


@pytest.mark.parametrize("nominated", ["c", "gone"])
def test_a_nominated_node_that_cannot_take_the_pod_is_ignored(nominated: str) -> None:
    """cycle:SCO-2"""
    nodes = cluster().node("a", gpus=1).node("c", gpus=1).pod("old", on="c", gpu=1)
    assert node_of(nodes, gpu=1, nominated=nominated) == "a"


def test_pods_of_one_shape_nominated_to_different_nodes_go_there() -> None:
    """cycle:SCO-2: what one pod is ranked by must not serve the other."""
    nodes = cluster(nodes=3, gpus=1).queue("q")
    for index in (2, 1):
        nodes.gang(f"j{index}", gpu=1, nominated=f"node-{index}")
    result = nodes.gang("free", gpu=1).schedule()
    assert [result.node_of(f"{group}-0") for group in ("j1", "j2", "free")] == ["node-1", "node-2", "node-0"]


@pytest.mark.parametrize(("weight", "chosen"), [(9, "nominated"), (11, "company")])
def test_a_nominated_node_is_worth_ten_preferences(weight: int, chosen: str) -> None:
    """cycle:SCO-2: 10 000 000 against 1 000 000 for every point of a preference."""
    nodes = cluster().node("company").pod("x", on="company", labels={"app": "x"}).node("nominated")
    nodes.configured(WITH_AFFINITY)
    assert node_of(nodes, nominated="nominated", spec=preferring("x", weight)) == chosen


def test_preferred_affinity_wins_over_joining_a_shared_gpu() -> None:
    """cycle:SCO-2 K8sPlugins: a preference of the least weight."""
    nodes = cluster().node("alone", gpus=2).pod("x", on="alone", labels={"app": "x"})
    nodes.node("shared", gpus=2).pod("y", on="shared", fraction=0.5, device="g").configured(WITH_AFFINITY)
    assert node_of(nodes, fraction=0.5, spec=preferring("x", 1)) == "alone"


def test_preferred_anti_affinity_repels() -> None:
    """cycle:SCO-2: the raw score may be negative, and is not normalised."""
    nodes = cluster().node("a", gpus=2).pod("x", on="a", fraction=0.5, device="g", labels={"app": "x"})
    nodes.node("b", gpus=2).configured(WITH_AFFINITY)
    assert node_of(nodes, fraction=0.5, spec=preferring("x", 1, away=True)) == "b"


def test_joining_a_shared_gpu_wins_over_starting_now() -> None:
    """cycle:SCO-2 GpuSharing: the pod waits for its neighbour to go although another node is empty."""
    nodes = cluster().node("empty", gpus=2).node("shared", gpus=1)
    nodes.pod("x", on="shared", fraction=0.5, device="g").pod("y", on="shared", fraction=0.5, device="g", deleted=0)
    result = nodes.queue("q").gang("j", fraction=0.5).schedule()
    assert (result.node_of("j-0"), result.pipelined("j")) == ("shared", 1)


def test_a_full_shared_gpu_attracts_no_pod() -> None:
    """cycle:SCO-2, gpu:F-9"""
    nodes = cluster().node("a", gpus=1).node("b", gpus=2).pod("x", on="b", fraction=0.6, device="g")
    assert node_of(nodes, fraction=0.5) == "a"


def test_without_the_plugin_shared_gpus_attract_no_pod() -> None:
    """gpu:F-9: it is not used with the strategy spread."""
    nodes = cluster().node("a", gpus=2).node("b", gpus=2).pod("x", on="b", fraction=0.5, device="g")
    spread = plugins("nodeavailability", "gpuspread", "nodeplacement", nodeplacement={"gpu": "spread"})
    assert node_of(nodes.configured(spread), fraction=0.5) == "a"


def test_starting_now_wins_over_the_kind_of_node_and_packing() -> None:
    """cycle:SCO-2 Availability: a CPU pod goes to an empty GPU node rather than wait for the fullest CPU node."""
    nodes = cluster().node("cpu", cpu=2).pod("old", on="cpu", cpu=2, deleted=0).node("gpu", cpu=8, gpus=1)
    result = nodes.queue("q").gang("j").schedule()
    assert (result.node_of("j-0"), result.bound("j")) == ("gpu", 1)


def test_starting_now_wins_for_whole_gpus_and_for_shares_too() -> None:
    """cycle:SCO-2 Availability: node a is the fuller one and sorts first."""
    for ask in ({"gpu": 1}, {"fraction": 0.5}, {"gpu_memory": 500}):
        nodes = cluster().node("a", gpus=1).pod("old", on="a", gpu=1, deleted=0)
        nodes.node("b", gpus=8).node("c", gpus=1).pod("full", on="c", gpu=1)
        result = nodes.queue("q").gang("j", **ask).schedule()
        assert (result.node_of("j-0"), result.bound("j")) == ("b", 1)


def test_where_nothing_starts_now_the_other_scores_decide() -> None:
    """cycle:SCO-2 Availability"""
    nodes = cluster().node("a", gpus=2).pod("x", on="a", gpu=2, deleted=0)
    nodes.node("b", gpus=2).pod("y", on="b", gpu=1, deleted=0).pod("z", on="b", gpu=1)
    result = nodes.queue("q").gang("j", gpu=1).schedule()
    assert (result.node_of("j-0"), result.pipelined("j")) == ("b", 1)


def test_cpu_work_prefers_cpu_nodes() -> None:
    """cycle:SCO-2 ResourceType, cycle:T-47: 10 against at most 9 for the fullest GPU node."""
    nodes = cluster().node("a-gpu", cpu=10, gpus=1).pod("x", on="a-gpu", cpu=8).node("cpu", cpu=10)
    assert node_of(nodes) == "cpu"


def test_gpu_work_does_not_prefer_cpu_nodes() -> None:
    """cycle:SCO-2 ResourceType: it is the kind of the task that counts."""
    nodes = cluster().node("a", gpus=1).node("b", gpus=2).pod("x", on="b", gpu=1).node("c")
    assert node_of(nodes, gpu=1) == "a"


def test_packing_is_the_weakest_of_all() -> None:
    """cycle:SCO-2 MaxHighDensity: the fullest GPU node against the emptiest CPU node, for a CPU task."""
    nodes = cluster().node("a", cpu=100, gpus=1).pod("x", on="a", cpu=99).node("b", cpu=100)
    assert node_of(nodes) == "b"
    alone = cluster().node("a", cpu=100).pod("x", on="a", cpu=50).node("b", cpu=100).node("c", cpu=100)
    assert node_of(alone) == "a"


# Packing and spreading.


def test_packing_takes_the_fuller_node_and_spreading_the_emptier() -> None:
    """cycle:T-47, cycle:SCO-3"""

    def chosen(**strategies: str) -> str:
        nodes = cluster().node("a", gpus=4).node("b", gpus=4).pod("x", on="b", gpu=2).node("c", gpus=4)
        nodes.pod("y", on="a", gpu=1)
        return node_of(nodes.configured(placing(**strategies)), gpu=1)

    assert chosen() == "b"
    assert chosen(gpu="binpack", cpu="spread") == "b"
    assert chosen(gpu="spread", cpu="binpack") == "c"


def test_cpu_work_is_packed_and_spread_by_cpu() -> None:
    """cycle:SCO-3: the strategy of its kind, and CPU alone."""

    def chosen(**strategies: str) -> str:
        nodes = cluster().node("a", cpu=10).node("b", cpu=10).node("c", cpu=10)
        nodes.pod("x", on="b", cpu=5, memory="1Gi").pod("y", on="a", cpu=1, memory="900Gi")
        return node_of(nodes.configured(placing(**strategies)))

    assert chosen() == "b"
    assert chosen(cpu="binpack", gpu="spread") == "b"
    assert chosen(cpu="spread", gpu="binpack") == "c"


@pytest.mark.parametrize("ask", [{"gpu": 1}, {"fraction": 0.5}, {"gpu_memory": 500}])
def test_every_gpu_request_is_packed_by_whole_gpus(ask: dict[str, Any]) -> None:
    """cycle:SCO-3: CPU plays no part."""
    nodes = cluster().node("a", gpus=4, cpu=100).pod("x", on="a", cpu=90)
    nodes.node("b", gpus=4, cpu=100).pod("y", on="b", gpu=2).node("c", gpus=4, cpu=100)
    assert node_of(nodes, **ask) == "b"


def test_a_mig_request_is_packed_by_whole_gpus_and_there_are_none() -> None:
    """cycle:SCO-3: no node offers the resource, so the names decide."""
    nodes = cluster().node("a", extra={SLICE: 7}).node("b", extra={SLICE: 7}).pod("x", on="b", extra={SLICE: 5})
    assert node_of(nodes, extra={SLICE: 1}) == "a"


def test_a_node_that_offers_no_whole_gpus_gets_no_points_for_packing_them() -> None:
    """cycle:SCO-3: all that offer any have the same number free."""
    nodes = cluster().node("a", extra={SLICE: 7}).node("b", gpus=1, extra={SLICE: 7})
    assert node_of(nodes, extra={SLICE: 1}) == "b"


def test_packing_counts_what_is_being_released_as_free() -> None:
    """cycle:SCO-3: a node full of terminating pods counts as empty."""
    nodes = cluster().node("a", gpus=4).pod("x", on="a", gpu=3, deleted=0).node("b", gpus=4).pod("y", on="b", gpu=1)
    assert node_of(nodes.node("c", gpus=4), gpu=1) == "b"


def test_packing_goes_by_the_amount_not_the_portion() -> None:
    """cycle:SCO-3: two free GPUs of two are less than three free of eight."""
    nodes = cluster().node("a", gpus=8).pod("x", on="a", gpu=5).node("b", gpus=2)
    assert node_of(nodes, gpu=1) == "b"


def test_spreading_goes_by_the_portion_not_the_amount() -> None:
    """cycle:SCO-3: two of two free beat three of eight."""
    nodes = cluster().node("a", gpus=8).pod("x", on="a", gpu=5).node("b", gpus=2)
    assert node_of(nodes.configured(placing(gpu="spread")), gpu=1) == "b"
    nodes = cluster().node("a", cpu=8).pod("x", on="a", cpu=5).node("b", cpu=2)
    assert node_of(nodes.configured(placing(cpu="spread"))) == "b"


def test_spreading_counts_the_gpus_the_label_names() -> None:
    """cycle:SCO-3: four of eight by label are half, three of four allocatable are more."""
    nodes = cluster().node("a", gpus=4, labels={"nvidia.com/gpu.count": "8"})
    nodes.node("b", gpus=4).pod("x", on="b", gpu=1)
    assert node_of(nodes.configured(placing(gpu="spread")), gpu=1) == "b"


def test_spreading_is_weaker_than_any_other_score() -> None:
    """cycle:SCO-2, cycle:SCO-3: at most 1."""
    nodes = cluster().node("a", cpu=100, gpus=1).node("b", cpu=100).pod("x", on="b", cpu=90)
    assert node_of(nodes.configured(placing(cpu="spread"))) == "b"


def test_nodes_without_the_resource_set_no_scale() -> None:
    """cycle:SCO-3: the least and the most are those of nodes that offer it, so the CPU node's 0 GPUs do not count."""
    nodes = cluster().node("cpu").node("two", gpus=2).node("six", gpus=6).node("ten", gpus=10).queue("q")
    scores = scores_of(nodes.gang("j", gpu=1).cycle(), "j-0")
    assert scores == pytest.approx({"two": 1009, "six": 1004.5, "ten": 1000})


def test_a_node_without_the_resource_gets_no_point_for_packing() -> None:
    """cycle:SCO-3: slices do not make a node offer whole GPUs."""
    nodes = cluster().node("slices", extra={SLICE: 1}).node("both", gpus=2, extra={SLICE: 1}).queue("q")
    scores = scores_of(nodes.gang("j", extra={SLICE: 1}).cycle(), "j-0")
    assert scores == pytest.approx({"slices": 1000, "both": 1009})


def test_where_no_gpu_is_free_anywhere_packing_gives_no_points() -> None:
    """cycle:SCO-3: 0 when the most is 0; the fractions still find a shared GPU."""
    nodes = cluster().node("a", gpus=1).pod("x", on="a", fraction=0.5, device="g").queue("q")
    assert scores_of(nodes.gang("j", fraction=0.5).cycle(), "j-0") == {"a": 11000}


def test_equally_full_nodes_get_all_the_points() -> None:
    """cycle:SCO-3: 9 where the least is the most."""
    nodes = cluster().node("a", gpus=2).node("b", gpus=3).pod("x", on="b", gpu=1).queue("q")
    assert scores_of(nodes.gang("j", gpu=1).cycle(), "j-0") == {"a": 1009, "b": 1009}


def test_spreading_gives_the_free_portion() -> None:
    """cycle:SCO-3"""
    nodes = cluster().node("a", gpus=4).pod("x", on="a", gpu=1).node("b", gpus=2).node("c").queue("q")
    nodes.configured(placing(gpu="spread", cpu="spread")).gang("gpu", gpu=1).gang("cpu")
    cycle = nodes.cycle()
    assert scores_of(cycle, "gpu-0") == pytest.approx({"a": 1000.75, "b": 1001})
    assert scores_of(cycle, "cpu-0") == pytest.approx({"a": 1000.99, "b": 1001, "c": 1011})


def test_gpus_of_all_vendors_are_one_dimension_for_packing() -> None:
    """cycle:R-3, cycle:SCO-3: the node with one free GPU of each is emptier than the one with a single free GPU."""
    nodes = cluster().node("a", gpus=2, extra={"amd.com/gpu": 2}).pod("x", on="a", gpu=1)
    nodes.node("b", gpus=2)
    assert node_of(nodes, gpu=1) == "b"


@pytest.mark.parametrize("bad", ["best", ""])
def test_an_unknown_strategy_packs(bad: str) -> None:
    """cycle:21: a bad value falls back to the default."""
    nodes = cluster().node("a", gpus=4).node("b", gpus=4).pod("x", on="b", gpu=2)
    assert node_of(nodes.configured(placing(gpu=bad)), gpu=1) == "b"


# Choice of devices.


def test_the_devices_of_a_share_are_taken_best_first() -> None:
    """cycle:SCO-4: the fullest two that fit, then a new one."""
    nodes = cluster().node(gpus=5).queue("q")
    for device, size in (("a", 0.2), ("b", 0.9), ("c", 0.4)):
        nodes.pod(f"run-{device}", on="node-0", fraction=size, device=device)
    result = nodes.gang("j", fraction=0.3, devices=3).schedule()
    assert result.devices_of("j-0")[:2] == ("c", "a")
    assert len(result.devices_of("j-0")) == 3


def test_spreading_takes_new_devices_first_then_the_emptiest() -> None:
    """cycle:SCO-4"""
    nodes = cluster().node(gpus=4).queue("q")
    for device, size in (("a", 0.2), ("b", 0.6), ("c", 0.4)):
        nodes.pod(f"run-{device}", on="node-0", fraction=size, device=device)
    spread = plugins("nodeavailability", "gpuspread", "nodeplacement", nodeplacement={"gpu": "spread"})
    result = nodes.gang("j", fraction=0.3, devices=3).configured(spread).schedule()
    assert result.devices_of("j-0")[1:] == ("a", "c")


def test_the_devices_of_the_best_node_are_chosen_not_the_best_devices_of_all() -> None:
    """cycle:SCO-4: b has the fuller device, a the better score by its name."""
    nodes = cluster().node("a", gpus=1).pod("x", on="a", fraction=0.2, device="g")
    nodes.node("b", gpus=1).pod("y", on="b", fraction=0.5, device="h").queue("q")
    assert nodes.gang("j", fraction=0.3).schedule().devices_of("j-0") == ("g",)


# Quirks.


def near_a_shared_gpu(configuration: Raw | None = None) -> Cluster:
    """A CPU node, and a GPU node with a shared GPU that is not full."""
    nodes = cluster().node("cpu").node("gpu", gpus=2, extra={SLICE: 1}).pod("x", on="gpu", fraction=0.5, device="g")
    return nodes if configuration is None else nodes.configured(configuration)


def only_shares() -> Raw:
    """The built-in scores with gpusharingorder limited to requests that share."""
    return plugins(
        "nodeavailability",
        "gpusharingorder",
        "gpupack",
        "resourcetype",
        "nodeplacement",
        gpusharingorder={"sharedOnly": "true"},
    )


def test_a_cpu_pod_is_attracted_by_a_node_with_a_shared_gpu() -> None:
    """cycle:SCO-5: a quirk that recorded decisions depend on, hence the default."""
    assert node_of(near_a_shared_gpu()) == "gpu"


def test_the_attraction_of_cpu_pods_can_be_turned_off() -> None:
    """cycle:SCO-5, gpu:F-9, Do better: with sharedOnly, shares alone are drawn to shared GPUs."""
    assert node_of(near_a_shared_gpu(only_shares())) == "cpu"
    nodes = cluster().node("a", gpus=2).node("b", gpus=2).pod("x", on="b", fraction=0.5, device="g")
    assert node_of(nodes.configured(only_shares()), fraction=0.5) == "b"


def test_a_cpu_pod_is_not_attracted_by_a_releasing_gpu() -> None:
    """cycle:SCO-5, gpu:F-3"""
    nodes = cluster().node("cpu").node("gpu", gpus=2).pod("x", on="gpu", fraction=0.5, device="g", deleted=0)
    assert node_of(nodes) == "cpu"


def test_a_mig_pod_is_attracted_by_a_node_with_a_shared_gpu_too() -> None:
    """cycle:SCO-5: it needs no memory of that GPU."""
    nodes = cluster().node("a", extra={SLICE: 1}).node("b", gpus=1, extra={SLICE: 1})
    nodes.pod("x", on="b", fraction=0.5, device="g")
    assert node_of(nodes, extra={SLICE: 1}) == "b"


def test_a_whole_gpu_pod_is_not_attracted_by_a_node_with_a_shared_gpu() -> None:
    """cycle:SCO-5: no shared GPU hosts it."""
    nodes = cluster().node("a", gpus=1).node("b", gpus=3).pod("x", on="b", fraction=0.5, device="g")
    assert node_of(nodes, gpu=1) == "a"


def test_scores_decide_the_same_with_and_without_signatures() -> None:
    """design: caches within a cycle never change a decision."""

    def plan(*, reuse_failures: bool) -> Result:
        nodes = cluster(nodes=3, gpus=2).queue("q").with_policy(reuse_failures=reuse_failures)
        nodes.gang("big", pods=7, gpu=1).gang("again", pods=7, gpu=1).gang("fits", pods=5, gpu=1)
        return nodes.gang("halves", pods=3, min=0, fraction=0.5).schedule()

    assert plan(reuse_failures=True).plan.binds == plan(reuse_failures=False).plan.binds


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "x.y/gpu"]
)
@pytest.mark.parametrize(("strategy", "node"), [("binpack", "b"), ("spread", "a")])
def test_gpus_of_any_vendor_are_packed_or_spread(resource: str, strategy: str, node: str) -> None:
    """cycle:R-3"""
    built = cluster().node("a", extra={resource: 2}).node("b", extra={resource: 2}).queue("q")
    built.group("old", queue="q").pod("old", group="old", on="b", extra={resource: 1})
    assert node_of(built.configured(placing(gpu=strategy)), extra={resource: 1}) == node
