"""Metrics of the steps of cycles, of searches and of the cluster, as Prometheus reads them."""

from __future__ import annotations

from itertools import count

import pytest
from prometheus_client import CollectorRegistry

from pykai.core.clusterfigures import ClusterFigures, TopologyFigures, WaitingFigures, cluster_figures
from pykai.core.schedule import schedule
from pykai.observe.metrics import Metrics
from pykai.scheduler.cyclemetrics import FOUND_WITHOUT_TRYING, CycleMetrics
from pykai.scheduler.metrics import SchedulerMetrics
from tests.core.builders import NOW_NS, cluster
from tests.core.eviction.searching import one_per_node
from tests.core.test_listening import claim


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"kai_{name}", labels)


def test_a_step_takes_the_time_since_the_one_before() -> None:
    """operations:8, cycle:20: with a clock that advances by a second with each look."""
    make = Metrics("kai")
    built = claim()
    schedule(built.tables().snapshot(NOW_NS), built.policy(), listener=CycleMetrics(make, count().__next__))
    found = make.registry
    for named in built.policy().plugins:
        labels = {"plugin": named.name, "OnSession": "OnSessionOpen"}
        assert value(found, "plugin_scheduling_latency_milliseconds", **labels) == 1000
    assert value(found, "action_scheduling_latency_milliseconds", action="allocate") == 1000
    reclaimed = value(found, "action_scheduling_latency_milliseconds", action="reclaim")
    assert reclaimed is not None
    assert reclaimed > 1000, "its search looks at the clock, too"
    assert value(found, "action_scheduling_latency_histogram_milliseconds_sum", action="reclaim") == reclaimed


def test_sets_of_victims_are_counted_by_what_became_of_them() -> None:
    """operations:8, cycle:20."""
    make = Metrics("kai")
    built = one_per_node(2, 1)
    schedule(built.tables().snapshot(NOW_NS), built.policy(), listener=CycleMetrics(make, count().__next__))
    local = {"action": "preempt", "generator": "NodeLocalGreedy"}
    states = ("emitted", "simulated", "duplicate", "validator_rejected")
    emitted, simulated, duplicate, rejected = (
        value(make.registry, "scenario_search_scenarios_total", state=state, **local) for state in states
    )
    assert (emitted, simulated, duplicate, rejected) == (3, 2, 1, None)
    assert value(make.registry, "scenario_search_duration_seconds_count", result="unsolved", **local) == 1
    assert value(make.registry, "scenario_search_duration_seconds_count", result="generators_exhausted", **local) == 2
    both = value(make.registry, "scenarios_simulation_by_action", action="preempt")
    assert both == 3, "the other generator has one that is new to it"
    jobs = {"action": "preempt", "reduced_budget": "false"}
    assert value(make.registry, "scenario_search_jobs_total", result="generators_exhausted", **jobs) == 1


def test_sets_that_cannot_suffice_and_searches_without_any() -> None:
    """operations:8, cycle:SOL-8: KAI has no word for a search that ends before the first set."""
    metrics = CycleMetrics(make := Metrics("kai"), count().__next__)
    metrics.action_began("reclaim")
    metrics.scenarios_left_out(2)
    metrics.search_ended(FOUND_WITHOUT_TRYING, reduced_budget=True)
    assert value(make.registry, "scenarios_filtered_by_action", action="reclaim") == 2
    jobs = {"action": "reclaim", "reduced_budget": "true", "result": "generators_exhausted"}
    assert value(make.registry, "scenario_search_jobs_total", **jobs) == 1


