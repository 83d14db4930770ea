"""The objects of the components that a Config asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykai.api.decode import decode_as
from pykai.api.installation import Config
from pykai.kube.flags import COMMON_FLAGS
from pykai.kube.resources import CONFIGS, SCHEDULING_SHARDS
from pykai.operator.desired.affinity import merged_affinity
from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.desired.state import is_ours
from pykai.services.table import SERVICES
from tests.operator.installations import args_of, config, main, nested, objects, shard, states

DEPLOYMENTS = {
    "admission": "admission",
    "binder": "binder",
    "node-scale-adjuster": "nodescale",
    "pod-grouper": "podgrouper",
    "podgroup-controller": "podgroups",
    "queue-controller": "queues",
    "kai-scheduler-default": "scheduler",
}


def kinds(name: str, spec: dict[str, Any] | None = None, facts: ClusterFacts | None = None) -> list[str]:
    """The kinds of all objects of a name."""
    return sorted(kind for kind, found in objects(spec, facts=facts) if found == name)


def test_a_config_deploys_every_component() -> None:
    """operations:OC-1, O-4, 1.1."""
    found = objects()
    assert {name for kind, name in found if kind == "Deployment"} == set(DEPLOYMENTS)
    for name, service in DEPLOYMENTS.items():
        made = found["Deployment", name]
        assert made["metadata"]["labels"] == {"app": name, "app.kubernetes.io/managed-by": "kai-operator"}
        assert made["spec"]["selector"] == {"matchLabels": {"app": name}}
        assert made["spec"]["template"]["metadata"]["labels"] == {"app": name}
        container = main(found, name)
        assert container["name"] == name
        assert container["image"] == "images.test/kai/pykai:v1"
        assert container["command"] == ["kai", "run", service]
        account = made["spec"]["template"]["spec"]["serviceAccountName"]
        assert account == ("scheduler" if service == "scheduler" else name)
        assert ("ServiceAccount", account) in found


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_program_knows_every_flag(name: str) -> None:
    """operations:9."""
    everything = {
        "global": {
            "replicaCount": 2,
            "jsonLog": True,
            "namespaceLabelSelector": {"a": "b"},
            "podLabelSelector": {"a": "b"},
            "queueAdmissionGating": {"enabled": True, "reservationTimeout": "5m"},
        },
        "podGrouper": {
            "args": {
                "gangScheduleKnative": True,
                "defaultPrioritiesConfigMapName": "a",
                "defaultPrioritiesConfigMapNamespace": "b",
            },
            "maxConcurrentReconciles": 3,
        },
        "binder": {
            "maxConcurrentReconciles": 3,
            "resourceReservation": {
                "allocationTimeout": 3,
                "runtimeClassName": "a",
                "podResources": {"limits": {"cpu": "1"}},
                "reservationPodSecurityContext": {"runAsUser": 1},
                "reservationContainerSecurityContext": {"runAsUser": 1},
            },
        },
        "admission": {"gpuSharing": True, "blockNvidiaVisibleDevices": True, "gpuPodRuntimeClassName": "a"},
        "podGroupController": {"maxConcurrentReconciles": 3},
        "queueController": {
            "metricsNamespace": "a",
            "queueLabelToMetricLabel": "a=b",
            "queueLabelToDefaultMetricValue": "a=b",
        },
        "nodeScaleAdjuster": {"args": {"gpuMemoryToFractionRatio": 0.5}},
    }
    flags = {flag.name: flag for flag in (*COMMON_FLAGS, *SERVICES[DEPLOYMENTS[name]].flags())}
    given = list(args_of(objects(everything, facts=ClusterFacts(has_fake_gpus=True)), name))
    while given:
        flag, separator, value = given.pop(0).removeprefix("--").partition("=")
        if not separator:
            value = "true" if flags[flag].default == "false" else given.pop(0)
        flags[flag].read(value)


def test_all_have_one_owner() -> None:
    """operations:O-3."""
    config_state, shard_state = states()
    for state, kind in ((config_state, CONFIGS), (shard_state, SCHEDULING_SHARDS)):
        assert state.kind is kind
        for operand in state.operands.values():
            for each in operand:
                (owner,) = each["metadata"]["ownerReferences"]
                assert (owner["kind"], owner["name"], owner["uid"]) == (kind.kind, state.name, state.uid)
                assert owner["controller"] is True


def test_only_the_config_of_one_name_counts() -> None:
    """operations:O-1."""
    assert is_ours(config())
    assert not is_ours(decode_as(Config, {"metadata": {"name": "kai-config-2"}}))


def test_images_come_from_where_the_operators_does() -> None:
    """operations:O-5."""
    image = {"repository": "elsewhere.test", "name": "special", "tag": "v2", "pullPolicy": "Always"}
    found = objects({"binder": {"service": {"image": image}}})
    assert main(found, "binder")["image"] == "elsewhere.test/special:v2"
    assert main(found, "binder")["imagePullPolicy"] == "Always"
    assert main(found, "admission")["image"] == "images.test/kai/pykai:v1"
    assert main(found, "admission")["imagePullPolicy"] == "IfNotPresent"


def test_what_is_disabled_is_not_wanted() -> None:
    """operations:O-15, OC-6."""
    assert kinds("pod-grouper") == ["Deployment", "Service", "ServiceAccount"]
    assert kinds("pod-grouper", nested("podGrouper.service.enabled", False)) == []
    without = objects(nested("scheduler.service.enabled", False), shard(), shard(name="second"))
    assert not [name for kind, name in without if name.startswith("kai-scheduler-") or name == "scheduler"]
    assert ("CustomResourceDefinition", "queues.scheduling.run.ai") not in objects()


@pytest.mark.parametrize(
    ("component", "name"),
    [("podGrouper", "pod-grouper"), ("admission", "admission"), ("scheduler", "kai-scheduler-default")],
)
def test_several_replicas_may_have_a_budget(component: str, name: str) -> None:
    """operations:O-16, OC-3."""
    asked = nested("service.podDisruptionBudget.enabled", True)
    budget = objects({component: {**asked, "replicas": 2}})["PodDisruptionBudget", name]
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}}
    assert "PodDisruptionBudget" not in kinds(name, {component: asked})
    assert "PodDisruptionBudget" not in kinds(name, {component: {"replicas": 2}})


@pytest.mark.parametrize(
    ("own", "shared", "kept"),
    [
        (None, None, []),
        ({"nodeAffinity": 1}, None, ["nodeAffinity"]),
        (None, {"podAffinity": 2}, ["podAffinity"]),
        ({"nodeAffinity": 1}, {"podAffinity": 2}, ["nodeAffinity", "podAffinity", "podAntiAffinity"]),
    ],
)
def test_affinities_are_joined(own: dict[str, Any] | None, shared: dict[str, Any] | None, kept: list[str]) -> None:
    """operations:O-17, OC-9."""
    found = merged_affinity("binder", own, shared, replicas=1, apart=False)
    assert sorted(found or {}) == kept
    assert {**(shared or {}), **(own or {})}.items() <= (found or {}).items()


def test_replicas_are_kept_apart() -> None:
    """operations:OD-5, OC-9."""
    term = {"labelSelector": {"matchLabels": {"app": "binder"}}, "topologyKey": "kubernetes.io/hostname"}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    assert merged_affinity("binder", None, None, replicas=2, apart=False) == {"podAntiAffinity": preferred}
    assert merged_affinity("binder", None, None, replicas=2, apart=True) == {"podAntiAffinity": preferred | required}
    own: dict[str, Any] = {"podAntiAffinity": {}}
    assert merged_affinity("binder", own, None, replicas=2, apart=True) == own


def test_autoscalers_are_made_where_the_cluster_knows_them() -> None:
    """operations:O-18."""
    asked, knows = nested("global.vpa.enabled", True), ClusterFacts(has_autoscalers=True)
    made = objects(asked, facts=knows)["VerticalPodAutoscaler", "binder"]
    assert made["spec"] == {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "binder"},
        "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
    }
    assert "VerticalPodAutoscaler" not in kinds("binder", asked)
    assert "VerticalPodAutoscaler" not in kinds("binder", facts=knows)


def plugins_of(spec: dict[str, Any] | None = None, **facts: Any) -> dict[str, Any]:
    """The value of the binder's flag --plugins."""
    args = args_of(objects(spec, facts=ClusterFacts(**facts)), "binder")
    plugins: dict[str, Any] = json.loads(args[args.index("--plugins") + 1])
    return plugins


