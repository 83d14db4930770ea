"""What the doctor says: nothing of a healthy installation, and one finding for each thing that is broken.

Statements: doctor:unread, doctor:running.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from pykai.api import names
from pykai.doctor.facts import CLUSTER_ROLES, CONFIGS, ENDPOINTS, QUEUES, Unread
from pykai.doctor.findings import Severity
from pykai.doctor.table import CHECKS, worst
from pykai.kube.certificates import CertificateAuthority
from pykai.services.rights import BINDER, Places
from tests.doctor.installedcluster import EXPECTED, NAMESPACE, NOW, InstalledCluster, encoded, issued

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
KEY = names.NODE_POOL_LABEL
Break = Callable[[InstalledCluster], None]


def definition(cluster: InstalledCluster) -> dict[str, dict[str, object]]:
    (version,) = cluster.get("CustomResourceDefinition", "queues.scheduling.run.ai")["spec"]["versions"]
    properties: dict[str, dict[str, object]] = version["schema"]["openAPIV3Schema"]["properties"]
    return properties


def drop_a_field(cluster: InstalledCluster) -> None:
    del definition(cluster)["spec"]["properties"]["admissionGating"]  # type: ignore[attr-defined]


def serve_another_version(cluster: InstalledCluster) -> None:
    (version,) = cluster.get("CustomResourceDefinition", "queues.scheduling.run.ai")["spec"]["versions"]
    version["name"] = "v1"


def refuse_names(cluster: InstalledCluster) -> None:
    condition = {"type": "NamesAccepted", "status": "False", "message": "plural is taken"}
    cluster.get("CustomResourceDefinition", "queues.scheduling.run.ai")["status"] = {"conditions": [condition]}


def take_a_right(cluster: InstalledCluster) -> None:
    rules = cluster.get("ClusterRole", "kai-binder")["rules"]
    rules[:] = [rule for rule in rules if rule["resources"] != ["pods/binding"]]


def lose_the_binding(cluster: InstalledCluster) -> None:
    cluster.remove("ClusterRoleBinding", "kai-binder")


def delete_a_service(cluster: InstalledCluster) -> None:
    cluster.remove("Service", "admission")


def leave_a_stale_webhook(cluster: InstalledCluster) -> None:
    stale = cluster.get("ValidatingWebhookConfiguration", "kai-podgroup-validation-v2alpha2")["webhooks"][0]
    client = stale["clientConfig"] | {"service": {"name": "podgroup-controller", "namespace": "old-kai"}}
    metadata = {"name": "kai-podgroup-validation-v1"}
    webhook = stale | {"clientConfig": client, "failurePolicy": "Ignore"}
    cluster.add({"kind": "ValidatingWebhookConfiguration", "metadata": metadata, "webhooks": [webhook]})


def trust(bundle: str) -> Break:
    def change(cluster: InstalledCluster) -> None:
        (webhook,) = cluster.get("MutatingWebhookConfiguration", "mutating-kai-admission")["webhooks"]
        webhook["clientConfig"]["caBundle"] = bundle

    return change


def change_an_image(cluster: InstalledCluster) -> None:
    container = cluster.get("Deployment", "binder")["spec"]["template"]["spec"]["containers"][0]
    container["image"] = "images.test/kai/pykai:v0"


def stop_pods(cluster: InstalledCluster) -> None:
    cluster.get("Deployment", "binder")["status"] = {}


def block_a_reservation(cluster: InstalledCluster) -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    status = {"containerStatuses": [{"name": "main", "image": "nowhere/reserve:v9", "state": waiting}]}
    metadata = {"name": "gpu-reservation-n1-x", "namespace": names.RESERVATION_NAMESPACE}
    cluster.add({"kind": "Pod", "metadata": metadata, "status": status})


def group(queue: str, *reasons: str) -> Break:
    def change(cluster: InstalledCluster) -> None:
        conditions = [{"type": "x", "reasons": [{"reason": each} for each in reasons]}]
        cluster.add(
            {
                "kind": "PodGroup",
                "metadata": {"name": "g", "namespace": "team"},
                "spec": {"queue": queue},
                "status": {"schedulingConditions": conditions},
            }
        )

    return change


def namespace_with_queue(cluster: InstalledCluster) -> None:
    metadata = {"name": "team", "annotations": {names.DEFAULT_QUEUE_ANNOTATION: "gone"}}
    cluster.add({"kind": "Namespace", "metadata": metadata})


def without_default_queue(cluster: InstalledCluster) -> None:
    cluster.remove("Queue", "default-queue")
    cluster.add(cluster.queue("other", "default-parent-queue", quota=1))


def run_a_pool_without_shard(cluster: InstalledCluster) -> None:
    cluster.add(cluster.node("n2", labels={KEY: "a100"}), cluster.queue("a", quota=8, labels={KEY: "a100"}))


def two_shards(cluster: InstalledCluster) -> None:
    cluster.add({"kind": "SchedulingShard", "metadata": {"name": "second"}, "spec": {}})


def empty_shard(cluster: InstalledCluster) -> None:
    cluster.add_shard("far", "far")


def lose_the_scheduler_of_a_shard(cluster: InstalledCluster) -> None:
    cluster.add_shard("far", "far")
    cluster.add(
        cluster.node("n2", labels={KEY: "far"}), cluster.queue("far-queue", quota=1, limit=8, labels={KEY: "far"})
    )
    cluster.remove("Deployment", "kai-scheduler-far")


def say(kind: str, name: str, type_: str, message: str) -> Break:
    """The operator writes that a condition is False, and with it that the owner is not Ready."""

    def change(cluster: InstalledCluster) -> None:
        conditions = cluster.get(kind, name)["status"]["conditions"]
        for each in conditions:
            if each["type"] in (type_, "Ready"):
                each |= {"status": "False", "message": message}

    return change


def offer_i915(cluster: InstalledCluster) -> None:
    """A node of Intel's GPUs, whose resource does not end in /gpu."""
    node = cluster.node("n1", labels={names.GPU_MEMORY_NODE_LABEL: "", names.GPU_COUNT_NODE_LABEL: ""})
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts["gpu.intel.com/i915"] = amounts.pop(names.NVIDIA_GPU)
    cluster.add(node)


