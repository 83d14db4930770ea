"""The load of the pods of a node; readers have registries of their own."""

from __future__ import annotations

from collections import Counter

import pytest

from pykai.api.core import Node, Pod
from pykai.api.decode import decode_as
from pykai.core.model.shapes import ShapeRegister
from pykai.core.placing.nodeload import NodeLoad, node_capacity, shape_or_empty

BROKEN = "example.com/broken"


def pod(number: int) -> Pod:
    """A pod with a config map of its own."""
    settings = [{"configMapRef": {"name": f"settings-{number}"}}]
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}, "envFrom": settings}
    return decode_as(Pod, {"metadata": {"name": f"p{number}"}, "spec": {"containers": [container]}})


def test_unused_pods_are_dropped_from_the_cache() -> None:
    register = ShapeRegister()
    for number in range(6000):
        found = NodeLoad(register)
        found.add(pod(number))
        assert found.used == {"cpu": 1000, "pods": 1}
    assert len(register.shapes) < 5000
    assert register.cached_specs < 5000


def asking(resource: str = "cpu", requested: str = "0", *, port: int | None = None) -> Pod:
    """A pod with a request."""
    ports = [] if port is None else [{"containerPort": port, "hostPort": port}]
    container = {"name": "main", "resources": {"requests": {resource: requested}}, "ports": ports}
    return decode_as(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [container]}})


@pytest.mark.parametrize(
    ("there", "wanted", "said"),
    [
        (asking("cpu", "3"), asking("cpu", "1"), ""),
        (asking("cpu", "3"), asking("cpu", "1500m"), "cpu: 3000 of 4000 are in use, 1500 are wanted"),
        (asking("cpu", "5"), asking("cpu", "0"), ""),
        (asking(), asking("example.com/claimed", "7"), ""),
        (asking(), asking(BROKEN, "1"), f"{BROKEN}: 0 of 0 are in use, 1000 are wanted"),
        (asking(port=80), asking(port=80), "a host port is in use"),
        (asking(port=80), asking(port=81), ""),
        (asking(port=80), asking(), ""),
    ],
)
def test_a_node_says_what_it_lacks_for_another_pod(there: Pod, wanted: Pod, said: str) -> None:
    """Only resources that the node lists are counted, and one that cannot be read counts as none."""
    allocatable = {"cpu": "4", "pods": "110", BROKEN: "many"}
    node = decode_as(Node, {"metadata": {"name": "n"}, "status": {"allocatable": allocatable}})
    register = ShapeRegister()
    load = NodeLoad(register)
    load.add(there)
    shape = shape_or_empty(wanted, register)
    assert load.shortage(node, Counter(dict(shape.requests)), shape) == said


def test_a_node_has_nothing_of_a_resource_that_it_does_not_list() -> None:
    assert node_capacity(decode_as(Node, {"metadata": {"name": "n"}}), "cpu") == 0