def test_flag_and_value_of_the_binders_plugins_are_two_arguments() -> None:
    """operations:O-20, E-22; gpu:BI-7."""
    assert plugins_of() == {
        "volumebinding": {"enabled": True, "priority": 300, "arguments": {"bindTimeoutSeconds": "120"}},
        "dynamicresources": {"enabled": True, "priority": 200, "arguments": {"bindTimeoutSeconds": "120"}},
        "gpusharing": {"enabled": True, "priority": 100, "arguments": {"cdiEnabled": "false"}},
        "hamicore": {"enabled": False, "priority": 50},
    }


def test_cdi_is_what_the_cluster_uses_unless_the_config_says() -> None:
    """operations:O-24, OC-2."""

    def cdi(spec: dict[str, Any] | None = None, **facts: Any) -> str:
        return str(plugins_of(spec, **facts)["gpusharing"]["arguments"]["cdiEnabled"])

    assert cdi() == "false"
    assert cdi(uses_cdi=True) == "true"
    assert cdi(nested("binder.cdiEnabled", False), uses_cdi=True) == "false"


def test_the_binder_knows_of_nodes_with_fake_gpus() -> None:
    """operations:O-22."""
    assert "--fake-gpu-nodes=true" in args_of(objects(facts=ClusterFacts(has_fake_gpus=True)), "binder")
    assert not [arg for arg in args_of(objects(), "binder") if arg.startswith("--fake-gpu-nodes")]


