"""Kinds that an administrator declares in a file or in a ConfigMap."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykai.kube import resources
from pykai.kube.clock import Clock
from tests.services.podgrouper.grouped import ROLE, assigned, grouper, sweep
from tests.services.podgrouper.test_karta import minimum
from tests.services.servicecluster import ServiceCluster, service_cluster

NAMESPACE = "kai-scheduler"


def declaration(pods: int, more: str = "") -> dict[str, str]:
    return {"kinds": f"kinds:\n- {{apiVersion: example.com/v1, kind: Sweep, minimum: {pods}}}\n{more}"}


async def test_pods_follow_the_config_map(place: ServiceCluster) -> None:
    """kinds:declared: a wrong entry is reported, and the others are used."""
    owner = await sweep(place)
    name = f"pg-s-{owner['metadata']['uid']}"
    await place.create(resources.CONFIG_MAPS, "kinds", namespace=NAMESPACE, data=declaration(2))
    await place.pod("a", by=owner)
    async with place.running(grouper(workload_kinds_configmap_name="kinds")):
        await place.groups.wait_until(minimum(name, 2))
        changed = {"data": declaration(3, "- {kind: Other, minimum: 1}\n")}
        await place.client.patch(resources.CONFIG_MAPS, "kinds", changed, NAMESPACE)
        await place.groups.wait_until(minimum(name, 3))
        reason = await place.wait_for_warning("kinds", "InvalidConfiguration")
        assert reason == "line 3, kinds[1].apiVersion: '' is no group and version, such as example.com/v1"
        await place.client.delete(resources.CONFIG_MAPS, "kinds", NAMESPACE)
        await place.groups.wait_until(minimum(name, 1))


async def test_a_file_declares_kinds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """kinds:declared: it wins over the ConfigMap; one that cannot be read does not stop the service."""
    async with service_cluster(ROLE, Clock()) as place:
        await place.classes()
        owner = await sweep(place)
        await place.create(resources.CONFIG_MAPS, "kinds", namespace=NAMESPACE, data=declaration(2))
        await place.pod("a", by=owner)
        file = tmp_path / "kinds.yaml"
        file.write_text(declaration(4)["kinds"])
        both = grouper(workload_kinds_file=str(file), workload_kinds_configmap_name="kinds")
        async with place.running(both):
            await place.groups.wait_until(minimum(f"pg-s-{owner['metadata']['uid']}", 4))
        async with place.running(grouper(workload_kinds_file=str(tmp_path / "absent"))):
            await place.pods.wait_until(assigned("a"))
    assert "--workload-kinds-file" in caplog.text
