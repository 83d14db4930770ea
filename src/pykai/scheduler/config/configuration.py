"""The scheduler configuration file (cycle:7.1): YAML to a policy, with every mistake reported.

Upstream's files work unchanged.  Missing parts come from a built-in configuration, the `profile` (docs/profiles.md)
that the file names or, before that, the flag `--profile`.  There are two grades of mistakes:

- An unknown plugin, plugin argument or key is reported with its path and skipped, as upstream does (cycle:CYC-3,
  queues:Q-308), so that a file for a newer version still runs.
- An unknown action (cycle:CFG-1), an unknown profile and a wrong value of one of the file's own keys are errors, as is
  a file that is no YAML mapping at all: at start-up they stop the program, in a running service `LastGoodConfiguration`
  keeps the configuration that worked.  With `--strict` the first grade counts as the second.

`read_configuration` itself raises nothing: a snapshot file is replayed as far as possible.

Third-party plugins are found through the entry-point group `pykai.plugins`; see docs/plugins.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any

import yaml

from pykai.api.suggestions import did_you_mean
from pykai.core.actions import ACTIONS
from pykai.core.model.problems import Problem, ProblemReporter
from pykai.core.plugins import (
    ACCEPTED_WITHOUT_EFFECT,
    DEFAULT_ACTIONS,
    DEFAULT_PROFILE,
    PROFILES,
    built_in_plugin,
    plugin_names,
)
from pykai.core.plugins.arguments import read_arguments
from pykai.core.policy import DisruptionMode, NamedPlugin, Policy
from pykai.deprecated import accept_old_names
from pykai.scheduler.config.budgets import read_budgets
from pykai.scheduler.config.usagedb import UsageConfig, read_usage

ENTRY_POINT_GROUP = "pykai.plugins"
_SUBJECT = "scheduler configuration"

_KEYS = (
    "profile",
    "actions",
    "tiers",
    "queueDepthPerAction",
    "usageDBConfig",
    "scenarioSearchBudgets",
    "podDisruptionBudgets",
)
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
    """The file cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of a configuration file, and what is wrong with it."""

    policy: Policy
    #: where historical usage comes from, None = it does not count
    usage: UsageConfig | None = None
    problems: tuple[Problem, ...] = ()
    #: the problems that keep a scheduler from starting with this configuration
    errors: tuple[Problem, ...] = ()

    def checked(self, *, strict: bool = False) -> Configuration:
        """This configuration, if a scheduler may run with it; raises ConfigurationError otherwise."""
        fatal = self.problems if strict else self.errors
        if fatal:
            raise ConfigurationError("; ".join(map(str, fatal)))
        return self


class _Loader(yaml.SafeLoader):
    """YAML with timestamps left as text, and with duplicate keys reported.

    Not the C loader, which is fast but crashes the process when a file is nested a hundred thousand levels deep.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.duplicate_keys: list[Problem] = []

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """The mapping; of a duplicate key the last value counts, as everywhere in YAML, but it is reported."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    line = f"line {key.start_mark.line + 1}"
                    self.duplicate_keys.append(
                        Problem(_SUBJECT, line, f"{key.value!r} is given twice; the last one counts")
                    )
                seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def load_configuration(text: str, profile: str = "") -> Configuration:
    """The configuration in a file's text; raises ConfigurationError when it is not a YAML mapping.

    A profile given here wins over the one the file names.
    """
    try:
        loader = _Loader(text)
        content = loader.get_single_data()
    except RecursionError:
        raise ConfigurationError("the configuration is not valid YAML: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"the configuration is not valid YAML: {error}") from error
    if content is None:
        return default_configuration(profile)
    if not isinstance(content, dict):
        raise ConfigurationError(f"the configuration must be a mapping with the keys {', '.join(_KEYS)}")
    read = read_configuration(content, profile)
    return replace(read, problems=(*loader.duplicate_keys, *read.problems))


def default_configuration(profile: str = "") -> Configuration:
    """A built-in configuration, that of cycle:CFG-2 unless another is named."""
    return read_configuration({}, profile)


def read_configuration(content: Mapping[str, Any], profile: str = "") -> Configuration:
    """A configuration already parsed from YAML or JSON; a profile given here wins over the one it names."""
    problems: list[Problem] = []
    errors: list[Problem] = []
    report = problems.append

    def refuse(problem: Problem) -> None:
        errors.append(problem)
        problems.append(problem)

    for key in content:
        if key not in _KEYS:
            meant = did_you_mean(str(key), _KEYS)
            report(Problem(_SUBJECT, str(key), f"unknown key; known are {', '.join(_KEYS)}; ignored{meant}"))
    actions = _actions(content.get("actions"), refuse)
    chosen = _profile(profile or content.get("profile"), refuse)
    policy = Policy(
        actions=actions,
        plugins=tuple(_plugins(content.get("tiers"), chosen, report, refuse)),
        queue_depth=_queue_depth(content.get("queueDepthPerAction"), actions, report, refuse),
        search_budgets=read_budgets(content.get("scenarioSearchBudgets"), report),
        disruption_budgets=_disruption_mode(content.get("podDisruptionBudgets"), refuse),
    )
    usage = read_usage(content.get("usageDBConfig"), report)
    return Configuration(policy, usage, tuple(problems), tuple(errors))


def _actions(value: object, refuse: ProblemReporter) -> tuple[str, ...]:
    if value is None or value == "":
        return DEFAULT_ACTIONS
    if not isinstance(value, str):
        refuse(Problem(_SUBJECT, "actions", "expected names separated by commas"))
        return DEFAULT_ACTIONS
    actions = []
    for index, name in enumerate(part.strip() for part in value.split(",")):
        if name in ACTIONS:
            actions.append(name)
        elif name:
            text = f"unknown action {name!r}; known are {', '.join(ACTIONS)}{did_you_mean(name, ACTIONS)}"
            refuse(Problem(_SUBJECT, f"actions[{index}]", text))
    return tuple(actions)


# Actions that do not run have no depth (cycle:CFG-6).
def _queue_depth(
    value: object, actions: Iterable[str], report: ProblemReporter, refuse: ProblemReporter
) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        refuse(Problem(_SUBJECT, "queueDepthPerAction", "expected a mapping of action to number"))
        return {}
    depth: dict[str, int] = {}
    for name, number in value.items():
        path = f"queueDepthPerAction.{name}"
        if name not in actions:
            listed = ", ".join(actions)
            text = f"the scheduler's actions are {listed}. {name} isn't one of them, making this entry invalid; ignored"
            report(Problem(_SUBJECT, path, text))
        elif isinstance(number, bool) or not isinstance(number, int) or number < 0:
            refuse(Problem(_SUBJECT, path, f"{number!r}: expected a whole number of at least 0"))
        else:
            depth[name] = number
    return depth


def _profile(value: object, refuse: ProblemReporter) -> str:
    """The profile whose plugins are used where the file lists none."""
    if value is None or value == "":
        return DEFAULT_PROFILE
    if not isinstance(value, str) or value not in PROFILES:
        meant = did_you_mean(str(value), PROFILES)
        text = f"unknown profile {value!r}; known are {', '.join(PROFILES)}{meant}"
        refuse(Problem(_SUBJECT, "profile", text))
        return DEFAULT_PROFILE
    return value


def _disruption_mode(value: object, refuse: ProblemReporter) -> DisruptionMode:
    if value is None or value == "":
        return DisruptionMode.PREFER
    if not isinstance(value, str) or value not in list(DisruptionMode):
        meant = did_you_mean(str(value), DisruptionMode)
        refuse(
            Problem(_SUBJECT, "podDisruptionBudgets", f"{value!r}: expected one of {', '.join(DisruptionMode)}{meant}")
        )
        return DisruptionMode.PREFER
    return DisruptionMode(value)


def _plugins(value: object, profile: str, report: ProblemReporter, refuse: ProblemReporter) -> Iterator[NamedPlugin]:
    if value is None or value == []:
        for built, given in PROFILES[profile]:
            if built not in ACCEPTED_WITHOUT_EFFECT:
                yield from _plugin(built, given, "built-in", report)
        return
    if not isinstance(value, list):
        refuse(Problem(_SUBJECT, "tiers", "expected a list of tiers"))
        yield from _plugins(None, profile, report, refuse)
        return
    seen: set[str] = set()
    for path, entry in _entries(value, report):
        name: object = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(name, str) or not name:
            report(Problem(_SUBJECT, path, "expected a mapping with a name; skipped"))
            continue
        if name in seen:
            report(Problem(_SUBJECT, path, f"plugin {name!r} is listed twice, and would count twice; skipped"))
            continue
        seen.add(name)
        for key in entry:
            if key not in ("name", "arguments", *_PLUGIN_SWITCHES):
                report(Problem(_SUBJECT, f"{path}.{key}", "unknown key; ignored"))
        yield from _plugin(name, _arguments(entry.get("arguments"), f"{path}.arguments", report), path, report)


def _entries(tiers: list[object], report: ProblemReporter) -> Iterator[tuple[str, object]]:
    """The entries of all tiers with their paths."""
    for tier_index, tier in enumerate(tiers):
        listed = tier.get("plugins") if isinstance(tier, dict) else None
        if not isinstance(listed, list):
            report(Problem(_SUBJECT, f"tiers[{tier_index}]", "expected a mapping with a list of plugins; skipped"))
            continue
        for index, entry in enumerate(listed):
            yield f"tiers[{tier_index}].plugins[{index}]", entry


def _arguments(value: object, path: str, report: ProblemReporter) -> dict[str, str]:
    """Arguments as texts, as upstream has them; other scalars become the text they look like."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        report(Problem(_SUBJECT, path, "expected a mapping; ignored"))
        return {}
    arguments: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, dict | list):
            report(Problem(_SUBJECT, f"{path}.{key}", "expected a text or a number; ignored"))
        else:
            arguments[str(key)] = "" if item is None else str(item).lower() if isinstance(item, bool) else str(item)
    return arguments