def test_arguments_of_the_admission_service() -> None:
    """operations:O-19."""
    plain = args_of(objects(), "admission")
    assert plain[:4] == [
        "--scheduler-name=kai-scheduler",
        "--webhook-addr=9443",
        "--health-probe-bind-address=:8081",
        "--metrics-bind-address=:8080",
    ]
    assert "--gpu-fraction-runtime-class-name=nvidia" in plain
    assert {"--qps=20", "--burst=100"} <= set(plain)
    given = {"admission": {"gpuPodRuntimeClassName": "old"}, "binder": {"plugins": {"hamicore": {"enabled": True}}}}
    other = args_of(objects(given), "admission")
    assert "--gpu-pod-runtime-class-name=old" in other
    assert not [arg for arg in other if arg.startswith("--gpu-fraction-runtime-class-name")]
    assert "--hami-core-enabled=true" in other


def test_arguments_of_the_pod_grouper() -> None:
    """operations:O-21, O-64."""
    assert args_of(objects(), "pod-grouper")[:4] == [
        "--scheduler-name=kai-scheduler",
        "--queue-label-key=kai.scheduler/queue",
        "--nodepool-label-key=kai.scheduler/node-pool",
        "--generic-karta-fallback=true",
    ]


def test_the_scaling_pods_namespace_is_no_image() -> None:
    """operations:OD-13."""
    args = args_of(objects(nested("nodeScaleAdjuster.args.nodeScaleNamespace", "scaling")), "node-scale-adjuster")
    assert "--scale-adjust-namespace=scaling" in args


def test_pull_secrets_that_the_reservation_account_has_are_kept() -> None:
    """operations:O-23, OC-7."""
    facts = ClusterFacts(reservation_pull_secrets=("theirs",))
    found = objects(nested("global.additionalImagePullSecrets", ["ours", "theirs"]), facts=facts)
    assert found["ServiceAccount", "kai-resource-reservation"]["imagePullSecrets"] == [
        {"name": "theirs"},
        {"name": "ours"},
    ]


