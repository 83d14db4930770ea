"""A story for a simulated cluster, read from YAML: machines, queues, and timed submissions.

    title: A busy morning
    machines:
      - {name: h100, count: 4, gpus: 8, model: NVIDIA-H100, memoryMiB: 81559, labels: {gpu: h100}}
    objects: []                  # any Kubernetes objects, created at the start
    queues:
      - {name: vision, parent: research, gpu: {quota: 8, limit: -1, weight: 2}, priority: 100}
    steps:
      - at: 5s                   # cluster time since the start of the round
        say: Vision submits a training job of four pods
        jobs:
          - {name: train, queue: vision, pods: 4, gpus: 8, minimum: 4, runs: 60s}
        services:
          - {name: chat, queue: serving, replicas: 2, fraction: 0.5}
        delete:
          - {kind: Deployment, name: chat}
    nodeGroups:                  # nodes that an autoscaler adds and removes
      - {name: spot, provisioner: karpenter, max: 3, boot: 20s, idle: 60s, machines: [{name: l4, gpus: 2}]}
    repeat: 120s                 # begin again that long after the start; 0s: once

Jobs become batch Jobs (gangs if `minimum` is more than one, elastic if it is less than `pods`), services become
Deployments.  Everything is submitted as a user would: the pod grouper and the scheduler know nothing of stories.

A queue that a step names must be one of the story, of its objects, or one that every installation has.

Subtle: the same story creates the same objects, so names repeat; a round first waits until the last one is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from pykai.api import names
from pykai.api.duration import DurationError, parse_duration
from pykai.api.gpuvendors import is_gpu, is_shareable
from pykai.api.suggestions import did_you_mean
from pykai.lab.autoscaling.nodegroups import CLUSTER_AUTOSCALER, KARPENTER, PROVISIONERS, NodeGroup
from pykai.lab.machines.nodes import MachineKind, TopologyLevelLabels

#: the story of `kai up`
DEFAULT_STORY = Path(__file__).with_name("scenarios") / "lab.yaml"
#: the story of `kai up --autoscale`
AUTOSCALE_STORY = DEFAULT_STORY.with_name("autoscale.yaml")

RACK_LABEL = "example.com/rack"
_NS = 1_000_000_000


class ScenarioError(ValueError):
    """An invalid story: the text names the file, the place in it and the fix."""


class _StoryRecord(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Base of everything in the file: a misspelt field is an error."""


class MachineEntry(_StoryRecord, frozen=True):
    """Equal nodes, named `<name>-1`, `<name>-2`, ...; a single one has the plain name."""

    name: str
    count: int = 1
    gpus: int = 0
    #: whose GPUs they are, by the name of their resource
    gpu_resource: str = names.NVIDIA_GPU
    model: str = ""
    memory_mib: int = msgspec.field(default=81_559, name="memoryMiB")
    cpu: str = "64"
    memory: str = "512Gi"
    labels: dict[str, str] = {}
    taints: list[dict[str, str]] = []
    #: nodes per rack and racks per zone; 0: no such labels
    per_rack: int = 0
    racks_per_zone: int = 0


class ResourceShare(_StoryRecord, frozen=True):
    """Quota, limit and weight of a queue for one resource."""

    quota: float = 0
    limit: float = -1
    weight: float = 1


class QueueEntry(_StoryRecord, frozen=True):
    """A queue; CPU and memory are unlimited unless said."""

    name: str
    parent: str = ""
    display_name: str = ""
    priority: int | None = None
    gpu: ResourceShare = ResourceShare()
    cpu: ResourceShare = ResourceShare(quota=-1)
    memory: ResourceShare = ResourceShare(quota=-1)
    #: work over quota or limit waits behind a gate, which autoscalers ignore
    admission_gating: bool = False


class NodeGroupEntry(_StoryRecord, frozen=True):
    """Nodes that come when pods fit nowhere and go when they are empty."""

    name: str
    #: one kind for cluster-autoscaler; Karpenter takes the smallest that is enough
    machines: list[MachineEntry]
    provisioner: str = CLUSTER_AUTOSCALER
    min: int = 0
    max: int = 10
    boot: str = "30s"
    idle: str = "60s"


