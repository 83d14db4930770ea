"""Pods and the shapes that the engine makes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from pykai.api.core import Pod
from pykai.api.decode import decode_object
from pykai.core.model.shapes import Shape, ShapeRegister
from tests.core.builders import Raw

GPU = "nvidia.com/gpu"
AMD = "amd.com/gpu"
SLICE = "nvidia.com/mig-1g.5gb"
BIG_SLICE = "nvidia.com/mig-3g.20gb"
GIB = 1 << 30

Requests = Mapping[str, str | int | float]


def container(requests: Requests | None = None, **fields: Any) -> Raw:
    """A container with requests."""
    return {"name": "c", "resources": {"requests": dict(requests or {})}, **fields}


def sidecar(requests: Requests) -> Raw:
    """An init container that goes on running."""
    return container(requests, restartPolicy="Always")


def pod(
    *containers: Raw,
    init: Sequence[Raw] = (),
    name: str = "p",
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod with these containers; `spec` are fields of its spec as the wire spells them."""
    decoded = decode_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "uid": name,
                "namespace": namespace,
                "annotations": dict(annotations or {}),
                "labels": dict(labels or {}),
            },
            "spec": {"containers": list(containers), "initContainers": list(init), **spec},
        }
    )
    assert isinstance(decoded, Pod)
    return decoded


def shape(*containers: Raw, **pod_fields: Any) -> Shape:
    """The shape of such a pod."""
    return ShapeRegister().shape_of(pod(*containers, **pod_fields))


def asked(*containers: Raw, **pod_fields: Any) -> dict[str, int]:
    """The requests of such a pod by resource name, without its own pod slot."""
    requests = dict(shape(*containers, **pod_fields).requests)
    assert requests.pop("pods") == 1
    return requests


def same(first: Pod, second: Pod) -> bool:
    """Whether two pods have the same shape."""
    register = ShapeRegister()
    return register.shape_of(first) is register.shape_of(second)
