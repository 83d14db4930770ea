"""Pods with persistent volume claims: nodes that serve them, and volumes they get (cycle:FLT-2 VolumeBinding)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.builders import Cluster, cluster

NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"
WRONG_NODE = "node(s) didn't match PersistentVolume's node affinity"
LOST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
DRIVER = "csi.example.com"


def storage(nodes: int = 2, **node: Any) -> Cluster:
    """Nodes, a queue and a class of volumes that wait for their first consumer."""
    return cluster(nodes=nodes, **node).queue("q").storage_class()


def made(nodes: int = 2, **node: Any) -> Cluster:
    """The same with a driver that provisions volumes and publishes its capacity."""
    return cluster(nodes=nodes, **node).queue("q").storage_class(provisioner=DRIVER).csi_driver(DRIVER)


def refusal(world: Cluster) -> str:
    """Why the only pod of the job waits, without the first line."""
    return world.schedule().why("job").partition(":\n")[2].removesuffix("\n.")


# Claims that cannot be used (cycle:FLT-9).


def test_a_missing_claim_is_named() -> None:
    assert refusal(storage().gang("job", claims=("data",))) == (
        'VolumeBinding: persistentvolumeclaim "data" not found.'
    )


def test_a_claim_of_another_namespace_is_missing() -> None:
    world = storage().volume("pv").claim("data", namespace="other").gang("job", claims=("data",))
    assert 'persistentvolumeclaim "data" not found' in refusal(world)


def test_a_claim_that_is_being_deleted_is_named() -> None:
    world = storage().volume("pv").claim("data", deleted=True).gang("job", claims=("data",))
    assert refusal(world) == 'VolumeBinding: persistentvolumeclaim "data" is being deleted.'


def test_a_claim_that_binds_without_the_pod_must_be_bound() -> None:
    world = storage().storage_class("now", waits=False).volume("pv", of="now").claim("data", of="now")
    assert refusal(world.gang("job", claims=("data",))) == (
        "VolumeBinding: pod has unbound immediate PersistentVolumeClaims."
    )


@pytest.mark.parametrize("of", ["nobody-knows", "", None])
def test_a_claim_without_a_known_class_binds_without_the_pod(of: str | None) -> None:
    world = storage().volume("pv", of=of).claim("data", of=of).gang("job", claims=("data",))
    assert "pod has unbound immediate PersistentVolumeClaims" in refusal(world)


def test_a_claim_that_names_its_volume_is_bound_only_when_marked_complete() -> None:
    world = storage().volume("pv").claim("data", volumeName="pv").gang("job", claims=("data",))
    assert "pod has unbound immediate PersistentVolumeClaims" in refusal(world)


def test_a_claim_that_lost_its_volume_is_named() -> None:
    world = storage().claim("data", bound_to="pv", phase="Lost").gang("job", claims=("data",))
    assert refusal(world) == (
        'VolumeBinding: persistentvolumeclaim "data" bound to non-existent persistentvolume "pv".'
    )


def test_an_ephemeral_claim_is_waited_for() -> None:
    assert refusal(storage().gang("job", ephemeral=("tmp",))) == (
        'VolumeBinding: waiting for ephemeral volume controller to create the persistentvolumeclaim "job-0-tmp".'
    )


def test_an_ephemeral_claim_must_be_made_for_its_pod() -> None:
    world = storage().volume("pv").claim("job-0-tmp", owner="somebody").gang("job", ephemeral=("tmp",))
    assert refusal(world) == (
        "VolumeBinding: PVC default/job-0-tmp was not created for pod default/job-0 (pod is not owner)."
    )


def test_an_ephemeral_claim_of_its_pod_is_served() -> None:
    result = storage().volume("pv").claim("job-0-tmp", owner="job-0").gang("job", ephemeral=("tmp",)).schedule()
    assert result.volumes_of("job-0") == ["pv"]


def test_the_first_claim_that_is_wrong_is_reported_and_unbound_ones_last() -> None:
    world = storage().storage_class("now", waits=False).claim("a", of="now").claim("c", deleted=True)
    assert refusal(world.gang("job", claims=("a", "b", "c"))) == ('VolumeBinding: persistentvolumeclaim "b" not found.')


def test_a_claim_whose_size_cannot_be_read_is_named() -> None:
    world = storage().volume("pv").claim("data", size="much").gang("job", claims=("data",))
    assert refusal(world) == 'VolumeBinding: persistentvolumeclaim "data" requests a size that cannot be read.'


def test_claims_are_reported_with_whatever_else_is_missing() -> None:
    """cycle:FLT-5."""
    container = {"name": "main", "envFrom": [{"configMapRef": {"name": "settings"}}]}
    world = storage().gang("job", claims=("data",), spec={"containers": [container]})
    assert refusal(world).splitlines() == [
        'VolumeBinding: persistentvolumeclaim "data" not found.',
        "ConfigMap: Missing required configmaps: [settings].",
    ]


def test_the_eviction_precheck_covers_claims_then_config_maps_then_size() -> None:
    """cycle:FLT-9."""
    container: dict[str, Any] = {"name": "main", "envFrom": [{"configMapRef": {"name": "settings"}}]}
    container["resources"] = {"requests": {"cpu": "1000"}}
    world = storage().gang("job", claims=("data",), spec={"containers": [container]}).with_actions("preempt")
    said = [line.partition(":")[0] for line in refusal(world).splitlines()]
    assert said == ["VolumeBinding", "ConfigMap", "MaxNodePoolResources"]


def test_nothing_is_evicted_for_a_pod_whose_claim_is_missing() -> None:
    """cycle:T-46: the search is not entered, pod and job have the reason."""
    world = (
        cluster(nodes=1, gpus=1)
        .queue("rich", quota=0)
        .queue("poor", quota=1)
        .storage_class()
        .gang("old", queue="rich", gpu=1, on="node-0")
        .gang("job", queue="poor", gpu=1, claims=("data",))
        .with_actions("reclaim")
    )
    result = world.schedule()
    assert result.evicted_pods() == []
    assert result.cycle.state.work == 0
    assert 'persistentvolumeclaim "data" not found' in result.why("job")
    assert result.no_place("job").unresolvable
    assert world.volume("pv").claim("data").schedule().evicted_pods() == ["old-0"]


# Bound claims.


def test_a_bound_claim_takes_its_pod_to_its_volume() -> None:
    world = storage(3).volume("pv", on="node-2", claim="data").claim("data", bound_to="pv")
    assert world.gang("job", claims=("data",)).schedule().node_of("job-0") == "node-2"


def test_a_volume_without_node_affinity_is_reached_from_everywhere() -> None:
    world = storage().volume("pv", claim="data").claim("data", bound_to="pv").gang("job", claims=("data",))
    assert world.schedule().bound("job") == 1


def test_nodes_that_do_not_reach_the_volume_have_a_reason() -> None:
    """cycle:FLT-3."""
    world = storage(3).volume("pv", on="elsewhere", claim="data").claim("data", bound_to="pv")
    assert world.gang("job", claims=("data",)).schedule().node_reasons("job") == {WRONG_NODE: 3}


def test_all_bound_volumes_must_be_reached() -> None:
    world = storage(3).volume("a", on=("node-0", "node-1"), claim="a").volume("b", on=("node-1", "node-2"), claim="b")
    world.claim("a", bound_to="a").claim("b", bound_to="b").gang("job", claims=("a", "b"))
    assert world.schedule().node_of("job-0") == "node-1"


def test_one_bound_volume_in_reach_is_not_enough() -> None:
    world = storage(2).volume("a", on="node-0", claim="a").volume("b", on="node-1", claim="b")
    world.claim("a", bound_to="a").claim("b", bound_to="b").gang("job", claims=("a", "b"))
    assert world.schedule().node_reasons("job") == {WRONG_NODE: 2}


def test_a_missing_volume_is_the_reason_of_every_node() -> None:
    """cycle:FLT-3."""
    world = storage().claim("data", bound_to="pv").gang("job", claims=("data",))
    assert world.schedule().node_reasons("job") == {LOST: 2}


# Existing volumes for pending claims.


def test_a_waiting_claim_takes_its_pod_to_a_volume() -> None:
    result = storage(3).volume("pv", on="node-1").claim("data").gang("job", claims=("data",)).schedule()
    assert (result.node_of("job-0"), result.volumes_of("job-0")) == ("node-1", ["pv"])


def test_the_smallest_volume_that_fits_is_chosen_then_the_first_name() -> None:
    world = storage(1).volume("z", size="20Gi").volume("d", size="7Gi").volume("c", size="7Gi").volume("a", size="4Gi")
    assert world.claim("data", size="5Gi").gang("job", claims=("data",)).schedule().volumes_of("job-0") == ["c"]


def test_a_volume_exactly_as_large_as_requested_fits() -> None:
    world = storage(1).volume("pv", size="5Gi").claim("data", size="5Gi").gang("job", claims=("data",))
    assert world.schedule().volumes_of("job-0") == ["pv"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": "4Gi"},
        {"of": "slow"},
        {"modes": ("ReadOnlyMany",)},
        {"volumeMode": "Block"},
        {"volumeAttributesClassName": "gold"},
        {"labels": {"tier": "b"}},
        {"phase": "Released"},
        {"deleted": True},
        {"claim": "other"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_volume_that_does_not_match_the_claim_is_not_taken(wrong: dict[str, Any]) -> None:
    selector = {"matchLabels": {"tier": "a"}}
    right: dict[str, Any] = {"labels": {"tier": "a"}}
    claim = storage(2).claim("data", selector=selector).gang("job", claims=("data",))
    assert claim.volume("wrong", **{**right, **wrong}).schedule().node_reasons("job") == {NO_VOLUME: 2}
    assert claim.volume("right", **right).schedule().volumes_of("job-0") == ["right"]


def test_a_volume_may_offer_more_access_modes_than_requested() -> None:
    world = storage(1).volume("pv", modes=("ReadWriteOnce", "ReadOnlyMany")).claim("data")
    assert world.gang("job", claims=("data",)).schedule().volumes_of("job-0") == ["pv"]


@pytest.mark.parametrize(
    ("operator", "values", "label"),
    [("In", ["a", "b"], "b"), ("NotIn", ["a"], "b"), ("Exists", [], "b"), ("DoesNotExist", [], None)],
)
def test_a_selector_matches_labels_of_volumes(operator: str, values: list[str], label: str | None) -> None:
    selector = {"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]}
    fitting = {"tier": label} if label is not None else {}
    other = {"tier": "a"} if operator == "NotIn" else {} if operator == "Exists" else {"tier": "c"}
    world = storage(1).volume("a-other", labels=other).volume("fitting", labels=fitting)
    if operator == "In":
        world.volume("a-bare")
    world.claim("data", selector=selector).gang("job", claims=("data",))
    assert world.schedule().volumes_of("job-0") == ["fitting"]


def test_a_selector_with_an_unknown_operator_selects_nothing() -> None:
    selector = {"matchExpressions": [{"key": "tier", "operator": "Like", "values": []}]}
    world = storage(1).volume("pv", labels={"tier": "a"}).claim("data", selector=selector)
    assert world.gang("job", claims=("data",)).schedule().node_reasons("job") == {NO_VOLUME: 1}


def test_the_class_may_be_given_by_an_annotation() -> None:
    note = {"volume.beta.kubernetes.io/storage-class": "fast"}
    world = storage(1).volume("pv").claim("data", of="slow", annotations=note).gang("job", claims=("data",))
    assert world.schedule().volumes_of("job-0") == ["pv"]


def test_a_volume_is_given_once() -> None:
    world = storage(1).volume("pv").claim("a").claim("b")
    result = world.gang("first", claims=("a",)).gang("job", claims=("b",)).schedule()
    assert result.volumes_of("first-0") == ["pv"]
    assert result.node_reasons("job") == {NO_VOLUME: 1}


def test_a_volume_reached_from_everywhere_is_given_once() -> None:
    world = storage(100).volume("pv").claim("a").claim("b")
    result = world.gang("first", claims=("a",)).gang("job", claims=("b",)).schedule()
    assert result.node_reasons("job") == {NO_VOLUME: 100}


def test_local_volumes_are_found_among_many_nodes() -> None:
    world = storage(100)
    for node in (7, 42):
        world.volume(f"pv-{node}", on=f"node-{node}").claim(f"data-{node}")
    result = (
        world.gang("a", claims=("data-7",))
        .gang("b", claims=("data-42",))
        .gang("job", claims=("x",))
        .claim("x")
        .schedule()
    )
    assert sorted([result.node_of("a-0"), result.node_of("b-0")]) == ["node-42", "node-7"]
    assert result.node_reasons("job") == {NO_VOLUME: 100}


def test_volumes_of_a_zone_are_found_among_many_nodes() -> None:
    world = storage(80, labels={"zone": "a"}).nodes(3, labels={"zone": "b"}).volume("pv", zone="b").claim("data")
    result = world.gang("job", claims=("data",)).schedule()
    assert result.node_of("job-0") in ("node-80", "node-81", "node-82")


def test_two_claims_of_a_pod_get_two_volumes_smallest_first() -> None:
    world = storage(1).volume("large", size="20Gi").volume("small", size="3Gi")
    world.claim("big", size="6Gi").claim("little", size="1Gi").gang("job", claims=("big", "little"))
    assert world.schedule().volumes_of("job-0") == ["small", "large"]


def test_two_claims_of_a_pod_need_their_volumes_on_one_node() -> None:
    world = storage(3).volume("a", on="node-0").volume("b", on="node-2").volume("c", on="node-2")
    world.claim("x").claim("y").gang("job", claims=("x", "y"))
    assert world.schedule().node_of("job-0") == "node-2"


def test_a_volume_reserved_for_a_claim_is_given_to_it_alone() -> None:
    world = storage(2).volume("kept", size="90Gi", on="node-1", claim="mine", phase="Available").claim("mine")
    world.claim("other").gang("job", claims=("other",)).gang("owner", claims=("mine",))
    result = world.schedule()
    assert result.node_reasons("job") == {NO_VOLUME: 2}
    assert (result.node_of("owner-0"), result.volumes_of("owner-0")) == ("node-1", ["kept"])


def test_a_claim_with_a_reserved_volume_takes_no_other() -> None:
    world = storage(2).volume("kept", on="node-1", claim="mine").volume("a", size="5Gi", on="node-0").claim("mine")
    assert world.gang("job", claims=("mine",)).schedule().volumes_of("job-0") == ["kept"]


def test_a_volume_reserved_for_an_earlier_claim_of_the_name_is_not_given() -> None:
    world = storage(1).volume("kept", claim="mine", claim_uid="gone").claim("mine", uid="new")
    assert world.gang("job", claims=("mine",)).schedule().node_reasons("job") == {NO_VOLUME: 1}


def test_a_reserved_volume_that_is_too_small_is_skipped() -> None:
    world = storage(1).volume("kept", size="1Gi", claim="mine").volume("other").claim("mine")
    assert world.gang("job", claims=("mine",)).schedule().volumes_of("job-0") == ["other"]


def test_a_gang_that_does_not_fit_leaves_its_volumes_to_others() -> None:
    world = storage(2).volume("pv", on="node-0").claim("a").claim("b").claim("c")
    world.group("gang", minMember=2).pod("gang-0", group="gang", claims=("a",)).pod(
        "gang-1", group="gang", claims=("b",)
    )
    result = world.gang("job", claims=("c",)).schedule()
    assert result.bound("gang") == 0
    assert result.volumes_of("job-0") == ["pv"]


def test_binding_pods_hold_their_volumes_already() -> None:
    """The binder will choose the same: smallest, then by name."""
    world = storage(1).volume("small", size="6Gi").volume("large", size="9Gi").claim("a").claim("b")
    world.gang("first", claims=("a",)).bind_request("first-0", "node-0").gang("job", claims=("b",))
    assert world.schedule().volumes_of("job-0") == ["large"]


def test_pods_that_have_ended_hold_no_volume() -> None:
    world = storage(1).volume("pv").claim("a").claim("b").pod("done", on="node-0", phase="Succeeded", claims=("a",))
    assert world.gang("job", claims=("b",)).schedule().volumes_of("job-0") == ["pv"]


# Claims that several pods share.


def test_pods_that_share_a_claim_share_its_volume() -> None:
    world = storage(3).volume("pv", on=("node-1", "node-2")).claim("data")
    result = world.gang("job", 3, claims=("data",), cpu=40).schedule()
    assert [result.volumes_of(f"job-{n}") for n in range(3)] == [["pv"]] * 3
    assert result.nodes_used("job") == {"node-1": 2, "node-2": 1}


def test_pods_that_share_a_claim_stay_where_its_volume_is_provisioned() -> None:
    world = cluster(nodes=100).queue("q").storage_class(provisioner=DRIVER).claim("data")
    assert len(world.gang("job", 3, claims=("data",), cpu=30).schedule().nodes_used("job")) == 1
    assert world.gang("more", 2, claims=("data",), cpu=30).schedule().bound("more") == 0


def test_pods_that_share_a_claim_do_not_leave_its_node_when_it_is_full() -> None:
    world = cluster(nodes=3).queue("q").storage_class(provisioner=DRIVER).claim("data").gang("job", claims=("data",))
    result = world.gang("more", claims=("data",), cpu=100).schedule()
    assert result.bound("job") == 1
    assert result.node_reasons("more")[NO_VOLUME] == 2


def test_the_capacity_for_a_shared_claim_is_spent_once() -> None:
    world = made(1).storage_capacity("room", room="10Gi").claim("data", size="6Gi")
    assert world.gang("job", 3, claims=("data",)).schedule().bound("job") == 3


# Provisioned volumes.


def test_a_class_without_a_provisioner_provisions_nothing() -> None:
    world = storage().claim("data").gang("job", claims=("data",))
    assert world.schedule().node_reasons("job") == {NO_VOLUME: 2}


def test_a_class_with_a_provisioner_provisions_volumes_anywhere() -> None:
    world = cluster(nodes=1).queue("q").storage_class(provisioner=DRIVER).claim("data")
    assert world.gang("job", claims=("data",)).schedule().bound("job") == 1


def test_volumes_are_provisioned_only_where_the_class_allows() -> None:
    world = cluster().node(labels={"zone": "a"}).node(labels={"zone": "b"}).queue("q")
    world.storage_class(provisioner=DRIVER, zones=("b", "c")).claim("data").gang("job", claims=("data",))
    assert world.schedule().node_of("job-0") == "node-1"


def test_nodes_outside_the_zones_of_a_class_report_no_volume() -> None:
    world = cluster(nodes=2).queue("q").storage_class(provisioner=DRIVER, zones=("b",)).claim("data")
    assert world.gang("job", claims=("data",)).schedule().node_reasons("job") == {NO_VOLUME: 2}


def test_an_existing_volume_goes_before_a_provisioned_one() -> None:
    world = cluster(nodes=1).queue("q").storage_class(provisioner=DRIVER).volume("pv").claim("data")
    assert world.gang("job", claims=("data",)).schedule().volumes_of("job-0") == ["pv"]


def test_a_volume_is_provisioned_where_the_driver_has_capacity() -> None:
    world = made(3).storage_capacity("a", on="node-0", room="4Gi").storage_capacity("b", on="node-1", room="5Gi")
    assert world.claim("data", size="5Gi").gang("job", claims=("data",)).schedule().node_of("job-0") == "node-1"


def test_nodes_without_capacity_have_a_reason() -> None:
    world = made(3).storage_capacity("a", on="node-0", room="4Gi").claim("data", size="5Gi")
    assert world.gang("job", claims=("data",)).schedule().node_reasons("job") == {NO_ROOM: 3}


def test_the_largest_volume_may_be_smaller_than_the_capacity() -> None:
    world = made(1).storage_capacity("a", room="50Gi", largest="4Gi").claim("data", size="5Gi")
    assert world.gang("job", claims=("data",)).schedule().node_reasons("job") == {NO_ROOM: 1}


def test_a_driver_may_publish_only_the_largest_volume() -> None:
    world = made(1).storage_capacity("a", room=None, largest="5Gi").claim("data", size="5Gi")
    assert world.gang("job", claims=("data",)).schedule().bound("job") == 1


def test_an_empty_capacity_object_offers_nothing() -> None:
    world = made(1).storage_capacity("a", room=None).claim("data")
    assert world.gang("job", claims=("data",)).schedule().node_reasons("job") == {NO_ROOM: 1}


def test_a_capacity_without_topology_is_for_no_node() -> None:
    world = made(1).storage_capacity("a", nowhere=True).claim("data")
    assert world.gang("job", claims=("data",)).schedule().node_reasons("job") == {NO_ROOM: 1}


def test_a_capacity_of_another_class_does_not_count() -> None:
    world = made(1).storage_capacity("a", of="slow").claim("data")
    assert world.gang("job", claims=("data",)).schedule().node_reasons("job") == {NO_ROOM: 1}


def test_one_of_several_capacities_suffices() -> None:
    """cycle:SNP-15 takes all from a node that sees two; Kubernetes requires one that is large enough."""
    world = made(1).storage_capacity("a", room="1Gi").storage_capacity("b", room="9Gi").claim("data", size="5Gi")
    assert world.gang("job", claims=("data",)).schedule().bound("job") == 1


def test_a_driver_without_capacity_objects_is_unlimited() -> None:
    world = cluster(nodes=1).queue("q").storage_class(provisioner=DRIVER).csi_driver(DRIVER, tells_capacity=False)
    assert world.claim("data").gang("job", claims=("data",)).schedule().bound("job") == 1


def test_capacity_is_spent_once() -> None:
    """cycle:NOD-7."""
    world = made(1).storage_capacity("a", room="10Gi")
    for name in "abc":
        world.claim(name, size="4Gi").gang(f"job-{name}", claims=(name,))
    result = world.schedule()
    assert [result.bound(f"job-{name}") for name in "abc"] == [1, 1, 0]
    assert result.node_reasons("job-c") == {NO_ROOM: 1}


def test_capacity_that_many_nodes_share_is_spent_once() -> None:
    world = made(100).storage_capacity("a", room="10Gi")
    for name in "abc":
        world.claim(name, size="4Gi").gang(f"job-{name}", claims=(name,))
    result = world.schedule()
    assert [result.bound(f"job-{name}") for name in "abc"] == [1, 1, 0]
    assert result.node_reasons("job-c") == {NO_ROOM: 100}


def test_claims_of_one_pod_share_the_capacity() -> None:
    world = made(1).storage_capacity("a", room="10Gi").claim("a", size="6Gi").claim("b", size="6Gi")
    assert world.gang("job", claims=("a", "b")).schedule().node_reasons("job") == {NO_ROOM: 1}


def test_capacity_of_volumes_being_provisioned_is_spent() -> None:
    """cycle:NOD-7: claims that are provisioned and not bound yet."""
    world = made(1).storage_capacity("a", room="10Gi").claim("early", size="6Gi", selected_node="node-0")
    assert world.claim("data", size="5Gi").gang("job", claims=("data",)).schedule().node_reasons("job") == {NO_ROOM: 1}


def test_a_pod_waits_for_the_node_its_volume_is_being_provisioned_for() -> None:
    world = made(3).claim("data", selected_node="node-2").gang("job", claims=("data",))
    assert world.schedule().node_of("job-0") == "node-2"


def test_a_volume_being_provisioned_for_a_missing_node_does_not_count() -> None:
    world = made(2).volume("pv").claim("data", selected_node="gone").gang("job", claims=("data",))
    assert world.schedule().node_reasons("job") == {NO_VOLUME: 2}


# Terminating pods.


def leaving(own: str, room: str) -> Cluster:
    world = (
        made(1)
        .storage_capacity("a", room=room)
        .volume("pv", claim="old-0-tmp")
        .gang("old", ephemeral=("tmp",), on="node-0", deleted=-30)
    )
    return (
        world.claim("old-0-tmp", bound_to="pv", owner="old-0", size=own)
        .claim("data", size="5Gi")
        .gang("job", claims=("data",))
    )


def test_capacity_of_a_terminating_pod_with_its_own_claim_is_pipelined() -> None:
    """cycle:NOD-7: idle or releasing."""
    result = leaving("4Gi", "1Gi").schedule()
    assert (result.bound("job"), result.pipelined("job")) == (0, 1)


def test_capacity_of_a_terminating_pod_is_no_more_than_it_had() -> None:
    assert leaving("3Gi", "1Gi").schedule().node_reasons("job") == {NO_ROOM: 1}


def test_a_pod_with_enough_capacity_starts_at_once() -> None:
    assert leaving("3Gi", "5Gi").schedule().bound("job") == 1


def test_a_pod_is_evicted_for_the_capacity_of_its_own_claim() -> None:
    world = (
        made(1, gpus=1)
        .queue("rich", quota=0)
        .queue("poor", quota=1)
        .storage_capacity("a", room="1Gi")
        .volume("pv", claim="old-0-tmp")
        .claim("old-0-tmp", bound_to="pv", owner="old-0", size="8Gi")
        .claim("data", size="5Gi")
        .gang("old", queue="rich", gpu=1, on="node-0", ephemeral=("tmp",))
        .gang("job", queue="poor", gpu=1, claims=("data",))
        .with_actions("allocate", "reclaim")
    )
    result = world.schedule()
    assert result.evicted_pods() == ["old-0"]
    assert result.node_of("job-0") == "node-0"


def test_a_pod_with_claims_is_kept_when_its_eviction_is_not_needed() -> None:
    world = (
        made(2, gpus=1)
        .queue("rich", quota=0)
        .queue("poor", quota=1)
        .storage_capacity("a", on="node-0", room="1Gi")
        .volume("pv", on="node-0", claim="a-0-tmp")
        .claim("a-0-tmp", bound_to="pv", owner="a-0", size="8Gi")
        .gang("a", queue="rich", gpu=1, on="node-0", ephemeral=("tmp",), age=50)
        .gang("b", queue="rich", gpu=1, on="node-1", age=100)
        .gang("job", queue="poor", gpu=1)
        .with_actions("allocate", "reclaim")
    )
    result = world.schedule()
    assert len(result.evicted_pods()) == 1
    assert result.pipelined("job") == 1


# Signatures of jobs.


def test_jobs_with_other_claims_have_other_signatures() -> None:
    """cycle:TSK-8: the failure of one job does not count for a job with another claim."""
    world = (
        cluster(nodes=2, gpus=1)
        .queue("rich", quota=0)
        .queue("poor", quota=2)
        .storage_class()
        .volume("pv", on="node-1")
        .claim("large", size="50Gi")
        .claim("small")
        .gang("old-a", queue="rich", gpu=1, on="node-0")
        .gang("old-b", queue="rich", gpu=1, on="node-1")
        .gang("hopeless", queue="poor", gpu=1, claims=("large",))
        .gang("job", queue="poor", gpu=1, claims=("small",))
        .with_actions("reclaim")
    )
    result = world.schedule()
    assert result.node_of("job-0") == "node-1"
    assert result.evicted_pods() == ["old-b-0"]


def test_pods_with_equal_claims_are_one_shape() -> None:
    world = storage(1)
    for n in range(3):
        world.volume(f"pv-{n}").claim(f"data-{n}").pod(f"p-{n}", claims=(f"data-{n}",))
    world.volume("pv-3").claim("other", size="6Gi").pod("p-3", claims=("other",))
    tasks = world.tables().snapshot(0).task_records
    assert len({tasks[f"default/p-{n}"].shape.id for n in range(3)}) == 1
    assert tasks["default/p-3"].shape.id != tasks["default/p-0"].shape.id
