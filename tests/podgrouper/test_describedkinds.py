"""What is watched for kinds that are described."""

from __future__ import annotations

import pytest

from pykai.kube.caches import Caches
from pykai.kube.events import EventRecorder
from pykai.kube.flags import read_options
from pykai.kube.resources import CONFIG_MAPS
from pykai.kube.runtime import Runtime
from pykai.podgrouper.describedkinds import DescribedKinds
from pykai.podgrouper.options import FLAGS, PodGrouperOptions
from tests.servers import ensure_namespace
from tests.services.servicecluster import service_cluster
from tests.webhooks.test_server import runtime_of_nothing


@pytest.mark.parametrize(
    ("config_map", "kartas", "watched"),
    [
        ("kinds", True, ["configmaps", "kartas"]),
        ("kinds", False, ["configmaps"]),
        ("", True, ["kartas"]),
        ("", False, []),
    ],
)
def test_only_sources_that_are_asked_for_are_watched(config_map: str, kartas: bool, watched: list[str]) -> None:
    runtime = runtime_of_nothing()
    recorder = EventRecorder(runtime.client, component="pod-grouper", clock=runtime.clock)
    options = PodGrouperOptions(workload_kinds_configmap_name=config_map, generic_karta_fallback=kartas)
    stores = DescribedKinds(runtime, recorder, options).stores
    assert [store.resource.plural for store in stores] == watched


async def test_the_config_map_is_in_the_namespace_of_the_services() -> None:
    """kinds:declared: where its Role allows to read it."""
    given = {"namespace": "gpu-platform", "workload-kinds-configmap-name": "kinds"}
    options = read_options(PodGrouperOptions(), FLAGS, given)
    async with service_cluster("admin") as place:
        recorder = EventRecorder(place.client, component="pod-grouper", clock=place.clock)
        caches = Caches(place.client)
        described = DescribedKinds(Runtime(place.client, caches, place.clock), recorder, options)
        text = "kinds:\n- {apiVersion: example.com/v1, kind: Sweep, minimum: 2}\n"
        for namespace in ("gpu-platform", "kai-scheduler"):
            await ensure_namespace(place.client, namespace)
            await place.create(CONFIG_MAPS, "kinds", namespace=namespace, data={"kinds": text})
        await caches.start()
        try:
            await caches.wait_for_sync()
            (store,) = (each for each in described.stores if each.resource is CONFIG_MAPS)
            assert [each.metadata.namespace for each in store.values()] == ["gpu-platform"]
        finally:
            await caches.stop()
