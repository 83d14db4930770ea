"""Deployments: a ReplicaSet for every template, and rollouts from one to the next.

The ReplicaSet of the current template is found by comparing templates, not by its name, so that the ReplicaSets of
another controller manager are adopted. `rollout` works out how many pods each ReplicaSet should have,
`deploymentstatus` the status.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import Deployment, ReplicaSet
from pykai.kube.resources import DEPLOYMENTS, REPLICA_SETS
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change
from pykai.lab.controllers.controller import (
    AssumingWriter,
    Controller,
    controlled_by,
    controller_of,
    key_of,
    owner_reference,
    replicas_of,
    selector_matches,
    template_hash,
)
from pykai.lab.controllers.deploymentstatus import status_patch
from pykai.lab.controllers.pods import CONTROLLER, pod_store
from pykai.lab.controllers.rollout import ReplicaSetNumbers, plan_rollout, surge_and_unavailable

DEFAULT_HISTORY = 10
#: Annotations that a Deployment's ReplicaSets do not inherit.
_NOT_COPIED_ANNOTATIONS = frozenset({names.LAST_APPLIED_ANNOTATION, names.DEPLOYMENT_REVISION_ANNOTATION})


class Deployments:
    """The Deployment controller."""

    def __init__(self, runtime: Runtime) -> None:
        self._deployments = runtime.caches.store(DEPLOYMENTS, Deployment)
        self._sets = runtime.caches.store(REPLICA_SETS, ReplicaSet)
        self._sets.index(CONTROLLER, controlled_by)
        self._pods = pod_store(runtime)
        self._write = AssumingWriter(runtime.client, self._deployments, Deployment, runtime.clock)
        self._write_set = AssumingWriter(runtime.client, self._sets, ReplicaSet, runtime.clock)
        #: uids of Deployments that have looked for orphaned ReplicaSets
        self._adopted: set[str] = set()
        self.controller = Controller(
            "deployment-controller",
            runtime,
            self._reconcile,
            self._deployments,
            forget=self._adopted.discard,
            watches=[(self._sets, self._on_set)],
            reads=[self._pods],
        )

    def _on_set(self, change: Change[ReplicaSet]) -> None:
        key = self.controller.owner_key(change)
        if key is not None:
            self.controller.enqueue(key)

    async def _reconcile(self, key: str) -> float | None:
        deployment = self._deployments.get(key)
        if deployment is None or deployment.metadata.deletion_timestamp is not None:
            return None
        await self._adopt(deployment)
        owned = self._owned(deployment)
        new = self._current(deployment, owned)
        if new is None and not deployment.spec.paused:
            new = await self._create_replica_set(deployment, owned)
        elif new is not None:
            new = await self._bump_revision(deployment, new, owned)
        old = [one for one in self._owned(deployment) if new is None or one.metadata.uid != new.metadata.uid]
        changes = plan_rollout(
            deployment,
            self._latest_generation(new) if new is not None else None,
            [self._generation(one) for one in old],
        )
        for one in (*old, *([new] if new is not None else [])):
            count = changes.get(one.metadata.name)
            if count is not None:
                await self._scale(deployment, one, count)
        await self._delete_old_replica_sets(deployment, old)
        return await self._update_status(deployment, new)

    def _current(self, deployment: Deployment, owned: Sequence[ReplicaSet]) -> ReplicaSet | None:
        """The ReplicaSet of the current template."""
        for one in owned:
            if same_template(deployment.spec.template, one.spec.template):
                return one
        # A template stored before the server knew some default differs from the defaulted copy.
        digest = _digest(deployment)
        return next((one for one in owned if one.metadata.labels.get(names.POD_TEMPLATE_HASH_LABEL) == digest), None)

    def _latest_generation(self, new: ReplicaSet) -> ReplicaSetNumbers:
        return self._generation(self._sets.get(key_of(new)) or new)

    def _generation(self, one: ReplicaSet) -> ReplicaSetNumbers:
        pods = self._pods.by_index(CONTROLLER, one.metadata.uid)
        there = sum(pod.status.phase not in ("Succeeded", "Failed") for pod in pods)
        return ReplicaSetNumbers(one.metadata.name, replicas_of(one), one.status.available_replicas, there)

    def _owned(self, deployment: Deployment) -> list[ReplicaSet]:
        """Its ReplicaSets, oldest first."""
        owned = self._sets.by_index(CONTROLLER, deployment.metadata.uid)
        return sorted(
            (one for one in owned if one.metadata.deletion_timestamp is None),
            key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name),
        )

    async def _adopt(self, deployment: Deployment) -> None:
        if deployment.metadata.uid in self._adopted:
            return
        for one in self._sets.values():
            if (
                one.metadata.namespace == deployment.metadata.namespace
                and controller_of(one) is None
                and selector_matches(deployment.spec.selector, one.metadata.labels)
            ):
                belongs = {"metadata": {"ownerReferences": [owner_reference(deployment, DEPLOYMENTS)]}}
                await self._write_set.patch(one, belongs)
        self._adopted.add(deployment.metadata.uid)

    async def _create_replica_set(self, deployment: Deployment, owned: Sequence[ReplicaSet]) -> ReplicaSet | None:
        """The ReplicaSet of the current template, empty for now."""
        body = replica_set_document(deployment, _digest(deployment), next_revision(owned))
        created = await self._write_set.create(body)
        if created is None:
            # The name is taken: the next reconcile uses another one.
            count = (deployment.status.collision_count or 0) + 1
            await self._write.patch_status(deployment, {"collisionCount": count})
            return None
        await self._annotate_revision(deployment, created)
        return created

    async def _bump_revision(self, deployment: Deployment, new: ReplicaSet, owned: Sequence[ReplicaSet]) -> ReplicaSet:
        """Give a template that comes back the newest revision."""
        others = [one for one in owned if one.metadata.uid != new.metadata.uid]
        revision = next_revision(others)
        if revision_of(new) < revision:
            note = {"metadata": {"annotations": {names.DEPLOYMENT_REVISION_ANNOTATION: str(revision)}}}
            new = await self._write_set.patch(new, note) or new
        await self._annotate_revision(deployment, new)
        return new

    async def _annotate_revision(self, deployment: Deployment, new: ReplicaSet) -> None:
        revision = new.metadata.annotations.get(names.DEPLOYMENT_REVISION_ANNOTATION, "1")
        if deployment.metadata.annotations.get(names.DEPLOYMENT_REVISION_ANNOTATION) != revision:
            note = {"metadata": {"annotations": {names.DEPLOYMENT_REVISION_ANNOTATION: revision}}}
            await self._write.patch(deployment, note)

    async def _scale(self, deployment: Deployment, one: ReplicaSet, count: int) -> None:
        before = replicas_of(one)
        patch: JsonObject = {"spec": {"replicas": count}, "metadata": {"annotations": replica_annotations(deployment)}}
        if await self._write_set.patch(one, patch) is not None:
            way = "up" if count > before else "down"
            message = f"Scaled {way} replica set {one.metadata.name} from {before} to {count}"
            self.controller.event(deployment, "Normal", "ScalingReplicaSet", message)

    async def _delete_old_replica_sets(self, deployment: Deployment, old: Sequence[ReplicaSet]) -> None:
        limit = deployment.spec.revision_history_limit
        empty = [one for one in old if one.spec.replicas == 0 and one.status.replicas == 0]
        surplus = len(empty) - (DEFAULT_HISTORY if limit is None else limit)
        for one in sorted(empty, key=revision_of)[: max(0, surplus)]:
            if one.status.observed_generation >= one.metadata.generation:
                await self._write_set.delete(one)

    async def _update_status(self, deployment: Deployment, new: ReplicaSet | None) -> float | None:
        current = self._write.latest(deployment)
        if current is None:
            return None
        owned = self._owned(current)
        newest = next((one for one in owned if new is not None and one.metadata.uid == new.metadata.uid), None)
        status, wait_s = status_patch(current, newest, owned, self.controller.now(), self.controller.now_s())
        if status:
            await self._write.patch_status(current, status)
        return wait_s


def deployments(runtime: Runtime) -> Service:
    """The Deployment controller as a service."""
    return Deployments(runtime).controller


def _digest(deployment: Deployment) -> str:
    return template_hash(deployment.spec.template, str(deployment.status.collision_count or ""))


def same_template(one: JsonObject, other: JsonObject) -> bool:
    """Whether two templates are equal but for the template hash label."""
    return _without_template_hash(one) == _without_template_hash(other)


def _without_template_hash(template: JsonObject) -> JsonObject:
    metadata = dict(template.get("metadata") or {})
    labels = dict(metadata.get("labels") or {})
    labels.pop(names.POD_TEMPLATE_HASH_LABEL, None)
    metadata.pop("creationTimestamp", None)
    metadata["labels"] = labels
    return {**template, "metadata": metadata}


def revision_of(one: ReplicaSet) -> int:
    """The revision of a ReplicaSet, counted from 1."""
    text = one.metadata.annotations.get(names.DEPLOYMENT_REVISION_ANNOTATION, "")
    return int(text) if text.isdigit() else 0


def next_revision(owned: Sequence[ReplicaSet]) -> int:
    """The revision after all of these."""
    return 1 + max(map(revision_of, owned), default=0)


def replica_annotations(deployment: Deployment) -> dict[str, str]:
    """The annotations of a ReplicaSet about its Deployment's size."""
    desired = replicas_of(deployment)
    return {
        names.DESIRED_REPLICAS_ANNOTATION: str(desired),
        names.MAX_REPLICAS_ANNOTATION: str(desired + surge_and_unavailable(deployment)[0]),
    }


def replica_set_document(deployment: Deployment, digest: str, revision: int) -> JsonObject:
    """A ReplicaSet without pods for the current template."""
    template = deployment.spec.template
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), names.POD_TEMPLATE_HASH_LABEL: digest}
    selector: JsonObject = {"matchLabels": {names.POD_TEMPLATE_HASH_LABEL: digest}}
    if deployment.spec.selector is not None:
        selector["matchLabels"] = {**deployment.spec.selector.match_labels, **selector["matchLabels"]}
        if deployment.spec.selector.match_expressions:
            selector["matchExpressions"] = [
                {"key": e.key, "operator": e.operator, "values": e.values}
                for e in deployment.spec.selector.match_expressions
            ]
    annotations = {k: v for k, v in deployment.metadata.annotations.items() if k not in _NOT_COPIED_ANNOTATIONS}
    annotations |= replica_annotations(deployment)
    annotations[names.DEPLOYMENT_REVISION_ANNOTATION] = str(revision)
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": f"{deployment.metadata.name}-{digest}",
            "namespace": deployment.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(deployment, DEPLOYMENTS)],
        },
        "spec": {
            "replicas": 0,
            "minReadySeconds": deployment.spec.min_ready_seconds,
            "selector": selector,
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        },
    }
