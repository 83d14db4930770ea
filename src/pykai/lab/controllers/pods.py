"""Pods as controllers see them: active, ready or finished, and created from a template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykai.api.core import Condition
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import MachinePod
from pykai.kube.resources import PODS
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.lab.controllers.controller import (
    AssumingWriter,
    controlled_by,
)
from pykai.lab.timestamps import to_seconds

CONTROLLER = "controller"
NAMESPACE = "namespace"


def pod_store(runtime: Runtime) -> Store[MachinePod]:
    """All pods, by the uid of their controller (`CONTROLLER`)."""
    store = runtime.caches.store(PODS, MachinePod)
    store.index(CONTROLLER, controlled_by)
    return store


def pod_writer(runtime: Runtime) -> AssumingWriter[MachinePod]:
    """Writes pods."""
    return AssumingWriter(runtime.client, pod_store(runtime), MachinePod, runtime.clock)


def is_finished(pod: MachinePod) -> bool:
    """Whether its containers have stopped for good."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_terminating(pod: MachinePod) -> bool:
    """Whether it is being deleted."""
    return pod.metadata.deletion_timestamp is not None


def is_active(pod: MachinePod) -> bool:
    """Whether it counts: neither finished nor being deleted."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")


def condition_of(pod: MachinePod, kind: str) -> Condition | None:
    """A condition, or None."""
    for condition in pod.status.conditions:
        if condition.type == kind:
            return condition
    return None


def is_ready(pod: MachinePod) -> bool:
    """Whether its Ready condition is True."""
    ready = condition_of(pod, "Ready")
    return ready is not None and ready.status == "True"


def ready_since_s(pod: MachinePod) -> float | None:
    """When it became ready; None if it is not."""
    ready = condition_of(pod, "Ready")
    if ready is None or ready.status != "True":
        return None
    return to_seconds(ready.last_transition_time) or 0.0


def finished_at_s(pod: MachinePod) -> float | None:
    """When its containers stopped."""
    ends = [
        to_seconds(status.state.terminated.finished_at)
        for status in pod.status.container_statuses
        if status.state.terminated is not None
    ]
    return max((end for end in ends if end is not None), default=None)


def pod_from_template(
    template: JsonObject,
    name: str,
    namespace: str,
    owner: JsonObject,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> JsonObject:
    """A pod from a template; `spec` replaces fields of the template's spec."""
    metadata = template.get("metadata") or {}
    pod_metadata: JsonObject = {"name": name, "namespace": namespace, "ownerReferences": [owner]}
    all_labels = {**(metadata.get("labels") or {}), **(labels or {})}
    all_annotations = {**(metadata.get("annotations") or {}), **(annotations or {})}
    if all_labels:
        pod_metadata["labels"] = all_labels
    if all_annotations:
        pod_metadata["annotations"] = all_annotations
    if metadata.get("finalizers"):
        pod_metadata["finalizers"] = metadata["finalizers"]
    body = template.get("spec") or {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_metadata, "spec": {**body, **spec} if spec else body}
