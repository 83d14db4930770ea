"""Prometheus and the exporter of NUMA placements."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.desired.prometheus import DEPRECATED_ANNOTATION
from tests.operator.installations import main, nested, objects, shard, states

KNOWS = ClusterFacts(has_prometheus=True, has_service_monitors=True)
WANTED = nested("prometheus.enabled", True)
#: 2026-01-15
NOW_S = 1_768_435_200.0
DAY_S = 86_400.0
NUMA = "numa-placement-exporter"


def of_prometheus(spec: dict[str, Any], facts: ClusterFacts) -> list[str]:
    return sorted(
        f"{each['kind']} {each['metadata']['name']}" for each in states(spec, facts=facts)[0].operands["KAI-prometheus"]
    )


#: ours beside KAI's two
OTHER_MONITORS = ["admission", "binder", "node-scale-adjuster", "pod-grouper", "podgroup-controller", "scheduler"]
#: of what the operator does not deploy
FOREIGN_MONITORS = ["kai-operator", "kube-state-metrics"]
MONITORS = [f"ServiceMonitor {name}" for name in sorted([*OTHER_MONITORS, *FOREIGN_MONITORS, "queue-controller"])]


def test_a_prometheus_reads_queues_and_nodes() -> None:
    """operations:O-44."""
    assert of_prometheus(WANTED, KNOWS) == [
        "Prometheus prometheus",
        "Service usage-prometheus",
        "ServiceAccount prometheus",
        *MONITORS,
    ]
    found = objects(WANTED, facts=KNOWS)
    accounting = {"kai.scheduler/accounting": "true"}
    assert found["Prometheus", "prometheus"]["spec"]["serviceMonitorSelector"] == {"matchLabels": accounting}
    queues = found["ServiceMonitor", "queue-controller"]
    assert queues["metadata"]["labels"] == accounting
    assert queues["spec"]["selector"] == {"matchLabels": {"app": "queue-controller"}}
    (endpoint,) = queues["spec"]["endpoints"]
    ports = found["Service", "queue-controller"]["spec"]["ports"]
    assert endpoint["port"] in [each["name"] for each in ports]
    assert found["Service", "queue-controller"]["metadata"]["labels"]["app"] == "queue-controller"


def test_an_external_prometheus_needs_monitors_only() -> None:
    """operations:O-45."""
    outside = {"prometheus": {"enabled": True, "externalPrometheusUrl": "http://p.test"}}
    assert of_prometheus(outside, KNOWS) == MONITORS
    assert of_prometheus(outside, ClusterFacts()) == []
    assert states(outside)[0].missing == {}


@pytest.mark.parametrize("name", [*OTHER_MONITORS, "queue-controller", NUMA])
def test_a_monitor_selects_services_with_its_port(name: str) -> None:
    """operations:OD-17: of every component, and of the schedulers of all shards."""
    renamed = nested("queueController.controllerService.metrics.name", "m")
    spec = WANTED | renamed | nested("numaPlacementExporter.service.enabled", True)
    found = objects(spec, shard(), shard(name="other"), facts=KNOWS)
    monitor = found["ServiceMonitor", name]["spec"]
    assert monitor["namespaceSelector"] == {"matchNames": ["kai-scheduler"]}
    wanted, (endpoint,) = monitor["selector"]["matchLabels"].items(), monitor["endpoints"]
    selected = [
        each
        for (kind, _), each in found.items()
        if kind == "Service" and wanted <= each["metadata"].get("labels", {}).items()
    ]
    assert len(selected) == (2 if name == "scheduler" else 1)
    for each in selected:
        assert endpoint["port"] in [port["name"] for port in each["spec"]["ports"]]
        assert ("DaemonSet" if name == NUMA else "Deployment", each["spec"]["selector"]["app"]) in found


def test_what_is_not_deployed_is_not_monitored() -> None:
    """operations:OD-17."""
    off = {"service": {"enabled": False}}
    spec = WANTED | {"binder": off, "scheduler": off, "podGrouper": off}
    listed = of_prometheus(spec, KNOWS)
    gone = {f"ServiceMonitor {name}" for name in ("binder", "scheduler", "pod-grouper")}
    assert gone.isdisjoint(listed)
    assert set(MONITORS) - gone <= set(listed)
    assert f"ServiceMonitor {NUMA}" not in listed


def test_the_prometheus_operator_is_missed() -> None:
    """operations:O-46, O-37, OC-17."""
    assert states(WANTED)[0].missing == {"KAI-prometheus": "prometheus operator"}
    assert states(WANTED, facts=KNOWS)[0].missing == {}
    assert states(WANTED)[1].missing == {}


def live(annotations: dict[str, str] | None = None, retention: str = "2w") -> ClusterFacts:
    metadata = {"name": "prometheus", "namespace": "kai-scheduler", "annotations": annotations or {}}
    return ClusterFacts(
        has_prometheus=True, prometheus={"metadata": metadata, "spec": {"retention": retention}}, now_s=NOW_S
    )


def since(text: str) -> dict[str, str]:
    return {DEPRECATED_ANNOTATION: text}


@pytest.mark.parametrize(
    ("annotations", "retention", "kept"),
    [
        ({}, "2w", "2026-01-15T00:00:00Z"),
        (since("2026-01-10T00:00:00Z"), "2w", "2026-01-10T00:00:00Z"),
        (since("yesterday"), "2w", "2026-01-15T00:00:00Z"),
        (since("2025-12-31T00:00:00Z"), "2w", None),
        (since("2025-12-31T00:00:00Z"), "forever", "2025-12-31T00:00:00Z"),
        (since("2025-12-10T00:00:00Z"), "forever", None),
    ],
    ids=["just now", "for some days", "a bad time", "past its retention", "within a month", "past a month"],
)
def test_data_is_kept_after_prometheus_is_switched_off(
    annotations: dict[str, str], retention: str, kept: str | None
) -> None:
    """operations:O-47, OC-16."""
    found = objects(facts=live(annotations, retention)).get(("Prometheus", "prometheus"))
    assert (found and found["metadata"]["annotations"][DEPRECATED_ANNOTATION]) == kept


def test_a_prometheus_that_is_wanted_again_is_not_marked() -> None:
    """operations:OC-16."""
    facts = live(since("2026-01-10T00:00:00Z"))
    assert "annotations" not in objects(WANTED, facts=facts)["Prometheus", "prometheus"]["metadata"]


@pytest.mark.parametrize(
    ("said", "plugin", "deployed"),
    [
        (None, None, False),
        (None, True, True),
        (None, False, False),
        (False, True, False),
        (True, None, True),
    ],
)
def test_the_numa_exporter_follows_the_plugin_by_default(
    said: bool | None, plugin: bool | None, deployed: bool
) -> None:
    """operations:O-31, OC-15; gpu:T-113."""
    given = {} if said is None else nested("numaPlacementExporter.service.enabled", said)
    other = shard(name="other") if plugin is None else shard(nested("plugins.numa.enabled", plugin), "other")
    assert (("DaemonSet", NUMA) in objects(given, shard(), other)) == deployed


def test_the_numa_exporter_reads_the_kubelet() -> None:
    """operations:O-26, O-31; gpu:X-1."""
    given = {
        "global": {
            "nodeSelector": {"a": "b"},
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"key": "no"}],
            "daemonsetsTolerations": [{"key": "yes"}],
        },
        "numaPlacementExporter": {"service": {"enabled": True}, "tolerations": [{"key": "own"}]},
    }
    found = objects(given)
    pod = found["DaemonSet", NUMA]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"feature.node.kubernetes.io/memory-numa": "true"}
    assert pod["tolerations"] == [{"key": "yes"}, {"key": "own"}]
    assert "affinity" not in pod
    container = main(found, NUMA, "DaemonSet")
    assert container["args"] == [
        "--podresources-socket=/var/lib/kubelet/pod-resources/kubelet.sock",
        "--sysfs-root=/host/sys",
        "--poll-interval=1s",
        "--drift-resync-interval=60s",
        "--metrics-bind-address=:8080",
    ]
    assert container["env"][0]["name"] == "NODE_NAME"
    assert container["securityContext"]["runAsUser"] == 0
    assert [mount["mountPath"] for mount in container["volumeMounts"]][:2] == [
        "/var/lib/kubelet/pod-resources",
        "/host/sys",
    ]
