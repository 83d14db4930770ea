"""What cannot work is refused before any of it is carried out (install:refusals)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.installation import ConfigSpec
from pykai.operator.desired import checking
from tests.operator.fieldchanges import field_paths
from tests.operator.installations import nested, objects, shard, states

WHOLE_OF_1 = "expected a whole number of at least 1"
WHOLE_OF_0 = "expected a whole number of at least 0"
PORT = f"{WHOLE_OF_1} and at most 65535"
NUMA = {"numaPlacementExporter": {"service": {"enabled": True}, "pollInterval": "soon"}}


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        # what a service reads from its command line
        (
            nested("podGrouper.maxConcurrentReconciles", 0),
            f"spec.podGrouper.maxConcurrentReconciles: '0': {WHOLE_OF_1}",
        ),
        (nested("podGroupController.maxConcurrentReconciles", -1), "spec.podGroupController.maxConcurrentReconciles: "),
        (nested("binder.maxConcurrentReconciles", 0), "spec.binder.maxConcurrentReconciles: "),
        (nested("queueController.queueLabelToMetricLabel", "team"), "spec.queueController.queueLabelToMetricLabel: "),
        (
            nested("queueController.queueLabelToDefaultMetricValue", "team"),
            "spec.queueController.queueLabelToDefaultMetricValue: ",
        ),
        (
            nested("nodeScaleAdjuster.args.gpuMemoryToFractionRatio", 0),
            "spec.nodeScaleAdjuster.args.gpuMemoryToFractionRatio: '0.0': expected a number of more than 0",
        ),
        (
            nested("binder.resourceReservation.allocationTimeout", 0),
            "spec.binder.resourceReservation.allocationTimeout: ",
        ),
        (nested("binder.plugins.mine", {}), "spec.binder: failed to get binder plugin mine: there is no such plugin"),
        (
            nested("binder.plugins.gpusharing.arguments", {"cdi": "true"}),
            "spec.binder.plugins: gpusharing.arguments.cdiEnabled is missing",
        ),
        (NUMA, "spec.numaPlacementExporter.pollInterval: 'soon': expected a duration such as 1m30s"),
        (
            nested("global.queueAdmissionGating", {"enabled": True, "reservationTimeout": "soon"}),
            "spec.global.queueAdmissionGating.reservationTimeout: 'soon': expected a duration",
        ),
        # what only the API server would read
        (nested("admission.webhook.targetPort", 70000), f"spec.admission.webhook.targetPort: 70000: {PORT}"),
        (nested("scheduler.schedulerService.port", 0), f"spec.scheduler.schedulerService.port: 0: {PORT}"),
        (nested("global.replicaCount", -1), f"spec.global.replicaCount: -1: {WHOLE_OF_0}"),
        (nested("binder.replicas", -1), f"spec.binder.replicas: -1: {WHOLE_OF_0}"),
        (
            nested("admission.service.podDisruptionBudget.maxUnavailable", -1),
            "spec.admission.service.podDisruptionBudget.maxUnavailable: -1: ",
        ),
        (
            nested("binder.resourceReservation.podResources.limits", {"cpu": "lots"}),
            "spec.binder.resourceReservation.podResources.limits.cpu: 'lots': expected a quantity such as 500m or 2Gi",
        ),
        (
            nested("scheduler.service.resources.requests", {"memory": "-1Gi"}),
            "spec.scheduler.service.resources.requests.memory: '-1Gi': expected a quantity that is not negative",
        ),
        (nested("podGrouper.k8sClientConfig.qps", 0), f"spec.podGrouper.k8sClientConfig.qps: 0: {WHOLE_OF_1}"),
        (nested("binder.volumeBindingTimeoutSeconds", 0), "spec.binder.volumeBindingTimeoutSeconds: 0: "),
        (nested("prometheus.storageSize", "big"), "spec.prometheus.storageSize: 'big': expected a quantity"),
    ],
)
def test_a_config_that_cannot_work_is_refused_with_its_path(spec: dict[str, Any], refusal: str) -> None:
    """operations:O-49"""
    own, of_shard = states(spec)
    assert own.refusal.startswith(refusal)
    assert own.operands == {}
    # Its settings are those of the schedulers, too.
    assert of_shard.refusal == f"Config kai-config: {own.refusal}"
    assert of_shard.operands == {}
    assert of_shard.is_waiting


def test_what_is_switched_off_needs_no_command_line() -> None:
    spec = {"numaPlacementExporter": {"service": {"enabled": False}, "pollInterval": "soon"}}
    assert not states(spec)[0].refusal


def test_every_number_that_is_checked_is_a_field_of_a_config() -> None:
    there = {path.rpartition(".")[2] for path, _ in field_paths(ConfigSpec)}
    assert checking._READERS.keys() <= there


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        (nested("actions.backfil", {}), "spec.actions.backfil: unknown action 'backfil'; known are allocate"),
        (nested("actions", {"allocate,wrong": {}}), "spec.actions.wrong: unknown action 'wrong'"),
        (nested("queueDepthPerAction.allocate", -1), f"spec.queueDepthPerAction.allocate: -1: {WHOLE_OF_0}"),
        (
            nested("minRuntime.preemptMinRuntime", "soon"),
            "spec.minRuntime.preemptMinRuntime: 'soon': expected a duration such as 10m or 1d",
        ),
        (nested("minRuntime.reclaimMinRuntime", "-1m"), "spec.minRuntime.reclaimMinRuntime: '-1m': "),
        (
            nested("usageDBConfig.clientType", "promtheus"),
            "spec.usageDBConfig.clientType: unknown client type 'promtheus'; supported are builtin, prometheus",
        ),
        (
            nested("usageDBConfig", {"clientType": "builtin", "usageParams": {"windowSize": "soon"}}),
            "spec.usageDBConfig.usageParams.windowSize: 'soon' is not a duration",
        ),
        (
            nested("usageDBConfig", {"clientType": "builtin", "usageParams": {"windowType": "tumbling"}}),
            "spec.usageDBConfig.usageParams.tumblingWindowStartTime: ",
        ),
    ],
)
def test_a_shard_that_cannot_work_is_refused_with_its_path(spec: dict[str, Any], refusal: str) -> None:
    """operations:O-8"""
    own, of_shard = states(None, shard(spec))
    assert not own.refusal
    assert of_shard.refusal.startswith(refusal)
    # What a scheduler would do about it does not come to pass.
    assert "is used" not in of_shard.refusal
    assert "not taken into account" not in of_shard.refusal
    assert of_shard.operands == {}


@pytest.mark.parametrize(
    ("spec", "left_out"),
    [
        (nested("plugins.mine.arguments", {"key": "value"}), ""),
        (nested("plugins.elastic.arguments", {"key": "value"}), "spec.plugins.elastic.arguments.key: unknown argument"),
        (
            nested("plugins.minruntime.arguments", {"defaultPreemptMinRuntime": "soon"}),
            "spec.plugins.minruntime.arguments.defaultPreemptMinRuntime: 'soon': expected a duration",
        ),
        (
            nested("scenarioSearchBudgets.maxGeneratorSearchDuration", {"Mine": "1m"}),
            "spec.scenarioSearchBudgets.maxGeneratorSearchDuration.Mine: unknown key",
        ),
        (
            nested("usageDBConfig", {"clientType": "builtin", "usageParams": {"extraParams": {"key": "value"}}}),
            "spec.usageDBConfig.usageParams.extraParams.key: unknown key",
        ),
    ],
)
def test_what_a_scheduler_skips_is_named_and_stops_nothing(spec: dict[str, Any], left_out: str) -> None:
    """cycle:CYC-3; queues:Q-308; what third parties have added is for the scheduler to judge."""
    of_shard = states(None, shard(spec))[1]
    assert not of_shard.refusal
    assert of_shard.operands
    assert [str(each)[: len(left_out)] for each in of_shard.left_out] == ([left_out] if left_out else [])


def test_a_plugin_that_an_operator_does_not_know_is_passed_on() -> None:
    """operations:O-7"""
    found = objects(None, shard(nested("plugins.mine.arguments", {"key": "value"})))
    assert "name: mine" in found["ConfigMap", "kai-scheduler-default"]["data"]["config.yaml"]
