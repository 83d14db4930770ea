"""Names of the wire contract, plugins with their arguments, actions, generators, hooks, and the configuration file."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tests.frozen import program


def wire_names() -> list[str]:
    """Constants of `api/names.py` with their values."""
    found = {name: value for name, value in vars(program.names).items() if name.isupper()}
    return [f"{name} = {_plain(value)}" for name, value in found.items()]


def _plain(value: Any) -> str:
    return repr(sorted(value)) if isinstance(value, frozenset) else repr(value)


def simulator_names() -> list[str]:
    """Annotations of pods and nodes for simulated machines."""
    texts = [value for value in vars(program.names).values() if isinstance(value, str)]
    return [text for text in texts if text.startswith("simulator.kai.scheduler/")]


def event_reasons() -> list[str]:
    """Reasons of events and of refusals that have a name; `written.py` lists those that services write."""
    found = {name: value for name, value in vars(program.names).items() if name.startswith(("EVENT_", "REASON_"))}
    lines = [f"{name.partition('_')[0].lower()} {value}" for name, value in found.items()]
    return [*lines, f"event {program.POOL_NOT_SERVED}"]


def condition_names() -> list[str]:
    """Types and reasons of conditions that have a name."""
    found = []
    for name, value in vars(program.names).items():
        if name.startswith("CONDITION_"):
            found.append(f"{'reason' if name.startswith('CONDITION_REASON_') else 'type'} {value}")
    return found


def plugins() -> list[str]:
    """Plugins, their arguments with defaults, and the built-in configurations."""
    lines = []
    for name, kind in program.PLUGINS.items():
        made = kind()
        lines.append(f"plugin {name}")
        for argument, (field, read) in kind.ARGUMENTS.items():  # type: ignore[attr-defined]
            lines.append(f"plugin {name} argument {argument} default {_plain(getattr(made, field))}")
            lines += [f"plugin {name} argument {argument} admits {word}" for word in _words(read)]
    lines += [f"plugin {name}" for name in program.ORDER_PLUGINS]
    lines += [f"plugin {name} decides nothing" for name in program.ACCEPTED_WITHOUT_EFFECT]
    for profile, listed in program.PROFILES.items():
        for number, (name, arguments) in enumerate(listed):
            lines.append(f"profile {profile} {number:02} {name} {dict(arguments)}")
    for name, plugin in program.BINDER_PLUGINS.items():
        lines.append(f"binder plugin {name} enabled {plugin.enabled} priority {plugin.priority}")
        lines += [f"binder plugin {name} argument {key} default {value}" for key, value in plugin.arguments.items()]
    return lines


def _words(read: Any) -> list[str]:
    """The values that the reader of an argument accepts, taken from its error message for a bad one."""
    try:
        read("\x00")
    except ValueError as error:
        expected = str(error)
        return [expected.removeprefix("expected one of ")] if expected.startswith("expected one of ") else []
    return []


def actions() -> list[str]:
    """Actions, their default order, and generators of scenarios."""
    lines = [f"action {name}" for name in program.ACTIONS]
    lines += [f"default order {number} {name}" for number, name in enumerate(program.names.DEFAULT_ACTIONS)]
    lines += [f"generator {name}" for name in program.GENERATORS]
    return lines


def hooks() -> list[str]:
    """What a plugin may add, and the fields of the records it makes for that."""
    kinds: dict[str, Any] = {
        "hook": program.Hooks,
        "node check": program.NodeCheck,
        "node score": program.NodeScore,
    }
    return [f"{word} {field.name}" for word, kind in kinds.items() for field in fields(kind)]


def configuration() -> list[str]:
    """Keys of the scheduler's configuration file."""
    lines = list(program.CONFIGURATION_KEYS)
    lines += [f"tiers[].plugins[].{key}" for key in ("name", "arguments", *program.PLUGIN_SWITCHES)]
    lines += [f"scenarioSearchBudgets.{key}" for key in program.BUDGET_KEYS]
    lines += [f"usageDBConfig.{key}" for key in program.USAGE_KEYS]
    return lines
