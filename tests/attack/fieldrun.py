"""Carries out the rows of `fields` in one cluster, and says what each of them did to others.

Others own a closed queue and hold all GPUs of one machine, by pods of a PodGroup, a Job, Spark applications, pod groups
of Kueue and pods without any; one more group of theirs lacks a pod.  The tenant's queue has no quota of GPUs, so it may
use what is free and evict no pod of others.

    failures = await run_rows(ROWS, guarded=True)

With `guarded` the tenant has the role `edit`, the admission policies are installed, and webhooks protect the quota of
others from what runs (`admission`).  Without, it may write anything in its namespace, status included, and there are
neither policies nor webhooks: the services are alone with what it writes.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pykai.api import names
from pykai.api.core import PriorityClass
from pykai.api.crds import PRESERVED_UNKNOWN
from pykai.api.decode import decode_as
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import PodGroup
from pykai.core.model.protected import protection_of
from pykai.core.report.decisions import Plan
from pykai.kube import resources
from pykai.lab.operators.definitions import CustomKind
from pykai.lab.operators.families import FAMILIES, definitions
from pykai.lab.story import MachineEntry, QueueEntry, ResourceShare
from pykai.podgrouper.options import PodGrouperOptions
from tests.attack.admission import protecting_admission
from tests.attack.fieldobjects import (
    ALONE,
    CRITICAL,
    FOREVER_S,
    FREE,
    FULL,
    OTHER_POOL,
    POOLED_QUEUE,
    THEIR_JOB,
    THEIR_KUEUES,
    THEIR_SPARKS,
    THEIRS,
    TOPOLOGY,
    UNFINISHED,
    UNFINISHED_GROUPS,
    Change,
    Row,
    Spot,
)
from tests.attack.fields import ROWS
from tests.attack.target import (
    HONEST,
    PATIENCE_S,
    POLICIES,
    TENANT,
    AttackOutcome,
    Document,
    Target,
    document,
    pod,
    target,
)

_THEIR_GPUS = 10
#: cluster seconds; longer than a gang may be incomplete
_AFTERWARDS_S = 90.0
_SPEED = 30.0
_CLASSES = {CRITICAL: PriorityClass(metadata=ObjectMeta(name=CRITICAL), value=1_000_000_000)}
_RBAC = "rbac.authorization.k8s.io"

Failures = dict[str, list[str]]


def _rights() -> Iterator[Document]:
    """What the tenant may write beside `edit`: workloads of other projects, or everything in its namespace."""
    groups = sorted({kind.resource.group for family in FAMILIES.values() for kind in family.kinds})
    rule = {"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}
    if not POLICIES.get():
        rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    meta = {"name": "workloads", "namespace": TENANT}
    yield {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": meta, "rules": [rule]}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "workloads"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": TENANT}],
    }


@asynccontextmanager
async def shared_cluster() -> AsyncIterator[Target]:
    """The cluster that all rows share, without the work of others."""
    machines = [
        MachineEntry(name=FREE, gpus=120, model="NVIDIA-H100", cpu="500", labels={"machine": FREE}),
        MachineEntry(name=FULL, gpus=_THEIR_GPUS, model="NVIDIA-H100", labels={"machine": FULL}),
    ]
    queues = [
        QueueEntry(name=TENANT, parent="root", gpu=ResourceShare(quota=0)),
        QueueEntry(name=POOLED_QUEUE, parent="root", gpu=ResourceShare(quota=-1)),
    ]
    objects = [
        document("PriorityClass", CRITICAL, value=_CLASSES[CRITICAL].value),
        document("Topology", TOPOLOGY, spec={"levels": [{"nodeLabel": names.HOSTNAME_LABEL}]}),
    ]
    installed = [
        *definitions(list(FAMILIES.values())),
        CustomKind(resources.KARTAS, PRESERVED_UNKNOWN).definition(),
        *_rights(),
    ]
    options = PodGrouperOptions(workload_api=True, kueue_pod_groups=True, kueue_priority_classes=True)
    async with target(
        machines, queues=queues, speed=_SPEED, objects=objects, installed=installed, podgrouper=options
    ) as cluster:
        for name in (HONEST, POOLED_QUEUE):
            allowed = {names.ALLOWED_NAMESPACES_ANNOTATION: HONEST}
            await cluster.admin.patch("Queue", name, {"metadata": {"annotations": allowed}}, "")
        if not POLICIES.get():
            yield cluster
            return
        async with protecting_admission(cluster.cluster.server):
            yield cluster


def _their_pod(name: str, machine: str = FULL, **fields: Any) -> Document:
    return pod(name, namespace=HONEST, queue=HONEST, gpus=1, nodeSelector={"machine": machine}, **fields)


def _their_group(name: str, **spec: Any) -> Document:
    return document("PodGroup", name, HONEST, spec={"queue": HONEST, **spec})


def _their_work() -> Iterator[Document]:
    """What others run, and a gang of theirs that lacks a pod."""
    leaves = [{"name": "leaders", "minMember": 1}, {"name": "workers", "minMember": 1}]
    yield _their_group(THEIRS, minSubGroup=2, subGroups=leaves)
    for each in ("leaders", "workers"):
        yield _their_pod(f"{THEIRS}-{each}", group=THEIRS, labels={names.SUBGROUP_LABEL: each})
    template = _their_pod("x")
    yield document(
        "Job",
        THEIR_JOB,
        HONEST,
        labels={names.QUEUE_LABEL: HONEST},
        annotations={names.BATCH_MIN_MEMBER_ANNOTATION: "2"},
        spec={
            "parallelism": 2,
            "completions": 2,
            "template": {
                "metadata": {
                    "labels": template["metadata"]["labels"],
                    "annotations": {names.RUN_SECONDS_ANNOTATION: FOREVER_S},
                },
                "spec": {**template["spec"], "restartPolicy": "Never"},
            },
        },
    )
    for number, name in enumerate(THEIR_SPARKS.values()):
        spark = {names.SPARK_APP_NAME_LABEL: "app", names.SPARK_APP_SELECTOR_LABEL: name}
        yield _their_pod(f"spark-{number}", labels={**spark, names.SPARK_ROLE_LABEL: "driver"})
    for number, name in enumerate(THEIR_KUEUES.values()):
        kueue = {names.KUEUE_POD_GROUP_LABEL: name}
        one = {names.KUEUE_POD_GROUP_COUNT_ANNOTATION: "1"}
        yield _their_pod(f"kueue-{number}", labels=kueue, annotations=one)
    yield _their_pod("plain-0")
    yield _their_pod("plain-1")
    for name in UNFINISHED_GROUPS.values():
        yield _their_group(name, minMember=2)
    yield _their_pod(f"{UNFINISHED}-0", FREE, group=UNFINISHED)
    for api_version, kind in (
        ("scheduler.grove.io/v1alpha1", "PodGang"),
        ("serving.knative.dev/v1", "Revision"),
    ):
        yield {"apiVersion": api_version, "kind": kind, "metadata": {"name": THEIRS, "namespace": HONEST}, "spec": {}}


def _is_work(name: str) -> bool:
    """Probes come and go."""
    return "probe-" not in name


class Others:
    """What others have, watched while the tenant is at work."""

    def __init__(self, cluster: Target) -> None:
        self._cluster = cluster
        self.harm: list[str] = []
        #: names of the tenant's pods whose group the scheduler does not know
        self.orphans: set[str] = set()
        #: queue -> GPUs that it is charged
        self.charges: dict[str, float] = {}
        self._most_asked = _THEIR_GPUS + 1
        self._known: dict[str, Document] = {}
        cluster.cluster.scheduler.loop.plan_listeners.append(self._on_plan)

    async def start(self) -> None:
        """Their work runs."""
        await self._cluster.admin.create(*_their_work())
        assert not self._cluster.admin.refusals, self._cluster.admin.refusals

        def run(_: object) -> bool:
            return len([each for each in self._cluster.on_nodes(HONEST) if _is_work(each.metadata.name)]) == _THEIR_GPUS

        assert await self._cluster.until(run), "the work of others does not start"
        await self._settled()
        self._known = await self._state()

    async def _settled(self) -> None:
        """The services have written the status of all groups."""
        for _ in range(100):
            groups = await self._cluster.admin.client.list_raw(resources.POD_GROUPS, namespace=HONEST)
            held = [each.get("status", {}).get("resourcesStatus", {}).get("allocated", {}) for each in groups]
            if sum(int(each.get(names.NVIDIA_GPU, 0)) for each in held) == _THEIR_GPUS:
                return
            await asyncio.sleep(0.05)

    def _on_plan(self, plan: Plan) -> None:
        self.orphans = {each.pod for each in plan.orphans if each.namespace == TENANT}
        self.charges = {each.name: each.allocated[2] for each in plan.queues}
        for eviction in plan.evictions:
            if eviction.namespace == HONEST:
                self._note(f"{eviction.pod} of others was evicted ({eviction.action}) for {eviction.preemptor}")
        for queue in plan.queues:
            bound = {HONEST: (self._most_asked - 1, self._most_asked), POOLED_QUEUE: (0, 0)}.get(queue.name)
            if bound is not None and (queue.allocated[2] > bound[0] or queue.request[2] > bound[1]):
                self._note(f"queue {queue.name} is charged {queue.allocated[2]:g} GPUs, asked {queue.request[2]:g}")

    def _note(self, text: str) -> None:
        if text not in self.harm:
            self.harm.append(text)

    async def _state(self) -> dict[str, Document]:
        """Key -> what must not change of their pods and groups; of a group also the pods that the scheduler counts."""
        client = self._cluster.admin.client
        found: dict[str, Document] = {}
        for each in await client.list_raw(resources.PODS, namespace=HONEST):
            meta = each["metadata"]
            if not _is_work(meta["name"]):
                continue
            found[f"pod {meta['name']}"] = {
                "uid": meta["uid"],
                "node": each["spec"].get("nodeName"),
                "deleted": meta.get("deletionTimestamp"),
                "group": meta.get("annotations", {}).get(names.POD_GROUP_ANNOTATION),
                "phase": each["status"].get("phase"),
            }
        entries = self._cluster.cluster.scheduler.loop.intake.tables.groups
        for each in await client.list_raw(resources.POD_GROUPS, namespace=HONEST):
            meta = each["metadata"]
            if not _is_work(meta["name"]):
                continue
            entry = entries[f"{HONEST}/{meta['name']}"]
            found[f"group {meta['name']}"] = {
                "uid": meta["uid"],
                "labels": meta.get("labels"),
                "annotations": meta.get("annotations"),
                "owners": meta.get("ownerReferences"),
                "spec": each["spec"],
                "held": each.get("status", {}).get("resourcesStatus"),
                "members": sorted(entry.tasks),
            }
        return found

    async def end(self) -> list[str]:
        """What was done to them; their unfinished gang must still start once it is complete."""
        state = await self._state()
        for key in sorted(self._known.keys() | state.keys()):
            before, after = self._known.get(key, {}), state.get(key, {})
            self.harm += [
                f"{key} of others: {field} was {before.get(field)!r} and is {after.get(field)!r}"
                for field in sorted(before.keys() | after.keys())
                if before.get(field) != after.get(field)
            ]
        self._most_asked = _THEIR_GPUS + 3
        await self._cluster.admin.create(_their_pod(f"{UNFINISHED}-1", FREE, group=UNFINISHED))
        if not await self._cluster.until(lambda _: len(self._cluster.on_nodes(HONEST, UNFINISHED)) == 2):
            self.harm.append(f"group {UNFINISHED} of others does not start")
        queue = await self._cluster.admin.client.get_raw(resources.QUEUES, HONEST)
        held = queue.get("status", {}).get("allocated", {}).get(names.NVIDIA_GPU, "0")
        if int(held) > _THEIR_GPUS + 2:
            self.harm.append(f"the status of queue {HONEST} says {held} GPUs")
        return self.harm


class FieldRun:
    """All rows in a cluster."""

    def __init__(self, cluster: Target, rows: Sequence[Row]) -> None:
        self._cluster = cluster
        self._guarded = POLICIES.get()
        self._rows = rows
        self.failures: Failures = defaultdict(list)
        self._refusals: dict[str, list[str]] = defaultdict(list)
        self._uids: dict[tuple[str, str], str] = {}
        self._others = Others(cluster)

    async def run(self) -> Failures:
        """Carry out all rows; what went wrong, by the title of the row, "" for what no row can be blamed for."""
        await self._others.start()
        made = await self._cluster.admin.client.get_raw(resources.JOBS, THEIR_JOB, HONEST)
        self._uids["Job", THEIR_JOB] = made["metadata"]["uid"]
        spots = [(row, spot) for number, row in enumerate(self._rows) for spot in spots_of(number)]
        for row, spot in spots:
            await self._create(row, spot)
        await self._until_ended(spots, first=True)
        for row, spot in spots:
            for change in row.later(spot) if row.later else ():
                await self._change(spot, change)
        await self._until_ended(spots)
        await self._cluster.advance(_AFTERWARDS_S)
        await self._judge(spots)
        held = len(self._cluster.on_nodes(TENANT))
        charged = {name: gpus for name, gpus in self._others.charges.items() if name in (TENANT, names.DEFAULT_QUEUE)}
        if sum(charged.values()) != held:
            self.failures[""].append(f"the tenant holds {held} GPUs, its queues are charged {charged}")
        for harm in await self._others.end():
            self.failures[self._blamed(harm)].append(harm)
        return dict(self.failures)

    async def _create(self, row: Row, spot: Spot) -> None:
        for each in row.objects(spot):
            if isinstance(each, Change):
                await self._change(spot, each)
                continue
            for reference in each["metadata"].get("ownerReferences", ()):
                reference.setdefault("uid", self._uids.get((reference["kind"], reference["name"]), "none"))
            first = len(self._cluster.tenant.refusals)
            for made in await self._cluster.tenant.create(each):
                self._uids[made["kind"], made["metadata"]["name"]] = made["metadata"]["uid"]
            self._refusals[spot.name] += self._cluster.tenant.refusals[first:]

    async def _change(self, spot: Spot, change: Change) -> None:
        first = len(self._cluster.tenant.refusals)
        name = change.name.format(uid=self._uids.get(("Pod", spot.name), ""))
        await self._cluster.tenant.patch(change.kind, name, change.patch, TENANT, change.subresource)
        self._refusals[spot.name] += self._cluster.tenant.refusals[first:]

    async def _until_ended(self, spots: Sequence[tuple[Row, Spot]], *, first: bool = False) -> None:
        """Wait until all pods that can run do, and all others have a reason."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            reasons = await self._reasons()
            if not any(self._problems(row, spot, reasons, first=first) for row, spot in spots):
                return
            await asyncio.sleep(0.2)

    def _is_refused(self, row: Row, spot: Spot) -> bool:
        if row.refused == "running" and spot.machine == FULL:
            # No pod has a node there.
            return False
        return row.refused == "always" or (bool(row.refused) and self._guarded)

    def _problems(self, row: Row, spot: Spot, reasons: str, *, first: bool = False) -> list[str]:
        """What is not as the row says; empty if all is well."""
        refused = self._refusals[spot.name]
        if self._is_refused(row, spot) and not (first and row.later):
            return []
        if refused and not row.may_run:
            return [f"the API server refused it: {refused[0]}"]
        pods = [each for each in self._cluster.of(TENANT) if _is_of(each.metadata.name, spot)]
        placed = sorted(key for key in self._cluster.bound if _is_of(key.partition("/")[2], spot))
        if not pods:
            return ["it has no pods"]
        if row.may_run and spot.machine == FREE:
            return []
        if placed and (row.waits or spot.machine == FULL):
            return [f"{' '.join(placed)} got a node"]
        told = reasons_of(reasons, spot)
        expected = (first and row.waits_first) or row.waits
        if expected and expected not in told:
            return [f"no reason {expected!r} among {told!r}"]
        if not row.waits and spot.machine == FREE and len(placed) < len(pods):
            return [f"{len(placed)} of {len(pods)} pods run: {told!r}"]
        return []

    async def _judge(self, spots: Sequence[tuple[Row, Spot]]) -> None:
        reasons = await self._reasons()
        groups = await self._cluster.admin.client.list_raw(resources.POD_GROUPS, namespace=TENANT)
        for row, spot in spots:
            for group in groups if row.kept_off else ():
                meta = group["metadata"]
                if spot.name in meta["name"] and meta.get("annotations", {}).get(row.key) == row.kept_off:
                    self.failures[title(row)].append(f"PodGroup {meta['name']} has {row.kept_off}")
            refused = self._refusals[spot.name]
            if self._is_refused(row, spot) and not refused:
                self.failures[title(row)].append(f"{spot.name}: the API server did not refuse it")
            self.failures[title(row)] += [f"{spot.name}: {each}" for each in self._problems(row, spot, reasons)]
            if not row.protects or self._guarded:
                self.failures[title(row)] += self._protected(spot, groups)
            if not self.failures[title(row)]:
                del self.failures[title(row)]

    def _protected(self, spot: Spot, groups: Sequence[Document]) -> list[str]:
        """Pods of a spot that hold a GPU, over quota, which no other queue can take back."""
        running = [each for each in self._cluster.on_nodes(TENANT) if _is_of(each.metadata.name, spot)]
        names_of_groups = {each.metadata.annotations.get(names.POD_GROUP_ANNOTATION) for each in running}
        return [
            f"the pods of PodGroup {each['metadata']['name']} run over quota and cannot be evicted"
            for each in groups
            if each["metadata"]["name"] in names_of_groups
            and protection_of(decode_as(PodGroup, each), _CLASSES) != names.PREEMPTIBLE
        ]

    async def _reasons(self) -> str:
        """One line for each thing that services say about objects of the tenant."""
        client = self._cluster.admin.client
        lines = [f"{each} {ALONE}" for each in self._others.orphans]
        entries = self._cluster.cluster.scheduler.loop.intake.tables.groups
        lines += [f"{key.partition('/')[2]} {OTHER_POOL}" for key, each in entries.items() if each.in_other_shard]
        for event in await client.list_raw(resources.EVENTS, namespace=TENANT):
            lines.append(f"{event['involvedObject']['name']} {event['reason']} {event['message']}")
        for group in await client.list_raw(resources.POD_GROUPS, namespace=TENANT):
            for condition in group.get("status", {}).get("schedulingConditions", ()):
                told = "; ".join(f"{each['reason']} {each['message']}" for each in condition.get("reasons", ()))
                lines.append(f"{group['metadata']['name']} {told}")
        return "\n".join(each.replace("\n", " ") for each in lines)

    def _blamed(self, text: str) -> str:
        for number, row in enumerate(self._rows):
            if any(spot.name in text for spot in spots_of(number)):
                return title(row)
        return ""


