"""Pods: what a new one gets, what stays as it is, binding and eviction."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.lab.apiserver.server import ApiServer
from tests.lab.apiserver.apiclient import Api, path_of, pod


def container(name: str = "main", **resources: Any) -> dict[str, Any]:
    return {"name": name, "image": "x", "resources": resources}


async def test_limits_fill_requests(api: Api) -> None:
    limits = {"cpu": "2", "nvidia.com/gpu": "1"}
    answer = await api.create("pods", pod("a", containers=[container(limits=limits, requests={"cpu": "1"})]))
    assert answer.body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "nvidia.com/gpu": "1"}


async def test_a_new_pod_is_pending_whatever_it_says(api: Api) -> None:
    answer = await api.create("pods", pod("a") | {"status": {"phase": "Running", "hostIP": "1.2.3.4"}})
    assert answer.body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@pytest.mark.parametrize(
    ("containers", "quality"),
    [
        ([container()], "BestEffort"),
        ([container(requests={"cpu": "1"})], "Burstable"),
        ([container(limits={"cpu": "1", "memory": "1Gi"})], "Guaranteed"),
        ([container(limits={"cpu": "1", "memory": "1Gi"}, requests={"cpu": "0.5"})], "Burstable"),
        ([container(limits={"cpu": "1", "memory": "1Gi"}), container("b")], "Burstable"),
        ([container(limits={"nvidia.com/gpu": "1"})], "BestEffort"),
    ],
)
async def test_quality_of_service(api: Api, containers: list[Any], quality: str) -> None:
    assert (await api.create("pods", pod("a", containers=containers))).body["status"]["qosClass"] == quality


async def test_defaults_of_a_pod(api: Api) -> None:
    spec = (await api.create("pods", pod("a"))).body["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"


async def test_the_account_of_a_pod(inside: ApiServer) -> None:
    """On a real server its admission says so, where it is on."""
    spec = (await Api(inside.transport()).create("pods", pod("a"))).body["spec"]
    assert spec["serviceAccountName"] == "default"


async def test_a_pod_endures_lost_nodes_for_five_minutes(api: Api) -> None:
    tolerations = (await api.create("pods", pod("a"))).body["spec"]["tolerations"]
    assert {(t["key"], t["tolerationSeconds"]) for t in tolerations} == {
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    }
    own = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
    kept = (await api.create("pods", pod("b", tolerations=own))).body["spec"]["tolerations"]
    assert [t["key"] for t in kept] == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert "tolerationSeconds" not in kept[0]


async def until_admission_knows(api: Api, name: str, **spec: Any) -> None:
    """Wait until new pods get this priority class: a real server's admission hears of it a moment later."""
    await api.until(
        lambda: api.create("pods", pod("probe", **spec), dryRun="All"),
        lambda answer: answer.code == 201 and answer.body["spec"].get("priorityClassName") == name,
    )


