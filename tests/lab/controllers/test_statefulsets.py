"""StatefulSets on the embedded API server with simulated machines."""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.api.workloads import StatefulSet
from pykai.kube.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS, STORAGE_CLASSES
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from tests.lab.simulatedcluster import SimulatedCluster, simulated_cluster, template, wait_for_object

LABELS = {"app": "db"}


def stateful_set(replicas: int = 3, *, image: str = "one", **spec: Any) -> dict[str, Any]:
    body = template(labels=LABELS, restart="Always")
    body["spec"]["containers"][0]["image"] = image
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "selector": {"matchLabels": LABELS},
            "template": body,
            **spec,
        },
    }


async def settled(w: SimulatedCluster, replicas: int, generation: int = 1) -> StatefulSet:
    """As `kubectl rollout status` sees it."""

    def holds(found: StatefulSet) -> bool:
        status = found.status
        return (
            status.observed_generation >= generation
            and status.ready_replicas == status.replicas == status.updated_replicas == replicas
            and status.current_revision == status.update_revision
        )

    return await wait_for_object(w.stateful_sets, "default/db", holds)


async def test_pods_come_in_order_with_names_and_numbers() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(STATEFUL_SETS, stateful_set())
        done = await settled(w, 3)
        assert (done.status.available_replicas, done.status.current_replicas) == (3, 3)
        assert sorted(p.metadata.name for p in w.pods.values()) == ["db-0", "db-1", "db-2"]
        second = w.find("db-1")
        assert second is not None
        assert second.metadata.labels[names.POD_INDEX_LABEL] == "1"
        assert second.metadata.labels[names.STATEFUL_POD_NAME_LABEL] == "db-1"
        assert (await w.get(PODS, "db-1"))["spec"]["hostname"] == "db-1"
        ready: set[str] = set()
        for version in w.history:
            name = version.metadata.name
            assert name == "db-0" or f"db-{int(name[-1]) - 1}" in ready
            if version.status.phase == "Running":
                ready.add(name)
        (revision,) = await w.client.list_raw(CONTROLLER_REVISIONS, namespace="default")
        assert revision["metadata"]["name"] == done.status.current_revision


async def test_parallel_pods_do_not_wait_for_each_other() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.create(STATEFUL_SETS, stateful_set(podManagementPolicy="Parallel"))
        await w.pods.wait_until(lambda s: len(s) == 3)


async def test_a_lost_pod_comes_back_under_its_name_and_the_last_goes_first() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(stop_s=0)) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(STATEFUL_SETS, stateful_set())
        await settled(w, 3)
        before = await w.phase("db-1", "Running")
        await w.client.delete(PODS, "db-1", "default")
        await w.wait_for_pod("db-1", lambda p: p.metadata.uid != before.metadata.uid and p.status.phase == "Running")
        w.history.clear()
        await w.client.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}}, "default")
        await w.pods.wait_until(lambda s: len(s) == 1)
        assert w.find("db-0") is not None
        going = [v.metadata.name for v in w.history if v.metadata.deletion_timestamp is not None]
        assert going.index("db-2") < going.index("db-1")


async def test_a_new_template_replaces_pods_from_the_last_to_the_partition() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(stop_s=0)) as w:
        await w.node("n1")
        w.binds_to("n1")
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        await w.create(STATEFUL_SETS, stateful_set(updateStrategy=strategy))
        await settled(w, 3)
        containers = stateful_set(image="two")["spec"]["template"]["spec"]["containers"]
        patch = {"spec": {"template": {"spec": {"containers": containers}}}}
        await w.client.patch(STATEFUL_SETS, "db", patch, "default")

        def images() -> dict[str, str]:
            return {p.metadata.name: p.spec.containers[0].image for p in w.pods.values()}

        await w.pods.wait_until(lambda _: images() == {"db-0": "one", "db-1": "two", "db-2": "two"})
        # Below the partition a pod comes back as it was.
        before = w.find("db-0")
        assert before is not None
        await w.client.delete(PODS, "db-0", "default")
        again = await w.wait_for_pod("db-0", lambda p: p.metadata.uid != before.metadata.uid)
        assert again.spec.containers[0].image == "one"
        await w.client.patch(
            STATEFUL_SETS, "db", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}, "default"
        )
        await w.pods.wait_until(lambda _: set(images().values()) == {"two"} and len(images()) == 3)
        await settled(w, 3, generation=3)


async def test_each_pod_has_volumes_of_its_own_that_stay() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(stop_s=0)) as w:
        await w.node("n1")
        w.binds_to("n1")
        await w.create(STORAGE_CLASSES, {"metadata": {"name": "fast"}, "provisioner": names.SIMULATED_PROVISIONER})
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await w.create(STATEFUL_SETS, stateful_set(2, volumeClaimTemplates=[claim]))
        await settled(w, 2)
        volumes = (await w.get(PODS, "db-1"))["spec"]["volumes"]
        assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}} in volumes
        await w.client.delete(STATEFUL_SETS, "db", "default", propagation="Background")
        await w.pods.wait_until(lambda s: len(s) == 0)
        claims = await w.client.list_raw(PERSISTENT_VOLUME_CLAIMS, namespace="default")
        assert sorted(one["metadata"]["name"] for one in claims) == ["data-db-0", "data-db-1"]
        assert {one["status"]["phase"] for one in claims} == {"Bound"}
