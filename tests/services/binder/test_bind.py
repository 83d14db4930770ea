"""Carrying out BindRequests: gpu:8.2, 8.3, 17, T-60, T-61, T-63, T-77."""

from __future__ import annotations

import asyncio
import json

from pykai.api import names
from pykai.api.sharing import reservation_name
from pykai.api.unstructured import JsonObject
from pykai.kube.resources import BIND_REQUESTS, PODS
from tests.services.binder.bindercluster import (
    binder_cluster,
)


def condition(pod: JsonObject, kind: str) -> JsonObject:
    found: JsonObject = next(c for c in pod["status"]["conditions"] if c["type"] == kind)
    return found


async def test_a_whole_gpu_pod_is_bound_with_an_event() -> None:
    async with binder_cluster() as it, it.working():
        await it.request(await it.pod())
        await it.until_phase("Succeeded")
        pod = await it.live()
        assert pod["spec"]["nodeName"] == "n1"
        assert pod["metadata"]["annotations"][names.RECEIVED_TYPE_ANNOTATION] == "Regular"
        told = condition(pod, names.CONDITION_POD_BOUND)
        assert (told["status"], told["reason"]) == ("True", "Bound")
        assert told["message"] == "Pod bound successfully to node n1"
        assert await it.reservations() == []
        assert await it.config_maps() == {}


async def test_the_golden_pod_of_two_halves() -> None:
    async with binder_cluster() as it, it.working() as binder:
        await it.request(await it.pod(fraction="0.5", devices=2), groups=("a", "b"))
        await it.until_phase("Succeeded")
        pod = await it.live()
        assert pod["spec"]["nodeName"] == "n1"
        assert pod["metadata"]["labels"] == {"runai-gpu-group/a": "a", "runai-gpu-group/b": "b"}
        assert pod["metadata"]["annotations"][names.RECEIVED_TYPE_ANNOTATION] == "Fraction"
        held = {each["metadata"]["name"]: each for each in await it.reservations()}
        assert set(held) == {reservation_name("n1", "a"), reservation_name("n1", "b")}
        gpus = [
            held[reservation_name("n1", group)]["metadata"]["annotations"][names.RESERVED_GPU_ANNOTATION]
            for group in ("a", "b")
        ]
        assert await it.config_maps() == {
            "p-xxxxxxx-shared-gpu-0": {
                "NVIDIA_VISIBLE_DEVICES": ",".join(gpus),
                "GPU_PORTION": "0.50",
                "RUNAI_NUM_OF_GPUS": "0.50",
            },
            "p-xxxxxxx-shared-gpu-0-evar": {},
        }
        assert binder.count("bind_attempts_total") == 1


async def test_t61_a_pod_that_is_bound_already_is_left_where_it_is() -> None:
    async with binder_cluster() as it:
        await it.node("n2")
        pod = await it.pod()
        await it.client.bind("ns", "p", uid=pod["metadata"]["uid"], node="n2")
        await it.request(pod, "n1")
        async with it.working() as binder:
            await it.until_phase("Succeeded")
            assert not [write for write in binder.transport.writes if write.endswith("/binding")]
        assert (await it.live())["spec"]["nodeName"] == "n2"


async def test_t60_a_missing_node_is_a_failure_with_an_event_on_the_pod() -> None:
    async with binder_cluster() as it, it.working() as binder:
        await it.request(await it.pod(), "nowhere")
        request = await it.until_phase("Failed")
        assert request["status"]["reason"] == "node nowhere not found"
        assert request["status"]["failedAttempts"] == 1

        async def told() -> bool:
            return any(
                c["type"] == names.CONDITION_POD_BOUND for c in (await it.live())["status"].get("conditions", ())
            )

        await it.until(told)
        verdict = condition(await it.live(), names.CONDITION_POD_BOUND)
        assert (verdict["status"], verdict["reason"]) == ("False", "BindingError")
        assert verdict["message"] == "Failed to bind pod ns/p to node nowhere: node nowhere not found"
        assert binder.count("bind_failures_total", reason="node") == 1
        await binder.service.recorder.flush()
        assert [event["type"] for event in await it.events(names.EVENT_BINDING_ERROR)] == ["Warning"]


async def test_a_failed_request_without_retries_is_not_tried_again() -> None:
    async with binder_cluster() as it:
        request = await it.request(await it.pod())
        failed = {"status": {"phase": "Failed", "reason": "before", "failedAttempts": 1}}
        await it.client.patch(BIND_REQUESTS, request["metadata"]["name"], failed, "ns", subresource="status")
        async with it.working() as binder:
            await it.request(await it.pod("other"))
            await it.until_phase("Succeeded", "other")
            assert binder.count("bind_attempts_total") == 1
        assert "nodeName" not in (await it.live())["spec"]


async def test_every_attempt_is_counted_until_the_limit() -> None:
    async with binder_cluster(speed=1000) as it, it.working() as binder:
        await it.request(await it.pod(), "nowhere", backoffLimit=3)
        await it.until_phase("Failed", failedAttempts=3)
        await it.request(await it.pod("other"))
        await it.until_phase("Succeeded", "other")
        assert binder.count("bind_attempts_total") == 4
        assert (await it.get(BIND_REQUESTS, "p") or {})["status"]["failedAttempts"] == 3


