"""Every label, annotation and field by which a workload speaks to the services, each as one attack (point 10).

A row says what the tenant writes where, and what becomes of it.  `fieldrun` carries out all rows in one cluster, each
twice: on a machine with free GPUs, where a queue of others could be charged, and on one whose GPUs others hold, where
pods of others could be evicted.  `docs/security.md` lists the rows.

`tests/attack/test_fields.py` fails when the pod grouper reads a key that has no row.
"""

from __future__ import annotations

from pykai.api import names
from tests.attack.fieldobjects import (
    ACCESS,
    ALONE,
    CRITICAL,
    FREE,
    HEAD,
    HUGE,
    JOB_SET_POD,
    NO_GROUP,
    NO_TOPOLOGY,
    NOT_READY,
    OTHER_POOL,
    OVER_QUOTA,
    SKIP,
    THEIR_KUEUES,
    THEIR_SPARKS,
    THEIRS,
    TOPOLOGY,
    UNFINISHED,
    UNFINISHED_GROUPS,
    WORKER,
    Change,
    Row,
    forged_owner,
    grove,
    job,
    job_set,
    karta,
    knative,
    lws,
    mpi,
    one_pod,
    own_group,
    patched,
    pytorch,
    ray,
)
from tests.attack.forgedfields import FORGED_ROWS, POD_GROUP_ROWS
from tests.attack.target import HONEST, TENANT

# A closed queue.
_QUEUE_ROWS = (
    Row(names.QUEUE_LABEL, "pod", "the queue of others", one_pod(queue=HONEST), ACCESS),
    Row(names.QUEUE_LABEL, "Job", "the same", job(queue="", labels={names.QUEUE_LABEL: HONEST}), ACCESS),
    Row(names.QUEUE_LABEL, "template of a Job", "the same", job(queue=HONEST), ACCESS),
    Row(names.QUEUE_LABEL, "pod", "the parent of all queues", one_pod(queue="root"), "not a leaf queue"),
    Row(names.QUEUE_LABEL, "pod", "a queue that does not exist", one_pod(queue="nowhere"), NO_GROUP),
    Row(
        names.QUEUE_LABEL,
        "PodGroup that runs",
        "the queue of others",
        own_group(),
        later=lambda spot: [Change("PodGroup", spot.name, {"metadata": {"labels": {names.QUEUE_LABEL: HONEST}}})],
    ),
    Row(
        names.PROJECT_LABEL,
        "pod",
        "the queue of others",
        one_pod(queue="", labels={names.PROJECT_LABEL: HONEST}),
        ACCESS,
    ),
    Row(names.PROJECT_LABEL, "Job", "the same", job(queue="", labels={names.PROJECT_LABEL: HONEST}), ACCESS),
    Row(
        names.NODE_POOL_LABEL,
        "pod",
        "the queue of others with `project`, removed from the PodGroup later",
        one_pod(queue="", labels={names.PROJECT_LABEL: HONEST, names.NODE_POOL_LABEL: "fast"}),
        ACCESS,
        waits_first=OTHER_POOL,
        # Back to the pool that is served.
        later=lambda spot: [
            Change("PodGroup", f"pg-{spot.name}-{{uid}}", {"metadata": {"labels": {names.NODE_POOL_LABEL: None}}})
        ],
    ),
    Row(
        "spec.workloadRef",
        "pod",
        "a Workload of others, in whose queue it would be",
        one_pod(queue=HONEST, workloadRef={"name": "theirs", "podGroup": "workers"}),
        ACCESS,
    ),
    Row(
        "spec.schedulingGroup",
        "pod",
        "a group of others, in whose queue it would be",
        one_pod(queue=HONEST, schedulingGroup={"podGroupName": "theirs"}),
        ACCESS,
    ),
    Row(
        names.DEFAULT_QUEUE_ANNOTATION,
        "Namespace",
        "the queue of others, for a pod that names none",
        lambda spot: [
            Change("Namespace", TENANT, {"metadata": {"annotations": {names.DEFAULT_QUEUE_ANNOTATION: HONEST}}}),
            spot.pod(queue=""),
        ],
        ACCESS,
        refused="rights",
    ),
)

_CRITICAL = {names.PRIORITY_CLASS_LABEL: CRITICAL}
_NON_PREEMPTIBLE = {names.PREEMPTIBILITY_LABEL: names.NON_PREEMPTIBLE}
_PREEMPTIBLE = {names.PREEMPTIBILITY_LABEL: names.PREEMPTIBLE}

