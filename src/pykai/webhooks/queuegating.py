"""The gate of queue admission on new pods (queues:Q-405): the scheduler removes it once the queue may take the pod.

Nothing is computed here: what a queue holds is not known when a pod is created, and its PodGroup may not exist yet.
The label of a pod names its queue; without one the pod grouper may find it on the workload.  So a pod without the label
gets the gate as soon as any queue gates; the scheduler opens the gate of a pod whose queue does not.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pykai.api import names
from pykai.webhooks.fields import dicts_at, object_at, texts_at


@dataclass(frozen=True, slots=True)
class GatingRules:
    """Which pods get the gate."""

    #: whether pods of a queue get it, "" = of a pod that names none
    is_gated: Callable[[str], bool]
    scheduler_name: str = names.SCHEDULER_NAME
    queue_label: str = names.QUEUE_LABEL
    #: where pods of our own services are: they belong to no queue, and work waits for them
    service_namespaces: tuple[str, ...] = (names.RESERVATION_NAMESPACE, names.SCALE_ADJUST_NAMESPACE)


def add_gate(pod: dict[str, Any], namespace: str, rules: GatingRules) -> dict[str, Any] | None:
    """A new pod with the gate, None if it gets none."""
    spec, labels = object_at(pod, "spec"), texts_at(object_at(pod, "metadata"), "labels")
    if spec.get("schedulerName") != rules.scheduler_name:
        return None
    # Their labels say nothing: a tenant may set those on its own pods.
    if namespace in rules.service_namespaces:
        return None
    gates = dicts_at(spec, "schedulingGates")
    # An API server refuses a pod that has a node and a gate.
    if spec.get("nodeName") or any(gate.get("name") == names.ADMISSION_GATE for gate in gates):
        return None
    if not rules.is_gated(labels.get(rules.queue_label, "")):
        return None
    return {**pod, "spec": {**spec, "schedulingGates": [*gates, {"name": names.ADMISSION_GATE}]}}
