"""Reservation pods: gpu:8.4, T-64 to T-67, T-70 to T-72, and what holds or ends them, gpu:8.7, T-68, T-69."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from pykai.api import names
from pykai.api.sharing import reservation_name
from pykai.binder.options import BinderOptions, read_options
from pykai.kube.resources import BIND_REQUESTS, NODES, PODS
from pykai.kube.transport import Request, Response
from tests.services.binder.bindercluster import RESERVATIONS, BinderCluster, binder_cluster, status

GROUP = "g"
NAME = reservation_name("n1", GROUP)


async def reservation(
    it: BinderCluster, *, node: str = "n1", group: str = GROUP, gpu: str = "", **metadata: Any
) -> None:
    """A reservation pod that an earlier binder made."""
    annotations = {names.RESERVED_GPU_ANNOTATION: gpu} if gpu else {}
    labels = {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group}
    name = reservation_name(node, group)
    document = {
        "metadata": {"name": name, "namespace": RESERVATIONS, "labels": labels, "annotations": annotations, **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }
    await it.client.create(PODS, document)


async def tenant(it: BinderCluster, name: str, phase: str, *, group: str = GROUP, node: str = "n1") -> None:
    """A pod that shares the GPU of a group."""
    await it.pod(name, labels={names.GPU_GROUP_LABEL: group}, nodeName=node)
    if phase != "Pending":
        await it.set_phase(name, phase)


async def looked(it: BinderCluster) -> None:
    """Wait until the binder has processed everything before: it binds one more pod."""
    await it.request(await it.pod("witness"))
    await it.until_phase("Succeeded", "witness")


def test_the_name_follows_from_node_and_group() -> None:
    assert reservation_name("n1", "g") == "gpu-reservation-" + hashlib.sha256(b"n1/g").digest()[:8].hex()


async def test_a_reservation_pod_is_what_the_kubelet_and_karpenter_need() -> None:
    options = read_options(
        {
            "resource-reservation-pod-resources": '{"requests": {"cpu": "1m", "nvidia.com/gpu": "5"}, "limits": {}}',
            "resource-reservation-container-security-context": '{"runAsUser": 1}',
            "runtime-class-name": "nvidia",
        }
    )
    async with binder_cluster() as it, it.working(options):
        taints = [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}]
        await it.request(await it.pod(fraction="0.5", tolerations=taints), groups=(GROUP,))
        await it.until_phase("Succeeded")
        (held,) = await it.reservations()
        assert held["metadata"]["labels"] == {"app": "kai-resource-reservation", "runai-gpu-group": GROUP}
        assert held["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
        spec = held["spec"]
        assert spec["nodeName"] == "n1"
        assert taints[0] in spec["tolerations"]
        assert spec["runtimeClassName"] == "nvidia"
        (container,) = spec["containers"]
        assert container["resources"]["requests"] == {"cpu": "1m", "nvidia.com/gpu": "1"}
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert container["securityContext"] == {"runAsUser": 1}
        assert [entry["name"] for entry in container["env"]] == ["POD_NAME", "POD_NAMESPACE"]
        assert (await it.live())["metadata"]["labels"] == {"runai-gpu-group": GROUP}


async def test_t64_a_reservation_that_is_there_is_used() -> None:
    async with binder_cluster() as it:
        it.answers = False
        await reservation(it, gpu="GPU-4")
        await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
        async with it.working() as binder:
            await it.until_phase("Succeeded")
            assert binder.count("reservation_wait_seconds_count") == 1
        assert len(await it.reservations()) == 1
        assert (await it.config_maps())["p-xxxxxxx-shared-gpu-0"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-4"


async def test_a_bind_waits_for_a_reservation_without_its_gpu() -> None:
    async with binder_cluster() as it:
        it.answers = False
        await reservation(it)
        await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
        async with it.working():
            await looked(it)
            await it.annotate_reservation(NAME, "GPU-9")
            await it.until_phase("Succeeded")
        assert (await it.config_maps())["p-xxxxxxx-shared-gpu-0"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-9"


async def test_a_terminating_reservation_is_not_used() -> None:
    async with binder_cluster() as it:
        it.answers = False
        await reservation(it, gpu="GPU-old")
        await it.client.delete(PODS, NAME, RESERVATIONS)
        await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
        it.answers = True
        async with it.working():
            await looked(it)
            assert (await it.get(PODS, NAME, RESERVATIONS) or {})["metadata"]["deletionTimestamp"]
            await it.client.delete(PODS, NAME, RESERVATIONS, grace_s=0)
            await it.until_phase("Succeeded")
        assert (await it.config_maps())["p-xxxxxxx-shared-gpu-0"]["NVIDIA_VISIBLE_DEVICES"] != "GPU-old"


async def test_a_finished_reservation_is_replaced() -> None:
    async with binder_cluster() as it:
        it.answers = False
        await reservation(it, gpu="GPU-old")
        await it.set_phase(NAME, "Failed", RESERVATIONS)
        it.answers = True
        await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
        async with it.working():
            await it.until_phase("Succeeded")
        assert (await it.config_maps())["p-xxxxxxx-shared-gpu-0"]["NVIDIA_VISIBLE_DEVICES"] != "GPU-old"


async def test_two_pods_of_one_group_share_one_reservation() -> None:
    async with binder_cluster() as it, it.working():
        for name in ("a", "b"):
            await it.request(await it.pod(name, fraction="0.5"), groups=(GROUP,))
        for name in ("a", "b"):
            await it.until_phase("Succeeded", name)
        assert len(await it.reservations()) == 1
        shown = {data["NVIDIA_VISIBLE_DEVICES"] for data in (await it.config_maps()).values() if data}
        assert shown == {"GPU-1"}


async def test_t66_a_reservation_that_never_knows_its_gpu_is_deleted_and_the_bind_fails() -> None:
    async with binder_cluster(speed=1000) as it:
        it.answers = False
        async with it.working() as binder:
            await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
            failed = await it.until_phase("Failed")
            text = f"failed waiting for GPU reservation pod to allocate: kai-resource-reservation/{NAME}"
            assert failed["status"]["reason"] == text
            await it.until_reservations(0)
            assert binder.count("bind_failures_total", reason="reservation") == 1
        pod = await it.live()
        assert "nodeName" not in pod["spec"]
        assert names.GPU_GROUP_LABEL not in pod["metadata"].get("labels", {})
        assert await it.config_maps() == {}


async def test_a_reservation_that_the_kubelet_rejects_fails_at_once() -> None:
    async with binder_cluster() as it:
        it.answers = False
        async with it.working():
            await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
            await it.until_reservations(1)
            rejected = {"status": {"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "no GPU left"}}
            await it.client.patch(PODS, NAME, rejected, RESERVATIONS, subresource="status")
            failed = await it.until_phase("Failed")
            assert "no GPU left" in failed["status"]["reason"]
            await it.until_reservations(0)


async def test_a_node_deleted_while_a_pod_waits_for_its_gpu_fails_the_bind() -> None:
    async with binder_cluster() as it:
        it.answers = False
        async with it.working():
            await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
            await it.until_reservations(1)
            await it.client.delete(NODES, "n1")
            failed = await it.until_phase("Failed")
            assert failed["status"]["reason"] == "node n1 is gone"
            await it.until_reservations(0)


@pytest.mark.parametrize(("selector", "phase"), [({}, "Failed"), ({"pool": "other"}, "Succeeded")])
async def test_t65_nothing_is_reserved_on_nodes_a_scaling_pod_waits_for(selector: dict[str, str], phase: str) -> None:
    async with binder_cluster() as it, it.working():
        scaling = {
            "metadata": {"name": "s", "namespace": names.SCALE_ADJUST_NAMESPACE},
            "spec": {"nodeSelector": selector, "containers": [{"name": "c", "image": "i"}]},
        }
        await it.client.create(PODS, scaling)
        unscheduled = {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}
        await it.client.patch(PODS, "s", unscheduled, names.SCALE_ADJUST_NAMESPACE, subresource="status")
        await looked(it)
        await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
        request = await it.until_phase(phase)
        if phase == "Failed":
            assert request["status"]["reason"] == "cluster is scaling up, could not create reservation pod"
            assert await it.reservations() == []


async def test_t67_when_the_pod_cannot_be_labelled_the_reservation_is_given_up() -> None:
    async with binder_cluster() as it, it.working() as binder:

        def fault(request: Request) -> Response | None:
            labelling = request.method == "PATCH" and request.path.endswith("/pods/p")
            return status(403, "Forbidden", "no") if labelling and b'"labels"' in (request.body or b"") else None

        binder.transport.fault = fault
        await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"] == "failed to label pod ns/p: no"
        await it.until_reservations(0)


async def test_t68_an_unused_reservation_is_deleted_and_one_in_use_stays() -> None:
    async with binder_cluster() as it:
        it.answers = False
        for group in ("lone", "running", "starting", "finished"):
            await reservation(it, group=group, gpu=f"GPU-{group}")
        await tenant(it, "r", "Running", group="running")
        await tenant(it, "s", "Pending", group="starting")
        await tenant(it, "f", "Succeeded", group="finished")
        async with it.working() as binder:
            await it.until_reservations(2)
            await looked(it)
            left = {held["metadata"]["labels"][names.GPU_GROUP_LABEL] for held in await it.reservations()}
            assert left == {"running", "starting"}
            assert binder.count("orphan_reservations_deleted_total") == 2


async def test_the_reservation_is_deleted_with_its_last_tenant() -> None:
    async with binder_cluster() as it, it.working():
        for name in ("a", "b"):
            await it.request(await it.pod(name, fraction="0.5", devices=2), groups=("g1", "g2"))
            await it.until_phase("Succeeded", name)
            await it.set_phase(name, "Running")
        await it.set_phase("a", "Succeeded")
        await looked(it)
        assert len(await it.reservations()) == 2
        await it.client.delete(PODS, "b", "ns", grace_s=0)
        await it.until_reservations(0)


async def test_t68_a_running_pod_without_its_reservation_is_deleted_with_an_event_and_a_starting_one_is_not() -> None:
    async with binder_cluster() as it:
        await tenant(it, "r", "Running")
        await tenant(it, "s", "Pending", group="other")
        async with it.working() as binder:

            async def leaving() -> bool:
                pod = await it.get(PODS, "r")
                return pod is None or "deletionTimestamp" in pod["metadata"]

            await it.until(leaving)
            await looked(it)
            assert "deletionTimestamp" not in (await it.live("s"))["metadata"]
            assert binder.count("pods_deleted_missing_reservation_total") == 1
            await binder.service.recorder.flush()
            (event,) = await it.events(names.EVENT_RESERVATION_MISSING)
            assert event["involvedObject"]["name"] == "r"


@pytest.mark.parametrize(("phase", "kept"), [("", True), ("Pending", True), ("Failed", False)])
async def test_t69_an_open_request_keeps_its_reservation(phase: str, kept: bool) -> None:
    async with binder_cluster() as it:
        it.answers = False
        await reservation(it)
        await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
        if phase:
            told = {"status": {"phase": phase, "failedAttempts": 1}}
            await it.client.patch(BIND_REQUESTS, "p", told, "ns", subresource="status")
        async with it.working():
            await looked(it)
            if not kept:
                await it.until_reservations(0)
            assert len(await it.reservations()) == kept


async def test_t72_labels_that_an_interrupted_attempt_left_are_taken_off_and_others_stay() -> None:
    async with binder_cluster() as it:
        it.answers = False
        await reservation(it, gpu="GPU-1")
        left = {names.GPU_GROUP_LABEL_PREFIX + GROUP: GROUP, names.GPU_GROUP_LABEL_PREFIX + "h": "h", "mine": "1"}
        await it.pod(labels=left)
        async with it.working():
            await it.until_reservations(0)

            async def clean() -> bool:
                labels: dict[str, str] = (await it.live())["metadata"]["labels"]
                return labels == {"mine": "1"}

            await it.until(clean)


async def test_labels_of_an_earlier_attempt_are_replaced_by_those_of_this_one() -> None:
    """At once: a pod that is bound with the label of another group would be deleted for the reservation it lacks."""
    async with binder_cluster() as it, it.working() as binder:

        def no_cleanup(request: Request) -> Response | None:
            """The cleanup of stale labels names the version it has read."""
            cleans = request.path.endswith("/pods/p") and b'"resourceVersion"' in (request.body or b"")
            return status(409, "Conflict") if cleans else None

        binder.transport.fault = no_cleanup
        await it.request(
            await it.pod(fraction="0.5", labels={names.GPU_GROUP_LABEL_PREFIX + "old": "old"}), groups=(GROUP,)
        )
        await it.until_phase("Succeeded")
        assert (await it.live())["metadata"]["labels"] == {names.GPU_GROUP_LABEL: GROUP}


async def test_t70_two_binders_make_one_reservation_and_bind_once() -> None:
    async with binder_cluster() as it, it.working() as one, it.working() as two:
        for name in ("a", "b", "c"):
            await it.request(await it.pod(name, fraction="0.3"), groups=(GROUP,))
        for name in ("a", "b", "c"):
            await it.until_phase("Succeeded", name)
            assert (await it.live(name))["spec"]["nodeName"] == "n1"
            assert (await it.live(name))["metadata"]["labels"] == {names.GPU_GROUP_LABEL: GROUP}
        assert len(await it.reservations()) == 1
        assert len(await it.config_maps()) == 6
        assert one.count("bind_attempts_total") + two.count("bind_attempts_total") >= 3


async def test_a_pod_that_is_deleted_while_it_waits_for_its_gpu_leaves_nothing() -> None:
    async with binder_cluster() as it:
        it.answers = False
        async with it.working():
            await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
            await it.until_reservations(1)
            await it.client.delete(PODS, "p", "ns")
            await it.until_reservations(0)


async def test_a_request_that_is_withdrawn_while_its_pod_waits_leaves_the_pod_as_it_was() -> None:
    async with binder_cluster() as it:
        it.answers = False
        async with it.working():
            await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
            await it.until_reservations(1)
            await it.client.delete(BIND_REQUESTS, "p", "ns")
            await it.until_reservations(0)
            await looked(it)
            pod = await it.live()
            assert "nodeName" not in pod["spec"]
            assert not pod["metadata"].get("labels")


async def test_a_request_that_is_withdrawn_right_before_the_bind_is_not_carried_out() -> None:
    async with binder_cluster() as it, it.working() as binder:
        tasks: list[asyncio.Task[None]] = []

        def fault(request: Request) -> None:
            # The last write before the bind: the request goes while the ConfigMaps are made.
            if request.method == "POST" and request.path.endswith("/configmaps") and not tasks:
                tasks.append(asyncio.ensure_future(it.client.delete(BIND_REQUESTS, "p", "ns")))

        binder.transport.fault = fault
        await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
        await it.until_reservations(1)
        await it.until_reservations(0)
        pod = await it.live()
        assert "nodeName" not in pod["spec"]
        assert await it.config_maps() == {}
        assert not pod["metadata"].get("labels")


async def test_a_reservation_deleted_right_before_the_bind_fails_it() -> None:
    async with binder_cluster() as it, it.working(BinderOptions()) as binder:
        tasks: list[asyncio.Task[None]] = []

        def fault(request: Request) -> None:
            if request.method == "POST" and request.path.endswith("/configmaps") and not tasks:
                tasks.append(asyncio.ensure_future(it.client.delete(PODS, NAME, RESERVATIONS, grace_s=0)))

        binder.transport.fault = fault
        await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"] == f"GPU reservation pod {NAME} was deleted on the way"
        assert await it.config_maps() == {}
        assert "nodeName" not in (await it.live())["spec"]


async def test_a_group_that_lost_its_gpu_gets_no_other_while_pods_run_on_the_first() -> None:
    async with binder_cluster() as it, it.working() as binder:
        await it.request(await it.pod("first", fraction="0.3"), groups=(GROUP,))
        await it.until_phase("Succeeded", "first")
        await it.client.delete(PODS, NAME, RESERVATIONS, grace_s=0)
        await it.request(await it.pod("second", fraction="0.3"), groups=(GROUP,))
        failed = await it.until_phase("Failed", "second")
        assert failed["status"]["reason"] == f"GPU group {GROUP} has lost its GPU and is still in use"
        assert binder.count("pods_deleted_missing_reservation_total") == 0, "it has not started yet"
        await it.set_phase("first", "Running")

        async def leaving() -> bool:
            return "deletionTimestamp" in (await it.live("first"))["metadata"]

        await it.until(leaving)


@pytest.mark.parametrize("when", ["before", "while"])
async def test_a_reservation_that_failed_while_unused_is_deleted(when: str) -> None:
    """Watches of other services leave failed pods out; only the binder removes it."""
    async with binder_cluster() as it:
        it.answers = False
        await reservation(it, gpu="")
        await tenant(it, "s", "Pending")
        if when == "before":
            await it.set_phase(reservation_name("n1", GROUP), "Failed", RESERVATIONS)
        async with it.working():
            if when == "while":
                await it.set_phase(reservation_name("n1", GROUP), "Failed", RESERVATIONS)
            await it.until_reservations(0)


async def test_more_groups_than_the_node_has_gpus_reserve_nothing() -> None:
    async with binder_cluster() as it, it.working():
        await it.request(await it.pod(fraction="0.5"), groups=tuple(f"g{at}" for at in range(9)))
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"] == "9 GPUs are to be shared on node n1, which has 8"
        assert await it.reservations() == []


async def test_a_node_without_gpus_gets_no_reservation() -> None:
    async with binder_cluster() as it, it.working():
        await it.client.create(NODES, {"metadata": {"name": "bare"}, "status": {"allocatable": {"cpu": "8"}}})
        await it.request(await it.pod(fraction="0.5"), "bare", groups=(GROUP,))
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"] == "1 GPUs are to be shared on node bare, which has 0"
        assert await it.reservations() == []
