"""The scheduler's metrics (cycle:20), each registered once.

Names and labels are upstream's.  The latency gauges hide what happens between two scrapes, so there are also histograms
called `..._histogram_milliseconds`.  The figures of all queues change together, and series of deleted queues and
PodGroups are removed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.api.keys import split_key
from pykai.api.scheduling import PodGroup
from pykai.core.actions import ACTIONS
from pykai.core.clusterfigures import ClusterFigures, WaitingFigures
from pykai.core.eviction.scenarios import GENERATORS
from pykai.core.policy import UNITS_PER_SECOND, Policy
from pykai.core.report.decisions import Evict, Plan, ResourceAmounts
from pykai.observe.metrics import Metrics
from pykai.scheduler.clustermetrics import ClusterMetrics
from pykai.scheduler.cyclemetrics import CycleMetrics
from pykai.scheduler.usage.metrics import UsageMetrics

_MILLISECONDS = tuple(5.0 * 2**power for power in range(10))
_FINE_MILLISECONDS = tuple(0.5 * 2**power for power in range(15))
#: from seconds to a day
_WAIT_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0)
_QUEUE_FAMILIES = {
    "queue_fair_share_cpu_cores": "CPU fair share of a queue, in cores",
    "queue_fair_share_memory_gb": "Memory fair share of a queue, in GB",
    "queue_fair_share_gpu": "GPU fair share of a queue, in devices",
    # queues:15.2
    "queue_cpu_usage": "CPU that a queue has used over time, as a fraction of the cluster; 0 without usageDBConfig",
    "queue_memory_usage": "Memory that a queue has used, as a fraction of the cluster",
    "queue_gpu_usage": "GPUs that a queue has used, as a fraction of the cluster",
    # operations:OD-17
    "queue_requested_cpu_cores": "CPU that a queue has and waits for, in cores",
    "queue_requested_memory_bytes": "Memory that a queue has and waits for, in bytes",
    "queue_requested_gpus": "GPUs that a queue has and waits for",
    "queue_pending_podgroups": "PodGroups of a queue with pods that found no place",
    "queue_pending_gpu_podgroups": "PodGroups of a queue with pods that want GPUs and found no place",
    "queue_pending_pods": "Pods of a queue that found no place",
    "queue_oldest_pending_seconds": "Age of the oldest PodGroup of a queue with such pods; 0 without",
}
_USAGE_FAMILIES = ("queue_cpu_usage", "queue_memory_usage", "queue_gpu_usage")
_GIGABYTE = 1e9
_NO_USAGE = (0.0, 0.0, 0.0)
_NOTHING_WAITS = WaitingFigures()
_LATENCIES = {
    "e2e_scheduling": "a scheduling cycle, from its changes to its plan",
    "open_session": "taking changes in before a cycle",
    "close_session": "computing the status diff after a cycle",
}


class SchedulerMetrics:
    """All of them."""

    def __init__(self, namespace: str = names.METRICS_NAMESPACE, registry: CollectorRegistry | None = None) -> None:
        make = Metrics(namespace, registry)
        self.registry = make.registry
        self._latency_gauges = {
            name: make.gauge(f"{name}_latency_milliseconds", f"Milliseconds that the last one took: {text}")
            for name, text in _LATENCIES.items()
        }
        self._latency_histograms = {
            name: make.histogram(f"{name}_latency_histogram_milliseconds", f"Milliseconds: {text}", _FINE_MILLISECONDS)
            for name, text in _LATENCIES.items()
        }
        self._task_scheduling = make.histogram(
            "task_scheduling_latency_milliseconds", "From the creation of a pod to its bind", _MILLISECONDS
        )
        self._task_bind = make.histogram(
            "task_bind_latency_milliseconds", "From the decision to bind a pod to the server's answer", _MILLISECONDS
        )
        self._queue_wait = make.histogram(
            "queue_pending_seconds",
            "From the creation of a pod to its bind, by queue",
            _WAIT_SECONDS,
            ["queue_metadata_name"],
        )
        self.usage = UsageMetrics(make)
        self.cycle = CycleMetrics(make, time.perf_counter)
        self.cluster = ClusterMetrics(make)
        self._make_plan_metrics(make)
        self._make_cycle_metrics(make)

    def _make_plan_metrics(self, make: Metrics) -> None:
        self._scheduled = make.unsuffixed_counter(
            "podgroups_scheduled_by_action", "PodGroups that got places", ["action"]
        )
        self._acted_on = make.unsuffixed_counter(
            "podgroups_acted_on_by_action", "PodGroups that others made room for", ["action"]
        )
        # Counts successes, whatever its name says (cycle:PRE-1).
        self._preemptions = make.unsuffixed_counter("total_preemption_attempts", "PodGroups that preempt made room for")
        self._evicted = make.counter(
            "pod_group_evicted_pods",
            "Pods evicted, by the action that decided it; a series ends with its PodGroup",
            ["podgroup", "namespace", "uid", "nodepool", "action"],
        )
        # Series of PodGroups begin at what they have counted, which `rate` never sees; these begin at 0.
        self._evictions = make.counter("evicted_pods", "Pods evicted, by the action that decided it", ["action"])
        for action in ACTIONS.values():
            if action.texts is not None:
                self._evictions.labels(action.name)
        #: PodGroup -> label values of its series
        self._evicted_series: dict[str, set[tuple[str, ...]]] = {}
        # The figures of all queues change together (queues:Q-139).
        self._known_queues: set[str] = set()
        self._waited_in: set[str] = set()
        self._queues = make.atomic_gauges(_QUEUE_FAMILIES, ["queue_name", "queue_metadata_name", "queue_display_name"])
        self._action_budget = make.gauge(
            "scenario_search_action_budget_configured_seconds", "Budget of an action, 0 = without end", ["action"]
        )
        self._job_budget = make.gauge(
            "scenario_search_job_budget_configured_seconds", "Budget of one job, 0 = without end"
        )
        self._generator_budget = make.gauge(
            "scenario_search_generator_budget_configured_seconds",
            "Budget of a generator, 0 = without end",
            ["generator"],
        )
        self._exhausted = make.counter(
            "scenario_search_action_budget_exhausted", "Searches that the budget of their action ended", ["action"]
        )
        for action in ACTIONS.values():
            if action.has_budget:
                self._exhausted.labels(action.name)
        self._waiting = make.gauge("unschedulable_podgroups", "PodGroups with pods that found no place")
        # queues:Q-409
        self._gated_pods = make.gauge(
            "queue_admission_gated_pods",
            "Pods that wait for admission to their queue",
            ["queue_name", "queue_metadata_name"],
        )
        self._gated_queues: Mapping[str, int] = {}
        self._ungated = make.counter(
            "queue_admission_ungated_pods", "Pods from which the gate of their queue was removed"
        )

    def _make_cycle_metrics(self, make: Metrics) -> None:
        self._cycles = make.counter("scheduling_cycles", "Scheduling cycles: done or failed", ["result"])
        for result in ("done", "failed"):
            self._cycles.labels(result)
        self._changes = make.counter("intake_changes", "Changes of objects taken in")
        self._refused = make.counter("bind_failures", "Binds that the API server refused")
        self._overtaken = make.counter(
            "binds_overtaken", "Binds not written because the node had filled up meanwhile; decided again at once"
        )
        self._broken = make.counter("gangs_broken", "Gangs that gave their nodes back because a bind was refused")
        self._failed_listeners = make.counter(
            "plan_listener_failures", "Failures of listeners to plans, such as a display; the cycle goes on"
        )
        self._problems = make.gauge("invalid_objects", "Objects with a part that cannot be used", ["kind"])
        self._configuration = make.gauge(
            "configuration_problems", "Parts of the configuration file that are not in use"
        )
        self._shadow_decisions = make.counter(
            "shadow_decisions", "What a shadow would do: bind, evict, nominate, ungate, cannot place", ["kind"]
        )
        self._shadow_comparisons = make.counter(
            "shadow_comparisons",
            "What became of it: agreed, differed, undecided (the other was faster), no eviction (deleted otherwise), "
            "expired (not done in a minute)",
            ["kind", "outcome"],
        )

    def observe_cycle(self, *, open_s: float, total_s: float, changes: int) -> None:
        """Record a successful cycle."""
        self._observe("open_session", open_s)
        self._observe("e2e_scheduling", total_s)
        self._changes.inc(changes)
        self._cycles.labels("done").inc()

    def observe_status_diff(self, seconds: float) -> None:
        """Record the duration of a status diff."""
        self._observe("close_session", seconds)

    def count_failed_cycle(self) -> None:
        """Count a cycle that ended in an exception."""
        self._cycles.labels("failed").inc()

    def count_failed_listener(self) -> None:
        """Count a listener that raised an exception; the cycle goes on."""
        self._failed_listeners.inc()

    def _observe(self, name: str, seconds: float) -> None:
        self._latency_gauges[name].set(seconds * 1000.0)
        self._latency_histograms[name].observe(seconds * 1000.0)

    def record_plan(
        self, plan: Plan, usage: Mapping[str, ResourceAmounts] | None = None, figures: ClusterFigures | None = None
    ) -> None:
        """Count the decisions of a plan that was made with this usage of queues."""
        self._waiting.set(len(plan.unscheduled))
        self._publish_queues(plan, usage or {}, {} if figures is None else figures.waiting)
        if plan.binds:
            self._scheduled.inc(names.ACTION_ALLOCATE, by=len({bind.group for bind in plan.binds}))
        preemptors = {(each.action, each.preemptor) for each in plan.evictions if each.preemptor}
        for action, _ in preemptors:
            self._acted_on.inc(action)
            self._scheduled.inc(action)
            if action == names.ACTION_PREEMPT:
                self._preemptions.inc()
        for search in plan.stopped:
            self._exhausted.labels(search.action).inc()

    def _publish_queues(
        self, plan: Plan, used: Mapping[str, ResourceAmounts], waiting: Mapping[str, WaitingFigures]
    ) -> None:
        self._queues.publish(
            (
                (each.display_name or each.name, each.name, each.display_name),
                {
                    "queue_fair_share_cpu_cores": each.fair_share[0] / 1000.0,
                    "queue_fair_share_memory_gb": each.fair_share[1] / _GIGABYTE,
                    "queue_fair_share_gpu": each.fair_share[2],
                    "queue_requested_cpu_cores": each.request[0] / 1000.0,
                    "queue_requested_memory_bytes": each.request[1],
                    "queue_requested_gpus": each.request[2],
                    **dict(zip(_USAGE_FAMILIES, used.get(each.name, _NO_USAGE), strict=True)),
                    **_waiting_values(waiting.get(each.name, _NOTHING_WAITS), plan.now_ns),
                },
            )
            for each in plan.queues
        )
        self._known_queues = {each.name for each in plan.queues}
        for gone in self._waited_in - self._known_queues:
            self._queue_wait.remove(gone)
        self._waited_in &= self._known_queues

    def set_gated_pods(self, pods_by_queue: Mapping[str, int]) -> None:
        """Set how many pods wait for admission to each queue."""
        if pods_by_queue != self._gated_queues:
            self._gated_pods.clear()
            for queue, pods in pods_by_queue.items():
                self._gated_pods.labels(queue, queue).set(pods)
            self._gated_queues = pods_by_queue

    def count_ungated_pod(self) -> None:
        """Count a gate that was removed."""
        self._ungated.inc()

    def observe_bind(self, answer_s: float, waited_s: float | None, node: str, queue: str) -> None:
        """Record a pod that was bound, or whose BindRequest was written."""
        self._task_bind.observe(answer_s * 1000.0)
        self.cluster.observe_bind(node, answer_s)
        if waited_s is not None:
            self._task_scheduling.observe(waited_s * 1000.0)
            # A queue without series of its own would keep this one.
            if queue in self._known_queues:
                self._queue_wait.labels(queue).observe(waited_s)
                self._waited_in.add(queue)

    def count_refused_bind(self) -> None:
        """Count a bind that the API server refused for good."""
        self._refused.inc()

    def count_overtaken_bind(self) -> None:
        """Count a bind whose place other pods had taken."""
        self._overtaken.inc()

    def count_broken_gang(self) -> None:
        """Count a gang whose bound pods were evicted because it is incomplete."""
        self._broken.inc()

    def count_shadow_decision(self, kind: str) -> None:
        """Count a decision of a shadow."""
        self._shadow_decisions.labels(kind).inc()

    def count_shadow_comparison(self, kind: str, outcome: str) -> None:
        """Count the comparison of a shadow's decision with what happened."""
        self._shadow_comparisons.labels(kind, outcome).inc()

    def count_eviction(self, eviction: Evict, group: PodGroup | None, pool: str) -> None:
        """Count an eviction; a deleted group gets no series, because it would never end."""
        self._evictions.labels(eviction.action).inc()
        if group is None:
            return
        namespace, name = split_key(eviction.group)
        series = (name, namespace, group.metadata.uid, pool, eviction.action)
        self._evicted.labels(*series).inc()
        self._evicted_series.setdefault(eviction.group, set()).add(series)

    def forget_group(self, key: str) -> None:
        """Remove the series of a deleted PodGroup."""
        for series in self._evicted_series.pop(key, ()):
            self._evicted.remove(*series)

    def set_problem_counts(self, kinds: Mapping[str, int]) -> None:
        """Set how many objects of each kind have a problem."""
        self._problems.clear()
        for kind, number in kinds.items():
            if number:
                self._problems.labels(kind).set(number)

    def set_configuration_problems(self, problems: int) -> None:
        """Set how much of the configuration file is not in use."""
        self._configuration.set(problems)

    def set_search_budgets(self, policy: Policy) -> None:
        """Set the search budgets of the configuration."""
        budgets = policy.search_budgets
        for action in ACTIONS.values():
            if action.has_budget:
                units = budgets.action_units(action.name) or 0
                self._action_budget.labels(action.name).set(units / UNITS_PER_SECOND)
        self._job_budget.set((budgets.job or 0) / UNITS_PER_SECOND)
        for generator in GENERATORS:
            self._generator_budget.labels(generator).set((budgets.generator_units(generator) or 0) / UNITS_PER_SECOND)


def _waiting_values(waiting: WaitingFigures, now_ns: int) -> dict[str, float]:
    return {
        "queue_pending_podgroups": waiting.groups,
        "queue_pending_gpu_podgroups": waiting.gpu_groups,
        "queue_pending_pods": waiting.pods,
        "queue_oldest_pending_seconds": max(0, now_ns - waiting.oldest_ns) / 1e9 if waiting.oldest_ns else 0.0,
    }
