"""Rows of `fields`: what services write, forged by a tenant, and the fields of its own PodGroups."""

from __future__ import annotations

from pykai.api import names
from tests.attack.fieldobjects import (
    ACCESS,
    CRITICAL,
    FUTURE,
    GPUS,
    HUGE,
    INVALID_TREE,
    NO_TOPOLOGY,
    NOT_READY,
    OVER_QUOTA,
    PAST,
    THEIR_JOB,
    THEIRS,
    Change,
    Row,
    forged_request,
    forged_status,
    job,
    one_pod,
    own_group,
    patched,
    request_of_others,
    with_stamp,
)
from tests.attack.target import HONEST

_APPLIED = f'{{"spec": {{"queue": "{HONEST}"}}}}'

# What services write, and what is only copied.
FORGED_ROWS = (
    *(
        Row(
            key,
            "PodGroup",
            f"{value[:4]}, while its pod runs",
            own_group(),
            later=with_stamp(key, value),
            refused="rights",
        )
        for key, value in (
            (names.STALE_TIMESTAMP_ANNOTATION, FUTURE),
            (names.LAST_START_TIMESTAMP_ANNOTATION, FUTURE),
            (names.LAST_EVICTION_TIMESTAMP_ANNOTATION, PAST),
        )
    ),
    *(
        Row(key, "Job", "the past, for the PodGroup to inherit", job(annotations={key: PAST}), kept_off=PAST)
        for key in (
            names.STALE_TIMESTAMP_ANNOTATION,
            names.LAST_START_TIMESTAMP_ANNOTATION,
            names.LAST_EVICTION_TIMESTAMP_ANNOTATION,
        )
    ),
    Row(
        names.TOP_OWNER_METADATA_ANNOTATION,
        "Job",
        "the Job of others",
        job(annotations={names.TOP_OWNER_METADATA_ANNOTATION: f"name: {THEIR_JOB}\nkind: Job\n"}),
    ),
    Row(
        names.MADE_FROM_ANNOTATION,
        "Job",
        "the pod group of others",
        job(annotations={names.MADE_FROM_ANNOTATION: f"KueuePodGroup/{THEIRS}"}),
        kept_off=f"KueuePodGroup/{THEIRS}",
    ),
    Row(
        names.IGNORE_WORKLOAD_API_ANNOTATION,
        "pod",
        "to leave the gang of others aside",
        one_pod(
            annotations={names.IGNORE_WORKLOAD_API_ANNOTATION: "true"},
        ),
    ),
    Row(
        names.KUEUE_STOPPING_ANNOTATION,
        "Job",
        "that Kueue stops it",
        job(annotations={names.KUEUE_STOPPING_ANNOTATION: "true"}),
        kept_off="true",
    ),
    Row(
        names.SUSPENDED_BY_ANNOTATION,
        "Job",
        "that the scheduler suspended it",
        job(annotations={names.SUSPENDED_BY_ANNOTATION: f"{THEIRS}/{PAST}"}),
        kept_off=f"{THEIRS}/{PAST}",
    ),
    Row(
        names.EVICTION_STRATEGY_ANNOTATION,
        "pod",
        "to be suspended, without an owner",
        one_pod(annotations={names.EVICTION_STRATEGY_ANNOTATION: names.EVICTION_STRATEGY_SUSPEND}),
    ),
    Row(
        names.LAST_APPLIED_ANNOTATION,
        "Job",
        "the queue of others",
        job(annotations={names.LAST_APPLIED_ANNOTATION: _APPLIED}),
        kept_off=_APPLIED,
    ),
    Row(
        names.DEPLOYMENT_REVISION_ANNOTATION,
        "Job",
        "the largest number",
        job(annotations={names.DEPLOYMENT_REVISION_ANNOTATION: HUGE}),
    ),
)

