"""Config and shards that come and go, kinds that not every cluster has, and two operators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from pykai.api import names
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.errors import NotFound
from pykai.kube.lease import Fence
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.kube.transport import Request, Response
from pykai.services.running import LeaderElected
from pykai.services.table import SERVICES
from tests import servers
from tests.services.operator.installed import (
    NS,
    SCHEDULER,
    SETTLES_WITHIN_S,
    Document,
    change,
    change_shard,
    conditions,
    config,
    definition,
    get,
    is_there,
    operator,
    settled,
    shard,
)
from tests.services.servicecluster import RecordingTransport, ServiceCluster, refusal

#: an installation that has every kind of object
EVERYTHING: Document = {
    "global": {"vpa": {"enabled": True}},
    "admission": {"replicas": 2, "service": {"podDisruptionBudget": {"enabled": True}}},
    "scheduler": {"replicas": 2},
    "prometheus": {"enabled": True},
    "numaPlacementExporter": {"service": {"enabled": True}},
}
#: one object of every kind, by its Config
SAMPLES = (
    (resources.SERVICE_ACCOUNTS, "binder", NS),
    (resources.SERVICE_ACCOUNTS, "kai-resource-reservation", names.RESERVATION_NAMESPACE),
    (resources.SERVICE_ACCOUNTS, "kai-scale-adjust", names.SCALE_ADJUST_NAMESPACE),
    (resources.SECRETS, "kai-admission-webhook-tls-secret", NS),
    (resources.SERVICES, "admission", NS),
    (resources.DEPLOYMENTS, "binder", NS),
    (resources.DAEMON_SETS, "numa-placement-exporter", NS),
    (resources.POD_DISRUPTION_BUDGETS, "admission", NS),
    (resources.VERTICAL_AUTOSCALERS, "binder", NS),
    (resources.PROMETHEUSES, "prometheus", NS),
    (resources.SERVICE_MONITORS, "queue-controller", NS),
    (resources.MUTATING_WEBHOOKS, "mutating-kai-admission", ""),
    (resources.VALIDATING_WEBHOOKS, "validating-kai-admission", ""),
)
OF_THE_SHARD = (
    (resources.CONFIG_MAPS, SCHEDULER),
    (resources.DEPLOYMENTS, SCHEDULER),
    (resources.SERVICES, SCHEDULER),
    (resources.ENDPOINT_SLICES, f"{SCHEDULER}-leader"),
)


async def optional_kinds(place: ServiceCluster) -> None:
    """What autoscalers and the Prometheus operator define."""
    kinds = (resources.VERTICAL_AUTOSCALERS, resources.PROMETHEUSES, resources.SERVICE_MONITORS)
    await place.ensure(*map(definition, kinds))


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds; the garbage collector of a real server takes its time."""
    async with asyncio.timeout(SETTLES_WITHIN_S if servers.REAL is None else 60.0):
        while not await condition():
            await asyncio.sleep(0.005)


async def all_there(place: ServiceCluster, uid: str) -> bool:
    """Whether there is everything, and belongs to this Config."""
    for resource, name, namespace in SAMPLES:
        try:
            found = await place.client.get_raw(resource, name, namespace)
        except NotFound:
            return False
        if [each["uid"] for each in found["metadata"].get("ownerReferences") or ()] != [uid]:
            return False
    return True


async def none_there(place: ServiceCluster) -> bool:
    for resource, name, namespace in SAMPLES:
        if await is_there(place, resource, name, namespace):
            return False
    return True


async def test_o62_a_config_that_is_deleted_and_made_again_is_carried_out_again(place: ServiceCluster) -> None:
    await optional_kinds(place)
    made = await config(place, **EVERYTHING)
    async with place.running(operator()):
        await eventually(lambda: all_there(place, made["metadata"]["uid"]))
        await place.client.delete(resources.CONFIGS, "kai-config")
        again = await config(place, **EVERYTHING)
        await eventually(lambda: all_there(place, again["metadata"]["uid"]))
        await place.client.delete(resources.CONFIGS, "kai-config")
        await eventually(lambda: none_there(place))


async def test_oc6_every_kind_is_pruned(place: ServiceCluster) -> None:
    await optional_kinds(place)
    made = await config(place, **EVERYTHING)
    async with place.running(operator()) as service:
        await eventually(lambda: all_there(place, made["metadata"]["uid"]))
        off = {"service": {"enabled": False}}
        for part in ("admission", "binder", "nodeScaleAdjuster", "numaPlacementExporter"):
            await change(place, part, off)
        await change(place, "global.vpa.enabled", False)
        await change(place, "prometheus.enabled", False)
        await settled(place, service)
        left = [each[:2] for each in SAMPLES if await is_there(place, *each)]
        # Its data is kept as long as it would have been.
        assert left == [(resources.PROMETHEUSES, "prometheus")]