def test_containers_may_do_little() -> None:
    """operations:O-55."""
    assert main(objects(), "binder")["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["all"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 10000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert "securityContext" not in main(objects(nested("global.openshift", True)), "binder")


def test_every_container_has_checks_of_its_health() -> None:
    """operations:OD-4."""
    for name in DEPLOYMENTS:
        container = main(objects(), name)
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_a_webhook_can_be_switched_off() -> None:
    """operations:O-27, O-28."""
    registered = {name for kind, name in objects() if kind.endswith("WebhookConfiguration")}
    assert registered == {
        "kai-podgroup-validation-v2alpha2",
        "kai-queue-validation-v2",
        "mutating-kai-admission",
        "validating-kai-admission",
    }
    other = objects(
        {
            "queueController": {"webhooks": {"enableValidation": False}},
            "podGroupController": {"webhooks": {"webhookConfigurationNamePrefix": "kai-podgroup-validation-"}},
        }
    )
    assert ("ValidatingWebhookConfiguration", "kai-queue-validation-v2") not in other
    assert ("ValidatingWebhookConfiguration", "kai-podgroup-validation-v2alpha2") in other


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("admission.validatingWebhookConfigurationName", "validating-kai-admission"),
        ("admission.mutatingWebhookConfigurationName", "mutating-kai-admission"),
        ("queueController.webhooks.webhookConfigurationNamePrefix", "kai-queue-validation-"),
        ("podGroupController.webhooks.webhookConfigurationNamePrefix", "kai-podgroup-validation-"),
    ],
)
def test_a_registration_that_no_role_names_is_refused_with_its_path(path: str, known: str) -> None:
    """operations:O-54: in KAI it breaks at the next update, for lack of a right."""
    assert states(nested(path, "mine"))[0].refusal.startswith(f"spec.{path}: 'mine': ")
    assert not states(nested(path, known))[0].refusal


def ports(policy: dict[str, Any]) -> set[int]:
    return {each["port"] for rule in policy["spec"]["ingress"] for each in rule["ports"]}


def test_pods_are_closed_but_for_the_ports_that_they_serve() -> None:
    """operations:OD-22: off without the field, as in KAI."""
    assert not [kind for kind, _ in objects() if kind == "NetworkPolicy"]
    found = objects({**nested("global.networkPolicies", True), **nested("numaPlacementExporter.service.enabled", True)})
    policies = {name: each for (kind, name), each in found.items() if kind == "NetworkPolicy"}
    pods = {name for kind, name in found if kind in ("Deployment", "DaemonSet")}
    assert policies.keys() == pods
    for name in pods:
        kind = "Deployment" if ("Deployment", name) in found else "DaemonSet"
        template = found[kind, name]["spec"]["template"]
        assert policies[name]["spec"]["policyTypes"] == ["Ingress"]
        assert policies[name]["spec"]["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        (container,) = template["spec"]["containers"]
        probed = {container[each]["httpGet"]["port"] for each in ("livenessProbe",) if each in container}
        services = [each for (kind, _), each in found.items() if kind == "Service"]
        exposed = {
            port["targetPort"]
            for each in services
            if each["spec"].get("selector", {}).get("app") == name
            for port in each["spec"]["ports"]
        }
        assert probed | exposed <= ports(policies[name])
        listened = {int(each.rpartition(":")[2]) for each in container["args"] if each.rpartition(":")[2].isdecimal()}
        assert ports(policies[name]) <= listened | probed | exposed
    assert ports(policies["numa-placement-exporter"]) == {8080}
    assert 9443 in ports(policies["admission"])


def test_pods_of_other_schedulers_and_of_the_system_are_never_asked_about() -> None:
    """operations:O-29, O-64."""
    given = {
        "global": {"namespaceLabelSelector": {"team": "a"}, "podLabelSelector": {"kind": "b"}, "queueLabelKey": "q"},
        "admission": {"queueLabelSelector": True},
    }
    (webhook,) = objects(given)["MutatingWebhookConfiguration", "mutating-kai-admission"]["webhooks"]
    assert webhook["namespaceSelector"] == {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kai-scheduler"]},
            {"key": "q", "operator": "Exists"},
        ],
        "matchLabels": {"team": "a"},
    }
    assert webhook["objectSelector"] == {"matchLabels": {"kind": "b"}}
    (condition,) = webhook["matchConditions"]
    assert condition == {"name": "scheduler-name-match", "expression": "object.spec.schedulerName == 'kai-scheduler'"}


def test_a_config_is_read_as_it_is_written() -> None:
    """operations:O-2: nothing is filled in."""
    assert config().spec == Config().spec
