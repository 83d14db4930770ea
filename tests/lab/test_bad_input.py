"""Malformed objects of every kind we watch: they are reported, and all others are served.

They are put into storage past the schema, as an older server or a laxer one may have let them in.  One town bears all
of it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from pykai.api import names
from pykai.api.core import Pod
from pykai.kube import resources
from pykai.kube.store import Store
from tests.lab.hostilecluster import Document, HostileCluster, make_object, make_pod, make_template
from tests.lab.hostilecluster import hostile_cluster as make_town

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town() -> AsyncIterator[HostileCluster]:
    async with make_town() as there:
        yield there


@pytest.fixture(autouse=True)
def nobody_stumbles(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Bad input is a warning at most; a traceback is a mistake of ours."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


async def test_pod_groups(town: HostileCluster) -> None:
    def group(name: str, **spec: object) -> dict[str, object]:
        return make_object("PodGroup", name, spec={"queue": "good", "minMember": 1, **spec})

    def part(name: str, parent: str = "") -> dict[str, object]:
        return {"name": name, "minMember": 1, **({"parent": parent} if parent else {})}

    plan = {names.BIND_PLAN_ANNOTATION: "{broken", names.LAST_START_TIMESTAMP_ANNOTATION: "yesterday"}
    town.store_unchecked(
        make_object("PodGroup", "text", spec="garbage"),
        make_object(
            "PodGroup", "odd-status", spec={"queue": "good", "minMember": 1}, status={"schedulingConditions": "x"}
        ),
        make_object(
            "PodGroup", "odd-conditions", spec={"queue": "good", "minMember": 1}, status={"conditions": [{"type": 1}]}
        ),
        make_object("PodGroup", "stamps", meta={"annotations": plan}, spec={"queue": "good", "minMember": 1}),
        group("cycle", subGroups=[part("a", "b"), part("b", "a")]),
        group("twice", subGroups=[part("a"), part("a")]),
        group("orphan", subGroups=[part("a", "nobody")]),
        group("vast", minMember=10**30),
        group("many", minMember=2**31 - 1),
        group("minus", minMember=-5),
        group("nowhere", queue="ghost"),
        group("queueless", queue=""),
    )
    everybody = ("text", "odd-status", "odd-conditions", "stamps", "cycle", "twice", "orphan", "vast", "many", "minus")
    await town.submit(*(make_pod(f"of-{name}", group=name) for name in (*everybody, "nowhere", "queueless")))
    await town.check_others_are_served()
    assert "spec: expected an object" in await town.wait_for_event("PodGroup", "text", "InvalidPodGroup")
    assert "schedulingConditions" in await town.wait_for_event("PodGroup", "odd-status", "Unreadable")
    assert "status.conditions[0].type" in await town.wait_for_event("PodGroup", "odd-conditions", "Unreadable")
    assert "last-start-timestamp" in await town.wait_for_event("PodGroup", "stamps", "InvalidPodGroup")
    assert 'subgroup "a" is its own ancestor' in await town.wait_for_event("PodGroup", "cycle", "InvalidPodGroup")
    assert "listed twice" in await town.wait_for_event("PodGroup", "twice", "InvalidPodGroup")
    assert 'parent "nobody", which does not exist' in await town.wait_for_event("PodGroup", "orphan", "InvalidPodGroup")
    assert "spec.minMember" in await town.wait_for_event("PodGroup", "vast", "InvalidPodGroup")
    assert "Waiting for 2147483647 pods" in await town.wait_for_event("PodGroup", "many", "NotReady")
    assert "Queue 'ghost' does not exist" in await town.wait_for_event("Pod", "of-nowhere", "Unschedulable")
    assert "Queue '' does not exist" in await town.wait_for_event("Pod", "of-queueless", "Unschedulable")


async def test_queues(town: HostileCluster) -> None:
    amounts = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    everything = {"gpu": amounts, "cpu": amounts, "memory": amounts}
    town.store_unchecked(
        make_object("Queue", "ring-a", spec={"parentQueue": "ring-b", "resources": everything}),
        make_object("Queue", "ring-b", spec={"parentQueue": "ring-a", "resources": everything}),
        make_object("Queue", "selfish", spec={"parentQueue": "selfish", "resources": everything}),
        make_object("Queue", "orphaned", spec={"parentQueue": "nobody", "resources": everything}),
        make_object("Queue", "lots", spec={"resources": {**everything, "gpu": {"quota": "lots"}}}),
        make_object("Queue", "endless", spec={"resources": {**everything, "gpu": {"quota": 1e308}}}),
        make_object("Queue", "minus", spec={"resources": {**everything, "gpu": {"quota": -7, "limit": -3}}}),
        make_object("Queue", "soon", spec={"resources": everything, "preemptMinRuntime": "soon"}),
        make_object("Queue", "urgent", spec={"resources": everything, "priority": 10**30}),
        make_object("Queue", "number", spec=7),
    )
    unsound = ("ring-a", "selfish", "orphaned", "lots", "endless", "minus", "urgent", "number")
    await town.submit(*(make_pod(f"in-{name}", queue=name, requests={"nvidia.com/gpu": "1"}) for name in unsound))
    await town.check_others_are_served()
    for name, what in {
        "ring-a": "the parents form a cycle",
        "ring-b": "the parents form a cycle",
        "selfish": "selfish -> selfish",
        "orphaned": "'nobody', which does not exist",
        "lots": "spec.resources.gpu.quota: expected a finite number",
        "endless": "expected a finite number",
        "minus": "-7 is negative",
        "soon": "'soon' is not a duration",
        "urgent": "spec.priority",
        "number": "spec: expected an object",
    }.items():
        assert what in await town.wait_for_event("Queue", name, "InvalidQueue")
    for name in unsound:
        assert await town.wait_for_event("Pod", f"in-{name}", "Unschedulable")


async def test_bind_requests(town: HostileCluster) -> None:
    """None of them may bind anything or leave a reservation behind, whatever they name."""
    nowhere: Document = {"nodeSelector": {"no": "where"}}
    half = {names.GPU_FRACTION_ANNOTATION: "0.5"}
    shared = ("groupless", "greedy", "odd-name")
    plain = ("mistaken", "adrift", "doubled")
    await town.submit(
        *(make_pod(name, notes=half, **nowhere) for name in shared), *(make_pod(n, **nowhere) for n in plain)
    )
    uids = {name: await town.uid("Pod", name) for name in (*shared, *plain)}

    def request(name: str, pod: str, uid: str = "", **spec: object) -> dict[str, object]:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        wanted = {"podName": pod, "selectedNode": "m-0", "receivedResourceType": "Regular", **spec}
        return make_object("BindRequest", name, meta={"ownerReferences": [owner]} if uid else {}, spec=wanted)

    part = {"receivedResourceType": "Fraction", "receivedGPU": {"count": 1, "portion": "0.5"}}
    claims = {"resourceClaimAllocations": [{"name": "ghost"}]}
    town.store_unchecked(
        request("departed", "departed"),
        request("mistaken", "mistaken", "00000000-0000-0000-0000-000000000000"),
        request("adrift", "adrift", uids["adrift"], selectedNode="atlantis"),
        request("groupless", "groupless", uids["groupless"], **part),
        request("greedy", "greedy", uids["greedy"], **part, selectedGPUGroups=[f"g-{at}" for at in range(3_000)]),
        request("odd-name", "odd-name", uids["odd-name"], **part, selectedGPUGroups=["../../etc"]),
        request("doubled", "doubled", uids["doubled"], **claims),
        request("doubled-too", "doubled", uids["doubled"], **claims),
        make_object("BindRequest", "text", spec="x"),
        make_object("BindRequest", "empty"),
        make_object("BindRequest", "odd-phase", spec={"podName": "x", "selectedNode": "m-0"}, status={"phase": 7}),
    )
    await town.check_others_are_served()
    assert "pod default/departed not found" in await town.wait_for_event("BindRequest", "departed", "BindingError")
    for name in (*shared, *plain):
        assert "the scheduler has not decided it" in await town.wait_for_event("Pod", name, "InvalidBindRequest")
    assert "spec: expected an object" in await town.wait_for_event("BindRequest", "text", "InvalidBindRequest")
    assert "spec.podName" in await town.wait_for_event("BindRequest", "empty", "BindingError")
    assert "status.phase" in await town.wait_for_event("BindRequest", "odd-phase", "InvalidBindRequest")
    bound = {pod.metadata.name for pod in town.pods.values() if pod.spec.node_name}
    assert not bound & {*shared, *plain}
    await town.pods.wait_until(
        lambda store: not any(pod.metadata.namespace == names.RESERVATION_NAMESPACE for pod in store.values()), 15
    )


async def test_nodes(town: HostileCluster) -> None:
    """They are tainted, so that honest work has nothing to do with them but to be placed beside them."""

    def node(name: str, gpus: object, *, memory: str = "81559", **allocatable: object) -> dict[str, object]:
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": gpus, **allocatable}
        return make_object(
            "Node",
            name,
            meta={"labels": {"kubernetes.io/hostname": name, "lies": name, "nvidia.com/gpu.memory": memory}},
            spec={"taints": [{"key": "liar", "effect": "NoSchedule"}]},
            status={"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        )

    town.store_unchecked(
        node("negative", "-8"),
        node("boundless", "1" + "0" * 30),
        node("wordy", "abc"),
        node("blurred", "8", memory="plenty"),
        node("starved", "8", memory="-5"),
        node("backwards", "8", cpu="-4", pods="1e99"),
        make_object("Node", "listed", status={"allocatable": 5}),
        make_object("Node", "bare"),
    )
    bears = [{"key": "liar", "operator": "Exists"}]
    for name in ("negative", "boundless", "wordy"):
        where: Document = {"nodeSelector": {"lies": name}, "tolerations": bears}
        await town.submit(make_pod(f"on-{name}", requests={"nvidia.com/gpu": "1"}, **where))
    for name in ("blurred", "starved"):
        where = {"nodeSelector": {"lies": name}, "tolerations": bears}
        await town.submit(make_pod(f"on-{name}", notes={names.GPU_MEMORY_ANNOTATION: "1000"}, **where))
    await town.check_others_are_served()
    assert "-8 is negative" in await town.wait_for_event("Node", "negative", "InvalidNode")
    assert "is more than the 4096" in await town.wait_for_event("Node", "boundless", "InvalidNode")
    assert "'abc' is not a quantity" in await town.wait_for_event("Node", "wordy", "InvalidNode")
    assert "nvidia.com/gpu.memory" in await town.wait_for_event("Node", "blurred", "InvalidNode")
    assert "status.allocatable: expected a map" in await town.wait_for_event("Node", "listed", "InvalidNode")
    for name in ("negative", "boundless", "wordy", "blurred", "starved"):
        assert await town.wait_for_event("Pod", f"on-{name}", "Unschedulable")
    for name in ("negative", "boundless", "wordy", "blurred", "starved", "backwards", "listed", "bare"):
        await town.client.delete(resources.NODES, name)


async def test_pods(town: HostileCluster) -> None:
    half = {names.GPU_FRACTION_ANNOTATION: "0.5"}
    vast = "1" + "0" * 40
    claimed: Document = {"resourceClaims": [{"name": "c", "resourceClaimName": "ghost"}]}
    town.store_unchecked(
        make_pod("contrary", notes=half, requests={"nvidia.com/gpu": "2"}),
        make_pod("half-word", notes={names.GPU_FRACTION_ANNOTATION: "½"}),
        make_pod("minus-memory", notes={names.GPU_MEMORY_ANNOTATION: "-5"}),
        make_pod("vast-ask", requests={"cpu": vast, "nvidia.com/gpu": vast}),
        make_pod("minus-ask", requests={"cpu": "-1", "nvidia.com/gpu": "-2"}),
        make_pod("wordy-ask", requests={"cpu": "lots"}),
        make_pod("classless", priorityClassName="ghost"),
        make_pod("odd-queue", queue="kö-€"),
        make_pod("volumeless", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "ghost"}}]),
        make_pod("claimless", **claimed),
        make_pod("lost-node", nodeName="ghost"),
        make_object("Pod", "number", spec=5),
        make_object(
            "Pod", "dancing", spec=make_pod("x")["spec"], status={"phase": "Dancing", "conditions": [{"type": 5}]}
        ),
    )
    crowd = [{"name": f"c{at}", "image": "x", "resources": {"requests": {"cpu": "1m"}}} for at in range(1000)]
    await town.submit(make_pod("crowded", containers=crowd), make_pod("n" * 253))
    await town.check_others_are_served()
    for name, what in {
        "contrary": "cannot have both GPU fraction request and whole GPU",
        "half-word": "gpu-fraction annotation value must be",
        "minus-memory": "gpu-memory annotation value must be",
        "odd-queue": "metadata.labels",
        "n" * 253: "metadata.name",
    }.items():
        assert what in await town.wait_for_event("Pod", name, names.EVENT_POD_GROUPER_WARNING)
    assert "vast-ask requires" in await town.wait_for_event("Pod", "vast-ask", "Unschedulable")
    assert "'lots' is not a quantity" in await town.wait_for_event("Pod", "wordy-ask", "InvalidPod")
    assert '"ghost" not found' in await town.wait_for_event("Pod", "volumeless", "Unschedulable")
    assert "spec: expected an object" in await town.wait_for_event("Pod", "number", "InvalidPod")
    assert "status.conditions[0].type" in await town.wait_for_event("Pod", "dancing", "InvalidPod")
    await town.pods.wait_until(
        lambda store: all(_runs(store, name) for name in ("crowded", "classless", "minus-ask")), 15
    )


def _runs(store: Store[Pod], name: str) -> bool:
    pod = store.get(f"default/{name}")
    return pod is not None and pod.status.phase == "Running"


async def test_a_pod_that_claims_an_unreserved_shared_gpu(town: HostileCluster) -> None:
    """Others are not sent to share it: the binder would refuse them again and again."""
    forged = make_pod(
        "forged",
        labels={names.GPU_GROUP_LABEL: "stolen"},
        notes={names.GPU_FRACTION_ANNOTATION: "0.5"},
        nodeName="m-1",
        containers=[{"name": "main", "image": "x", "envFrom": [{"configMapRef": {"name": "ghost"}}]}],
    )
    town.store_unchecked(forged)
    text = await town.wait_for_event("Pod", "forged", "InvalidPod")
    assert "no reservation pod holds a GPU for group stolen on node m-1" in text
    await town.check_others_are_served()
    await town.client.delete(resources.PODS, "forged", "default", grace_s=0)


async def test_devices_topologies_classes_and_volumes(town: HostileCluster) -> None:
    device = {"name": "d", "attributes": {"x": {"int": "a"}}}
    town.store_unchecked(
        make_object("Topology", "levels", spec={"levels": [{"nodeLabel": "a"}, {"nodeLabel": "a"}]}),
        make_object("Topology", "flat", spec={"levels": []}),
        make_object(
            "ResourceSlice", "sliced", spec={"driver": "x", "nodeName": "m-0", "pool": {}, "devices": [device]}
        ),
        make_object("DeviceClass", "number", spec=5),
        make_object("ResourceClaim", "claim", spec={"devices": {"requests": "x"}}),
        make_object("PriorityClass", "high", value="high"),
        make_object("ConfigMap", "numbers", data={"a": 5}),
        make_object("PersistentVolume", "listed", spec={"accessModes": "x"}),
        make_object("PersistentVolumeClaim", "sized", spec={"resources": {"requests": {"storage": "abc"}}}),
        make_object("StorageClass", "numbered", provisioner=5),
        make_object("CSINode", "m-0", spec={"drivers": [{"name": "d", "allocatable": {"count": "x"}}]}),
        make_object("Namespace", "labelled", meta={"labels": "x"}),
    )
    await town.check_others_are_served()
    assert "unique" in await town.wait_for_event("Topology", "levels", "InvalidTopology")
    assert "levels" in await town.wait_for_event("Topology", "flat", "InvalidTopology")
    assert "attributes['x'].int" in await town.wait_for_event("ResourceSlice", "sliced", "InvalidResourceSlice")
    assert "spec" in await town.wait_for_event("DeviceClass", "number", "InvalidDeviceClass")
    assert "spec.devices.requests" in await town.wait_for_event("ResourceClaim", "claim", "InvalidResourceClaim")
    assert "value" in await town.wait_for_event("PriorityClass", "high", "InvalidPriorityClass")
    assert "accessModes" in await town.wait_for_event("PersistentVolume", "listed", "InvalidPersistentVolume")
    assert "'abc' is not" in await town.wait_for_event("PersistentVolumeClaim", "sized", "InvalidPersistentVolumeClaim")
    assert "provisioner" in await town.wait_for_event("StorageClass", "numbered", "InvalidStorageClass")
    assert "count" in await town.wait_for_event("CSINode", "m-0", "InvalidCSINode")
    assert "metadata.labels" in await town.wait_for_event("Namespace", "labelled", "InvalidNamespace")


async def test_workloads(town: HostileCluster) -> None:
    job = {"template": make_template()}
    unmatched = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": make_template(a="c")}
    timed = {"jobTemplate": {"spec": job}}
    town.store_unchecked(
        make_object("Job", "hasty", spec={**job, "backoffLimit": 0, "activeDeadlineSeconds": 0}),
        make_object("Job", "wordy", spec={**job, "completions": "many"}),
        make_object(
            "Job", "hollow", spec={"template": {"spec": {"containers": []}}, "parallelism": 1, "completions": 1}
        ),
        make_object("CronJob", "whenever", spec={**timed, "schedule": "every now and then"}),
        make_object("CronJob", "martian", spec={**timed, "schedule": "* * * * *", "timeZone": "Mars/Olympus"}),
        make_object("CronJob", "never", spec={**timed, "schedule": "0 0 30 2 *"}),
        make_object("Deployment", "unmatched", spec=unmatched),
        make_object("Deployment", "text", spec="x"),
        make_object("Deployment", "minus", spec={**unmatched, "replicas": -2, "template": make_template(a="b")}),
        make_object("StatefulSet", "text", spec="x"),
        make_object(
            "PodDisruptionBudget", "odd", spec={"minAvailable": "9" * 30 + "%", "selector": {"matchLabels": {"a": "z"}}}
        ),
        make_object("PodDisruptionBudget", "text", spec="x"),
    )
    await town.check_others_are_served()
    assert "longer than specified deadline" in await town.wait_for_event("Job", "hasty", "DeadlineExceeded")
    assert "spec.completions" in await town.wait_for_event("Job", "wordy", "Unreadable")
    assert "spec.containers: Required" in await town.wait_for_event("Job", "hollow", "FailedCreate")
    assert "expected five fields" in await town.wait_for_event("CronJob", "whenever", "UnparseableSchedule")
    assert "Mars/Olympus" in await town.wait_for_event("CronJob", "martian", "UnparseableSchedule")
    assert "spec.template.metadata.labels" in await town.wait_for_event("Deployment", "unmatched", "FailedSync")
    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        assert "spec: expected an object" in await town.wait_for_event(kind, "text", "Unreadable")


async def test_afterwards_no_service_writes_and_no_event_repeats(town: HostileCluster) -> None:
    await town.wait_until_idle()
    told = Counter((event["involvedObject"]["kind"], event["involvedObject"]["name"]) for event in town.events.values())
    assert [subject for subject, count in told.items() if count > 8] == []
