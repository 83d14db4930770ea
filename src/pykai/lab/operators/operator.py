"""The loop of every operator: look at a workload, plan the next step, carry it out.

In: changes of the workload, of its pods and of other objects that it controls. Out: writes of the step, each only if it
changes something, and an event for each condition that becomes true. What plans cannot run (`RefusedWorkload`) gets an
event, and nothing else happens until it changes (sim:operators-bounds).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pykai.api import names
from pykai.api.keys import object_key
from pykai.api.unstructured import JsonMapping
from pykai.api.workloads import MachinePod
from pykai.kube.errors import ApiError
from pykai.kube.resources import PODS, Resource
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change, Store
from pykai.lab.controllers.controller import (
    AssumingWriter,
    Controller,
    controlled_by,
    controller_of,
    metadata_of,
)
from pykai.lab.controllers.pods import CONTROLLER, pod_store, pod_writer
from pykai.lab.operators.steps import (
    Creation,
    ObservedWorkload,
    OperatedKind,
    RefusedWorkload,
    Step,
    conditions_of,
    holding,
    merge_difference,
)

_LOG = logging.getLogger(__name__)
#: Objects created per step; the rest follows at once.
_MAX_CREATES_PER_STEP: Final = 500
#: Cluster seconds until a refused object is created again.
_REFUSED_RETRY_S: Final = 10.0


class _Operator:
    """Runs the plans of one kind."""

    def __init__(self, runtime: Runtime, kind: OperatedKind[Any]) -> None:
        self._kind = kind
        caches = runtime.caches
        self._workloads: Store[Any] = caches.store(kind.resource, kind.into, optional=True)
        self._pods = pod_store(runtime)
        self._owned: dict[Resource, Store[Any]] = {}
        self._writers: dict[Resource, AssumingWriter[Any]] = {PODS: pod_writer(runtime)}
        for resource, into in kind.owns:
            store = self._owned[resource] = caches.store(resource, into, optional=True)
            store.index(CONTROLLER, controlled_by)
            self._writers[resource] = AssumingWriter(runtime.client, store, into, runtime.clock)
        self._read: dict[Resource, Store[Any]] = {
            resource: caches.store(resource, into, optional=True) for resource, into in kind.reads
        }
        #: key of a workload -> pods that have gone since its last step
        self._vanished: dict[str, list[MachinePod]] = {}
        self._write = AssumingWriter(runtime.client, self._workloads, kind.into, runtime.clock)
        self.controller = Controller(
            f"{kind.resource.kind.lower()}-operator",
            runtime,
            self._reconcile,
            self._workloads,
            owns=self._owned.values(),
            watches=[(self._pods, self._on_pod)],
            reads=self._read.values(),
        )

    def _on_pod(self, change: Change[MachinePod]) -> None:
        pod = change.new or change.old
        owner = controller_of(pod) if pod is not None else None
        if pod is None or owner is None:
            return
        if owner.kind == PODS.kind:
            # Executors belong to their driver, workers to their leader; the workload is one higher.
            above = self._pods.get(object_key(pod.metadata.namespace, owner.name))
            owner = controller_of(above) if above is not None else None
        if owner is not None and owner.kind == self._kind.resource.kind:
            key = object_key(pod.metadata.namespace, owner.name)
            if change.new is None and key in self._workloads:
                # A pod may go between two steps, so none would see it in deletion.
                self._vanished.setdefault(key, []).append(pod)
            self.controller.enqueue_soon(key)

    async def _reconcile(self, key: str) -> float | None:
        workload = self._workloads.get(key)
        vanished = self._vanished.pop(key, ())
        if workload is None or metadata_of(workload).deletion_timestamp is not None:
            return None
        try:
            step = self._kind.plan(workload, self._observe(workload, vanished))
        except RefusedWorkload as refusal:
            self._refuse(workload, str(refusal))
            return None
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            # Templates and statuses are not checked by a schema: a tenant may write anything there.
            _LOG.warning("%s %s cannot be planned", self._kind.resource.kind, key, exc_info=error)
            self._refuse(workload, f"a template or the status has an unexpected form: {error}")
            return None
        return await self._carry_out(workload, step)

    def _refuse(self, workload: Any, text: str) -> None:
        self.controller.event(workload, "Warning", names.EVENT_INVALID_WORKLOAD, text)

    def _observe(self, workload: Any, vanished: Sequence[MachinePod]) -> ObservedWorkload:
        uid = workload.metadata.uid
        pods: list[MachinePod] = []
        for pod in self._pods.by_index(CONTROLLER, uid):
            pods += (pod, *self._pods.by_index(CONTROLLER, pod.metadata.uid))
        owned = {resource: tuple(store.by_index(CONTROLLER, uid)) for resource, store in self._owned.items()}
        now, now_s = self.controller.now(), self.controller.now_s()
        return ObservedWorkload(now, now_s, pods, vanished, owned, lambda resource, key: self._read[resource].get(key))

    async def _carry_out(self, workload: Any, step: Step) -> float | None:
        # A status first: pods of some kinds are grouped by what it says.
        await self._update_status(workload, step.status)
        for deletion in step.delete:
            if deletion.obj is workload:
                await self._write.delete(workload)
                return None
            await self._writers[deletion.resource].delete(deletion.obj)
        for patching in step.patch:
            await self._writers[patching.resource].patch(patching.obj, patching.patch)
        if not await self._create(workload, step.create[:_MAX_CREATES_PER_STEP]):
            return _REFUSED_RETRY_S
        return 0.0 if len(step.create) > _MAX_CREATES_PER_STEP else step.wait_s

    async def _create(self, workload: Any, creations: Iterable[Creation]) -> bool:
        for resource, document in creations:
            try:
                await self._writers[resource].create(document)
            except ApiError as error:
                name = document["metadata"]["name"]
                self.controller.report_failed_create(workload, error, f"{resource.kind} {name}: {error}")
                return False
        return True

    async def _update_status(self, workload: Any, status: JsonMapping) -> None:
        current = self._write.latest(workload)
        if current is None:
            return
        patch = merge_difference(current.status, status)
        if not patch:
            return
        await self._write.patch_status(current, patch)
        before = conditions_of(current.status)
        for each in conditions_of(status):
            if each.get("status") == "True" and holding(before, each["type"]) is None:
                event_type = "Warning" if each["type"] == "Failed" else "Normal"
                self.controller.event(current, event_type, each["reason"], each["message"])


def operator(kind: OperatedKind[Any]) -> Callable[[Runtime], Service]:
    """The operator of a kind, as a function that makes its service."""
    return lambda runtime: _Operator(runtime, kind).controller
