"""Jobs on the embedded API server with simulated machines."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.api.workloads import Job, MachinePod
from pykai.kube.client import PatchKind
from pykai.kube.errors import NotFound
from pykai.kube.resources import JOBS, PODS
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from tests.lab.simulatedcluster import SimulatedCluster, simulated_cluster, template

FAST = BehaviourDefaults(run_s=1)


def job(name: str = "j", *, pods: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, "template": template(**(pods or {}))},
    }


def state(found: Job) -> dict[str, str]:
    return {condition.type: condition.status for condition in found.status.conditions}


def is_complete(found: Job) -> bool:
    return state(found).get("Complete") == "True"


def has_failed(found: Job) -> bool:
    return state(found).get("Failed") == "True"


def pods_of(w: SimulatedCluster) -> list[MachinePod]:
    return sorted(w.pods.values(), key=lambda p: p.metadata.name)


async def test_a_job_runs_its_pods_and_completes() -> None:
    async with simulated_cluster(behaviour=FAST, controllers=True) as w:
        await w.node("n1", gpus=8)
        w.binds_to("n1")
        made = await w.create(JOBS, job(parallelism=2, completions=5, pods={"gpus": 1}))
        done = await w.wait_for_job("j", is_complete)
        assert (done.status.succeeded, done.status.failed, done.status.active) == (5, 0, 0)
        assert state(done) == {"SuccessCriteriaMet": "True", "Complete": "True"}
        assert done.status.start_time
        assert done.status.completion_time
        assert len(w.pods) == 5
        alive: set[str] = set()
        for version in w.history:
            (alive.discard if version.status.phase == "Succeeded" else alive.add)(version.metadata.uid)
            assert len(alive) <= 2
        first = pods_of(w)[0]
        assert first.metadata.name.startswith("j-")
        assert len(first.metadata.name) == len("j-") + 5
        (owner,) = first.metadata.owner_references
        assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Job", "j", made["metadata"]["uid"], True)
        assert first.metadata.labels[names.JOB_NAME_LABEL] == "j"
        await w.event("Completed")


async def test_an_indexed_job_numbers_its_pods() -> None:
    async with simulated_cluster(behaviour=FAST, controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(JOBS, job(parallelism=3, completions=3, completionMode="Indexed"))
        done = await w.wait_for_job("j", is_complete)
        assert done.status.completed_indexes == "0-2"
        found = pods_of(w)
        assert [p.metadata.annotations[names.COMPLETION_INDEX_ANNOTATION] for p in found] == ["0", "1", "2"]
        assert [p.metadata.labels[names.COMPLETION_INDEX_LABEL] for p in found] == ["0", "1", "2"]
        assert [p.metadata.name.rsplit("-", 1)[0] for p in found] == ["j-0", "j-1", "j-2"]
        raw = await w.get(PODS, found[1].metadata.name)
        assert raw["spec"]["hostname"] == "j-1"
        assert raw["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"


async def test_a_failed_index_is_tried_again_under_its_number() -> None:
    async with simulated_cluster(speed=300, behaviour=FAST, controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(JOBS, job(parallelism=2, completions=2, completionMode="Indexed"))
        await w.pods.wait_until(lambda s: len(s) >= 2)
        victim = pods_of(w)[1]
        await w.client.delete(PODS, victim.metadata.name, "default", uid=victim.metadata.uid)
        done = await w.wait_for_job("j", is_complete)
        assert done.status.completed_indexes == "0,1"


async def test_too_many_failures_end_a_job_and_its_other_pods() -> None:
    async with simulated_cluster(speed=300, behaviour=FAST, controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        failing = {"annotations": {names.EXIT_CODE_ANNOTATION: "1"}}
        await w.create(JOBS, job(parallelism=1, completions=1, backoffLimit=1, pods=failing))
        failed = await w.wait_for_job("j", has_failed)
        assert failed.status.failed == 2
        reasons = {condition.type: condition.reason for condition in failed.status.conditions}
        assert reasons == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
        assert sorted(p.status.phase for p in w.pods.values()) == ["Failed", "Failed"]
        await w.event("BackoffLimitExceeded")


async def test_a_deadline_ends_a_job_and_takes_its_pods() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(run_s=1e6)) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(JOBS, job(activeDeadlineSeconds=5))
        failed = await w.wait_for_job("j", has_failed)
        assert {c.reason for c in failed.status.conditions} == {"DeadlineExceeded"}
        await w.pods.wait_until(lambda s: len(s) == 0)


async def test_a_finished_job_goes_after_its_time_to_live() -> None:
    async with simulated_cluster(behaviour=FAST, controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(JOBS, job(ttlSecondsAfterFinished=2))
        await w.jobs.wait_until(lambda s: len(s) == 1)
        await w.jobs.wait_until(lambda s: len(s) == 0)
        await w.pods.wait_until(lambda s: len(s) == 0)


async def test_a_suspended_job_has_no_pods_and_a_resumed_one_has() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(
            JOBS, job(parallelism=2, completions=2, pods={"annotations": {names.RUN_SECONDS_ANNOTATION: "1e9"}})
        )
        await w.wait_for_job("j", lambda found: found.status.ready == 2)
        await w.client.patch(JOBS, "j", {"spec": {"suspend": True}}, "default")
        await w.pods.wait_until(lambda s: len(s) == 0)
        stopped = await w.wait_for_job(
            "j", lambda found: state(found).get("Suspended") == "True" and not found.status.active
        )
        assert (stopped.status.failed, stopped.status.start_time) == (0, None)
        await w.client.patch(JOBS, "j", {"spec": {"suspend": False}}, "default")
        resumed = await w.wait_for_job("j", lambda found: found.status.ready == 2)
        assert state(resumed)["Suspended"] == "False"


async def test_an_evicted_pod_is_replaced_at_once_and_counts_as_failed() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(run_s=1e9, stop_s=20)) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(JOBS, job(backoffLimit=5))
        await w.wait_for_job("j", lambda found: found.status.ready == 1)
        (victim,) = w.pods.values()
        await w.client.delete(PODS, victim.metadata.name, "default")
        await w.pods.wait_until(lambda s: len(s) == 2)
        assert w.find(victim.metadata.name) is not None
        await w.gone(victim.metadata.name)
        counted = await w.wait_for_job("j", lambda found: found.status.failed == 1)
        assert not has_failed(counted)


async def test_a_failure_policy_can_ignore_evictions() -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(run_s=1e9)) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(JOBS, job(backoffLimit=0, podFailurePolicy={"rules": [rule]}))
        await w.wait_for_job("j", lambda found: found.status.ready == 1)
        (victim,) = w.pods.values()
        told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        await w.client.patch(
            PODS,
            victim.metadata.name,
            {"status": {"conditions": [told]}},
            "default",
            kind=PatchKind.STRATEGIC,
            subresource="status",
        )
        await w.client.delete(PODS, victim.metadata.name, "default")
        await w.gone(victim.metadata.name)
        again = await w.wait_for_job("j", lambda found: found.status.ready == 1)
        assert (again.status.failed, state(again)) == (0, {})


async def test_a_job_that_is_deleted_takes_its_pods_along() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(JOBS, job(parallelism=3, completions=3))
        await w.wait_for_job("j", lambda found: found.status.ready == 3)
        await w.client.delete(JOBS, "j", "default", propagation="Background")
        await w.pods.wait_until(lambda s: len(s) == 0)
        with pytest.raises(NotFound):
            await w.get(JOBS, "j")


async def test_a_change_of_parallelism_makes_and_takes_pods() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(run_s=1e9)) as w:
        await w.create(JOBS, job(parallelism=1, completions=9))
        await w.wait_for_job("j", lambda found: found.status.active == 1)
        await w.client.patch(JOBS, "j", {"spec": {"parallelism": 4}}, "default")
        await w.wait_for_job("j", lambda found: found.status.active == 4)
        await w.client.patch(JOBS, "j", {"spec": {"parallelism": 2}}, "default")
        left = await w.wait_for_job("j", lambda found: found.status.active == 2)
        assert (left.status.failed, len(w.pods)) == (0, 2)


async def test_no_pod_is_made_twice_over_restarts() -> None:
    async with simulated_cluster(behaviour=BehaviourDefaults(run_s=30), controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(JOBS, job(parallelism=4, completions=4))
        await w.pods.wait_until(lambda s: len(s) > 0)
        for _ in range(3):
            await w.restart()
        done = await w.wait_for_job("j", is_complete)
        assert done.status.succeeded == 4
        assert len({version.metadata.uid for version in w.history}) == 4


async def test_a_refused_template_is_reported() -> None:
    async with simulated_cluster(controllers=True) as w:
        body = job()
        body["spec"]["template"]["spec"]["priorityClassName"] = "nobody-made-it"
        await w.create(JOBS, body)
        await w.event("FailedCreate", "nobody-made-it")