class WorkEntry(_StoryRecord, frozen=True):
    """What pods of a job or service request."""

    name: str
    queue: str
    gpus: int = 0
    #: the resource of these GPUs
    gpu_resource: str = names.NVIDIA_GPU
    fraction: float = 0
    #: MiB of one GPU
    gpu_memory: int = 0
    cpu: str = "1"
    memory: str = "4Gi"
    priority: str = ""
    namespace: str = "default"
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, str]] = []
    annotations: dict[str, str] = {}


class JobEntry(WorkEntry, frozen=True):
    """A training job."""

    pods: int = 1
    #: how many pods must start together; absent: all
    minimum: int | None = None
    #: how long each pod runs: `60s`, or `60s..90s`, drawn from the pod's identity
    runs: str = "60s"


class ServiceEntry(WorkEntry, frozen=True):
    """An inference service."""

    replicas: int = 1


class ObjectToDelete(_StoryRecord, frozen=True):
    """An object to be deleted."""

    kind: str
    name: str
    namespace: str = "default"


class StoryStep(_StoryRecord, frozen=True):
    """Actions at one time."""

    at: str
    say: str = ""
    jobs: list[JobEntry] = []
    services: list[ServiceEntry] = []
    apply: list[dict[str, Any]] = []
    delete: list[ObjectToDelete] = []

    @property
    def at_s(self) -> float:
        """Cluster seconds after the start of the round."""
        return _seconds(self.at)


class Story(_StoryRecord, frozen=True):
    """The whole file."""

    title: str = ""
    machines: list[MachineEntry] = []
    node_groups: list[NodeGroupEntry] = []
    queues: list[QueueEntry] = []
    objects: list[dict[str, Any]] = []
    steps: list[StoryStep] = []
    repeat: str = "0s"

    @property
    def repeat_s(self) -> float:
        """Cluster seconds between the starts of two rounds, 0 for a single one."""
        return _seconds(self.repeat)

    @property
    def gates_queues(self) -> bool:
        """Whether a queue of the story, or an object of it, gates its pods."""
        documents = [*self.objects, *(each for step in self.steps for each in step.apply)]
        specs = [each.get("spec") for each in documents if each.get("kind") == "Queue"]
        gated_objects = any(isinstance(spec, dict) and spec.get("admissionGating") for spec in specs)
        return gated_objects or any(queue.admission_gating for queue in self.queues)


def read_story(path: Path) -> Story:
    """The story in a file; raises `ScenarioError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not a text in UTF-8: {error}") from error
    return parse_story(text, str(path))


def parse_story(text: str, source: str = "scenario") -> Story:
    """The story in a YAML text; raises `ScenarioError`, which names `source`."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ScenarioError(f"{source}: not YAML: {' '.join(str(error).split())}") from error
    try:
        story = msgspec.convert(document or {}, Story)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{source}: {error}") from error
    _check(story, source)
    return story


def _check(story: Story, source: str) -> None:
    durations = [("repeat", story.repeat)]
    for at, step in enumerate(story.steps):
        durations.append((f"steps[{at}].at", step.at))
        for number, job in enumerate(step.jobs):
            where = f"steps[{at}].jobs[{number}]"
            durations += [(f"{where}.runs", part) for part in job.runs.split("..", 1)]
            if job.pods < 1:
                raise ScenarioError(f"{source}: {where}.pods: expected at least 1, not {job.pods}")
            if job.minimum is not None and not 0 <= job.minimum <= job.pods:
                raise ScenarioError(f"{source}: {where}.minimum: expected 0 to {job.pods}, not {job.minimum}")
        for where, work in _work_entries(at, step):
            if sum((work.gpus > 0, work.fraction > 0, work.gpu_memory > 0)) > 1:
                raise ScenarioError(f"{source}: {where}: name one of gpus, fraction and gpuMemory, not several")
            if not 0 <= work.fraction < 1:
                raise ScenarioError(f"{source}: {where}.fraction: expected less than 1, not {work.fraction}")
    _check_resources(story, source)
    _check_node_groups(story, source)
    for where, text in durations:
        try:
            parse_duration(text)
        except DurationError as error:
            raise ScenarioError(f"{source}: {where}: {error}") from error
    for number, machines in enumerate(story.machines):
        if machines.count < 1 or machines.gpus < 0:
            raise ScenarioError(f"{source}: machines[{number}]: count must be at least 1 and gpus at least 0")
    _check_queues(story, source)


