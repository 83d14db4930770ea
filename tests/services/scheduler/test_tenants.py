"""Who shares which GPU is believed only where a reservation pod holds that GPU."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pykai.api import names
from pykai.api.core import Pod
from pykai.apiserver.server import ApiServer
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import PODS
from pykai.kube.store import Change, Store
from pykai.scheduler.tenants import Tenants

HELD = {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "g"}
SHARING = {names.GPU_GROUP_LABEL: "g"}


class House:
    """Pods, and who must be judged again."""

    def __init__(self, client: Client, store: Store[Pod]) -> None:
        self._client = client
        self.store = store
        self.tenants = Tenants(store, names.RESERVATION_APP)
        self.again: list[str] = []
        store.subscribe(self._changed)

    def _changed(self, change: Change[Pod]) -> None:
        self.again += [tenant.metadata.name for tenant in self.tenants.concerned(change)]

    async def pod(self, name: str, labels: dict[str, str], node: str = "n1", phase: str = "Running") -> None:
        spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x"}]}
        meta = {"name": name, "namespace": "default", "labels": labels}
        await self._client.create(PODS, {"metadata": meta, "spec": {**spec, **({"nodeName": node} if node else {})}})
        await self._client.patch(PODS, name, {"status": {"phase": phase}}, "default", subresource="status")
        await self.store.until(lambda store: _phase(store, name) == phase)

    async def gone(self, name: str) -> None:
        await self._client.delete(PODS, name, "default", grace_s=0)
        await self.store.until(lambda store: f"default/{name}" not in store)

    def judged(self, name: str) -> tuple[dict[str, str], str]:
        """The labels that are believed, and what is wrong."""
        pod = self.store.get(f"default/{name}")
        assert pod is not None
        seen, problems = self.tenants.believable(pod)
        return seen.metadata.labels, "".join(map(str, problems))


def _phase(store: Store[Pod], name: str) -> str:
    pod = store.get(f"default/{name}")
    return pod.status.phase if pod is not None else ""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with _house() as made:
        yield made


@asynccontextmanager
async def _house() -> AsyncIterator[House]:
    server = await ApiServer.open(clock=Clock())
    client = Client(server.transport())
    caches = Caches(client)
    store = caches.store(PODS, Pod)
    await caches.start()
    await caches.synced()
    try:
        yield House(client, store)
    finally:
        await caches.stop()
        await server.close()


async def test_a_tenant_beside_its_reservation_is_believed(house: House) -> None:
    await house.pod("held", HELD)
    await house.pod("tenant", SHARING)
    assert house.judged("tenant") == (SHARING, "")
    assert house.judged("held") == (HELD, "")


async def test_one_without_a_reservation_on_its_node_is_not(house: House) -> None:
    await house.pod("held", HELD, node="n2")
    await house.pod("tenant", {**SHARING, "app": "mine"})
    labels, problem = house.judged("tenant")
    assert labels == {"app": "mine"}
    assert "Pod/default/tenant: metadata.labels[runai-gpu-group]: no reservation pod holds a GPU for group g" in problem


async def test_several_devices_need_all_their_reservations(house: House) -> None:
    both = {f"{names.GPU_GROUP_LABEL_PREFIX}{group}": group for group in "gh"}
    await house.pod("held", HELD)
    await house.pod("tenant", both)
    assert house.judged("tenant")[0] == {}
    await house.pod("held-too", {**HELD, names.GPU_GROUP_LABEL: "h"})
    assert house.judged("tenant") == (both, "")


async def test_who_has_ended_or_no_node_yet_is_left_alone(house: House) -> None:
    await house.pod("ended", SHARING, phase="Succeeded")
    await house.pod("waiting", SHARING, node="", phase="Pending")
    assert house.judged("ended") == (SHARING, "")
    assert house.judged("waiting") == (SHARING, "")


async def test_tenants_are_judged_again_when_a_reservation_comes_or_goes(house: House) -> None:
    await house.pod("tenant", SHARING)
    await house.pod("elsewhere", SHARING, node="n2")
    assert house.again == []
    await house.pod("held", HELD)
    assert house.again == ["tenant"]
    await house.gone("held")
    assert house.again == ["tenant", "tenant"]