def limit_i915(cluster: InstalledCluster) -> None:
    offer_i915(cluster)
    cluster.add(cluster.queue("default-parent-queue", limit=3))


def promise_i915(cluster: InstalledCluster) -> None:
    offer_i915(cluster)
    cluster.add(cluster.queue("q", quota=9))


def export_zones(**status: int) -> Break:
    """The NUMA exporter is switched on, and so far."""

    def change(cluster: InstalledCluster) -> None:
        cluster.configure({"numaPlacementExporter": {"service": {"enabled": True}}})
        cluster.get("DaemonSet", "numa-placement-exporter")["status"] |= status

    return change


def lose_the_exporter(cluster: InstalledCluster) -> None:
    export_zones()(cluster)
    cluster.remove("DaemonSet", "numa-placement-exporter")


def run_another_exporter(cluster: InstalledCluster) -> None:
    export_zones()(cluster)
    spec = cluster.get("DaemonSet", "numa-placement-exporter")["spec"]["template"]["spec"]
    spec["containers"][0]["image"] = "images.test/kai/pykai:v0"


def lose_the_account_of_the_exporter(cluster: InstalledCluster) -> None:
    export_zones()(cluster)
    cluster.remove("ServiceAccount", "numa-placement-exporter")


def reserve_with(image: str) -> Break:
    def change(cluster: InstalledCluster) -> None:
        args = cluster.get("Deployment", "binder")["spec"]["template"]["spec"]["containers"][0]["args"]
        flag = "--resource-reservation-pod-image="
        args[:] = [flag + image if each.startswith(flag) else each for each in args]

    return change


def block_an_init_container(cluster: InstalledCluster) -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    status = {"initContainerStatuses": [{"name": "wait", "image": "nowhere/wait:v9", "state": waiting}]}
    cluster.add({"kind": "Pod", "metadata": {"name": "binder-x", "namespace": NAMESPACE}, "status": status})


def lead_behind(cluster: InstalledCluster) -> None:
    cluster.add(cluster.lease(names.BINDER_LEASE, renewed_s_ago=18), cluster.pod("pod-a", is_ready=True))


def lose_the_leader(cluster: InstalledCluster) -> None:
    cluster.add(cluster.lease(names.BINDER_LEASE, renewed_s_ago=18), cluster.pod("pod-a", is_ready=False))


