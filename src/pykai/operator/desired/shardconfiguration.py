"""The configuration file of a shard's scheduler, from its SchedulingShard (operations:O-6 to O-12).

Priorities order plugins and actions.  What a shard says goes over the defaults field by field, but arguments replace
the default arguments as a whole (operations:O-7; queues:Q-349).

Statements: cycle:CFG-3 to CFG-5; gpu:F-10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import yaml

from pykai.api.duration import DurationError, parse_duration
from pykai.api.installation import (
    ActionSpec,
    MinRuntimeSpec,
    PlacementStrategy,
    PluginSpec,
    ScenarioSearchBudgets,
    ShardSpec,
)
from pykai.operator.desired.checking import check_configuration
from pykai.operator.desired.refusals import LeftOut, Refused
from pykai.operator.desired.settings import Settings, as_document, default, part

BINPACK, SPREAD = "binpack", "spread"
PROMETHEUS = "prometheus"
_PORT: Final = 9090

_PLUGIN_PRIORITIES: Final[Mapping[str, int]] = {
    "predicates": 1900,
    "proportion": 1800,
    "priority": 1700,
    "nodeavailability": 1600,
    "resourcetype": 1500,
    "podaffinity": 1400,
    "elastic": 1300,
    "kubeflow": 1200,
    "ray": 1100,
    "subgrouporder": 1000,
    "taskorder": 900,
    "nominatednode": 800,
    "dynamicresources": 700,
    "minruntime": 600,
    "topology": 500,
    "snapshot": 400,
    "sg-nodelocalgreedy": 360,
    "sg-multinodegang": 350,
    "gpupack": 300,
    "gpuspread": 300,
    "nodeplacement": 200,
    "gpusharingorder": 100,
}
_ACTION_PRIORITIES: Final[Mapping[str, int]] = {
    "allocate": 500,
    "consolidation": 400,
    "reclaim": 300,
    "preempt": 200,
    "stalegangeviction": 100,
}
#: (plugin, argument) -> the field that sets it
_SHORT_FORMS: Final = {
    ("minruntime", "defaultPreemptMinRuntime"): "minRuntime.preemptMinRuntime",
    ("minruntime", "defaultReclaimMinRuntime"): "minRuntime.reclaimMinRuntime",
    ("proportion", "kValue"): "kValue",
}
_BUDGET_ACTIONS: Final = ("default", "reclaim", "preempt", "consolidation")


class _Entry(NamedTuple):
    enabled: bool
    priority: int
    arguments: Mapping[str, str] = {}


def as_text(configuration: Mapping[str, Any]) -> str:
    """The text of the file."""
    return yaml.safe_dump(configuration, sort_keys=False, width=1000)


def shard_configuration(shard: ShardSpec, settings: Settings) -> tuple[dict[str, Any], list[LeftOut]]:
    """The content of the file (operations:O-8), and what of it the scheduler skips; raises `Refused`."""
    content = _content(shard, settings)
    given = shard.plugins or {}
    # Arguments of a plugin replace those of the short form as a whole.
    short_forms = {
        f"plugins.{plugin}.arguments.{argument}": field
        for (plugin, argument), field in _SHORT_FORMS.items()
        if plugin not in given or given[plugin].arguments is None
    }
    return content, check_configuration(content, short_forms)


def _content(shard: ShardSpec, settings: Settings) -> dict[str, Any]:
    gpu, cpu = _strategies(part(shard.placement_strategy, PlacementStrategy))
    actions = [name for name, _ in _in_order(_actions(shard.actions or {}, gpu, cpu))]
    content: dict[str, Any] = {
        "actions": ", ".join(actions),
        "tiers": [{"plugins": [_listed(name, entry) for name, entry in _in_order(_plugins(shard, gpu, cpu))]}],
    }
    if shard.queue_depth_per_action:
        content["queueDepthPerAction"] = _queue_depth(shard.queue_depth_per_action, actions)
    if shard.usage_db_config is not None:
        content["usageDBConfig"] = _usage(shard, settings)
    if shard.scenario_search_budgets is not None:
        content["scenarioSearchBudgets"] = _budgets(shard.scenario_search_budgets)
    return content


def _strategies(given: PlacementStrategy) -> tuple[str, str]:
    chosen = []
    for resource, value in (("gpu", given.gpu), ("cpu", given.cpu)):
        strategy = value or BINPACK
        if strategy not in (BINPACK, SPREAD):
            raise Refused(f"spec.placementStrategy.{resource}", f"{strategy!r}: expected {BINPACK} or {SPREAD}")
        chosen.append(strategy)
    return chosen[0], chosen[1]


# operations:O-6
def _plugins(shard: ShardSpec, gpu: str, cpu: str) -> dict[str, _Entry]:
    packs = gpu == BINPACK
    runtimes = part(shard.min_runtime, MinRuntimeSpec)
    arguments: dict[str, dict[str, str]] = {
        "nodeplacement": {"cpu": cpu, "gpu": gpu},
        # queues:Q-309
        "minruntime": {
            name: value
            for name, value in (
                ("defaultPreemptMinRuntime", runtimes.preempt_min_runtime),
                ("defaultReclaimMinRuntime", runtimes.reclaim_min_runtime),
            )
            if value is not None
        },
        "proportion": {} if shard.k_value is None else {"kValue": f"{shard.k_value:g}"},
    }
    enabled = {"gpupack": packs, "gpusharingorder": packs, "gpuspread": not packs}
    entries = {
        name: _Entry(enabled.get(name, True), priority, arguments.get(name, {}))
        for name, priority in _PLUGIN_PRIORITIES.items()
    }
    for name, given in (shard.plugins or {}).items():
        entries[name] = _override(entries.get(name, _Entry(True, 0)), given)
    return entries


def _actions(given: Mapping[str, ActionSpec], gpu: str, cpu: str) -> dict[str, _Entry]:
    spreads = SPREAD in (gpu, cpu)
    entries = {
        name: _Entry(name != "consolidation" or not spreads, priority) for name, priority in _ACTION_PRIORITIES.items()
    }
    for name, each in given.items():
        entries[name] = _override(entries.get(name, _Entry(True, 0)), each)
    return entries


# operations:O-7
def _override(entry: _Entry, given: PluginSpec | ActionSpec) -> _Entry:
    arguments = given.arguments if isinstance(given, PluginSpec) else None
    return _Entry(
        default(given.enabled, entry.enabled),
        default(given.priority, entry.priority),
        default(arguments, dict(entry.arguments)),
    )


def _in_order(entries: Mapping[str, _Entry]) -> list[tuple[str, _Entry]]:
    return sorted(
        ((name, entry) for name, entry in entries.items() if entry.enabled),
        key=lambda each: (-each[1].priority, each[0]),
    )


def _listed(name: str, entry: _Entry) -> dict[str, Any]:
    return {"name": name, **({"arguments": dict(sorted(entry.arguments.items()))} if entry.arguments else {})}


# operations:O-9
def _queue_depth(given: Mapping[str, int], actions: Iterable[str]) -> dict[str, int]:
    for name in given:
        if name not in actions:
            raise Refused(
                "",
                f"the scheduler's actions are {', '.join(actions)}. {name} isn't one of them, making the"
                " queueDepthPerAction invalid",
            )
    return dict(sorted(given.items()))


# operations:O-10
def _budgets(given: ScenarioSearchBudgets) -> dict[str, Any]:
    by_action = given.max_action_search_duration or {}
    for key in by_action:
        if key not in _BUDGET_ACTIONS:
            text = f'contains invalid action key "{key}"; valid action keys: {", ".join(_BUDGET_ACTIONS)}'
            raise Refused("", f"maxActionSearchDuration {text}")
    for field, durations in (
        ("maxActionSearchDuration", by_action),
        ("maxGeneratorSearchDuration", given.max_generator_search_duration or {}),
    ):
        for key, text in durations.items():
            if _span(f'{field}["{key}"]', text) < 0:
                raise Refused("", f'{field}["{key}"] must be non-negative')
    most = _span("maxJobSearchDuration", given.max_job_search_duration or "4m")
    least = _span("minJobSearchDuration", given.min_job_search_duration or "0s")
    for field, span in (("maxJobSearchDuration", most), ("minJobSearchDuration", least)):
        if span < 0:
            raise Refused("", f"{field} must be non-negative")
    if most and least >= most:
        raise Refused("", "minJobSearchDuration must be less than maxJobSearchDuration")
    return as_document(given)


def _span(field: str, text: str) -> int:
    try:
        return parse_duration(text)
    except DurationError as error:
        raise Refused(f"spec.scenarioSearchBudgets.{field}", str(error)) from None


# operations:O-11; queues:Q-336
def _usage(shard: ShardSpec, settings: Settings) -> dict[str, Any]:
    assert shard.usage_db_config is not None
    content = as_document(shard.usage_db_config)
    given = shard.usage_db_config
    if given.client_type == PROMETHEUS and not given.connection_string and not given.connection_string_env_var:
        content["connectionString"] = _prometheus_address(settings)
    return content


def _prometheus_address(settings: Settings) -> str:
    if settings.prometheus.enabled:
        return f"http://usage-prometheus.{settings.namespace}.svc.cluster.local:{_PORT}"
    if settings.prometheus.external_prometheus_url:
        return settings.prometheus.external_prometheus_url
    raise Refused(
        "",
        "prometheus connection string not configured: either enable internal prometheus or configure external TSDB"
        " connection URL",
    )
