"""A new node is tainted not-ready; the node lifecycle controller removes the taint once it is ready."""

from __future__ import annotations

from pykai.api import names
from pykai.api.core import Node
from pykai.kube.resources import NODES
from pykai.kube.store import Store
from tests.lab.simulatedcluster import SimulatedCluster, simulated_cluster, wait_for_object

CLOSED = (names.NOT_READY_TAINT, "NoSchedule")


async def nodes_of(w: SimulatedCluster) -> Store[Node]:
    """A cache of the nodes."""
    store = w.caches.store(NODES, Node)
    await w.caches.start()
    await store.synced.wait()
    return store


def taints(node: Node) -> list[tuple[str, str]]:
    return [(each.key, each.effect) for each in node.spec.taints]


def ready(status: str) -> dict[str, object]:
    return {"status": {"conditions": [{"type": "Ready", "status": status}]}}


async def test_a_node_opens_when_it_is_ready_and_closes_when_it_is_not() -> None:
    async with simulated_cluster(controllers=True) as w:
        nodes = await nodes_of(w)
        await w.node("n1")
        await wait_for_object(nodes, "n1", lambda node: not node.spec.taints)
        await w.client.patch(NODES, "n1", ready("False"), subresource="status")
        await wait_for_object(nodes, "n1", lambda node: taints(node) == [CLOSED])
        await w.client.patch(NODES, "n1", ready("True"), subresource="status")
        await wait_for_object(nodes, "n1", lambda node: not node.spec.taints)


async def test_taints_of_others_stay() -> None:
    async with simulated_cluster(controllers=True) as w:
        nodes = await nodes_of(w)
        mine = {"key": "mine", "value": "yes", "effect": "NoSchedule"}
        await w.node("n1", taints=[mine, {"key": names.NOT_READY_TAINT, "effect": "NoExecute"}])
        left = [("mine", "NoSchedule"), (names.NOT_READY_TAINT, "NoExecute")]
        await wait_for_object(nodes, "n1", lambda node: taints(node) == left)
        await w.client.patch(NODES, "n1", ready("False"), subresource="status")
        await wait_for_object(nodes, "n1", lambda node: taints(node) == [*left, CLOSED])


async def test_a_node_that_says_nothing_of_itself_stays_closed() -> None:
    async with simulated_cluster(all_nodes=False, controllers=True) as w:
        nodes = await nodes_of(w)
        await w.create(NODES, {"metadata": {"name": "silent"}})
        await w.node("n1")
        await wait_for_object(nodes, "n1", lambda node: not node.spec.taints)
        assert taints(await wait_for_object(nodes, "silent", lambda _: True)) == [CLOSED]
