"""What `kubectl get` shows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pykai.api.crds import custom_resource_definitions
from pykai.lab.apiserver.printers.tables import column_definitions, json_path, make_table
from pykai.lab.apiserver.printers.workloads import human_duration, pod_status

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def before(**ago: float) -> str:
    return (NOW - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def obj(name: str = "x", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": before(minutes=5)}, **fields}


def printed(kind: str, group: str, item: dict[str, Any], *, wide: bool = True) -> dict[str, Any]:
    """The cells of one object by the name of their column."""
    made = make_table(kind, group, [item], now=NOW)
    definitions = made["columnDefinitions"]
    cells = made["rows"][0]["cells"]
    assert len(cells) == len(definitions)
    return {
        column["name"]: cell for column, cell in zip(definitions, cells, strict=True) if wide or not column["priority"]
    }


def pod(phase: str = "Running", *statuses: dict[str, Any], **fields: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": str(place)} for place in range(max(1, len(statuses)))], **fields.pop("spec", {})}
    status = {"phase": phase, "containerStatuses": list(statuses), **fields.pop("status", {})}
    return obj(spec=spec, status=status, **fields)


def waiting(reason: str) -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason}}, "ready": False}


def terminated(reason: str = "", code: int = 0, signal: int = 0) -> dict[str, Any]:
    state = {"exitCode": code, **({"reason": reason} if reason else {}), **({"signal": signal} if signal else {})}
    return {"state": {"terminated": state}, "ready": False}


RUNNING: dict[str, Any] = {"state": {"running": {}}, "ready": True}


@pytest.mark.parametrize(
    ("item", "word"),
    [
        (pod("Pending"), "Pending"),
        (pod("Running", RUNNING), "Running"),
        (pod("Pending", waiting("ContainerCreating")), "ContainerCreating"),
        (pod("Running", waiting("CrashLoopBackOff")), "CrashLoopBackOff"),
        (pod("Succeeded", terminated("Completed")), "Completed"),
        (pod("Failed", terminated("Error", 1)), "Error"),
        (pod("Failed", terminated("", 3)), "ExitCode:3"),
        (pod("Failed", terminated("", 137, 9)), "Signal:9"),
        (pod("Failed", status={"reason": "OutOfcpu"}), "OutOfcpu"),
        (pod("Failed", status={"reason": "Evicted"}), "Evicted"),
        (
            pod("Pending", status={"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "SchedulingGated",
        ),
        (
            pod(
                "Running",
                RUNNING,
                terminated("Completed"),
                status={"conditions": [{"type": "Ready", "status": "True"}]},
            ),
            "Running",
        ),
        (pod("Running", RUNNING, terminated("Completed")), "NotReady"),
    ],
)
def test_the_status_of_a_pod(item: dict[str, Any], word: str) -> None:
    assert pod_status(item) == word


@pytest.mark.parametrize(
    ("first", "word"),
    [
        ({"state": {"running": {}}}, "Init:0/2"),
        (waiting("PodInitializing"), "Init:0/2"),
        (waiting("ImagePullBackOff"), "Init:ImagePullBackOff"),
        (terminated("", 2), "Init:ExitCode:2"),
        (terminated("Error", 2), "Init:Error"),
        (terminated("Completed"), "Init:1/2"),
    ],
)
def test_the_status_while_init_containers_run(first: dict[str, Any], word: str) -> None:
    item = pod(
        "Pending",
        waiting("PodInitializing"),
        spec={"initContainers": [{"name": "a"}, {"name": "b"}]},
        status={"initContainerStatuses": [{"name": "a", **first}, {"name": "b", **waiting("PodInitializing")}]},
    )
    assert pod_status(item) == word


def test_a_pod_that_is_being_deleted() -> None:
    item = pod("Running", RUNNING)
    item["metadata"]["deletionTimestamp"] = before(seconds=1)
    assert pod_status(item) == "Terminating"
    done = pod("Succeeded", terminated("Completed"))
    done["metadata"]["deletionTimestamp"] = before(seconds=1)
    assert pod_status(done) == "Completed"


def test_a_row_of_a_pod() -> None:
    restarted = {**RUNNING, "restartCount": 2, "lastState": {"terminated": {"finishedAt": before(minutes=3)}}}
    item = pod(
        "Running",
        restarted,
        waiting("ContainerCreating"),
        spec={"nodeName": "n", "readinessGates": [{"conditionType": "g"}]},
        status={"podIP": "10.0.0.1", "nominatedNodeName": "m", "conditions": [{"type": "g", "status": "True"}]},
    )
    assert printed("Pod", "", item) == {
        "Name": "x",
        "Ready": "1/2",
        "Status": "ContainerCreating",
        "Restarts": "2 (3m ago)",
        "Age": "5m",
        "IP": "10.0.0.1",
        "Node": "n",
        "Nominated Node": "m",
        "Readiness Gates": "1/1",
    }
    assert list(printed("Pod", "", pod(), wide=False)) == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert printed("Pod", "", pod("Pending"))["Node"] == "<none>"


def test_sidecars_count_as_containers() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always"}
    item = pod(
        "Running",
        RUNNING,
        spec={"initContainers": [sidecar]},
        status={"initContainerStatuses": [{"name": "s", "started": True, **RUNNING}]},
    )
    assert printed("Pod", "", item)["Ready"] == "2/2"


def test_nodes() -> None:
    item = obj(
        spec={"unschedulable": True},
        status={
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.35.4"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    )
    item["metadata"]["labels"] = {"node-role.kubernetes.io/gpu-worker": "", "node-role.kubernetes.io/a": ""}
    cells = printed("Node", "", item)
    assert cells["Status"] == "Ready,SchedulingDisabled"
    assert cells["Roles"] == "a,gpu-worker"
    assert cells["Version"] == "v1.35.4"
    assert cells["Internal-IP"] == "10.0.0.1"
    assert printed("Node", "", obj())["Status"] == "Unknown"
    down = obj(status={"conditions": [{"type": "Ready", "status": "False"}]})
    assert printed("Node", "", down)["Status"] == "NotReady"


def condition(kind: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True"}]}


def test_jobs() -> None:
    running = obj(spec={"completions": 3}, status={"succeeded": 1, "startTime": before(seconds=90)})
    assert {"Status": "Running", "Completions": "1/3", "Duration": "90s"}.items() <= printed(
        "Job", "batch", running
    ).items()
    done = obj(
        spec={"completions": 1},
        status={"startTime": before(minutes=4), "completionTime": before(minutes=1), **condition("Complete")},
    )
    assert {"Status": "Complete", "Completions": "0/1", "Duration": "3m"}.items() <= printed(
        "Job", "batch", done
    ).items()
    assert printed("Job", "batch", obj(spec={"parallelism": 4}))["Completions"] == "0/1 of 4"
    assert printed("Job", "batch", obj(status=condition("Failed")))["Status"] == "Failed"
    assert printed("Job", "batch", obj(status=condition("Suspended")))["Status"] == "Suspended"


def test_workloads() -> None:
    selector = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "k", "operator": "In", "values": ["y", "x"]}, {"key": "e", "operator": "Exists"}],
    }
    pods = {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}}
    item = obj(
        spec={"replicas": 3, "selector": selector, "template": pods},
        status={"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1, "replicas": 2},
    )
    assert printed("Deployment", "apps", item) == {
        "Name": "x",
        "Ready": "1/3",
        "Up-to-date": 2,
        "Available": 1,
        "Age": "5m",
        "Containers": "c,d",
        "Images": "i,j",
        "Selector": "a=b,k in (x,y),e",
    }
    replica_set = printed("ReplicaSet", "apps", item, wide=False)
    assert replica_set == {"Name": "x", "Desired": 3, "Current": 2, "Ready": 1, "Age": "5m"}
    assert printed("StatefulSet", "apps", item, wide=False) == {"Name": "x", "Ready": "1/3", "Age": "5m"}


@pytest.mark.parametrize(
    ("kind", "group", "item", "cells"),
    [
        ("Namespace", "", obj(status={"phase": "Active"}), {"Status": "Active", "Age": "5m"}),
        ("ConfigMap", "", obj(data={"a": ""}, binaryData={"b": ""}), {"Data": 2, "Age": "5m"}),
        ("Secret", "", obj(type="Opaque", data={"a": ""}), {"Type": "Opaque", "Data": 1, "Age": "5m"}),
        ("ServiceAccount", "", obj(), {"Secrets": 0, "Age": "5m"}),
        (
            "Service",
            "",
            obj(
                spec={"clusterIP": "1.2.3.4", "ports": [{"port": 80, "nodePort": 3000}, {"port": 1, "protocol": "UDP"}]}
            ),
            {
                "Type": "ClusterIP",
                "Cluster-IP": "1.2.3.4",
                "External-IP": "<none>",
                "Port(s)": "80:3000/TCP,1/UDP",
                "Age": "5m",
                "Selector": "<none>",
            },
        ),
        (
            "CronJob",
            "batch",
            obj(spec={"schedule": "* * * * *", "suspend": False}, status={"lastScheduleTime": before(seconds=30)}),
            {
                "Schedule": "* * * * *",
                "Timezone": "<none>",
                "Suspend": "False",
                "Active": 0,
                "Last Schedule": "30s",
                "Age": "5m",
                "Containers": "",
                "Images": "",
                "Selector": "<none>",
            },
        ),
        ("Lease", "coordination.k8s.io", obj(spec={"holderIdentity": "me"}), {"Holder": "me", "Age": "5m"}),
        ("RuntimeClass", "node.k8s.io", obj(handler="vm"), {"Handler": "vm", "Age": "5m"}),
        (
            "PriorityClass",
            "scheduling.k8s.io",
            obj(value=5, preemptionPolicy="Never"),
            {"Value": 5, "Global-Default": False, "Age": "5m", "PreemptionPolicy": "Never"},
        ),
        (
            "PersistentVolumeClaim",
            "",
            obj(
                spec={"volumeName": "v", "storageClassName": "fast", "volumeMode": "Block"},
                status={
                    "phase": "Bound",
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                },
            ),
            {
                "Status": "Bound",
                "Volume": "v",
                "Capacity": "1Gi",
                "Access Modes": "RWO,RWX",
                "StorageClass": "fast",
                "VolumeAttributesClass": "<unset>",
                "Age": "5m",
                "VolumeMode": "Block",
            },
        ),
        (
            "PodDisruptionBudget",
            "policy",
            obj(spec={"maxUnavailable": "50%"}, status={"disruptionsAllowed": 2}),
            {"Min Available": "N/A", "Max Unavailable": "50%", "Allowed Disruptions": 2, "Age": "5m"},
        ),
        (
            "ResourceClaim",
            "resource.k8s.io",
            obj(status={"allocation": {"devices": {}}, "reservedFor": [{}]}),
            {"State": "allocated,reserved", "Age": "5m"},
        ),
        ("ResourceClaim", "resource.k8s.io", obj(), {"State": "pending", "Age": "5m"}),
        ("DeviceClass", "resource.k8s.io", obj(), {"Age": "5m"}),
        (
            "ValidatingWebhookConfiguration",
            "admissionregistration.k8s.io",
            obj(webhooks=[{}, {}]),
            {"Webhooks": 2, "Age": "5m"},
        ),
        ("CustomResourceDefinition", "apiextensions.k8s.io", obj(), {"Created At": before(minutes=5)}),
        ("Anything", "example.com", obj(), {"Age": "5m"}),
    ],
)
def test_other_kinds(kind: str, group: str, item: dict[str, Any], cells: dict[str, Any]) -> None:
    assert printed(kind, group, item) == {"Name": "x", **cells}


def test_the_default_storage_class_is_marked() -> None:
    item = obj(provisioner="p")
    item["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    assert printed("StorageClass", "storage.k8s.io", item)["Name"] == "x (default)"


def test_events_are_not_listed_by_name() -> None:
    event = obj(
        type="Warning",
        reason="Unschedulable",
        message="no room\n",
        involvedObject={"kind": "Pod", "name": "p"},
        lastTimestamp=before(seconds=10),
        count=3,
        source={"component": "kai-scheduler"},
    )
    cells = printed("Event", "", event)
    assert list(cells)[:4] == ["Last Seen", "Type", "Reason", "Object"]
    assert (cells["Last Seen"], cells["Object"], cells["Message"], cells["Count"]) == ("10s", "pod/p", "no room", 3)
    assert cells["Source"] == "kai-scheduler"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-0.5, "0s"),
        (-5, "<invalid>"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_columns_of_a_crd() -> None:
    columns: list[dict[str, Any]] = [
        {"name": "Queue", "type": "string", "jsonPath": ".spec.queue"},
        {"name": "Min", "type": "integer", "jsonPath": ".spec.min", "priority": 1},
        {"name": "Started", "type": "date", "jsonPath": ".status.start"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Gone", "type": "string", "jsonPath": ".spec.none"},
    ]
    item = obj(
        spec={"queue": "team", "min": 2},
        status={
            "start": before(hours=4),
            "conditions": [{"type": "A", "status": "x"}, {"type": "Ready", "status": "True"}],
        },
    )
    made = make_table("PodGroup", "scheduling.run.ai", [item], columns=columns, now=NOW)
    assert made["rows"][0]["cells"] == ["x", "team", 2, "4h", "True", None]
    assert [(one["name"], one["priority"]) for one in made["columnDefinitions"]] == [
        ("Name", 0),
        ("Queue", 0),
        ("Min", 1),
        ("Started", 0),
        ("Ready", 0),
        ("Gone", 0),
    ]
    assert column_definitions("PodGroup", "scheduling.run.ai", columns) == made["columnDefinitions"]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        (".a['x.y']", [2]),
        (r".a.x\.y", [2]),
        (".l[0].n", ["p"]),
        (".l[-1].n", ["q"]),
        (".l[*].n", ["p", "q"]),
        (".l[-1:].n", ["q"]),
        (".l[?(@.n=='q')].v", [8]),
        (".l[?(@.n!='q')].v", [7]),
        (".l[9]", []),
        (".a.b.c", []),
        (".a..b(", []),
    ],
)
def test_json_paths(path: str, values: list[Any]) -> None:
    assert json_path(path)({"a": {"b": 1, "x.y": 2}, "l": [{"n": "p", "v": 7}, {"n": "q", "v": 8}]}) == values


def test_what_comes_with_a_row() -> None:
    item = obj(spec={"a": 1})
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
    assert make_table("X", "", [item], now=NOW)["rows"][0]["object"] == partial
    assert make_table("X", "", [item], now=NOW, include_object="Object")["rows"][0]["object"] is item
    assert "object" not in make_table("X", "", [item], now=NOW, include_object="None")["rows"][0]


def test_an_object_of_a_strange_shape_does_not_stop_the_others() -> None:
    strange = obj("strange", spec={"containers": 5}, status={"containerStatuses": [7]})
    rows = make_table("Pod", "", [strange, pod("Running", RUNNING)], now=NOW)["rows"]
    assert rows[0]["cells"][:2] == ["strange", "<unknown>"]
    assert rows[1]["cells"][2] == "Running"


def test_our_kinds_show_what_their_users_look_for() -> None:
    """queues:Q-12."""
    queue = obj(
        spec={"parentQueue": "research", "resources": {"gpu": {"quota": 8}}},
        status={
            "allocated": {"nvidia.com/gpu": "3"},
            "requested": {"nvidia.com/gpu": "9", "cpu": "4"},
            "fairShare": {"gpu": "5.5"},
        },
    )
    shown = cells_of("Queue", queue)
    assert shown["GPU-Fair-Share"] == "5.5"
    assert (shown["Parent"], shown["GPU-Quota"]) == ("research", "8")
    assert (shown["GPU-Allocated"], shown["GPU-Requested"], shown["Age"]) == ("3", "9", "5m")
    assert "Requested" not in shown
    assert "cpu" in cells_of("Queue", queue, wide=True)["Requested"]
    group = obj(
        spec={"queue": "vision", "minMember": 4},
        status={
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Scheduled", "status": "False"}],
            "schedulingConditions": [{"reasons": [{"reason": "OverLimit"}]}],
            "pods": {"total": 4, "placed": 0},
            "state": "Waiting",
        },
    )
    shown = cells_of("PodGroup", group)
    assert (shown["Queue"], shown["Minimum"], shown["Reason"]) == ("vision", 4, "OverLimit")
    assert (shown["Pods"], shown["Placed"], shown["State"]) == (4, 0, "Waiting")
    shown = cells_of("PodGroup", group, wide=True)
    assert (shown["Ready"], shown["Scheduled"], shown["Running"]) == ("True", "False", None)
    levels = {"levels": [{"nodeLabel": "zone"}, {"nodeLabel": "rack"}]}
    assert cells_of("Topology", obj(spec=levels))["Coarsest"] == "zone"
    assert "rack" in cells_of("Topology", obj(spec=levels), wide=True)["Levels"]


def cells_of(kind: str, item: dict[str, Any], *, wide: bool = False) -> dict[str, Any]:
    """Column -> cell, by the columns of the definition."""
    (definition,) = (each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == kind)
    columns = definition["spec"]["versions"][0]["additionalPrinterColumns"]
    made = make_table(kind, definition["spec"]["group"], [item], columns=columns, now=NOW)
    cells = zip(made["columnDefinitions"], made["rows"][0]["cells"], strict=True)
    return {column["name"]: cell for column, cell in cells if wide or not column["priority"]}
