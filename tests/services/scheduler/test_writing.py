"""The small parts of writing: plans as text, BindRequests as objects, conditions as patches, the pool of writers."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import UUID

import msgspec
import pytest

from pykai.api import names
from pykai.api.core import (
    ClaimVolumeSource,
    Condition,
    EphemeralVolumeSource,
    Pod,
    PodResourceClaim,
    PodSpec,
    PodStatus,
    Volume,
)
from pykai.api.meta import ObjectMeta
from pykai.api.resource import AllocationResult
from pykai.api.scheduling import PodGroup, PodGroupSpec, SchedulingCondition, SubGroup
from pykai.core.model.groups import build_subgroup_tree
from pykai.core.model.shard import Shard
from pykai.core.report.decisions import Bind
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.errors import ConnectionLost
from pykai.scheduler.dispatch.bindplan import BindPlanError, PendingBind, decode_plan, encode_plan, has_minimum
from pykai.scheduler.dispatch.bindrequests import label_value, needs_binder, request_object, request_spec
from pykai.scheduler.status.conditions import pod_condition_patch, unschedulable_conditions
from pykai.scheduler.status.statuswrites import StatusPatch, StatusWrites
from tests.services.scheduler.schedulercluster import SchedulerCluster, refusal, scheduler_cluster

PLAIN = Bind("ns", "p", "uid", "ns/g", "a", names.RECEIVED_REGULAR, 1, "1.00")


def pod(**spec: Any) -> Pod:
    return Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="uid"), spec=PodSpec(**spec))


def test_a_plan_comes_back_as_it_went_out() -> None:
    request = msgspec.to_builtins(request_spec(PLAIN))
    entries = [PendingBind("p0", "u0", "a"), PendingBind("p", "uid", "a", request, {"x": "y"})]
    text = encode_plan(entries)
    assert text == '[["p0","u0","a"],["p","uid","a"]]'
    assert decode_plan(text) == [("p0", "u0", "a"), ("p", "uid", "a")]


def test_a_large_plan_is_compressed_and_one_that_is_too_large_refused() -> None:
    """Uids do not compress well: as many pods as a node holds times 100 nodes fit."""
    dice = random.Random(1)
    places = [(f"train-{index}", str(UUID(bytes=dice.randbytes(16))), f"node-{index}") for index in range(11_000)]
    text = encode_plan(PendingBind(*place) for place in places)
    assert len(text) < 600_000
    assert decode_plan(text) == places
    endless = [PendingBind(dice.randbytes(40).hex(), "u", "n") for _ in range(20_000)]
    with pytest.raises(BindPlanError, match=r"for 20000 pods has .* bytes, .* compressed; a record holds 999000"):
        encode_plan(endless)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[[1]]", '[["p","","n"]]', "z!!", "zAAAA", '[["p","u","a",{}]]', '[["p","u","a"],["p","v","b"]]'],
)
def test_an_invalid_plan_is_refused(text: str) -> None:
    with pytest.raises(BindPlanError):
        decode_plan(text)


def test_a_plan_requires_the_minimum_of_every_subgroup() -> None:
    group = PodGroup(
        spec=PodGroupSpec(
            sub_groups=[SubGroup(name="head", min_member=1), SubGroup(name="workers", min_member=2)],
        )
    )
    root, _ = build_subgroup_tree(group)
    assert has_minimum(root, {"head": 1, "workers": 2})
    assert not has_minimum(root, {"head": 1, "workers": 1})
    assert not has_minimum(root, {"workers": 5})


@pytest.mark.parametrize(
    ("bind", "given"),
    [
        (msgspec.structs.replace(PLAIN, received_type="Fraction"), {}),
        (msgspec.structs.replace(PLAIN, received_type="MigInstance"), {}),
        (msgspec.structs.replace(PLAIN, gpu_groups=("x",)), {}),
        (msgspec.structs.replace(PLAIN, annotations={"a": "b"}), {}),
        (msgspec.structs.replace(PLAIN, claims=(("c", AllocationResult()),)), {}),
        (msgspec.structs.replace(PLAIN, numa_zones=(("0", (("cpu", "1"),)),)), {}),
        (PLAIN, {"resource_claims": [PodResourceClaim(name="c")]}),
        (PLAIN, {"volumes": [Volume(name="v", persistent_volume_claim=ClaimVolumeSource(claim_name="c"))]}),
        (PLAIN, {"volumes": [Volume(name="v", ephemeral=EphemeralVolumeSource())]}),
    ],
)
def test_pods_that_need_preparation_go_to_the_binder(bind: Bind, given: dict[str, Any]) -> None:
    assert needs_binder(bind, pod(**given))
    assert not needs_binder(PLAIN, pod())


def test_a_request_carries_everything_that_was_decided() -> None:
    bind = msgspec.structs.replace(
        PLAIN,
        gpu_groups=("x", "y"),
        claims=(("c", AllocationResult()),),
        numa_zones=(("node-0", (("cpu", "2"),)),),
    )
    shard = Shard(node_pool="blue")
    found = request_object("ns", "uid", request_spec(bind), {"k": "v"}, shard)
    assert found["metadata"]["labels"] == {"selected-node": "a", names.NODE_POOL_LABEL: "blue"}
    assert found["metadata"]["annotations"] == {"k": "v"}
    assert found["spec"]["selectedGPUGroups"] == ["x", "y"]
    assert found["spec"]["resourceClaimAllocations"] == [{"name": "c", "allocation": {"devices": {}}}]
    assert found["spec"]["predictedNUMAZones"] == [{"zone": "node-0", "amount": {"cpu": "2"}}]
    assert "backoffLimit" not in found["spec"]


def test_a_node_name_too_long_for_a_label_is_cut_and_marked() -> None:
    long = "node-" + "x" * 80
    assert label_value("a" * 63) == "a" * 63
    assert len(label_value(long)) == 63
    assert label_value(long) != label_value(long + "y")


def test_a_pod_condition_is_written_when_something_changed() -> None:
    waits = Condition(
        type="PodScheduled", status="False", reason="Unschedulable", message="why", last_transition_time="then"
    )
    one = Pod(status=PodStatus(conditions=(waits,)))
    assert pod_condition_patch(one, "PodScheduled", "False", "Unschedulable", "why", "now") is None
    patch = pod_condition_patch(one, "PodScheduled", "False", "Unschedulable", "because", "now")
    assert patch is not None
    assert patch["status"]["conditions"][0]["lastTransitionTime"] == "then"
    patch = pod_condition_patch(one, "PodScheduled", "True", "", "", "now")
    assert patch is not None
    assert patch["status"]["conditions"][0]["lastTransitionTime"] == "now"


def _said(pool: str, number: str, message: str = "why") -> SchedulingCondition:
    return SchedulingCondition(
        type="UnschedulableOnNodePool",
        node_pool=pool,
        reason="Unschedulable",
        message=message,
        status="True",
        transition_id=number,
    )


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        ([], [("default", "1")]),
        ([_said("default", "4")], None),
        ([_said("default", "4", "other")], [("default", "5")]),
        ([_said("blue", "9")], [("blue", "9"), ("default", "10")]),
        ([_said("default", "4"), _said("blue", "9")], [("blue", "9"), ("default", "10")]),
        ([_said("default", "x", "other")], [("default", "1")]),
        ([_said("blue", "2"), _said("default", "3")], None),
        (
            [_said("default", "2", "other"), _said("blue", "3"), _said("default", "4", "x")],
            [("blue", "3"), ("default", "5")],
        ),
    ],
)
def test_the_newest_condition_of_a_pool_comes_last(
    existing: list[SchedulingCondition], expected: list[tuple[str, str]] | None
) -> None:
    """cycle:EXP-11, T-42."""
    found = unschedulable_conditions(existing, pool="default", message="why", reasons=[], now="now")
    assert (None if found is None else [(each.node_pool, each.transition_id) for each in found]) == expected


class Pool:
    """A pool of writers that runs, and one object to write on."""

    def __init__(self, lab: SchedulerCluster, *, busy: bool = False) -> None:
        self.lab = lab
        self.busy = busy
        self.writes = StatusWrites(Client(lab.faults), workers=2, busy=lambda: self.busy)
        self.done: list[str] = []
        self.stop = asyncio.Event()

    async def __aenter__(self) -> Pool:
        await self.lab.group("g")
        self.task = asyncio.create_task(self.writes.run(self.stop))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        await self.task

    def put(self, value: str, key: str = "k") -> None:
        content = {"metadata": {"annotations": {"x": value}}}
        self.writes.put(key, lambda: StatusPatch(resources.POD_GROUPS, "default", "g", content), self.done.append)

    async def value(self) -> str:
        assert await self.writes.flush()
        found = await self.lab.client.get_raw(resources.POD_GROUPS, "g", "default")
        return str(found["metadata"].get("annotations", {}).get("x", ""))


async def test_what_is_put_later_replaces_what_waits() -> None:
    async with scheduler_cluster() as lab, Pool(lab) as pool:
        pool.put("1")
        pool.put("2")
        pool.put("3")
        assert await pool.value() == "3"
        assert len(lab.faults.writes) == 1
        assert len(pool.done) == 1


async def test_what_is_dropped_is_not_written() -> None:
    async with scheduler_cluster() as lab, Pool(lab) as pool:
        pool.put("1")
        pool.writes.drop("k")
        assert await pool.value() == ""
        assert not lab.faults.writes


async def test_a_write_during_a_write_comes_after_it() -> None:
    async with scheduler_cluster() as lab, Pool(lab) as pool:

        async def again(_: object) -> None:
            lab.faults.on_write = None
            pool.put("second")

        lab.faults.on_write = again
        pool.put("first")
        assert await pool.value() == "second"
        assert len(lab.faults.writes) == 2
        assert len(pool.done) == 1
        assert pool.done[0]


@pytest.mark.parametrize("code", [500, 429, 409])
async def test_temporary_errors_are_retried(code: int) -> None:
    async with scheduler_cluster() as lab, Pool(lab) as pool:
        lab.faults.refuse("PATCH", "/podgroups/g$", refusal(code, "Conflict" if code == 409 else "Later"), times=1)
        pool.put("1")
        assert await pool.value() == "1"


async def test_a_lost_answer_is_retried() -> None:
    async with scheduler_cluster() as lab, Pool(lab) as pool:
        lab.faults.lose("PATCH", "/podgroups/g$", ConnectionLost("gone"), carried_out=False)
        pool.put("1")
        assert await pool.value() == "1"


@pytest.mark.parametrize("code", [404, 403, 422])
async def test_permanent_errors_are_dropped_and_reported(code: int) -> None:
    async with scheduler_cluster() as lab, Pool(lab) as pool:
        lab.faults.refuse("PATCH", "/podgroups/g$", refusal(code, "No"))
        pool.put("1")
        assert await pool.value() == ""
        assert pool.done == [""]
        assert len(lab.faults.writes) == 1


async def test_binds_go_first() -> None:
    async with scheduler_cluster() as lab, Pool(lab, busy=True) as pool:
        pool.put("1")
        await asyncio.sleep(0.05)
        assert not lab.faults.writes
        pool.busy = False
        assert await pool.value() == "1"


async def test_a_body_that_cannot_be_built_is_harmless() -> None:
    async with scheduler_cluster() as lab, Pool(lab) as pool:

        def broken() -> StatusPatch:
            raise RuntimeError("no content")

        pool.writes.put("broken", broken)
        pool.put("1")
        assert await pool.value() == "1"


async def test_an_internal_error_costs_one_status() -> None:
    async with scheduler_cluster() as lab, Pool(lab) as pool:
        lab.faults.lose("PATCH", "/podgroups/g$", RuntimeError("broken on purpose"), carried_out=False, times=4)
        for number in range(4):
            pool.put("lost", f"status of default/{number}")
        assert await pool.value() == ""
        pool.put("told", "status of default/5")
        assert await pool.value() == "told"