async def test_a_retry_waits_although_the_failure_itself_changes_the_request() -> None:
    # A thousandth of the wall's speed: the pause of a second does not end here.
    async with binder_cluster(speed=0.001) as it, it.working() as binder:
        await it.request(await it.pod(), "nowhere", backoffLimit=3)
        await binder.service._requests.wait_until(
            lambda store: any(request.status.phase == "Failed" for request in store.values())
        )
        while not binder.service.idle():
            await asyncio.sleep(0.002)
        assert binder.count("bind_attempts_total") == 1


async def test_a_request_that_went_while_it_was_queued_and_a_settled_one_cost_nothing() -> None:
    async with binder_cluster() as it, it.working() as binder:
        await it.request(await it.pod())
        await it.until_phase("Succeeded")
        await binder.service._requests.wait_until(
            lambda store: any(request.status.phase == "Succeeded" for request in store.values())
        )
        while not binder.service.idle():
            await asyncio.sleep(0.002)
        asked: list[str] = []
        binder.transport.fault = lambda request: asked.append(request.path)
        assert await binder.service._binding.reconcile("ns/p") is None
        assert await binder.service._binding.reconcile("ns/gone") is None
        assert asked == []


async def test_a_first_attempt_reads_the_request_only_right_before_the_bind() -> None:
    async with binder_cluster() as it, it.working() as binder:
        asked: list[str] = []
        binder.transport.fault = lambda request: asked.append(f"{request.method} {request.path}")
        await it.request(await it.pod())
        await it.until_phase("Succeeded")
        assert len([each for each in asked if each.startswith("GET") and each.endswith("/bindrequests/p")]) == 1


async def test_a_retry_succeeds_once_the_node_exists_and_only_then_is_there_an_event() -> None:
    async with binder_cluster(speed=1000) as it, it.working():
        await it.request(await it.pod(), "late", backoffLimit=50)
        await it.until_phase("Failed")
        assert all(c["status"] != "True" for c in (await it.live())["status"].get("conditions", ()))
        await it.node("late")
        await it.until_phase("Succeeded")
        pod = await it.live()
        assert pod["spec"]["nodeName"] == "late"
        assert condition(pod, names.CONDITION_POD_BOUND)["status"] == "True"


async def test_t63_many_requests_at_once() -> None:
    async with binder_cluster() as it, it.working():
        pods = [await it.pod(f"p{number}") for number in range(10)]
        for pod in pods:
            await it.request(pod)
        for pod in pods:
            await it.until_phase("Succeeded", pod["metadata"]["name"])
            told = condition(await it.live(pod["metadata"]["name"]), names.CONDITION_POD_BOUND)
            assert told["status"] == "True"


async def test_t77_a_fraction_without_groups_is_invalid_and_has_no_bound_event() -> None:
    async with binder_cluster() as it, it.working():
        await it.request(await it.pod(fraction="0.5"), receivedResourceType="Fraction")

        async def gone() -> bool:
            return await it.get(BIND_REQUESTS, "p") is None

        await it.until(gone)

        async def told() -> bool:
            return any(
                c["type"] == names.CONDITION_POD_BOUND for c in (await it.live())["status"].get("conditions", ())
            )

        await it.until(told)
        assert condition(await it.live(), names.CONDITION_POD_BOUND)["status"] == "False"


async def test_a_request_for_an_earlier_pod_of_that_name_is_not_carried_out() -> None:
    async with binder_cluster() as it, it.working():
        # The garbage collector would often take the request before the binder sees it; what an owner of a version
        # that is not served is about, it does not know.
        owner = ("p", "00000000-0000-0000-0000-000000000000")
        await it.request(await it.pod(), owners=[owner], owners_version="v0")
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"] == "pod ns/p is not the one the request was made for"
        assert "nodeName" not in (await it.live())["spec"]


async def test_the_predicted_zones_are_an_annotation_of_the_binding() -> None:
    async with binder_cluster() as it, it.working():
        zones = [{"zone": "node-0", "amount": {"cpu": "4"}}]
        await it.request(await it.pod(), predictedNUMAZones=zones)
        await it.until_phase("Succeeded")
        annotations = (await it.live())["metadata"]["annotations"]
        assert json.loads(annotations[names.NUMA_PREDICTED_ANNOTATION]) == zones


async def test_a_request_for_a_pod_that_is_gone_fails_with_an_event_and_others_are_served() -> None:
    async with binder_cluster() as it, it.working() as binder:
        pod, keeper = await it.pod(), (await it.pod("keeper"))["metadata"]
        await it.client.delete(PODS, "p", "ns", grace_s=0)
        await binder.service._pods.wait_until(lambda store: "ns/keeper" in store and "ns/p" not in store)
        await it.request(pod, owners=[("keeper", keeper["uid"])])
        await it.request(await it.pod("other"))
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"] == "pod ns/p not found"
        await it.until_phase("Succeeded", "other")
        await binder.service.recorder.flush()
        assert [event["involvedObject"]["kind"] for event in await it.events("BindingError")] == ["BindRequest"]