async def test_oc16_a_prometheus_is_kept_as_long_as_its_data(place: ServiceCluster) -> None:
    """operations:O-47"""
    await optional_kinds(place)
    await config(place, prometheus={"enabled": True})
    async with place.running(operator()) as service:
        await settled(place, service)
        await change(place, "prometheus.enabled", False)
        await settled(place, service)
        found = await get(place, resources.PROMETHEUSES, "prometheus")
        assert "kai/deprecation-timestamp" in found["metadata"]["annotations"]
        await change(place, "prometheus.enabled", True)
        await settled(place, service)
        found = await get(place, resources.PROMETHEUSES, "prometheus")
        assert "kai/deprecation-timestamp" not in found["metadata"]["annotations"]
        await change(place, "prometheus.enabled", False)
        await settled(place, service)
        long_ago = {"metadata": {"annotations": {"kai/deprecation-timestamp": "2020-01-01T00:00:00Z"}}}
        await place.client.patch(resources.PROMETHEUSES, "prometheus", long_ago, NS)
        await settled(place, service)
        assert not await is_there(place, resources.PROMETHEUSES, "prometheus")


async def test_a_prometheus_of_others_is_left_alone(place: ServiceCluster) -> None:
    await optional_kinds(place)
    theirs = await place.create(resources.PROMETHEUSES, "prometheus", namespace=NS, spec={"retention": "1d"})
    await config(place)
    async with place.running(operator()):
        pass
    found = await get(place, resources.PROMETHEUSES, "prometheus")
    assert found["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]


async def test_e21_a_shard_comes_and_goes(place: ServiceCluster) -> None:
    """operations:O-32b: the objects of a shard go with it, those of the others stay."""
    await config(place, scheduler={"replicas": 2})
    await shard(place)
    async with place.running(operator()) as service:
        await settled(place, service)
        await shard(place, "second", partitionLabelValue="second")
        await settled(place, service)
        assert await is_there(place, resources.DEPLOYMENTS, "kai-scheduler-second")
        await place.client.delete(resources.SCHEDULING_SHARDS, "second")

        async def is_gone() -> bool:
            return not await is_there(place, resources.DEPLOYMENTS, "kai-scheduler-second")

        await eventually(is_gone)
        for resource, name in OF_THE_SHARD:
            assert await is_there(place, resource, name)


async def test_o32b_shards_follow_the_config(place: ServiceCluster) -> None:
    await config(place)
    await shard(place, placementStrategy={"gpu": "spread"})
    async with place.running(operator()) as service:
        await settled(place, service)
        found = await get(place, resources.CONFIG_MAPS, SCHEDULER)
        assert "gpuspread" in found["data"]["config.yaml"]
        await change_shard(place, "placementStrategy.gpu", "binpack")
        await change(place, "global.nodePoolLabelKey", "pool")
        await settled(place, service)
        found = await get(place, resources.CONFIG_MAPS, SCHEDULER)
        assert "gpupack" in found["data"]["config.yaml"]
        assert "--nodepool-label-key=pool" in found["data"]["args"]


async def test_of_two_operators_one_works_and_the_other_takes_over(place: ServiceCluster) -> None:
    """Two that compete for a lease: what one has done, the next one does not do again."""
    await config(place)
    lease = SERVICES["operator"].lease
    first, second = place.wire(), place.wire()
    stop_first, stop_second = asyncio.Event(), asyncio.Event()
    one = await _candidate(place, first, lease, stop_first)
    try:
        await eventually(lambda: _is_deployed(place))
        two = await _candidate(place, second, lease, stop_second)
        stop_first.set()
        await one
        await change(place, "global.jsonLog", True)
        await eventually(lambda: _has_args(place, "--log-json"))
        stop_second.set()
        await two
    finally:
        stop_first.set()
        stop_second.set()
    created = [write for write in second.writes if "leases" not in write and "/status" not in write]
    # Six Deployments, and nothing that the first one has made already.
    assert sorted(write.rsplit("/", 2)[1] for write in created) == ["deployments"] * 6


async def _candidate(
    place: ServiceCluster, wire: RecordingTransport, lease: str, stop: asyncio.Event
) -> asyncio.Task[None]:
    client = Client(wire)
    caches = Caches(client)
    runtime = Runtime(client, caches, place.clock)
    fence = Fence()
    service = operator()(Runtime(client.fenced(fence.check), caches, place.clock))
    elected = LeaderElected(service, runtime, namespace=NS, lease=lease, fence=fence)
    elected._election._retry_period_s = 0.05

    async def run() -> None:
        await caches.start()
        try:
            await elected.run(stop)
        finally:
            await caches.stop()

    return asyncio.create_task(run())


async def _is_deployed(place: ServiceCluster) -> bool:
    found = await place.client.get_raw(resources.CONFIGS, "kai-config")
    listed = {each["type"]: each["status"] for each in (found.get("status") or {}).get("conditions") or []}
    return listed.get("Deployed") == "True"


async def _has_args(place: ServiceCluster, flag: str) -> bool:
    listed = await place.client.list_raw(resources.DEPLOYMENTS, namespace=NS)
    return all(flag in each["spec"]["template"]["spec"]["containers"][0]["args"] for each in listed)


async def test_a_foreign_kind_that_comes_later_is_noticed(place: ServiceCluster) -> None:
    """operations:OD-16, O-46"""
    await config(place, prometheus={"enabled": True}, **{"global": {"vpa": {"enabled": True}}})
    async with place.running(operator()) as service:
        await settled(place, service)
        assert (await conditions(place))["DependenciesFulfilled"][0] == "False"
        await optional_kinds(place)

        async def has_both() -> bool:
            wanted: tuple[tuple[Resource, str], ...] = (
                (resources.PROMETHEUSES, "prometheus"),
                (resources.VERTICAL_AUTOSCALERS, "binder"),
            )
            return all([await is_there(place, *each) for each in wanted])

        await eventually(has_both)
        await settled(place, service)
        assert (await conditions(place))["DependenciesFulfilled"][0] == "True"


async def test_o38_what_cannot_be_written_is_said_and_tried_again(place: ServiceCluster) -> None:
    """operations:O-35"""
    await config(place)
    wire = place.wire()

    def refuse_the_binder(request: Request) -> Response | None:
        is_binder = request.method == "PATCH" and request.path.endswith("/deployments/binder")
        return refusal(403, "Forbidden") if is_binder else None

    wire.fault = refuse_the_binder
    async with place.running(operator(), transport=wire) as service:
        await settled(place, service)
        status, text = (await conditions(place))["Deployed"]
        assert status == "False"
        assert text.startswith("Binder: Deployment binder: ")
        assert "injected Forbidden" in text
        assert text.endswith("Binder: not deployed")
        # The others do not wait for it.
        assert await is_there(place, resources.DEPLOYMENTS, "queue-controller")
        assert not await is_there(place, resources.DEPLOYMENTS, "binder")
        wire.fault = lambda _: None
        await eventually(lambda: _is_deployed(place))
        assert await is_there(place, resources.DEPLOYMENTS, "binder")


async def test_od8_an_external_prometheus_has_a_condition_of_its_own(place: ServiceCluster) -> None:
    """operations:O-45"""
    app = web.Application()
    app.router.add_get("/api/v1/status/config", lambda _: _answer())
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"http://jane:secret@127.0.0.1:{runner.addresses[0][1]}"
    await config(place, prometheus={"enabled": True, "externalPrometheusUrl": address})
    try:
        async with place.running(operator()) as service:
            await eventually(lambda: _is_connected(place, "True"))
            assert (await conditions(place))["Available"][1].startswith("PodGrouper: ")
            await runner.cleanup()
            await change(place, "prometheus.externalPrometheusUrl", f"{address}/gone")
            await eventually(lambda: _is_connected(place, "False"))
            text = (await conditions(place))["PrometheusConnected"][1]
            assert text == f"{address.replace('jane:secret@', '')}/gone cannot be reached: ClientConnectorError"
            await change(place, "prometheus.enabled", False)
            await settled(place, service)
            assert "PrometheusConnected" not in await conditions(place)
    finally:
        await runner.cleanup()


async def _answer() -> web.Response:
    return web.json_response({"status": "success"})


async def _is_connected(place: ServiceCluster, status: str) -> bool:
    found = await place.client.get_raw(resources.CONFIGS, "kai-config")
    listed = {each["type"]: each["status"] for each in (found.get("status") or {}).get("conditions") or []}
    return listed.get("PrometheusConnected") == status
