"""The recorded cases once more, through the service on an API server.

Owners and pods are created as they were recorded, those of other operators under definitions that allow anything.  Only
the uids are the server's own, so the recorded outcome is read with these in place of the recorded ones; everything else
has to be equal, byte for byte.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from pykai.dev.groupingcases import grouping_differences, outcome_of
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.resources import Resource
from pykai.podgrouper.kinds.table import WORKLOAD_KINDS
from tests.podgrouper.casefolder import CASES, MISSING
from tests.podgrouper.groupings import Raw
from tests.servers import ensure_namespace
from tests.services.podgrouper.grouped import GROUP, WARNING, definition, grouper, permission
from tests.services.servicecluster import Document, ServiceCluster

SKIP = "kai.scheduler/skip-podgrouper"
#: written by the server into a Job and its template
GENERATED = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
KINDS: dict[str, Resource] = {
    known.kind: known
    for known in (
        resources.JOBS,
        resources.CRON_JOBS,
        resources.DEPLOYMENTS,
        resources.REPLICA_SETS,
        resources.STATEFUL_SETS,
    )
}


def resource_of(owner: Raw) -> Resource:
    group, _, version = owner["apiVersion"].rpartition("/")
    kind = owner["kind"]
    return KINDS.get(kind) or Resource(group, version, f"{kind.lower()}s", kind, True)


async def install_kinds(place: ServiceCluster) -> None:
    """The kinds of other operators; those that the role does not name are allowed by an administrator."""
    foreign = {resource_of(owner) for case in CASES for owner in case.owners} - set(KINDS.values())
    for each in sorted(foreign, key=str):
        known = (each.group, each.version, each.kind) in WORKLOAD_KINDS or (
            each.group,
            "*",
            each.kind,
        ) in WORKLOAD_KINDS
        allowed = [] if known else permission(each.group, each.plural)
        await place.ensure(definition(each.group, each.version, each.plural, each.kind), *allowed)


def opted_out(case: Raw) -> bool:
    return any(SKIP in (each["metadata"].get("annotations") or {}) for each in (*case["owners"], *case["pods"]))


async def created(client: Client, case: Raw) -> Raw:
    """Create everything of a case; the case with the uids it got."""
    await ensure_namespace(client, case["pods"][0]["metadata"]["namespace"])
    for place in range(len(case["owners"])):
        owner = case["owners"][place]
        made = {"metadata": without_uid(owner), "spec": owner["spec"]}
        if owner["kind"] == "Job":
            made = as_submitted(made)
        answer = await client.create(resource_of(owner), made, owner["metadata"]["namespace"])
        case = with_uid(case, owner["metadata"]["uid"], answer["metadata"]["uid"])
    for place in range(len(case["pods"])):
        pod = case["pods"][place]
        spec = {**pod["spec"], "containers": [{"name": "main", "image": "example"}]}
        made = {"metadata": without_uid(pod), "spec": spec}
        answer = await client.create(resources.PODS, made, pod["metadata"]["namespace"])
        case = with_uid(case, pod["metadata"]["uid"], answer["metadata"]["uid"])
    return case


def as_submitted(job: Document) -> Document:
    """A Job without the selector and the labels that the server gives it."""
    template = job["spec"]["template"]
    of_template, of_job = (
        {key: value for key, value in (meta.get("labels") or {}).items() if key not in GENERATED}
        for meta in (template["metadata"], job["metadata"])
    )
    spec = {key: value for key, value in job["spec"].items() if key != "selector"}
    spec["template"] = {**template, "metadata": {**template["metadata"], "labels": of_template}}
    # A Job without labels is given those of its template.
    labels = {} if of_job == of_template else of_job
    return {"metadata": {**job["metadata"], "labels": labels}, "spec": spec}


def without_uid(recorded: Document) -> Document:
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    return {key: value for key, value in recorded["metadata"].items() if key in kept}


def with_uid(case: Raw, recorded: str, now: str) -> Raw:
    found: Raw = json.loads(json.dumps(case).replace(recorded, now))
    return found


@pytest.mark.conformance
@pytest.mark.skipif(not CASES, reason=MISSING)
async def test_the_service_groups_as_recorded(place: ServiceCluster) -> None:
    await install_kinds(place)
    cases = [await created(place.client, msgspec.to_builtins(case)) for case in CASES]
    expected = sum(names[GROUP] is not None for case in cases for names in case["expect"]["pods"].values())
    refused = sum(len(case["pods"]) for case in cases if not case["expect"]["podGroups"] and not opted_out(case))
    async with place.running(grouper()) as service:
        await place.pods.wait_until(
            lambda pods: sum(GROUP in pod.metadata.annotations for pod in pods.values()) == expected
        )
        await place.events.wait_until(
            lambda events: sum(event["reason"] == WARNING for event in events.values()) == refused
        )
        await place.settled(service)
    found = []
    for case in cases:
        namespace = case["pods"][0]["metadata"]["namespace"]
        pods = [await place.raw_pod(pod["metadata"]["name"], namespace) for pod in case["pods"]]
        found += grouping_differences(case["expect"], outcome_of(await place.raw_groups(namespace), pods))
    assert found == [], json.dumps(found, indent=1)
