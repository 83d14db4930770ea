"""The operator on an API server (operations:5, OC-1 to OC-18)."""

from __future__ import annotations

from pykai.api import names
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import PatchKind
from pykai.kube.reflector import WatchTimeouts
from pykai.kube.store import Change, Store
from tests.servers import ensure_namespace
from tests.services.operator.installed import (
    COMPONENTS,
    NS,
    SCHEDULER,
    Document,
    args,
    change,
    change_shard,
    conditions,
    config,
    definition,
    get,
    is_there,
    make_available,
    operator,
    settled,
    shard,
)
from tests.services.servicecluster import RecordingTransport, ServiceCluster


async def test_oc1_a_config_deploys_everything_and_the_next_operator_writes_nothing(place: ServiceCluster) -> None:
    made = await config(place)
    await shard(place)
    async with place.running(operator()):
        pass
    for name in (*COMPONENTS, SCHEDULER):
        found = await get(place, resources.DEPLOYMENTS, name)
        (owner,) = found["metadata"]["ownerReferences"]
        assert owner["kind"] == ("SchedulingShard" if name == SCHEDULER else "Config")
    assert owner["controller"] is True
    binder = await get(place, resources.DEPLOYMENTS, "binder")
    assert binder["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert binder["spec"]["template"]["spec"]["containers"][0]["image"] == "images.test/pykai:v1"
    wire = place.wire()
    async with place.running(operator(), transport=wire):
        pass
    assert wire.writes == []


async def test_oc1_the_config_map_is_written_before_the_scheduler(place: ServiceCluster) -> None:
    await config(place)
    await shard(place)
    wire = place.wire()
    async with place.running(operator(), transport=wire):
        pass
    order = [write.rsplit("/", 2)[-2:] for write in wire.writes]
    assert order.index(["configmaps", SCHEDULER]) < order.index(["deployments", SCHEDULER])
    assert order.index(["serviceaccounts", "binder"]) < order.index(["deployments", "binder"])


async def test_conditions_follow_the_deployments(place: ServiceCluster) -> None:
    """operations:O-35, O-36."""
    await config(place)
    await shard(place)
    async with place.running(operator()) as service:
        await settled(place, service)
        found = await conditions(place)
        assert found["Deployed"] == ("True", "Resources deployed")
        assert found["DependenciesFulfilled"] == ("True", "Dependencies are fulfilled")
        assert found["Available"][0] == "False"
        assert "Binder: Deployment [binder] is not available\nBinder: not available" in found["Available"][1]
        assert found["Ready"] == ("False", "System not ready")
        assert found["Reconciling"] == ("False", "Reconciliation completed successfully")
        await make_available(place, *COMPONENTS, SCHEDULER)
        await settled(place, service)
        assert (await conditions(place))["Ready"] == ("True", "System is ready")
        of_shard = await conditions(place, resources.SCHEDULING_SHARDS, "default")
        assert of_shard["Available"] == ("True", "System available")
        assert of_shard["ArgsValid"][0] == "True"
        await change(place, "global.jsonLog", True)
        await settled(place, service)
        assert (await conditions(place))["Available"][0] == "False"


async def test_a_change_is_never_said_to_be_available_before_its_deployments_are(place: ServiceCluster) -> None:
    """operations:O-36."""
    await config(place)
    await shard(place)
    caches = Caches(place.client)
    seen: list[str] = []
    watched: Store[Document] = caches.store(resources.CONFIGS, dict)

    def note(seen_now: Change[Document]) -> None:
        for each in (seen_now.new or {}).get("status", {}).get("conditions") or ():
            if each["type"] == "Available" and each["observedGeneration"] == 2:
                seen.append(each["status"])

    async with place.running(operator()) as service:
        await settled(place, service)
        await make_available(place, *COMPONENTS, SCHEDULER)
        await settled(place, service)
        watched.subscribe(note)
        await caches.start()
        await change(place, "global.jsonLog", True)
        await settled(place, service)
        await watched.wait_until(lambda _: bool(seen), 10)
        await caches.stop()
    assert set(seen) == {"False"}


async def test_oc8_a_generation_is_said_to_be_worked_on_once(place: ServiceCluster) -> None:
    await config(place)
    wire = place.wire()
    async with place.running(operator(), transport=wire) as service:
        await settled(place, service)
        assert _statuses(wire) == 2, wire.writes
        await make_available(place, "binder")
        await settled(place, service)
        assert _statuses(wire) == 3


def _statuses(wire: RecordingTransport) -> int:
    return sum(write.endswith("/configs/kai-config/status") for write in wire.writes)


async def test_oc3_budgets_come_and_go(place: ServiceCluster) -> None:
    asked = {"replicas": 2, "service": {"podDisruptionBudget": {"enabled": True}}}
    await config(place, admission=asked, scheduler=asked)
    await shard(place)
    async with place.running(operator()) as service:
        await settled(place, service)
        for name in ("admission", SCHEDULER):
            assert await is_there(place, resources.POD_DISRUPTION_BUDGETS, name)
        await place.client.delete(resources.POD_DISRUPTION_BUDGETS, "admission", NS)
        await settled(place, service)
        assert await is_there(place, resources.POD_DISRUPTION_BUDGETS, "admission")
        await change(place, "admission.replicas", 1)
        await change(place, "scheduler.service.podDisruptionBudget.enabled", False)
        await settled(place, service)
        for name in ("admission", SCHEDULER):
            assert not await is_there(place, resources.POD_DISRUPTION_BUDGETS, name)


async def test_what_others_change_is_put_back_and_what_they_add_is_kept(place: ServiceCluster) -> None:
    """operations:O-32, O-41, E-23."""
    await config(place)
    async with place.running(operator()) as service:
        await settled(place, service)
        theirs = {
            "metadata": {"labels": {"theirs": "1"}},
            "spec": {
                "replicas": 5,
                "template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}},
            },
        }
        await place.client.patch(
            resources.DEPLOYMENTS, "pod-grouper", theirs, NS, kind=PatchKind.STRATEGIC, field_manager="kubectl"
        )
        await settled(place, service)
        found = await get(place, resources.DEPLOYMENTS, "pod-grouper")
        assert found["spec"]["replicas"] == 1
        assert found["metadata"]["labels"]["theirs"] == "1"
        annotations = found["spec"]["template"]["metadata"]["annotations"]
        assert annotations == {"kubectl.kubernetes.io/restartedAt": "now"}


async def test_a_flag_that_is_not_wanted_any_more_goes(place: ServiceCluster) -> None:
    """operations:E-15."""
    await config(place, admission={"blockNvidiaVisibleDevices": True}, global_={})
    flag = "--block-nvidia-visible-devices=true"
    async with place.running(operator()) as service:
        await settled(place, service)
        assert flag in await args(place, "admission")
        await change(place, "admission.blockNvidiaVisibleDevices", False)
        await settled(place, service)
        assert flag not in await args(place, "admission")
        await change(place, "global", {"nodeSelector": {"a": "b"}})
        await settled(place, service)
        await change(place, "global", None)
        await settled(place, service)
        found = await get(place, resources.DEPLOYMENTS, "admission")
        assert "nodeSelector" not in found["spec"]["template"]["spec"]


async def test_oc5_objects_of_another_operator_are_taken_over(place: ServiceCluster) -> None:
    await place.create(
        resources.SERVICES,
        "admission",
        namespace=NS,
        spec={"ports": [{"name": "old", "port": 9999}], "selector": {"app": "theirs"}},
    )
    container = {"name": "old", "image": "theirs"}
    await place.create(
        resources.DEPLOYMENTS,
        "binder",
        namespace=NS,
        spec={
            "selector": {"matchLabels": {"app": "theirs"}},
            "template": {"metadata": {"labels": {"app": "theirs"}}, "spec": {"containers": [container]}},
        },
    )
    made = await config(place)
    async with place.running(operator()):
        pass
    service = await get(place, resources.SERVICES, "admission")
    assert [port["port"] for port in service["spec"]["ports"]] == [443, 8080]
    assert service["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    binder = await get(place, resources.DEPLOYMENTS, "binder")
    assert [each["name"] for each in binder["spec"]["template"]["spec"]["containers"]] == ["binder"]


async def test_oc6_what_is_disabled_goes_and_queues_stay(place: ServiceCluster) -> None:
    """operations:O-15, E-12."""
    await config(place)
    await shard(place)
    async with place.running(operator()) as service:
        await settled(place, service)
        assert await is_there(place, resources.DEPLOYMENTS, SCHEDULER)
        await change(place, "scheduler.service.enabled", False)
        await change(place, "admission.service.enabled", False)
        await settled(place, service)
        assert not await is_there(place, resources.DEPLOYMENTS, SCHEDULER)
        assert not await is_there(place, resources.MUTATING_WEBHOOKS, "mutating-kai-admission")
        assert not await is_there(place, resources.SECRETS, "kai-admission-webhook-tls-secret")
        assert await is_there(place, resources.CUSTOM_RESOURCE_DEFINITIONS, "queues.scheduling.run.ai")
        await change(place, "scheduler.service.enabled", True)
        await settled(place, service)
        assert await is_there(place, resources.DEPLOYMENTS, SCHEDULER)


async def test_t113_the_numa_exporter_comes_and_goes_with_the_plugin(place: ServiceCluster) -> None:
    """gpu:T-113, X-1"""
    await config(place)
    await shard(place, plugins={"numa": {"enabled": True}})
    async with place.running(operator()) as service:
        await settled(place, service)
        assert await is_there(place, resources.DAEMON_SETS, "numa-placement-exporter")
        await change(place, "numaPlacementExporter.service.enabled", False)
        await settled(place, service)
        assert not await is_there(place, resources.DAEMON_SETS, "numa-placement-exporter")


async def test_objects_of_others_are_not_pruned(place: ServiceCluster) -> None:
    await place.create(resources.CONFIG_MAPS, "theirs", namespace=NS)
    stranger = {"apiVersion": "v1", "kind": "Config", "name": "x", "uid": "y", "controller": True}
    await place.create(resources.CONFIG_MAPS, "owned", namespace=NS, owners=[stranger])
    await config(place)
    async with place.running(operator()):
        pass
    assert await is_there(place, resources.CONFIG_MAPS, "theirs")


async def test_oc7_pull_secrets_of_the_reservation_account_are_kept(place: ServiceCluster) -> None:
    """operations:O-23."""
    await config(place)
    account = {"imagePullSecrets": [{"name": "theirs"}]}
    async with place.running(operator()) as service:
        await settled(place, service)
        await place.client.patch(
            resources.SERVICE_ACCOUNTS, "kai-resource-reservation", account, names.RESERVATION_NAMESPACE
        )
        await settled(place, service)
        await change(place, "global.additionalImagePullSecrets", ["ours"])
        await settled(place, service)
        found = await get(place, resources.SERVICE_ACCOUNTS, "kai-resource-reservation", names.RESERVATION_NAMESPACE)
        assert sorted(each["name"] for each in found["imagePullSecrets"]) == ["ours", "theirs"]


async def test_oc14_the_service_follows_the_leader(place: ServiceCluster) -> None:
    """operations:O-40, E-13."""
    await config(place, scheduler={"replicas": 2})
    await shard(place)
    container = {"name": "c", "image": "i"}

    async def addresses() -> list[str]:
        found = await get(place, resources.ENDPOINT_SLICES, f"{SCHEDULER}-leader")
        return [address for each in found.get("endpoints") or [] for address in each["addresses"]]

    async with place.running(operator()) as service:
        await settled(place, service)
        assert await addresses() == []
        pod = {"containers": [container], "schedulerName": "none"}
        await place.create(resources.PODS, "pod-a", namespace=NS, labels={"app": SCHEDULER}, spec=pod)
        await place.create(resources.LEASES, "kai-scheduler", namespace=NS, spec={"holderIdentity": "pod-a_uid"})
        await settled(place, service)
        assert await addresses() == []
        await place.pod_status("pod-a", NS, podIP="10.1.2.3", podIPs=[{"ip": "10.1.2.3"}])
        await settled(place, service)
        assert await addresses() == ["10.1.2.3"]
        await place.client.delete(resources.PODS, "pod-a", NS, grace_s=0)
        await settled(place, service)
        assert await addresses() == []
        await change(place, "scheduler.replicas", 1)
        await settled(place, service)
        assert not await is_there(place, resources.ENDPOINT_SLICES, f"{SCHEDULER}-leader")
        back = await get(place, resources.SERVICES, SCHEDULER)
        assert back["spec"]["selector"] == {"app": SCHEDULER}


async def test_oc18_what_clouds_inject_into_webhooks_is_kept(place: ServiceCluster) -> None:
    """operations:O-30."""
    await config(place)
    async with place.running(operator()) as service:
        await settled(place, service)
        found = await get(place, resources.MUTATING_WEBHOOKS, "mutating-kai-admission")
        (webhook,) = found["webhooks"]
        extra = {"key": "cloud", "operator": "DoesNotExist"}
        webhook["namespaceSelector"]["matchExpressions"].append(extra)
        webhook["timeoutSeconds"] = 5
        webhook["clientConfig"]["caBundle"] = "Y2E="
        await place.client.update(resources.MUTATING_WEBHOOKS, found)
        await settled(place, service)
        await change(place, "admission.queueLabelSelector", True)
        await settled(place, service)
        (after,) = (await get(place, resources.MUTATING_WEBHOOKS, "mutating-kai-admission"))["webhooks"]
        assert extra in after["namespaceSelector"]["matchExpressions"]
        assert {"key": "kai.scheduler/queue", "operator": "Exists"} in after["namespaceSelector"]["matchExpressions"]
        assert after["timeoutSeconds"] == 5
        assert after["clientConfig"]["caBundle"] == "Y2E="


async def test_a_shard_that_cannot_work_is_refused_and_what_runs_goes_on(place: ServiceCluster) -> None:
    await config(place)
    await shard(place)
    await shard(place, "second", partitionLabelValue="second")
    async with place.running(operator()) as service:
        await settled(place, service)
        before = await get(place, resources.DEPLOYMENTS, SCHEDULER)
        await change_shard(place, "placementStrategy.gpu", "pile")
        await change_shard(place, "args", {"v": "5"}, "second")
        await settled(place, service)
        text = "spec.placementStrategy.gpu: 'pile': expected binpack or spread"
        found = await conditions(place, resources.SCHEDULING_SHARDS, "default")
        assert found["Deployed"] == ("False", text)
        assert (await get(place, resources.DEPLOYMENTS, SCHEDULER))["metadata"]["generation"] == (
            before["metadata"]["generation"]
        )
        assert "--v=5" in await args(place, "kai-scheduler-second")
        assert await place.wait_for_warning("default", "InvalidConfiguration") == text
        await change_shard(place, "placementStrategy.cpu", "spread")
        await settled(place, service)
        assert (await conditions(place, resources.SCHEDULING_SHARDS, "default"))["Deployed"] == ("False", text)


async def test_e19_arguments_that_are_no_flags_are_named_and_left_out(place: ServiceCluster) -> None:
    """operations:OC-13, OD-3."""
    await config(place)
    await shard(place, args={"v": "5", "nonsense": "1"})
    async with place.running(operator()) as service:
        await settled(place, service)
        text = "spec.args.nonsense: the scheduler has no flag --nonsense"
        found = await conditions(place, resources.SCHEDULING_SHARDS, "default")
        assert found["ArgsValid"] == ("False", text)
        assert found["Deployed"][0] == "True"
        assert await place.wait_for_warning("default", "UnknownArgument") == text


async def test_arguments_of_a_component_that_have_no_effect_are_named(place: ServiceCluster) -> None:
    """install:args."""
    await config(place, podGrouper={"service": {"args": {"follow-queue": "true", "nonsense": "1", "qps": "7"}}})
    async with place.running(operator()) as service:
        await settled(place, service)
        unknown = "spec.podGrouper.service.args.nonsense: pod-grouper has no flag --nonsense"
        taken = "spec.podGrouper.service.args.qps: --qps follows from other fields of the Config, which hold"
        found = await conditions(place)
        assert found["ArgsValid"] == ("False", f"{unknown}\n{taken}")
        assert found["Deployed"][0] == "True"
        assert await place.wait_for_warning("kai-config", "UnknownArgument") == unknown
        assert await place.wait_for_warning("kai-config", "OverriddenArgument") == taken
        assert (await args(place, "pod-grouper"))[-1] == "--follow-queue=true"
        for flag in ("nonsense", "qps"):
            await change(place, f"podGrouper.service.args.{flag}", None)
        await settled(place, service)
        assert (await conditions(place))["ArgsValid"][0] == "True"


async def test_another_namespace_is_refused(place: ServiceCluster) -> None:
    await config(place, namespace="elsewhere")
    async with place.running(operator()) as service:
        await settled(place, service)
        status, text = (await conditions(place))["Deployed"]
        assert status == "False"
        assert text.startswith("spec.namespace: 'elsewhere': this operator deploys to 'kai-scheduler'")
    assert not await is_there(place, resources.DEPLOYMENTS, "binder")


async def test_accounts_are_kept_in_the_namespaces_of_the_flags(place: ServiceCluster) -> None:
    """operations:OD-11: a Config with others is refused, as roles are in these."""
    for namespace in ("reserved", "scaling"):
        await ensure_namespace(place.client, namespace)
    admin = "system:serviceaccount:default:operator"
    there = operator(reservation_namespace="reserved", scaling_namespace="scaling")
    await config(place, binder={"resourceReservation": {"namespace": "reserved"}})
    async with place.running(there, transport=place.server.transport(admin)) as service:
        await settled(place, service)
        assert (await conditions(place))["Deployed"] == (
            "False",
            "spec.nodeScaleAdjuster.args.nodeScaleNamespace: 'kai-scale-adjust': the roles of this installation are in"
            " 'scaling'; set nodescaleadjuster.scalingPodNamespace of the chart instead",
        )
        await change(place, "nodeScaleAdjuster.args.nodeScaleNamespace", "scaling")
        await settled(place, service)
        assert (await conditions(place))["Deployed"][0] == "True"
        assert await is_there(place, resources.SERVICE_ACCOUNTS, "kai-resource-reservation", "reserved")
        assert await is_there(place, resources.SERVICE_ACCOUNTS, "kai-scale-adjust", "scaling")
        await change(place, "binder.resourceReservation.namespace", "kai-resource-reservation")
        await settled(place, service)
        assert (await conditions(place))["Deployed"][1].startswith("spec.binder.resourceReservation.namespace: ")
        # Nothing of a component that is not deployed is there.
        await change(place, "binder.service.enabled", False)
        await settled(place, service)
        assert (await conditions(place))["Deployed"][0] == "True"


async def test_network_policies_come_and_go(place: ServiceCluster) -> None:
    """operations:OD-22."""
    await config(place)
    await shard(place)
    async with place.running(operator()) as service:
        await settled(place, service)
        assert not await is_there(place, resources.NETWORK_POLICIES, "admission")
        await change(place, "global.networkPolicies", True)
        await settled(place, service)
        found = await get(place, resources.NETWORK_POLICIES, "admission")
        assert found["metadata"]["ownerReferences"][0]["kind"] == "Config"
        assert await is_there(place, resources.NETWORK_POLICIES, SCHEDULER)
        await change(place, "global.networkPolicies", None)
        await settled(place, service)
        assert not await is_there(place, resources.NETWORK_POLICIES, "admission")
        assert not await is_there(place, resources.NETWORK_POLICIES, SCHEDULER)


async def test_a_registration_that_no_role_names_changes_nothing(place: ServiceCluster) -> None:
    """operations:O-54."""
    await config(place)
    async with place.running(operator()) as service:
        await settled(place, service)
        await change(place, "admission.validatingWebhookConfigurationName", "mine")
        await settled(place, service)
        status, text = (await conditions(place))["Deployed"]
        assert status == "False"
        assert text.startswith("spec.admission.validatingWebhookConfigurationName: 'mine': ")
    assert await is_there(place, resources.VALIDATING_WEBHOOKS, "validating-kai-admission")
    assert await is_there(place, resources.DEPLOYMENTS, "binder")


async def test_o1_a_config_of_another_name_is_ignored(place: ServiceCluster) -> None:
    await place.create(resources.CONFIGS, "other", spec={})
    await shard(place)
    wire = place.wire()
    async with place.running(operator(), transport=wire):
        pass
    assert wire.writes == []


async def test_oc17_a_prometheus_needs_its_operator(place: ServiceCluster) -> None:
    """operations:O-46."""
    await config(place, prometheus={"enabled": True})
    async with place.running(operator()) as service:
        await settled(place, service)
        found = await conditions(place)
        assert found["DependenciesFulfilled"] == ("False", "\nKAI-prometheus is missing prometheus operator")
        assert found["Deployed"][0] == "True"


async def test_oc2_cdi_follows_the_cluster_policy(place: ServiceCluster) -> None:
    """operations:O-24, OD-16: also where its kind is installed later."""
    await config(place)
    async with place.running(operator(), timeouts=WatchTimeouts(longest_pause_s=0.05)) as service:
        await settled(place, service)
        assert '"cdiEnabled":"false"' in _plugins(await args(place, "binder"))
        await place.ensure(definition(resources.CLUSTER_POLICIES))
        await place.create(resources.CLUSTER_POLICIES, "policy", spec={"cdi": {"enabled": True, "default": True}})
        await _wait_for_binder(place, '"cdiEnabled":"true"')
        await place.client.patch(resources.CLUSTER_POLICIES, "policy", {"spec": {"cdi": {"enabled": False}}})
        await _wait_for_binder(place, '"cdiEnabled":"false"')


async def _wait_for_binder(place: ServiceCluster, text: str) -> None:
    deployments = place.caches.store(resources.DEPLOYMENTS, dict, namespace=NS)
    await deployments.wait_until(
        lambda store: any(
            text in str(each["spec"]["template"]["spec"]["containers"][0].get("args")) for each in store.values()
        )
    )


def _plugins(found: list[str]) -> str:
    return found[found.index("--plugins") + 1]


async def test_o25_the_conversion_of_queues_is_removed(place: ServiceCluster) -> None:
    webhook = {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://localhost:1/convert"}},
    }
    name = "queues.scheduling.run.ai"
    await place.client.patch(resources.CUSTOM_RESOURCE_DEFINITIONS, name, {"spec": {"conversion": webhook}})
    await config(place)
    async with place.running(operator()):
        pass
    found = await get(place, resources.CUSTOM_RESOURCE_DEFINITIONS, name)
    assert (found["spec"].get("conversion") or {"strategy": "None"})["strategy"] == "None"
