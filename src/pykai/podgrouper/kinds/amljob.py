"""AmlJobs of Azure Machine Learning: all nodes of the job start together (workloads:5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from msgspec import field

from pykai.api.core import Pod
from pykai.api.meta import Int64, Wire
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, Owner, Readers
from pykai.podgrouper.ownerspec import checked_minimum, describe_owner, read_owner

_PATH: Final = "spec.job.options.envs.AZUREML_NODE_COUNT"


class _AmlEnvironment(Wire):
    node_count: Int64 | None = field(default=None, name="AZUREML_NODE_COUNT")


class _AmlOptions(Wire):
    envs: _AmlEnvironment = field(default_factory=_AmlEnvironment)


class _AmlInnerJob(Wire):
    options: _AmlOptions = field(default_factory=_AmlOptions)


class _AmlJobSpec(Wire):
    job: _AmlInnerJob = field(default_factory=_AmlInnerJob)


class _AmlJob(Wire):
    spec: _AmlJobSpec = field(default_factory=_AmlJobSpec)


def group_aml_job(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of an AmlJob."""
    count = read_owner(_AmlJob, top).spec.job.options.envs.node_count
    if count is None:
        raise GroupingError(f"{describe_owner(top)}: {_PATH}: missing; expected the number of nodes")
    minimum = checked_minimum(top, _PATH, count)
    return replace(default_metadata(top, pod, (), settings, readers), min_available=minimum)