# Priority, protection and waits; the tenant's queue has no quota of GPUs.
_PRIORITY_ROWS = (
    Row(names.PRIORITY_CLASS_LABEL, "pod", "the highest class", one_pod(labels=_CRITICAL), OVER_QUOTA),
    Row(names.PRIORITY_CLASS_LABEL, "Job", "the highest class", job(labels=_CRITICAL), OVER_QUOTA),
    Row(
        names.PRIORITY_CLASS_LABEL,
        "pod",
        "the highest class, preemptible so that no quota is needed",
        one_pod(labels={**_CRITICAL, **_PREEMPTIBLE}),
    ),
    Row(
        names.PRIORITY_CLASS_LABEL,
        "pod",
        "a class that does not exist",
        one_pod(labels={names.PRIORITY_CLASS_LABEL: "boundless"}),
    ),
    Row("spec.priorityClassName", "pod", "the highest class", one_pod(priorityClassName=CRITICAL), OVER_QUOTA),
    Row(names.PREEMPTIBILITY_LABEL, "pod", "non-preemptible over quota", one_pod(labels=_NON_PREEMPTIBLE), OVER_QUOTA),
    Row(names.PREEMPTIBILITY_LABEL, "Job", "non-preemptible over quota", job(labels=_NON_PREEMPTIBLE), OVER_QUOTA),
    Row(
        names.PREEMPTIBILITY_LABEL,
        "pod",
        "a word that does not exist",
        one_pod(labels={names.PREEMPTIBILITY_LABEL: "never"}),
    ),
    Row(
        names.PREEMPTIBILITY_LABEL,
        "Job that runs",
        "non-preemptible, once it runs over quota",
        job(),
        later=patched("Job", {"metadata": {"labels": _NON_PREEMPTIBLE}}),
    ),
    Row(
        names.PRIORITY_CLASS_LABEL,
        "Job that runs",
        "the highest class, once it runs over quota",
        job(),
        later=patched("Job", {"metadata": {"labels": _CRITICAL}}),
    ),
    Row(
        names.PREEMPTIBILITY_LABEL,
        "pod of a PyTorchJob that runs",
        "non-preemptible, once it runs over quota",
        pytorch(WORKER),
        later=patched("Pod", {"metadata": {"labels": _NON_PREEMPTIBLE}}, suffix="-0"),
    ),
    Row(
        names.RAY_PRIORITY_CLASS_LABEL,
        "RayCluster",
        "the highest class",
        ray(HEAD, labels={names.RAY_PRIORITY_CLASS_LABEL: CRITICAL}),
        OVER_QUOTA,
    ),
    Row(
        names.RAY_PRIORITY_CLASS_LABEL,
        "RayCluster",
        "a class that does not exist",
        ray(HEAD, labels={names.RAY_PRIORITY_CLASS_LABEL: "boundless"}),
    ),
    Row(
        names.KUEUE_PRIORITY_CLASS_LABEL,
        "pod",
        "the highest class",
        one_pod(labels={names.KUEUE_PRIORITY_CLASS_LABEL: CRITICAL}),
        OVER_QUOTA,
    ),
    Row(
        names.PREEMPTION_DELAY_ANNOTATION,
        "pod",
        "a negative time",
        one_pod(annotations={names.PREEMPTION_DELAY_ANNOTATION: "-1h"}),
    ),
    Row(
        names.STALENESS_GRACE_PERIOD_ANNOTATION,
        "pod",
        "never to be evicted as an incomplete gang",
        one_pod(annotations={names.STALENESS_GRACE_PERIOD_ANNOTATION: "-1s"}),
    ),
    Row(names.USER_LABEL, "pod", "the name of another user", one_pod(labels={names.USER_LABEL: HONEST})),
    Row(names.USER_ANNOTATION, "pod", "the same", one_pod(annotations={names.USER_ANNOTATION: HONEST})),
)

