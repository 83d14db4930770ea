"""The objects of a SchedulingShard."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from pykai.operator.desired.facts import ClusterFacts, LeaderPod
from pykai.operator.desired.settings import Settings
from pykai.operator.desired.shards import lease_name
from pykai.scheduler.config.configuration import load_configuration
from tests.operator.installations import args_of, config, main, nested, objects, shard, states

NAME = "kai-scheduler-default"


def configuration(spec: dict[str, Any] | None = None, of: dict[str, Any] | None = None) -> dict[str, Any]:
    """The configuration file of a shard."""
    content: dict[str, Any] = yaml.safe_load(objects(of, shard(spec))["ConfigMap", NAME]["data"]["config.yaml"])
    return content


def plugins(spec: dict[str, Any] | None = None) -> list[str]:
    """The plugins in their order."""
    (tier,) = configuration(spec)["tiers"]
    return [plugin["name"] for plugin in tier["plugins"]]


def arguments(name: str, spec: dict[str, Any]) -> dict[str, str]:
    """The arguments of a plugin."""
    (tier,) = configuration(spec)["tiers"]
    (found,) = (plugin for plugin in tier["plugins"] if plugin["name"] == name)
    return dict(found.get("arguments", {}))


def refusal(spec: dict[str, Any], of: dict[str, Any] | None = None) -> str:
    """Why a shard is not deployed."""
    state = states(of, shard(spec))[1]
    assert state.operands == {}
    return state.refusal


def test_the_configuration_of_a_plain_shard() -> None:
    """operations:O-8, O-12, OC-10; cycle:CFG-3 to CFG-5."""
    content = configuration()
    assert content["actions"] == "allocate, consolidation, reclaim, preempt, stalegangeviction"
    assert content.keys() == {"actions", "tiers"}
    assert plugins() == [
        "predicates",
        "proportion",
        "priority",
        "nodeavailability",
        "resourcetype",
        "podaffinity",
        "elastic",
        "kubeflow",
        "ray",
        "subgrouporder",
        "taskorder",
        "nominatednode",
        "dynamicresources",
        "minruntime",
        "topology",
        "snapshot",
        "sg-nodelocalgreedy",
        "sg-multinodegang",
        "gpupack",
        "nodeplacement",
        "gpusharingorder",
    ]
    assert arguments("nodeplacement", {}) == {"cpu": "binpack", "gpu": "binpack"}


def test_spreading_shards_do_not_consolidate() -> None:
    """operations:O-6, OC-10; gpu:F-10."""
    spread = {"placementStrategy": {"gpu": "spread", "cpu": "spread"}}
    assert "consolidation" not in configuration(spread)["actions"]
    assert "gpuspread" in plugins(spread)
    assert not {"gpupack", "gpusharingorder"} & set(plugins(spread))
    only_cpu = nested("placementStrategy.cpu", "spread")
    assert "consolidation" not in configuration(only_cpu)["actions"]
    assert "gpupack" in plugins(only_cpu)
    assert arguments("nodeplacement", only_cpu) == {"cpu": "spread", "gpu": "binpack"}


def test_plugins_and_actions_are_changed_field_by_field() -> None:
    """operations:O-7, OC-11; queues:Q-349."""
    assert "elastic" not in plugins(nested("plugins.elastic.enabled", False))
    assert plugins(nested("plugins.predicates.priority", 50))[-1] == "predicates"
    with_foo = plugins(nested("plugins.foo.priority", 1050))
    assert with_foo[with_foo.index("ray") : with_foo.index("subgrouporder")] == ["ray", "foo"]
    assert plugins({"plugins": {"foo": {}, "bar": {}}})[-2:] == ["bar", "foo"]
    assert "consolidation" not in configuration(nested("actions.consolidation.enabled", False))["actions"]
    assert configuration(nested("actions.reclaim.priority", 450))["actions"].startswith("allocate, reclaim")
    replaced = {"kValue": 2, "plugins": {"proportion": {"arguments": {"mine": "1"}}}}
    assert arguments("proportion", replaced) == {"mine": "1"}


def test_short_forms_become_arguments_of_plugins() -> None:
    """queues:Q-309, Q-349."""
    runtimes = {"minRuntime": {"preemptMinRuntime": "5m", "reclaimMinRuntime": "1h"}}
    assert arguments("minruntime", runtimes) == {"defaultPreemptMinRuntime": "5m", "defaultReclaimMinRuntime": "1h"}
    assert arguments("proportion", {"kValue": 0.5}) == {"kValue": "0.5"}


def test_the_depth_of_an_action_that_does_not_run_is_refused() -> None:
    """operations:O-9, OC-12."""
    spec = {"queueDepthPerAction": {"consolidation": 5}, "placementStrategy": {"gpu": "spread"}}
    assert refusal(spec) == (
        "the scheduler's actions are allocate, reclaim, preempt, stalegangeviction. consolidation isn't one of them,"
        " making the queueDepthPerAction invalid"
    )
    assert configuration({"queueDepthPerAction": {"consolidation": 5}})["queueDepthPerAction"] == {"consolidation": 5}


@pytest.mark.parametrize(
    ("budgets", "text"),
    [
        (
            {"maxActionSearchDuration": {"allocate": "1m"}},
            'maxActionSearchDuration contains invalid action key "allocate"; valid action keys: default, reclaim,'
            " preempt, consolidation",
        ),
        ({"maxActionSearchDuration": {"reclaim": "-1m"}}, 'maxActionSearchDuration["reclaim"] must be non-negative'),
        ({"maxGeneratorSearchDuration": {"x": "-1m"}}, 'maxGeneratorSearchDuration["x"] must be non-negative'),
        ({"maxJobSearchDuration": "-1m"}, "maxJobSearchDuration must be non-negative"),
        (
            {"maxJobSearchDuration": "1m", "minJobSearchDuration": "1m"},
            "minJobSearchDuration must be less than maxJobSearchDuration",
        ),
        ({"minJobSearchDuration": "5m"}, "minJobSearchDuration must be less than maxJobSearchDuration"),
    ],
)
def test_budgets_that_cannot_be_are_refused(budgets: dict[str, Any], text: str) -> None:
    """operations:O-10."""
    assert refusal({"scenarioSearchBudgets": budgets}) == text


def test_a_job_without_a_limit_may_have_any_minimum() -> None:
    """operations:O-10."""
    budgets = {"maxJobSearchDuration": "0s", "minJobSearchDuration": "5m"}
    assert configuration({"scenarioSearchBudgets": budgets})["scenarioSearchBudgets"] == budgets


def test_usage_comes_from_the_prometheus_that_there_is() -> None:
    """operations:O-11; queues:Q-336."""
    asked = nested("usageDBConfig.clientType", "prometheus")
    inside = configuration(asked, nested("prometheus.enabled", True))
    assert inside["usageDBConfig"]["connectionString"] == (
        "http://usage-prometheus.kai-scheduler.svc.cluster.local:9090"
    )
    both = {"prometheus": {"enabled": True, "externalPrometheusUrl": "http://p.test"}}
    assert configuration(asked, both)["usageDBConfig"] == inside["usageDBConfig"]
    outside = configuration(asked, nested("prometheus.externalPrometheusUrl", "http://p.test"))
    assert outside["usageDBConfig"]["connectionString"] == "http://p.test"
    assert refusal(asked) == (
        "prometheus connection string not configured: either enable internal prometheus or configure external TSDB"
        " connection URL"
    )
    own = {"usageDBConfig": {"clientType": "prometheus", "connectionString": "http://mine.test"}}
    assert configuration(own)["usageDBConfig"]["connectionString"] == "http://mine.test"


def test_the_scheduler_reads_what_is_written() -> None:
    spec = {
        "queueDepthPerAction": {"reclaim": 5},
        "scenarioSearchBudgets": {"maxJobSearchDuration": "1m"},
        "kValue": 2,
        "plugins": {"numa": {"enabled": True}},
    }
    text = objects(None, shard(spec))["ConfigMap", NAME]["data"]["config.yaml"]
    read = load_configuration(text)
    assert read.problems == ()
    assert read.policy.queue_depth == {"reclaim": 5}


def test_the_command_line_of_a_shard() -> None:
    """operations:O-13, OC-13."""
    spec = {"partitionLabelValue": "pool-a", "args": {"v": "5", "full-hierarchy-fairness": "false", "nonsense": "1"}}
    found = args_of(objects(nested("scheduler.replicas", 2), shard(spec)), NAME)
    expected = [
        "--scheduler-conf=/etc/config/config.yaml",
        "--scheduler-name=kai-scheduler",
        "--namespace=kai-scheduler",
        "--nodepool-label-key=kai.scheduler/node-pool",
        "--partition-label-value=pool-a",
        "--resource-reservation-app-label=kai-resource-reservation",
        "--queue-label-key=kai.scheduler/queue",
        "--listen-address=:8080",
        "--full-hierarchy-fairness=false",
        "--v=5",
        "--leader-elect=true",
    ]
    assert [arg for arg in found if arg in expected] == expected
    assert not [arg for arg in found if "nonsense" in arg]


def test_flags_that_do_not_exist_are_left_out_and_named() -> None:
    """operations:E-19, OD-3, OC-13."""
    spec = {"args": {"knative-gang-schedule": "true", "schedul-period": "2s", "v": "5"}}
    left_out = [str(each) for each in states(None, shard(spec))[1].left_out]
    assert left_out == [
        "spec.args.knative-gang-schedule: the scheduler has no flag --knative-gang-schedule",
        "spec.args.schedul-period: the scheduler has no flag --schedul-period; did you mean schedule-period?",
    ]


@pytest.mark.parametrize(
    ("spec", "start"),
    [
        ({"args": {"schedule-period": "soon"}}, "spec.args.schedule-period: 'soon'"),
        ({"placementStrategy": {"gpu": "pile"}}, "spec.placementStrategy.gpu: 'pile': expected binpack or spread"),
        ({"scenarioSearchBudgets": {"maxJobSearchDuration": "x"}}, "spec.scenarioSearchBudgets.maxJobSearchDuration"),
        ({"goMemLimit": "0"}, "goMemLimit must be greater than zero"),
        ({"goMemLimit": "many"}, "spec.goMemLimit: "),
        ({"goMemLimitRatio": 1.5}, "spec.goMemLimitRatio: 1.5: expected more than 0 and at most 1"),
    ],
)
def test_what_cannot_work_is_refused_with_its_path(spec: dict[str, Any], start: str) -> None:
    assert refusal(spec).startswith(start)


def test_a_shard_that_is_refused_stops_no_other() -> None:
    bad, good = shard({"placementStrategy": {"gpu": "pile"}}, "bad"), shard(name="good")
    found = objects(None, bad, good)
    assert ("Deployment", "kai-scheduler-good") in found
    assert ("Deployment", "binder") in found


def test_the_template_changes_with_the_configuration() -> None:
    """operations:O-14, OD-10."""

    def version(spec: dict[str, Any] | None = None) -> str:
        template = objects(None, shard(spec))["Deployment", NAME]["spec"]["template"]
        return str(template["metadata"]["annotations"]["configMapVersion"])

    assert version() == version()
    assert version(nested("placementStrategy.gpu", "spread")) != version()
    assert version({"args": {"v": "5"}}) != version()


def test_the_config_map_has_the_command_line_too() -> None:
    found = objects(None, shard({"args": {"v": "5"}}))
    assert json.loads(found["ConfigMap", NAME]["data"]["args"]) == args_of(found, NAME)


def test_the_old_scheduler_ends_before_the_new_one_starts() -> None:
    """operations:1.1."""
    found = objects()
    assert found["Deployment", NAME]["spec"]["strategy"] == {"type": "Recreate"}
    assert main(found, NAME)["volumeMounts"][-1] == {"name": "config", "mountPath": "/etc/config"}


@pytest.mark.parametrize(("pool", "lease"), [("", "kai-scheduler"), ("dra", "kai-scheduler-dra")])
def test_replicas_of_a_shard_compete_for_one_lease(pool: str, lease: str) -> None:
    """operations:6."""
    assert lease_name(Settings(config().spec), shard(nested("partitionLabelValue", pool))) == lease


def slices(replicas: int, address: str = "") -> list[tuple[str, str, list[str], int]]:
    """Name, type, addresses and port of the slices of a shard."""
    leaders = {"default": LeaderPod("pod-a", "uid-a", address)} if address else {}
    given = {"scheduler": {"replicas": replicas, "schedulerService": {"port": 80, "targetPort": 9000}}}
    found = objects(given, facts=ClusterFacts(leaders=leaders))
    return [
        (name, each["addressType"], [a for e in each["endpoints"] for a in e["addresses"]], each["ports"][0]["port"])
        for (kind, name), each in found.items()
        if kind == "EndpointSlice"
    ]


def test_of_several_schedulers_the_service_leads_to_the_leader() -> None:
    """operations:O-40, O-42, OC-14, OD-12."""
    name = "kai-scheduler-default-leader"
    assert slices(1, "10.0.0.1") == []
    assert slices(2) == [(name, "IPv4", [], 9000)]
    assert slices(2, "10.0.0.1") == [(name, "IPv4", ["10.0.0.1"], 9000)]
    assert slices(2, "fd00::1") == [(f"{name}-ipv6", "IPv6", ["fd00::1"], 9000)]
    assert objects()["Service", NAME]["spec"]["selector"] == {"app": NAME}
    assert "selector" not in objects(nested("scheduler.replicas", 2))["Service", NAME]["spec"]


def test_replicas_are_those_of_the_config() -> None:
    """operations:O-41."""
    assert objects()["Deployment", NAME]["spec"]["replicas"] == 1
    assert objects(nested("global.replicaCount", 3))["Deployment", NAME]["spec"]["replicas"] == 3
    both = {"global": {"replicaCount": 3}, "scheduler": {"replicas": 2}}
    assert objects(both)["Deployment", NAME]["spec"]["replicas"] == 2
