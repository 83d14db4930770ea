"""`scenarioSearchBudgets` of the configuration file (cycle:13.2): durations to units of work.

The engine counts work, so that a replay stops where the original stopped; a second is a fixed number of units. Upstream
skips whole cycles because of a wrong key here; we report it and use the built-in value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pykai.api.duration import DurationError, parse_duration
from pykai.core.actions import ACTIONS
from pykai.core.eviction.scenarios import GENERATORS
from pykai.core.model.problems import Problem, ProblemReporter
from pykai.core.policy import UNITS_PER_SECOND, SearchBudgets

_SUBJECT = "scheduler configuration"
_PATH = "scenarioSearchBudgets"
_DEFAULT = "default"
_KEYS = ("maxActionSearchDuration", "maxJobSearchDuration", "minJobSearchDuration", "maxGeneratorSearchDuration")


def read_budgets(value: object, report: ProblemReporter) -> SearchBudgets:
    """The budgets; missing or invalid ones have their built-in value (cycle:SOL-5)."""
    built_in = SearchBudgets()
    if value is None:
        return built_in
    if not isinstance(value, Mapping):
        report(Problem(_SUBJECT, _PATH, "expected a mapping; the built-in budgets are used"))
        return built_in
    for key in value:
        if key not in _KEYS:
            report(Problem(_SUBJECT, f"{_PATH}.{key}", f"unknown key; known are {', '.join(_KEYS)}; ignored"))

    def read_one(key: str, default: int | None) -> int | None:
        return _units(value[key], f"{_PATH}.{key}", default, report) if key in value else default

    searching = tuple(action.name for action in ACTIONS.values() if action.has_budget)
    actions = _read_durations(value, "maxActionSearchDuration", searching, {_DEFAULT: built_in.default_action}, report)
    generators = _read_durations(
        value,
        "maxGeneratorSearchDuration",
        tuple(GENERATORS),
        {**built_in.generators, _DEFAULT: built_in.default_generator},
        report,
    )
    job = read_one("maxJobSearchDuration", built_in.job)
    minimum = read_one("minJobSearchDuration", 0) or 0
    if job is not None and minimum >= job:
        text = "expected less than maxJobSearchDuration; the built-in values of both are used"
        report(Problem(_SUBJECT, f"{_PATH}.minJobSearchDuration", text))
        job, minimum = built_in.job, built_in.job_minimum
    default_action, default_generator = actions.pop(_DEFAULT), generators.pop(_DEFAULT)
    return SearchBudgets(actions, default_action, job, minimum, generators, default_generator)


# An unknown key costs that key only (cycle:CYC-4).
def _read_durations(
    value: Mapping[Any, Any],
    key: str,
    allowed: Collection[str],
    built_in: dict[str, int | None],
    report: ProblemReporter,
) -> dict[str, int | None]:
    budgets = dict(built_in)
    durations = value.get(key)
    if durations is None:
        return budgets
    if not isinstance(durations, Mapping):
        report(Problem(_SUBJECT, f"{_PATH}.{key}", "expected a mapping of durations; the built-in ones are used"))
        return budgets
    for name, duration in durations.items():
        path = f"{_PATH}.{key}.{name}"
        if name != _DEFAULT and name not in allowed:
            report(Problem(_SUBJECT, path, f"unknown key; known are {', '.join((_DEFAULT, *allowed))}; ignored"))
            continue
        budgets[name] = _units(duration, path, budgets.get(name, budgets[_DEFAULT]), report)
    return budgets


def _units(value: object, path: str, default: int | None, report: ProblemReporter) -> int | None:
    """Units of a duration; 0 is unlimited."""
    try:
        span = parse_duration(str(value))
        if span < 0:
            raise ValueError("expected a duration that is not negative")
    except (DurationError, ValueError) as error:
        report(Problem(_SUBJECT, path, f"{error}; the built-in value is used"))
        return default
    return None if span == 0 else max(1, span * UNITS_PER_SECOND // 1_000_000_000)