def test_series_of_topologies_and_nodes_end_with_them() -> None:
    """topo:TD-16; operations:OD-17."""
    metrics = SchedulerMetrics()
    topologies = {"net": TopologyFigures(3, {"rack": 2})}
    metrics.cluster.publish(ClusterFigures(8, 5, 1, {0: 1, 3: 2}, topologies))
    found = metrics.registry
    assert value(found, "cluster_gpus") == 8
    assert value(found, "cluster_gpus_used") == 5
    assert value(found, "cluster_gpus_scattered") == 1
    assert value(found, "cluster_nodes_by_free_gpus", free_gpus="3") == 2
    assert value(found, "topology_nodes", topology="net") == 3
    assert value(found, "topology_nodes_without_label", topology="net", label="rack") == 2
    metrics.observe_bind(0.25, None, "a", "q")
    metrics.observe_bind(0.75, None, "a", "q")
    metrics.observe_bind(0.5, None, "b", "q")
    assert value(found, "node_bind_latency_milliseconds_sum", node="a") == 1000
    metrics.cluster.publish(ClusterFigures())
    metrics.cluster.keep_nodes({"b"})
    assert value(found, "topology_nodes", topology="net") is None
    assert value(found, "topology_nodes_without_label", topology="net", label="rack") is None
    assert value(found, "node_bind_latency_milliseconds_count", node="a") is None
    assert value(found, "node_bind_latency_milliseconds_count", node="b") == 1


def test_queues_show_what_they_want_and_what_waits() -> None:
    """operations:OD-17."""
    built = cluster(nodes=1, gpus=2).queue("q").gang("runs", gpu=1, on="node-0").gang("waits", 2, gpu=2, age=90)
    result = built.schedule()
    metrics = SchedulerMetrics()
    metrics.record_plan(result.plan, None, cluster_figures(result.cycle.context.snapshot, result.plan))
    labels = {"queue_name": "q", "queue_metadata_name": "q", "queue_display_name": "q"}
    wanted = {
        "queue_requested_gpus": 5,
        "queue_pending_podgroups": 1,
        "queue_pending_gpu_podgroups": 1,
        "queue_pending_pods": 2,
        "queue_oldest_pending_seconds": 90,
    }
    assert {name: value(metrics.registry, name, **labels) for name in wanted} == wanted
    metrics.record_plan(result.plan, None, ClusterFigures(waiting={"q": WaitingFigures()}))
    assert value(metrics.registry, "queue_oldest_pending_seconds", **labels) == 0


@pytest.mark.parametrize(
    ("name", "label", "values"),
    [
        ("evicted_pods_total", "action", {"consolidation", "reclaim", "preempt", "stalegangeviction"}),
        ("scenario_search_action_budget_exhausted_total", "action", {"consolidation", "reclaim", "preempt"}),
        ("scheduling_cycles_total", "result", {"done", "failed"}),
    ],
)
def test_what_alerts_take_rates_of_begins_at_nothing(name: str, label: str, values: set[str]) -> None:
    """operations:OD-17: a rate never counts the first sample of a series."""
    found = SchedulerMetrics().registry
    assert {value(found, name, **{label: each}) for each in values} == {0}
    listed = [each for family in found.collect() for each in family.samples if each.name == f"kai_{name}"]
    assert {each.labels[label] for each in listed} == values


def test_how_long_pods_waited_is_known_by_queue_while_the_queue_exists() -> None:
    """operations:OD-17: a queue that no cycle has seen gets no series, because none would end it."""
    metrics = SchedulerMetrics()
    plan = cluster(nodes=1).queue("q").schedule().plan
    metrics.record_plan(plan)
    metrics.observe_bind(0.1, 70.0, "a", "q")
    metrics.observe_bind(0.1, 70.0, "a", "unknown")
    name = "queue_pending_seconds"
    assert value(metrics.registry, f"{name}_bucket", queue_metadata_name="q", le="60.0") == 0
    assert value(metrics.registry, f"{name}_bucket", queue_metadata_name="q", le="300.0") == 1
    assert value(metrics.registry, f"{name}_count", queue_metadata_name="unknown") is None
    metrics.record_plan(cluster(nodes=1).queue("other").schedule().plan)
    assert value(metrics.registry, f"{name}_count", queue_metadata_name="q") is None
