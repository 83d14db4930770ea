"""PodDisruptionBudgets: how many pods may be evicted now.

The status of a budget is updated when a pod of its namespace changes. `minAvailable` and `maxUnavailable` count the
pods that exist, not those that their owners want.
"""

from __future__ import annotations

from pykai.api.disruption import PodDisruptionBudget
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import MachinePod
from pykai.kube.resources import POD_DISRUPTION_BUDGETS
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change
from pykai.lab.controllers.controller import (
    AssumingWriter,
    Controller,
    changed_fields,
    int_or_percent,
    key_of,
    selector_matches,
)
from pykai.lab.controllers.pods import is_active, is_finished, is_ready, pod_store

_IN_NAMESPACE = "namespace"


class DisruptionBudgets:
    """The disruption controller."""

    def __init__(self, runtime: Runtime) -> None:
        self._budgets = runtime.caches.store(POD_DISRUPTION_BUDGETS, PodDisruptionBudget, optional=True)
        self._budgets.index(_IN_NAMESPACE, lambda budget: [budget.metadata.namespace])
        self._pods = pod_store(runtime)
        self._write = AssumingWriter(runtime.client, self._budgets, PodDisruptionBudget, runtime.clock)
        self.controller = Controller(
            "disruption-controller",
            runtime,
            self._reconcile,
            self._budgets,
            watches=[(self._pods, self._on_pod)],
        )

    def _on_pod(self, change: Change[MachinePod]) -> None:
        if not len(self._budgets):
            return
        pod = change.new or change.old
        if pod is None:
            return
        for budget in self._budgets.by_index(_IN_NAMESPACE, pod.metadata.namespace):
            if selector_matches(budget.spec.selector, pod.metadata.labels):
                self.controller.enqueue_soon(key_of(budget))

    async def _reconcile(self, key: str) -> float | None:
        budget = self._budgets.get(key)
        if budget is None or budget.metadata.deletion_timestamp is not None:
            return None
        matched = [
            pod
            for pod in self._pods.values()
            if pod.metadata.namespace == budget.metadata.namespace
            and not is_finished(pod)
            and selector_matches(budget.spec.selector, pod.metadata.labels)
        ]
        status = status_patch(budget, matched)
        if status:
            await self._write.patch_status(budget, status)
        return None


def disruption_budgets(runtime: Runtime) -> Service:
    """The controller of disruption budgets as a service."""
    return DisruptionBudgets(runtime).controller


def status_patch(budget: PodDisruptionBudget, pods: list[MachinePod]) -> JsonObject:
    """The changes of the status."""
    expected = len(pods)
    healthy = sum(is_active(pod) and is_ready(pod) for pod in pods)
    if budget.spec.max_unavailable is not None:
        desired_healthy = max(0, expected - int_or_percent(budget.spec.max_unavailable, expected, up=True, default=0))
    else:
        desired_healthy = int_or_percent(budget.spec.min_available, expected, up=True, default=0)
    desired = {
        "currentHealthy": healthy,
        "desiredHealthy": desired_healthy,
        "disruptionsAllowed": max(0, healthy - desired_healthy) if expected else 0,
        "expectedPods": expected,
        "observedGeneration": budget.metadata.generation,
    }
    if not changed_fields(budget.status, desired) and budget.status.observed_generation:
        return {}
    # Write all of them: absent fields mean that no controller has run yet.
    return dict(desired)
