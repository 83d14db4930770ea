"""What `kai manifests` prints and refuses; that a real API server takes it is shown in tests/cluster."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pykai.cli.manifests import manifests
from tests.kube.certificates import authority

ADDRESS = "https://10.0.0.5:9443"


def printed(*arguments: str) -> str:
    """What the command says, whether it succeeds or not."""
    return CliRunner().invoke(manifests, arguments).output


def test_admission_is_registered_for_pods_that_name_the_scheduler(tmp_path: Path) -> None:
    """operations:O-28, O-29."""
    file = tmp_path / "ca.crt"
    file.write_bytes(authority().pem)
    text = printed("--admission", ADDRESS, "--admission-ca", str(file), "--scheduler-name", "mine")
    mutating, validating, *_ = yaml.safe_load_all(text)
    assert mutating["metadata"]["name"] == "mutating-kai-admission"
    assert validating["metadata"]["name"] == "validating-kai-admission"
    for each, path in ((mutating, "mutate"), (validating, "validate")):
        hook = each["webhooks"][0]
        assert hook["clientConfig"]["url"] == f"{ADDRESS}/{path}--v1-pod"
        assert base64.b64decode(hook["clientConfig"]["caBundle"]) == authority().pem
        assert hook["matchConditions"][0]["expression"] == "object.spec.schedulerName == 'mine'"
        (spared,) = hook["namespaceSelector"]["matchExpressions"]
        assert (spared["operator"], spared["values"]) == ("NotIn", ["kube-system", "kai-scheduler"])


def kinds(*arguments: str) -> list[tuple[str, str]]:
    return [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(printed(*arguments))]


def test_definitions_are_apart_from_what_may_be_deleted() -> None:
    """`kubectl delete -f` of what is printed must not take every Queue and PodGroup along."""
    assert {kind for kind, _ in kinds("--crds-only")} == {"CustomResourceDefinition"}
    assert "CustomResourceDefinition" not in {kind for kind, _ in kinds()}


def test_policies_come_with_everything_else_alone_or_not_at_all() -> None:
    only = kinds("--policies-only")
    assert {kind for kind, _ in only} == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    everything, without = kinds(), kinds("--no-policies")
    assert [each for each in everything if each not in without] == only
    assert [each for each in everything if each not in only] == without
    assert "exclude each other" in printed("--no-policies", "--policies-only")
    assert "exclude each other" in printed("--no-policies", "--suspend-role")


def test_policies_are_about_the_scheduler_and_the_namespaces_that_are_named() -> None:
    text = printed("--policies-only", "--scheduler-name", "mine", "--closed-namespace", "a", "--closed-namespace", "b")
    made = {
        each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all(text) if "Binding" not in each["kind"]
    }
    assert any("'mine'" in each["expression"] for each in made["kai-pods"]["validations"])
    selector = made["kai-closed-namespaces"]["matchConstraints"]["namespaceSelector"]
    assert selector["matchExpressions"][0]["values"] == ["a", "b"]


@pytest.mark.parametrize("address", ["10.0.0.5:9443", "http://10.0.0.5:9443", "https://", f"{ADDRESS}/mutate--v1-pod"])
def test_an_address_that_an_api_server_cannot_ask_is_refused(address: str) -> None:
    assert f"--admission: expected https://HOST:PORT or service, not '{address}'" in printed("--admission", address)


NAMES = [
    ("MutatingWebhookConfiguration", "mutating-kai-admission"),
    ("ValidatingWebhookConfiguration", "validating-kai-admission"),
    ("ValidatingWebhookConfiguration", "kai-queue-validation-v2"),
    ("ValidatingWebhookConfiguration", "kai-podgroup-validation-v2alpha2"),
]


def test_the_names_of_registrations_services_and_the_secret_are_kais() -> None:
    """operations:O-27, O-28; workloads:WH-1; queues:Q-20, Q-21."""
    secret = ("Secret", "kai-admission-webhook-tls-secret")
    assert kinds("--admission", "service") == [("Service", "admission"), secret, *NAMES]
    assert kinds("--admission", ADDRESS) == [secret, *NAMES]
    registered = {
        hook["name"]: (hook["clientConfig"]["service"]["name"], hook["clientConfig"]["service"]["path"])
        for each in yaml.safe_load_all(printed("--admission", "service"))
        for hook in each.get("webhooks", ())
        if each["kind"] == "ValidatingWebhookConfiguration"
    }
    assert registered == {
        "admission.kai-scheduler.svc": ("admission", "/validate--v1-pod"),
        "topology.admission.kai-scheduler.svc": ("admission", "/validate-kai-scheduler-v1alpha1-topology"),
        "queue-validation.kai.scheduler": ("admission", "/validate-scheduling-run-ai-v2-queue"),
        "podgroup-validation.kai.scheduler": ("admission", "/validate-scheduling-run-ai-v2alpha2-podgroup"),
    }


def test_everything_is_in_the_namespace_that_is_named() -> None:
    """operations:O-28, O-29."""
    for flags in ((), ("--admission", "service"), ("--suspend-role",), ("--monitoring",), ("--policies-only",)):
        text = printed("--namespace", "gpu-platform", *flags)
        assert "gpu-platform" in text
        listed = list(yaml.safe_load_all(text))
        used = {each["metadata"].get("namespace") for each in listed}
        used |= {subject["namespace"] for each in listed for subject in each.get("subjects", ())}
        assert "kai-scheduler" not in used
        assert ("Namespace", "kai-scheduler") not in [(each["kind"], each["metadata"]["name"]) for each in listed]
        assert not re.search(r"serviceaccounts:kai-scheduler|kai-scheduler\.svc|- kai-scheduler$", text, re.MULTILINE)
    (binding,) = (each for each in listed_suspend_role() if each["kind"] == "ClusterRoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "scheduler", "namespace": "gpu-platform"}]


def listed_suspend_role() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(printed("--suspend-role", "--namespace", "gpu-platform")))


def test_a_webhook_waits_for_seconds_and_is_about_nothing_else() -> None:
    for each in yaml.safe_load_all(printed("--admission", ADDRESS)):
        for hook in each.get("webhooks", ()):
            assert hook["timeoutSeconds"] <= 10
            for rule in hook["rules"]:
                assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["operations"]]
                if rule["resources"][0].startswith("pods"):
                    assert hook["matchConditions"][0]["name"] == "scheduler-name-match"


def test_a_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tls.key"
    file.write_text("-----BEGIN PRIVATE KEY-----\n")
    assert "there is no certificate in" in printed("--admission", ADDRESS, "--admission-ca", str(file))
