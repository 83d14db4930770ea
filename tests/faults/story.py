"""A small cluster that runs one story under faults, in fake time, and the recording of it.

    seen = tell(fault=..., twist=...)
    assert seen.problems() == []

All five services run as processes of their own would (own transport, own caches, a lease each) on the embedded API
server; kubelets and controllers are the simulator's and never fail.  The story has one of everything: a gang, an
elastic job that is reclaimed, shared GPUs, device claims, a volume to be provisioned and one that exists, a pod
without an owner, and a job that fits nowhere.  It ends when all work has completed and everything is deleted.

The checker of the soak judges a recording of watches (`pykai.dev.soak.invariants`).  Time is that of
the event loop and passes only when nothing is left to do, so minutes of pauses cost nothing, a run is the same each
time, and no limit depends on how busy the machine is.  The engine, which has a thread of its own in production, is
called directly.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.binder.options import BinderOptions
from pykai.binder.service import make_binder
from pykai.dev.soak.invariants import RecordedChange, check_recording, is_complete
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import AlreadyExists, LeaseLost, NotFound
from pykai.kube.lease import Fence
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime, Service, run_services
from pykai.kube.store import Change, Store
from pykai.kube.transport import Transport
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.machines import create_nodes, machines
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.machines.options import MachineOptions
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from pykai.lab.story import JobEntry, QueueEntry, ResourceShare, job_object, queue_object
from pykai.operator.install import installation
from pykai.podgrouper.options import PodGrouperOptions
from pykai.podgrouper.service import make_podgrouper
from pykai.podgroups.options import PodGroupsOptions
from pykai.podgroups.service import make_podgroups
from pykai.queues.options import QueuesOptions
from pykai.queues.service import make_queues
from pykai.scheduler.flags import read_flags
from pykai.scheduler.service import make_scheduler
from pykai.services.running import LeaderElected
from pykai.services.table import SERVICES as SERVICE_TABLE
from pykai.webhooks.admission import pod_mutator, pod_validator
from tests.faults.calls import Call
from tests.faults.wire import BodyRewrite, Fault, FaultyServiceTransport, WatchDistortion, unchanged_body, undistorted
from tests.kube.faketime import LoopClock, ThreadlessLoop

T = TypeVar("T")
Document = dict[str, Any]

#: cluster seconds for a part of the story, faults and the longest pauses included
PATIENCE_S = 3_600.0
#: a gang may be half started that long: the default stale grace period, and the longest pause of a client
GRACE_S = 90.0
QUICK = BehaviourDefaults(start_s=0.2, run_s=20.0, stop_s=0.2, init_s=0.1, reservation_start_s=0.1)
RECORDED = (resources.NODES, resources.PODS, resources.POD_GROUPS, resources.BIND_REQUESTS, resources.JOBS)
#: what must be gone at the end, beside what the checker requires
_LEFT = (resources.POD_GROUPS, resources.RESOURCE_CLAIMS)
#: KAI leaves the pause after a failed bind to the scheduler
_SCHEDULER = {"version": "false", "leader-elect": "true", "update-pod-eviction-condition": "true"}

#: a resource that is served from devices
EXTENDED = "example.com/gpu"

log = logging.getLogger(__name__)


def _scheduler(runtime: Runtime) -> Service:
    return make_scheduler(runtime, read_flags(_SCHEDULER), endpoints=False)


def _binder(runtime: Runtime) -> Service:
    return make_binder(runtime, replace(BinderOptions(), leader_elect=True), registry=CollectorRegistry())


def _led(part: str, make: Callable[[Runtime], Service]) -> Callable[[Runtime], Service]:
    def made(runtime: Runtime) -> Service:
        fence = Fence()
        service = make(replace(runtime, client=runtime.client.fenced(fence.check)))
        namespace = names.DEFAULT_NAMESPACE
        return LeaderElected(service, runtime, namespace=namespace, lease=SERVICE_TABLE[part].lease, fence=fence)

    return made


#: service -> how it is made; names are those of `kai run`
SERVICES: Mapping[str, Callable[[Runtime], Service]] = {
    "scheduler": _scheduler,
    "binder": _binder,
    "podgrouper": _led("podgrouper", lambda runtime: make_podgrouper(runtime, PodGrouperOptions())),
    "podgroups": _led("podgroups", lambda runtime: make_podgroups(runtime, PodGroupsOptions())),
    "queues": _led("queues", lambda runtime: make_queues(runtime, QueuesOptions(), CollectorRegistry())),
}


#: service -> its account, whose role it uses
ACCOUNTS: Mapping[str, str] = {
    "scheduler": "scheduler",
    "binder": "binder",
    "podgrouper": "pod-grouper",
    "podgroups": "podgroup-controller",
    "queues": "queue-controller",
}


def _nothing(call: Call, number: int) -> None:
    return None


@dataclass
class InjectedFaults:
    """What goes wrong."""

    fault: Fault = _nothing
    twist: WatchDistortion = undistorted
    reword: BodyRewrite = unchanged_body
    #: service -> its clock, where it is another than that of the cluster
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    #: service -> how many of it run
    instances: Mapping[str, int] = field(default_factory=dict)
    habits: BehaviourDefaults = QUICK
    #: what else is between a service and the server
    wrap: Callable[[Transport], Transport] = lambda transport: transport


@dataclass
class Told:
    """What was seen of a story."""

    recording: list[RecordedChange] = field(default_factory=list)
    #: calls of our services, and those of them that were spoilt
    calls: Counter[Call] = field(default_factory=Counter)
    hit: Counter[Call] = field(default_factory=Counter)
    #: service -> how often it was restarted
    restarts: Counter[str] = field(default_factory=Counter)
    submitted: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    #: cluster seconds it took
    took_s: float = 0.0
    #: where the story stopped, if it did not complete
    stuck: str = ""

    def problems(self, *, of_kubelets: bool = False) -> list[str]:
        """Broken guarantees, as sentences; `of_kubelets`: a pod is on a node once its kubelet has taken it."""
        seen = map(_taken, self.recording) if of_kubelets else self.recording
        found = check_recording(seen, grace_s=GRACE_S, submitted=self.submitted, given_up=self.given_up)
        return [*([self.stuck] if self.stuck else []), *found]


def _taken(seen: RecordedChange) -> RecordedChange:
    """The recording without nodes of pods that their kubelets have not taken."""
    pod = seen.object
    if seen.resource != "pods" or pod is None or pod["status"].get("phase") != "Pending":
        return seen
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return replace(seen, object={**pod, "spec": spec})


class StoryCluster:
    """The cluster of a story: what its users do, and what they wait for."""

    def __init__(self, server: ApiServer, clock: Clock, told: Told, trouble: InjectedFaults) -> None:
        self.server, self.clock, self.told, self.trouble = server, clock, told, trouble
        self.client = Client(server.transport())
        self.caches = Caches(self.client)
        self.stores: dict[Resource, Store[Document]] = {
            each: self.caches.store(each, dict) for each in (*RECORDED, *_LEFT)
        }
        for resource in RECORDED:
            self.stores[resource].subscribe(self._recorder(resource.plural))
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def _recorder(self, plural: str) -> Callable[[Change[Document]], None]:
        def changed(change: Change[Document]) -> None:
            self.told.recording.append(RecordedChange(self.clock.elapsed_s(), plural, change.key, change.new))

        return changed

    async def start(self) -> None:
        """Start watches, kubelets, controllers and our services."""
        await self.caches.start()
        runtime = self._runtime(self.client.transport)
        played = machines(runtime, MachineOptions(self.trouble.habits, default_scheduler=False))
        self._tasks.append(asyncio.create_task(run_services(runtime, played, self._stop)))
        for service in SERVICES:
            for _ in range(self.trouble.instances.get(service, 1)):
                self._tasks.append(asyncio.create_task(self._live(service)))

    async def _live(self, service: str) -> None:
        """One service, started again by its kubelet whenever it has lost its lease."""
        while not self._stop.is_set():
            # A failing process stops only itself.
            stop = asyncio.Event()
            passing_on = asyncio.create_task(_forward_stop(self._stop, stop))
            trouble, told = self.trouble, self.told
            wire = FaultyServiceTransport(
                trouble.wrap(self.server.transport(ACCOUNTS[service])),
                service,
                told.calls,
                trouble.fault,
                trouble.twist,
                told.hit,
                trouble.reword,
            )
            runtime = self._runtime(wire, trouble.clocks.get(service))
            try:
                await run_services(runtime, [SERVICES[service](runtime)], stop)
            except LeaseLost as lost:
                log.info("%s is started again: %s", service, lost)
                self.told.restarts[service] += 1
                await self.clock.sleep(1)
            finally:
                passing_on.cancel()

    def _runtime(self, transport: Transport, clock: Clock | None = None) -> Runtime:
        client = Client(transport)
        return Runtime(client, Caches(client), clock or self.clock)

    async def end(self) -> None:
        """Stop everything; what a service raised is raised."""
        self._stop.set()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self.caches.stop()
            await self.server.close()

    async def create(self, resource: Resource, document: Document, namespace: str = "default") -> Document:
        return await self.client.create(resource, document, namespace if resource.namespaced else "")

    async def submit(self, job: Document, **of_pods: Any) -> None:
        """A Job; `of_pods` goes into the spec of its pods."""
        job["spec"]["template"]["spec"].update(of_pods)
        job["spec"]["podFailurePolicy"] = {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        }
        self.told.submitted.add(f"default/{job['metadata']['name']}")
        await self.create(resources.JOBS, job)

    async def that(self, resource: Resource, holds: Callable[[], bool], what: str) -> None:
        """Wait, change by change of a kind, until something holds."""
        try:
            await self.stores[resource].wait_until(lambda _: holds(), PATIENCE_S)
        except TimeoutError:
            found = [f"{each['metadata']['name']}: {each.get('status')}" for each in self.stores[resource].values()]
            raise StoryStuck("\n  ".join([f"waited in vain for {what}:", *found])) from None

    def pods(self, job: str, phase: str = "") -> list[Document]:
        """Pods of a job, those in one phase and not being deleted."""
        return [
            pod
            for pod in self.stores[resources.PODS].values()
            if (pod["metadata"].get("labels") or {}).get("job-name") == job
            and (not phase or (pod["status"]["phase"] == phase and "deletionTimestamp" not in pod["metadata"]))
        ]

    async def running(self, job: str, count: int) -> None:
        """Wait until so many pods of a job run."""
        await self.that(resources.PODS, lambda: len(self.pods(job, "Running")) >= count, f"{count} pods of {job}")

    async def complete(self, *jobs: str) -> None:
        """Wait until jobs have completed."""
        store = self.stores[resources.JOBS]
        for job in jobs:
            await self.that(resources.JOBS, lambda job=job: is_complete(store.get(f"default/{job}") or {}), job)  # type: ignore[misc]

    async def clear(self) -> None:
        """Delete everything that was submitted, and wait until nothing of it is left."""
        for job in self.stores[resources.JOBS].values():
            with suppress(NotFound):
                await self.client.delete(resources.JOBS, job["metadata"]["name"], "default", propagation="Background")
        for resource in (resources.JOBS, resources.PODS, resources.BIND_REQUESTS, *_LEFT):
            await self.that(resource, lambda store=self.stores[resource]: not len(store), f"no {resource.plural}")  # type: ignore[misc]


async def _forward_stop(told: asyncio.Event, stop: asyncio.Event) -> None:
    await told.wait()
    stop.set()


class StoryStuck(Exception):
    """The story cannot go on."""


Story = Callable[[StoryCluster], Coroutine[Any, Any, None]]


def tell(
    story: Story | None = None,
    *,
    clock: Callable[[], Clock] = LoopClock.of_2026,
    **trouble: Any,
) -> Told:
    """Run a story from beginning to end, with faults (the fields of `InjectedFaults`); `clock` is that of the
    cluster."""
    random.seed(1)
    told = Told()

    async def run() -> None:
        at = clock()
        # Roles and all; queues are those of the story.
        installed = [each for each in installation() if each["kind"] not in ("Queue", "CustomResourceDefinition")]
        server = await ApiServer.open(
            clock=at, mutators=(pod_mutator(),), validators=(pod_validator(),), objects=installed
        )
        household = StoryCluster(server, at, told, InjectedFaults(**trouble))
        try:
            await household.start()
            await (story or one_of_everything)(household)
        except StoryStuck as stuck:
            told.stuck = str(stuck)
        finally:
            await household.end()
            told.took_s = at.elapsed_s()

    with asyncio.Runner(loop_factory=ThreadlessLoop) as runner:
        runner.run(run())
    return told


def job(name: str, queue: str, pods: int = 1, **fields: Any) -> Document:
    """A Job of so many pods."""
    return job_object(JobEntry(name=name, queue=queue, pods=pods, **{"cpu": "1", "runs": "20s", **fields}))


async def furnished(it: StoryCluster) -> None:
    """Eight GPUs on two machines, two more as devices on a third, three queues, and what they need."""
    for name in (names.DEFAULT_NAMESPACE, names.RESERVATION_NAMESPACE):
        with suppress(AlreadyExists):
            await it.create(resources.NAMESPACES, {"metadata": {"name": name}})
    kinds = [MachineKind(count=2, name="n{}", gpus=4, cpu="16"), MachineKind(name="d0", gpus=2, cpu="16", dra=True)]
    await create_nodes(it.client, it.clock, kinds)
    for entry in (
        QueueEntry(name="all", gpu=ResourceShare(quota=10)),
        QueueEntry(name="rich", parent="all", gpu=ResourceShare(quota=0)),
        QueueEntry(name="poor", parent="all", gpu=ResourceShare(quota=10)),
        QueueEntry(name="orphan", parent="missing"),
    ):
        await it.create(resources.QUEUES, queue_object(entry))
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": names.GPU_DEVICE_CLASS, "count": 1}}]}
    template = {"metadata": {"name": "one"}, "spec": {"spec": {"devices": devices}}}
    await it.create(resources.RESOURCE_CLAIM_TEMPLATES, template)
    waits = {"metadata": {"name": "slow"}, "provisioner": "maker", "volumeBindingMode": "WaitForFirstConsumer"}
    await it.create(resources.STORAGE_CLASSES, waits)
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow"}
    for name, size in (("made", "5Gi"), ("found", "1Gi")):
        asks = {**spec, "resources": {"requests": {"storage": size}}}
        await it.create(resources.PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": name}, "spec": asks})
    terms = [{"matchExpressions": [{"key": names.HOSTNAME_LABEL, "operator": "In", "values": ["n1"]}]}]
    local = {
        **spec,
        "capacity": {"storage": "2Gi"},
        "local": {"path": "/"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    await it.create(resources.PERSISTENT_VOLUMES, {"metadata": {"name": "disk"}, "spec": local})
    available = {"status": {"phase": "Available"}}
    await it.client.patch(resources.PERSISTENT_VOLUMES, "disk", available, subresource="status")
    extended = {"extendedResourceName": EXTENDED, "selectors": [{"cel": {"expression": "true"}}]}
    await it.create(resources.DEVICE_CLASSES, {"metadata": {"name": "extended"}, "spec": extended})


def volume(claim: str) -> Document:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


async def one_of_everything(it: StoryCluster) -> None:
    """See the module."""
    await furnished(it)
    await it.submit(job("greedy", "rich", 8, gpus=1, minimum=1, runs="120s"))
    await it.running("greedy", 6)
    await it.submit(job("gang", "poor", 4, gpus=1))
    await it.submit(job("giant", "poor", gpus=64))
    await it.submit(job("lost", "nowhere", gpus=64))
    await it.submit(job("share", "poor", 3, fraction=0.4, minimum=1))
    claiming = job("claiming", "poor", 2)
    claiming["spec"]["template"]["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    await it.submit(claiming, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}])
    await it.submit(job("volume-made", "poor"), **volume("made"))
    await it.submit(job("volume-found", "poor", node_selector={names.HOSTNAME_LABEL: "n1"}), **volume("found"))
    extended = job("extended", "poor")
    extended["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {EXTENDED: 1}
    await it.submit(extended)
    alone = job("unused", "poor")["spec"]["template"]
    await it.create(resources.PODS, {"metadata": {"name": "alone", **alone["metadata"]}, "spec": alone["spec"]})
    await it.complete("gang", "share", "claiming", "volume-made", "volume-found", "extended", "greedy")
    for name in ("giant", "lost"):
        changed = {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: "inference"}}}
        await it.client.patch(resources.JOBS, name, changed, "default")
        await it.clock.sleep(20)
        it.told.given_up.add(f"default/{name}")
        await it.client.delete(resources.JOBS, name, "default", propagation="Background")
    ended = it.stores[resources.PODS]
    # A kubelet may refuse it, and no controller makes another.
    over = ("Succeeded", "Failed")
    await it.that(resources.PODS, lambda: _phase(ended.get("default/alone")) in over, "the end of alone")
    await it.client.delete(resources.PODS, "alone", "default")
    await it.clear()


def _phase(pod: Document | None) -> str:
    return pod["status"]["phase"] if pod is not None else ""
