"""Deployments and ReplicaSets on the embedded API server with simulated machines."""

from __future__ import annotations

from functools import partial
from typing import Any

from pykai.api import names
from pykai.api.workloads import Deployment, ReplicaSet
from pykai.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from tests.lab.simulatedcluster import SimulatedCluster, pod, simulated_cluster, template, wait_for_object

LABELS = {"app": "web"}


def deployment(name: str = "web", replicas: int = 3, *, image: str = "one", **spec: Any) -> dict[str, Any]:
    body = template(labels=LABELS, restart="Always")
    body["spec"]["containers"][0]["image"] = image
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": body, **spec},
    }


def replica_set(name: str = "rs", replicas: int = 2, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": template(labels=LABELS, restart="Always"),
            **spec,
        },
    }


def rolled_out(found: Deployment, replicas: int) -> bool:
    """As `kubectl rollout status` sees it."""
    status = found.status
    return (
        status.observed_generation >= found.metadata.generation
        and status.updated_replicas == replicas
        and status.replicas == replicas
        and status.available_replicas == replicas
    )


def _newer(generation: int, found: Deployment) -> bool:
    return found.metadata.generation > generation


async def deployed(w: SimulatedCluster, replicas: int, name: str = "web") -> Deployment:
    return await wait_for_object(w.deployments, f"default/{name}", lambda found: rolled_out(found, replicas))


async def settled(w: SimulatedCluster, ready: int, name: str = "rs") -> ReplicaSet:
    return await wait_for_object(
        w.replica_sets,
        f"default/{name}",
        lambda found: found.status.ready_replicas == found.status.replicas == ready,
    )


async def test_a_replica_set_keeps_its_number_of_pods() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(stop_s=0)) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(REPLICA_SETS, replica_set(replicas=3))
        full = await settled(w, 3)
        assert (full.status.available_replicas, full.status.fully_labeled_replicas) == (3, 3)
        assert full.status.observed_generation == full.metadata.generation
        victim = next(iter(w.pods.values()))
        await w.client.delete(PODS, victim.metadata.name, "default")
        await w.gone(victim.metadata.name)
        await w.pods.wait_until(lambda s: sum(p.status.phase == "Running" for p in s.values()) == 3)
        await w.client.patch(REPLICA_SETS, "rs", {"spec": {"replicas": 1}}, "default")
        await w.pods.wait_until(lambda s: len(s) == 1)
        await settled(w, 1)


async def test_a_failed_pod_is_replaced_and_stays_for_its_reader() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1", pods=1)
        await w.node("n2")
        w.binds_to("n1", "n1", "n2")
        await w.create(REPLICA_SETS, replica_set(replicas=2))
        await settled(w, 2)
        assert sorted(p.status.phase for p in w.pods.values()) == ["Failed", "Running", "Running"]


async def test_pods_that_wait_are_given_up_before_pods_that_run() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1")
        await w.create(REPLICA_SETS, replica_set(replicas=3))
        await w.pods.wait_until(lambda s: len(s) == 3)
        kept = next(iter(w.pods.values()))
        await w.client.bind("default", kept.metadata.name, uid=kept.metadata.uid, node="n1")
        await w.phase(kept.metadata.name, "Running")
        await w.client.patch(REPLICA_SETS, "rs", {"spec": {"replicas": 1}}, "default")
        await w.pods.wait_until(lambda s: len(s) == 1)
        assert w.find(kept.metadata.name) is not None


async def test_an_orphaned_pod_is_adopted() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.create(PODS, pod("orphan", labels=LABELS, restart="Always"))
        await w.create(PODS, pod("stranger", labels={"app": "other"}, restart="Always"))
        await w.pods.wait_until(lambda s: len(s) == 2)
        await w.create(REPLICA_SETS, replica_set(replicas=2))
        await w.pods.wait_until(lambda s: len(s) == 3)
        adopted = await w.wait_for_pod("orphan", lambda p: bool(p.metadata.owner_references))
        assert adopted.metadata.owner_references[0].name == "rs"
        stranger = w.find("stranger")
        assert stranger is not None
        assert not stranger.metadata.owner_references


