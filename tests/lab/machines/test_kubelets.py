"""Simulated kubelets on the embedded API server: pods start, run, end, are stopped, and are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.api import names
from pykai.kube.client import PatchKind
from pykai.kube.resources import CONFIG_MAPS, NODES, PODS
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from tests.lab.simulatedcluster import TIMEOUT_S, SimulatedCluster, pod, simulated_cluster, wait_until

QUICK = {names.RUN_SECONDS_ANNOTATION: "1"}


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


async def test_a_bound_pod_starts_with_a_full_kubelet_status() -> None:
    async with simulated_cluster() as w:
        await w.node("n1", gpus=8)
        await w.pod("a", gpus=1, containers=2)
        made = await w.get(PODS, "a")
        await w.client.bind("default", "a", uid=made["metadata"]["uid"], node="n1")
        await w.phase("a", "Running")
        status = (await w.get(PODS, "a"))["status"]
        assert conditions(status) == {
            "PodScheduled": "True",
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "Ready": "True",
            "ContainersReady": "True",
        }
        assert status["podIP"].startswith("10.")
        assert status["hostIP"].startswith("172.")
        assert status["startTime"]
        assert [entry["name"] for entry in status["containerStatuses"]] == ["c0", "c1"]
        first = status["containerStatuses"][0]
        assert first["ready"]
        assert first["started"]
        assert first["restartCount"] == 0
        assert first["image"] == "image"
        assert first["state"]["running"]["startedAt"]
        assert first["containerID"]


async def test_the_condition_of_schedulers_is_left_alone() -> None:
    async with simulated_cluster() as w:
        await w.node("n1")
        await w.pod("a", node="n1")
        said = {
            "type": "PodScheduled",
            "status": "True",
            "reason": "Mine",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        patch = {"status": {"conditions": [said]}}
        await w.client.patch(PODS, "a", patch, "default", kind=PatchKind.STRATEGIC, subresource="status")
        await w.phase("a", "Running")
        kept = [c for c in (await w.get(PODS, "a"))["status"]["conditions"] if c["type"] == "PodScheduled"]
        assert [(c["reason"], c["lastTransitionTime"]) for c in kept] == [("Mine", "2026-01-01T00:00:00Z")]


@pytest.mark.parametrize(("code", "phase", "reason"), [("0", "Succeeded", "Completed"), ("3", "Failed", "Error")])
async def test_a_pod_ends_after_its_time_as_it_declared(code: str, phase: str, reason: str) -> None:
    async with simulated_cluster() as w:
        await w.node("n1")
        await w.pod("a", node="n1", annotations={**QUICK, names.EXIT_CODE_ANNOTATION: code})
        ended = await w.phase("a", phase)
        terminated = ended.status.container_statuses[0].state.terminated
        assert terminated is not None
        assert (terminated.exit_code, terminated.reason) == (int(code), reason)
        assert "Running" in [version.status.phase for version in w.history]


async def test_a_pod_that_restarts_for_ever_runs_until_it_is_deleted() -> None:
    async with simulated_cluster(behaviour=BehaviourDefaults(run_s=0.1)) as w:
        await w.node("n1")
        await w.pod("service", node="n1", restart="Always")
        await w.pod("job", node="n1")
        await w.phase("job", "Succeeded")
        running = await w.phase("service", "Running")
        assert running.status.container_statuses[0].restart_count == 0


async def test_containers_restart_with_a_count_and_a_growing_pause() -> None:
    async with simulated_cluster(speed=400) as w:
        await w.node("n1")
        await w.pod("a", node="n1", restart="OnFailure", annotations={**QUICK, names.EXIT_CODE_ANNOTATION: "1"})
        await w.wait_for_pod("a", lambda p: _restarts(p) >= 2)
        states = [
            (version.status.phase, entry.restart_count, entry.state.waiting is not None)
            for version in w.history
            for entry in version.status.container_statuses
        ]
        assert states[:4] == [
            ("Running", 0, False),
            ("Running", 1, False),
            ("Running", 1, True),
            ("Running", 2, False),
        ]
        await w.client.patch(PODS, "a", {"metadata": {"annotations": {names.EXIT_CODE_ANNOTATION: "0"}}}, "default")
        await w.phase("a", "Succeeded")


def _restarts(found: Any) -> int:
    return max((entry.restart_count for entry in found.status.container_statuses), default=0)


async def test_init_containers_run_first_and_sidecars_stay() -> None:
    async with simulated_cluster() as w:
        await w.node("n1")
        await w.pod("a", node="n1", init=2, sidecars=1)
        await w.phase("a", "Running")
        status = (await w.get(PODS, "a"))["status"]
        states = {entry["name"]: next(iter(entry["state"])) for entry in status["initContainerStatuses"]}
        assert states == {"sidecar0": "running", "init0": "terminated", "init1": "terminated"}
        waiting = [v.status.container_statuses[0].state.waiting for v in w.history if v.status.container_statuses]
        assert waiting[0] is not None
        assert waiting[0].reason == "PodInitializing"


async def test_a_deleted_pod_stops_with_a_last_word_and_then_vanishes() -> None:
    async with simulated_cluster() as w:
        await w.node("n1", gpus=1)
        await w.pod("a", node="n1", gpus=1, restart="Always")
        await w.phase("a", "Running")
        await w.client.delete(PODS, "a", "default")
        await w.gone("a")
        last = w.history[-1]
        assert last.status.phase == "Failed"
        terminated = last.status.container_statuses[0].state.terminated
        assert terminated is not None
        assert terminated.exit_code == 143
        await w.pod("b", node="n1", gpus=1)
        await w.phase("b", "Running")


async def test_a_pod_that_never_started_vanishes_at_once() -> None:
    async with simulated_cluster(behaviour=BehaviourDefaults(start_s=1e6)) as w:
        await w.node("n1")
        await w.pod("a", node="n1")
        await w.wait_for_pod("a", lambda p: bool(p.status.container_statuses))
        await w.client.delete(PODS, "a", "default")
        await w.gone("a")


@pytest.mark.parametrize(
    ("asks", "reason", "figures"),
    [
        ({"cpu": "3"}, "OutOfcpu", "requested: 3000, used: 2000, capacity: 4000"),
        ({"gpus": 1}, "OutOfnvidia.com/gpu", "requested: 1, used: 2, capacity: 2"),
    ],
)
async def test_what_does_not_fit_fails_with_the_resource_as_reason(
    asks: dict[str, Any], reason: str, figures: str
) -> None:
    async with simulated_cluster() as w:
        await w.node("n1", gpus=2, cpu="4", memory="8Gi")
        await w.pod("first", node="n1", cpu="2", gpus=2, restart="Always")
        await w.phase("first", "Running")
        await w.pod("second", node="n1", **asks)
        failed = await w.phase("second", "Failed")
        assert failed.status.reason == reason
        message = (await w.get(PODS, "second"))["status"]["message"]
        resource = reason.removeprefix("OutOf")
        assert message == f"Pod was rejected: Node didn't have enough resource: {resource}, {figures}"
        assert failed.status.container_statuses == []


async def test_a_kubelet_that_refuses_says_what_a_device_plugin_says() -> None:
    async with simulated_cluster(behaviour=BehaviourDefaults(refused=1.0)) as w:
        await w.node("n1", gpus=1)
        await w.pod("a", node="n1", gpus=1)
        failed = await w.phase("a", "Failed")
        assert failed.status.reason == "UnexpectedAdmissionError"
        machine = w.process.machines.machine("n1")
        assert machine is not None
        assert not machine.is_admitted(failed.metadata.uid)


async def test_a_machine_takes_no_more_pods_than_it_says() -> None:
    async with simulated_cluster() as w:
        await w.node("n1", pods=2)
        for name in "abc":
            await w.pod(name, node="n1", restart="Always")
        failed = await w.phase("c", "Failed")
        assert failed.status.reason == "OutOfpods"
        await w.phase("a", "Running")


async def test_a_finished_pod_leaves_its_place_to_others() -> None:
    async with simulated_cluster() as w:
        await w.node("n1", cpu="1")
        await w.pod("a", node="n1", cpu="1", annotations=QUICK)
        await w.phase("a", "Succeeded")
        await w.pod("b", node="n1", cpu="1", annotations=QUICK)
        await w.phase("b", "Succeeded")


async def test_a_missing_config_map_holds_the_pod_up_until_it_exists() -> None:
    async with simulated_cluster() as w:
        await w.node("n1")
        made = pod("a", node="n1")
        made["spec"]["containers"][0]["env"] = [
            {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "x"}}},
            {"name": "Y", "valueFrom": {"configMapKeyRef": {"name": "other", "key": "y", "optional": True}}},
        ]
        await w.create(PODS, made)
        held = await w.wait_for_pod("a", lambda p: bool(p.status.container_statuses))
        waiting = held.status.container_statuses[0].state.waiting
        assert waiting is not None
        assert (waiting.reason, waiting.message) == ("CreateContainerConfigError", 'configmap "settings" not found')
        assert held.status.phase == "Pending"
        await w.config_map("settings")
        await w.phase("a", "Running")


async def test_a_mounted_config_map_is_waited_for_too() -> None:
    async with simulated_cluster() as w:
        await w.node("n1")
        await w.pod("a", node="n1", volumes=[{"name": "v", "configMap": {"name": "files"}}])
        held = await w.wait_for_pod("a", lambda p: bool(p.status.container_statuses))
        waiting = held.status.container_statuses[0].state.waiting
        assert waiting is not None
        assert waiting.reason == "ContainerCreating"
        await w.create(CONFIG_MAPS, {"metadata": {"name": "files", "namespace": "default"}})
        await w.phase("a", "Running")


async def test_a_deadline_ends_a_pod() -> None:
    async with simulated_cluster() as w:
        await w.node("n1")
        await w.pod("a", node="n1", activeDeadlineSeconds=3)
        failed = await w.phase("a", "Failed")
        assert failed.status.reason == "DeadlineExceeded"


async def test_an_unreadable_annotation_is_reported_and_the_pod_runs() -> None:
    async with simulated_cluster(behaviour=BehaviourDefaults(run_s=0.5)) as w:
        await w.node("n1")
        await w.pod("a", node="n1", annotations={names.RUN_SECONDS_ANNOTATION: "soon"})
        await w.phase("a", "Succeeded")
        await w.event("InvalidAnnotation", "'soon' is neither a number of seconds nor a range")


async def test_a_node_without_a_machine_becomes_one() -> None:
    async with simulated_cluster() as w:
        await w.create(NODES, {"metadata": {"name": "bare"}, "status": {"capacity": {"cpu": "2"}}})
        await w.client.patch(NODES, "bare", {"status": {"capacity": {"cpu": "2"}}}, subresource="status")
        await wait_until(lambda: w.process.machines.machine("bare") is not None)
        await w.pod("a", node="bare", cpu="1")
        await w.phase("a", "Running")
        status = (await w.get(NODES, "bare"))["status"]
        assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
        assert status["allocatable"] == {"cpu": "2", "pods": "110"}


async def test_a_node_that_was_given_up_before_there_were_machines_becomes_one() -> None:
    """The node lifecycle controller of a real cluster writes this for a node without a kubelet."""
    async with simulated_cluster() as w:
        unheard = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusNeverUpdated"}
        status: dict[str, Any] = {"capacity": {"cpu": "2"}, "conditions": [unheard]}
        await w.create(NODES, {"metadata": {"name": "early"}, "status": status})
        await w.client.patch(NODES, "early", {"status": status}, subresource="status")
        async with asyncio.timeout(TIMEOUT_S):
            while {c["type"]: c["status"] for c in status["conditions"]}["Ready"] != "True":
                await asyncio.sleep(0)
                status = (await w.get(NODES, "early"))["status"]
        assert status["allocatable"] == {"cpu": "2", "pods": "110"}


async def test_only_simulated_nodes_are_played_where_others_exist() -> None:
    async with simulated_cluster(all_nodes=False) as w:
        await w.node("ours")
        await w.create(NODES, {"metadata": {"name": "theirs"}, "status": {"allocatable": {"cpu": "8"}}})
        await w.pod("a", node="theirs")
        await w.pod("b", node="ours")
        await w.phase("b", "Running")
        found = w.find("a")
        assert found is not None
        assert found.status.phase == "Pending"


async def test_a_start_costs_one_write_and_an_end_another() -> None:
    async with simulated_cluster() as w:
        await w.node("n1", gpus=1)
        await w.pod("a", node="n1", gpus=1, annotations=QUICK)
        await w.phase("a", "Succeeded")
        assert [version.status.phase for version in w.history] == ["Pending", "Running", "Succeeded"]


async def test_another_pod_of_the_same_name_is_another_pod() -> None:
    async with simulated_cluster(behaviour=BehaviourDefaults(stop_s=0)) as w:
        await w.node("n1", gpus=1)
        for _ in range(3):
            await w.pod("a", node="n1", gpus=1, restart="Always")
            await w.phase("a", "Running")
            await w.client.delete(PODS, "a", "default", grace_s=0)
            await w.gone("a")
        machine = w.process.machines.machine("n1")
        assert machine is not None
        await wait_until(lambda: not any(machine.used.values()))


async def _restarted_with(w: SimulatedCluster, count: int) -> set[str]:
    """Devices of the pods that run after a restart."""
    await w.restart()
    await w.pods.wait_until(lambda s: sum(p.status.phase == "Running" for p in s.values()) == count, TIMEOUT_S)
    held = [p.metadata.annotations[names.DEVICES_ANNOTATION] for p in w.pods.values() if p.status.phase == "Running"]
    assert len(held) == len(set(held))
    return set(held)


async def test_a_restart_loses_nothing_and_admits_no_pod_twice() -> None:
    async with simulated_cluster() as w:
        await w.node("n1", gpus=2)
        await w.pod("a", node="n1", gpus=1, restart="Always")
        running = await w.phase("a", "Running")
        await w.process.kill()
        for name in ("b", "c"):
            await w.pod(name, node="n1", gpus=1, restart="Always")
        held = await _restarted_with(w, 2)
        assert running.metadata.uid
        assert len(held) == 2
        after = w.find("a")
        assert after is not None
        assert after.status.start_time == running.status.start_time
        assert sum(p.status.phase == "Failed" for p in w.pods.values()) == 1


async def test_a_restart_goes_on_where_a_pod_was() -> None:
    async with simulated_cluster() as w:
        await w.node("n1")
        await w.pod("ends", node="n1", annotations={names.RUN_SECONDS_ANNOTATION: "30"})
        await w.pod("going", node="n1", restart="Always")
        await w.phase("ends", "Running")
        await w.phase("going", "Running")
        await w.process.kill()
        await w.client.delete(PODS, "going", "default")
        await w.restart()
        await w.gone("going")
        await w.phase("ends", "Succeeded")
        phases = [v.status.phase for v in w.history if v.metadata.name == "ends"]
        assert phases == ["Pending", "Running", "Succeeded"]