async def test_priority_comes_from_the_class(api: Api) -> None:
    high = {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"}
    await api.create("priorityclasses", high)
    await until_admission_knows(api, "high", priorityClassName="high")
    spec = (await api.create("pods", pod("a", priorityClassName="high"))).body["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (100, "Never")
    assert (await api.create("pods", pod("b"))).body["spec"]["priority"] == 0
    critical = await api.create("pods", pod("c", priorityClassName="system-node-critical"))
    assert critical.body["spec"]["priority"] == 2_000_001_000


async def test_an_unknown_class_is_refused(api: Api) -> None:
    answer = await api.create("pods", pod("a", priorityClassName="none"))
    assert answer.code == 403
    assert answer.body["message"] == 'pods "a" is forbidden: no PriorityClass with name none was found'


async def test_a_pod_follows_its_runtime_class(api: Api) -> None:
    tolerated = {"key": "gpu", "operator": "Exists"}
    made = {
        "metadata": {"name": "heavy"},
        "handler": "vm",
        "overhead": {"podFixed": {"cpu": "1000m"}},
        "scheduling": {"nodeSelector": {"gpu": "yes"}, "tolerations": [tolerated]},
    }
    assert "generation" not in (await api.create("runtimeclasses", made)).body["metadata"]
    spec = (await api.create("pods", pod("a", runtimeClassName="heavy", nodeSelector={"zone": "a"}))).body["spec"]
    assert spec["overhead"] == {"cpu": "1"}
    assert spec["nodeSelector"] == {"zone": "a", "gpu": "yes"}
    assert tolerated in spec["tolerations"]
    assert len(spec["tolerations"]) == 3
    same = await api.create("pods", pod("b", runtimeClassName="heavy", overhead={"cpu": "1"}))
    assert same.code == 201


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
        (
            {"overhead": {"cpu": "1"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            {"runtimeClassName": "heavy", "overhead": {"cpu": "2"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"runtimeClassName": "heavy", "nodeSelector": {"gpu": "no"}},
            "conflict: runtimeClass.scheduling.nodeSelector[gpu] = yes; pod.spec.nodeSelector[gpu] = no",
        ),
    ],
)
async def test_what_contradicts_the_runtime_class_is_refused(api: Api, spec: dict[str, Any], why: str) -> None:
    scheduling = {"nodeSelector": {"gpu": "yes"}}
    costs = {"podFixed": {"cpu": "1"}}
    heavy = {"metadata": {"name": "heavy"}, "handler": "vm", "overhead": costs, "scheduling": scheduling}
    await api.create("runtimeclasses", heavy)
    answer = await api.create("pods", pod("a", **spec))
    assert answer.code == 403
    assert answer.body["message"] == f'pods "a" is forbidden: {why}'


async def test_a_priority_of_ones_own_is_refused(api: Api) -> None:
    assert (await api.create("pods", pod("a", priority=5))).code == 403


async def test_the_global_default_class(api: Api) -> None:
    await api.create("priorityclasses", {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    await until_admission_knows(api, "usual")
    spec = (await api.create("pods", pod("a"))).body["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)
    another = {"metadata": {"name": "another"}, "value": 8, "globalDefault": True}
    refused = await api.create("priorityclasses", another)
    assert refused.code == 403
    assert "PriorityClass usual is already marked as default" in refused.body["message"]


async def test_the_value_of_a_class_stays(api: Api) -> None:
    await api.create("priorityclasses", {"metadata": {"name": "high"}, "value": 100})
    assert (await api.patch("priorityclasses", "high", {"value": 200})).code == 422
    too_high = {"metadata": {"name": "highest"}, "value": 2_000_000_000}
    assert (await api.create("priorityclasses", too_high)).code == 422


async def test_a_pod_needs_containers(api: Api) -> None:
    answer = await api.create("pods", pod("a", containers=[]))
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")


async def test_the_spec_of_a_pod_stays(api: Api) -> None:
    created = (await api.create("pods", pod("a"))).body
    changes: tuple[dict[str, Any], ...] = (
        {"nodeName": "n1"},
        {"priority": 3},
        {"schedulerName": "other"},
        {"restartPolicy": "Never"},
        {"schedulingGates": [{"name": "example.com/late"}]},
        {"nodeSelector": {"a": "b"}},
    )
    for change in changes:
        assert (await api.patch("pods", "a", {"spec": change})).code == 422, change
    assert (await api.get("pods", "a")).body == created


async def test_tolerations_of_a_pod_only_grow(api: Api) -> None:
    usual = (await api.create("pods", pod("a"))).body["spec"]["tolerations"]
    own = {"key": "x", "operator": "Exists"}
    more = await api.patch("pods", "a", {"spec": {"tolerations": [*usual, own]}})
    assert more.body["spec"]["tolerations"] == [*usual, own]
    assert (await api.patch("pods", "a", {"spec": {"tolerations": usual}})).code == 422
    # Those that every pod has come back by themselves.
    assert (await api.patch("pods", "a", {"spec": {"tolerations": [own]}})).code == 200


async def test_what_may_change_in_a_pod(api: Api) -> None:
    created = (await api.create("pods", pod("a"))).body["spec"]
    image = {"containers": [created["containers"][0] | {"image": "registry.example/web:2"}]}
    more = {"tolerations": [*created["tolerations"], {"key": "x", "operator": "Exists"}]}
    changes: list[dict[str, Any]] = [image, more, {"activeDeadlineSeconds": 60}]
    for change in changes:
        assert (await api.patch("pods", "a", {"spec": change})).code == 200, change


async def test_binding_gives_a_node_annotations_and_labels(api: Api) -> None:
    await api.create("pods", pod("a", labels={"own": "1"}, annotations={"own": "1"}))
    answer = await api.bind("a", "n1", annotations={"received": "Regular"}, labels={"group": "g"})
    assert answer.code == 201
    bound = (await api.get("pods", "a")).body
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"own": "1", "received": "Regular"}
    assert bound["metadata"]["labels"] == {"own": "1", "group": "g"}
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_binding_replaces_the_condition_that_said_no(api: Api) -> None:
    await api.create("pods", pod("a"))
    waits = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        {"type": "Other", "status": "True"},
    ]
    await api.patch("pods", "a", {"status": {"conditions": waits}}, "status")
    await api.bind("a", "n1")
    conditions = (await api.get("pods", "a")).body["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions} == {"PodScheduled": "True", "Other": "True"}


async def test_a_pod_is_bound_once(api: Api) -> None:
    await api.create("pods", pod("a"))
    await api.bind("a", "n1")
    again = await api.bind("a", "n2")
    assert (again.code, again.body["reason"]) == (409, "Conflict")
    assert 'already assigned to node "n1"' in again.body["message"]
    assert (await api.get("pods", "a")).body["spec"]["nodeName"] == "n1"


async def test_binding_means_one_pod(api: Api) -> None:
    await api.create("pods", pod("a"))
    assert (await api.bind("a", "n1", uid="another")).code == 409
    assert (await api.bind("b", "n1")).code == 404
    assert (await api.request("POST", path_of("pods", "a", "binding"), {"target": {"name": "n1"}})).code == 400
    for target in ({}, {"kind": "Pod", "name": "n1"}):
        odd = await api.request("POST", path_of("pods", "a", "binding"), {"metadata": {"name": "a"}, "target": target})
        assert odd.code == 500
        assert odd.body["message"].startswith("target.")


async def test_a_pod_that_goes_is_not_bound(api: Api) -> None:
    await api.create("pods", pod("a", finalizers=["example.com/hold"]))
    await api.delete("pods", "a")
    assert (await api.bind("a", "n1")).code == 409


async def test_a_gated_pod_is_not_bound_until_its_gates_are_gone(api: Api) -> None:
    created = await api.create("pods", pod("a", schedulingGates=[{"name": "example.com/wait"}]))
    assert created.body["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert (await api.bind("a", "n1")).code == 409
    opened = await api.patch("pods", "a", {"spec": {"schedulingGates": None}})
    assert opened.code == 200
    assert opened.body["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert (await api.bind("a", "n1")).code == 201
    (condition,) = (await api.get("pods", "a")).body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_the_quality_of_a_pod_survives_a_new_status(api: Api) -> None:
    created = (await api.create("pods", pod("a"))).body
    replaced = await api.put("pods", created | {"status": {"phase": "Running"}}, "status")
    assert replaced.body["status"] == {"phase": "Running", "qosClass": "BestEffort"}


async def evict(api: Api, name: str) -> int:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return (await api.request("POST", path_of("pods", name, "eviction"), body)).code


async def test_eviction_deletes(api: Api) -> None:
    await api.create("pods", pod("a"))
    await api.bind("a", "n1")
    assert await evict(api, "a") == 201
    assert "deletionTimestamp" in (await api.get("pods", "a")).meta
    assert await evict(api, "none") == 404


async def test_a_budget_allows_so_many_evictions(api: Api) -> None:
    for name in ("a", "b"):
        await api.create("pods", pod(name, labels={"app": "web"}))
        await api.bind(name, "n1")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await api.patch("pods", name, {"status": ready}, "status")
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    await api.create("poddisruptionbudgets", budget)
    healthy = {"expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 1}
    late = {**healthy, "disruptionsAllowed": 1, "observedGeneration": 0}
    await api.patch("poddisruptionbudgets", "web", {"status": late}, "status")
    assert await evict(api, "a") == 429
    await api.patch("poddisruptionbudgets", "web", {"status": {**late, "observedGeneration": 1}}, "status")
    assert await evict(api, "a") == 201
    status = (await api.get("poddisruptionbudgets", "web")).body["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["a"])
    refused = await api.request("POST", path_of("pods", "b", "eviction"), {"metadata": {"name": "b"}})
    assert (refused.code, refused.body["reason"]) == (429, "TooManyRequests")
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"


@pytest.mark.parametrize(("policy", "healthy", "code"), [("", 1, 201), ("", 0, 429), ("AlwaysAllow", 0, 201)])
async def test_a_pod_that_is_not_ready_may_go_where_enough_others_are(
    api: Api, policy: str, healthy: int, code: int
) -> None:
    await api.create("pods", pod("a", labels={"app": "web"}))
    await api.bind("a", "n1")
    await api.patch("pods", "a", {"status": {"phase": "Running"}}, "status")
    spec: dict[str, Any] = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    if policy:
        spec["unhealthyPodEvictionPolicy"] = policy
    await api.create("poddisruptionbudgets", {"metadata": {"name": "web"}, "spec": spec})
    counts = {"expectedPods": 2, "currentHealthy": healthy, "desiredHealthy": 1, "disruptionsAllowed": 0}
    await api.patch("poddisruptionbudgets", "web", {"status": {**counts, "observedGeneration": 1}}, "status")
    assert await evict(api, "a") == code
    assert "disruptedPods" not in (await api.get("poddisruptionbudgets", "web")).body["status"]


async def test_a_budget_stops_an_eviction(inside: ApiServer) -> None:
    """Without a controller that writes its status, as on the embedded server."""
    api = Api(inside.transport())
    for name in ("a", "b"):
        await api.create("pods", pod(name, labels={"app": "web"}))
        await api.bind(name, "n1")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await api.patch("pods", name, {"status": ready}, "status")
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    await api.create("poddisruptionbudgets", budget)
    assert await evict(api, "a") == 201
    body = {"metadata": {"name": "b"}}
    refused = await api.request("POST", path_of("pods", "b", "eviction"), body)
    assert (refused.code, refused.body["reason"]) == (429, "TooManyRequests")
    assert refused.headers["Retry-After"] == "10"
    await api.delete("poddisruptionbudgets", "web")
    assert await evict(api, "b") == 201


@pytest.mark.parametrize("subresource", ["log", "exec", "attach", "portforward"])
async def test_there_is_no_container(inside: ApiServer, subresource: str) -> None:
    api = Api(inside.transport())
    await api.create("pods", pod("a"))
    answer = await api.request("GET", path_of("pods", "a", subresource))
    assert answer.code == 501
    assert "no container behind this pod" in answer.body["message"]