async def test_a_deployment_is_rolled_out() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(DEPLOYMENTS, deployment())
        await deployed(w, 3)
        told = {"Available": ("True", "MinimumReplicasAvailable"), "Progressing": ("True", "NewReplicaSetAvailable")}
        await wait_for_object(
            w.deployments,
            "default/web",
            lambda found: {c.type: (c.status, c.reason) for c in found.status.conditions} == told,
        )
        (made,) = w.replica_sets.values()
        digest = made.metadata.labels[names.POD_TEMPLATE_HASH_LABEL]
        assert made.metadata.name == f"web-{digest}"
        assert made.metadata.annotations[names.DEPLOYMENT_REVISION_ANNOTATION] == "1"
        for found in w.pods.values():
            assert found.metadata.labels == {**LABELS, names.POD_TEMPLATE_HASH_LABEL: digest}
            assert found.metadata.name.startswith(f"web-{digest}-")
        await w.event("ScalingReplicaSet", f"Scaled up replica set web-{digest} from 0 to 3")


async def test_a_new_template_replaces_the_old_pods_step_by_step() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(stop_s=0)) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(DEPLOYMENTS, deployment())
        await deployed(w, 3)
        first = {p.metadata.uid for p in w.pods.values()}
        containers = deployment(image="two")["spec"]["template"]["spec"]["containers"]
        await w.client.patch(
            DEPLOYMENTS, "web", {"spec": {"template": {"spec": {"containers": containers}}}}, "default"
        )
        await wait_for_object(w.deployments, "default/web", lambda found: found.metadata.generation == 2)
        found = await deployed(w, 3)
        assert found.metadata.annotations[names.DEPLOYMENT_REVISION_ANNOTATION] == "2"
        await w.pods.wait_until(lambda s: len(s) == 3)
        assert not first & {p.metadata.uid for p in w.pods.values()}
        assert sorted(one.spec.replicas or 0 for one in w.replica_sets.values()) == [0, 3]

        back = deployment(image="one")["spec"]["template"]["spec"]["containers"]
        await w.client.patch(DEPLOYMENTS, "web", {"spec": {"template": {"spec": {"containers": back}}}}, "default")
        await wait_for_object(w.deployments, "default/web", lambda found: found.metadata.generation == 3)
        again = await deployed(w, 3)
        assert again.metadata.annotations[names.DEPLOYMENT_REVISION_ANNOTATION] == "3"
        assert len(w.replica_sets) == 2


async def test_recreate_never_runs_old_and_new_together() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(DEPLOYMENTS, deployment(replicas=2, strategy={"type": "Recreate"}))
        await deployed(w, 2)
        w.history.clear()
        containers = deployment(image="two")["spec"]["template"]["spec"]["containers"]
        await w.client.patch(
            DEPLOYMENTS, "web", {"spec": {"template": {"spec": {"containers": containers}}}}, "default"
        )
        await wait_for_object(w.deployments, "default/web", lambda found: found.metadata.generation == 2)
        await deployed(w, 2)
        ended = [i for i, v in enumerate(w.history) if v.status.phase == "Failed"]
        fresh = [i for i, v in enumerate(w.history) if v.spec.containers[0].image == "two"]
        assert max(ended) < min(fresh)


async def test_a_deployment_is_scaled_and_its_history_is_limited() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(stop_s=0)) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(DEPLOYMENTS, deployment(replicas=1, revisionHistoryLimit=1))
        await deployed(w, 1)
        await w.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}}, "default")
        await deployed(w, 4)
        for image in ("two", "three"):
            containers = deployment(image=image)["spec"]["template"]["spec"]["containers"]
            before = w.deployments.get("default/web")
            assert before is not None
            generation = before.metadata.generation
            patch = {"spec": {"template": {"spec": {"containers": containers}}}}
            await w.client.patch(DEPLOYMENTS, "web", patch, "default")
            await wait_for_object(w.deployments, "default/web", partial(_newer, generation))
            await deployed(w, 4)
        await w.replica_sets.wait_until(lambda s: len(s) == 2)


async def test_a_deployment_that_makes_no_progress_says_so() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.create(DEPLOYMENTS, deployment(replicas=1, progressDeadlineSeconds=5))
        await w.deployments.wait_until(
            lambda s: any(c.reason == "ProgressDeadlineExceeded" for d in s.values() for c in d.status.conditions)
        )


async def test_a_deleted_deployment_takes_everything_along() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(stop_s=0)) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(DEPLOYMENTS, deployment())
        await deployed(w, 3)
        await w.client.delete(DEPLOYMENTS, "web", "default", propagation="Background")
        await w.pods.wait_until(lambda s: len(s) == 0)
        await w.replica_sets.wait_until(lambda s: len(s) == 0)


async def test_a_restart_in_the_middle_makes_nothing_twice() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(DEPLOYMENTS, deployment(replicas=5))
        await w.pods.wait_until(lambda s: len(s) > 0)
        await w.restart()
        await deployed(w, 5)
        assert len({version.metadata.uid for version in w.history}) == 5
        assert len(w.replica_sets) == 1
