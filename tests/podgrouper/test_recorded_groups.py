"""PodGroups as KAI's pod grouper made them, byte for byte, one test a recorded case.

Every case goes through the real steps (walk over the owners, grouper, object or patch) with answers from the case.
Kinds without a grouper of their own yet are left to `test_recorded_segments` and what comes after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup
from pykai.kube.clock import Clock
from pykai.kube.errors import NotFound
from pykai.podgrouper.kinds import grouper_for
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, ObjectName
from pykai.podgrouper.owners import OwnerCache, find_owners
from pykai.podgrouper.writes import group_patch, new_group, pod_patch
from tests.podgrouper.casefolder import FOLDER, MISSING
from tests.podgrouper.groupings import FakeReaders, Raw


def recorded() -> Iterator[Raw]:
    for path in sorted(FOLDER.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def is_native(case: Raw) -> bool:
    """Whether all owners are of Kubernetes' own kinds."""
    kinds = {(*owner["apiVersion"].rpartition("/")[::2], owner["kind"]) for owner in case["owners"]}
    return kinds <= built_in_groupers().keys()


CASES = [case for case in recorded() if is_native(case)]


async def outcome(case: Raw) -> tuple[list[Raw], dict[str, Raw]]:
    """PodGroups in order of name, and what is written on each pod."""
    owners = {(owner["apiVersion"], owner["kind"], owner["metadata"]["name"]): owner for owner in case["owners"]}

    async def fetch(which: ObjectName) -> Mapping[str, Any]:
        found = owners.get((which.api_version, which.kind, which.name))
        if found is None:
            raise NotFound(404)
        return dict(found)

    groups: dict[str, Raw] = {}
    known = FakeReaders()
    written: dict[str, Raw] = {}
    for raw in case["pods"]:
        one = decode_as(Pod, raw)
        name = one.metadata.name
        try:
            top, chain = await find_owners(one, lambda _: None, fetch, OwnerCache(Clock(), 60))
            grouper = grouper_for(built_in_groupers(), (top.group, top.version, top.kind))
            meta = grouper(top, one, chain, GroupingSettings(), known)
        except GroupingError:
            written[name] = {names.POD_GROUP_ANNOTATION: None}
            continue
        key = f"{meta.namespace}/{meta.name}"
        if key not in groups:
            groups[key] = new_group(meta)
            known.groups[key] = decode_as(PodGroup, groups[key])
        # Every further pod finds the group as it should be.
        assert group_patch(known.groups[key], meta, GroupingSettings()) is None
        patch = pod_patch(one, meta)
        assert patch is not None
        written[name] = patch["metadata"]["annotations"] | patch["metadata"].get("labels", {})
    return [groups[key] for key in sorted(groups)], written


def differences(case: Raw, groups: list[Raw], written: dict[str, Raw]) -> list[str]:
    """What is not as recorded, byte for byte."""
    expected = sorted(case["expect"]["podGroups"], key=lambda group: str(group["metadata"]["name"]))
    ours = [{"metadata": group["metadata"], "spec": group["spec"]} for group in groups]
    found = []
    if _bytes(expected) != _bytes(ours):
        found.append(f"PodGroups: recorded {_bytes(expected)}, now {_bytes(ours)}")
    if _bytes(case["expect"]["pods"]) != _bytes(written):
        found.append(f"pods: recorded {_bytes(case['expect']['pods'])}, now {_bytes(written)}")
    return found


def _bytes(value: object) -> str:
    return json.dumps(value, sort_keys=True)


if CASES:

    @pytest.mark.conformance
    @pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
    async def test_groups_are_as_recorded(case: Raw) -> None:
        groups, written = await outcome(case)
        assert differences(case, groups, written) == []

else:

    @pytest.mark.skip(reason=MISSING)
    def test_recorded_groups() -> None:
        """Skipped in place of the cases while there are none."""


def golden() -> Raw:
    """workloads:T-150."""
    text = 'name: train-pod\nuid: u1\ngroup: ""\nversion: v1\nkind: Pod\n'
    return {
        "owners": [],
        "pods": [
            {
                "metadata": {
                    "name": "train-pod",
                    "namespace": "ns",
                    "uid": "u1",
                    "labels": {"kai.scheduler/queue": "q"},
                },
                "spec": {"schedulerName": "kai-scheduler"},
                "phase": "Pending",
            }
        ],
        "expect": {
            "podGroups": [
                {
                    "metadata": {
                        "name": "pg-train-pod-u1",
                        "namespace": "ns",
                        "labels": {"kai.scheduler/queue": "q"},
                        "annotations": {"kai.scheduler/top-owner-metadata": text},
                        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "train-pod", "uid": "u1"}],
                    },
                    "spec": {
                        "minMember": 1,
                        "queue": "q",
                        "priorityClassName": "train",
                        "topologyConstraint": {},
                    },
                }
            ],
            "pods": {"train-pod": {"pod-group-name": "pg-train-pod-u1"}},
        },
    }


async def test_the_golden_group_comes_out_as_written() -> None:
    """workloads:T-150."""
    assert differences(golden(), *await outcome(golden())) == []


async def test_the_comparison_sees_every_difference() -> None:
    case = golden()
    case["expect"]["podGroups"][0]["spec"]["minMember"] = 2
    case["expect"]["pods"]["train-pod"]["pod-group-name"] = "other"
    assert [text.partition(":")[0] for text in differences(case, *await outcome(case))] == ["PodGroups", "pods"]
