"""Flags that a Config gives to the programs of components by name."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.kube.flags import checked_values, parse_command_line
from pykai.operator.desired.state import DesiredState
from pykai.services.table import SERVICES
from tests.operator.installations import args_of, main, nested, objects, shard, states

#: field of a Config -> Deployment, `kai run NAME`
COMPONENTS = {
    "podGrouper": ("pod-grouper", "podgrouper"),
    "podGroupController": ("podgroup-controller", "podgroups"),
    "queueController": ("queue-controller", "queues"),
    "binder": ("binder", "binder"),
    "admission": ("admission", "admission"),
    "nodeScaleAdjuster": ("node-scale-adjuster", "nodescale"),
}
#: what no other field of a Config can switch on
FEATURES = [
    ("podGrouper", "workload-api", "true"),
    ("podGrouper", "kueue-pod-groups", "true"),
    ("podGrouper", "kueue-priority-classes", "true"),
    ("podGrouper", "workload-kinds-configmap-name", "kinds"),
    ("podGrouper", "follow-queue", "true"),
    ("admission", "refuse-queues-with-children", "true"),
    ("nodeScaleAdjuster", "cooldown-seconds", "5"),
    ("nodeScaleAdjuster", "max-scaling-pods", "3"),
]


def given(component: str, **flags: str) -> dict[str, Any]:
    """A Config with flags for one component; `-` is written `_`."""
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return {component: {"service": {"args": named}}}


def of_config(spec: dict[str, Any]) -> DesiredState:
    return states(spec)[0]


@pytest.mark.parametrize(("component", "flag", "value"), FEATURES)
def test_every_feature_of_a_service_can_be_switched_on(component: str, flag: str, value: str) -> None:
    """install:args: the service starts with the command line, and reads the value."""
    deployment, service = COMPONENTS[component]
    spec = given(component, **{flag: value})
    args = args_of(objects(spec), deployment)
    assert args == [*args_of(objects(), deployment), f"--{flag}={value}"]
    flags = SERVICES[service].all_flags()
    read = checked_values(flags.values(), parse_command_line(args))
    assert read[flag] == flags[flag].read(value) != flags[flag].read(flags[flag].default)
    assert of_config(spec).left_out == ()


def test_flags_that_do_not_exist_are_left_out_and_named() -> None:
    """install:args: as those of shards (operations:OD-3)."""
    spec = given("admission", workload_api="true", refuse_queue_with_children="true", v="5")
    assert args_of(objects(spec), "admission") == [*args_of(objects(), "admission"), "--v=5"]
    found = of_config(spec)
    assert [str(each) for each in found.left_out] == [
        "spec.admission.service.args.refuse-queue-with-children: admission has no flag --refuse-queue-with-children;"
        " did you mean refuse-queues-with-children?",
        "spec.admission.service.args.workload-api: admission has no flag --workload-api",
    ]
    assert {each.reason for each in found.left_out} == {"UnknownArgument"}


@pytest.mark.parametrize("component", [*COMPONENTS, "numaPlacementExporter"])
def test_what_other_fields_say_holds(component: str) -> None:
    """install:args: no flag that is on the command line already changes."""
    base = nested("numaPlacementExporter.service.enabled", True)
    name, kind = ("numa-placement-exporter", "DaemonSet")
    if component in COMPONENTS:
        base, (name, _), kind = nested("global.replicaCount", 2), COMPONENTS[component], "Deployment"
    before: list[str] = main(objects(base), name, kind)["args"]
    flags = dict.fromkeys(parse_command_line(before), "other")
    service = {**base.get(component, {}).get("service", {}), "args": flags}
    changed = {**base, component: {"service": service}}
    assert main(objects(changed), name, kind)["args"] == before
    found = of_config(changed)
    assert [each.path for each in found.left_out] == [f"spec.{component}.service.args.{flag}" for flag in sorted(flags)]
    assert {each.reason for each in found.left_out} == {"OverriddenArgument"}


@pytest.mark.parametrize("component", [*COMPONENTS, "numaPlacementExporter", "scheduler"])
@pytest.mark.parametrize("enabled", [True, False])
def test_a_value_that_cannot_be_read_is_refused_with_its_path(component: str, enabled: bool) -> None:
    """install:args: nothing that runs is changed."""
    spec = {component: {"service": {"enabled": enabled, "args": {"v": "loud"}}}}
    found = of_config(spec)
    assert found.refusal.startswith(f"spec.{component}.service.args.v: 'loud': expected a whole number")
    assert found.operands == {}


def test_flags_of_all_schedulers_go_before_those_of_a_shard() -> None:
    """install:args; operations:O-13: both override what the operator computes, as those of shards do."""
    common = given("scheduler", v="4", schedule_period="2s", queue_label_key="team", nonsense="1")
    found = objects(common, shard({"args": {"v": "5"}}))
    args = args_of(found, "kai-scheduler-default")
    assert args[-3:] == ["--queue-label-key=team", "--schedule-period=2s", "--v=5"]
    config, of_shard = states(common, shard({"args": {"v": "5"}}))
    assert [each.path for each in config.left_out] == ["spec.scheduler.service.args.nonsense"]
    assert of_shard.left_out == ()


def test_no_shard_is_changed_for_a_value_of_the_config_that_cannot_be_read() -> None:
    """install:args."""
    config, of_shard = states(given("scheduler", schedule_period="soon"))
    assert config.refusal.startswith("spec.scheduler.service.args.schedule-period: 'soon'")
    assert of_shard.refusal == f"Config kai-config: {config.refusal}"
    assert of_shard.operands == {}
