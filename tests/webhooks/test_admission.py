"""What the embedded API server asks about pods, and what it does not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from pykai.kube.errors import Forbidden
from pykai.webhooks.admission import pod_mutator, pod_validator
from pykai.webhooks.gpusharing import SharingRules
from pykai.webhooks.handlers import pod_handlers
from pykai.webhooks.reviews import ReviewRequest
from pykai.webhooks.table import MUTATE_PODS
from tests.webhooks.test_gpusharing import HALF, a_pod, letters


@dataclass(frozen=True)
class Attributes:
    object: dict[str, Any] | None = None
    operation: str = "CREATE"
    resource: str = "pods"
    group: str = ""
    subresource: str = ""
    namespace: str = "ns"
    old_object: dict[str, Any] | None = None
    user: str = "jane"
    groups: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "attributes",
    [
        Attributes(None),
        Attributes(a_pod(HALF), operation="DELETE"),
        Attributes(a_pod(HALF), resource="podtemplates"),
        Attributes(a_pod(HALF), group="metrics.k8s.io"),
        Attributes(a_pod(HALF), subresource="status"),
    ],
    ids=("no object", "deletion", "resource", "group", "subresource"),
)
def test_what_is_no_new_pod_is_left_alone(attributes: Attributes) -> None:
    """gpu:A-1."""
    assert pod_mutator(random=letters)(Attributes(a_pod(HALF))) is not None
    assert pod_mutator(random=letters)(attributes) is None
    off = SharingRules(gpu_sharing_enabled=False)
    with pytest.raises(Forbidden, match="GPU sharing is disabled"):
        pod_validator(off)(Attributes(a_pod(HALF)))
    pod_validator(off)(attributes)


def test_new_ephemeral_containers_see_no_device() -> None:
    """gpu:A-9."""
    rules = SharingRules(visible_devices_blocked=True)
    old = a_pod(containers=[{"name": "c"}])
    new = a_pod(containers=[{"name": "c"}], ephemeralContainers=[{"name": "shell"}])
    mutate = pod_handlers(rules, random=letters)[MUTATE_PODS.path]

    def changed(subresource: str) -> dict[str, Any] | None:
        request = ReviewRequest("u", "UPDATE", "ns", "p", subresource=subresource, object=new, old_object=old)
        return asyncio.run(mutate(request)).changed

    with_void = changed("ephemeralcontainers")
    assert with_void is not None
    assert with_void["spec"]["ephemeralContainers"][0]["env"][0]["value"] == "void"
    assert changed("") is None
