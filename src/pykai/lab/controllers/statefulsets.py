"""StatefulSets: pods `<name>-0`, `<name>-1`, ..., each with its own volumes, which outlive it.

With OrderedReady a pod is created when all before it are ready, and deleted when all after it are gone; with Parallel
at once. A finished pod is deleted and created again under its name. Templates are kept as ControllerRevisions; a
rolling update replaces one pod after the other from the highest ordinal down to `partition`, each when the last one is
ready.

Names are fixed, so nothing can be created twice. Not done: `maxUnavailable` above one, retention policies of claims,
`ordinals.start`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykai.api import names
from pykai.api.keys import object_key
from pykai.api.storage import PersistentVolumeClaim
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import ControllerRevision, MachinePod, StatefulSet
from pykai.kube.errors import ApiError
from pykai.kube.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, STATEFUL_SETS
from pykai.kube.runtime import Runtime, Service
from pykai.lab.controllers.controller import (
    AssumingWriter,
    Controller,
    changed_fields,
    controlled_by,
    owner_reference,
    replicas_of,
    template_hash,
)
from pykai.lab.controllers.pods import (
    CONTROLLER,
    is_finished,
    is_ready,
    is_terminating,
    pod_from_template,
    pod_store,
    pod_writer,
)
from pykai.lab.controllers.replicasets import seconds_until_available

DEFAULT_HISTORY = 10


class StatefulSets:
    """The StatefulSet controller."""

    def __init__(self, runtime: Runtime) -> None:
        self._sets = runtime.caches.store(STATEFUL_SETS, StatefulSet)
        self._revisions = runtime.caches.store(CONTROLLER_REVISIONS, ControllerRevision)
        self._revisions.index(CONTROLLER, controlled_by)
        self._volumes = runtime.caches.store(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim, optional=True)
        self._pods = pod_store(runtime)
        self._write = AssumingWriter(runtime.client, self._sets, StatefulSet, runtime.clock)
        self._write_pod = pod_writer(runtime)
        self._write_revision = AssumingWriter(runtime.client, self._revisions, ControllerRevision, runtime.clock)
        self._write_volume = AssumingWriter(runtime.client, self._volumes, PersistentVolumeClaim, runtime.clock)
        self.controller = Controller(
            "statefulset-controller",
            runtime,
            self._reconcile,
            self._sets,
            owns=[self._pods],
            reads=[self._revisions, self._volumes],
        )

    async def _reconcile(self, key: str) -> float | None:
        owner = self._sets.get(key)
        if owner is None or owner.metadata.deletion_timestamp is not None:
            return None
        update = await self._revision(owner)
        pods = self._pods_by_ordinal(owner)
        current = owner.status.current_revision or update
        again_s = await self._advance(owner, pods, update)
        await self._delete_old_revisions(owner, {update, current})
        wait_s = await self._update_status(owner, update)
        waits = [wait for wait in (again_s, wait_s) if wait is not None]
        return min(waits) if waits else None

    def _pods_by_ordinal(self, owner: StatefulSet) -> dict[int, MachinePod]:
        pods: dict[int, MachinePod] = {}
        for pod in self._pods.by_index(CONTROLLER, owner.metadata.uid):
            ordinal = pod.metadata.name.removeprefix(f"{owner.metadata.name}-")
            if ordinal.isdigit():
                pods[int(ordinal)] = pod
        return pods

    async def _advance(self, owner: StatefulSet, pods: Mapping[int, MachinePod], update: str) -> float | None:
        """Do what is possible now; the next change of a pod triggers the rest."""
        replicas = replicas_of(owner)
        ordered = owner.spec.pod_management_policy != "Parallel"
        for ordinal in range(replicas):
            pod = pods.get(ordinal)
            if pod is not None and is_finished(pod) and not is_terminating(pod):
                await self._write_pod.delete(pod)
            if pod is None and not await self._create_pod(owner, ordinal, self._revision_for(owner, ordinal, update)):
                return 10.0
            # OrderedReady: a pod starts only when its predecessor is available.
            if ordered and (
                pod is None or is_terminating(pod) or is_finished(pod) or not self._is_available(owner, pod)
            ):
                return None
        for ordinal in sorted((number for number in pods if number >= replicas), reverse=True):
            if not is_terminating(pods[ordinal]):
                await self._write_pod.delete(pods[ordinal])
            if ordered:
                return None
        if owner.spec.update_strategy.type == "OnDelete":
            return None
        for ordinal in range(replicas - 1, self._partition(owner) - 1, -1):
            pod = pods.get(ordinal)
            if pod is None or is_terminating(pod):
                return None
            if pod.metadata.labels.get(names.REVISION_HASH_LABEL) != update:
                await self._write_pod.delete(pod)
                return None
            if not self._is_available(owner, pod):
                return None
        return None

    def _is_available(self, owner: StatefulSet, pod: MachinePod) -> bool:
        return seconds_until_available(pod, owner.spec.min_ready_seconds, self.controller.now_s()) == 0

    def _partition(self, owner: StatefulSet) -> int:
        rolling = owner.spec.update_strategy.rolling_update
        return rolling.partition or 0 if rolling is not None else 0

    def _revision_for(self, owner: StatefulSet, ordinal: int, update: str) -> str:
        """The revision of a pod: below the partition it keeps the current one."""
        return (owner.status.current_revision or update) if ordinal < self._partition(owner) else update

    async def _create_pod(self, owner: StatefulSet, ordinal: int, revision: str) -> bool:
        name = f"{owner.metadata.name}-{ordinal}"
        try:
            for template in owner.spec.volume_claim_templates:
                claim = volume_claim_document(owner, template, ordinal)
                if self._volumes.get(object_key(owner.metadata.namespace, claim["metadata"]["name"])) is None:
                    await self._write_volume.create(claim)
            template = self._template(owner, revision)
            await self._write_pod.create(pod_document(owner, template, name, ordinal, revision))
        except ApiError as error:
            self.controller.report_failed_create(owner, error, f"create Pod {name} failed: {error}")
            return False
        return True

    def _template(self, owner: StatefulSet, revision: str) -> JsonObject:
        kept = self._revisions.get(object_key(owner.metadata.namespace, revision))
        data = kept.data if kept is not None else None
        if isinstance(data, dict) and isinstance(spec := data.get("spec"), dict) and spec.get("template"):
            template: JsonObject = {key: value for key, value in spec["template"].items() if key != "$patch"}
            return template
        return owner.spec.template

    async def _revision(self, owner: StatefulSet) -> str:
        """The name of the revision of the current template, which is created if it is missing."""
        kept = self._revisions.by_index(CONTROLLER, owner.metadata.uid)
        name = f"{owner.metadata.name}-{template_hash(owner.spec.template)}"
        newest = 1 + max((one.revision for one in kept), default=0)
        for one in kept:
            if one.metadata.name == name:
                # A template that comes back gets the newest revision.
                if one.revision < newest - 1:
                    await self._write_revision.patch(one, {"revision": newest})
                return name
        await self._write_revision.create(
            {
                "apiVersion": CONTROLLER_REVISIONS.api_version,
                "kind": CONTROLLER_REVISIONS.kind,
                "metadata": {
                    "name": name,
                    "namespace": owner.metadata.namespace,
                    "labels": {
                        **((owner.spec.template.get("metadata") or {}).get("labels") or {}),
                        names.REVISION_HASH_LABEL: name,
                    },
                    "ownerReferences": [owner_reference(owner, STATEFUL_SETS)],
                },
                "revision": newest,
                "data": {"spec": {"template": {**owner.spec.template, "$patch": "replace"}}},
            }
        )
        return name

    async def _delete_old_revisions(self, owner: StatefulSet, used: set[str]) -> None:
        limit = owner.spec.revision_history_limit
        kept = self._revisions.by_index(CONTROLLER, owner.metadata.uid)
        used = used | {
            pod.metadata.labels.get(names.REVISION_HASH_LABEL, "")
            for pod in self._pods.by_index(CONTROLLER, owner.metadata.uid)
        }
        unused = sorted((one for one in kept if one.metadata.name not in used), key=lambda one: one.revision)
        for one in unused[: max(0, len(unused) - (DEFAULT_HISTORY if limit is None else limit))]:
            await self._write_revision.delete(one)

    async def _update_status(self, owner: StatefulSet, update: str) -> float | None:
        current = self._write.latest(owner)
        if current is None:
            return None
        status, wait_s = status_patch(current, self._pods_by_ordinal(current), update, self.controller.now_s())
        if status:
            await self._write.patch_status(current, status)
        return wait_s


def stateful_sets(runtime: Runtime) -> Service:
    """The StatefulSet controller as a service."""
    return StatefulSets(runtime).controller


def pod_document(owner: StatefulSet, template: JsonObject, name: str, ordinal: int, revision: str) -> JsonObject:
    """The pod of an ordinal."""
    labels = {
        names.STATEFUL_POD_NAME_LABEL: name,
        names.POD_INDEX_LABEL: str(ordinal),
        names.REVISION_HASH_LABEL: revision,
    }
    body = template.get("spec") or {}
    spec: JsonObject = {"hostname": name}
    if owner.spec.service_name:
        spec["subdomain"] = owner.spec.service_name
    if owner.spec.volume_claim_templates:
        own = {
            (claim.get("metadata") or {}).get("name"): volume_claim_document(owner, claim, ordinal)["metadata"]["name"]
            for claim in owner.spec.volume_claim_templates
        }
        others = [volume for volume in body.get("volumes") or [] if volume.get("name") not in own]
        mounted = [{"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in own.items()]
        spec["volumes"] = others + mounted
    return pod_from_template(
        template, name, owner.metadata.namespace, owner_reference(owner, STATEFUL_SETS), labels=labels, spec=spec
    )


def volume_claim_document(owner: StatefulSet, template: JsonObject, ordinal: int) -> JsonObject:
    """The claim of an ordinal; it outlives the pod and the set."""
    metadata = template.get("metadata") or {}
    selector = owner.spec.selector.match_labels if owner.spec.selector is not None else {}
    return {
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "metadata": {
            "name": f"{metadata.get('name', 'volume')}-{owner.metadata.name}-{ordinal}",
            "namespace": owner.metadata.namespace,
            "labels": {**(metadata.get("labels") or {}), **selector},
            "annotations": metadata.get("annotations") or {},
        },
        "spec": template.get("spec") or {},
    }


def status_patch(
    owner: StatefulSet, pods: Mapping[int, MachinePod], update: str, now_s: float
) -> tuple[JsonObject, float | None]:
    """The changes of the status, and the seconds until the next pod is available."""
    current = owner.status.current_revision or update
    unfinished = [pod for pod in pods.values() if not is_finished(pod)]
    active = [pod for pod in unfinished if not is_terminating(pod)]
    waits = [seconds_until_available(pod, owner.spec.min_ready_seconds, now_s) for pod in unfinished]
    updated = sum(pod.metadata.labels.get(names.REVISION_HASH_LABEL) == update for pod in active)
    ready = sum(map(is_ready, unfinished))
    goal = replicas_of(owner)
    if updated == goal == len(unfinished) == ready:
        # The rollout is complete: the update revision becomes the current one.
        current = update
    desired = {
        "replicas": len(unfinished),
        "readyReplicas": ready,
        "availableReplicas": sum(wait == 0 for wait in waits),
        "currentReplicas": sum(pod.metadata.labels.get(names.REVISION_HASH_LABEL) == current for pod in active),
        "updatedReplicas": updated,
        "currentRevision": current,
        "updateRevision": update,
        "observedGeneration": owner.metadata.generation,
    }
    return changed_fields(owner.status, desired), min((wait for wait in waits if wait), default=None)
