"""The nodes of a cycle as columns.

Rows are in name order: equal scores go to the smaller name (cycle:SCO-1), so the first maximum of a score column is the
right node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pykai.core.caching import Memo, Value
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.nodes import NodeFacts


@dataclass(slots=True)
class NodeTable:
    """Facts of all nodes as columns; rows are in name order."""

    names: list[str]
    rows: dict[str, int]
    facts: list[NodeFacts]
    #: MiB of one GPU, floored
    gpu_mib: IntArray
    #: MiB of one GPU as labelled
    gpu_label_mib: IntArray
    #: whether the label was there
    has_gpu_memory_label: BoolArray
    #: GPUs by label, else allocatable
    gpu_count: IntArray
    #: no GPU of any form
    cpu_only: BoolArray
    #: pods may start here
    ready: BoolArray
    #: what is kept as long as no node changes, such as filter results by constraint
    memo: Memo = field(default_factory=Memo)

    @classmethod
    def of(cls, facts: Mapping[str, NodeFacts]) -> NodeTable:
        """The table of these nodes."""
        ordered = [facts[name] for name in sorted(facts)]
        return cls(
            names=[node.name for node in ordered],
            rows={node.name: row for row, node in enumerate(ordered)},
            facts=ordered,
            gpu_mib=np.array([node.gpu_mib for node in ordered], dtype=np.int64),
            gpu_label_mib=np.array([node.gpu_label_mib for node in ordered], dtype=np.int64),
            has_gpu_memory_label=np.array([node.has_gpu_memory_label for node in ordered], dtype=np.bool_),
            gpu_count=np.array([node.gpu_count for node in ordered], dtype=np.int64),
            cpu_only=np.array([node.cpu_only for node in ordered], dtype=np.bool_),
            ready=np.array([not node.unschedulable_reason for node in ordered], dtype=np.bool_),
        )

    def __len__(self) -> int:
        return len(self.names)

    def remember(self, key: object, make: Callable[[], Value]) -> Value:
        """A value that depends on the nodes alone, made on first use."""
        return self.memo.remember(key, make)

    def label_keys(self) -> frozenset[str]:
        """Labels that any node has."""
        return self.remember("label keys", lambda: frozenset(key for node in self.facts for key in node.labels))

    def label_codes(self, label: str) -> tuple[IntArray, list[str | None]]:
        """A label as a column of small numbers and what they stand for; None stands for a missing label.

        Labels that no node has share one column, because pods may name any number of them.
        """
        if label not in self.label_keys():
            label = ""
        return self.remember(("label", label), lambda: _encode([node.labels.get(label) for node in self.facts]))

    def per_label(self, label: str, test: Callable[[str | None], bool]) -> BoolArray:
        """A test on the value of a label, evaluated once per distinct value."""
        codes, values = self.label_codes(label)
        matches = np.array([test(value) for value in values], dtype=np.bool_)
        return matches[codes] if len(values) else np.zeros(0, dtype=np.bool_)


def _encode(column: list[str | None]) -> tuple[IntArray, list[str | None]]:
    values: dict[str | None, int] = {}
    codes = [values.setdefault(value, len(values)) for value in column]
    return np.array(codes, dtype=np.int64), list(values)