def set_clocks_apart(seconds: float) -> Break:
    def change(cluster: InstalledCluster) -> None:
        cluster.ahead = timedelta(seconds=seconds)
        for each in cluster.of_kind("Lease"):
            cluster.add(cluster.lease(each["metadata"]["name"], renewed_s_ago=2 - seconds))

    return change


BINDER_RIGHTS = sum(len(rule.resources) * len(rule.verbs) for rule in BINDER if not rule.namespace)
UPSTREAM = "ghcr.io/kai-scheduler/kai-scheduler/{}:v0.17.0"

BROKEN: list[tuple[str, Severity, str, Break]] = [
    ("definition-missing", ERROR, "", lambda c: c.remove("CustomResourceDefinition", "queues.scheduling.run.ai")),
    ("definition-fields", WARNING, "1 field", drop_a_field),
    ("definition-version", ERROR, "", serve_another_version),
    ("definition-refused", ERROR, "", refuse_names),
    ("account-missing", ERROR, "", lambda c: c.remove("ServiceAccount", "binder")),
    ("right-missing", ERROR, "1 right", take_a_right),
    ("right-missing", ERROR, f"{BINDER_RIGHTS} rights", lose_the_binding),
    (
        "webhook-missing",
        WARNING,
        "1 missing",
        lambda c: c.remove("MutatingWebhookConfiguration", "mutating-kai-admission"),
    ),
    ("webhook-without-service", ERROR, "failurePolicy Fail", delete_a_service),
    ("webhook-without-service", WARNING, "failurePolicy Ignore", leave_a_stale_webhook),
    (
        "webhook-without-endpoints",
        ERROR,
        "failurePolicy Fail",
        lambda c: c.add(c.endpoints("admission", ready=False)),
    ),
    ("webhook-authority", ERROR, "", trust("")),
    ("webhook-authority", ERROR, "", trust("no base64!")),
    ("webhook-authority", ERROR, "", trust(encoded(CertificateAuthority.create("other").pem))),
    (
        "webhook-authority",
        ERROR,
        "ended 2026-11-17",
        trust(encoded(CertificateAuthority.create("old", timedelta(days=1), NOW - timedelta(days=2)).pem)),
    ),
    ("certificate-expires", WARNING, "6.0 days left", lambda c: c.serve(issued(days=6))),
    ("certificate-expires", ERROR, "-0.5 days left", lambda c: c.serve(issued(days=-0.5))),
    ("certificate-expires", WARNING, "5.0 days left", lambda c: c.serve(issued(), given=issued(days=5))),
    ("certificate-names", ERROR, "", lambda c: c.serve(issued("admission.elsewhere.svc"))),
    (
        "certificate-missing",
        WARNING,
        "",
        lambda c: c.get("Secret", "kai-admission-webhook-tls-secret").pop("data"),
    ),
    ("service-missing", ERROR, "1 missing", lambda c: c.remove("Deployment", "binder")),
    ("service-missing", ERROR, "1 missing", lambda c: c.remove("Deployment", "kai-operator")),
    ("service-missing", ERROR, "1 missing", lose_the_exporter),
    ("pods-unavailable", ERROR, "0 of 1", stop_pods),
    ("pods-unavailable", WARNING, "2 of 3", export_zones(desiredNumberScheduled=3, numberAvailable=2)),
    ("versions-differ", WARNING, "2 versions", change_an_image),
    ("versions-differ", WARNING, "2 versions", run_another_exporter),
    ("account-missing", ERROR, "", lose_the_account_of_the_exporter),
    ("reservation-image", WARNING, "pykai:latest", reserve_with("pykai:latest")),
    ("reservation-image", WARNING, "images.test/kai/pykai:v0", reserve_with("images.test/kai/pykai:v0")),
    ("reservation-image", INFO, "images.test/kai/amd:v1", reserve_with("images.test/kai/amd:v1")),
    ("pod-stuck", ERROR, "nowhere/wait:v9", block_an_init_container),
    ("pod-stuck", ERROR, "nowhere/reserve:v9", block_a_reservation),
    (
        "leftover-component",
        ERROR,
        "",
        lambda c: c.add(c.deployment("queues", UPSTREAM.format("queuecontroller"), namespace="old-kai")),
    ),
    (
        "two-schedulers",
        ERROR,
        "names: kai-scheduler",
        lambda c: c.add(c.deployment("second", "pykai:v1", "kai", "run", "scheduler")),
    ),
    (
        "two-schedulers",
        ERROR,
        "names: kai-scheduler, other",
        lambda c: c.add(c.deployment("second", "pykai:v1", "kai", "run", "scheduler", "--scheduler-name", "other")),
    ),
    (
        "lease-expired",
        WARNING,
        "renewed 95 s ago, valid 15 s",
        lambda c: c.add(c.lease(names.BINDER_LEASE, renewed_s_ago=95)),
    ),
    ("lease-expired", WARNING, "renewed 18 s ago, valid 15 s", lose_the_leader),
    ("lease-behind", WARNING, "renewed 18 s ago, valid 15 s", lead_behind),
    ("lease-ahead", WARNING, "20 s ahead", lambda c: c.add(c.lease(names.BINDER_LEASE, renewed_s_ago=-20))),
    ("gpu-memory-label", WARNING, "1 node", lambda c: c.add(c.node("n2", labels={names.GPU_MEMORY_NODE_LABEL: ""}))),
    ("gpu-count-label", WARNING, "1 node", lambda c: c.add(c.node("n2", labels={names.GPU_COUNT_NODE_LABEL: "4"}))),
    ("gpus-not-offered", WARNING, "1 node", lambda c: c.add(c.node("n2", 0, labels={names.GPU_COUNT_NODE_LABEL: "4"}))),
    ("pool-without-shard", ERROR, "1 node", run_a_pool_without_shard),
    ("pool-of-two-shards", ERROR, "2 shards", two_shards),
    ("shard-without-scheduler", ERROR, "", lose_the_scheduler_of_a_shard),
    ("shard-without-scheduler", ERROR, "", lambda c: c.remove("Deployment", "kai-scheduler-default")),
    ("condition-false", ERROR, "Deployed", say("Config", "kai-config", "Deployed", "Binder: not deployed")),
    ("condition-false", ERROR, "Available", say("SchedulingShard", "default", "Available", "it is not available")),
    ("condition-false", WARNING, "ArgsValid", say("SchedulingShard", "default", "ArgsValid", "spec.args.x")),
    ("condition-false", WARNING, "PrometheusConnected", say("Config", "kai-config", "PrometheusConnected", "no")),
    ("condition-false", WARNING, "Ready", say("Config", "kai-config", "Ready", "System not ready")),
    ("shard-without-nodes", WARNING, "", empty_shard),
    ("runtime-class-missing", INFO, "", lambda c: c.remove("RuntimeClass", "nvidia")),
    ("queue-parent-missing", ERROR, "", lambda c: c.add(c.queue("q", "nowhere", quota=1))),
    ("queue-cycle", ERROR, "2 queues", lambda c: c.add(c.queue("a", "b", quota=1), c.queue("b", "a", quota=1))),
    ("queue-closed", WARNING, "1 queue", lambda c: c.add({"kind": "Queue", "metadata": {"name": "q"}, "spec": {}})),
    ("quota-over-capacity", WARNING, "9 promised, 8 there", lambda c: c.add(c.queue("q", quota=9))),
    ("quota-over-capacity", WARNING, "9 promised, 8 there", promise_i915),
    ("gpus-without-queue", WARNING, "3 of 8 usable", limit_i915),
    ("gpus-without-queue", WARNING, "3 of 8 usable", lambda c: c.add(c.queue("default-parent-queue", limit=3))),
    ("group-queue-missing", ERROR, "1 PodGroup", group("nowhere")),
    ("queue-access", WARNING, "1 PodGroup", group("default-queue", names.REASON_QUEUE_ACCESS_DENIED)),
    ("namespace-without-queue", WARNING, "", namespace_with_queue),
    ("namespace-without-queue", INFO, "4 namespaces", without_default_queue),
    ("clock-skew", WARNING, "5 s", set_clocks_apart(-5)),
    ("clock-skew", ERROR, "15 s", set_clocks_apart(15)),
]


