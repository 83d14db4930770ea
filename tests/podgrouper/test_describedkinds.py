"""What is watched for kinds that are described."""

from __future__ import annotations

import pytest

from pykai.kube.events import EventRecorder
from pykai.podgrouper.describedkinds import DescribedKinds
from pykai.podgrouper.options import PodGrouperOptions
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
