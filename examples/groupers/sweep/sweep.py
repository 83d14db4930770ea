"""Groups the pods of a Sweep: all trials that run at a time start together."""

from dataclasses import replace

from pykai.api.core import Pod
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, Owner, Readers


def group(top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers) -> Metadata:
    trials = top.body.get("spec", {}).get("parallelTrials", 1)
    if not isinstance(trials, int):
        raise GroupingError(f"Sweep {top.metadata.name}: spec.parallelTrials: {trials!r} is no number")
    return replace(default_metadata(top, pod, (), settings, readers), min_available=trials)
