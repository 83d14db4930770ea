"""A fluent builder for clusters with devices.

    result = devices(nodes=2, each=4).gang("train", 2, template=2).schedule()
    assert result.given_to("train-0") == {"devices": ["node-0/gpu-0", "node-0/gpu-1"]}

Class `gpu` selects every device; devices of a node are called gpu-0, gpu-1, ...  Pods run in the queue q.
"""

from __future__ import annotations

from typing import Any

from tests.core.builders import Cluster, Raw, Result, cluster


def devices(nodes: int = 1, each: int = 2, **node: Any) -> Cluster:
    """Nodes with so many GPUs in a slice each, and nothing else of GPUs."""
    world = cluster(nodes=nodes, **node).device_class("gpu")
    for number in range(nodes):
        world.slice(f"node-{number}", each)
    return world


def device_request(count: int = 1, of: str = "gpu", name: str = "r", **more: Any) -> Raw:
    """A request for some devices of a class."""
    return {"name": name, "exactly": {"deviceClassName": of, "allocationMode": "ExactCount", "count": count, **more}}


def first_of(*alternatives: tuple[str, int]) -> Raw:
    """A prioritised list of classes and counts."""
    listed = [{"name": f"way-{n}", "deviceClassName": of, "count": count} for n, (of, count) in enumerate(alternatives)]
    return {"name": "r", "firstAvailable": listed}


def waits_for(result: Result, group: str) -> str:
    """The reason of the plugin for not trying a group at all."""
    text = result.no_place(group).base.partition("DynamicResources: ")[2]
    return text.rstrip(".\n").replace("{pod}", result.no_place(group).pod)
