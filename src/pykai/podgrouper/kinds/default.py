"""Any kind without rules of its own: one group for the top owner, one pod is enough to start it.

The only grouper that reads the whole chain of owners: a label on a ReplicaSet in the middle counts.
"""

from __future__ import annotations

from pykai.api.core import Pod
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingSettings, Metadata, Owner, Readers


def group_default(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """One group for everything below the top owner."""
    return default_metadata(top, pod, owners, settings, readers)
