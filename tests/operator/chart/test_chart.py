"""What the chart installs for which values."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.installation import Config, SchedulingShard
from pykai.kube.flags import parse_command_line
from pykai.operator.chart.language import RELEASE_NAME_ANNOTATION, TemplateFailure
from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.install import installation, optional_role
from pykai.operator.monitoring.files import monitoring_objects
from pykai.services.table import SERVICES, installed_services
from tests.operator.chart.charts import config_in_hook, images, rendered, rendered_config
from tests.operator.installations import Objects, args_of, main, nested, objects, states

RESERVATION = names.RESERVATION_NAMESPACE
QUEUES = (names.DEFAULT_PARENT_QUEUE, names.DEFAULT_QUEUE)


@pytest.mark.parametrize("mode", ["on", "only"])
def test_fips_is_behind_every_tag(mode: str) -> None:
    """operations:O-63, OC-19."""
    for chosen in ({}, {"global.tag": "v2"}, {"binder.image.tag": "v3", "postCleanup.image.tag": "v4"}):
        found = rendered({"global.fipsMode": mode}, chosen)
        config = config_in_hook(found)
        used = images([*found.values(), config])
        assert used
        assert [each for each in used if not each.endswith("-fips")] == []
        assert [each for each in images(list(rendered(chosen).values())) if each.endswith("-fips")] == []


def test_a_tag_of_a_component_goes_before_that_of_all_and_the_version() -> None:
    """operations:10."""

    def tag(*changes: dict[str, Any]) -> str:
        found: str = rendered_config(*changes)["binder"]["service"]["image"]["tag"]
        return found

    assert tag() == "0.1.0"
    assert tag({"global.tag": "v2"}) == "v2"
    assert tag({"global.tag": "v2", "binder.image.tag": "v3"}) == "v3"


def test_images_are_in_the_registry_of_the_values() -> None:
    operator = rendered({"global.registry": "registry.test/team"})["Deployment", "kai-operator"]
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.test/team/pykai:0.1.0"
    assert {"name": "MS_REPOSITORY", "value": "registry.test/team"} in container["env"]
    jobs = rendered({"global.registry": "registry.test", "crdupgrader.image.registry": "mirror.test"})
    assert images(jobs["Job", "crd-upgrader"]) == ["mirror.test/pykai:0.1.0"]
    assert images(jobs["Job", "topology-migration"]) == ["registry.test/pykai:0.1.0"]
    assert images(rendered()["Job", "topology-migration"]) == ["pykai:0.1.0"]


def test_a_config_is_in_the_release_or_applied_by_a_hook_but_not_both() -> None:
    """operations:O-62, OC-19."""
    with pytest.raises(TemplateFailure, match="mutually exclusive"):
        rendered({"kaiConfig.render": True})
    in_release = {"kaiConfig.render": True, "kaiConfigDeployer.enabled": False}
    assert ("Job", "kai-config-deployer") not in rendered(in_release)
    assert ("Job", "kai-config-deployer") in rendered()


@pytest.mark.parametrize(("replicas", "asked", "elects"), [(1, False, "false"), (2, False, "true"), (1, True, "true")])
def test_several_operators_elect_a_leader(replicas: int, asked: bool, elects: str) -> None:
    """operations:OC-19."""
    found = rendered({"operator.replicaCount": replicas, "global.leaderElection": asked})
    deployment = found["Deployment", "kai-operator"]
    assert f"--leader-elect={elects}" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert deployment["spec"]["replicas"] == replicas
    assert config_in_hook(found)["spec"]["global"]["replicaCount"] == replicas


def test_what_is_empty_is_left_out_of_the_config() -> None:
    """operations:OC-19."""
    spec = rendered_config()
    for component in ("podGrouper", "podGroupController", "binder", "scheduler", "queueController", "admission"):
        assert not {"resources", "affinity"} & spec[component]["service"].keys()
    assert "prometheus" not in spec
    assert spec["global"].keys() == {"replicaCount", "vpa", "queueLabelKey"}
    resources = {"limits": {"cpu": "1"}}
    changed = rendered_config({"binder.resources": resources, "scheduler.affinity": {"podAffinity": {}}})
    assert changed["binder"]["service"]["resources"] == resources
    assert changed["scheduler"]["service"]["affinity"] == {"podAffinity": {}}
    external = {"prometheus.enabled": True, "prometheus.externalPrometheusUrl": "http://prometheus.test"}
    assert rendered_config(external)["prometheus"] == {
        "enabled": True,
        "externalPrometheusUrl": "http://prometheus.test",
    }


def test_config_and_shard_have_what_tests_of_kai_read_unchecked() -> None:
    """operations:O-50, E-9."""
    found = rendered()
    config = decode_as(Config, config_in_hook(found))
    assert config.metadata.name == "kai-config"
    assert config.spec.scheduler is not None
    assert config.spec.scheduler.service is not None
    assert config.spec.global_ is not None
    shard = decode_as(SchedulingShard, found["SchedulingShard", "default"])
    assert shard.spec.placement_strategy is not None
    assert shard.spec.placement_strategy.gpu == "binpack"


def test_every_field_of_the_config_is_one_that_the_operator_reads() -> None:
    """A value that no type reads would be pruned, and have no effect."""
    everything: dict[str, Any] = {
        "global.namespaceLabelSelector": {"a": "b"},
        "global.podLabelSelector": {"a": "b"},
        "global.nodePoolLabelKey": "pool",
        "global.jsonLog": True,
        "global.affinity": {"podAffinity": {}},
        "global.requireDefaultPodAntiAffinityTerm": True,
        "global.nodeSelector": {"a": "b"},
        "global.tolerations": [{"operator": "Exists"}],
        "global.daemonsetsTolerations": [{"operator": "Exists"}],
        "global.priorityClassName": "high",
        "global.securityContext": {"runAsUser": 1},
        "global.imagePullSecrets": [{"name": "secret"}],
        "openshift": True,
        "binder.cdiEnabled": False,
        "binder.runtimeClassName": "nvidia",
        "binder.resourceReservationPodResources": {"limits": {"cpu": "1"}},
        "binder.plugins": {"gpusharing": {"enabled": False}},
        "numaPlacementExporter.enabled": False,
        "numaPlacementExporter.nodeSelector": {"a": "b"},
        "numaPlacementExporter.tolerations": [{"operator": "Exists"}],
        "numaPlacementExporter.pollInterval": "2s",
        "numaPlacementExporter.driftResyncInterval": "2m",
        "numaPlacementExporter.podResourcesHostPath": "/a",
        "numaPlacementExporter.podResourcesSocket": "/a/b",
        "numaPlacementExporter.sysfsHostPath": "/c",
        "numaPlacementExporter.resources": {"limits": {"cpu": "1"}},
        "prometheus.enabled": True,
        "prometheus.externalPrometheusUrl": "http://prometheus.test",
    }
    spec = rendered_config(everything)
    (definition,) = (each for each in installation() if each["metadata"]["name"] == "configs.kai.scheduler")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert list(_unknown(spec, schema)) == []


def _unknown(document: Any, schema: dict[str, Any], path: str = "spec") -> Any:
    if not isinstance(document, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for key, value in document.items():
        below = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
        if below is None:
            yield f"{path}.{key}"
        else:
            yield from _unknown(value, below, f"{path}.{key}")


def test_the_default_shard_takes_what_the_values_say_of_the_scheduler() -> None:
    """operations:10."""
    found = rendered(
        {
            "scheduler.placementStrategy": "spread",
            "scheduler.args": {"v": "5"},
            "scheduler.goMemLimit": "6Gi",
            "scheduler.plugins": {"elastic": {"enabled": False}},
            "scheduler.actions": {"consolidation": {"enabled": False}},
            "scheduler.scenarioSearchBudgets": {"maxJobSearchDuration": "1m"},
        }
    )
    assert found["SchedulingShard", "default"]["spec"] == {
        "partitionLabelValue": "",
        "placementStrategy": {"gpu": "spread", "cpu": "spread"},
        "args": {"v": "5"},
        "goMemLimitRatio": 0.9,
        "goMemLimit": "6Gi",
        "plugins": {"elastic": {"enabled": False}},
        "actions": {"consolidation": {"enabled": False}},
        "scenarioSearchBudgets": {"maxJobSearchDuration": "1m"},
    }
    assert ("SchedulingShard", "default") not in rendered({"defaultShard.enabled": False})


def live(*objects: tuple[str, str, str], release: str = "") -> dict[tuple[str, str, str], dict[str, Any]]:
    """What a look at the cluster finds, as objects of a release."""
    annotations = {RELEASE_NAME_ANNOTATION: release} if release else {}
    return {each: {"metadata": {"annotations": annotations}} for each in objects}


KEPT = (
    ("Namespace", "", RESERVATION),
    ("ServiceAccount", RESERVATION, RESERVATION),
    ("Queue", "", names.DEFAULT_PARENT_QUEUE),
    ("Queue", "", names.DEFAULT_QUEUE),
)


def kept_in(found: Objects) -> list[tuple[str, str]]:
    return [(kind, name) for kind, _, name in KEPT if (kind, name) in found]


def test_objects_that_are_there_already_are_left_to_their_owner() -> None:
    """operations:10."""
    everything = [(kind, name) for kind, _, name in KEPT]
    assert kept_in(rendered()) == everything
    assert kept_in(rendered(live=live(*KEPT))) == []
    assert kept_in(rendered(live=live(*KEPT, release="another"))) == []


def test_every_revision_of_a_release_has_the_objects_that_it_made() -> None:
    """operations:OD-19: a rollback finds them, and a queue that a user deleted stays deleted."""
    everything = [(kind, name) for kind, _, name in KEPT]
    ours = live(*KEPT, release="kai-scheduler")
    assert kept_in(rendered(live=ours, is_install=False)) == everything
    assert kept_in(rendered(live=ours)) == everything
    namespaces = [each for each in everything if each[0] != "Queue"]
    assert kept_in(rendered(is_install=False)) == namespaces


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("global.resourceReservation.createNamespace", [("Namespace", RESERVATION)]),
        ("global.resourceReservation.createServiceAccount", [("ServiceAccount", RESERVATION)]),
        ("defaultQueue.createDefaultQueue", [("Queue", name) for name in QUEUES]),
        ("defaultPriorityClasses.enabled", [("PriorityClass", name) for name in ("train", "inference")]),
        ("topologyMigration.enabled", [("Job", "topology-migration")]),
        ("postCleanup.enabled", [("Job", "post-delete-cleanup")]),
        ("admissionPolicies.enabled", [("ValidatingAdmissionPolicy", "kai-pods")]),
    ],
)
def test_parts_can_be_switched_off(path: str, gone: list[tuple[str, str]]) -> None:
    """operations:10, OC-19."""
    before, after = rendered(), rendered({path: False})
    for each in gone:
        assert each in before
        assert each not in after


def test_what_users_work_in_stays_when_the_release_goes() -> None:
    """operations:10, O-52."""
    found = rendered({"global.clusterAutoscaling": True})
    staying = {
        key for key, each in found.items() if "helm.sh/resource-policy" in each["metadata"].get("annotations", {})
    }
    for kind, name in (*((kind, name) for kind, _, name in KEPT), ("SchedulingShard", "default")):
        assert (kind, name) in staying
        annotations = found[kind, name]["metadata"]["annotations"]
        assert annotations["argocd.argoproj.io/sync-options"] == "Prune=false"
    assert ("Namespace", names.SCALE_ADJUST_NAMESPACE) in staying
    assert {kind for kind, _ in staying} == {"Namespace", "ServiceAccount", "Queue", "SchedulingShard"}


def test_the_default_queues_are_those_of_kai() -> None:
    """queues:2.3."""
    amounts = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    found = rendered({"defaultQueue.childName": "team"})
    assert found["Queue", "team"]["spec"] == {
        "parentQueue": names.DEFAULT_PARENT_QUEUE,
        "resources": {"cpu": amounts, "gpu": amounts, "memory": amounts},
    }


def test_roles_are_those_of_the_table_in_the_namespaces_of_the_values() -> None:
    """operations:OD-11."""
    moved = {"global.resourceReservation.namespace": "reserved", "global.clusterAutoscaling": True}
    found = rendered(moved, namespace="elsewhere")
    for service in installed_services():
        role = f"kai-{service.account}"
        for rule in service.rules:
            place = {"": "", names.DEFAULT_NAMESPACE: "elsewhere", RESERVATION: "reserved"}.get(
                rule.namespace, rule.namespace
            )
            made = found["Role" if place else "ClusterRole", f"{place}/{role}" if place else role]
            assert {
                "apiGroups": [rule.group],
                "resources": sorted(rule.resources),
                "verbs": sorted(rule.verbs),
                **({"resourceNames": sorted(rule.names)} if rule.names else {}),
            } in made["rules"]
            binding = found["RoleBinding" if place else "ClusterRoleBinding", f"{place}/{role}" if place else role]
            assert binding["subjects"] == [
                {"kind": "ServiceAccount", "name": service.account, "namespace": "elsewhere"}
            ]
    (operator,) = found["Deployment", "kai-operator"]["spec"]["template"]["spec"]["containers"]
    assert {
        "--namespace=elsewhere",
        "--resource-reservation-namespace=reserved",
        f"--scale-adjust-namespace={names.SCALE_ADJUST_NAMESPACE}",
    } <= set(operator["args"])
    # Without autoscaling, too: the operator watches accounts there, and works once it may.
    assert ("Namespace", names.SCALE_ADJUST_NAMESPACE) in rendered()
    assert ("Role", f"{names.SCALE_ADJUST_NAMESPACE}/kai-kai-operator") in rendered()


def test_the_schedulers_may_suspend_workloads_where_asked() -> None:
    """suspend:rights."""
    name = "kai-scheduler-suspend"
    assert ("ClusterRole", name) not in rendered()
    found = rendered({"scheduler.suspendRole": True}, namespace="elsewhere")
    assert [found["ClusterRole", name], found["ClusterRoleBinding", name]] == optional_role("suspend", "elsewhere")
    (subject,) = found["ClusterRoleBinding", name]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "scheduler", "namespace": "elsewhere"}


def test_pods_over_quota_are_gated_where_asked() -> None:
    """queues:Q-405."""
    on, timeout = "global.queueAdmissionGating.enabled", "global.queueAdmissionGating.reservationTimeout"
    assert "queueAdmissionGating" not in rendered_config({timeout: "5m"})["global"]
    assert rendered_config({on: True})["global"]["queueAdmissionGating"] == {"enabled": True}
    given = rendered_config({on: True, timeout: "5m"})
    assert given["global"]["queueAdmissionGating"] == {"enabled": True, "reservationTimeout": "5m"}
    made = objects(given)
    for deployment in ("admission", "kai-scheduler-default"):
        assert "--queue-admission-gating=true" in args_of(made, deployment)
    assert "--queue-admission-reservation-timeout=5m" in args_of(made, "kai-scheduler-default")


@pytest.mark.parametrize(
    ("value", "deployment"),
    [
        ("podgrouper", "pod-grouper"),
        ("podgroupcontroller", "podgroup-controller"),
        ("binder", "binder"),
        ("queuecontroller", "queue-controller"),
        ("admission", "admission"),
        ("nodescaleadjuster", "node-scale-adjuster"),
        ("numaPlacementExporter", "numa-placement-exporter"),
    ],
)
def test_flags_of_a_component_are_on_its_command_line(value: str, deployment: str) -> None:
    """install:args."""
    switches = {"numaPlacementExporter.enabled": True, "global.clusterAutoscaling": True}
    found = objects(rendered_config({f"{value}.args": {"v": "5"}}, switches))
    kind = "DaemonSet" if deployment.startswith("numa") else "Deployment"
    assert main(found, deployment, kind)["args"][-1] == "--v=5"
    assert str(found).count("--v=5") == 1


def test_policies_are_about_the_namespaces_of_the_values() -> None:
    moved = {"global.resourceReservation.namespace": "reserved", "global.resourceReservation.appLabel": "app"}
    text = str([each for (kind, _), each in rendered(moved, namespace="elsewhere").items() if "Policy" in kind])
    assert "namespace('reserved')" in text
    assert "system:serviceaccounts:elsewhere" in text
    assert "@" not in text
    assert RESERVATION not in text
    assert {kind for kind, _ in rendered() if "Admission" in kind} == {
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }


def test_policies_are_those_of_the_manifests() -> None:
    found = rendered()
    for each in installation():
        if "AdmissionPolicy" in each["kind"]:
            assert found[each["kind"], each["metadata"]["name"]] == each


def test_openshift_lets_all_accounts_run_hooks_included() -> None:
    """operations:OD-14."""
    assert ("SecurityContextConstraints", "kai-system") not in rendered()
    for found in (
        rendered({"openshift": True}),
        rendered(live=live(("CustomResourceDefinition", "", "clusterversions.config.openshift.io"))),
    ):
        users = found["SecurityContextConstraints", "kai-system"]["users"]
        jobs = [each for (kind, _), each in found.items() if kind == "Job"]
        accounts = {each["spec"]["template"]["spec"]["serviceAccountName"] for each in jobs}
        accounts |= {service.account for service in installed_services()}
        assert {f"system:serviceaccount:kai-scheduler:{each}" for each in accounts} <= set(users)
        assert f"system:serviceaccount:{RESERVATION}:{RESERVATION}" in users
        assert config_in_hook(found)["spec"]["global"]["openshift"] is True


def test_the_account_of_the_cleanup_is_called_as_the_job_says() -> None:
    """operations:OD-14."""
    found = rendered({"postCleanup.serviceAccountName": "sweeper"})
    assert ("ServiceAccount", "sweeper") in found
    assert found["Job", "post-delete-cleanup"]["spec"]["template"]["spec"]["serviceAccountName"] == "sweeper"
    assert found["ClusterRoleBinding", "post-delete-cleanup"]["subjects"][0]["name"] == "sweeper"


@pytest.mark.parametrize(
    ("name", "moment", "weight"),
    [
        ("crd-upgrader", "pre-install,pre-upgrade", 2),
        ("topology-migration", "pre-install,pre-upgrade", 4),
        ("kai-config-deployer", "post-install,post-upgrade", 1),
        ("post-delete-cleanup", "post-delete", 1),
    ],
)
def test_hooks_run_at_their_moment_after_their_accounts_are_there(name: str, moment: str, weight: int) -> None:
    """operations:O-51, O-52."""
    found = rendered()
    job = found["Job", name]
    annotations = job["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == moment
    assert annotations["helm.sh/hook-weight"] == str(weight)
    assert "hook-succeeded" in annotations["helm.sh/hook-delete-policy"]
    assert ("argocd.argoproj.io/hook" in annotations) == (moment == "post-delete")
    account = job["spec"]["template"]["spec"]["serviceAccountName"]
    made = found["ServiceAccount", account]["metadata"]["annotations"]
    assert made["helm.sh/hook"] == moment
    assert int(made["helm.sh/hook-weight"]) < weight
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["kai", "hook", name]


@pytest.mark.parametrize("deployed", [True, False])
def test_only_a_config_of_the_chart_is_deleted_with_it(deployed: bool) -> None:
    """operations:O-51, O-62."""
    job = rendered({"kaiConfigDeployer.enabled": deployed})["Job", "post-delete-cleanup"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert f"--delete-config={str(deployed).lower()}" in container["args"]


def test_pods_of_the_chart_are_held_to_the_strict_standard() -> None:
    """operations:OD-22."""
    found = rendered()
    pods = [each["spec"]["template"]["spec"] for (kind, _), each in found.items() if kind in ("Deployment", "Job")]
    assert pods
    for pod in pods:
        (container,) = pod["containers"]
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert context["runAsNonRoot"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    given = {"runAsUser": 7}
    (container,) = rendered({"global.securityContext": given})["Deployment", "kai-operator"]["spec"]["template"][
        "spec"
    ]["containers"]
    assert container["securityContext"] == given


def test_ports_of_the_operator_are_those_of_its_addresses() -> None:
    found = rendered({"operator.metricsBindAddress": ":9000", "operator.probeBindAddress": "0.0.0.0:9001"})
    (container,) = found["Deployment", "kai-operator"]["spec"]["template"]["spec"]["containers"]
    assert [each["containerPort"] for each in container["ports"]] == [9000, 9001]
    assert container["livenessProbe"]["httpGet"]["port"] == "probe"


def test_a_service_of_the_operator_is_the_one_that_its_monitor_selects() -> None:
    """operations:OD-17: the chart makes it, because it makes the operator."""
    found = rendered({"operator.metricsBindAddress": ":9000"}, namespace="elsewhere")
    service = found["Service", "elsewhere/kai-operator"]
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (9000, 9000)
    pods = found["Deployment", "elsewhere/kai-operator"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pods.items()
    wanted = nested("prometheus.enabled", True) | {"namespace": "elsewhere"}
    made = objects(wanted, facts=ClusterFacts(has_prometheus=True, has_service_monitors=True))
    monitor = made["ServiceMonitor", "kai-operator"]["spec"]
    assert monitor["namespaceSelector"] == {"matchNames": ["elsewhere"]}
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [each["port"] for each in monitor["endpoints"]] == [port["name"]]


def operator_args(*changes: dict[str, Any], **settings: Any) -> list[str]:
    deployment = rendered(*changes, **settings)["Deployment", "kai-operator"]
    args: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return args


def test_the_command_line_of_the_operator_is_one_that_it_reads() -> None:
    given = parse_command_line(operator_args({"operator.logLevel": "debug", "global.jsonLog": True}))
    assert SERVICES["operator"].problems(given) == []


@pytest.mark.parametrize(
    ("level", "flag"), [("", []), ("debug", ["--v=4"]), ("info", ["--v=3"]), ("error", ["--v=2"]), ("panic", ["--v=2"])]
)
def test_the_log_of_the_operator_is_as_the_values_say(level: str, flag: list[str]) -> None:
    """operations:10"""
    assert [each for each in operator_args({"operator.logLevel": level}) if each.startswith("--v=")] == flag
    assert "--log-json=true" in operator_args({"global.jsonLog": True})
    assert "--log-json=true" not in operator_args()


def test_one_operator_ends_before_the_next_one_starts() -> None:
    """install:handover"""
    strategy = rendered()["Deployment", "kai-operator"]["spec"]["strategy"]
    assert strategy == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("mode", "switch", "shares"),
    [
        ("", False, False),
        ("", True, True),
        ("NonMemoryEnforced", False, True),
        ("HamiCore", False, True),
        ("NvFractions", False, True),
        ("Disabled", True, False),
    ],
)
def test_a_mode_of_sharing_goes_before_the_switch(mode: str, switch: bool, shares: bool) -> None:
    given = {"global.gpuSharingMode": mode, "global.gpuSharing": switch}
    assert rendered_config(given)["admission"]["gpuSharing"] is shares


SCC = "SecurityContextConstraints"
EXPORTER_SCC = "kai-numa-placement-exporter"


@pytest.mark.parametrize(
    ("values", "made"),
    [
        ({}, False),
        ({"numaPlacementExporter.enabled": True}, True),
        ({"scheduler.plugins": {"numa": {"enabled": True}}}, True),
        ({"scheduler.plugins": {"numa": {"enabled": False}}}, False),
        ({"scheduler.plugins": {"numa": {"enabled": True}}, "numaPlacementExporter.enabled": False}, False),
    ],
)
def test_openshift_lets_the_exporter_of_numa_placements_read_its_node(values: dict[str, Any], made: bool) -> None:
    """operations:OD-14"""
    found = rendered({"openshift": True, **values})
    assert ((SCC, EXPORTER_SCC) in found) is made
    assert (SCC, EXPORTER_SCC) not in rendered(values)
    if not made:
        return
    constraints = found[SCC, EXPORTER_SCC]
    config = rendered_config({"openshift": True, "numaPlacementExporter.enabled": True})
    (workload,) = (each for each in states(config)[0].operands["NumaPlacementExporter"] if each["kind"] == "DaemonSet")
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["runAsUser"] == constraints["runAsUser"]["uid"]
    assert {kind for volume in pod["volumes"] for kind in volume.keys() - {"name"}} <= set(constraints["volumes"])
    assert constraints["allowHostDirVolumePlugin"]
    account = f"system:serviceaccount:kai-scheduler:{pod['serviceAccountName']}"
    assert constraints["users"] == [account]
    assert not found[SCC, "kai-system"]["allowHostDirVolumePlugin"]


def test_nothing_is_made_for_prometheus_and_grafana_unless_asked_for() -> None:
    kinds = {kind for kind, _ in rendered()}
    assert not kinds & {"PrometheusRule", "NetworkPolicy"}
    assert ("ClusterRole", "kai-prometheus") not in rendered()
    assert not [name for kind, name in rendered() if kind == "ConfigMap" and "dashboard" in name]


def test_dashboards_and_alerts_are_those_of_the_manifests() -> None:
    """Where the values say, and with labels of their own."""
    found = rendered({"dashboards.enabled": True, "alerts.enabled": True}, namespace="elsewhere")
    for each in monitoring_objects("elsewhere"):
        assert found[each["kind"], f"elsewhere/{each['metadata']['name']}"] == each
    labelled = rendered({"dashboards.enabled": True, "dashboards.labels": {"mine": "yes"}})
    (first, *_) = (each for (kind, name), each in labelled.items() if kind == "ConfigMap" and "dashboard" in name)
    assert first["metadata"]["labels"]["mine"] == "yes"


@pytest.mark.parametrize("name", ["", "usage"])
def test_the_prometheus_of_a_config_may_find_what_it_reads(name: str) -> None:
    """operations:O-54: its role is bound to the account of the instance, whatever its name."""
    values: dict[str, Any] = {"prometheus.enabled": True, **({"prometheus.instanceName": name} if name else {})}
    found = rendered(values)
    (subject,) = found["ClusterRoleBinding", "kai-prometheus"]["subjects"]
    config = rendered_config(values)
    made = states(config, facts=ClusterFacts(has_prometheus=True, has_service_monitors=True))[0].operands
    accounts = [each["metadata"]["name"] for each in made["KAI-prometheus"] if each["kind"] == "ServiceAccount"]
    assert accounts == [subject["name"]]
    assert subject["namespace"] == "kai-scheduler"
    for rule in found["ClusterRole", "kai-prometheus"]["rules"]:
        assert set(rule["verbs"]) <= {"get", "list", "watch"}
        assert "secrets" not in rule.get("resources", ())
    external = {"prometheus.enabled": True, "prometheus.externalPrometheusUrl": "http://prometheus.test"}
    assert ("ClusterRole", "kai-prometheus") not in rendered(external)


def test_pods_beside_the_components_have_network_policies_too() -> None:
    """operations:OD-22."""
    found = rendered({"networkPolicies.enabled": True, "global.resourceReservation.appLabel": "app"})
    operator = found["NetworkPolicy", "kai-scheduler/kai-operator"]["spec"]
    (container,) = found["Deployment", "kai-operator"]["spec"]["template"]["spec"]["containers"]
    listed = {each["port"] for each in operator["ingress"][0]["ports"]}
    assert listed == {each["containerPort"] for each in container["ports"]}
    labels = found["Deployment", "kai-operator"]["spec"]["template"]["metadata"]["labels"]
    assert operator["podSelector"]["matchLabels"].items() <= labels.items()
    reserving = found["NetworkPolicy", f"{RESERVATION}/resource-reservation"]["spec"]
    assert reserving == {"podSelector": {"matchLabels": {"app": "app"}}, "policyTypes": ["Ingress"], "ingress": []}
    assert rendered_config({"networkPolicies.enabled": True})["global"]["networkPolicies"] is True


def test_a_rollback_and_a_template_render_what_an_installation_does() -> None:
    """operations:O-53: in KAI both differ from it."""
    installed = rendered()
    assert rendered(live={}) == installed
    made = live(*KEPT, release="kai-scheduler")
    assert rendered(live=made, is_install=False) == installed
