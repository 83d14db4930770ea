"""Defaults of built-in kinds and of CRDs."""

import copy
from typing import Any

import pytest

from pykai.lab.apiserver.schema.table import builtin_schema, crd_schema
from pykai.lab.apiserver.schema.validation import apply_defaults


def defaulted(api_version: str, kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    group, _, version = api_version.rpartition("/")
    schema = builtin_schema(group, version, kind)
    assert schema is not None
    before = copy.deepcopy(obj)
    result = apply_defaults(schema, obj)
    assert obj == before
    assert apply_defaults(schema, result) is result, "a second time there is nothing to do"
    return result


def pod_spec(**spec: Any) -> dict[str, Any]:
    result: dict[str, Any] = defaulted("v1", "Pod", {"spec": spec})["spec"]
    return result


def crd(properties: dict[str, Any]) -> Any:
    return crd_schema({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


def test_a_pod() -> None:
    assert pod_spec(containers=[{"name": "c", "image": "busybox:1.0", "ports": [{"containerPort": 80}]}]) == {
        "containers": [
            {
                "name": "c",
                "image": "busybox:1.0",
                "imagePullPolicy": "IfNotPresent",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }


def test_what_is_set_stays() -> None:
    spec = pod_spec(restartPolicy="Never", terminationGracePeriodSeconds=0, enableServiceLinks=False, containers=[])
    assert spec["restartPolicy"] == "Never"
    assert spec["terminationGracePeriodSeconds"] == 0
    assert spec["enableServiceLinks"] is False


def test_an_empty_word_counts_as_absent() -> None:
    assert pod_spec(restartPolicy="", containers=[])["restartPolicy"] == "Always"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("registry:5000/nginx", "Always"),
        ("registry:5000/nginx:1.2", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
    ],
)
def test_moving_tags_are_always_pulled(image: str, policy: str) -> None:
    assert pod_spec(containers=[{"name": "c", "image": image}])["containers"][0]["imagePullPolicy"] == policy


def test_probes_and_volumes() -> None:
    spec = pod_spec(
        containers=[{"name": "c", "readinessProbe": {"httpGet": {"port": 80}}}],
        volumes=[{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "hostPath": {"path": "/"}}],
    )
    assert spec["containers"][0]["readinessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert spec["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
        {"name": "c", "hostPath": {"path": "/", "type": ""}},
    ]


def test_host_network_opens_the_ports_on_the_host() -> None:
    spec = pod_spec(hostNetwork=True, containers=[{"name": "c", "ports": [{"containerPort": 80}]}])
    assert spec["containers"][0]["ports"][0]["hostPort"] == 80


def test_service_account_has_two_names() -> None:
    assert pod_spec(serviceAccountName="me", containers=[])["serviceAccount"] == "me"


def test_a_deployment_and_its_template() -> None:
    spec = defaulted("apps/v1", "Deployment", {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}})["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
    }
    assert spec["template"]["spec"]["dnsPolicy"] == "ClusterFirst"


def test_some_defaults_hold_for_the_object_itself_and_not_for_templates_of_it() -> None:
    deployment = defaulted("apps/v1", "Deployment", {"spec": {"template": {"spec": {"hostNetwork": True}}}})
    assert "enableServiceLinks" not in deployment["spec"]["template"]["spec"]
    cron_job = defaulted("batch/v1", "CronJob", {"spec": {"jobTemplate": {"spec": {}}}})
    assert cron_job["spec"]["jobTemplate"]["spec"] == {}
    assert cron_job["spec"]["concurrencyPolicy"] == "Allow"


def test_recreate_gets_no_rolling_update() -> None:
    strategy = defaulted("apps/v1", "Deployment", {"spec": {"strategy": {"type": "Recreate"}}})["spec"]["strategy"]
    assert strategy == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"completions": 1, "parallelism": 1, "backoffLimit": 6, "podReplacementPolicy": "TerminatingOrFailed"}),
        ({"parallelism": 4}, {"parallelism": 4, "backoffLimit": 6}),
        ({"completions": 4}, {"completions": 4, "parallelism": 1}),
        ({"backoffLimitPerIndex": 1}, {"backoffLimit": 2147483647}),
        ({"podFailurePolicy": {"rules": []}}, {"podReplacementPolicy": "Failed"}),
    ],
)
def test_jobs(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    result = defaulted("batch/v1", "Job", {"spec": spec})["spec"]
    assert expected.items() <= result.items()
    assert ("completions" in result) == ("parallelism" not in spec)


def test_other_kinds() -> None:
    assert defaulted("v1", "Secret", {})["type"] == "Opaque"
    assert defaulted("v1", "PersistentVolumeClaim", {"status": {"conditions": []}})["status"]["phase"] == "Pending"
    volume = {"name": "i", "image": {"reference": "a:1"}}
    assert pod_spec(containers=[], volumes=[volume])["volumes"][0]["image"]["pullPolicy"] == "IfNotPresent"
    assert defaulted("v1", "Namespace", {"metadata": {"name": "a"}}) == {
        "metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
        "status": {"phase": "Active"},
    }
    assert defaulted("v1", "Node", {"status": {"capacity": {"cpu": "1"}}})["status"]["allocatable"] == {"cpu": "1"}
    port = defaulted("v1", "Service", {"spec": {"ports": [{"port": 80}]}})["spec"]["ports"][0]
    assert port == {"port": 80, "protocol": "TCP", "targetPort": 80}
    claim = defaulted("resource.k8s.io/v1", "ResourceClaim", {"spec": {"devices": {"requests": [{"exactly": {}}]}}})
    assert claim["spec"]["devices"]["requests"][0]["exactly"] == {"allocationMode": "ExactCount", "count": 1}
    hook = defaulted(
        "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", {"webhooks": [{"name": "a", "rules": [{}]}]}
    )["webhooks"][0]
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["rules"]) == ("Fail", 10, [{"scope": "*"}])


def test_a_crd() -> None:
    schema = crd(
        {
            "priority": {"type": "integer", "default": 50},
            "inner": {"type": "object", "default": {}, "properties": {"mode": {"type": "string", "default": "a"}}},
            "rows": {
                "type": "array",
                "items": {"type": "object", "properties": {"size": {"type": "integer", "default": 1}}},
            },
            "by": {
                "type": "object",
                "additionalProperties": {"type": "object", "properties": {"on": {"type": "boolean", "default": True}}},
            },
        }
    )
    assert apply_defaults(schema, {"spec": {"rows": [{}, {"size": 2}], "by": {"x": {}}}})["spec"] == {
        "priority": 50,
        "inner": {"mode": "a"},
        "rows": [{"size": 1}, {"size": 2}],
        "by": {"x": {"on": True}},
    }
    assert apply_defaults(schema, {}) == {}, "what holds the fields is absent"


def test_a_null_takes_the_default_unless_null_is_a_value() -> None:
    schema = crd({"a": {"type": "string", "default": "x"}, "b": {"type": "string", "default": "x", "nullable": True}})
    assert apply_defaults(schema, {"spec": {"a": None, "b": None}})["spec"] == {"a": "x", "b": None}


def test_parts_without_defaults_are_shared() -> None:
    pod: dict[str, Any] = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [], "tolerations": [{"key": "a"}]},
    }
    result = defaulted("v1", "Pod", pod)
    assert result["metadata"] is pod["metadata"]
    assert result["spec"]["tolerations"] is pod["spec"]["tolerations"]
