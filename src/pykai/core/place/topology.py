"""Topologies as trees of domains over the node columns (topo:4, 5).

A `Topology` lists node labels from the coarsest level to the finest.  A node belongs to it when it has all of them; the
values along the path name its domain at each level.  `DomainTree` holds that as one column of domain numbers per level,
so what a domain has free is one sum over a column, for all domains of a level at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykai.api.topology import Topology
from pykai.core.axes import PODS, BoolArray, FloatArray, IntArray
from pykai.core.shapes import GpuKind
from pykai.core.snapshot import NodeTable
from pykai.core.state import State
from pykai.core.tasks import Task

#: What a resource contributes of which a domain has nothing (topo:5.4).
_NOTHING_LEFT = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class DomainTree:
    """The domains of one topology."""

    #: label of each level, coarsest first
    labels: tuple[str, ...]
    #: label or alias -> level
    levels: dict[str, int]
    #: [node] has all labels
    member: BoolArray
    #: level -> [node] number of its domain, -1 outside the topology
    codes: list[IntArray]
    #: level -> id of each domain: the path of label values from the top (topo:T-16)
    ids: list[list[str]]
    #: level -> number of the parent of each domain, one level up; at the top 0, the root
    parents: list[list[int]]


def domain_tree(nodes: NodeTable, topology: Topology) -> DomainTree:
    """The tree of a topology over these nodes."""
    labels = tuple(level.node_label for level in topology.spec.levels)
    levels = {label: index for index, label in enumerate(labels)}
    for index, level in enumerate(topology.spec.levels):
        if level.alias:
            levels.setdefault(level.alias, index)
    paths: list[tuple[str, ...] | None] = [
        tuple(node.labels[label] for label in labels) if all(label in node.labels for label in labels) else None
        for node in nodes.facts
    ]
    codes: list[IntArray] = []
    ids: list[list[str]] = []
    parents: list[list[int]] = []
    known: dict[tuple[str, ...], int] = {(): 0}
    for depth in range(1, len(labels) + 1):
        prefixes = sorted({path[:depth] for path in paths if path is not None})
        numbers = {prefix: number for number, prefix in enumerate(prefixes)}
        codes.append(np.array([-1 if path is None else numbers[path[:depth]] for path in paths], dtype=np.int64))
        ids.append([".".join(prefix) for prefix in prefixes])
        parents.append([known[prefix[:-1]] for prefix in prefixes])
        known = numbers
    member = np.array([path is not None for path in paths], dtype=np.bool_)
    return DomainTree(labels, levels, member, codes, ids, parents)


class Demand:
    """What some tasks need of a domain (topo:5.1 to 5.4)."""

    def __init__(self, state: State, tasks: Sequence[Task]) -> None:
        snapshot = state.snapshot
        size = len(snapshot.axes)
        self._state = state
        self.count = len(tasks)
        gpu_axes = set(snapshot.axes.gpu_axes)
        self._sums: IntArray = np.zeros(size, dtype=np.int64)
        self._most: IntArray = np.zeros(size, dtype=np.int64)
        asking: IntArray = np.zeros(size, dtype=np.int64)
        #: shared GPUs, in hundredths
        self._shared_sum = self._shared_most = 0
        with_gpu = 0
        for task in tasks:
            shape = task.shape
            charge = snapshot.vectors[shape].charge
            self._sums += charge
            self._most = np.maximum(self._most, charge)
            asking += charge > 0
            with_gpu += shape.gpu.kind in (GpuKind.WHOLE, GpuKind.FRACTION)
            if shape.shared:
                self._shared_sum += shape.gpu_hundredths
                self._shared_most = max(self._shared_most, shape.gpu_hundredths)
        others = [axis for axis in range(2, size) if axis not in gpu_axes]
        self.homogeneous = with_gpu in (0, self.count) and all(int(asking[axis]) in (0, self.count) for axis in others)
        self._gpu_axes = sorted(gpu_axes)

    def pods_on(self) -> IntArray:
        """[node] how many pods as big as the biggest of the tasks a node could hold."""
        state, most = self._state, self._most
        size = len(state.snapshot.nodes)
        if not self._shared_most and not any(most[axis] for axis in range(len(most)) if axis != PODS):
            return np.full(size, self.count, dtype=np.int64)
        counts: IntArray = np.full(size, 2**31, dtype=np.int64)
        for axis in np.flatnonzero(most):
            np.minimum(counts, state.free[axis] // most[axis], out=counts)
        if self._shared_most:
            np.minimum(counts, self._free_hundredths() // self._shared_most, out=counts)
        return np.maximum(counts, 0)

    def _free_hundredths(self) -> IntArray:
        """[node] GPUs free in hundredths, the rest of shared ones included."""
        state = self._state
        free: IntArray = np.zeros(len(state.snapshot.nodes), dtype=np.int64)
        for axis in self._gpu_axes:
            free += 100 * state.free[axis]
        if self._shared_most < 100:
            for row, devices in state.devices.items():
                mib = state.snapshot.nodes.facts[row].gpu_mib
                for device in devices.values():
                    if device.live:
                        free[row] += max(0, 100 * (mib - device.allocated_mib + device.releasing_mib) // mib)
        return free

    def ratios(self, codes: IntArray, domains: int, inside: BoolArray) -> FloatArray:
        """[domain] how full the tasks would make it: above 1 they do not fit, the fullest is tried first."""
        state = self._state
        ratios: FloatArray = np.zeros(domains)
        rows = np.flatnonzero(inside)
        where = codes[rows]

        def count(asked: float, held: IntArray) -> None:
            free: FloatArray = np.bincount(where, weights=held[rows], minlength=domains).astype(np.float64)
            has = free > 0
            np.maximum(ratios, np.where(has, asked / np.where(has, free, 1.0), _NOTHING_LEFT), out=ratios)

        for axis in np.flatnonzero(self._sums):
            if axis != PODS:
                count(float(self._sums[axis]), state.free[axis])
        if self._shared_sum:
            count(self._shared_sum / 100.0, state.free[self._gpu_axes].sum(axis=0))
        return ratios
