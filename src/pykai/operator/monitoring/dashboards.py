"""Dashboards for Grafana: a row for each panel.

Grafana asks for the data source when a dashboard is imported; all panels use it.  Series are joined by
`queue_metadata_name`, because the scheduler's `queue_name` is the display name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_WIDTH: Final = 8
_HEIGHT: Final = 8
_PER_ROW: Final = 3
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_BY_QUEUE: Final = "{{queue_metadata_name}}"


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over time; `queries` are expressions with the names of their lines."""

    title: str
    meaning: str
    unit: str
    queries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of panels."""

    name: str
    title: str
    panels: tuple[Panel, ...]


def _of_queue(metric: str) -> str:
    # Several schedulers or controllers may report a queue; standbys report none.
    return f"max by (queue_metadata_name) ({metric})"


def _quantile(share: float, histogram: str, by: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({histogram}_bucket[5m])))"


QUEUES: Final = Dashboard(
    "kai-queues",
    "KAI queues",
    (
        Panel(
            "GPUs in use",
            "Of the nodes that may start pods.",
            "short",
            (("sum(kai_cluster_gpus)", "all"), ("sum(kai_cluster_gpus_used)", "used")),
        ),
        Panel(
            "Scattered GPUs",
            "Free GPUs beside used ones: large pods cannot have them.",
            "percentunit",
            (
                (
                    "sum(kai_cluster_gpus_scattered) / (sum(kai_cluster_gpus) - sum(kai_cluster_gpus_used) > 0)",
                    "of the free GPUs",
                ),
            ),
        ),
        Panel(
            "Nodes by free GPUs",
            "How many nodes have room for a pod of so many GPUs.",
            "short",
            (("sum by (free_gpus) (kai_cluster_nodes_by_free_gpus)", "{{free_gpus}} free"),),
        ),
        Panel(
            "Allocated GPUs",
            "What the pods of a queue have.",
            "short",
            ((_of_queue("kai_queue_allocated_gpus"), _BY_QUEUE),),
        ),
        Panel("Quota", "In GPUs; -1 is unlimited.", "short", ((_of_queue("kai_queue_deserved_gpus"), _BY_QUEUE),)),
        Panel(
            "Fair share",
            "GPUs that a queue may have now.",
            "short",
            ((_of_queue("kai_queue_fair_share_gpu"), _BY_QUEUE),),
        ),
        Panel(
            "Requested GPUs",
            "What a queue has and waits for.",
            "short",
            ((_of_queue("kai_queue_requested_gpus"), _BY_QUEUE),),
        ),
        Panel(
            "Beyond the fair share",
            "GPUs that others may reclaim.",
            "short",
            ((f"({_of_queue('kai_queue_allocated_gpus')} - {_of_queue('kai_queue_fair_share_gpu')}) > 0", _BY_QUEUE),),
        ),
        Panel(
            "Usage over time",
            "With usageDBConfig: a fraction of the cluster.",
            "percentunit",
            ((_of_queue("kai_queue_gpu_usage"), _BY_QUEUE),),
        ),
        Panel(
            "Pods that found no place",
            "In the last cycle.",
            "short",
            ((_of_queue("kai_queue_pending_pods"), _BY_QUEUE),),
        ),
        Panel(
            "Oldest work that waits",
            "Age of the oldest PodGroup with pods that found no place.",
            "s",
            ((_of_queue("kai_queue_oldest_pending_seconds"), _BY_QUEUE),),
        ),
        Panel(
            "Wait until the bind",
            "Nine of ten pods waited less.",
            "s",
            ((_quantile(0.9, "kai_queue_pending_seconds", "queue_metadata_name"), _BY_QUEUE),),
        ),
        Panel("Allocated CPU", "Cores.", "short", ((_of_queue("kai_queue_allocated_cpu_cores"), _BY_QUEUE),)),
        Panel(
            "Allocated memory",
            "What the pods of a queue have.",
            "bytes",
            ((_of_queue("kai_queue_allocated_memory_bytes"), _BY_QUEUE),),
        ),
        Panel(
            "Pods behind the gate of their queue",
            "They wait for admission.",
            "short",
            ((_of_queue("kai_queue_admission_gated_pods"), _BY_QUEUE),),
        ),
    ),
)

SCHEDULER: Final = Dashboard(
    "kai-scheduler",
    "KAI scheduler",
    (
        Panel(
            "Cycle",
            "From the changes to the plan.",
            "ms",
            (
                (_quantile(0.5, "kai_e2e_scheduling_latency_histogram_milliseconds"), "half"),
                (_quantile(0.99, "kai_e2e_scheduling_latency_histogram_milliseconds"), "99 of 100"),
            ),
        ),
        Panel(
            "Cycles", "By result.", "ops", (("sum by (result) (rate(kai_scheduling_cycles_total[5m]))", "{{result}}"),)
        ),
        Panel(
            "Actions",
            "What each took in the last cycle.",
            "ms",
            (("max by (action) (kai_action_scheduling_latency_milliseconds)", "{{action}}"),),
        ),
        Panel(
            "Plugins",
            "The ten that took longest to prepare their rules.",
            "ms",
            (("topk(10, max by (plugin) (kai_plugin_scheduling_latency_milliseconds))", "{{plugin}}"),),
        ),
        Panel(
            "PodGroups that got places",
            "By action.",
            "ops",
            (("sum by (action) (rate(kai_podgroups_scheduled_by_action[5m]))", "{{action}}"),),
        ),
        Panel(
            "Evicted pods",
            "By action.",
            "ops",
            (("sum by (action) (rate(kai_evicted_pods_total[5m]))", "{{action}}"),),
        ),
        Panel(
            "From creation to bind",
            "Of a pod; the buckets end at 2.56 s, as in KAI.",
            "ms",
            (
                (_quantile(0.5, "kai_task_scheduling_latency_milliseconds"), "half"),
                (_quantile(0.99, "kai_task_scheduling_latency_milliseconds"), "99 of 100"),
            ),
        ),
        Panel(
            "From decision to bind",
            "Until the API server has answered.",
            "ms",
            (
                (_quantile(0.5, "kai_task_bind_latency_milliseconds"), "half"),
                (_quantile(0.99, "kai_task_bind_latency_milliseconds"), "99 of 100"),
            ),
        ),
        Panel(
            "Slowest nodes",
            "Mean time from decision to bind.",
            "ms",
            (
                (
                    "topk(10, sum by (node) (rate(kai_node_bind_latency_milliseconds_sum[15m])) / "
                    "sum by (node) (rate(kai_node_bind_latency_milliseconds_count[15m]) > 0))",
                    "{{node}}",
                ),
            ),
        ),
        Panel(
            "Binds that failed",
            "Refused by the API server, overtaken by other pods, gangs undone.",
            "ops",
            (
                ("sum(rate(kai_bind_failures_total[5m]))", "refused"),
                ("sum(rate(kai_binds_overtaken_total[5m]))", "overtaken"),
                ("sum(rate(kai_gangs_broken_total[5m]))", "gangs undone"),
            ),
        ),
        Panel(
            "Sets of victims",
            "Tried by the searches of actions.",
            "ops",
            (("sum by (action, state) (rate(kai_scenario_search_scenarios_total[5m]))", "{{action}} {{state}}"),),
        ),
        Panel(
            "Searches for victims",
            "By result; budgets end those that are deadline_exhausted.",
            "ops",
            (("sum by (action, result) (rate(kai_scenario_search_jobs_total[5m]))", "{{action}} {{result}}"),),
        ),
        Panel(
            "Invalid objects",
            "With a part that cannot be used.",
            "short",
            (("sum by (kind) (kai_invalid_objects)", "{{kind}}"), ("sum(kai_configuration_problems)", "configuration")),
        ),
        Panel(
            "Nodes in Topologies",
            "Others are not used by work that names the Topology.",
            "short",
            (
                ("max by (topology) (kai_topology_nodes)", "{{topology}}"),
                ("max by (topology, label) (kai_topology_nodes_without_label)", "{{topology}} without {{label}}"),
            ),
        ),
        Panel(
            "Usage queries",
            "Nine of ten took less, and failures.",
            "short",
            (
                (_quantile(0.9, "kai_usage_query_latency_milliseconds"), "ms"),
                ("sum(rate(kai_usage_fetch_failures_total[5m]))", "failures a second"),
            ),
        ),
    ),
)

#: label values of our controllers; other programs use the same metrics
CONTROLLERS: Final = "gpugroups|bindrequests|podgrouper|podgroups|queues|nodescale|operator"
_OURS: Final = f'{{controller=~"{CONTROLLERS}"}}'

SERVICES: Final = Dashboard(
    "kai-services",
    "KAI binder, webhooks and controllers",
    (
        Panel(
            "Bind attempts",
            "Of the binder, and those that failed.",
            "ops",
            (
                ("sum(rate(kai_binder_bind_attempts_total[5m]))", "attempts"),
                ("sum by (reason) (rate(kai_binder_bind_failures_total[5m]))", "{{reason}}"),
            ),
        ),
        Panel(
            "Reservation pods",
            "Time until one knows its GPU.",
            "s",
            (
                (_quantile(0.5, "kai_binder_reservation_wait_seconds"), "half"),
                (_quantile(0.95, "kai_binder_reservation_wait_seconds"), "19 of 20"),
            ),
        ),
        Panel(
            "Slowest nodes",
            "Mean time to prepare and bind a pod.",
            "s",
            (
                (
                    "topk(10, sum by (node) (rate(kai_binder_node_bind_seconds_sum[15m])) / "
                    "sum by (node) (rate(kai_binder_node_bind_seconds_count[15m]) > 0))",
                    "{{node}}",
                ),
            ),
        ),
        Panel(
            "Reservations cleaned up",
            "Unused ones, and pods whose reservation was gone.",
            "short",
            (
                ("sum(increase(kai_binder_orphan_reservations_deleted_total[1h]))", "unused"),
                ("sum(increase(kai_binder_pods_deleted_missing_reservation_total[1h]))", "pods deleted"),
            ),
        ),
        Panel(
            "Reviews",
            "Answers of the webhooks.",
            "ops",
            (("sum by (path, allowed) (rate(kai_admission_reviews_total[5m]))", "{{path}} {{allowed}}"),),
        ),
        Panel(
            "Review time",
            "99 of 100 took less.",
            "s",
            ((_quantile(0.99, "kai_admission_review_duration_seconds", "path"), "{{path}}"),),
        ),
        Panel(
            "Controllers",
            "Objects a second.",
            "ops",
            ((f"sum by (controller) (rate(controller_runtime_reconcile_total{_OURS}[5m]))", "{{controller}}"),),
        ),
        Panel(
            "Errors of controllers",
            "They are retried.",
            "ops",
            ((f"sum by (controller) (rate(controller_runtime_reconcile_errors_total{_OURS}[5m]))", "{{controller}}"),),
        ),
        Panel(
            "Objects that wait for a controller",
            "Depth of work queues.",
            "short",
            ((f'max by (name) (workqueue_depth{{name=~"{CONTROLLERS}"}})', "{{name}}"),),
        ),
    ),
)

DASHBOARDS: Final = (QUEUES, SCHEDULER, SERVICES)


def dashboard_document(dashboard: Dashboard) -> dict[str, Any]:
    """What Grafana imports."""
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": dashboard.name,
        "title": dashboard.title,
        "tags": ["kai"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": [_panel(index, each) for index, each in enumerate(dashboard.panels)],
    }


def _panel(index: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(index, _PER_ROW)
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }
