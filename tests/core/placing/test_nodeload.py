"""The load of the pods of a node; readers have registries of their own."""

from __future__ import annotations

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.core.model.shapes import ShapeRegister
from pykai.core.placing.nodeload import NodeLoad


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
