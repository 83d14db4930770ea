"""An installation that is disturbed: its programs die, restart and are scaled while work goes on."""

from __future__ import annotations

from collections import Counter

import pytest

from pykai.api import names
from pykai.kube.resources import DEPLOYMENTS, PODS
from tests.cluster.workingtime import TAKEOVER_S, takeover_clock
from tests.e2e.endtoend import Document, EndToEnd, is_ready, is_scheduled
from tests.e2e.test_operated import SCHEDULER, SYSTEM, deployment, routed

pytestmark = pytest.mark.cluster_only

#: `make soak` kills far more often
KILLS = 2


async def kill(e2e: EndToEnd, pod: str) -> None:
    """End a pod of the installation at once."""
    await e2e.client.delete(PODS, pod, SYSTEM, grace_s=0)


def names_of(e2e: EndToEnd, app: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in e2e.system_pods(app)}


async def test_an_operator_that_dies_is_followed_by_one_that_finishes(e2e: EndToEnd) -> None:
    (before,) = names_of(e2e, "kai-operator")
    async with e2e.configured_while(lambda: kill(e2e, before), **{"global": {"jsonLog": True}}):
        (container,) = (await deployment(e2e, "binder"))["spec"]["template"]["spec"]["containers"]
        assert "--log-json" in container["args"]
        assert before not in names_of(e2e, "kai-operator")


async def test_a_restart_by_hand_is_left_alone(e2e: EndToEnd) -> None:
    """operations:E-23."""
    before = names_of(e2e, "pod-grouper")
    asked = {"kubectl.kubernetes.io/restartedAt": "2026-11-18T00:00:00Z"}
    template = {"metadata": {"annotations": asked}}
    await e2e.client.patch(DEPLOYMENTS, "pod-grouper", {"spec": {"template": template}}, SYSTEM)
    await e2e.until(
        lambda: bool(names_of(e2e, "pod-grouper")) and not before & names_of(e2e, "pod-grouper"),
        "other pods run",
        e2e.system,
    )
    found = await deployment(e2e, "pod-grouper")
    assert found["spec"]["template"]["metadata"]["annotations"].items() >= asked.items()
    (queue,) = await e2e.family("restarted")
    await e2e.scheduled(await e2e.pod(queue, gpus=1))


async def test_a_scale_by_hand_is_put_back(e2e: EndToEnd) -> None:
    """operations:O-41."""
    await e2e.client.patch(DEPLOYMENTS, "binder", {"spec": {"replicas": 0}}, SYSTEM, subresource="scale")
    (queue,) = await e2e.family("scaled")
    await e2e.ready(await e2e.pod(queue, fraction="0.5"))
    assert (await deployment(e2e, "binder"))["spec"]["replicas"] == 1


async def test_a_leader_that_is_killed_under_load_loses_and_doubles_nothing(e2e: EndToEnd) -> None:
    """operations:O-39: the next one takes over and binds within the time of the lease."""
    (queue,) = await e2e.family("killed")
    jobs = []
    async with e2e.configured(scheduler={"replicas": 2}):
        leader = await routed(e2e)
        for _ in range(KILLS):
            await e2e.until(lambda: len(ready(e2e)) == 2, "the leader has a standby that is ready", e2e.system)
            jobs += [await e2e.job(queue, pods=4, gpus=1, annotations=gang(4)) for _ in range(2)]
            clock = takeover_clock(names_of(e2e, SCHEDULER) - {leader})
            began_s = clock.time()
            await kill(e2e, leader)
            # Only the next leader can bind these.
            later = [await e2e.job(queue, pods=4, gpus=1, annotations=gang(4)) for _ in range(2)]
            await bound(e2e, later)
            assert clock.time() - began_s <= TAKEOVER_S
            jobs += later
            leader = await routed(e2e)
        await e2e.jobs_scheduled(4 * len(jobs), *jobs)
    found = e2e.of_job(*jobs)
    assert Counter(pod["metadata"]["labels"]["workload"] for pod in found) == dict.fromkeys(jobs, 4)
    assert not e2e.left_s, "no pod has a reason to go"
    on_nodes = Counter(pod["spec"]["nodeName"] for pod in found if is_scheduled(pod))
    assert max(on_nodes.values()) <= e2e.gpus_per_node


def ready(e2e: EndToEnd) -> list[Document]:
    """The schedulers that are."""
    return [pod for pod in e2e.system_pods(SCHEDULER) if is_ready(pod)]


async def bound(e2e: EndToEnd, jobs: list[str]) -> None:
    """Wait until one pod of these Jobs is."""
    await e2e.until(lambda: any(map(is_scheduled, e2e.of_job(*jobs))), f"a pod of {jobs} is bound")


def gang(count: int) -> dict[str, str]:
    """The annotation of a Job whose pods start together."""
    return {names.BATCH_MIN_MEMBER_ANNOTATION: str(count)}
