"""What a change of each field of Config and SchedulingShard changes, as lines of text (`changes.txt`).

`python -m tests.operator.fieldchanges` writes the file; read its difference before it is committed.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from pykai.api.installation import ConfigSpec, ShardSpec
from pykai.api.meta import Wire
from pykai.operator.desired.facts import ClusterFacts
from tests.operator.installations import differences, nested, objects, shard, states

FILE: Final = Path(__file__).with_name("changes.txt")
NOTHING: Final = "nothing"
#: a cluster that knows all optional kinds
FACTS: Final = ClusterFacts(has_autoscalers=True, has_prometheus=True, has_service_monitors=True)
#: what must be said for a field to matter, by the beginning or the end of its path
_CONTEXTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (".service.podDisruptionBudget.enabled", nested("global.replicaCount", 2)),
    (
        ".podDisruptionBudget.maxUnavailable",
        {
            "global": {"replicaCount": 2},
            **{
                component: nested("service.podDisruptionBudget.enabled", True)
                for component in ("podGrouper", "admission", "scheduler")
            },
        },
    ),
    ("requireDefaultPodAntiAffinityTerm", nested("global.replicaCount", 2)),
    ("vpa.updatePolicy", nested("global.vpa.enabled", True)),
    ("vpa.resourcePolicy", nested("global.vpa.enabled", True)),
    ("global.daemonsetsTolerations", nested("numaPlacementExporter.service.enabled", True)),
    ("prometheus.externalPrometheusUrl", nested("prometheus.enabled", True)),
    ("prometheus.externalPrometheusHealthProbe", nested("prometheus.enabled", True)),
    ("prometheus.enabled", {}),
    ("prometheus.", nested("prometheus.enabled", True)),
    ("numaPlacementExporter.service.enabled", {}),
    ("numaPlacementExporter.", nested("numaPlacementExporter.service.enabled", True)),
    ("usageDBConfig.clientType", {}),
    (
        "usageDBConfig.",
        nested(
            "usageDBConfig",
            {"clientType": "builtin", "usageParams": {"tumblingWindowStartTime": "2026-01-01T00:00:00Z"}},
        ),
    ),
    ("global.queueAdmissionGating.reservationTimeout", nested("global.queueAdmissionGating.enabled", True)),
)
_VALUES: Final[dict[str, Any]] = {
    "global.additionalImagePullSecrets": ["secret"],
    "global.queueAdmissionGating.reservationTimeout": "5m",
    "global.tolerations": [{"operator": "Exists"}],
    "global.daemonsetsTolerations": [{"operator": "Exists"}],
    "global.replicaCount": 2,
    "numaPlacementExporter.tolerations": [{"operator": "Exists"}],
    "numaPlacementExporter.service.enabled": True,
    "podGrouper.args.genericKartaFallback": False,
    "queueController.webhooks.enableValidation": False,
    "podGroupController.webhooks.enableValidation": False,
    "prometheus.serviceMonitor.enabled": False,
    "prometheus.enablePersistentStorage": False,
    "prometheus.enabled": True,
    "prometheus.externalPrometheusUrl": "http://prometheus.test:9090",
    "prometheus.storageSize": "10Gi",
    "queueController.queueLabelToMetricLabel": "team=group",
    "queueController.queueLabelToDefaultMetricValue": "team=none",
    "numaPlacementExporter.pollInterval": "5s",
    "numaPlacementExporter.driftResyncInterval": "5m",
    "nodeScaleAdjuster.args.gpuMemoryToFractionRatio": 0.5,
    "args{}": ("args", {"v": "5"}),
    "placementStrategy.gpu": "spread",
    "placementStrategy.cpu": "spread",
    "goMemLimitRatio": 0.5,
    "goMemLimit": "1Gi",
    "kValue": 0.5,
    "queueDepthPerAction{}": ("queueDepthPerAction", {"allocate": 5}),
    "minRuntime.preemptMinRuntime": "5m",
    "minRuntime.reclaimMinRuntime": "5m",
    "usageDBConfig.clientType": "builtin",
    "usageDBConfig.usageParams.halfLifePeriod": "5m",
    "usageDBConfig.usageParams.windowSize": "2w",
    "usageDBConfig.usageParams.windowType": "tumbling",
    "usageDBConfig.usageParams.tumblingWindowStartTime": "2026-02-01T00:00:00Z",
    "usageDBConfig.usageParams.cronString": "0 0 * * *",
    "usageDBConfig.usageParams.fetchInterval": "5m",
    "usageDBConfig.usageParams.stalenessPeriod": "10m",
    "usageDBConfig.usageParams.waitTimeout": "5m",
    "scenarioSearchBudgets.maxActionSearchDuration{}": (
        "scenarioSearchBudgets.maxActionSearchDuration",
        {"reclaim": "1m"},
    ),
    "scenarioSearchBudgets.maxGeneratorSearchDuration{}": (
        "scenarioSearchBudgets.maxGeneratorSearchDuration",
        {"MultiNodeGang": "1m"},
    ),
    "scenarioSearchBudgets.maxJobSearchDuration": "1m",
    "scenarioSearchBudgets.minJobSearchDuration": "1m",
    "plugins{}.enabled": ("plugins.elastic.enabled", False),
    "plugins{}.priority": ("plugins.elastic.priority", 1),
    "plugins{}.arguments{}": ("plugins.elastic.arguments", {"key": "value"}),
    "actions{}.enabled": ("actions.consolidation.enabled", False),
    "actions{}.priority": ("actions.consolidation.priority", 1),
    "binder.plugins{}.enabled": ("binder.plugins.hamicore.enabled", True),
    "binder.plugins{}.priority": ("binder.plugins.gpusharing.priority", 1),
    "binder.plugins{}.arguments{}": ("binder.plugins.gpusharing.arguments", {"cdiEnabled": "true"}),
}
_BY_TYPE: Final[dict[Any, Any]] = {str: "other", int: 7, float: 0.5, bool: True}


def field_paths(wire: type[Wire], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field that is no record itself, with its type; `{}` stands for any key."""
    for field in msgspec.structs.fields(wire):
        here = f"{path}.{field.encode_name}" if path else field.encode_name
        yield from _below(_plain(field.type), here)


