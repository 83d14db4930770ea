"""Nodes whose GPUs are for a scaling pod: it waits for a new node on behalf of pods that share GPUs (gpu:SA-9)."""

from __future__ import annotations

from typing import Final

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.timestamp import TimestampError, parse_timestamp

#: cluster seconds in which a node counts as new: a scaling pod that fits on it is placed long before
_NEW_NODE_S: Final = 600.0


def waits_for_node(pod: Pod, node: Node, now_s: float) -> bool:
    """Whether a scaling pod waits, and this may be the node it waits for.

    A node that is older than the pod is not, and one that the pod has not taken for long will not be: a pod that fits
    nowhere must not keep others from sharing GPUs.
    """
    is_waiting = any(c.type == names.CONDITION_POD_SCHEDULED and c.status != "True" for c in pod.status.conditions)
    if not is_waiting:
        return False
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    node_s, pod_s = _created_s(node.metadata.creation_timestamp), _created_s(pod.metadata.creation_timestamp)
    return node_s is None or pod_s is None or (pod_s <= node_s and now_s - node_s <= _NEW_NODE_S)


def _created_s(timestamp: str | None) -> float | None:
    try:
        return parse_timestamp(timestamp or "") / 1e9
    except TimestampError:
        return None
