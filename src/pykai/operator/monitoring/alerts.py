"""Alert rules for Prometheus: a row each, with what to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pykai.operator.monitoring.dashboards import CONTROLLERS

CRITICAL, WARNING, INFO = "critical", "warning", "info"
_QUEUE: Final = "max by (queue_metadata_name)"


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule."""

    group: str
    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    #: what to do
    action: str


ALERTS: Final = (
    Alert(
        "scheduler",
        "KaiSchedulerStopped",
        'sum by (job) (rate(kai_scheduling_cycles_total{result="done"}[5m])) == 0 '
        "or (count by (job) (present_over_time(kai_scheduling_cycles_total[1d])) "
        "unless on (job) count by (job) (kai_scheduling_cycles_total)) "
        "or absent_over_time(kai_scheduling_cycles_total[1d])",
        "5m",
        CRITICAL,
        "{{ with $labels.job }}{{ . }} completes no cycles{{ else }}No scheduler completes cycles{{ end }}: "
        "no pod is started",
        "Look at the log of the scheduler that leads, and at /readyz. "
        "One that was removed on purpose is reported for a day: silence it.",
    ),
    Alert(
        "scheduler",
        "KaiCyclesFail",
        'sum(rate(kai_scheduling_cycles_total{result="failed"}[10m])) > 0',
        "10m",
        CRITICAL,
        "Scheduling cycles fail",
        "The log of the scheduler has the error of each failed cycle.",
    ),
    Alert(
        "scheduler",
        "KaiCyclesSlow",
        "histogram_quantile(0.99, "
        "sum by (job, le) (rate(kai_e2e_scheduling_latency_histogram_milliseconds_bucket[10m]))) > 4000",
        "15m",
        WARNING,
        "One of a hundred cycles of {{ $labels.job }} takes longer than 4 seconds",
        "The dashboard KAI scheduler shows which action it is; its search budget bounds it.",
    ),
    Alert(
        "scheduler",
        "KaiSearchesEndEarly",
        "sum by (action) (increase(kai_scenario_search_action_budget_exhausted_total[1h])) > 0",
        "1h",
        INFO,
        "The budget of {{ $labels.action }} ends its searches for victims",
        "Raise scenarioSearchBudgets of the shard where work waits although others are over their quota.",
    ),
    Alert(
        "scheduler",
        "KaiBindsRefused",
        "sum(rate(kai_bind_failures_total[10m])) > 0.1",
        "10m",
        WARNING,
        "The API server refuses binds",
        "Events FailedBinding on the pods have the reasons.",
    ),
    Alert(
        "scheduler",
        "KaiManyEvictions",
        "sum by (action) (rate(kai_evicted_pods_total[15m])) > 1",
        "15m",
        WARNING,
        "{{ $labels.action }} evicts more than a pod a second",
        "Events Evict on the PodGroups say for which work; minimum runtimes of queues slow it down.",
    ),
    Alert(
        "scheduler",
        "KaiConfigurationNotInUse",
        "sum(kai_configuration_problems) > 0",
        "5m",
        WARNING,
        "A part of the scheduler's configuration is not in use",
        "/readyz of the scheduler names it.",
    ),
    Alert(
        "scheduler",
        "KaiUsageIsOld",
        "max by (job) (time() - kai_usage_last_fetch_timestamp_seconds > (kai_usage_staleness_period_seconds > 0))",
        "5m",
        WARNING,
        "Usage of queues is too old, or was never fetched, and does not count for {{ $labels.job }}",
        "See whether the Prometheus of usageDBConfig answers; the log of the scheduler has the error of each fetch.",
    ),
    Alert(
        "cluster",
        "KaiInvalidObjects",
        "sum by (kind) (kai_invalid_objects) > 0",
        "30m",
        INFO,
        "{{ $value }} of {{ $labels.kind }} have a part that cannot be used",
        "Events on these objects name the field.",
    ),
    Alert(
        "cluster",
        "KaiGpusScattered",
        "sum(kai_cluster_gpus_scattered) / (sum(kai_cluster_gpus) - sum(kai_cluster_gpus_used)) > 0.8 "
        "and sum(kai_queue_pending_pods) > 0",
        "30m",
        INFO,
        "Work waits while most free GPUs are scattered over nodes in use",
        "Consolidation moves preemptible work together; see whether the action is on.",
    ),
    Alert(
        "cluster",
        "KaiNodesOutsideTopology",
        "max by (topology, label) (kai_topology_nodes_without_label) > 0 "
        "and on (topology) max by (topology) (kai_topology_nodes) > 0",
        "1h",
        INFO,
        "{{ $value }} nodes lack the label {{ $labels.label }} of the Topology {{ $labels.topology }}",
        "Work that names the Topology never uses them; label them, or ignore this if that is meant.",
    ),
    Alert(
        "queues",
        "KaiQueueWaitsBelowQuota",
        f"{_QUEUE} (kai_queue_pending_gpu_podgroups) > 0 and on (queue_metadata_name) "
        f"({_QUEUE} (kai_queue_allocated_gpus) < {_QUEUE} (kai_queue_deserved_gpus))",
        "30m",
        WARNING,
        "Work of queue {{ $labels.queue_metadata_name }} waits for GPUs though it is below its quota of GPUs",
        "Events on the pods say why; what runs without preemption in other queues cannot be reclaimed.",
    ),
    Alert(
        "queues",
        "KaiQueueWaitsLong",
        f"{_QUEUE} (kai_queue_oldest_pending_seconds) > 86400",
        "10m",
        INFO,
        "Work in queue {{ $labels.queue_metadata_name }} has waited for more than a day",
        "kubectl get podgroups shows it, with the reason.",
    ),
    Alert(
        "binder",
        "KaiBinderFails",
        "sum(rate(kai_binder_bind_failures_total[15m])) / sum(rate(kai_binder_bind_attempts_total[15m])) > 0.2",
        "15m",
        WARNING,
        "More than a fifth of the binder's attempts fail",
        "The dashboard KAI binder, webhooks and controllers shows the step; BindRequests have the text.",
    ),
    Alert(
        "binder",
        "KaiReservationsSlow",
        "histogram_quantile(0.95, sum by (le) (rate(kai_binder_reservation_wait_seconds_bucket[15m]))) > 15",
        "15m",
        WARNING,
        "Reservation pods take longer than 15 seconds to know their GPU",
        "See whether nodes have the image of reservation pods and its runtime class.",
    ),
    Alert(
        "binder",
        "KaiReservationsLost",
        "sum(increase(kai_binder_pods_deleted_missing_reservation_total[1h])) > 0",
        "0m",
        WARNING,
        "Running pods were deleted because the reservation of their GPU was gone",
        "Find out who deleted pods in the namespace of reservations.",
    ),
    Alert(
        "admission",
        "KaiWebhooksSlow",
        "histogram_quantile(0.99, sum by (path, le) (rate(kai_admission_review_duration_seconds_bucket[10m]))) > 1",
        "10m",
        WARNING,
        "One of a hundred reviews of {{ $labels.path }} takes longer than a second",
        "Give the admission service more CPU or replicas: the API server waits for it.",
    ),
    Alert(
        "admission",
        "KaiWebhookCertificateEnds",
        "min(kai_admission_certificate_expiry_timestamp_seconds > 0) - time() < 604800",
        "1h",
        CRITICAL,
        "The certificate of the webhooks ends in less than a week",
        "It is renewed after three quarters of its life; the log of admission says why it was not.",
    ),
    Alert(
        "controllers",
        "KaiControllerFails",
        f'sum by (controller) (rate(controller_runtime_reconcile_errors_total{{controller=~"{CONTROLLERS}"}}[15m]))'
        " > 0.1",
        "15m",
        WARNING,
        "The controller {{ $labels.controller }} fails again and again",
        "Its log names the objects and the errors.",
    ),
    Alert(
        "controllers",
        "KaiControllerBehind",
        f'max by (name) (workqueue_depth{{name=~"{CONTROLLERS}"}}) > 1000',
        "15m",
        WARNING,
        "More than 1000 objects wait for the controller {{ $labels.name }}",
        "Raise --max-concurrent-reconciles, or --qps and --burst where they are set.",
    ),
)


def rule_groups() -> dict[str, Any]:
    """A file of rules, and the spec of a PrometheusRule."""
    groups = dict.fromkeys(each.group for each in ALERTS)
    return {
        "groups": [
            {"name": f"kai-{group}", "rules": [_rule(each) for each in ALERTS if each.group == group]}
            for group in groups
        ]
    }


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.action},
    }