# Places: topologies, segments, pools.
_NOWHERE = {names.TOPOLOGY_ANNOTATION: "nowhere", names.TOPOLOGY_REQUIRED_ANNOTATION: names.HOSTNAME_LABEL}
_SEGMENT_LEVEL = {names.SEGMENT_SIZE_ANNOTATION: "2", names.TOPOLOGY_ANNOTATION: TOPOLOGY}
_PLACE_ROWS = (
    Row(
        names.NODE_POOL_LABEL,
        "pod",
        "a pool that no scheduler serves",
        one_pod(labels={names.NODE_POOL_LABEL: "elsewhere"}),
        waits=OTHER_POOL,
    ),
    Row(names.TOPOLOGY_ANNOTATION, "Job", "a Topology that does not exist", job(annotations=_NOWHERE), NO_TOPOLOGY),
    Row(
        names.TOPOLOGY_REQUIRED_ANNOTATION,
        "Job",
        "one machine, and that of others among them",
        job(
            annotations={names.TOPOLOGY_ANNOTATION: TOPOLOGY, names.TOPOLOGY_REQUIRED_ANNOTATION: names.HOSTNAME_LABEL}
        ),
    ),
    Row(
        names.TOPOLOGY_PREFERRED_ANNOTATION,
        "Job",
        "a level that does not exist",
        job(annotations={names.TOPOLOGY_ANNOTATION: TOPOLOGY, names.TOPOLOGY_PREFERRED_ANNOTATION: "moon"}),
        "moon",
    ),
    Row(
        names.SEGMENT_SIZE_ANNOTATION,
        "template of a PyTorchJob",
        "a negative size",
        pytorch(WORKER, {names.SEGMENT_SIZE_ANNOTATION: "-2"}),
    ),
    Row(
        names.SEGMENT_SIZE_ANNOTATION,
        "template of a PyTorchJob",
        "the largest number",
        pytorch(WORKER, {names.SEGMENT_SIZE_ANNOTATION: HUGE}),
    ),
    Row(
        names.SEGMENT_TOPOLOGY_REQUIRED_ANNOTATION,
        "template of a PyTorchJob",
        "a level that does not exist",
        pytorch(WORKER, {**_SEGMENT_LEVEL, names.SEGMENT_TOPOLOGY_REQUIRED_ANNOTATION: "moon"}, workers=2),
        "moon",
    ),
    Row(
        names.SEGMENT_TOPOLOGY_PREFERRED_ANNOTATION,
        "template of a PyTorchJob",
        "the machine",
        pytorch(
            WORKER, {**_SEGMENT_LEVEL, names.SEGMENT_TOPOLOGY_PREFERRED_ANNOTATION: names.HOSTNAME_LABEL}, workers=2
        ),
    ),
    Row(
        names.GROVE_TOPOLOGY_ANNOTATION,
        "PodGang",
        "a Topology that does not exist",
        grove(
            annotations={names.GROVE_TOPOLOGY_ANNOTATION: "nowhere"},
            topologyConstraint={"packConstraint": {"required": names.HOSTNAME_LABEL}},
        ),
        NO_TOPOLOGY,
    ),
)

# Minimums.
_MINIMUM_ROWS = (
    Row(
        names.BATCH_MIN_MEMBER_ANNOTATION,
        "Job",
        "none",
        job(annotations={names.BATCH_MIN_MEMBER_ANNOTATION: "0"}),
    ),
    Row(
        names.BATCH_MIN_MEMBER_ANNOTATION,
        "Job",
        "a negative number",
        job(annotations={names.BATCH_MIN_MEMBER_ANNOTATION: "-1"}),
        "minMember",
    ),
    Row(
        names.BATCH_MIN_MEMBER_ANNOTATION,
        "Job",
        "the largest number",
        job(annotations={names.BATCH_MIN_MEMBER_ANNOTATION: HUGE}),
    ),
    Row(
        names.BATCH_MIN_MEMBER_ANNOTATION,
        "JobSet",
        "none",
        job_set(JOB_SET_POD, annotations={names.BATCH_MIN_MEMBER_ANNOTATION: "0"}),
        "invalid min-member",
    ),
    Row(
        names.KNATIVE_MIN_SCALE_ANNOTATION,
        "Revision",
        "the largest number",
        knative(**{names.KNATIVE_MIN_SCALE_ANNOTATION: HUGE}),
        NOT_READY,
    ),
    Row(
        names.KNATIVE_MIN_SCALE_ANNOTATION,
        "Revision",
        "a negative number",
        knative(**{names.KNATIVE_MIN_SCALE_ANNOTATION: "-1"}),
    ),
    Row(
        names.LWS_SIZE_ANNOTATION,
        "pod of a LeaderWorkerSet",
        "the largest number",
        lws({names.LWS_WORKER_INDEX_LABEL: "1"}, {names.LWS_SIZE_ANNOTATION: HUGE}, policy="LeaderReady"),
        NOT_READY,
    ),
    Row(
        names.KUEUE_POD_GROUP_COUNT_ANNOTATION,
        "pod",
        "a negative number",
        lambda spot: [
            spot.pod(
                labels={names.KUEUE_POD_GROUP_LABEL: spot.name},
                annotations={names.KUEUE_POD_GROUP_COUNT_ANNOTATION: "-1"},
            )
        ],
        "is not a number of pods",
    ),
)

