"""Pods with ResourceClaims: owners of claims, devices, costs and reasons (gpu:11)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.decode import decode_object
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import open_cycle
from pykai.core.schedule import run_actions
from tests.core.builders import NOW_NS, Cluster, allocation_of, cluster, scores_of
from tests.core.deviceclusters import device_request, devices, first_of, waits_for

OFF = {"actions": "allocate", "tiers": [{"plugins": [{"name": "predicates"}, {"name": "proportion"}]}]}


def queued(world: Cluster, **queue: Any) -> Cluster:
    return world.queue("q", **queue)


# What a pod gets (gpu:D-10, D-11, D-21, D-22)


def test_pods_get_devices_of_their_node_one_after_the_other() -> None:
    result = queued(devices(nodes=1, each=3)).gang("a", 2, template=1).schedule()
    assert result.allocated_devices("a-0") == {"devices": ["node-0/gpu-0"]}
    assert result.allocated_devices("a-1") == {"devices": ["node-0/gpu-1"]}


def test_the_bind_names_the_allocation_of_every_claim_under_the_pods_own_names_gpu_d22() -> None:
    world = queued(devices(nodes=1, each=3)).device_claim("shared", count=2, queue="q")
    result = world.gang("a", template=1, shares=("shared",)).schedule()
    bind = result.binds["default/a-0"]
    said = {
        name: [(r.request, r.driver, r.pool, r.device) for r in given.devices.results] for name, given in bind.claims
    }
    assert said == {
        "shared": [("r", "gpu.example.com", "node-0", "gpu-0"), ("r", "gpu.example.com", "node-0", "gpu-1")],
        "devices": [("r", "gpu.example.com", "node-0", "gpu-2")],
    }
    selectors = [given.node_selector for _, given in bind.claims]
    assert all(s is not None and s.node_selector_terms[0].match_fields[0].values == ("node-0",) for s in selectors)
    assert bind.extended_claim is None


def test_a_node_without_enough_devices_does_not_fit_gpu_d10() -> None:
    world = queued(devices(nodes=1, each=2)).node("node-1").gang("old", on="node-0", template=1, given=("gpu-0",))
    result = world.gang("a", template=2).schedule()
    assert result.node_reasons("a") == {
        "node(s) didn't have enough resources: GPUs": 1,
        "cannot allocate all DRA claims": 1,
    }


def test_claims_of_one_pod_are_allocated_together_gpu_d10() -> None:
    world = queued(devices(nodes=2, each=2)).slice("node-2", 3).node("node-2")
    result = world.gang("a", template=[device_request(2), device_request(1, name="s")]).schedule()
    assert result.node_of("a-0") == "node-2"


def test_an_alternative_that_fits_is_enough_whatever_the_best_one_would_cost_gpu_d23() -> None:
    world = queued(devices(nodes=1, each=1))
    result = world.gang("a", template=[first_of(("gpu", 4), ("gpu", 1))]).schedule()
    assert result.allocated_devices("a-0") == {"devices": ["node-0/gpu-0"]}


def test_a_selector_that_fails_is_named_with_its_node_gpu_d10() -> None:
    world = queued(devices(nodes=1)).device_class("odd-gpu", 'device.attributes["x.io"].speed > 1')
    result = world.gang("a", template=[device_request(1, "odd-gpu")]).schedule()
    (reason,) = result.node_reasons("a")
    assert reason.startswith("cannot allocate DRA claims on node node-0: device gpu.example.com/node-0/gpu-0: ")


def test_an_incomplete_pool_is_named_gpu_d19() -> None:
    world = queued(cluster(nodes=1).device_class("gpu").slice("node-0", 2, of=2))
    reasons = world.gang("a", template=1).schedule().node_reasons("a")
    assert reasons == {"cannot allocate DRA claims on node node-0: pool node-0 of gpu.example.com has 1 of 2 slices": 1}


def test_a_pod_prefers_idle_devices_to_devices_still_held() -> None:
    """Devices of terminating pods can only be pipelined, so a node with idle devices is better (cycle:SCO-2)."""
    world = queued(devices(nodes=2, each=1)).gang("old", on="node-0", template=1, given=("gpu-0",), deleted=-30)
    result = world.gang("a", template=1).schedule()
    assert result.node_of("a-0") == "node-1"
    assert result.bound("a") == 1


def test_devices_that_are_being_released_are_pipelined() -> None:
    world = queued(devices(nodes=1, each=1)).gang("old", on="node-0", template=1, given=("gpu-0",), deleted=-30)
    result = world.gang("a", template=1).schedule()
    assert (result.bound("a"), result.pipelined("a")) == (0, 1)
    assert result.allocated_devices("a-0") == {"devices": ["node-0/gpu-0"]}


def test_gangs_with_claims_are_all_or_nothing() -> None:
    result = queued(devices(nodes=2, each=1)).gang("a", 3, template=1).gang("b", 2, template=1).schedule()
    assert (result.bound("a"), result.bound("b")) == (0, 2)


def test_devices_reached_from_all_nodes_are_given_once_in_the_cluster() -> None:
    """An allocation on one node changes what all others can allocate."""
    world = queued(cluster(nodes=3).device_class("gpu")).slice("", 2, pool="net", allNodes=True)
    result = world.gang("a", 2, template=1).gang("b", template=1).schedule()
    assert (result.bound("a"), result.bound("b")) == (2, 0)
    assert result.allocated_devices("a-0") != result.allocated_devices("a-1")


def test_a_node_whose_devices_are_allocated_is_no_longer_a_candidate() -> None:
    """The fullest and the emptiest node stay the same, so that only the changed row is scored again."""
    world = queued(devices(nodes=3, each=1)).gang("old", on="node-2", template=1, given=("gpu-0",), cpu=50)
    cycle = world.gang("a", template=1).gang("b", template=1).cycle()
    assert scores_of(cycle, "b-0").keys() == {"node-0", "node-1"}
    assert cycle.placer.place_gang(cycle.gangs.gang(cycle.context.snapshot.group_entries["default/a"]))
    assert scores_of(cycle, "b-0").keys() == {"node-1"}


def test_network_devices_held_by_terminating_pods_can_only_be_pipelined() -> None:
    world = queued(cluster(nodes=2).device_class("gpu")).slice("", 1, pool="net", allNodes=True)
    world.gang("old", on="node-0", template=1, given=("net/gpu-0",), deleted=-30)
    result = world.gang("a", template=1).schedule()
    assert (result.bound("a"), result.pipelined("a")) == (0, 1)


# Where dynamic resource allocation is switched off (gpu:D-2)


def test_without_the_plugin_pods_with_claims_wait_gpu_d2() -> None:
    world = queued(devices()).device_claim("c", queue="q").gang("a", shares=("c",), template=1).configured(OFF)
    assert waits_for(world.schedule(), "a") == (
        "pod default/a-0 cannot be scheduled, it references resource claims c, devices "
        "while dynamic resource allocation is not available in the cluster"
    )


def test_without_the_plugin_nodes_serve_only_their_allocatable_gpu_d2() -> None:
    """A device class behind nvidia.com/gpu must not make its node allocate more of it than exists."""
    world = queued(cluster(nodes=1, gpus=2).device_class("gpu", extendedResourceName="nvidia.com/gpu"))
    world.node("with-devices").slice("with-devices", 4).configured(OFF)
    result = world.gang("a", 3, min=1, gpu=1).schedule()
    assert result.nodes_used("a") == {"node-0": 2}


# Whose claims they are (gpu:D-5)

TEMPLATE = {"resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "t"}]}
MADE_AS = {"resource.kubernetes.io/pod-claim-name": "devices"}


def test_a_pod_whose_template_has_made_no_claim_yet_waits_gpu_d5() -> None:
    result = queued(devices()).gang("a", spec=TEMPLATE).schedule()
    assert waits_for(result, "a") == (
        "pod default/a-0 cannot be scheduled: no resource claim name found for pod default/a-0 and its claim devices"
    )


def test_a_claim_made_for_the_pod_is_found_by_its_owner_before_the_status_names_it_gpu_d5() -> None:
    world = queued(devices()).gang("a", spec=TEMPLATE)
    world.device_claim("a-0-x", owner="a-0", annotations=MADE_AS)
    assert world.schedule().allocated_devices("a-0") == {"devices": ["node-0/gpu-0"]}


@pytest.mark.parametrize(
    "other", [{"owner": "b-0"}, {"annotations": {"resource.kubernetes.io/pod-claim-name": "else"}}, {"namespace": "n"}]
)
def test_a_claim_made_for_something_else_is_not_the_pods_gpu_d5(other: dict[str, str]) -> None:
    world = queued(devices()).gang("a", spec=TEMPLATE)
    world.device_claim("a-0-x", **{"owner": "a-0", "annotations": MADE_AS, **other})  # type: ignore[arg-type]
    assert world.schedule().bound("a") == 0


def test_a_status_without_a_name_means_that_no_claim_is_needed_gpu_d5() -> None:
    world = queued(devices()).gang("a", spec=TEMPLATE)
    world.objects[-1]["status"]["resourceClaimStatuses"] = [{"name": "devices"}]
    result = world.schedule()
    assert result.bound("a") == 1
    assert result.allocated_devices("a-0") == {}


def test_a_claim_that_was_made_for_another_pod_cannot_be_used_gpu_d9() -> None:
    world = queued(devices()).device_claim("x", owner="somebody").gang("a", spec=TEMPLATE)
    world.objects[-1]["status"]["resourceClaimStatuses"] = [{"name": "devices", "resourceClaimName": "x"}]
    assert waits_for(world.schedule(), "a") == (
        "pod default/a-0 cannot be scheduled: resource claim default/x was not created for pod default/a-0"
    )


def test_a_claim_reserved_for_an_unknown_consumer_keeps_its_devices_gpu_d5() -> None:
    world = queued(devices(each=1)).device_claim("x", given=("gpu-0",), on="node-0", users=("ghost",))
    assert world.gang("a", template=1).schedule().bound("a") == 0


def test_an_unused_claim_keeps_its_devices_until_it_is_deallocated() -> None:
    world = queued(devices(each=1)).device_claim("x", given=("gpu-0",), on="node-0")
    assert world.gang("a", template=1).schedule().bound("a") == 0


def test_a_waiting_pod_whose_claim_has_devices_goes_where_they_are_gpu_d10() -> None:
    world = queued(devices(nodes=3)).gang("a", template=1)
    world.objects[-2]["status"] = {"allocation": allocation_of("node-1", "gpu-1")}
    result = world.schedule()
    assert result.node_of("a-0") == "node-1"
    assert result.allocated_devices("a-0") == {"devices": ["node-1/gpu-1"]}
    (written,) = result.binds["default/a-0"].claims
    assert written[1].devices.results[0].device == "gpu-1"


def test_a_node_that_cannot_reach_the_devices_of_a_claim_has_a_reason_gpu_d10() -> None:
    world = queued(devices(nodes=2)).device_claim("c", queue="q", given=("gpu-0",), on="node-1", users=("x",))
    result = world.gang("a", shares=("c",), spec={"nodeSelector": {"kubernetes.io/hostname": "node-0"}}).schedule()
    assert "claim default/c node selector does not match node" in result.node_reasons("a")


# Claims that cannot be used (gpu:D-9, T-91, T-92)


def refusal(world: Cluster) -> str:
    return waits_for(queued(world).gang("a", shares=("c",)).schedule(), "a")


def test_a_claim_must_exist_and_not_be_terminating_gpu_d9() -> None:
    cannot = "pod default/a-0 cannot be scheduled: "
    assert refusal(devices()) == f"{cannot}resource claim default/c does not exist"
    deleted = devices().device_claim("c", queue="q", deleted=True)
    assert refusal(deleted) == f"{cannot}resource claim default/c is being deleted"


def test_its_device_class_must_exist_gpu_d9() -> None:
    world = devices().device_claim("c", of="no-gpu", queue="q")
    assert refusal(world).endswith("device class no-gpu does not exist for claim default/c request r")


def test_a_claim_that_has_devices_needs_no_class_any_more_gpu_d9() -> None:
    world = queued(devices()).device_claim("c", of="gone-gpu", queue="q", given=("gpu-1",), on="node-0", users=("x",))
    assert world.gang("a", shares=("c",)).schedule().bound("a") == 1


def test_a_shared_claim_of_gpus_names_its_queue_gpu_t91() -> None:
    cannot = "pod default/a-0 cannot be scheduled: DRA claim c is a shared GPU claim "
    missing = refusal(devices().device_claim("c"))
    assert missing == f"{cannot}but does not have a queue label (kai.scheduler/queue)"
    wrong = refusal(devices().device_claim("c", queue="other"))
    assert wrong == f"{cannot}with wrong queue label (expected queue: q, claim queue label: other)"
    right = queued(devices()).device_claim("c", queue="q").gang("a", shares=("c",)).schedule()
    assert right.bound("a") == 1


def test_the_label_matters_neither_for_templates_nor_for_other_devices_gpu_t91() -> None:
    world = queued(devices()).device_class("nic").device_claim("c", of="nic")
    assert world.gang("a", shares=("c",), template=1).schedule().bound("a") == 1


def test_two_queues_that_name_one_claim_are_judged_apart_gpu_d9() -> None:
    """Equal requests share their failures, but only within one queue."""
    world = devices(each=4).queue("p").queue("q").device_claim("c", queue="q")
    result = world.gang("a", shares=("c",), queue="p", age=2e6).gang("b", shares=("c",)).schedule()
    assert (result.bound("a"), result.bound("b")) == (0, 1)


def test_a_claim_with_256_users_takes_no_more_gpu_t92() -> None:
    for users, bound in ((255, 1), (256, 0)):
        names = tuple(f"u{n}" for n in range(users))
        world = queued(devices()).device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=names)
        result = world.gang("a", shares=("c",)).schedule()
        assert result.bound("a") == bound
        if not bound:
            assert (
                waits_for(result, "a") == "resource claim default/c has reached its maximum number of consumers (256)"
            )


def test_the_256th_user_of_this_cycle_is_the_last_gpu_d9() -> None:
    names = tuple(f"u{n}" for n in range(254))
    world = queued(devices()).device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=names)
    assert world.gang("a", 4, min=1, shares=("c",)).schedule().bound("a") == 2


def test_pods_a_full_claim_is_reserved_for_may_use_it_gpu_d9() -> None:
    names = ("a-0", *(f"u{n}" for n in range(255)))
    world = queued(devices()).device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=names)
    result = world.gang("b", shares=("c",), age=2e6).gang("a", shares=("c",)).schedule()
    assert (result.bound("a"), result.bound("b")) == (1, 0)


def test_a_terminating_pod_counts_among_the_users_until_it_is_gone_gpu_d9() -> None:
    names = ("old-0", *(f"u{n}" for n in range(255)))
    world = queued(devices()).device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=names)
    world.gang("old", on="node-0", shares=("c",), deleted=-30)
    result = world.gang("a", shares=("c",)).schedule()
    assert (result.bound("a"), result.pipelined("a")) == (0, 1)


def test_administrative_access_needs_a_labelled_namespace() -> None:
    look = [device_request(1, adminAccess=True)]
    world = queued(devices(each=1)).gang("old", on="node-0", template=1, given=("gpu-0",))
    world.namespace("admin", **{"resource.kubernetes.io/admin-access": "true"})
    world.gang("a", template=look).gang("b", template=look, namespace="admin")
    result = world.schedule()
    assert waits_for(result, "a").endswith("requests administrative access, which needs a label on the namespace")
    assert result.bound("b", "admin") == 1
    assert result.binds["admin/b-0"].claims[0][1].devices.results[0].admin_access


def test_administrative_access_leaves_devices_free_for_others() -> None:
    world = queued(devices(each=1)).namespace("admin", **{"resource.kubernetes.io/admin-access": "true"})
    world.gang("look", template=[device_request(1, adminAccess=True)], namespace="admin", age=2e6)
    assert world.gang("a", template=1).schedule().bound("a") == 1


# Claims that several pods share


def test_pods_that_share_a_claim_share_its_devices_on_one_node() -> None:
    world = queued(devices(nodes=3, each=2)).device_claim("c", count=2, queue="q")
    result = world.gang("a", 3, shares=("c",)).schedule()
    assert len(result.nodes_used("a")) == 1
    assert result.allocated_devices("a-0") == result.allocated_devices("a-2")


def test_a_claim_named_twice_is_given_once_and_costs_once() -> None:
    twice = [{"name": name, "resourceClaimName": "c"} for name in ("one", "two")]
    world = queued(devices(each=3), quota=1, limit=1).device_claim("c", queue="q")
    result = world.gang("a", spec={"resourceClaims": twice}).gang("b", template=2, queue="p").queue("p").schedule()
    assert (result.bound("a"), result.bound("b")) == (1, 1)
    said = [(name, given.devices.results[0].device) for name, given in result.binds["default/a-0"].claims]
    assert [name for name, _ in said] == ["one", "two"]
    assert len({device for _, device in said}) == 1


@pytest.mark.parametrize("cpu", [2, 1], ids=["starts now", "waits for a leaver"])
def test_the_devices_of_a_shared_claim_are_not_given_to_the_pods_other_claims(cpu: int) -> None:
    """Its only user terminates, so they could be pipelined; but the pod itself keeps using them."""
    world = queued(devices(each=2, cpu=cpu)).device_claim(
        "c", queue="q", given=("gpu-0",), on="node-0", users=("old-0",)
    )
    world.gang("old", on="node-0", shares=("c",), deleted=-30)
    result = world.gang("a", shares=("c",), template=1).schedule()
    assert result.allocated_devices("a-0") == {"c": ["node-0/gpu-0"], "devices": ["node-0/gpu-1"]}


def test_a_claim_whose_devices_are_pipelined_to_others_cannot_be_joined() -> None:
    world = queued(devices(each=1)).device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=("old-0",))
    world.gang("old", on="node-0", shares=("c",), deleted=-30)
    result = world.gang("first", template=1, age=2e6).gang("a", shares=("c",)).schedule()
    assert result.pipelined("first") == 1
    assert result.node_of("a-0") == ""


def test_devices_of_a_shared_claim_cost_every_queue_but_the_node_only_once_cycle_tsk6() -> None:
    world = queued(devices(each=3), quota=2, limit=2).device_claim("c", queue="q")
    result = world.gang("a", 3, min=1, shares=("c",)).schedule()
    assert result.bound("a") == 2
    state = result.cycle.state
    axis = result.cycle.context.snapshot.axes.index["resource.k8s.io/gpu"]
    assert state.columns[:, axis, 0].tolist() == [2, 0, 2, 1]


# What claims cost (gpu:D-7)


@pytest.mark.parametrize(("limit", "bound"), [(1, 0), (2, 1)])
def test_a_claim_that_calls_itself_synthetic_costs_what_it_requests_gpu_d4(limit: int, bound: int) -> None:
    """A tenant writes annotations of its claims; a claim that a pod names is a request of the pod."""
    notes = {"resource.kubernetes.io/extended-resource-claim": "true"}
    world = queued(devices(each=3), quota=limit, limit=limit).device_claim("c", count=2, queue="q", annotations=notes)
    assert world.gang("a", shares=("c",)).schedule().bound("a") == bound


def test_gpus_of_claims_count_against_the_limit_of_the_queue_gpu_d7() -> None:
    result = queued(devices(each=4), quota=1, limit=3).gang("a", 2, min=1, template=2).schedule()
    assert result.bound("a") == 1


def test_gpus_of_claims_count_against_the_non_preemptible_quota_gpu_d7() -> None:
    result = queued(devices(each=4), quota=1).gang("a", template=2, preemptible=False).schedule()
    assert result.bound("a") == 0


def test_devices_of_other_classes_cost_no_gpus_gpu_d7() -> None:
    world = queued(devices(each=4), quota=0, limit=0).device_class("nic")
    assert world.gang("a", template=[device_request(2, "nic")]).schedule().bound("a") == 1


def test_gpus_of_slices_are_shared_fairly_gpu_d7() -> None:
    world = devices(nodes=1, each=4).queue("p", quota=2).queue("q", quota=2)
    result = world.gang("a", 4, min=1, template=1, queue="p").gang("b", 4, min=1, template=1).schedule()
    assert (result.bound("a"), result.bound("b")) == (2, 2)


def test_more_gpus_than_any_node_has_are_reported_at_once_gpu_d7() -> None:
    """No eviction helps, so no victims are searched (cycle:FLT-7)."""
    result = queued(devices(nodes=2, each=2)).gang("a", template=3).with_actions("allocate", "preempt").schedule()
    refusal = result.no_place("a")
    assert refusal.unresolvable
    assert refusal.base.endswith(
        "MaxNodePoolResources: The pod {pod} requires GPU: 3, CPU: 1 (cores), memory: 1.073 (GB). "
        "Max GPU resources available in a single node in the default node-pool is topped at 2.\n"
    )


def test_gpus_of_claims_where_no_node_has_any_are_reported_at_once_gpu_d7() -> None:
    result = queued(cluster(nodes=1).device_class("gpu")).gang("a", template=1).schedule()
    assert "No node in the default node-pool has GPU resources" in result.no_place("a").base


def test_devices_that_may_come_from_elsewhere_are_not_too_many_for_a_node_gpu_d7() -> None:
    world = queued(devices(nodes=1, each=2)).slice("", 2, pool="net", allNodes=True)
    assert world.gang("a", template=4).schedule().bound("a") == 1


# What BindRequests promise (gpu:D-8, T-96)


def binding(devices_of: tuple[str, ...], **more: object) -> Cluster:
    world = queued(devices(nodes=1, each=2)).gang("old", template=1)
    return world.bind_request("old-0", "node-0", claims={"devices": allocation_of("node-0", *devices_of)})


def test_devices_of_a_bind_request_are_in_use_gpu_d8() -> None:
    result = binding(("gpu-0",)).gang("a", template=1).schedule()
    assert result.allocated_devices("a-0") == {"devices": ["node-0/gpu-1"]}
    state = result.cycle.state
    axis = result.cycle.context.snapshot.axes.index["resource.k8s.io/gpu"]
    assert state.idle[axis, 0] == 0


def test_the_status_of_the_claim_goes_before_the_bind_request_gpu_t96() -> None:
    world = binding(("gpu-0",))
    claim = next(raw for raw in world.objects if raw["kind"] == "ResourceClaim")
    claim["status"] = {"allocation": allocation_of("node-0", "gpu-1"), "reservedFor": [{"uid": "old-0"}]}
    assert world.gang("a", template=1).schedule().allocated_devices("a-0") == {"devices": ["node-0/gpu-0"]}


def test_a_bind_request_for_an_unknown_claim_counts_gpu_t96() -> None:
    world = queued(devices(nodes=1, each=3)).gang("old", 2, spec=TEMPLATE)
    for number in range(2):
        given = {"devices": allocation_of("node-0", f"gpu-{number}")}
        world.bind_request(f"old-{number}", "node-0", claims=given)
    assert world.gang("a", template=1).schedule().allocated_devices("a-0") == {"devices": ["node-0/gpu-2"]}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing_by_its_bind_request_gpu_d8(phase: str) -> None:
    world = queued(devices(nodes=1, each=1)).gang("old", template=1, phase=phase)
    world.bind_request("old-0", "node-0", claims={"devices": allocation_of("node-0", "gpu-0")})
    assert world.gang("a", template=1).schedule().bound("a") == 1


def test_of_two_bind_requests_for_one_claim_the_first_pod_by_name_counts() -> None:
    """Whatever was read last."""
    world = queued(devices(nodes=1, each=3)).device_claim("c", queue="q")
    for name, device in (("x", "gpu-0"), ("y", "gpu-1")):
        world.gang(name, shares=("c",))
        world.bind_request(f"{name}-0", "node-0", claims={"c": allocation_of("node-0", device)})
    world.gang("a", template=1)
    given = []
    for order in (("x-0", "y-0"), ("y-0", "x-0")):
        tables = world.tables()
        tables.snapshot(NOW_NS)
        pods = {raw["metadata"]["name"]: raw for raw in world.objects if raw["kind"] == "Pod"}
        for pod in order:
            tables.remove("Pod", "default", pod)
            tables.apply(decode_object(pods[pod]))
        cycle = open_cycle(tables.snapshot(NOW_NS), world.policy())
        run_actions(cycle)
        given.append(cycle.decisions.binds["default/a-0"].claims[0][1].devices.results[0].device)
    assert given == ["gpu-1", "gpu-1"]


def test_an_unknown_pod_still_holds_its_devices() -> None:
    world = queued(devices(each=1)).gang("old", on="node-0", template=1, given=("gpu-0",), phase="Odd")
    assert world.gang("a", template=1).schedule().bound("a") == 0


def test_a_stuck_pod_releases_nothing() -> None:
    world = queued(devices(each=1)).gang("old", on="node-0", template=1, given=("gpu-0",), deleted=100_000)
    result = world.gang("a", template=1).schedule()
    assert result.cycle.context.snapshot.task_records["default/old-0"].status is TaskStatus.STUCK_IN_RELEASING
    assert result.node_of("a-0") == ""


# Clusters that are not as they should be


def test_a_device_already_in_two_claims_is_given_to_no_third_and_is_harmless() -> None:
    world = queued(devices(each=2))
    for name in ("x", "y"):
        world.gang(name, on="node-0", template=1, given=("gpu-0",))
    result = world.gang("a", 2, min=1, template=1).schedule()
    assert result.allocated_devices("a-0") == {"devices": ["node-0/gpu-1"]}
    assert result.bound("a") == 1


def test_a_claim_may_have_a_device_that_no_slice_offers_any_more() -> None:
    world = queued(devices(each=1)).gang("old", on="node-0", template=1, given=("gpu-7",))
    assert world.gang("a", template=1).schedule().bound("a") == 1


def test_a_pod_may_run_without_its_claim_having_anything() -> None:
    world = queued(devices(each=1)).gang("old", on="node-0", template=1)
    assert world.gang("a", template=1).schedule().bound("a") == 1


def test_a_reservation_without_devices_holds_none_and_counts_among_the_users() -> None:
    world = queued(devices(each=1)).device_claim("c", queue="q", users=("ghost",))
    result = world.gang("a", shares=("c",)).gang("b", template=1).schedule()
    assert (result.bound("a"), result.bound("b")) == (1, 0)
    names = tuple(f"u{n}" for n in range(256))
    full = queued(devices(each=1)).device_claim("c", queue="q", users=names).gang("a", shares=("c",)).schedule()
    assert "maximum number of consumers" in waits_for(full, "a")
