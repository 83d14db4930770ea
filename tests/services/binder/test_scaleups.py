"""For which nodes a scaling pod holds back GPUs (gpu:RV-3, SA-9)."""

from __future__ import annotations

import pytest

from pykai.api.core import Condition, Node, Pod, PodSpec, PodStatus
from pykai.api.meta import ObjectMeta
from pykai.api.timestamp import format_timestamp
from pykai.binder.scaleups import waits_for_node


def at(second: int) -> str:
    return format_timestamp(second * 1_000_000_000)


def node(since: int | None, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name="n1", labels=labels, creation_timestamp=None if since is None else at(since)))


def scaling_pod(since: int | None = 1000, *, scheduled: str = "False", **selector: str) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="s", creation_timestamp=None if since is None else at(since)),
        spec=PodSpec(node_selector=selector),
        status=PodStatus(conditions=(Condition(type="PodScheduled", status=scheduled),) if scheduled else ()),
    )


@pytest.mark.parametrize(
    ("pod", "machine", "waits"),
    [
        pytest.param(scaling_pod(), node(1100), True, id="a new node"),
        pytest.param(scaling_pod(), node(999), False, id="a node that was there before"),
        pytest.param(scaling_pod(100), node(500), False, id="a node that it has not taken for long"),
        pytest.param(scaling_pod(pool="a"), node(1100, pool="a"), True, id="a new node that it selects"),
        pytest.param(scaling_pod(pool="a"), node(1100, pool="b"), False, id="a new node of another kind"),
        pytest.param(scaling_pod(scheduled="True"), node(1100), False, id="has a node"),
        pytest.param(scaling_pod(scheduled=""), node(1100), False, id="no scheduler has looked at it"),
        pytest.param(scaling_pod(None), node(1), True, id="of unknown age"),
    ],
)
def test_a_scaling_pod_waits_for_new_nodes_that_it_selects(pod: Pod, machine: Node, waits: bool) -> None:
    assert waits_for_node(pod, machine, now_s=1200) is waits