def test_a_healthy_installation_has_nothing_to_fix() -> None:
    found = InstalledCluster().findings()
    assert {each.code for each in found} == EXPECTED
    assert worst(found) is INFO


def test_an_installation_may_be_in_other_namespaces() -> None:
    """operations:OD-11: rights are looked for there, and what to do names the namespace."""
    cluster = InstalledCluster(Places("gpu-platform", "reserved", "scaling"))
    assert {each.code for each in cluster.findings()} == EXPECTED
    cluster.remove("RoleBinding", "kai-node-scale-adjuster")
    cluster.remove("ValidatingWebhookConfiguration", "validating-kai-admission")
    found = cluster.codes()
    assert found["right-missing"].fix == "kai manifests --namespace gpu-platform | kubectl apply -f -"
    register = "kai manifests --admission service --namespace gpu-platform | kubectl apply -f -"
    assert found["webhook-missing"].fix == register


@pytest.mark.parametrize(("code", "severity", "figure", "broken"), BROKEN)
def test_what_is_broken_is_found_alone(code: str, severity: Severity, figure: str, broken: Break) -> None:
    cluster = InstalledCluster()
    broken(cluster)
    found = cluster.codes()
    assert list(found) == [code]
    assert (found[code].severity, found[code].figure) == (severity, figure)
    assert found[code].what.endswith(".")
    assert found[code].fix


