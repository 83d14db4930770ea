"""Jobs: all pods of a Job are one group; an annotation says how many must start together (workloads:WK-JOB).

Subtle: older releases made a group for each pod of a Job.  A pod that has such a group keeps it, so that an upgrade
moves no running pod to another group.

A gang larger than its Job could never be complete, and KAI leaves it waiting forever.  So the minimum is at most
`parallelism`, which Kueue lowers when it admits a Job in part, and at most the number of remaining completions, since
succeeded pods do not start again.  A `parallelism` of 0 is no bound: it pauses the Job, and the gang stays whole.

Statements: kueue:parallelism.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, Owner, Readers

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MAX_INT32: Final = (1 << 31) - 1


def group_job(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of a Job."""
    metadata = default_metadata(top, pod, (), settings, readers)
    if settings.search_legacy_groups:
        legacy = f"pg-{pod.metadata.name}-{top.metadata.uid}"
        if readers.pod_group(pod.metadata.namespace, legacy) is not None:
            return replace(metadata, name=legacy)
    return replace(metadata, min_available=min(min_member(top), _parallelism(top), _remaining_completions(top)))


def min_member(job: Owner) -> int:
    """How many pods of a Job must start together, as its annotation says; 1 without."""
    text = job.metadata.annotations.get(names.BATCH_MIN_MEMBER_ANNOTATION)
    if text is None:
        return 1
    if not _WHOLE_NUMBER.fullmatch(text) or len(text) > 11 or not -_MAX_INT32 - 1 <= int(text) <= _MAX_INT32:
        where = f"{names.BATCH_MIN_MEMBER_ANNOTATION} on Job {job.metadata.namespace}/{job.metadata.name}"
        raise GroupingError(f"invalid min-member annotation value: {text!r}; {where} must be a whole number of 32 bits")
    return int(text)


def _parallelism(job: Owner) -> int:
    """How many pods the Job runs at a time; no bound where that is unknown, or while it is paused."""
    parallelism = _field(job, "spec", "parallelism")
    return parallelism if isinstance(parallelism, int) and parallelism > 0 else _MAX_INT32


def _remaining_completions(job: Owner) -> int:
    """How many pods still have to succeed; no bound before the first has, or where that is unknown."""
    completions = _field(job, "spec", "completions")
    succeeded = _field(job, "status", "succeeded")
    if not isinstance(completions, int) or not isinstance(succeeded, int) or succeeded <= 0:
        return _MAX_INT32
    return max(1, completions - succeeded)


def _field(job: Owner, part: str, name: str) -> object:
    fields = job.body.get(part)
    return fields.get(name) if isinstance(fields, dict) else None
