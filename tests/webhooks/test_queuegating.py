"""The gate of queue admission on new pods (queues:Q-405)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import PODS, QUEUES
from pykai.kube.runtime import Runtime
from pykai.webhooks.queuegating import GatingRules, add_gate
from pykai.webhooks.queuelookups import QueueLookups
from tests.servers import api_server
from tests.webhooks.admissioncluster import admitted
from tests.webhooks.test_queues import queue

GATE = {"name": "kai.scheduler/queue-admission"}
OTHER = {"name": "example.com/later"}
RULES = GatingRules(lambda name: name != "open")


def a_pod(*gates: dict[str, str], queue: str = "gated", labels: dict[str, str] | None = None, **spec: Any) -> Any:
    named = {"kai.scheduler/queue": queue} if queue else {}
    content = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "none"}], **spec}
    if gates:
        content["schedulingGates"] = list(gates)
    return {"metadata": {"name": "a", "labels": {**named, **(labels or {})}}, "spec": content}


def gates_of(pod: Any, namespace: str = "default", rules: GatingRules = RULES) -> list[dict[str, str]] | None:
    changed = add_gate(pod, namespace, rules)
    return None if changed is None else changed["spec"]["schedulingGates"]


def test_a_pod_of_a_gated_queue_gets_the_gate_behind_those_it_has() -> None:
    pod = a_pod(OTHER)
    assert gates_of(pod) == [OTHER, GATE]
    assert pod == a_pod(OTHER), "the object under review is left alone"


@pytest.mark.parametrize(
    ("pod", "namespace"),
    [
        (a_pod(queue="open"), "default"),
        (a_pod(GATE), "default"),
        (a_pod(schedulerName="default-scheduler"), "default"),
        (a_pod(nodeName="a"), "default"),
        (a_pod(), "kai-resource-reservation"),
        (a_pod(), "kai-scale-adjust"),
        ({"metadata": {"labels": 1}, "spec": []}, "default"),
    ],
)
def test_pods_that_get_no_gate(pod: Any, namespace: str) -> None:
    assert gates_of(pod, namespace) is None


@pytest.mark.parametrize("app", ["kai-resource-reservation", "kai-scale-adjust", "scaling-pod"])
def test_a_label_of_our_services_opens_no_gate(app: str) -> None:
    """queues:Q-405: any tenant may set it."""
    assert gates_of(a_pod(labels={"app": app})) == [GATE]


def test_where_our_services_have_pods_can_be_set() -> None:
    rules = GatingRules(lambda name: True, service_namespaces=("reservations", "scaling"))
    assert gates_of(a_pod(), "scaling", rules) is None
    assert gates_of(a_pod(), "kai-scale-adjust", rules) == [GATE]


def test_the_label_that_names_the_queue_can_be_set() -> None:
    rules = GatingRules(lambda name: name == "gated", queue_label="team")
    assert gates_of(a_pod(), rules=rules) is None
    assert gates_of(a_pod(labels={"team": "gated"}), rules=rules) == [GATE]


def gated_queue(name: str, *, gates: bool = True) -> dict[str, Any]:
    made: dict[str, Any] = queue(name)
    made["spec"]["admissionGating"] = gates
    return made


async def test_which_queues_gate() -> None:
    """A queue that is not known gates: the scheduler can open the gate, and nothing can add it later."""
    async with api_server(Clock()) as server:
        client = Client(server.transport())
        runtime = Runtime(client, Caches(client), Clock())
        lookups = QueueLookups(runtime)
        assert lookups.is_gated("open"), "before the first list"
        await client.create(QUEUES, gated_queue("open", gates=False))
        await runtime.caches.start()
        try:
            await lookups.synced()
            assert [lookups.is_gated(name) for name in ("open", "missing", "")] == [False, True, False]
            await client.create(QUEUES, gated_queue("gated"))
            async with asyncio.timeout(10):
                await runtime.caches.store(QUEUES, dict).synced.wait()
                while not lookups.is_gated(""):
                    await asyncio.sleep(0)
            assert lookups.is_gated("gated")
        finally:
            await runtime.caches.stop()


@pytest.mark.parametrize(("flag", "expected"), [("true", [GATE]), ("false", None)])
async def test_the_service_adds_the_gate_only_if_the_feature_is_on(flag: str, expected: Any) -> None:
    async with api_server(Clock(), namespaces=["kube-system"]) as server:
        await Client(server.transport()).create(QUEUES, gated_queue("gated"))
        async with admitted(server, queue_admission_gating=flag) as admission:
            made = await admission.admin.create(PODS, {"apiVersion": "v1", "kind": "Pod", **a_pod()}, "default")
            assert made["spec"].get("schedulingGates") == expected


async def test_the_service_takes_the_namespaces_of_our_services_from_its_flags() -> None:
    async with api_server(Clock(), namespaces=["kube-system"]) as server:
        await Client(server.transport()).create(QUEUES, gated_queue("gated"))
        async with admitted(server, queue_admission_gating="true", scale_adjust_namespace="default") as admission:
            made = await admission.admin.create(PODS, {"apiVersion": "v1", "kind": "Pod", **a_pod()}, "default")
            assert "schedulingGates" not in made["spec"]
