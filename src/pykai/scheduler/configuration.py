"""The scheduler configuration file (cycle:7.1): YAML to a policy, with every mistake named and none of them fatal.

Upstream's files work unchanged.  What is missing comes from the built-in configuration; an unknown action, plugin or
argument is reported with its path and skipped.  Only a file that is no YAML mapping at all is an error: at start-up it
stops the program, in a running service `LastGood` keeps the configuration that worked.

Plugins of others are found through the entry-point group `pykai.plugins`; see docs/plugins.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import yaml

from pykai.core.actions import ACTIONS, PLANNED_ACTIONS
from pykai.core.groups import Report
from pykai.core.hooks import Plugin
from pykai.core.plugins import DEFAULT_ACTIONS, DEFAULT_PLUGINS, PLANNED, built_in, known_plugins
from pykai.core.plugins.arguments import read_arguments
from pykai.core.policy import NamedPlugin, Policy
from pykai.core.problems import Problem

ENTRY_POINT_GROUP = "pykai.plugins"
_SUBJECT = "scheduler configuration"

#: Keys of the file; the last two belong to parts of the scheduler that read them themselves.
_KEYS = ("actions", "tiers", "queueDepthPerAction", "usageDBConfig", "scenarioSearchBudgets")
#: Keys of a plugin entry; the switches are accepted and, as upstream, without effect (cycle:7.1).
_PLUGIN_SWITCHES = (
    "disableJobOrder",
    "disableTaskOrder",
    "disablePreemptable",
    "disableReclaimable",
    "disableQueueOrder",
    "disablePredicate",
    "disableNodeOrder",
)


class ConfigurationError(ValueError):
    """The file cannot be used at all."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration file says, and what is wrong with it."""

    policy: Policy
    problems: tuple[Problem, ...] = ()


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """YAML with timestamps left as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def load_configuration(text: str) -> Configuration:
    """The configuration in a file's text; raises ConfigurationError when it is not a YAML mapping."""
    try:
        content = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"the configuration is not valid YAML: {error}") from error
    if content is None:
        return default_configuration()
    if not isinstance(content, dict):
        raise ConfigurationError(f"the configuration must be a mapping with the keys {', '.join(_KEYS)}")
    return read_configuration(content)


def default_configuration() -> Configuration:
    """The built-in configuration (cycle:CFG-2)."""
    return read_configuration({})


def read_configuration(content: Mapping[str, Any]) -> Configuration:
    """A configuration already parsed from YAML or JSON."""
    problems: list[Problem] = []
    report = problems.append
    for key in content:
        if key not in _KEYS:
            report(Problem(_SUBJECT, str(key), f"unknown key; known are {', '.join(_KEYS)}; ignored"))
    actions = _actions(content.get("actions"), report)
    policy = Policy(
        actions=actions,
        plugins=tuple(_plugins(content.get("tiers"), report)),
        queue_depth=_queue_depth(content.get("queueDepthPerAction"), actions, report),
    )
    return Configuration(policy, tuple(problems))


def _actions(value: object, report: Report) -> tuple[str, ...]:
    if value is None:
        return DEFAULT_ACTIONS
    if not isinstance(value, str):
        report(Problem(_SUBJECT, "actions", "expected names separated by commas; the built-in actions are used"))
        return DEFAULT_ACTIONS
    found = []
    for index, name in enumerate(part.strip() for part in value.split(",")):
        if name in ACTIONS or name in PLANNED_ACTIONS:
            found.append(name)
        elif name:
            known = ", ".join((*ACTIONS, *PLANNED_ACTIONS))
            report(Problem(_SUBJECT, f"actions[{index}]", f"unknown action {name!r}; known are {known}; skipped"))
    return tuple(found)


