"""Names that plugins used up to version 0.1: they work for one more version, with a DeprecationWarning.

`import pykai` appends an importer that finds the old modules; a real module of the same name takes precedence.  Old
attributes and keyword arguments are added to the classes of the engine when a third-party plugin is loaded or an old
name is imported, so an engine without such plugins is left alone.

Names are text and resolved on use, because this module is the lowest layer.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache, wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: The module that plugins import from.
STABLE_MODULE = "pykai.plugin"

#: Old module -> old name -> name in the stable module.  Only `pykai.core.hooks` still exists as a module.
MODULES: Mapping[str, Mapping[str, str]] = {
    "pykai.core.hooks": {
        "Ask": "PlacementRequest",
        "EVERY_NODE": "ALL_NODES",
        "NoSets": "NoNodeSets",
        "Taking": "EvictionProposal",
    },
    "pykai.core.axes": {"BoolArray": "BoolArray", "FloatArray": "FloatArray", "IntArray": "IntArray"},
    "pykai.core.decisions": {"Refusal": "Refusal", "Verdict": "NoEviction"},
    "pykai.core.devices": {"DeviceUse": "DeviceUse"},
    "pykai.core.fairshare": {},
    "pykai.core.fairshare.ledger": {"Amounts": "QueueAmounts", "Refusal": "CapacityRefusal"},
    "pykai.core.gangs": {"BranchRun": "BranchState", "Gang": "Gang", "LeafRun": "LeafState"},
    "pykai.core.journal": {"Books": "DiscreteLedger", "Observer": "Observer"},
    "pykai.core.shapes": {"Shape": "Shape"},
    "pykai.core.snapshot": {"Snapshot": "Snapshot"},
    "pykai.core.state": {"State": "State"},
    "pykai.core.tasks": {"Task": "Task"},
    "pykai.core.vectors": {"Vector": "Vector"},
}

#: Class, by module and name -> old attribute -> new attribute.
ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "pykai.plugin:Hooks": {"ask_key": "cache_key", "books": "discrete_ledger", "hopeless": "unresolvable"},
    "pykai.plugin:Scope": {"ASK": "REQUEST"},
    "pykai.plugin:EvictionProposal": {"committed": "allocated_non_preemptible", "core": "non_preemptible"},
    "pykai.plugin:CapacityRefusal": {"leaving": "terminating"},
    "pykai.plugin:State": {
        "books": "discrete_ledgers",
        "core": "protected_keys",
        "gone": "decided_evictions",
        "is_open": "is_unplaced",
        "leaving": "evicted_from",
        "moved": "placements",
        "seat_of": "placement_of",
    },
    "pykai.plugin:Snapshot": {
        "confined": "free_room_only",
        "groups": "group_entries",
        "kind_preemptible": "is_kind_preemptible",
        "preemptible": "is_preemptible",
        "tasks": "task_records",
        "tasks_on": "tasks_by_node",
        "totals": "cluster_totals",
        "ungrouped": "ungrouped_tasks",
    },
    "pykai.core.cluster.snapshot:NodeTable": {"gpu_mib_known": "has_gpu_memory_label"},
    "pykai.core.queueing.queueledger:QueueLedger": {
        "committed": "allocated_non_preemptible",
        "leaving": "terminating",
        "order_key": "queue_order_key",
        "victim_key": "victim_order_key",
    },
    "pykai.core.model.groups:Group": {"plain": "has_single_leaf"},
    "pykai.plugin:Gang": {
        "active": "active_tasks",
        "core": "protected_keys",
        "open": "unplaced",
        "place": "order_key",
        "semi": "semi_preemptible",
    },
    "pykai.plugin:LeafState": {"open": "unplaced", "standing": "count_and_threshold"},
    "pykai.plugin:BranchState": {"standing": "count_and_threshold"},
    "pykai.plugin:Task": {
        "lasts": "terminates_slowly",
        "ours": "for_this_scheduler",
        "reservation": "is_reservation",
        "utility": "is_utility",
    },
    "pykai.plugin:Shape": {"backed": "dra_backed"},
    "pykai.plugin:Vector": {"asked": "requested"},
    "pykai.plugin:DeviceUse": {
        "has_idle_room": "fits_tenant_now",
        "has_room": "fits_tenant",
        "room": "joinable_mib",
        "unused": "has_no_tenant",
        "vacant": "is_only_reserved",
    },
}

#: Old method of an observer -> new method.
OBSERVER_METHODS: Mapping[str, str] = {"came": "task_added", "went": "task_removed"}


def _warn(old: str, new: str, stacklevel: int) -> None:
    text = f"{old} is deprecated and goes with the next version: use {new}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel + 1)


def renamed(module: str, name: str) -> Any:
    """The object behind an old name; for the `__getattr__` of the module."""
    new = MODULES[module].get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    accept_old_names()
    # The warning points at the line that imports: it skips this function and `__getattr__`.
    _warn(f"{module}.{name}", f"{STABLE_MODULE}.{new}", stacklevel=3)
    return getattr(import_module(STABLE_MODULE), new)


class _OldModule(ModuleType):
    """A module that is gone."""

    def __getattr__(self, name: str) -> Any:
        return renamed(self.__name__, name)


class _OldModules(MetaPathFinder, Loader):
    """Finds modules that are gone."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The importer of an old module, None for all others."""
        if name not in MODULES:
            return None
        is_package = any(other.startswith(f"{name}.") for other in MODULES)
        return ModuleSpec(name, self, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        return _OldModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are looked up when they are used."""


class _OldAttribute:
    """An old attribute of a class: reads the new one."""

    def __init__(self, old: str, new: str) -> None:
        self._old = old
        self._new = new

    def __get__(self, instance: object | None, owner: type) -> Any:
        _warn(f"{owner.__name__}.{self._old}", f"{owner.__name__}.{self._new}", stacklevel=2)
        return getattr(owner if instance is None else instance, self._new)


class _OldObserver:
    """An observer with the old methods."""

    def __init__(self, observer: Any) -> None:
        for old, new in OBSERVER_METHODS.items():
            setattr(self, new, getattr(observer, old))


def _is_old_observer(observer: object) -> bool:
    return any(hasattr(observer, old) and not hasattr(observer, new) for old, new in OBSERVER_METHODS.items())


def _accept_old_arguments(hooks: Any) -> None:
    """Let the constructor of Hooks take its old keyword arguments and old observers."""
    construct = hooks.__init__
    renames = ATTRIBUTES[f"{STABLE_MODULE}:Hooks"]

    @wraps(construct)
    def with_old_arguments(self: Any, *args: Any, **arguments: Any) -> None:
        for old in renames.keys() & arguments.keys():
            _warn(f"Hooks({old}=...)", f"Hooks({renames[old]}=...)", stacklevel=2)
            arguments[renames[old]] = arguments.pop(old)
        observer = arguments.get("observer")
        if _is_old_observer(observer):
            for old, new in OBSERVER_METHODS.items():
                _warn(f"{type(observer).__name__}.{old}", new, stacklevel=2)
            arguments["observer"] = _OldObserver(observer)
        construct(self, *args, **arguments)

    hooks.__init__ = with_old_arguments


@cache
def accept_old_names() -> None:
    """Let the classes of the engine answer to their old attributes and arguments."""
    for place, attributes in ATTRIBUTES.items():
        module, _, name = place.partition(":")
        owner = getattr(import_module(module), name)
        for old, new in attributes.items():
            setattr(owner, old, _OldAttribute(old, new))
    _accept_old_arguments(import_module(STABLE_MODULE).Hooks)


def find_old_modules() -> None:
    """Let imports find the old modules, after every other finder."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())