def _below(type_: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(type_, type) and issubclass(type_, Wire):
        yield from field_paths(type_, path)
    elif typing.get_origin(type_) is dict and typing.get_args(type_)[1] is not Any:
        yield from _below(typing.get_args(type_)[1], f"{path}{{}}")
    else:
        yield path, type_


def _plain(type_: Any) -> Any:
    """The type without a description and without None."""
    while typing.get_origin(type_) is typing.Annotated:
        type_ = typing.get_args(type_)[0]
    if typing.get_origin(type_) in (types.UnionType, typing.Union):
        listed = [each for each in typing.get_args(type_) if each is not types.NoneType]
        return _plain(listed[-1])
    return type_


def _change(path: str, type_: Any) -> tuple[str, Any]:
    """The path and the new value."""
    given = _VALUES.get(path)
    if isinstance(given, tuple):
        return given
    if given is not None:
        return path, given
    if path.endswith("service.enabled"):
        return path, False
    if path.endswith("service.args{}"):
        return path.removesuffix("{}"), {"v": "5"}
    if path.endswith("{}"):
        return path.removesuffix("{}"), {"cpu": "3"} if "resources" in path.lower() else {"key": "value"}
    if typing.get_origin(type_) is dict:
        return path, {"key": "value"}
    if typing.get_origin(type_) is list:
        return path, [{"key": "value"}]
    return path, _BY_TYPE[_plain(type_)]


def _joined(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    joined = dict(base)
    for key, value in change.items():
        below = joined.get(key)
        joined[key] = _joined(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return joined


def _context(path: str) -> dict[str, Any]:
    found = (spec for key, spec in _CONTEXTS if path.startswith(key) or path.endswith(key) or key in path)
    return next(found, {})


def config_changes() -> Iterator[tuple[str, list[str]]]:
    """`field = value` and what it changes, for each field of a Config."""
    for path, type_ in field_paths(ConfigSpec):
        where, value = _change(path, type_)
        base = _context(path)
        before = objects(base, facts=FACTS)
        changed = _joined(base, nested(where, value))
        refusal = states(changed, facts=FACTS)[0].refusal
        after = objects(changed, facts=FACTS)
        name = f"config {where} = {msgspec.json.encode(value).decode()}"
        yield name, [f"refused: {refusal}"] if refusal else differences(before, after)


def shard_changes() -> Iterator[tuple[str, list[str]]]:
    """`field = value` and what it changes, for each field of a SchedulingShard."""
    for path, type_ in field_paths(ShardSpec):
        where, value = _change(path, type_)
        base = _context(path)
        before = objects(None, shard(base), facts=FACTS)
        after = objects(None, shard(_joined(base, nested(where, value))), facts=FACTS)
        yield f"shard {where} = {msgspec.json.encode(value).decode()}", differences(before, after)


def table() -> dict[str, list[str]]:
    """All changes; lines that follow from every change of a shard's configuration are left out."""
    lines = {}
    for change, changed in (*config_changes(), *shard_changes()):
        lines[change] = [line for line in changed if "configMapVersion" not in line] or [NOTHING]
    return lines


def written() -> dict[str, list[str]]:
    """What the file says."""
    content: dict[str, list[str]] = {}
    for block in FILE.read_text(encoding="utf-8").strip().split("\n\n"):
        change, *lines = block.splitlines()
        content[change] = [line.removeprefix("    ") for line in lines]
    return content


def text(content: dict[str, list[str]]) -> str:
    """The file for a table."""
    return (
        "\n\n".join("\n".join([change, *(f"    {line}" for line in lines)]) for change, lines in content.items()) + "\n"
    )


if __name__ == "__main__":
    FILE.write_text(text(table()), encoding="utf-8")
    print(f"{FILE.name}: {len(table())} changes")