def _queue_depth(value: object, actions: Iterable[str], report: Report) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        report(Problem(_SUBJECT, "queueDepthPerAction", "expected a mapping of action to number; ignored"))
        return {}
    depth: dict[str, int] = {}
    for name, number in value.items():
        path = f"queueDepthPerAction.{name}"
        if name not in actions:
            listed = ", ".join(actions)
            report(Problem(_SUBJECT, path, f"the scheduler's actions are {listed}. {name} isn't one of them; ignored"))
        elif isinstance(number, bool) or not isinstance(number, int) or number < 0:
            report(Problem(_SUBJECT, path, f"{number!r}: expected a whole number of at least 0; ignored"))
        else:
            depth[name] = number
    return depth


def _plugins(value: object, report: Report) -> Iterable[NamedPlugin]:
    if value is None:
        for built, given in DEFAULT_PLUGINS:
            if built not in PLANNED:
                yield from _plugin(built, given, "built-in", report)
        return
    if not isinstance(value, list):
        report(Problem(_SUBJECT, "tiers", "expected a list of tiers; the built-in plugins are used"))
        yield from _plugins(None, report)
        return
    for tier_index, tier in enumerate(value):
        listed = tier.get("plugins") if isinstance(tier, dict) else None
        if not isinstance(listed, list):
            report(Problem(_SUBJECT, f"tiers[{tier_index}]", "expected a mapping with a list of plugins; skipped"))
            continue
        for index, entry in enumerate(listed):
            path = f"tiers[{tier_index}].plugins[{index}]"
            name: object = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not name:
                report(Problem(_SUBJECT, path, "expected a mapping with a name; skipped"))
                continue
            for key in entry:
                if key not in ("name", "arguments", *_PLUGIN_SWITCHES):
                    report(Problem(_SUBJECT, f"{path}.{key}", "unknown key; ignored"))
            arguments = entry.get("arguments") or {}
            if not isinstance(arguments, dict):
                report(Problem(_SUBJECT, f"{path}.arguments", "expected a mapping; ignored"))
                arguments = {}
            yield from _plugin(name, {str(key): _text(item) for key, item in arguments.items()}, path, report)


def _text(value: object) -> str:
    """A scalar as the text upstream's map of strings would hold."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plugin(name: str, arguments: Mapping[str, str], path: str, report: Report) -> Iterable[NamedPlugin]:
    plugin = built_in(name, arguments, f"{path}.arguments", report)
    if plugin is None and name in PLANNED:
        report(Problem(_SUBJECT, path, f"plugin {name!r} decides nothing in this version; skipped"))
        return
    foreign = plugin is None
    if plugin is None:
        plugin = _foreign(name, arguments, f"{path}.arguments", report)
    if plugin is None:
        known = ", ".join(known_plugins())
        report(Problem(_SUBJECT, path, f"unknown plugin {name!r}; built in are {known}; skipped"))
        return
    yield NamedPlugin(name, plugin, foreign=foreign)


def _foreign(name: str, arguments: Mapping[str, str], path: str, report: Report) -> Plugin | None:
    """A plugin installed beside us; one that fails to load is reported and skipped, whatever it raises."""
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name != name:
            continue
        try:
            kind = point.load()
            table = getattr(kind, "ARGUMENTS", {})
            plugin = kind(**read_arguments(table, arguments, f"plugin {name}", path, report))
        except Exception as error:
            report(Problem(f"plugin {name}", point.value, f"failed to load: {type(error).__name__}: {error}"))
            return None
        if not isinstance(plugin, Plugin):
            report(Problem(f"plugin {name}", point.value, "has no method prepare(snapshot)"))
            return None
        return plugin
    return None


class LastGood:
    """The configuration of a running service: a broken file changes nothing."""

    def __init__(self, text: str) -> None:
        self.current = load_configuration(text)

    def reload(self, text: str, report: Callable[[str], None]) -> bool:
        """Take over a new file; False and a report when it cannot be used."""
        try:
            self.current = load_configuration(text)
        except ConfigurationError as error:
            report(f"{error}; the last good configuration stays in use")
            return False
        return True
