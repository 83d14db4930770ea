"""CronJobs: each run, a Job, is a group of its own; the CronJob's labels are ignored (workloads:WK-CJ).

The minimum of such a Job is 1 whatever its annotation says: recorded groups of KAI show it, and a running group must
not change its minimum when another grouper takes over.
"""

from __future__ import annotations

from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, Owner, Readers


def group_cron_job(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of the Job that the pod belongs to."""
    uid = next((reference.uid for reference in pod.metadata.owner_references if reference.kind == "Job"), None)
    job = next((owner for owner in owners if uid is not None and owner.metadata.uid == uid), None)
    if job is None:
        pod_name = object_key(pod.metadata.namespace, pod.metadata.name)
        raise GroupingError(
            f"no owner reference of type 'Job' on pod {pod_name}, which CronJob {top.metadata.name} owns"
        )
    return default_metadata(job, pod, (), settings, readers)
