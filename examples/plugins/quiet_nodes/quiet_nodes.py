"""quietnodes: prefer nodes that carry a label, as a plugin for PyKAI."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pykai.plugin import Hooks, NodeScore, PlacementRequest, Rows, Scope, Snapshot, State


@dataclass(frozen=True)
class QuietNodes:
    label: str = "example.com/quiet"
    ARGUMENTS: ClassVar[dict[str, Any]] = {"label": ("label", str)}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        quiet = snapshot.nodes.per_label(self.label, lambda value: value == "true")

        def score(state: State, request: PlacementRequest, rows: Rows, context: None) -> Any:
            return 100_000.0 * quiet[rows]

        return Hooks(node_scores=(NodeScore("quietnodes", score, scope=Scope.NODES),))
