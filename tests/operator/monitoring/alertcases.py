"""For each alert what it must fire on and what it must not, as series that promtool evaluates the rules on.

A sample is a minute; the first one is at the beginning of 1970, which `time()` counts from.  Values are in promtool's
notation: `0+5x3` is 0 5 10 15, `7x2` is 7 7 7, `_x2` is two samples that are missing, `stale` ends a series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pykai.operator.monitoring.alerts import ALERTS


@dataclass(frozen=True, slots=True)
class Case:
    """Series, and which alerts of one name they lead to."""

    alert: str
    #: a sentence
    title: str
    #: when the rules are looked at
    at: tuple[str, ...]
    #: series -> its values
    series: Mapping[str, str]
    #: the summary of each alert that fires -> its labels, without the severity
    fires: Mapping[str, Mapping[str, str]]


def _fires(alert: str, title: str, at: str, series: Mapping[str, str], fires: Mapping[str, Mapping[str, str]]) -> Case:
    return Case(alert, title, (at,), series, fires)


def _quiet(alert: str, title: str, at: str | tuple[str, ...], series: Mapping[str, str]) -> Case:
    return Case(alert, title, (at,) if isinstance(at, str) else at, series, {})


def _done(shard: str) -> str:
    return f'kai_scheduling_cycles_total{{job="kai-scheduler-{shard}",result="done"}}'


def _failed(shard: str) -> str:
    return f'kai_scheduling_cycles_total{{job="kai-scheduler-{shard}",result="failed"}}'


def _cycle_bucket(shard: str, le: str) -> str:
    return f'kai_e2e_scheduling_latency_histogram_milliseconds_bucket{{job="kai-scheduler-{shard}",le="{le}"}}'


def _usage(shard: str, name: str) -> str:
    return f'kai_usage_{name}{{job="kai-scheduler-{shard}"}}'


def _of_vision(name: str) -> str:
    return f'kai_queue_{name}{{queue_name="Vision",queue_metadata_name="vision",queue_display_name="Vision"}}'


def _reservation_bucket(le: str) -> str:
    return f'kai_binder_reservation_wait_seconds_bucket{{le="{le}"}}'


def _review_bucket(path: str, le: str) -> str:
    return f'kai_admission_review_duration_seconds_bucket{{path="{path}",le="{le}"}}'


_SCHEDULER = (
    _fires(
        "KaiSchedulerStopped",
        "one of two hangs",
        "15m",
        {_done("default"): "0+60x20", _done("large"): "9x20", _failed("large"): "0x20"},
        {"kai-scheduler-large completes no cycles: no pod is started": {"job": "kai-scheduler-large"}},
    ),
    _fires(
        "KaiSchedulerStopped",
        "one has completed none since it started: all fail",
        "15m",
        {_done("default"): "0x20", _failed("default"): "0+60x20"},
        {"kai-scheduler-default completes no cycles: no pod is started": {"job": "kai-scheduler-default"}},
    ),
    _fires(
        "KaiSchedulerStopped",
        "one of two has gone with its pod",
        "60m",
        {_done("default"): "0+60x60", _done("large"): "0+60x10 stale", _failed("large"): "0x10 stale"},
        {"kai-scheduler-large completes no cycles: no pod is started": {"job": "kai-scheduler-large"}},
    ),
    _fires(
        "KaiSchedulerStopped",
        "Prometheus has never seen one",
        "10m",
        {},
        {"No scheduler completes cycles: no pod is started": {}},
    ),
    _quiet(
        "KaiSchedulerStopped",
        "two work, and one was replaced by another pod",
        ("11m", "13m", "15m", "18m", "30m"),
        {
            _done("default"): "0+60x30",
            f'{_done("large")[:-1]},instance="old"}}': "0+60x10 stale",
            f'{_done("large")[:-1]},instance="new"}}': "_x13 0+60x17",
        },
    ),
    _quiet(
        "KaiSchedulerStopped",
        "one was removed on purpose, more than a day ago",
        "25h",
        {_done("default"): "0+60x1500", _done("large"): "0+60x10 stale"},
    ),
    _fires("KaiCyclesFail", "all of one", "25m", {_failed("large"): "0+1x30"}, {"Scheduling cycles fail": {}}),
    _quiet("KaiCyclesFail", "a single one", ("10m", "12m", "20m"), {_failed("large"): "0x2 1x30"}),
    _fires(
        "KaiCyclesSlow",
        "those of one, which does few, beside the many of another",
        "30m",
        {
            _cycle_bucket("default", "2048"): "0+6000x30",
            _cycle_bucket("default", "4096"): "0+6000x30",
            _cycle_bucket("default", "+Inf"): "0+6000x30",
            _cycle_bucket("large", "4096"): "0x30",
            _cycle_bucket("large", "8192"): "0+6x30",
            _cycle_bucket("large", "+Inf"): "0+6x30",
        },
        {"One of a hundred cycles of kai-scheduler-large takes longer than 4 seconds": {"job": "kai-scheduler-large"}},
    ),
    _quiet(
        "KaiCyclesSlow",
        "one in two hundred",
        "30m",
        {
            _cycle_bucket("large", "2048"): "0+995x30",
            _cycle_bucket("large", "4096"): "0+995x30",
            _cycle_bucket("large", "+Inf"): "0+1000x30",
        },
    ),
    _fires(
        "KaiSearchesEndEarly",
        "again and again",
        "150m",
        {'kai_scenario_search_action_budget_exhausted_total{action="reclaim"}': "0+1x150"},
        {"The budget of reclaim ends its searches for victims": {"action": "reclaim"}},
    ),
    _quiet(
        "KaiSearchesEndEarly",
        "once",
        ("60m", "89m", "100m"),
        {'kai_scenario_search_action_budget_exhausted_total{action="reclaim"}': "0x30 1x70"},
    ),
    _fires(
        "KaiBindsRefused",
        "twelve a minute",
        "30m",
        {"kai_bind_failures_total": "0+12x30"},
        {"The API server refuses binds": {}},
    ),
    _quiet("KaiBindsRefused", "three a minute", "30m", {"kai_bind_failures_total": "0+3x30"}),
    _fires(
        "KaiManyEvictions",
        "3200 pods in 20 minutes, each of a PodGroup of its own",
        "25m",
        {
            'kai_evicted_pods_total{action="reclaim"}': "0+160x20 3200x10",
            'kai_evicted_pods_total{action="preempt"}': "0x30",
            'kai_pod_group_evicted_pods_total{podgroup="a",action="reclaim"}': "_x9 1x20",
        },
        {"reclaim evicts more than a pod a second": {"action": "reclaim"}},
    ),
    _quiet(
        "KaiManyEvictions",
        "half a pod a second, with a burst",
        "30m",
        {'kai_evicted_pods_total{action="reclaim"}': "0+30x10 900+30x20"},
    ),
    _fires(
        "KaiConfigurationNotInUse",
        "a part",
        "10m",
        {'kai_configuration_problems{job="kai-scheduler-large"}': "1x10"},
        {"A part of the scheduler's configuration is not in use": {}},
    ),
    _quiet(
        "KaiConfigurationNotInUse",
        "for three minutes, while it was edited",
        ("4m", "10m"),
        {"kai_configuration_problems": "0 1x2 0x10"},
    ),
)
_TOO_OLD = "Usage of queues is too old, or was never fetched, and does not count for kai-scheduler-large"
_USAGE = (
    _fires(
        "KaiUsageIsOld",
        "one of two no longer gets it",
        "20m",
        {
            _usage("default", "last_fetch_timestamp_seconds"): "0+60x20",
            _usage("default", "staleness_period_seconds"): "300x20",
            _usage("large", "last_fetch_timestamp_seconds"): "60x20",
            _usage("large", "staleness_period_seconds"): "300x20",
        },
        {_TOO_OLD: {"job": "kai-scheduler-large"}},
    ),
    _fires(
        "KaiUsageIsOld",
        "it was never fetched: all attempts fail",
        "20m",
        {
            _usage("large", "last_fetch_timestamp_seconds"): "0x20",
            _usage("large", "staleness_period_seconds"): "300x20",
            _usage("large", "fetch_failures_total"): "0+1x20",
        },
        {_TOO_OLD: {"job": "kai-scheduler-large"}},
    ),
    _quiet(
        "KaiUsageIsOld",
        "it does not count",
        "20m",
        {
            _usage("large", "last_fetch_timestamp_seconds"): "0x20",
            _usage("large", "staleness_period_seconds"): "0x20",
        },
    ),
    _quiet(
        "KaiUsageIsOld",
        "it is fetched every half hour, and may be an hour old",
        ("29m", "59m"),
        {
            _usage("large", "last_fetch_timestamp_seconds"): "0x29 1800x30",
            _usage("large", "staleness_period_seconds"): "3600x60",
        },
    ),
)
_NO_LABEL = 'kai_topology_nodes_without_label{topology="net",label="rack"}'
_CLUSTER = (
    _fires(
        "KaiInvalidObjects",
        "two queues",
        "40m",
        {'kai_invalid_objects{kind="Queue"}': "2x40"},
        {"2 of Queue have a part that cannot be used": {"kind": "Queue"}},
    ),
    _quiet(
        "KaiInvalidObjects",
        "for twenty minutes",
        ("19m", "40m"),
        {'kai_invalid_objects{kind="Queue"}': "2x19 stale"},
    ),
    _fires(
        "KaiGpusScattered",
        "18 of 20 free ones, and work waits",
        "40m",
        {
            "kai_cluster_gpus": "80x40",
            "kai_cluster_gpus_used": "60x40",
            "kai_cluster_gpus_scattered": "18x40",
            _of_vision("pending_pods"): "3x40",
        },
        {"Work waits while most free GPUs are scattered over nodes in use": {}},
    ),
    _quiet(
        "KaiGpusScattered",
        "nothing waits",
        "40m",
        {
            "kai_cluster_gpus": "80x40",
            "kai_cluster_gpus_used": "60x40",
            "kai_cluster_gpus_scattered": "18x40",
            _of_vision("pending_pods"): "0x40",
        },
    ),
    _quiet(
        "KaiGpusScattered",
        "work waits because no GPU is free",
        "40m",
        {
            "kai_cluster_gpus": "80x40",
            "kai_cluster_gpus_used": "80x40",
            "kai_cluster_gpus_scattered": "0x40",
            _of_vision("pending_pods"): "3x40",
        },
    ),
    _fires(
        "KaiNodesOutsideTopology",
        "two of twelve",
        "70m",
        {_NO_LABEL: "2x70", 'kai_topology_nodes{topology="net"}': "10x70"},
        {"2 nodes lack the label rack of the Topology net": {"topology": "net", "label": "rack"}},
    ),
    _quiet(
        "KaiNodesOutsideTopology",
        "all: the Topology is of another cluster",
        "70m",
        {_NO_LABEL: "12x70", 'kai_topology_nodes{topology="net"}': "0x70"},
    ),
)
_QUEUES = (
    _fires(
        "KaiQueueWaitsBelowQuota",
        "work that wants GPUs",
        "40m",
        {
            _of_vision("pending_pods"): "5x40",
            _of_vision("pending_gpu_podgroups"): "1x40",
            _of_vision("allocated_gpus"): "2x40",
            _of_vision("deserved_gpus"): "8x40",
        },
        {"Work of queue vision waits for GPUs though it is below its quota of GPUs": {"queue_metadata_name": "vision"}},
    ),
    _quiet(
        "KaiQueueWaitsBelowQuota",
        "pods that want CPU only",
        "40m",
        {
            _of_vision("pending_pods"): "5x40",
            _of_vision("pending_gpu_podgroups"): "0x40",
            _of_vision("allocated_gpus"): "2x40",
            _of_vision("deserved_gpus"): "8x40",
        },
    ),
    _quiet(
        "KaiQueueWaitsBelowQuota",
        "the queue has its quota",
        "40m",
        {
            _of_vision("pending_pods"): "5x40",
            _of_vision("pending_gpu_podgroups"): "1x40",
            _of_vision("allocated_gpus"): "8x40",
            _of_vision("deserved_gpus"): "8x40",
        },
    ),
    _fires(
        "KaiQueueWaitsLong",
        "for 25 hours",
        "15m",
        {_of_vision("oldest_pending_seconds"): "90000+60x15"},
        {"Work in queue vision has waited for more than a day": {"queue_metadata_name": "vision"}},
    ),
    _quiet("KaiQueueWaitsLong", "for 22 hours", "15m", {_of_vision("oldest_pending_seconds"): "80000+60x15"}),
)
_MUTATE, _VALIDATE = "/mutate--v1-pod", "/validate--v1-pod"
_SERVICES = (
    _fires(
        "KaiBinderFails",
        "half",
        "35m",
        {
            "kai_binder_bind_attempts_total": "0+10x35",
            'kai_binder_bind_failures_total{reason="volumes"}': "0+5x35",
            'kai_binder_bind_failures_total{reason="node"}': "0x35",
        },
        {"More than a fifth of the binder's attempts fail": {}},
    ),
    _quiet(
        "KaiBinderFails",
        "a tenth",
        "35m",
        {
            "kai_binder_bind_attempts_total": "0+10x35",
            'kai_binder_bind_failures_total{reason="volumes"}': "0+1x35",
        },
    ),
    _quiet(
        "KaiBinderFails",
        "there is nothing to bind",
        "35m",
        {
            "kai_binder_bind_attempts_total": "10x35",
            'kai_binder_bind_failures_total{reason="volumes"}': "5x35",
        },
    ),
    _fires(
        "KaiReservationsSlow",
        "one in ten",
        "35m",
        {
            _reservation_bucket("15"): "0+9x35",
            _reservation_bucket("30"): "0+10x35",
            _reservation_bucket("+Inf"): "0+10x35",
        },
        {"Reservation pods take longer than 15 seconds to know their GPU": {}},
    ),
    _quiet(
        "KaiReservationsSlow",
        "one in a hundred",
        "35m",
        {
            _reservation_bucket("8"): "0+99x35",
            _reservation_bucket("15"): "0+99x35",
            _reservation_bucket("+Inf"): "0+100x35",
        },
    ),
    _fires(
        "KaiReservationsLost",
        "a pod",
        "8m",
        {"kai_binder_pods_deleted_missing_reservation_total": "0x5 1x10"},
        {"Running pods were deleted because the reservation of their GPU was gone": {}},
    ),
    _quiet(
        "KaiReservationsLost",
        "more than an hour ago",
        "70m",
        {"kai_binder_pods_deleted_missing_reservation_total": "0x5 1x80"},
    ),
    _fires(
        "KaiWebhooksSlow",
        "one of two paths",
        "30m",
        {
            _review_bucket(_MUTATE, "1"): "0+5x30",
            _review_bucket(_MUTATE, "2.5"): "0+10x30",
            _review_bucket(_MUTATE, "+Inf"): "0+10x30",
            _review_bucket(_VALIDATE, "1"): "0+10x30",
            _review_bucket(_VALIDATE, "+Inf"): "0+10x30",
        },
        {"One of a hundred reviews of /mutate--v1-pod takes longer than a second": {"path": _MUTATE}},
    ),
    _quiet(
        "KaiWebhooksSlow",
        "quick answers, and a path without any",
        "30m",
        {
            _review_bucket(_MUTATE, "0.5"): "0+10x30",
            _review_bucket(_MUTATE, "1"): "0+10x30",
            _review_bucket(_MUTATE, "+Inf"): "0+10x30",
            _review_bucket(_VALIDATE, "1"): "0x30",
            _review_bucket(_VALIDATE, "+Inf"): "0x30",
        },
    ),
    _fires(
        "KaiWebhookCertificateEnds",
        "that of one replica in less than a week",
        "70m",
        {
            'kai_admission_certificate_expiry_timestamp_seconds{pod="a"}': "600000x70",
            'kai_admission_certificate_expiry_timestamp_seconds{pod="b"}': "7000000x70",
        },
        {"The certificate of the webhooks ends in less than a week": {}},
    ),
    _quiet(
        "KaiWebhookCertificateEnds",
        "in eleven weeks, or it comes from files",
        "70m",
        {
            'kai_admission_certificate_expiry_timestamp_seconds{pod="a"}': "7000000x70",
            'kai_admission_certificate_expiry_timestamp_seconds{pod="b"}': "0x70",
        },
    ),
    _fires(
        "KaiControllerFails",
        "the operator",
        "35m",
        {'controller_runtime_reconcile_errors_total{controller="operator"}': "0+12x35"},
        {"The controller operator fails again and again": {"controller": "operator"}},
    ),
    _quiet(
        "KaiControllerFails",
        "one of another program does",
        "35m",
        {
            'controller_runtime_reconcile_errors_total{controller="operator"}': "0+1x35",
            'controller_runtime_reconcile_errors_total{controller="certificate"}': "0+60x35",
        },
    ),
    _fires(
        "KaiControllerBehind",
        "1500 objects",
        "20m",
        {'workqueue_depth{name="podgrouper"}': "1500x20"},
        {"More than 1000 objects wait for the controller podgrouper": {"name": "podgrouper"}},
    ),
    _quiet(
        "KaiControllerBehind",
        "500 objects, and more of another program",
        "20m",
        {'workqueue_depth{name="podgrouper"}': "500x20", 'workqueue_depth{name="certificate"}': "5000x20"},
    ),
)

CASES = (*_SCHEDULER, *_USAGE, *_CLUSTER, *_QUEUES, *_SERVICES)


def rule_test(case: Case, rules: str) -> dict[str, Any]:
    """What promtool reads; JSON of it is YAML."""
    (alert,) = (each for each in ALERTS if each.name == case.alert)
    expected = [
        {
            "exp_labels": {"severity": alert.severity, **labels},
            "exp_annotations": {"summary": summary, "description": alert.action},
        }
        for summary, labels in case.fires.items()
    ]
    return {
        "rule_files": [rules],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
                "alert_rule_test": [
                    {"eval_time": at, "alertname": case.alert, "exp_alerts": expected} for at in case.at
                ],
            }
        ],
    }