# The PodGroup itself, its status, and BindRequests.
POD_GROUP_ROWS = (
    Row("spec.queue", "PodGroup", "the queue of others", own_group(queue=HONEST), ACCESS),
    Row(
        "spec.queue",
        "PodGroup that runs",
        "the queue of others",
        own_group(),
        later=lambda spot: [Change("PodGroup", spot.name, {"spec": {"queue": HONEST}})],
    ),
    Row("spec.minMember", "PodGroup", "none", own_group(minimum=0)),
    Row("spec.minMember", "PodGroup", "the largest number", own_group(minimum=int(HUGE)), NOT_READY),
    Row("spec.minMember", "PodGroup", "a negative number", lambda spot: [spot.group(minimum=-1)], refused="always"),
    Row(
        "spec.minSubGroup",
        "PodGroup",
        "the largest number",
        own_group(
            {"labels": {names.SUBGROUP_LABEL: "a"}},
            minMember=None,
            minSubGroup=int(HUGE),
            subGroups=[{"name": "a", "minMember": 1}],
        ),
        INVALID_TREE,
    ),
    Row(
        "spec.subGroups",
        "PodGroup",
        "a circle of parents",
        own_group(
            {"labels": {names.SUBGROUP_LABEL: "a"}},
            minMember=None,
            subGroups=[{"name": "a", "parent": "b", "minMember": 1}, {"name": "b", "parent": "a", "minMember": 1}],
        ),
        "which does not exist in PodGroup",
        refused="webhooks",
    ),
    Row("spec.priorityClassName", "PodGroup", "the highest class", own_group(priorityClassName=CRITICAL), OVER_QUOTA),
    Row(
        "spec.preemptibility",
        "PodGroup",
        "non-preemptible over quota",
        own_group(preemptibility=names.NON_PREEMPTIBLE),
        OVER_QUOTA,
    ),
    Row(
        "spec.preemptibility",
        "PodGroup that runs",
        "non-preemptible, once it runs over quota",
        own_group(),
        later=patched("PodGroup", {"spec": {"preemptibility": names.NON_PREEMPTIBLE}}),
        refused="running",
        protects=True,
    ),
    Row(
        "spec.priorityClassName",
        "PodGroup that runs",
        "the highest class, once it runs over quota",
        own_group(),
        later=patched("PodGroup", {"spec": {"priorityClassName": CRITICAL}}),
        refused="running",
        protects=True,
    ),
    Row(
        "spec.minMember",
        "PodGroup that runs",
        "semi-preemptible, with all pods in its minimum",
        own_group(),
        later=patched("PodGroup", {"spec": {"preemptibility": names.SEMI_PREEMPTIBLE, "minMember": 8}}),
        refused="always",
    ),
    Row(
        "spec.subGroups",
        "PodGroup that runs",
        "the same, by a subgroup",
        own_group(),
        later=patched(
            "PodGroup",
            {
                "spec": {
                    "preemptibility": names.SEMI_PREEMPTIBLE,
                    "minMember": None,
                    "subGroups": [{"name": names.DEFAULT_SUBGROUP, "minMember": 8}],
                }
            },
        ),
        refused="always",
    ),
    Row(
        "spec.topologyConstraint",
        "PodGroup",
        "a Topology that does not exist",
        own_group(topologyConstraint={"topology": "nowhere", "requiredTopologyLevel": names.HOSTNAME_LABEL}),
        NO_TOPOLOGY,
    ),
    Row(
        "spec.markUnschedulable",
        "PodGroup",
        "false, in the queue of others",
        own_group(queue=HONEST, markUnschedulable=False),
        ACCESS,
    ),
    Row("spec.schedulingBackoff", "PodGroup", "a number without meaning", own_group(schedulingBackoff=-100)),
    Row("spec.preemptionDelay", "PodGroup", "a negative time", own_group(preemptionDelay="-1h0m0s")),
    Row(
        "spec.stalenessGracePeriod",
        "PodGroup",
        "never to be evicted as an incomplete gang",
        own_group(stalenessGracePeriod="-1s"),
    ),
    Row(
        "status.resourcesStatus",
        "PodGroup in the queue of others",
        "100 GPUs",
        own_group(queue=HONEST),
        ACCESS,
        later=forged_status(resourcesStatus={"allocated": GPUS, "allocatedNonPreemptible": GPUS, "requested": GPUS}),
        refused="rights",
    ),
    Row(
        "status.schedulingConditions",
        "PodGroup in the queue of others",
        "none",
        own_group(queue=HONEST),
        ACCESS,
        later=forged_status(schedulingConditions=[]),
        refused="rights",
    ),
    Row(
        "status.conditions",
        "PodGroup in the queue of others",
        "that it is scheduled",
        own_group(queue=HONEST),
        ACCESS,
        later=forged_status(conditions=[{"type": "Scheduled", "status": "True"}]),
        refused="rights",
    ),
    Row(
        "status.pods",
        "PodGroup in the queue of others",
        "that a hundred pods have a node",
        own_group(queue=HONEST),
        ACCESS,
        later=forged_status(pods={"total": 100, "placed": 100}),
        refused="rights",
    ),
    Row(
        "status.state",
        "PodGroup in the queue of others",
        "that it runs",
        own_group(queue=HONEST),
        ACCESS,
        later=forged_status(state="Running"),
        refused="rights",
    ),
    Row(
        "spec.selectedNode",
        "BindRequest",
        "a pod in the queue of others",
        forged_request,
        refused="rights",
        may_run=True,
    ),
    Row("spec.podName", "BindRequest", "a pod of others that waits", request_of_others, refused="rights"),
    Row(
        "status.phase",
        "BindRequest",
        "that a pod in the queue of others is bound",
        lambda spot: [
            *forged_request(spot),
            Change("BindRequest", spot.name, {"status": {"phase": "Succeeded"}}, "status"),
        ],
        refused="rights",
        may_run=True,
    ),
)
