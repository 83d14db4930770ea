"""Labels of pods about shared GPUs count only where a reservation pod of node and group holds that GPU."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.sharing import reservation_name
from pykai.core.model.shard import Shard
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import PODS
from pykai.kube.store import Change, Store
from pykai.lab.apiserver.server import ApiServer
from pykai.scheduler.sanitising.sharedgpus import SharedGpuSanitiser
from tests.servers import ensure_namespace

HELD = {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "g"}
SHARING = {names.GPU_GROUP_LABEL: "g"}
HALF = {names.GPU_FRACTION_ANNOTATION: "0.5"}
RESERVATIONS = names.RESERVATION_NAMESPACE


class House:
    """Pods, and those to be checked again."""

    def __init__(self, client: Client, store: Store[Pod]) -> None:
        self._client = client
        self.store = store
        self.tenants = SharedGpuSanitiser(store, Shard())
        self.again: list[str] = []
        store.subscribe(self._changed)

    def _changed(self, change: Change[Pod]) -> None:
        self.again += [tenant.metadata.name for tenant in self.tenants.affected_pods(change)]

    async def pod(
        self,
        name: str,
        labels: dict[str, str],
        node: str = "n1",
        phase: str = "Running",
        namespace: str = "default",
        scheduler: str = names.SCHEDULER_NAME,
    ) -> None:
        spec: dict[str, Any] = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "x"}]}
        meta = {"name": name, "namespace": namespace, "labels": labels, "annotations": HALF}
        await self._client.create(PODS, {"metadata": meta, "spec": {**spec, **({"nodeName": node} if node else {})}})
        await self._client.patch(PODS, name, {"status": {"phase": phase}}, namespace, subresource="status")
        await self.store.wait_until(lambda store: _phase(store, f"{namespace}/{name}") == phase)

    async def reservation(self, node: str = "n1", group: str = "g") -> None:
        """As the binder, ours or KAI's, makes it."""
        labels = {**HELD, names.GPU_GROUP_LABEL: group}
        await self.pod(reservation_name(node, group), labels, node, namespace=RESERVATIONS, scheduler="none")

    async def gone(self, name: str, namespace: str = "default") -> None:
        await self._client.delete(PODS, name, namespace, grace_s=0)
        await self.store.wait_until(lambda store: f"{namespace}/{name}" not in store)

    def seen(self, name: str, namespace: str = "default") -> Pod:
        """The pod as the engine gets it."""
        pod = self.store.get(f"{namespace}/{name}")
        assert pod is not None
        return self.tenants.sanitise(pod)[0]

    def judged(self, name: str) -> tuple[dict[str, str], str]:
        """The labels that count, and the problems."""
        pod = self.store.get(f"default/{name}")
        assert pod is not None
        seen, problems = self.tenants.sanitise(pod)
        return seen.metadata.labels, "".join(map(str, problems))


def _phase(store: Store[Pod], key: str) -> str:
    pod = store.get(key)
    return pod.status.phase if pod is not None else ""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with _house() as made:
        yield made


@asynccontextmanager
async def _house() -> AsyncIterator[House]:
    server = await ApiServer.open(clock=Clock())
    client = Client(server.transport())
    await ensure_namespace(client, RESERVATIONS)
    caches = Caches(client)
    store = caches.store(PODS, Pod)
    await caches.start()
    await caches.wait_for_sync()
    try:
        yield House(client, store)
    finally:
        await caches.stop()
        await server.close()


async def test_a_tenant_beside_its_reservation_counts(house: House) -> None:
    await house.reservation()
    await house.pod("tenant", SHARING)
    assert house.judged("tenant") == (SHARING, "")
    held = house.seen(reservation_name("n1", "g"), RESERVATIONS)
    assert held.metadata.labels == HELD
    assert held.metadata.annotations == HALF


async def test_a_tenant_without_a_reservation_on_its_node_does_not_count(house: House) -> None:
    await house.reservation(node="n2")
    await house.pod("tenant", {**SHARING, "app": "mine"})
    labels, problem = house.judged("tenant")
    assert labels == {"app": "mine"}
    assert "Pod/default/tenant: metadata.labels[runai-gpu-group]: no reservation pod holds a GPU for group g" in problem


@pytest.mark.parametrize(
    ("namespace", "name", "node"),
    [
        ("default", reservation_name("n1", "g"), "n1"),
        (RESERVATIONS, "gpu-reservation-of-mine", "n1"),
        (RESERVATIONS, reservation_name("n1", "h"), "n1"),
        (RESERVATIONS, reservation_name("n2", "g"), "n1"),
    ],
    ids=["namespace", "name", "group", "node"],
)
async def test_a_pod_that_only_claims_to_be_a_reservation_does_not_count(
    house: House, namespace: str, name: str, node: str
) -> None:
    """It counts in one namespace and under one name; elsewhere it is an ordinary pod, and holds nothing."""
    await house.pod(name, HELD, node, namespace=namespace)
    await house.pod("tenant", SHARING, node)
    assert house.judged("tenant")[0] == {}
    fake = house.store.get(f"{namespace}/{name}")
    assert fake is not None
    seen, problems = house.tenants.sanitise(fake)
    assert seen.metadata.labels == {}
    assert "only pods in namespace kai-resource-reservation hold GPUs for others" in str(problems[0])


async def test_a_pod_of_another_scheduler_is_in_no_group_and_has_no_share(house: House) -> None:
    await house.reservation()
    await house.pod("guest", {**SHARING, "app": "mine"}, scheduler="default-scheduler")
    labels, problem = house.judged("guest")
    assert labels == {"app": "mine"}
    assert "the pod is of scheduler default-scheduler, whose pods share no GPUs" in problem
    assert house.seen("guest").metadata.annotations == {}


async def test_several_devices_need_all_their_reservations(house: House) -> None:
    both = {f"{names.GPU_GROUP_LABEL_PREFIX}{group}": group for group in "gh"}
    await house.reservation()
    await house.pod("tenant", both)
    assert house.judged("tenant")[0] == {}
    await house.reservation(group="h")
    assert house.judged("tenant") == (both, "")


async def test_finished_and_unbound_pods_are_left_alone(house: House) -> None:
    await house.pod("ended", SHARING, phase="Succeeded")
    await house.pod("waiting", SHARING, node="", phase="Pending")
    assert house.judged("ended") == (SHARING, "")
    assert house.judged("waiting") == (SHARING, "")


async def test_tenants_are_checked_again_when_a_reservation_comes_or_goes(house: House) -> None:
    await house.pod("tenant", SHARING)
    await house.pod("elsewhere", SHARING, node="n2")
    await house.pod("fake", HELD)
    assert house.again == []
    await house.reservation()
    assert house.again == ["fake", "tenant"] or house.again == ["tenant", "fake"]
    await house.gone(reservation_name("n1", "g"), RESERVATIONS)
    assert sorted(house.again) == ["fake", "fake", "tenant", "tenant"]
