"""The few functions of PyKAI that the comparison calls, found by name in the modules of this installation.

A module that moves needs no change here.  A function that gets another name needs one more candidate in `_NAMES`, and
old names must stay in it: the same text runs with the old installation and with the new one.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

#: what is called -> packages to look in, and its names, newest last
_NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "schedule": (("pykai.core",), ("schedule",)),
    "read_snapshot": (("pykai.scheduler",), ("read_snapshot",)),
    "decode_object": (("pykai.api",), ("decode_object",)),
    "job_order": (("pykai.scheduler",), ("job_order",)),
    "group_text": (("pykai.core",), ("group_text",)),
    "detailed_group_text": (("pykai.core",), ("detailed_group_text",)),
    "refusal_text": (("pykai.core",), ("refusal_text",)),
    "reason_of": (("pykai.core",), ("reason_of",)),
    "verdict_text": (("pykai.core",), ("verdict_text", "no_eviction_text")),
    "stale_text": (("pykai.core",), ("stale_text",)),
    "orphan_text": (("pykai.core",), ("orphan_text",)),
    "queue_line": (("pykai.core",), ("queue_line",)),
    "queue_details": (("pykai.core",), ("queue_details",)),
    "read_cases": (("pykai.simulator", "pykai.dev"), ("read_cases",)),
    "CaseRun": (("pykai.simulator", "pykai.dev"), ("CaseRun",)),
    "check_case": (("pykai.simulator", "pykai.dev"), ("check_case",)),
}


class NotFound(Exception):
    """This installation has nothing with that name."""


@cache
def _modules(package: str) -> tuple[ModuleType, ...]:
    return tuple(_below(package))


def _below(package: str) -> Iterator[ModuleType]:
    try:
        root = importlib.import_module(package)
    except ModuleNotFoundError:
        return
    yield root
    for each in pkgutil.walk_packages(getattr(root, "__path__", ()), f"{package}."):
        if not each.name.endswith("__main__"):
            try:
                yield importlib.import_module(each.name)
            except ImportError:
                continue


@cache
def find(what: str) -> Any:
    """A function or class; raises `NotFound` where none or more than one is defined."""
    packages, spellings = _NAMES[what]
    for package in packages:
        for spelling in reversed(spellings):
            found = [
                value
                for module in _modules(package)
                if (value := vars(module).get(spelling)) is not None
                and getattr(value, "__module__", "") == module.__name__
            ]
            if len(found) == 1:
                return found[0]
            if found:
                places = sorted(value.__module__ for value in found)
                raise NotFound(f"{spelling} is defined in {', '.join(places)}: name the right package in adapter.py")
    raise NotFound(f"{what}: no module of {', '.join(packages)} defines {' or '.join(spellings)}; see adapter.py")


def member(owner: Any, *spellings: str) -> Any:
    """A member of an object under the first of its names that this installation knows."""
    for spelling in spellings:
        if hasattr(owner, spelling):
            return getattr(owner, spelling)
    raise NotFound(f"{type(owner).__name__} has none of {', '.join(spellings)}; see runner.py")


def new_memory() -> Any:
    """What the last cycle hands to the next: the type of the third parameter of `schedule`."""
    schedule = find("schedule")
    third = list(inspect.signature(schedule).parameters)[2]
    kinds = typing.get_args(typing.get_type_hints(schedule)[third])
    (kind,) = [each for each in kinds if each is not type(None)]
    return kind()


def plan_bytes(plan: Any) -> bytes:
    """A plan as canonical JSON."""
    encoded: bytes = plan.encoded()
    return encoded
