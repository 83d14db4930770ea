"""Records of suspended workloads: what is kept of pods, and what is refused (suspend:record)."""

from __future__ import annotations

import base64
import random
import zlib

import msgspec
import pytest

from pykai.api import names
from pykai.api.core import Container, Pod, PodSpec, ResourceRequirements, SchedulingGate, Volume
from pykai.api.meta import ObjectMeta
from pykai.scheduler.dispatch.suspendrecord import (
    SuspendRecord,
    SuspendRecordError,
    SuspendState,
    WorkloadOwner,
    decode_record,
    templates_of,
)
from pykai.scheduler.intake.placeholderpods import is_placeholder

OWNER = WorkloadOwner("batch/v1", "Job", "train", "u-1")
SINCE = "2026-01-01T00:00:00Z"


def pod(name: str, gpus: str = "1", **labels: str) -> Pod:
    """A pod on a node, as a kubelet runs it."""
    container = Container(name="main", resources=ResourceRequirements(requests={names.NVIDIA_GPU: gpus}))
    annotations = {names.POD_GROUP_ANNOTATION: "train", names.RECEIVED_TYPE_ANNOTATION: "Fraction"}
    marks = {names.GPU_GROUP_LABEL: name, f"{names.GPU_GROUP_LABEL_PREFIX}{name}": "x", **labels}
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"u-{name}", labels=marks, annotations=annotations),
        spec=PodSpec(
            containers=(container,),
            node_name="a",
            scheduling_gates=(SchedulingGate(name=names.ADMISSION_GATE),),
            volumes=(Volume(name=f"kube-api-access-{name}"), Volume(name="data")),
        ),
    )


def record(*pods: Pod) -> SuspendRecord:
    return SuspendRecord(OWNER, SINCE, templates_of(pods))


def test_equal_pods_are_one_template_without_their_nodes() -> None:
    kept = record(pod("a"), pod("b"), pod("c", gpus="2"))
    assert [template.count for template in kept.templates] == [2, 1]
    for each in kept.placeholders("ns/train", "g-1"):
        assert each.spec.node_name == ""
        assert each.spec.scheduling_gates == ()
        assert [volume.name for volume in each.spec.volumes] == ["data"]
        assert each.metadata.labels == {}
        assert each.metadata.annotations == {names.POD_GROUP_ANNOTATION: "train"}


def test_placeholders_have_names_that_no_pod_can_have() -> None:
    """suspend:demand"""
    made = record(pod("a"), pod("b", **{names.SUBGROUP_LABEL: "worker"})).placeholders("ns/train", "g-1")
    assert [each.metadata.name for each in made] == ["placeholder:g-1:0", "placeholder:g-1:1"]
    assert all(is_placeholder(each.metadata.uid) for each in made)
    assert not is_placeholder("3f0c8b1e-0000-4000-8000-000000000000")
    assert {each.metadata.namespace for each in made} == {"ns"}
    assert [each.metadata.labels for each in made] == [{}, {names.SUBGROUP_LABEL: "worker"}]


def test_a_record_is_read_as_it_was_written() -> None:
    kept = SuspendRecord(
        OWNER,
        SINCE,
        templates_of([pod("a"), pod("b", gpus="4")]),
        SuspendState.RESUMING,
        ("u-a",),
        {"placeholder:g-1:0": "node-1"},
        1_700_000_000_000_000_000,
    )
    data = kept.encode()
    assert (data["owner"], data["state"]) == ("Job/train", "resuming")
    assert decode_record(data) == kept
    assert decode_record(data).mark("g-1") == f"g-1/{SINCE}"


def test_a_record_that_is_too_large_says_how_large() -> None:
    noise = random.Random(0)
    pods = [pod(f"p{at}", note=noise.randbytes(600).hex()) for at in range(1500)]
    with pytest.raises(SuspendRecordError, match=r"^1500 pods need a record of \d+ bytes; a ConfigMap holds 990000$"):
        record(*pods).encode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not base64!",
        base64.b64encode(b"not compressed").decode(),
        base64.b64encode(zlib.compress(b"[]")).decode(),
        base64.b64encode(zlib.compress(b"[" * 100_000)).decode(),
        base64.b64encode(zlib.compress(msgspec.json.encode({"owner": {}, "since": 1}))).decode(),
    ],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(SuspendRecordError, match="not a record of a suspended workload"):
        decode_record({"workload": text})


def test_a_bomb_is_not_unpacked() -> None:
    bomb = base64.b64encode(zlib.compress(b" " * 70_000_000)).decode()
    with pytest.raises(SuspendRecordError, match="more than 64000000 bytes"):
        decode_record({"workload": bomb})