def _plugin(name: str, arguments: Mapping[str, str], path: str, report: ProblemReporter) -> Iterator[NamedPlugin]:
    plugin = built_in_plugin(name, arguments, f"{path}.arguments", report)
    if plugin is not None:
        yield NamedPlugin(name, plugin)
    elif name not in ACCEPTED_WITHOUT_EFFECT:
        # They have no effect: `/get-snapshot` and `/get-job-order`, which they switch on upstream, are always served.
        yield from _third_party_plugin(name, arguments, path, report)


def _third_party_plugin(
    name: str, arguments: Mapping[str, str], path: str, report: ProblemReporter
) -> Iterator[NamedPlugin]:
    """An installed third-party plugin; one that fails to load is reported and skipped, whatever it raises."""
    points = sorted(entry_points(group=ENTRY_POINT_GROUP, name=name), key=lambda point: point.value)
    if not points:
        built_in_names = plugin_names()
        text = (
            f"unknown plugin {name!r}; built in are {', '.join(built_in_names)}; "
            f"no installed package offers another; skipped{did_you_mean(name, built_in_names)}"
        )
        report(Problem(_SUBJECT, path, text))
        return
    point = points[0]
    if len({other.value for other in points}) > 1:
        offers = ", ".join(other.value for other in points)
        report(Problem(_SUBJECT, path, f"several packages offer {name!r}: {offers}; the first is used"))
    subject = f"plugin {name}"
    accept_old_names()
    try:
        plugin_type = point.load()
        table = getattr(plugin_type, "ARGUMENTS", {})
        plugin = plugin_type(**read_arguments(table, arguments, subject, f"{path}.arguments", report))
    except (Exception, SystemExit) as error:
        text = f"{point.value} failed to load: {type(error).__name__}: {error}; skipped"
        report(Problem(subject, path, text))
        return
    if not callable(getattr(plugin, "prepare", None)):
        report(Problem(subject, path, f"{point.value} has no method prepare(snapshot); skipped"))
        return
    yield NamedPlugin(name, plugin, third_party=True)


class LastGoodConfiguration:
    """The configuration of a running service: a file with errors changes nothing.

    `strict` makes every skipped entry an error.
    """

    def __init__(self, text: str, profile: str = "", *, strict: bool = False) -> None:
        self._profile = profile
        self._strict = strict
        self.current = load_configuration(text, profile).checked(strict=strict)

    def reload(self, text: str, report: Callable[[str], None]) -> bool:
        """Use a new file; False and a report if it is invalid."""
        try:
            self.current = load_configuration(text, self._profile).checked(strict=self._strict)
        except ConfigurationError as error:
            report(f"{error}; the last good configuration stays in use")
            return False
        return True