def test_what_no_one_may_use_is_counted_down_the_tree() -> None:
    cluster = InstalledCluster()
    cluster.remove("Queue", "default-parent-queue")
    cluster.remove("Queue", "default-queue")
    cluster.add(
        cluster.queue("root", quota=1, limit=6),
        cluster.queue("a", "root", quota=1, limit=2),
        cluster.queue("b", "root", quota=1, limit=3),
    )
    (found,) = (each for each in cluster.findings() if each.code == "gpus-without-queue")
    assert found.figure == "5 of 8 usable"
    cluster.add(cluster.queue("c", "root", quota=1))
    (found,) = (each for each in cluster.findings() if each.code == "gpus-without-queue")
    assert found.figure == "6 of 8 usable"


def test_a_node_pool_without_queues_is_named_with_the_label_to_set() -> None:
    cluster = InstalledCluster()
    empty_shard(cluster)
    cluster.add(cluster.node("n2", labels={KEY: "far"}))
    found = cluster.codes()["gpus-without-queue"]
    assert found.figure == "0 of 8 usable"
    assert found.fix == f"Create a queue with the label {KEY}=far."


def test_a_rule_for_all_and_a_group_of_accounts_give_rights() -> None:
    cluster = InstalledCluster()
    lose_the_binding(cluster)
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    cluster.add(
        {"kind": "ClusterRole", "metadata": {"name": "all"}, "rules": [everything]},
        {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "all"},
            "roleRef": {"kind": "ClusterRole", "name": "all"},
            "subjects": [{"kind": "Group", "name": f"system:serviceaccounts:{NAMESPACE}"}],
        },
    )
    assert cluster.codes() == {}


def test_a_rule_for_some_names_is_no_right_to_all() -> None:
    cluster = InstalledCluster()
    for rule in cluster.get("ClusterRole", "kai-binder")["rules"]:
        if rule["resources"] == ["pods/binding"]:
            rule["resourceNames"] = ["one"]
    assert cluster.codes()["right-missing"].what == "The account binder may not: create pods/binding."


def test_accounts_of_kai_scheduler_are_not_judged_by_our_rights() -> None:
    cluster = InstalledCluster()
    lose_the_binding(cluster)
    container = cluster.get("Deployment", "binder")["spec"]["template"]["spec"]["containers"][0]
    container |= {"image": UPSTREAM.format("binder"), "command": []}
    assert set(cluster.codes()) == {"leftover-component", "service-missing"}


def test_a_node_pool_counts_gpus_of_every_vendor() -> None:
    cluster = InstalledCluster()
    offer_i915(cluster)
    assert cluster.codes() == {}
    cluster.get("Node", "n1")["metadata"]["labels"][KEY] = "intel"
    assert "pods get none of their 8 GPUs" in cluster.codes()["pool-without-shard"].what


def test_gpus_that_a_driver_offers_for_claims_are_offered() -> None:
    cluster = InstalledCluster()
    cluster.add(cluster.node("n2", 0, labels={names.GPU_COUNT_NODE_LABEL: "4"}))
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n2"}
    cluster.add({"kind": "ResourceSlice", "metadata": {"name": "n2-gpus"}, "spec": spec})
    assert cluster.codes() == {}


