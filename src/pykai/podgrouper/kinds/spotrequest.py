"""SPOTRequests: one group with the priority of inference (workloads:DF-7)."""

from __future__ import annotations

from pykai.api import names
from pykai.api.core import Pod
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingSettings, Metadata, Owner, Readers


def group_spot_request(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of a SPOTRequest."""
    return default_metadata(top, pod, (), settings, readers, priority_class=names.PRIORITY_CLASS_INFERENCE)
