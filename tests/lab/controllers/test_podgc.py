"""Pods whose node is gone or drives them out, and budgets of disruption."""

from __future__ import annotations

import pytest

from pykai.api.core import Taint, Toleration
from pykai.api.decode import decode_as
from pykai.api.disruption import PodDisruptionBudget
from pykai.api.workloads import MachinePod
from pykai.kube.resources import NODES, POD_DISRUPTION_BUDGETS
from pykai.lab.controllers.disruptionbudgets import status_patch
from pykai.lab.controllers.podgc import toleration_s
from tests.lab.simulatedcluster import simulated_cluster


async def test_pods_of_a_node_that_is_gone_are_removed() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1")
        await w.node("n2")
        await w.pod("a", node="n1", restart="Always")
        await w.pod("b", node="n2", restart="Always")
        await w.phase("a", "Running")
        await w.phase("b", "Running")
        await w.client.delete(NODES, "n1")
        await w.gone("a")
        last = [v for v in w.history if v.metadata.name == "a"][-1]
        assert last.status.phase == "Failed"
        assert "DeletionByPodGC" in [condition.reason for condition in last.status.conditions]
        assert w.find("b") is not None


async def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    async with simulated_cluster(speed=20, controllers=True) as w:
        await w.node("n1", gpus=1)
        await w.pod("a", node="n1", gpus=1, restart="Always")
        running = await w.phase("a", "Running")
        await w.client.delete(NODES, "n1")
        await w.node("n1", gpus=1)
        await w.pod("b", node="n1", gpus=1, restart="Always")
        failed = await w.phase("b", "Failed")
        assert failed.status.reason == "OutOfnvidia.com/gpu"
        after = w.find("a")
        assert after is not None
        assert after.metadata.uid == running.metadata.uid
        assert after.status.phase == "Running"


async def test_a_taint_evicts_pods_that_do_not_tolerate_it() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1")
        await w.pod("leaves", node="n1", restart="Always")
        bears = [{"key": "broken", "operator": "Exists", "effect": "NoExecute"}]
        await w.pod("stays", node="n1", restart="Always", tolerations=bears)
        await w.phase("leaves", "Running")
        await w.phase("stays", "Running")
        await w.client.patch(NODES, "n1", {"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}})
        await w.gone("leaves")
        await w.event("TaintManagerEviction")
        assert w.find("stays") is not None


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], 0.0),
        ([Toleration(key="k", operator="Exists")], None),
        ([Toleration(key="k", operator="Exists", toleration_seconds=30)], 30.0),
        ([Toleration(key="k", value="v")], None),
        ([Toleration(key="k", value="other")], 0.0),
        ([Toleration(operator="Exists")], None),
        ([Toleration(key="k", operator="Exists", effect="NoSchedule")], 0.0),
        ([Toleration(key="k", operator="Exists", toleration_seconds=-5)], 0.0),
    ],
)
def test_how_long_a_taint_is_borne(tolerations: list[Toleration], expected: float | None) -> None:
    assert toleration_s(Taint(key="k", value="v", effect="NoExecute"), tolerations) == expected


async def test_a_budget_says_how_many_pods_may_go() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.node("n1")
        budgets = w.caches.store(POD_DISRUPTION_BUDGETS, PodDisruptionBudget)
        await w.create(
            POD_DISRUPTION_BUDGETS,
            {
                "metadata": {"name": "b", "namespace": "default"},
                "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
            },
        )
        for name in ("x", "y", "z"):
            await w.pod(name, node="n1", restart="Always", labels={"app": "web"})
        await w.pod("other", node="n1", restart="Always", labels={"app": "db"})

        def allowed(count: int, healthy: int) -> bool:
            found = budgets.get("default/b")
            return found is not None and (found.status.disruptions_allowed, found.status.current_healthy) == (
                count,
                healthy,
            )

        await budgets.wait_until(lambda _: allowed(1, 3))
        budget = budgets.get("default/b")
        assert budget is not None
        assert budget.status.expected_pods == 3


def test_budgets_count_in_percent() -> None:
    budget = decode_as(PodDisruptionBudget, {"metadata": {"generation": 1}, "spec": {"maxUnavailable": "50%"}})
    pods = [decode_as(MachinePod, {"metadata": {"name": str(number)}}) for number in range(5)]
    assert status_patch(budget, pods) == {
        "currentHealthy": 0,
        "desiredHealthy": 2,
        "disruptionsAllowed": 0,
        "expectedPods": 5,
        "observedGeneration": 1,
    }
