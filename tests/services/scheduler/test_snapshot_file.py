"""The cluster in a file: what is taken live replays to the live decisions, and upstream's files are read too."""

from __future__ import annotations

import asyncio
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from click.testing import CliRunner

from pykai.cli.replay import replay
from pykai.core.report.decisions import FreeRoomOnly
from pykai.core.schedule import schedule
from pykai.kube import resources
from pykai.kube.transport import Request
from pykai.scheduler.flags import read_flags
from pykai.scheduler.snapshotfile import SnapshotError, newest_timestamp_ns, read_snapshot, snapshot_zip
from tests.services.scheduler.schedulercluster import FaultRule, scheduler_cluster
from tests.services.scheduler.test_evictions import an_unfair_cluster


def packed(content: Any) -> bytes:
    """A zip file as a scheduler serves it."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        archive.writestr("snapshot.json", json.dumps(content))
    return found.getvalue()


async def test_a_snapshot_taken_live_replays_to_the_live_decisions() -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        await lab.gang("train", pods=3, cpu="2")
        await lab.gang("big", pods=1, gpu=8)
        await lab.create(resources.CONFIG_MAPS, {"metadata": {"name": "secret"}, "data": {"password": "hunter2"}})
        scheduler = lab.make_scheduler(update_pod_eviction_condition=True, default_staleness_grace_period="90s")
        await scheduler._runtime.caches.start()
        scheduler.intake.watch_claims("v1")
        await scheduler.intake.wait_for_sync()
        data = await scheduler.snapshot_file()
        recording = read_snapshot(data)
        # The first cycle of the live scheduler sees what is in the file.
        scheduler.intake.apply_operations(scheduler.intake.queue.take())
        snapshot = scheduler.intake.tables.snapshot(recording.now_ns)
        live = schedule(snapshot, scheduler.loop.policy)
        again = schedule(recording.tables().snapshot(recording.now_ns), recording.policy)
        await scheduler._runtime.caches.stop()
        scheduler.loop.close()
        assert len(live.binds) == 3
        assert len(live.evictions) == 1
        assert again.encoded() == live.encoded()
        assert recording.flags.staleness_grace_ns == 90_000_000_000
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            text = archive.read("snapshot.json")
        assert b"hunter2" not in text
        content = json.loads(text)
        assert content["schedulerParams"]["schedulePeriod"] == 200_000_000
        assert content["schedulerParams"]["partitionParams"]["NodePoolLabelKey"] == "kai.scheduler/node-pool"
        assert content["config"]["actions"].startswith("allocate, consolidation")
        assert content["discovery"]["serverVersion"]["minor"] == "35"


async def test_free_room_only_groups_are_in_the_file() -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        scheduler = lab.make_scheduler()
        await scheduler._runtime.caches.start()
        await scheduler.intake.wait_for_sync()
        recording = read_snapshot(await scheduler.snapshot_file())
        plan = schedule(recording.tables().snapshot(recording.now_ns), recording.policy)
        assert len(plan.evictions) == 1
        scheduler.intake.group_intake.set_free_room_only(plan.evictions[0].preemptor, FreeRoomOnly(3, "why"))
        recording = read_snapshot(await scheduler.snapshot_file())
        await scheduler._runtime.caches.stop()
        scheduler.loop.close()
        assert schedule(recording.tables().snapshot(recording.now_ns), recording.policy).evictions == ()
    with pytest.raises(SnapshotError, match="freeRoomOnly"):
        read_snapshot(packed({"pykai": {"freeRoomOnly": {"ns/g": 1}}}))


async def test_what_is_assumed_is_in_the_file() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def hold(_: object) -> None:
            begun.set()
            await go_on.wait()

        lab.faults.on_write = hold
        async with lab.scheduler() as scheduler:
            await begun.wait()
            recording = read_snapshot(await scheduler.snapshot_file())
            go_on.set()
        plan = schedule(recording.tables().snapshot(recording.now_ns), recording.policy)
        assert not plan.binds


#: As a Go program writes it: nulls, capitalised keys, no time.
UPSTREAM: dict[str, Any] = {
    "config": {"actions": "allocate", "tiers": [{"plugins": [{"name": "predicates", "arguments": None}]}]},
    "schedulerParams": {
        "schedulerName": "kai-scheduler",
        "partitionParams": {"NodePoolLabelKey": "pool", "NodePoolLabelValue": "blue"},
        "maxNumberConsolidationPreemptees": 3,
        "globalDefaultStalenessGracePeriod": 60_000_000_000,
        "schedulePeriod": 1_000_000_000,
        "detailedFitErrors": False,
    },
    "rawObjects": {
        "pods": [
            {
                "metadata": {
                    "name": "p",
                    "namespace": "ns",
                    "uid": "1",
                    "labels": None,
                    "annotations": {"pod-group-name": "g"},
                    "creationTimestamp": "2026-03-01T00:00:05Z",
                },
                "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": {}}]},
                "status": {"phase": "Pending", "conditions": None},
            }
        ],
        "nodes": [
            {
                "metadata": {"name": "n", "labels": {"pool": "blue"}, "creationTimestamp": "2026-03-01T00:00:00Z"},
                "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
            }
        ],
        "queues": [
            {"metadata": {"name": "parent", "labels": {"pool": "blue"}}, "spec": {"resources": None}},
            {"metadata": {"name": "q", "labels": {"pool": "blue"}}, "spec": {"parentQueue": "parent"}},
        ],
        "podGroups": [
            {
                "metadata": {"name": "g", "namespace": "ns", "uid": "2", "labels": {"pool": "blue"}},
                "spec": {"minMember": 1, "queue": "q"},
                "status": {"schedulingConditions": None},
            }
        ],
        "bindRequests": None,
        "configMaps": [],
    },
    "discovery": {"serverVersion": {"major": "1"}, "resources": None},
}


def test_a_file_of_upstream_is_read() -> None:
    recording = read_snapshot(packed(UPSTREAM))
    assert not recording.unreadable
    assert recording.flags.shard.node_pool == "blue"
    assert recording.flags.max_consolidation_preemptees == 3
    assert recording.policy.actions == ("allocate",)
    assert recording.now_ns == newest_timestamp_ns(recording.objects) == 1_772_323_205_000_000_000
    plan = schedule(recording.tables().snapshot(recording.now_ns), recording.policy)
    assert [(bind.pod, bind.node) for bind in plan.binds] == [("p", "n")]


def test_the_command_prints_decisions_durations_and_fingerprints(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.zip"
    file.write_bytes(packed(UPSTREAM))
    shown = CliRunner().invoke(replay, [str(file)])
    assert shown.exit_code == 0, shown.output
    assert "bind ns/p to n" in shown.output
    first = json.loads(CliRunner().invoke(replay, [str(file), "--json"]).output)
    second = json.loads(CliRunner().invoke(replay, [str(file), "--json"]).output)
    assert first["plan"]["binds"][0]["pod"] == "p"
    assert list(first["action_durations_ms"]) == ["allocate"]
    assert first["fingerprints"] == second["fingerprints"]
    assert f"fingerprint of the state: {first['fingerprints']['state']}" in shown.output


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"not a zip", "not a zip file"),
        (packed([1]), "Expected `object`"),
        (packed({"rawObjects": {"pods": 1}}), "rawObjects"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_a_reason(data: bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=problem):
        read_snapshot(data)
    file = tmp_path / "snapshot.zip"
    file.write_bytes(data)
    shown = CliRunner().invoke(replay, [str(file)])
    assert shown.exit_code == 1
    assert problem in shown.output


def test_a_broken_object_is_left_out_and_named() -> None:
    content = json.loads(json.dumps(UPSTREAM))
    content["rawObjects"]["nodes"].append({"metadata": {"name": "odd"}, "status": {"allocatable": [1]}})
    recording = read_snapshot(packed(content))
    assert [problem.subject for problem in recording.unreadable] == ["Node odd"]
    assert len(recording.tables().snapshot(recording.now_ns).nodes) == 1


def test_flags_survive_a_file() -> None:
    given = {"scheduler-name": "mine", "full-hierarchy-fairness": "false", "stuck-in-releasing-threshold": "5m"}
    flags = read_flags({**given, "profile": "kubernetes", "honour-preemption-policy": "true"})
    again = read_snapshot(snapshot_zip([], flags, {}, 5)).flags
    assert (again.shard, again.profile, again.honour_preemption_policy) == (flags.shard, "kubernetes", True)


def test_gating_survives_a_file() -> None:
    """queues:Q-405: a replay without it would open every gate."""
    given = {"queue-admission-gating": "true", "queue-admission-reservation-timeout": "3m"}
    again = read_snapshot(snapshot_zip([], read_flags(given), {}, 5))
    assert again.policy.admission_reservation_ns == 180 * 10**9
    assert read_snapshot(snapshot_zip([], read_flags({}), {}, 5)).policy.admission_reservation_ns is None


def test_the_turn_of_namespaces_survives_a_file() -> None:
    again = read_snapshot(
        snapshot_zip([], read_flags({}), {}, 5, resume={"crowd": "crowd/c2"}, nominated_groups=["a/b"])
    )
    assert again.policy.resume == {"crowd": "crowd/c2"}
    assert again.policy.nominated_groups == {"a/b"}
    assert read_snapshot(snapshot_zip([], read_flags({}), {}, 5)).policy.resume == {}


def test_the_order_to_begin_with_survives_a_file() -> None:
    """cycle:SOL-17: in the same order, and as often."""
    order = ("b/b", "a/a", "b/b")
    assert read_snapshot(snapshot_zip([], read_flags({}), {}, 5, served_first=order)).policy.served_first == order
    assert read_snapshot(snapshot_zip([], read_flags({}), {}, 5)).policy.served_first == ()


async def test_before_the_first_cycle_nothing_is_ready() -> None:
    async with scheduler_cluster() as lab, ClientSession() as http:
        scheduler = lab.make_scheduler()
        plugins = scheduler.plugin_endpoint("127.0.0.1:0")
        watched = scheduler.metrics_endpoint("127.0.0.1:0")
        base, metrics = [f"http://127.0.0.1:{await each.start()}" for each in (plugins, watched)]
        try:
            async with http.get(f"{base}/get-job-order") as answer:
                assert (answer.status, await answer.text()) == (503, "Job order data not ready")
            async with http.get(f"{base}/get-snapshot") as answer:
                assert answer.status == 503
            async with http.get(f"{metrics}/readyz") as answer:
                assert answer.status == 503
                assert "the caches are not filled yet" in await answer.text()
            async with http.get(f"{metrics}/healthz") as answer:
                assert answer.status == 200
        finally:
            await plugins.stop()
            await watched.stop()
            scheduler.loop.close()


async def test_the_plugin_server_serves_snapshot_and_job_order() -> None:
    async with scheduler_cluster() as lab:
        await lab.gang("second", pods=1, gpu=1)
        await lab.gang("first", pods=1, gpu=1)
        async with lab.scheduler() as scheduler, ClientSession() as http:
            plugins = scheduler.plugin_endpoint("127.0.0.1:0")
            watched = scheduler.metrics_endpoint("127.0.0.1:0")
            base, metrics = [f"http://127.0.0.1:{await each.start()}" for each in (plugins, watched)]
            try:
                await lab.wait_for_event("Unschedulable", "first")
                async with http.get(f"{base}/get-job-order") as answer:
                    order = await answer.json()
                assert {entry["id"] for entry in order["global_order"]} == {"default/first", "default/second"}
                assert order["queue_order"]["team"] == order["global_order"]
                assert order["global_order"][0]["priority"] == 50
                async with http.get(f"{base}/get-snapshot") as answer:
                    assert answer.headers["Content-Type"] == "application/zip"
                    assert len(read_snapshot(await answer.read()).objects) > 6
                async with http.get(f"{base}/nothing") as answer:
                    assert (answer.status, await answer.text()) == (404, "plugin not found")
                for page in ("healthz", "readyz"):
                    async with http.get(f"{metrics}/{page}") as answer:
                        assert answer.status == 200, await answer.text()
                async with http.get(f"{metrics}/metrics") as answer:
                    text = await answer.text()
                assert "kai_e2e_scheduling_latency_milliseconds " in text
                assert re.search(r'kai_queue_gpu_usage\{.*queue_metadata_name="team".*\} 0\.0', text)
            finally:
                await plugins.stop()
                await watched.stop()


async def test_a_flood_of_snapshot_requests_is_computed_a_few_times_and_cycles_go_on() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        asked = 0

        def count(_: Request) -> None:
            nonlocal asked
            asked += 1

        lab.faults.rules.append(FaultRule("GET", "^/version$", after=count))
        async with lab.scheduler() as scheduler, ClientSession(connector=TCPConnector(limit=0)) as http:
            await scheduler.intake.nodes.wait_until(lambda store: len(store) == 1, 10)
            plugins = scheduler.plugin_endpoint("127.0.0.1:0")
            base = f"http://127.0.0.1:{await plugins.start()}"

            async def snapshot() -> int:
                async with http.get(f"{base}/get-snapshot") as answer:
                    return len(read_snapshot(await answer.read()).objects)

            try:
                flood = [asyncio.create_task(snapshot()) for _ in range(100)]
                await lab.gang("train", pods=1, gpu=1)
                await lab.until_bound("train", 1)
                assert min(await asyncio.gather(*flood)) > 0
            finally:
                await plugins.stop()
        assert 1 <= asked < 50


def test_the_usage_of_queues_is_in_the_file() -> None:
    """queues:Q-335, kai:replay: `kai replay` divides the cluster as the scheduler did."""
    data = snapshot_zip([], read_flags({}), {}, 0, usage={"a": (0.0, 0.25, 0.5)})
    assert read_snapshot(data).policy.usage == {"a": (0.0, 0.25, 0.5)}
    assert read_snapshot(snapshot_zip([], read_flags({}), {}, 0)).policy.usage == {}
    with pytest.raises(SnapshotError, match=r"pykai\.usage"):
        read_snapshot(snapshot_zip([], read_flags({}), {}, 0, usage={"a": "much"}))  # type: ignore[dict-item]
