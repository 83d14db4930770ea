"""What plugins import: the hooks, what their functions receive and return, and readers for arguments.

The modules behind these names move between versions; this list does not.  A name that goes stays for one version with a
DeprecationWarning (`pykai.deprecated`).  docs/plugins.md describes the hooks.
"""

from __future__ import annotations

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import BranchState, Gang, LeafState
from pykai.core.cycle.journal import Observer
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import DiscreteLedger, State
from pykai.core.hooks import (
    ALL_NODES,
    EvictionProposal,
    Hooks,
    Loss,
    NodeCheck,
    NodeScore,
    NodeSet,
    NoNodeSets,
    Planes,
    Plugin,
    PreFailure,
    Scope,
)
from pykai.core.model.axes import BoolArray, FloatArray, IntArray, Rows
from pykai.core.model.queuetree import QueueAmounts
from pykai.core.model.shapes import Shape
from pykai.core.model.sharedgpus import DeviceUse
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import Vector
from pykai.core.plugins.arguments import (
    ArgumentReader,
    read_count,
    read_duration_ns,
    read_flag,
    read_list,
    read_number,
    read_one_of,
)
from pykai.core.queueing.queueledger import CapacityRefusal
from pykai.core.report.decisions import NoEviction, Refusal

__all__ = [
    # A plugin and what it may add.
    "Plugin",
    "Hooks",
    "NodeCheck",
    "NodeScore",
    "NodeSet",
    "ALL_NODES",
    "Scope",
    "Observer",
    "DiscreteLedger",
    # What hooks receive.
    "Snapshot",
    "State",
    "PlacementRequest",
    "Rows",
    "Planes",
    "Task",
    "Shape",
    "Vector",
    "Gang",
    "LeafState",
    "BranchState",
    "DeviceUse",
    "QueueAmounts",
    "EvictionProposal",
    "Loss",
    "BoolArray",
    "FloatArray",
    "IntArray",
    # What hooks return when they refuse.
    "PreFailure",
    "NoNodeSets",
    "Refusal",
    "CapacityRefusal",
    "NoEviction",
    # Readers for `ARGUMENTS`.
    "ArgumentReader",
    "read_count",
    "read_duration_ns",
    "read_flag",
    "read_list",
    "read_number",
    "read_one_of",
]
