"""allocate/topology (operations:17): eight machines, two to a rack, of which no two follow each other by name.

The shard spreads pods, so gangs without a constraint are over several racks, and several nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykai.kube.resources import NODES, TOPOLOGIES
from tests.e2e.endtoend import Document, EndToEnd, end_to_end

ZONE, RACK, HOST = "e2e-topology-label/zone", "e2e-topology-label/rack", "kubernetes.io/hostname"
NAME = "e2e-topology-tree"
RACKS = 4


def rack(number: int) -> int:
    """Of a GPU node, which are numbered by name: with room for two pods on equal nodes, the first two get them."""
    return number % RACKS


def zone(number: int) -> int:
    """One zone has three racks, so that four whole nodes of it need not be two racks."""
    return rack(number) // 3


@pytest.fixture(scope="module", autouse=True)
def _spread(installed: Path) -> Iterator[None]:
    """The shard spreads pods (operations:E-18)."""
    before = asyncio.run(change_shard(installed, placementStrategy={"gpu": "spread", "cpu": "spread"}))
    yield
    asyncio.run(change_shard(installed, **before))


async def change_shard(kubeconfig: Path, **spec: Any) -> Document:
    async with end_to_end(kubeconfig) as e2e:
        return await e2e.change_shard(**spec)


@pytest.fixture
async def queue(e2e: EndToEnd) -> AsyncIterator[str]:
    (made,) = await e2e.family("topology")
    nodes = e2e.gpu_nodes()
    assert len(nodes) == 2 * RACKS
    for number, node in enumerate(nodes):
        labels = {ZONE: f"zone{zone(number)}", RACK: f"rack{rack(number)}"}
        await e2e.client.patch(NODES, node, {"metadata": {"labels": labels}})
    levels = [{"nodeLabel": ZONE}, {"nodeLabel": RACK, "alias": "rack"}, {"nodeLabel": HOST}]
    await e2e.add(TOPOLOGIES, {"metadata": {"name": NAME}, "spec": {"levels": levels}})
    yield made
    for node in nodes:
        await e2e.client.patch(NODES, node, {"metadata": {"labels": {ZONE: None, RACK: None}}})


async def gang(e2e: EndToEnd, queue: str, pods: int, gpus: int, **levels: str) -> list[str]:
    """A gang with a topology, whose group comes first; the nodes of its pods."""
    constraint: dict[str, Any] = {"topology": NAME}
    for kind, level in levels.items():
        constraint[f"{kind}TopologyLevel"] = level
    await e2e.group("gang", queue, pods, **({"topologyConstraint": constraint} if levels else {}))
    made = await e2e.pods(pods, queue, gpus=gpus, group="gang")
    await e2e.scheduled(*made)
    return [e2e.node_of(name) for name in made]


def racks(e2e: EndToEnd, nodes: list[str]) -> set[int]:
    return {rack(e2e.gpu_nodes().index(node)) for node in nodes}


def zones(e2e: EndToEnd, nodes: list[str]) -> set[int]:
    return {zone(e2e.gpu_nodes().index(node)) for node in nodes}


@pytest.mark.parametrize("level", [RACK, "rack"], ids=["by label", "by alias"])
async def test_a_required_rack(e2e: EndToEnd, queue: str, level: str) -> None:
    nodes = await gang(e2e, queue, 2, e2e.gpus_per_node, required=level)
    assert len(set(nodes)) == 2
    assert len(racks(e2e, nodes)) == 1


async def test_a_preferred_rack(e2e: EndToEnd, queue: str) -> None:
    nodes = await gang(e2e, queue, 2, e2e.gpus_per_node, preferred=RACK)
    assert len(racks(e2e, nodes)) == 1


async def test_a_required_rack_and_a_preferred_node_that_is_large_enough(e2e: EndToEnd, queue: str) -> None:
    nodes = await gang(e2e, queue, 2, e2e.gpus_per_node // 2, required=RACK, preferred=HOST)
    assert len(set(nodes)) == 1


async def test_a_required_rack_and_a_preferred_node_that_is_too_small(e2e: EndToEnd, queue: str) -> None:
    nodes = await gang(e2e, queue, 2, e2e.gpus_per_node, required=RACK, preferred=HOST)
    assert len(racks(e2e, nodes)) == 1
    assert len(set(nodes)) == 2


async def test_a_required_zone_and_a_preferred_rack_that_is_too_small(e2e: EndToEnd, queue: str) -> None:
    nodes = await gang(e2e, queue, 4, e2e.gpus_per_node, required=ZONE, preferred=RACK)
    assert len(zones(e2e, nodes)) == 1
    assert len(racks(e2e, nodes)) == 2


@pytest.mark.parametrize(("pods", "parts", "on"), [(2, 1, 2), (2, 2, 2), (4, 1, 4)])
async def test_without_a_constraint_no_spec_would_hold(
    e2e: EndToEnd, queue: str, pods: int, parts: int, on: int
) -> None:
    """The specs above are about the constraint, and not about where pods would be anyway."""
    nodes = await gang(e2e, queue, pods, e2e.gpus_per_node // parts)
    assert len(set(nodes)) == on
    assert len(racks(e2e, nodes)) > pods // 2
    assert pods == 2 or len(zones(e2e, nodes)) == 2