def spots_of(number: int) -> tuple[Spot, Spot]:
    """Where a row is carried out."""
    return Spot(f"r{number:03}-{FREE}", FREE), Spot(f"r{number:03}-{FULL}", FULL)


def _is_of(name: str, spot: Spot) -> bool:
    return name.startswith(spot.name)


def reasons_of(reasons: str, spot: Spot) -> str:
    """The lines about objects of a spot."""
    return "\n".join(sorted({each for each in reasons.splitlines() if spot.name in each.partition(" ")[0]}))


def title(row: Row) -> str:
    """How a row is called in reports."""
    return f"{row.key} on {row.where}: {row.tried}"


async def every_field(cluster: Target) -> AttackOutcome:
    """Every label, annotation and field of workloads, groups and BindRequests, one by one (`attack/fields.py`)."""
    failures = await FieldRun(cluster, ROWS).run()
    broken = "; ".join(f"{row or 'all rows'}: {' '.join(texts)}" for row, texts in failures.items())
    return AttackOutcome(not failures, f"{len(ROWS)} rows did nothing to others" if not failures else broken)


async def run_rows(rows: Sequence[Row], *, guarded: bool) -> Failures:
    """Carry out rows in a cluster of their own."""
    POLICIES.set(guarded)
    async with shared_cluster() as cluster:
        return await FieldRun(cluster, rows).run()
