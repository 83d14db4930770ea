"""Installing into an API server, and the steps of the chart's hooks (operations:O-51)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import pytest

from pykai.api import names
from pykai.kube import resources
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import KubeError, NotFound
from pykai.kube.resources import Resource
from pykai.kube.transport import Request, Response
from pykai.lab.apiserver.server import ApiServer
from pykai.operator.hooks import steps
from pykai.operator.hooks.steps import StepFailure
from pykai.operator.installing import cluster
from pykai.operator.installing.records import MANAGER, RECORD
from pykai.operator.installing.release import Release
from pykai.operator.installing.shadow import SHADOW_NAMESPACE
from tests.operator.installations import changes, config_manifest, kueue_topologies, openshift_definitions

NS = names.DEFAULT_NAMESPACE
CONFIG = "kai-config"
SCC = "SecurityContextConstraints"
Document = dict[str, Any]
T = TypeVar("T")


class CountingTransport:
    """Counts writes, and refuses all after some of them."""

    def __init__(self, server: ApiServer, allowed: int = 1_000_000) -> None:
        self._inner = server.transport()
        self.allowed = allowed
        self.writes: list[str] = []

    async def send(self, request: Request) -> Response:
        if request.method != "GET":
            if len(self.writes) >= self.allowed:
                raise KubeError("the process has ended")
            self.writes.append(f"{request.method} {request.path}")
        return await self._inner.send(request)

    def stream(self, request: Request) -> Any:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


async def done(lines: AsyncIterator[T]) -> list[T]:
    return [line async for line in lines]


async def installed(client: Client, **values: Any) -> list[str]:
    return await done(cluster.install(client, Release(values), Clock()))


async def is_there(client: Client, resource: Resource, name: str, namespace: str = "") -> bool:
    try:
        await client.get_raw(resource, name, namespace)
    except NotFound:
        return False
    return True


async def test_an_installation_has_all_parts_and_a_second_one_changes_nothing(client: Client) -> None:
    lines = await installed(client)
    assert any("is installed in kai-scheduler" in line for line in lines)
    assert await is_there(client, resources.DEPLOYMENTS, "kai-operator", NS)
    assert await is_there(client, resources.CONFIGS, CONFIG)
    assert await is_there(client, resources.QUEUES, names.DEFAULT_QUEUE)
    assert await changes(client, Release()) == []
    before = await client.get_raw(resources.DEPLOYMENTS, "kai-operator", NS)
    await installed(client)
    after = await client.get_raw(resources.DEPLOYMENTS, "kai-operator", NS)
    assert after["metadata"]["generation"] == before["metadata"]["generation"] == 1


async def test_an_operator_that_was_rolled_out_is_replaced_from_now_on(client: Client) -> None:
    """install:handover: the API server has filled in how to roll it out, which `Recreate` does not go with."""
    labels = {"app": "kai-operator"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "operator", "image": "old"}]}},
    }
    metadata = {"name": "kai-operator", "namespace": NS}
    await client.create(resources.NAMESPACES, {"metadata": {"name": NS}})
    old = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    made = await client.patch(
        resources.DEPLOYMENTS, "kai-operator", old, NS, kind=PatchKind.APPLY, field_manager=MANAGER
    )
    assert made["spec"]["strategy"]["rollingUpdate"]
    (line,) = [each for each in await changes(client, Release()) if "Deployment kai-operator" in each]
    assert "spec.strategy" in line
    await installed(client)
    after = await client.get_raw(resources.DEPLOYMENTS, "kai-operator", NS)
    assert after["spec"]["strategy"] == {"type": "Recreate"}
    assert after["metadata"]["uid"] == made["metadata"]["uid"]


async def test_what_users_changed_or_deleted_stays_so(client: Client) -> None:
    await installed(client)
    await client.patch(resources.QUEUES, names.DEFAULT_PARENT_QUEUE, {"spec": {"priority": 7}})
    await client.delete(resources.QUEUES, names.DEFAULT_QUEUE)
    await installed(client, **{"global": {"tag": "v2"}})
    parent = await client.get_raw(resources.QUEUES, names.DEFAULT_PARENT_QUEUE)
    assert parent["spec"]["priority"] == 7
    assert not await is_there(client, resources.QUEUES, names.DEFAULT_QUEUE)


async def test_what_other_values_do_not_want_is_deleted(client: Client) -> None:
    await installed(client)
    assert await is_there(client, resources.PRIORITY_CLASSES, "train")
    lines = await installed(client, defaultPriorityClasses={"enabled": False})
    assert "deleted PriorityClass train" in lines
    assert not await is_there(client, resources.PRIORITY_CLASSES, "train")


async def test_an_upgrade_keeps_the_values_and_takes_further_ones(client: Client) -> None:
    with pytest.raises(StepFailure, match="use `kai install`"):
        await cluster.with_earlier_values(client, Release())
    await installed(client, **{"global": {"tag": "v1"}})
    release = await cluster.with_earlier_values(client, Release({"operator": {"replicaCount": 2}}))
    assert release.values == {"global": {"tag": "v1"}, "operator": {"replicaCount": 2}}


async def test_a_check_says_what_would_change_and_writes_nothing(server: ApiServer, client: Client) -> None:
    await installed(client)
    wire = CountingTransport(server)
    release = Release({"operator": {"replicaCount": 2}, "defaultPriorityClasses": {"enabled": False}})
    before = await client.get_raw(resources.DEPLOYMENTS, "kai-operator", NS)
    lines = await changes(Client(wire), release)
    assert "delete PriorityClass train" in lines
    assert [line for line in lines if line.startswith("change Deployment kai-operator: ") and "spec.replicas" in line]
    assert await client.get_raw(resources.DEPLOYMENTS, "kai-operator", NS) == before
    await client.delete(resources.CONFIGS, CONFIG)
    assert "create Config kai-config" in await changes(client, release)


@pytest.mark.parametrize("step", [cluster.install, cluster.install_shadow])
async def test_openshift_is_recognized_and_allows_our_pods_until_they_go(
    client: Client, step: Callable[[Client, Release], AsyncIterator[str]]
) -> None:
    """operations:OD-14."""
    await done(step(client, Release()))
    constraints = Resource("security.openshift.io", "v1", "securitycontextconstraints", SCC, False)
    await openshift_definitions(client)
    assert await client.list_raw(constraints) == []
    await done(step(client, Release()))
    (found,) = await client.list_raw(constraints)
    assert f"system:serviceaccount:{NS}:{'kai-operator' if step is cluster.install else 'kai-shadow'}" in found["users"]
    if step is cluster.install:
        assert (await client.get_raw(resources.CONFIGS, CONFIG))["spec"]["global"]["openshift"] is True
        assert await changes(client, Release()) == []
    await done(cluster.uninstall(client, NS))
    assert await client.list_raw(constraints) == []


class OldServer(CountingTransport):
    """Says that it is older than it is."""

    async def send(self, request: Request) -> Response:
        answer = await super().send(request)
        if request.path != "/version":
            return answer
        old = json.loads(answer.body) | {"gitVersion": "v1.29.3-gke.1282001"}
        return msgspec.structs.replace(answer, body=json.dumps(old).encode())


@pytest.mark.parametrize("step", [cluster.install, cluster.preview])
async def test_an_older_kubernetes_is_refused_before_anything_is_done(
    server: ApiServer, step: Callable[[Client, Release], AsyncIterator[Any]]
) -> None:
    """install:kubernetes."""
    wire = OldServer(server)
    with pytest.raises(StepFailure, match=r"runs Kubernetes v1\.29\.3-gke\.1282001; PyKAI needs 1\.30 or newer"):
        await done(step(Client(wire), Release()))
    assert wire.writes == []


async def test_an_uninstallation_leaves_queues_definitions_and_work(client: Client) -> None:
    await installed(client)
    await client.create(resources.POD_GROUPS, {"metadata": {"name": "gang", "namespace": NS}, "spec": {}})
    labels = {"app": "binder", "app.kubernetes.io/managed-by": "kai-operator"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example"}]}}
    pods = {"selector": {"matchLabels": labels}, "template": pod}
    for name, marks in (("binder", labels), ("mine", {})):
        deployment = {"metadata": {"name": name, "namespace": NS, "labels": marks}, "spec": pods}
        await client.create(resources.DEPLOYMENTS, deployment)
    await done(cluster.uninstall(client, NS))
    for resource, name, namespace in (
        (resources.DEPLOYMENTS, "kai-operator", NS),
        (resources.DEPLOYMENTS, "binder", NS),
        (resources.CONFIGS, CONFIG, ""),
        (resources.PRIORITY_CLASSES, "train", ""),
        (resources.CONFIG_MAPS, RECORD, NS),
    ):
        assert not await is_there(client, resource, name, namespace), name
    for resource, name, namespace in (
        (resources.DEPLOYMENTS, "mine", NS),
        (resources.QUEUES, names.DEFAULT_QUEUE, ""),
        (resources.POD_GROUPS, "gang", NS),
        (resources.SCHEDULING_SHARDS, "default", ""),
        (resources.NAMESPACES, names.RESERVATION_NAMESPACE, ""),
        (resources.CUSTOM_RESOURCE_DEFINITIONS, "queues.scheduling.run.ai", ""),
    ):
        assert await is_there(client, resource, name, namespace), name
    with pytest.raises(StepFailure, match="nothing was installed"):
        await done(cluster.uninstall(client, NS))
    await installed(client)
    assert await is_there(client, resources.DEPLOYMENTS, "kai-operator", NS)


async def test_an_installation_of_helm_is_left_to_helm(client: Client) -> None:
    await installed(client)
    mark = {"metadata": {"annotations": {"meta.helm.sh/release-name": "kai"}}}
    await client.patch(resources.DEPLOYMENTS, "kai-operator", mark, NS)
    with pytest.raises(StepFailure, match="helm upgrade kai"):
        await installed(client)


async def test_an_installation_that_was_broken_off_anywhere_is_finished_by_the_next(server: ApiServer) -> None:
    """A run that ends in the middle leaves nothing that an uninstallation would not find."""
    whole = CountingTransport(server)
    await done(cluster.install(Client(whole), Release(), Clock()))
    for allowed in range(8, len(whole.writes), 11):
        other = await ApiServer.open(clock=Clock())
        try:
            with suppress(KubeError):
                await done(cluster.install(Client(CountingTransport(other, allowed)), Release(), Clock()))
            client = Client(other.transport())
            with suppress(StepFailure):
                await done(cluster.uninstall(client, NS))
            assert not await is_there(client, resources.DEPLOYMENTS, "kai-operator", NS)
            await installed(client)
            assert await changes(client, Release()) == []
        finally:
            await other.close()


async def shadowed(client: Client, *shards: str) -> list[str]:
    return await done(cluster.install_shadow(client, Release(namespace=SHADOW_NAMESPACE), shards))


async def shadows(client: Client) -> dict[str, dict[str, str]]:
    """Deployment -> its flags."""
    return {
        each["metadata"]["name"]: dict(
            argument.removeprefix("--").split("=", 1)
            for argument in each["spec"]["template"]["spec"]["containers"][0]["args"]
        )
        for each in await client.list_raw(resources.DEPLOYMENTS, namespace=SHADOW_NAMESPACE)
    }


async def test_a_shadow_is_installed_and_goes_without_a_trace_in_others(client: Client) -> None:
    await installed(client)
    await shadowed(client)
    assert set(await shadows(client)) == {"kai-shadow-default"}
    await done(cluster.uninstall(client, SHADOW_NAMESPACE))
    assert await shadows(client) == {}
    assert await is_there(client, resources.DEPLOYMENTS, "kai-operator", NS)
    assert await is_there(client, resources.CONFIGS, CONFIG)


async def test_each_shard_of_the_cluster_has_a_shadow_that_follows_its_config_map(client: Client) -> None:
    """shadow:beside."""
    await installed(client)
    changed = {"namespace": "elsewhere", "global": {"schedulerName": "theirs", "nodePoolLabelKey": "pool"}}
    await client.patch(resources.CONFIGS, CONFIG, {"spec": changed})
    spec = {"partitionLabelValue": "a100", "args": {"full-hierarchy-fairness": "false"}}
    await client.create(resources.SCHEDULING_SHARDS, {"metadata": {"name": "fast"}, "spec": spec})
    await client.create(resources.NAMESPACES, {"metadata": {"name": "elsewhere"}})
    followed = {"metadata": {"name": "theirs-fast"}, "data": {}}
    await client.create(resources.CONFIG_MAPS, followed, "elsewhere")
    lines = await shadowed(client)
    found = await shadows(client)
    assert set(found) == {"kai-shadow-default", "kai-shadow-fast"}
    assert (
        found["kai-shadow-fast"].items()
        >= {
            "scheduler-name": "theirs",
            "namespace": "elsewhere",
            "nodepool-label-key": "pool",
            "partition-label-value": "a100",
            "scheduler-configmap": "theirs-fast",
            "full-hierarchy-fairness": "false",
        }.items()
    )
    assert any("kai-shadow-fast decides by ConfigMap elsewhere/theirs-fast" in line for line in lines)
    missing = "kai-shadow-default: there is no ConfigMap elsewhere/theirs-default, so it decides by the built-in"
    assert any(line.startswith(missing) for line in lines)
    assert "  kubectl --namespace kai-shadow port-forward deployment/kai-shadow-fast 8081" in lines

    await shadowed(client, "fast")
    assert set(await shadows(client)) == {"kai-shadow-fast"}
    with pytest.raises(StepFailure, match="--shard slow: there is no such SchedulingShard; known here: default, fast"):
        await shadowed(client, "slow")


async def test_a_shadow_in_a_cluster_that_has_no_kinds_of_ours_is_beside_the_default_shard(client: Client) -> None:
    await shadowed(client)
    found = await shadows(client)
    assert found["kai-shadow-default"]["scheduler-configmap"] == "kai-scheduler-default"


async def test_definitions_are_brought_up_to_date(client: Client) -> None:
    name = "queues.scheduling.run.ai"
    await done(steps.upgrade_definitions(client))
    found = await client.get_raw(resources.CUSTOM_RESOURCE_DEFINITIONS, name)
    found["spec"]["versions"][0]["additionalPrinterColumns"] = []
    await client.update(resources.CUSTOM_RESOURCE_DEFINITIONS, found)
    assert f"applied the definition {name}" in await done(steps.upgrade_definitions(client))
    again = await client.get_raw(resources.CUSTOM_RESOURCE_DEFINITIONS, name)
    assert again["spec"]["versions"][0]["additionalPrinterColumns"]


async def test_topologies_of_kueue_are_copied_once_and_a_bad_one_stops_no_other(client: Client) -> None:
    """operations:OD-2, topo:TD-20."""
    assert await done(steps.migrate_topologies(client)) == ["Kueue has no Topologies here: nothing to copy"]
    await kueue_topologies(client, good=["zone", "kubernetes.io/hostname"], bad=["zone", "zone"], later=["rack"])
    with pytest.raises(StepFailure, match=r"1 Topologies of Kueue could not be copied: bad"):
        await done(steps.migrate_topologies(client))
    made = await client.get_raw(resources.TOPOLOGIES, "good")
    assert made["apiVersion"] == "kai.scheduler/v1alpha1"
    assert made["spec"]["levels"] == [{"nodeLabel": "zone"}, {"nodeLabel": "kubernetes.io/hostname"}]
    assert made["metadata"]["annotations"]["kai.scheduler/migrated-from"] == "kueue.x-k8s.io"
    assert await is_there(client, resources.TOPOLOGIES, "later")
    with pytest.raises(StepFailure):
        assert "Topology good is there already" in await done(steps.migrate_topologies(client))


async def test_a_config_is_applied_over_that_of_an_older_chart(client: Client) -> None:
    old = config_manifest(binder={"metricsPort": 1})
    old["metadata"]["annotations"] = {"helm.sh/hook": "pre-install", "mine": "stays"}
    await client.create(resources.CONFIGS, old)
    await done(steps.deploy_config(client, config_manifest(namespace=NS)))
    found = await client.get_raw(resources.CONFIGS, CONFIG)
    assert found["metadata"]["annotations"] == {"mine": "stays"}
    assert found["spec"]["namespace"] == NS
    (manager,) = (each for each in found["metadata"]["managedFields"] if each["operation"] == "Apply")
    assert manager["manager"] == "kai-config-deployer"


@pytest.mark.parametrize("deletes", [True, False])
async def test_a_clean_up_deletes_only_a_config_of_the_chart(client: Client, deletes: bool) -> None:
    """operations:O-62."""
    await client.create(resources.CONFIGS, config_manifest())
    webhook = {"metadata": {"name": "validating-kai-admission"}, "webhooks": []}
    await client.create(resources.VALIDATING_WEBHOOKS, webhook)
    await done(steps.clean_up(client, NS, deletes_config=deletes))
    assert await is_there(client, resources.CONFIGS, CONFIG) is not deletes
    assert not await is_there(client, resources.VALIDATING_WEBHOOKS, "validating-kai-admission")
    assert await done(steps.clean_up(client, NS, deletes_config=deletes)) == []
