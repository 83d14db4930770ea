"""Objects that make no sense, in every kind we watch: somebody says so, and everybody else is served.

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
from tests.lab.hostilecluster import Document, Town, a, a_pod, a_template
from tests.lab.hostilecluster import town as make_town

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town() -> AsyncIterator[Town]:
    async with make_town() as there:
        yield there


@pytest.fixture(autouse=True)
def nobody_stumbles(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Bad input is a warning at most; a traceback is a mistake of ours."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


async def test_pod_groups(town: Town) -> None:
    def group(name: str, **spec: object) -> dict[str, object]:
        return a("PodGroup", name, spec={"queue": "good", "minMember": 1, **spec})

    def part(name: str, parent: str = "") -> dict[str, object]:
        return {"name": name, "minMember": 1, **({"parent": parent} if parent else {})}

    plan = {names.BIND_PLAN_ANNOTATION: "{broken", names.LAST_START_TIMESTAMP_ANNOTATION: "yesterday"}
    town.smuggle(
        a("PodGroup", "text", spec="garbage"),
        a("PodGroup", "odd-status", spec={"queue": "good", "minMember": 1}, status={"schedulingConditions": "x"}),
        a("PodGroup", "odd-conditions", spec={"queue": "good", "minMember": 1}, status={"conditions": [{"type": 1}]}),
        a("PodGroup", "stamps", meta={"annotations": plan}, spec={"queue": "good", "minMember": 1}),
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
    await town.submit(*(a_pod(f"of-{name}", group=name) for name in (*everybody, "nowhere", "queueless")))
    await town.serves_others()
    assert "spec: expected an object" in await town.told("PodGroup", "text", "InvalidPodGroup")
    assert "schedulingConditions" in await town.told("PodGroup", "odd-status", "Unreadable")
    assert "status.conditions[0].type" in await town.told("PodGroup", "odd-conditions", "Unreadable")
    assert "last-start-timestamp" in await town.told("PodGroup", "stamps", "InvalidPodGroup")
    assert 'subgroup "a" is its own ancestor' in await town.told("PodGroup", "cycle", "InvalidPodGroup")
    assert "listed twice" in await town.told("PodGroup", "twice", "InvalidPodGroup")
    assert 'parent "nobody", which does not exist' in await town.told("PodGroup", "orphan", "InvalidPodGroup")
    assert "spec.minMember" in await town.told("PodGroup", "vast", "InvalidPodGroup")
    assert "Waiting for 2147483647 pods" in await town.told("PodGroup", "many", "NotReady")
    assert "Queue 'ghost' does not exist" in await town.told("Pod", "of-nowhere", "Unschedulable")
    assert "Queue '' does not exist" in await town.told("Pod", "of-queueless", "Unschedulable")


async def test_queues(town: Town) -> None:
    amounts = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    everything = {"gpu": amounts, "cpu": amounts, "memory": amounts}
    town.smuggle(
        a("Queue", "ring-a", spec={"parentQueue": "ring-b", "resources": everything}),
        a("Queue", "ring-b", spec={"parentQueue": "ring-a", "resources": everything}),
        a("Queue", "selfish", spec={"parentQueue": "selfish", "resources": everything}),
        a("Queue", "orphaned", spec={"parentQueue": "nobody", "resources": everything}),
        a("Queue", "lots", spec={"resources": {**everything, "gpu": {"quota": "lots"}}}),
        a("Queue", "endless", spec={"resources": {**everything, "gpu": {"quota": 1e308}}}),
        a("Queue", "minus", spec={"resources": {**everything, "gpu": {"quota": -7, "limit": -3}}}),
        a("Queue", "soon", spec={"resources": everything, "preemptMinRuntime": "soon"}),
        a("Queue", "urgent", spec={"resources": everything, "priority": 10**30}),
        a("Queue", "number", spec=7),
    )
    unsound = ("ring-a", "selfish", "orphaned", "lots", "endless", "minus", "urgent", "number")
    await town.submit(*(a_pod(f"in-{name}", queue=name, asks={"nvidia.com/gpu": "1"}) for name in unsound))
    await town.serves_others()
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
        assert what in await town.told("Queue", name, "InvalidQueue")
    for name in unsound:
        assert await town.told("Pod", f"in-{name}", "Unschedulable")


async def test_bind_requests(town: Town) -> None:
    """None of them may bind anything or leave a reservation behind, whatever they name."""
    nowhere: Document = {"nodeSelector": {"no": "where"}}
    half = {names.GPU_FRACTION_ANNOTATION: "0.5"}
    shared = ("groupless", "greedy", "odd-name")
    plain = ("mistaken", "adrift", "doubled")
    await town.submit(*(a_pod(name, notes=half, **nowhere) for name in shared), *(a_pod(n, **nowhere) for n in plain))
    uids = {name: await town.uid("Pod", name) for name in (*shared, *plain)}

    def request(name: str, pod: str, uid: str = "", **spec: object) -> dict[str, object]:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        wanted = {"podName": pod, "selectedNode": "m-0", "receivedResourceType": "Regular", **spec}
        return a("BindRequest", name, meta={"ownerReferences": [owner]} if uid else {}, spec=wanted)

    part = {"receivedResourceType": "Fraction", "receivedGPU": {"count": 1, "portion": "0.5"}}
    claims = {"resourceClaimAllocations": [{"name": "ghost"}]}
    town.smuggle(
        request("departed", "departed"),
        request("mistaken", "mistaken", "00000000-0000-0000-0000-000000000000"),
        request("adrift", "adrift", uids["adrift"], selectedNode="atlantis"),
        request("groupless", "groupless", uids["groupless"], **part),
        request("greedy", "greedy", uids["greedy"], **part, selectedGPUGroups=[f"g-{at}" for at in range(3_000)]),
        request("odd-name", "odd-name", uids["odd-name"], **part, selectedGPUGroups=["../../etc"]),
        request("doubled", "doubled", uids["doubled"], **claims),
        request("doubled-too", "doubled", uids["doubled"], **claims),
        a("BindRequest", "text", spec="x"),
        a("BindRequest", "empty"),
        a("BindRequest", "odd-phase", spec={"podName": "x", "selectedNode": "m-0"}, status={"phase": 7}),
    )
    await town.serves_others()
    assert "pod default/departed not found" in await town.told("BindRequest", "departed", "BindingError")
    for name in (*shared, *plain):
        assert "the scheduler has not decided it" in await town.told("Pod", name, "InvalidBindRequest")
    assert "spec: expected an object" in await town.told("BindRequest", "text", "InvalidBindRequest")
    assert "spec.podName" in await town.told("BindRequest", "empty", "BindingError")
    assert "status.phase" in await town.told("BindRequest", "odd-phase", "InvalidBindRequest")
    bound = {pod.metadata.name for pod in town.pods.values() if pod.spec.node_name}
    assert not bound & {*shared, *plain}
    await town.pods.wait_until(
        lambda store: not any(pod.metadata.namespace == names.RESERVATION_NAMESPACE for pod in store.values()), 15
    )


async def test_nodes(town: Town) -> None:
    """They are tainted, so that honest work has nothing to do with them but to be placed beside them."""

    def node(name: str, gpus: object, *, memory: str = "81559", **allocatable: object) -> dict[str, object]:
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": gpus, **allocatable}
        return a(
            "Node",
            name,
            meta={"labels": {"kubernetes.io/hostname": name, "lies": name, "nvidia.com/gpu.memory": memory}},
            spec={"taints": [{"key": "liar", "effect": "NoSchedule"}]},
            status={"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        )

    town.smuggle(
        node("negative", "-8"),
        node("boundless", "1" + "0" * 30),
        node("wordy", "abc"),
        node("blurred", "8", memory="plenty"),
        node("starved", "8", memory="-5"),
        node("backwards", "8", cpu="-4", pods="1e99"),
        a("Node", "listed", status={"allocatable": 5}),
        a("Node", "bare"),
    )
    bears = [{"key": "liar", "operator": "Exists"}]
    for name in ("negative", "boundless", "wordy"):
        where: Document = {"nodeSelector": {"lies": name}, "tolerations": bears}
        await town.submit(a_pod(f"on-{name}", asks={"nvidia.com/gpu": "1"}, **where))
    for name in ("blurred", "starved"):
        where = {"nodeSelector": {"lies": name}, "tolerations": bears}
        await town.submit(a_pod(f"on-{name}", notes={names.GPU_MEMORY_ANNOTATION: "1000"}, **where))
    await town.serves_others()
    assert "-8 is negative" in await town.told("Node", "negative", "InvalidNode")
    assert "is more than the 4096" in await town.told("Node", "boundless", "InvalidNode")
    assert "'abc' is not a quantity" in await town.told("Node", "wordy", "InvalidNode")
    assert "nvidia.com/gpu.memory" in await town.told("Node", "blurred", "InvalidNode")
    assert "status.allocatable: expected a map" in await town.told("Node", "listed", "InvalidNode")
    for name in ("negative", "boundless", "wordy", "blurred", "starved"):
        assert await town.told("Pod", f"on-{name}", "Unschedulable")
    for name in ("negative", "boundless", "wordy", "blurred", "starved", "backwards", "listed", "bare"):
        await town.client.delete(resources.NODES, name)


async def test_pods(town: Town) -> None:
    half = {names.GPU_FRACTION_ANNOTATION: "0.5"}
    vast = "1" + "0" * 40
    claimed: Document = {"resourceClaims": [{"name": "c", "resourceClaimName": "ghost"}]}
    town.smuggle(
        a_pod("contrary", notes=half, asks={"nvidia.com/gpu": "2"}),
        a_pod("half-word", notes={names.GPU_FRACTION_ANNOTATION: "½"}),
        a_pod("minus-memory", notes={names.GPU_MEMORY_ANNOTATION: "-5"}),
        a_pod("vast-ask", asks={"cpu": vast, "nvidia.com/gpu": vast}),
        a_pod("minus-ask", asks={"cpu": "-1", "nvidia.com/gpu": "-2"}),
        a_pod("wordy-ask", asks={"cpu": "lots"}),
        a_pod("classless", priorityClassName="ghost"),
        a_pod("odd-queue", queue="kö-€"),
        a_pod("volumeless", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "ghost"}}]),
        a_pod("claimless", **claimed),
        a_pod("lost-node", nodeName="ghost"),
        a("Pod", "number", spec=5),
        a("Pod", "dancing", spec=a_pod("x")["spec"], status={"phase": "Dancing", "conditions": [{"type": 5}]}),
    )
    crowd = [{"name": f"c{at}", "image": "x", "resources": {"requests": {"cpu": "1m"}}} for at in range(1000)]
    await town.submit(a_pod("crowded", containers=crowd), a_pod("n" * 253))
    await town.serves_others()
    for name, what in {
        "contrary": "cannot have both GPU fraction request and whole GPU",
        "half-word": "gpu-fraction annotation value must be",
        "minus-memory": "gpu-memory annotation value must be",
        "odd-queue": "metadata.labels",
        "n" * 253: "metadata.name",
    }.items():
        assert what in await town.told("Pod", name, names.EVENT_POD_GROUPER_WARNING)
    assert "vast-ask requires" in await town.told("Pod", "vast-ask", "Unschedulable")
    assert "'lots' is not a quantity" in await town.told("Pod", "wordy-ask", "InvalidPod")
    assert '"ghost" not found' in await town.told("Pod", "volumeless", "Unschedulable")
    assert "spec: expected an object" in await town.told("Pod", "number", "InvalidPod")
    assert "status.conditions[0].type" in await town.told("Pod", "dancing", "InvalidPod")
    await town.pods.wait_until(
        lambda store: all(_runs(store, name) for name in ("crowded", "classless", "minus-ask")), 15
    )


def _runs(store: Store[Pod], name: str) -> bool:
    pod = store.get(f"default/{name}")
    return pod is not None and pod.status.phase == "Running"


async def test_a_pod_that_claims_a_shared_gpu_nobody_holds(town: Town) -> None:
    """Others are not sent to share it: the binder would refuse them again and again."""
    forged = a_pod(
        "forged",
        labels={names.GPU_GROUP_LABEL: "stolen"},
        notes={names.GPU_FRACTION_ANNOTATION: "0.5"},
        nodeName="m-1",
        containers=[{"name": "main", "image": "x", "envFrom": [{"configMapRef": {"name": "ghost"}}]}],
    )
    town.smuggle(forged)
    text = await town.told("Pod", "forged", "InvalidPod")
    assert "no reservation pod holds a GPU for group stolen on node m-1" in text
    await town.serves_others()
    await town.client.delete(resources.PODS, "forged", "default", grace_s=0)


async def test_devices_topologies_classes_and_volumes(town: Town) -> None:
    device = {"name": "d", "attributes": {"x": {"int": "a"}}}
    town.smuggle(
        a("Topology", "levels", spec={"levels": [{"nodeLabel": "a"}, {"nodeLabel": "a"}]}),
        a("Topology", "flat", spec={"levels": []}),
        a("ResourceSlice", "sliced", spec={"driver": "x", "nodeName": "m-0", "pool": {}, "devices": [device]}),
        a("DeviceClass", "number", spec=5),
        a("ResourceClaim", "claim", spec={"devices": {"requests": "x"}}),
        a("PriorityClass", "high", value="high"),
        a("ConfigMap", "numbers", data={"a": 5}),
        a("PersistentVolume", "listed", spec={"accessModes": "x"}),
        a("PersistentVolumeClaim", "sized", spec={"resources": {"requests": {"storage": "abc"}}}),
        a("StorageClass", "numbered", provisioner=5),
        a("CSINode", "m-0", spec={"drivers": [{"name": "d", "allocatable": {"count": "x"}}]}),
        a("Namespace", "labelled", meta={"labels": "x"}),
    )
    await town.serves_others()
    assert "unique" in await town.told("Topology", "levels", "InvalidTopology")
    assert "levels" in await town.told("Topology", "flat", "InvalidTopology")
    assert "attributes['x'].int" in await town.told("ResourceSlice", "sliced", "InvalidResourceSlice")
    assert "spec" in await town.told("DeviceClass", "number", "InvalidDeviceClass")
    assert "spec.devices.requests" in await town.told("ResourceClaim", "claim", "InvalidResourceClaim")
    assert "value" in await town.told("PriorityClass", "high", "InvalidPriorityClass")
    assert "accessModes" in await town.told("PersistentVolume", "listed", "InvalidPersistentVolume")
    assert "'abc' is not" in await town.told("PersistentVolumeClaim", "sized", "InvalidPersistentVolumeClaim")
    assert "provisioner" in await town.told("StorageClass", "numbered", "InvalidStorageClass")
    assert "count" in await town.told("CSINode", "m-0", "InvalidCSINode")
    assert "metadata.labels" in await town.told("Namespace", "labelled", "InvalidNamespace")


async def test_workloads(town: Town) -> None:
    job = {"template": a_template()}
    unmatched = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": a_template(a="c")}
    timed = {"jobTemplate": {"spec": job}}
    town.smuggle(
        a("Job", "hasty", spec={**job, "backoffLimit": 0, "activeDeadlineSeconds": 0}),
        a("Job", "wordy", spec={**job, "completions": "many"}),
        a("Job", "hollow", spec={"template": {"spec": {"containers": []}}, "parallelism": 1, "completions": 1}),
        a("CronJob", "whenever", spec={**timed, "schedule": "every now and then"}),
        a("CronJob", "martian", spec={**timed, "schedule": "* * * * *", "timeZone": "Mars/Olympus"}),
        a("CronJob", "never", spec={**timed, "schedule": "0 0 30 2 *"}),
        a("Deployment", "unmatched", spec=unmatched),
        a("Deployment", "text", spec="x"),
        a("Deployment", "minus", spec={**unmatched, "replicas": -2, "template": a_template(a="b")}),
        a("StatefulSet", "text", spec="x"),
        a("PodDisruptionBudget", "odd", spec={"minAvailable": "9" * 30 + "%", "selector": {"matchLabels": {"a": "z"}}}),
        a("PodDisruptionBudget", "text", spec="x"),
    )
    await town.serves_others()
    assert "longer than specified deadline" in await town.told("Job", "hasty", "DeadlineExceeded")
    assert "spec.completions" in await town.told("Job", "wordy", "Unreadable")
    assert "spec.containers: Required" in await town.told("Job", "hollow", "FailedCreate")
    assert "expected five fields" in await town.told("CronJob", "whenever", "UnparseableSchedule")
    assert "Mars/Olympus" in await town.told("CronJob", "martian", "UnparseableSchedule")
    assert "spec.template.metadata.labels" in await town.told("Deployment", "unmatched", "FailedSync")
    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        assert "spec: expected an object" in await town.told(kind, "text", "Unreadable")


async def test_afterwards_nobody_writes_and_nobody_was_flooded(town: Town) -> None:
    await town.comes_to_rest()
    told = Counter((event["involvedObject"]["kind"], event["involvedObject"]["name"]) for event in town.events.values())
    assert [subject for subject, count in told.items() if count > 8] == []