# Groups of others: by name, by owner, by what their operators write.
_GROUP_ROWS = (
    Row(names.POD_GROUP_ANNOTATION, "pod", "the group of others", one_pod(group=THEIRS), ALONE),
    Row(
        names.POD_GROUP_ANNOTATION,
        "pod",
        "the group of others, with its namespace",
        one_pod(group=f"{HONEST}/{THEIRS}"),
        ALONE,
    ),
    Row(
        names.POD_GROUP_ANNOTATION,
        "pod",
        "a group of others that lacks a pod, by a path",
        one_pod(group=f"../{HONEST}/{UNFINISHED}"),
        ALONE,
    ),
    Row(
        names.POD_GROUP_ANNOTATION,
        "template of a Job",
        "a group of others that lacks a pod",
        job(template_annotations={names.POD_GROUP_ANNOTATION: UNFINISHED}),
    ),
    Row(
        names.POD_GROUP_ANNOTATION,
        "pod that runs",
        "a non-preemptible group of its own, once it runs over quota",
        lambda spot: [spot.group(), spot.protected_group(), spot.pod(group=spot.name)],
        later=lambda spot: [
            Change("Pod", spot.name, {"metadata": {"annotations": {names.POD_GROUP_ANNOTATION: spot.protected_name}}})
        ],
        refused="running",
        protects=True,
    ),
    Row(
        names.SUBGROUP_LABEL,
        "pod",
        "a subgroup of the group of others",
        one_pod(group=THEIRS, labels={names.SUBGROUP_LABEL: "workers"}),
        ALONE,
    ),
    Row(
        names.SUBGROUP_LABEL,
        "pod of its own group",
        "a subgroup of the group of others",
        own_group({"labels": {names.SUBGROUP_LABEL: "workers"}}),
        "which does not exist in PodGroup",
    ),
    Row(
        names.SKIP_POD_GROUPER_ANNOTATION,
        "pod",
        "its own PodGroup in the queue of others",
        own_group({"annotations": SKIP}, queue=HONEST),
        ACCESS,
    ),
    Row(
        names.SKIP_POD_GROUPER_ANNOTATION,
        "Job",
        "the group of others",
        job(annotations=SKIP, template_annotations={names.POD_GROUP_ANNOTATION: THEIRS}),
        ALONE,
    ),
    Row("metadata.ownerReferences", "pod", "the Job of others, with its uid", forged_owner, "failed to find"),
    Row(
        names.SPARK_APP_SELECTOR_LABEL,
        "pod",
        "the application of others",
        lambda spot: [
            spot.pod(
                labels={
                    names.SPARK_APP_NAME_LABEL: "app",
                    names.SPARK_APP_SELECTOR_LABEL: THEIR_SPARKS[spot.machine],
                }
            )
        ],
    ),
    Row(
        names.SPARK_APP_NAME_LABEL,
        "pod",
        "the application of others, without a selector",
        one_pod(labels={names.SPARK_APP_NAME_LABEL: THEIR_SPARKS[FREE]}),
    ),
    Row(
        names.SPARK_ROLE_LABEL,
        "pod",
        "to be an executor of a group of others that lacks a pod",
        lambda spot: [
            spot.pod(
                labels={
                    names.SPARK_APP_NAME_LABEL: "app",
                    names.SPARK_APP_SELECTOR_LABEL: UNFINISHED_GROUPS[spot.machine],
                    names.SPARK_ROLE_LABEL: names.SPARK_EXECUTOR,
                }
            )
        ],
    ),
    Row(
        names.KUEUE_POD_GROUP_LABEL,
        "pod",
        "the pod group of others",
        lambda spot: [
            spot.pod(
                labels={names.KUEUE_POD_GROUP_LABEL: THEIR_KUEUES[spot.machine]},
                annotations={names.KUEUE_POD_GROUP_COUNT_ANNOTATION: "1"},
            )
        ],
    ),
    Row(names.GROVE_POD_GANG_LABEL, "pod", "the PodGang of others", grove(gang=THEIRS), NO_GROUP),
    Row(
        names.GROVE_POD_GANG_LABEL,
        "pod",
        "its own PodGang, which lists a pod of others",
        grove(namespace=HONEST),
        "expected pods of namespace",
    ),
    Row(names.GROVE_POD_CLIQUE_LABEL, "pod", "a group of pods that its PodGang lacks", grove(clique=THEIRS), NOT_READY),
    Row(names.KNATIVE_REVISION_LABEL, "pod", "the Revision of others", knative(revision=THEIRS), NO_GROUP),
    Row(
        names.KUBEFLOW_REPLICA_TYPE_LABEL,
        "pod of a PyTorchJob",
        "a role that does not exist",
        pytorch({names.KUBEFLOW_REPLICA_TYPE_LABEL: THEIRS}),
        NOT_READY,
    ),
    Row(
        names.KUBEFLOW_REPLICA_INDEX_LABEL,
        "pod of a PyTorchJob",
        "a segment that does not exist",
        pytorch({**WORKER, names.KUBEFLOW_REPLICA_INDEX_LABEL: "999"}, {names.SEGMENT_SIZE_ANNOTATION: "2"}, workers=2),
        "is beyond the",
    ),
    Row(
        names.KUBEFLOW_JOB_NAME_LABEL,
        "pod of an MPIJob",
        "the launcher of the job of others",
        mpi(lambda _: {names.KUBEFLOW_JOB_NAME_LABEL: THEIRS, names.KUBEFLOW_ROLE_LABEL: "launcher"}),
    ),
    Row(
        names.KUBEFLOW_ROLE_LABEL,
        "pod of an MPIJob",
        "a worker that says it is the launcher",
        mpi(lambda spot: {names.KUBEFLOW_JOB_NAME_LABEL: spot.name, names.KUBEFLOW_ROLE_LABEL: "launcher"}),
        NOT_READY,
    ),
    Row(
        names.RAY_GROUP_LABEL,
        "pod of a RayCluster",
        "a worker group that does not exist",
        ray({names.RAY_GROUP_LABEL: THEIRS}),
        NOT_READY,
    ),
    Row(
        names.LWS_WORKER_INDEX_LABEL,
        "pod of a LeaderWorkerSet",
        "no number",
        lws({names.LWS_WORKER_INDEX_LABEL: THEIRS}),
        "expected a whole number of 0 or more",
    ),
    Row(
        names.LWS_GROUP_INDEX_LABEL,
        "pod of a LeaderWorkerSet",
        "the largest number",
        lws({names.LWS_GROUP_INDEX_LABEL: HUGE, names.LWS_WORKER_INDEX_LABEL: "0"}),
    ),
    Row(
        names.JOBSET_REPLICATED_JOB_LABEL,
        "pod of a JobSet",
        "a replicated job that does not exist",
        job_set({**JOB_SET_POD, names.JOBSET_REPLICATED_JOB_LABEL: THEIRS}),
        "belongs to subgroup",
    ),
    Row(
        names.JOBSET_JOB_INDEX_LABEL,
        "pod of a JobSet",
        "a replica that does not exist",
        job_set({**JOB_SET_POD, names.JOBSET_JOB_INDEX_LABEL: HUGE}),
        "belongs to subgroup",
    ),
    Row(
        names.KARTA_GROUP_LABEL,
        "Karta",
        "the kind of workloads of others",
        lambda spot: [karta(spot, names.KARTA_GROUP_LABEL)],
        refused="always",
    ),
    Row(
        names.KARTA_VERSION_LABEL,
        "Karta",
        "the same",
        lambda spot: [karta(spot, names.KARTA_VERSION_LABEL)],
        refused="always",
    ),
    Row(
        names.KARTA_KIND_LABEL,
        "Karta",
        "the same",
        lambda spot: [karta(spot, names.KARTA_KIND_LABEL)],
        refused="always",
    ),
)


ROWS: tuple[Row, ...] = (
    *_QUEUE_ROWS,
    *_PRIORITY_ROWS,
    *_PLACE_ROWS,
    *_MINIMUM_ROWS,
    *_GROUP_ROWS,
    *FORGED_ROWS,
    *POD_GROUP_ROWS,
)


def listing() -> list[str]:
    """The rows as the table of docs/security.md."""
    head = ["| Name or field | Where | What the tenant tries | What happens |", "|---|---|---|---|"]
    return head + [f"| `{row.key}` | {row.where} | {row.tried} | {row.ends} |" for row in ROWS]
