"""allocate/topology (operations:17): eight machines, two to a rack, four to a zone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pykai.kube.resources import NODES, TOPOLOGIES
from tests.e2e.endtoend import EndToEnd

ZONE, RACK, HOST = "e2e-topology-label/zone", "e2e-topology-label/rack", "kubernetes.io/hostname"
NAME = "e2e-topology"


@pytest.fixture
async def queue(e2e: EndToEnd) -> AsyncIterator[str]:
    (made,) = await e2e.family("topology")
    nodes = e2e.gpu_nodes()
    assert len(nodes) == 8
    for number, node in enumerate(nodes):
        labels = {ZONE: f"zone{number // 4}", RACK: f"rack{number // 2}"}
        await e2e.client.patch(NODES, node, {"metadata": {"labels": labels}})
    levels = [{"nodeLabel": ZONE}, {"nodeLabel": RACK, "alias": "rack"}, {"nodeLabel": HOST}]
    await e2e.add(TOPOLOGIES, {"metadata": {"name": NAME}, "spec": {"levels": levels}})
    yield made
    for node in nodes:
        await e2e.client.patch(NODES, node, {"metadata": {"labels": {ZONE: None, RACK: None}}})


async def gang(e2e: EndToEnd, queue: str, pods: int, gpus: int, **levels: str) -> list[str]:
    """A gang with a topology; the nodes of its pods."""
    constraint: dict[str, Any] = {"topology": NAME}
    for kind, level in levels.items():
        constraint[f"{kind}TopologyLevel"] = level
    made = await e2e.pods(pods, queue, gpus=gpus, group="gang")
    await e2e.group("gang", queue, pods, topologyConstraint=constraint)
    await e2e.scheduled(*made)
    return [e2e.node_of(name) for name in made]


def racks(e2e: EndToEnd, nodes: list[str]) -> set[int]:
    return {e2e.gpu_nodes().index(node) // 2 for node in nodes}


def zones(e2e: EndToEnd, nodes: list[str]) -> set[int]:
    return {e2e.gpu_nodes().index(node) // 4 for node in nodes}


@pytest.mark.parametrize("level", [RACK, "rack"], ids=["by label", "by alias"])
async def test_a_required_rack(e2e: EndToEnd, queue: str, level: str) -> None:
    nodes = await gang(e2e, queue, 2, e2e.gpus_per_node, required=level)
    assert len(set(nodes)) == 2
    assert len(racks(e2e, nodes)) == 1


async def test_a_preferred_rack(e2e: EndToEnd, queue: str) -> None:
    nodes = await gang(e2e, queue, 2, e2e.gpus_per_node, preferred=RACK)
    assert len(racks(e2e, nodes)) == 1


async def test_a_required_rack_and_a_preferred_node_that_is_large_enough(e2e: EndToEnd, queue: str) -> None:
    nodes = await gang(e2e, queue, 2, 1, required=RACK, preferred=HOST)
    assert len(set(nodes)) == 1


async def test_a_required_rack_and_a_preferred_node_that_is_too_small(e2e: EndToEnd, queue: str) -> None:
    nodes = await gang(e2e, queue, 2, e2e.gpus_per_node, required=RACK, preferred=HOST)
    assert len(racks(e2e, nodes)) == 1
    assert len(set(nodes)) == 2


async def test_a_required_zone_and_a_preferred_rack_that_is_too_small(e2e: EndToEnd, queue: str) -> None:
    nodes = await gang(e2e, queue, 4, e2e.gpus_per_node, required=ZONE, preferred=RACK)
    assert len(zones(e2e, nodes)) == 1
    assert len(racks(e2e, nodes)) == 2
