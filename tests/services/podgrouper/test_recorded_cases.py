"""The recorded cases once more, through the service on an API server.

Owners and pods are created as they were recorded.  Only the uids are the server's own, so the recorded outcome is read
with these in place of the recorded ones; everything else has to be equal, byte for byte.
"""

from __future__ import annotations

import json

import pytest

from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.resources import Resource
from tests.podgrouper.casefolder import MISSING
from tests.podgrouper.groupings import Raw
from tests.podgrouper.test_recorded_groups import CASES, differences
from tests.servers import ensure_namespace
from tests.services.podgrouper.grouped import GROUP, WARNING, grouper
from tests.services.servicecluster import Document, ServiceCluster

SUBGROUP = "kai.scheduler/subgroup-name"
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


async def created(client: Client, case: Raw) -> Raw:
    """Create everything of a case; the case with the uids it got."""
    await ensure_namespace(client, case["pods"][0]["metadata"]["namespace"])
    for place in range(len(case["owners"])):
        owner = case["owners"][place]
        made = {"metadata": without_uid(owner), "spec": owner["spec"]}
        if owner["kind"] == "Job":
            made = as_submitted(made)
        answer = await client.create(KINDS[owner["kind"]], made, owner["metadata"]["namespace"])
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


def written(pod: Document) -> Raw:
    meta = pod["metadata"]
    found = {GROUP: meta.get("annotations", {}).get(GROUP)}
    if SUBGROUP in meta.get("labels", {}):
        found[SUBGROUP] = meta["labels"][SUBGROUP]
    return found


def trimmed(group: Document) -> Document:
    return {"metadata": without_uid(group), "spec": group["spec"]}


@pytest.mark.conformance
@pytest.mark.skipif(not CASES, reason=MISSING)
async def test_the_service_groups_as_recorded(place: ServiceCluster) -> None:
    cases = [await created(place.client, case) for case in CASES]
    expected = sum(names[GROUP] is not None for case in cases for names in case["expect"]["pods"].values())
    refused = sum(len(case["pods"]) for case in cases if not case["expect"]["podGroups"])
    async with place.running(grouper()):
        await place.pods.wait_until(
            lambda pods: sum(GROUP in pod.metadata.annotations for pod in pods.values()) == expected
        )
        await place.events.wait_until(
            lambda events: sum(event["reason"] == WARNING for event in events.values()) == refused
        )
    found = []
    for case in cases:
        namespace = case["pods"][0]["metadata"]["namespace"]
        groups = sorted(await place.raw_groups(namespace), key=lambda group: str(group["metadata"]["name"]))
        pods = {}
        for pod in case["pods"]:
            name = pod["metadata"]["name"]
            pods[name] = written(await place.raw_pod(name, namespace))
        found += differences(case, [trimmed(group) for group in groups], pods)
    assert found == [], json.dumps(found, indent=1)
