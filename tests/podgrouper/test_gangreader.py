"""Gangs of Kubernetes are grouped once all of them have been read."""

from __future__ import annotations

import pytest

from pykai.api.workloadapi import KubernetesWorkload
from pykai.kube.resources import Resource
from pykai.podgrouper import gangreader
from pykai.podgrouper.gangreader import GangReader
from pykai.podgrouper.metadata import GroupingError
from pykai.podgrouper.origins import WORKLOAD
from tests.webhooks.test_server import runtime_of_nothing

WORKLOADS = Resource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload", True)


async def test_gangs_that_cannot_be_listed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gangreader, "_SYNC_TIMEOUT_S", 0.0)
    runtime = runtime_of_nothing()
    reader = GangReader(runtime, lambda kind, namespace, name: None)
    store = reader._stores[WORKLOAD] = runtime.caches.store(WORKLOADS, KubernetesWorkload)
    with pytest.raises(GroupingError, match=r"workloads of scheduling\.k8s\.io/v1alpha1 cannot be listed"):
        await reader.prepare(WORKLOAD)
    store.synced.set()
    await reader.prepare(WORKLOAD)
    assert reader.serves(WORKLOAD)