def _check_resources(story: Story, source: str) -> None:
    """Names of GPUs are GPUs, and those of shares can be shared."""
    entries: list[tuple[str, MachineEntry | WorkEntry]] = [
        *((f"machines[{number}]", machine) for number, machine in enumerate(story.machines)),
        *(
            (f"nodeGroups[{row}].machines[{number}]", machine)
            for row, group in enumerate(story.node_groups)
            for number, machine in enumerate(group.machines)
        ),
        *(each for at, step in enumerate(story.steps) for each in _work_entries(at, step)),
    ]
    for where, entry in entries:
        if not is_gpu(entry.gpu_resource):
            text = f"expected a resource of GPUs, such as {names.AMD_GPU}, not {entry.gpu_resource!r}"
            raise ScenarioError(f"{source}: {where}.gpuResource: {text}")
        shares = isinstance(entry, WorkEntry) and (entry.fraction > 0 or entry.gpu_memory > 0)
        if shares and not is_shareable(entry.gpu_resource):
            text = f"{entry.gpu_resource} cannot be shared, only {names.NVIDIA_GPU}"
            raise ScenarioError(f"{source}: {where}: {text}; ask for whole GPUs with `gpus`")


def _check_node_groups(story: Story, source: str) -> None:
    """What no autoscaler could be asked for."""
    seen: set[str] = set()
    for row, group in enumerate(story.node_groups):
        where = f"{source}: nodeGroups[{row}]"
        if group.name in seen:
            raise ScenarioError(f"{where}.name: there are two groups {group.name!r}; give one another name")
        seen.add(group.name)
        if group.provisioner not in PROVISIONERS:
            listed = " or ".join(PROVISIONERS)
            raise ScenarioError(f"{where}.provisioner: expected {listed}, not {group.provisioner!r}")
        if not 0 <= group.min <= group.max:
            raise ScenarioError(f"{where}: expected 0 <= min <= max, not min {group.min} and max {group.max}")
        if not group.machines or any(machine.count != 1 for machine in group.machines):
            raise ScenarioError(f"{where}.machines: expected kinds of machines without count; max says how many come")
        if group.provisioner == CLUSTER_AUTOSCALER and len(group.machines) > 1:
            text = f"a group of {CLUSTER_AUTOSCALER} has one kind of machine, not {len(group.machines)}"
            raise ScenarioError(f"{where}.machines: {text}; make several groups, or take {KARPENTER}")
        for field in ("boot", "idle"):
            try:
                parse_duration(getattr(group, field))
            except DurationError as error:
                raise ScenarioError(f"{where}.{field}: {error}") from error


def _check_queues(story: Story, source: str) -> None:
    """A job in a queue that does not exist would wait until the end of the story."""
    queue_names = {names.DEFAULT_PARENT_QUEUE, names.DEFAULT_QUEUE, *(entry.name for entry in story.queues)}
    for document in (*story.objects, *(each for step in story.steps for each in step.apply)):
        if document.get("kind") == "Queue" and isinstance(document.get("metadata"), dict):
            queue_names.add(str(document["metadata"].get("name", "")))
    referenced_queues = [
        (f"queues[{number}].parent", entry.parent) for number, entry in enumerate(story.queues) if entry.parent
    ]
    for at, step in enumerate(story.steps):
        referenced_queues += [(f"{where}.queue", work.queue) for where, work in _work_entries(at, step)]
    for where, queue in referenced_queues:
        if queue not in queue_names:
            listed = ", ".join(sorted(queue_names))
            raise ScenarioError(
                f"{source}: {where}: there is no queue {queue!r}; known are {listed}{did_you_mean(queue, queue_names)}"
            )


def _work_entries(at: int, step: StoryStep) -> list[tuple[str, WorkEntry]]:
    return [
        *((f"steps[{at}].jobs[{number}]", job) for number, job in enumerate(step.jobs)),
        *((f"steps[{at}].services[{number}]", service) for number, service in enumerate(step.services)),
    ]


def _seconds(text: str) -> float:
    return parse_duration(text) / _NS


def machine_kind(entry: MachineEntry) -> MachineKind:
    """The entry as the simulator's type."""
    levels = []
    if entry.per_rack:
        if entry.racks_per_zone:
            levels.append(
                TopologyLevelLabels(names.ZONE_LABEL, entry.per_rack * entry.racks_per_zone, f"{entry.name}-zone")
            )
        levels.append(TopologyLevelLabels(RACK_LABEL, entry.per_rack, f"{entry.name}-rack"))
    return MachineKind(
        count=entry.count,
        name=f"{entry.name}-{{}}" if entry.count > 1 else entry.name,
        gpus=entry.gpus,
        gpu_resource=entry.gpu_resource,
        gpu_product=entry.model,
        gpu_memory_mib=entry.memory_mib,
        cpu=entry.cpu,
        memory=entry.memory,
        labels=entry.labels,
        levels=levels,
        taints=entry.taints,
    )


