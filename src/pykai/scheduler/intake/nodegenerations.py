"""How often a node changed without us: its status, or a pod that another scheduler brought there.

A decision is as old as the last generation that its cycle has seen.  A node of a later generation is rechecked before a
pod is bound there (`dispatch.noderecheck`).
"""

from __future__ import annotations


class NodeGenerations:
    """Counts changes of nodes."""

    def __init__(self) -> None:
        #: number of the last change of any node
        self.latest = 0
        self._by_node: dict[str, int] = {}

    def of(self, node: str) -> int:
        """The number of the last change of a node, 0 when there was none."""
        return self._by_node.get(node, 0)

    def bump(self, node: str) -> None:
        """Count a change of a node."""
        self.latest += 1
        self._by_node[node] = self.latest

    def forget(self, node: str) -> None:
        """Forget a deleted node."""
        self._by_node.pop(node, None)
