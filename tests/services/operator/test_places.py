"""An installation in namespaces of its own, under the rights that the chart gives there (operations:O-54, OD-11)."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from pykai.kube import resources
from pykai.kube.flags import parse_command_line
from pykai.kube.runtime import Runtime
from pykai.operator.service import Operator, from_flags
from tests.operator.chart.charts import config_in_hook, rendered
from tests.servers import ensure_namespace
from tests.services.operator.installed import NS, SCHEDULER, change, conditions, get, is_there, settled, shard
from tests.services.servicecluster import RecordingTransport, ServiceCluster

RESERVATIONS, SCALING = "gpu-res", "gpu-scale"
MOVED = {"global.resourceReservation.namespace": RESERVATIONS, "nodescaleadjuster.scalingPodNamespace": SCALING}
#: an account that has the rights of this installation, and no others
ACCOUNT = "moved-operator"
_ROLES = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def roles() -> list[dict[str, Any]]:
    """The operator's roles as the chart renders them, for that account."""
    found = []
    for (kind, name), each in rendered(MOVED).items():
        # Each is there twice: with and without its namespace.
        if kind not in _ROLES or each["metadata"]["name"] != "kai-kai-operator" or name != place_of(each):
            continue
        made = {**each, "metadata": {**each["metadata"], "name": ACCOUNT}}
        if "roleRef" in made:
            made["roleRef"] = {**made["roleRef"], "name": ACCOUNT}
            made["subjects"] = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NS}]
        found.append(made)
    return found


def place_of(found: dict[str, Any]) -> str:
    return f"{found['metadata'].get('namespace', '')}/{found['metadata']['name']}"


def moved_operator(runtime: Runtime) -> Operator:
    """With the flags that the chart renders."""
    (container,) = rendered(MOVED)["Deployment", "kai-operator"]["spec"]["template"]["spec"]["containers"]
    given = {**parse_command_line(container["args"]), "settle-seconds": "0.005"}
    (made,) = from_flags(runtime, given, CollectorRegistry())
    return made


async def test_an_operator_works_in_the_namespaces_of_the_values(place: ServiceCluster) -> None:
    """operations:O-23, OC-7"""
    for namespace in (RESERVATIONS, SCALING):
        await ensure_namespace(place.client, namespace)
    await place.ensure(*roles())
    wire = RecordingTransport(place.server.account(NS, ACCOUNT))
    spec = config_in_hook(rendered({**MOVED, "global.clusterAutoscaling": True}))["spec"]
    await place.create(resources.CONFIGS, "kai-config", spec=spec)
    await shard(place)
    async with place.running(moved_operator, transport=wire) as service:
        await settled(place, service)
        assert (await conditions(place))["Deployed"] == ("True", "Resources deployed")
        assert await is_there(place, resources.DEPLOYMENTS, SCHEDULER)
        assert await is_there(place, resources.SERVICE_ACCOUNTS, "kai-scale-adjust", SCALING)
        theirs = {"imagePullSecrets": [{"name": "theirs"}]}
        account = "kai-resource-reservation"
        await place.client.patch(resources.SERVICE_ACCOUNTS, account, theirs, RESERVATIONS)
        await settled(place, service)
        await change(place, "global.additionalImagePullSecrets", ["ours"])
        await settled(place, service)
        found = await get(place, resources.SERVICE_ACCOUNTS, account, RESERVATIONS)
        assert sorted(each["name"] for each in found["imagePullSecrets"]) == ["ours", "theirs"]
        # Outside of its namespaces it has no rights: there a watch would be refused without end.
        await change(place, "binder.resourceReservation.namespace", "kai-resource-reservation")
        await settled(place, service)
        status, text = (await conditions(place))["Deployed"]
        assert status == "False"
        assert text.startswith("spec.binder.resourceReservation.namespace: 'kai-resource-reservation': ")
        for namespace in (RESERVATIONS, SCALING):
            for each in await place.client.list_raw(resources.SERVICE_ACCOUNTS, namespace=namespace):
                if each["metadata"].get("ownerReferences"):
                    await place.client.delete(resources.SERVICE_ACCOUNTS, each["metadata"]["name"], namespace)