def node_group(entry: NodeGroupEntry) -> NodeGroup:
    """The entry as the autoscaler's type."""
    return NodeGroup(
        name=entry.name,
        machines=[machine_kind(each) for each in entry.machines],
        provisioner=PROVISIONERS[entry.provisioner],
        least=entry.min,
        most=entry.max,
        boot_s=_seconds(entry.boot),
        idle_s=_seconds(entry.idle),
    )


def queue_object(entry: QueueEntry) -> dict[str, Any]:
    """The Queue."""
    spec: dict[str, Any] = {
        "resources": {
            name: {"quota": share.quota, "limit": share.limit, "overQuotaWeight": share.weight}
            for name, share in (("gpu", entry.gpu), ("cpu", entry.cpu), ("memory", entry.memory))
        }
    }
    if entry.parent:
        spec["parentQueue"] = entry.parent
    if entry.display_name:
        spec["displayName"] = entry.display_name
    if entry.priority is not None:
        spec["priority"] = entry.priority
    if entry.admission_gating:
        spec["admissionGating"] = True
    return {
        "apiVersion": f"{names.SCHEDULING_GROUP}/v2",
        "kind": "Queue",
        "metadata": {"name": entry.name},
        "spec": spec,
    }


def step_objects(step: StoryStep) -> list[dict[str, Any]]:
    """What a step submits, in order."""
    return [
        *(job_object(job) for job in step.jobs),
        *(service_object(service) for service in step.services),
        *step.apply,
    ]


def job_object(entry: JobEntry) -> dict[str, Any]:
    """The batch Job of a training job."""
    minimum = entry.pods if entry.minimum is None else entry.minimum
    seconds = "..".join(f"{_seconds(part):g}" for part in entry.runs.split("..", 1))
    template = _template(entry, {names.RUN_SECONDS_ANNOTATION: seconds}, restart="Never")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(entry, {names.BATCH_MIN_MEMBER_ANNOTATION: str(minimum)}),
        "spec": {
            "parallelism": entry.pods,
            "completions": entry.pods,
            "backoffLimit": 100,
            "template": template,
        },
    }


def service_object(entry: ServiceEntry) -> dict[str, Any]:
    """The Deployment of an inference service."""
    template = _template(entry, {}, restart="Always")
    template["metadata"]["labels"]["app"] = entry.name
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(entry, {}),
        "spec": {
            "replicas": entry.replicas,
            "selector": {"matchLabels": {"app": entry.name}},
            "template": template,
        },
    }


def _metadata(entry: WorkEntry, annotations: Mapping[str, str]) -> dict[str, Any]:
    labels = {names.QUEUE_LABEL: entry.queue}
    if entry.priority:
        labels[names.PRIORITY_CLASS_LABEL] = entry.priority
    return {
        "name": entry.name,
        "namespace": entry.namespace,
        "labels": labels,
        "annotations": {**entry.annotations, **annotations},
    }


def _template(entry: WorkEntry, annotations: dict[str, str], restart: str) -> dict[str, Any]:
    requests = {"cpu": entry.cpu, "memory": entry.memory}
    resources: dict[str, Any] = {"requests": requests}
    if entry.gpus:
        resources["limits"] = {entry.gpu_resource: entry.gpus}
    if entry.fraction:
        annotations[names.GPU_FRACTION_ANNOTATION] = f"{entry.fraction:g}"
    if entry.gpu_memory:
        annotations[names.GPU_MEMORY_ANNOTATION] = str(entry.gpu_memory)
    spec: dict[str, Any] = {
        "schedulerName": names.SCHEDULER_NAME,
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 2,
        "containers": [{"name": "main", "image": "simulated", "resources": resources}],
    }
    if entry.node_selector:
        spec["nodeSelector"] = entry.node_selector
    if entry.tolerations:
        spec["tolerations"] = entry.tolerations
    return {"metadata": {"labels": {names.QUEUE_LABEL: entry.queue}, "annotations": annotations}, "spec": spec}