def test_a_condition_says_why() -> None:
    cluster = InstalledCluster()
    say("Config", "kai-config", "Available", "Binder: Deployment [binder] is not available")(cluster)
    (found,) = (each for each in cluster.findings() if each.code == "condition-false")
    assert found.where == "Config kai-config"
    assert found.what == "Available is False: Binder: Deployment [binder] is not available."


def test_an_operator_is_not_missed_without_a_config() -> None:
    cluster = InstalledCluster()
    cluster.remove("Config", "kai-config")
    cluster.remove("Deployment", "kai-operator")
    assert cluster.codes() == {}


def test_without_shards_one_scheduler_is_missed() -> None:
    cluster = InstalledCluster()
    cluster.remove("SchedulingShard", "default")
    cluster.remove("Deployment", "kai-scheduler-default")
    assert cluster.codes()["service-missing"].what == "Not deployed: scheduler."


def test_a_scheduler_that_the_config_switches_off_is_not_missed() -> None:
    cluster = InstalledCluster()
    cluster.get("Config", "kai-config")["spec"] = {"scheduler": {"service": {"enabled": False}}}
    cluster.remove("Deployment", "kai-scheduler-default")
    assert cluster.codes() == {}


def test_an_exporter_for_which_no_node_has_the_label_is_complete() -> None:
    cluster = InstalledCluster()
    export_zones(desiredNumberScheduled=0, numberAvailable=0)(cluster)
    assert cluster.codes() == {}


def test_a_shadow_beside_kai_is_neither_a_leftover_nor_a_second_scheduler() -> None:
    cluster = InstalledCluster()
    for each in cluster.of_kind("Deployment"):
        cluster.remove("Deployment", each["metadata"]["name"])
    cluster.add(
        cluster.deployment("kai-scheduler-default", UPSTREAM.format("scheduler")),
        cluster.deployment("shadow", "pykai:v1", "kai", "run", "scheduler", "--shadow"),
    )
    assert cluster.codes() == {}


def test_services_outside_of_the_cluster_are_only_noted() -> None:
    cluster = InstalledCluster()
    for each in cluster.of_kind("Deployment"):
        cluster.remove("Deployment", each["metadata"]["name"])
    found = cluster.codes()
    assert list(found) == ["nothing-deployed"]
    assert found["nothing-deployed"].severity is INFO


def test_shared_gpus_make_a_missing_runtime_class_an_error() -> None:
    cluster = InstalledCluster()
    cluster.remove("RuntimeClass", "nvidia")
    cluster.add({"kind": "Config", "metadata": {"name": "kai-config"}, "spec": {"admission": {"gpuSharing": True}}})
    assert cluster.codes()["runtime-class-missing"].severity is ERROR


def test_what_cannot_be_read_is_a_finding_and_the_rest_goes_on() -> None:
    cluster = InstalledCluster()
    cluster.unread = {
        CLUSTER_ROLES.resource: Unread("forbidden", "Ask for the right."),
        QUEUES.resource: Unread("no answer", "Try again."),
        CONFIGS.resource: Unread("no answer", "Try again."),
    }
    stop_pods(cluster)
    found = cluster.findings()
    assert {each.code for each in found} == {"not-checked", "pods-unavailable"}
    said = {each.where: each for each in found if each.code == "not-checked"}
    assert set(said) == {"clusterroles.rbac.authorization.k8s.io", "queues.scheduling.run.ai", "configs.kai.scheduler"}
    assert "these checks know less or nothing: queue tree, queue amounts, usable GPUs, queue users. no answer" in (
        said["queues.scheduling.run.ai"].what
    )
    assert worst(found) is ERROR


def test_a_server_without_endpoint_slices_is_not_held_against_the_webhooks() -> None:
    cluster = InstalledCluster()
    cluster.remove("EndpointSlice", "admission")
    assert set(cluster.codes()) == {"webhook-without-endpoints"}
    cluster.unserved = {ENDPOINTS.resource}
    assert cluster.codes() == {}


def test_each_check_can_find_something() -> None:
    """A row without a broken cluster above would be a check that no test holds."""
    silent = {check.name: check for check in CHECKS}
    for *_, broken in BROKEN:
        cluster = InstalledCluster()
        broken(cluster)
        facts = cluster.facts()
        for check in [*silent.values()]:
            if any(each.code not in EXPECTED for each in check.run(facts)):
                del silent[check.name]
    assert not silent
