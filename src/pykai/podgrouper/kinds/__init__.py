"""Which grouper serves which kind of workload: the table of kinds, and the entry-point group `pykai.groupers`.

A third party adds a kind in its own pyproject.toml; the name of the entry point is the kind, `<group>/<version>/<Kind>`
with `*` for any version, the value a grouper:

    [project.entry-points."pykai.groupers"]
    "example.com/*/Sweep" = "mypackage.sweep:group"

An entry point wins over the table, the exact version over `*`, and both over what administrators describe
(`describedkinds`).  A kind that all of these do not know gets the default grouper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Final

from pykai.podgrouper.entrypoints import load_grouper
from pykai.podgrouper.kinds.default import group_default
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.metadata import Grouper, GroupVersionKind

ENTRY_POINTS: Final = "pykai.groupers"


#: Groupers by kind; of several tables the first that knows a kind wins.
GrouperTable = Mapping[GroupVersionKind, Grouper]


def grouper_for(tables: Sequence[GrouperTable], kind: GroupVersionKind) -> Grouper:
    """The grouper of a kind, the default one for an unknown kind (workloads:HB-1)."""
    return known_grouper(tables, kind) or group_default


def known_grouper(tables: Sequence[GrouperTable], kind: GroupVersionKind) -> Grouper | None:
    """The grouper of a kind, None for an unknown kind."""
    group, _, name = kind
    for groupers in tables:
        found = groupers.get(kind) or groupers.get((group, "*", name))
        if found is not None:
            return found
    return None


def installed_groupers() -> dict[GroupVersionKind, Grouper]:
    """The table and installed entry points; an unusable entry point is logged and skipped."""
    groupers = built_in_groupers()
    loaded = (load_grouper(point) for point in entry_points(group=ENTRY_POINTS))
    groupers.update(each for each in loaded if each is not None)
    return groupers
