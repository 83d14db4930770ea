"""A task to place, as rules see it."""

from __future__ import annotations

from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import Vector


class PlacementRequest:
    """One task to place: the argument of every placement hook."""

    __slots__ = ("gang", "leaf", "shape", "task", "vector")

    def __init__(self, task: Task, gang: Gang, leaf: LeafState, vector: Vector) -> None:
        self.task = task
        self.shape: Shape = task.shape
        self.gang = gang
        self.leaf = leaf
        self.vector = vector
