"""Subgroups of PyTorchJobs and LeaderWorkerSets as KAI's pod grouper made them, one test a recorded case.

The folder may hold no case of these kinds; then one test is skipped. Two cases written by hand, after
the golden objects workloads:T-151 and T-153 show that the comparison sees differences.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.api.names import POD_GROUP_ANNOTATION, SUBGROUP_LABEL
from pykai.podgrouper.segments import SegmentError, subgroups_of
from tests.podgrouper.casefolder import FOLDER, MISSING

Raw = dict[str, Any]


def divided(cases: Iterator[Raw]) -> list[Raw]:
    """Cases whose top owner has a rule for segments."""
    found = []
    for case in cases:
        kinds = {(owner["apiVersion"].partition("/")[0], owner["kind"]) for owner in case["owners"][:1]}
        if kinds & {("kubeflow.org", "PyTorchJob"), ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")}:
            found.append(case)
    return found


def recorded() -> Iterator[Raw]:
    for path in sorted(FOLDER.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def differences(case: Raw) -> list[str]:
    """What differs, pod by pod. Where KAI refuses to group, an error or a reported problem is as good (topo:TD-19)."""
    groups = {group["metadata"]["name"]: group["spec"] for group in case["expect"]["podGroups"] or []}
    found = []
    for raw in case["pods"]:
        name = raw["metadata"]["name"]
        written = case["expect"]["pods"][name]
        group = groups.get(written[POD_GROUP_ANNOTATION])
        try:
            parts = subgroups_of(case["owners"][0], decode_as(Pod, raw))
        except SegmentError as error:
            if group is not None:
                found.append(f"{name}: {error}")
            continue
        assert parts is not None
        if group is None:
            if not parts.problems:
                found.append(f"{name}: was refused, is grouped")
            continue
        ours = msgspec.to_builtins(parts.sub_groups)
        for what, recorded_as, is_now in (
            ("subgroups", group.get("subGroups", []), list(ours)),
            ("subgroup of the pod", written.get(SUBGROUP_LABEL, ""), parts.pod_sub_group),
            ("minMember", group.get("minMember"), parts.min_member),
        ):
            if recorded_as != is_now:
                found.append(f"{name}: {what}: recorded {recorded_as}, now {is_now}")
    return found


CASES = divided(recorded())

if CASES:

    @pytest.mark.conformance
    @pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
    def test_subgroups_are_as_recorded(case: Raw) -> None:
        assert differences(case) == []

else:

    @pytest.mark.skip(reason=f"{FOLDER} has no case of a kind with segments" if FOLDER.is_dir() else MISSING)
    def test_recorded_subgroups() -> None:
        """Skipped in place of the cases while there are none."""


def golden_pytorch() -> Raw:
    """workloads:T-151."""
    rack = {"topology": "t", "requiredTopologyLevel": "rack"}
    segments = [
        {"name": f"worker-{number}", "parent": "worker", "minMember": least, "topologyConstraint": rack}
        for number, least in enumerate((2, 2, 0, 0))
    ]
    template = {
        "kai.scheduler/segment-size": "2",
        "kai.scheduler/topology": "t",
        "kai.scheduler/segment-topology-required-placement": "rack",
    }
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "5"}
    return {
        "owners": [
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": {"name": "j"},
                "spec": {
                    "elasticPolicy": {"minReplicas": 5},
                    "pytorchReplicaSpecs": {
                        "Master": {"replicas": 1},
                        "Worker": {"replicas": 8, "template": {"metadata": {"annotations": template}}},
                    },
                },
            }
        ],
        "pods": [{"metadata": {"name": "w", "labels": labels}, "spec": {}, "phase": "Pending"}],
        "expect": {
            "podGroups": [
                {
                    "metadata": {"name": "g"},
                    "spec": {
                        "minMember": 5,
                        "subGroups": [
                            {"name": "master", "minMember": 1},
                            {"name": "worker", "minSubGroup": 4},
                            *segments,
                        ],
                    },
                }
            ],
            "pods": {"w": {"pod-group-name": "g", "kai.scheduler/subgroup-name": "worker-2"}},
        },
    }


def golden_set() -> Raw:
    """workloads:T-153."""
    form = {"size": 5, "subGroupPolicy": {"subGroupSize": 2}}
    labels = {"leaderworkerset.sigs.k8s.io/worker-index": "3"}
    return {
        "owners": [
            {
                "apiVersion": "leaderworkerset.x-k8s.io/v1",
                "kind": "LeaderWorkerSet",
                "metadata": {"name": "l"},
                "spec": {"leaderWorkerTemplate": form},
            }
        ],
        "pods": [{"metadata": {"name": "l-0-3", "labels": labels}, "spec": {}, "phase": "Pending"}],
        "expect": {
            "podGroups": [
                {
                    "metadata": {"name": "pg-l-u-group-0"},
                    "spec": {
                        "minMember": 5,
                        "subGroups": [
                            {"name": "segment-0", "minSubGroup": 2},
                            {"name": "segment-1", "minMember": 2},
                            {"name": "leader", "parent": "segment-0", "minMember": 1},
                            {"name": "workers", "parent": "segment-0", "minMember": 2},
                        ],
                    },
                }
            ],
            "pods": {"l-0-3": {"pod-group-name": "pg-l-u-group-0", "kai.scheduler/subgroup-name": "segment-1"}},
        },
    }


def test_the_golden_objects_come_out_as_written() -> None:
    """workloads:T-151, T-153."""
    assert divided(iter([golden_pytorch(), golden_set()])) == [golden_pytorch(), golden_set()]
    assert differences(golden_pytorch()) == []
    assert differences(golden_set()) == []


def test_the_comparison_sees_every_difference() -> None:
    case = golden_set()
    case["expect"]["podGroups"][0]["spec"]["minMember"] = 4
    case["expect"]["podGroups"][0]["spec"]["subGroups"].pop()
    case["expect"]["pods"]["l-0-3"]["kai.scheduler/subgroup-name"] = "segment-0"
    assert [text.split(":")[1] for text in differences(case)] == [" subgroups", " subgroup of the pod", " minMember"]


def test_the_comparison_sees_a_refusal() -> None:
    case = golden_set()
    case["expect"] = {"podGroups": [], "pods": {"l-0-3": {"pod-group-name": None}}}
    assert differences(case) == ["l-0-3: was refused, is grouped"]
    case["owners"][0]["spec"]["leaderWorkerTemplate"]["subGroupPolicy"]["subGroupSize"] = 9
    assert differences(case) == []
    case["owners"][0]["spec"]["leaderWorkerTemplate"]["size"] = 0
    assert differences(case) == []
    broken = golden_set()
    broken["owners"][0]["spec"]["leaderWorkerTemplate"]["size"] = 0
    assert differences(broken)[0].startswith("l-0-3: LeaderWorkerSet/l: spec.leaderWorkerTemplate.size")
