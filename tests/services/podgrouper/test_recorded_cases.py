"""The recorded cases once more, through the service on an API server: owners, pods and their uids as recorded."""

from __future__ import annotations

import json

import pytest

from pykai.kube.runtime import Runtime
from pykai.podgrouper.kinds import GROUPERS
from pykai.podgrouper.options import PodGrouperOptions
from pykai.podgrouper.service import PodGrouper, make_podgrouper
from tests.podgrouper.folder import MISSING
from tests.podgrouper.groupings import Raw
from tests.podgrouper.test_recorded_groups import CASES, differences
from tests.services.workplace import Document, Workplace, workplace

REFUSED = "PodGrouperWarning"


def make(runtime: Runtime) -> PodGrouper:
    return make_podgrouper(runtime, PodGrouperOptions(), GROUPERS)


def load(place: Workplace, case: Raw) -> None:
    """Put everything of a case into storage."""
    namespace = case["pods"][0]["metadata"]["namespace"]
    place.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "uid": namespace}})
    for owner in case["owners"]:
        place.load(owner)
    for pod in case["pods"]:
        spec = {**pod["spec"], "containers": [{"name": "main", "image": "example"}]}
        meta = pod["metadata"]
        place.load({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Pending"}})


def written(pod: Document) -> Raw:
    meta = pod["metadata"]
    found = {"pod-group-name": meta.get("annotations", {}).get("pod-group-name")}
    if "kai.scheduler/subgroup-name" in meta.get("labels", {}):
        found["kai.scheduler/subgroup-name"] = meta["labels"]["kai.scheduler/subgroup-name"]
    return found


def trimmed(group: Document) -> Document:
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    meta = {key: value for key, value in group["metadata"].items() if key in kept}
    return {"metadata": meta, "spec": group["spec"]}


@pytest.mark.conformance
@pytest.mark.skipif(not CASES, reason=MISSING)
async def test_the_service_groups_as_recorded() -> None:
    async with workplace() as place:
        await place.classes()
        await place.server.garbage.stop()
        for case in CASES:
            load(place, case)
        expected = sum(
            names["pod-group-name"] is not None for case in CASES for names in case["expect"]["pods"].values()
        )
        refused = sum(len(case["pods"]) for case in CASES if not case["expect"]["podGroups"])
        async with place.running(make):
            await place.pods.until(
                lambda pods: sum("pod-group-name" in pod.metadata.annotations for pod in pods.values()) == expected
            )
            await place.events.until(
                lambda events: sum(event["reason"] == REFUSED for event in events.values()) == refused
            )
        found = []
        for case in CASES:
            namespace = case["pods"][0]["metadata"]["namespace"]
            groups = sorted(await place.raw_groups(namespace), key=lambda group: str(group["metadata"]["name"]))
            pods = {}
            for pod in case["pods"]:
                name = pod["metadata"]["name"]
                pods[name] = written(await place.raw_pod(name, namespace))
            found += differences(case, [trimmed(group) for group in groups], pods)
    assert found == [], json.dumps(found, indent=1)
