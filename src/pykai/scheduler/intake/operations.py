"""The changes of the engine's tables, as the intake queues them and the engine's thread applies them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from pykai.api.core import Pod
from pykai.api.decode import WireObject
from pykai.api.keys import object_key, split_key
from pykai.core.cluster.tables import Tables
from pykai.core.model.problems import Problem
from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import FreeRoomOnly

log = logging.getLogger(__name__)


class ApplyObject(msgspec.Struct, frozen=True, gc=False):
    """Apply the present version of an object."""

    item: WireObject

    def apply(self, tables: Tables) -> None:
        """Change the tables."""
        tables.apply(self.item)

    @property
    def pod_key(self) -> str:
        """The pod that the change is about, "" for other kinds."""
        meta = self.item.metadata
        return object_key(meta.namespace, meta.name) if isinstance(self.item, Pod) else ""

    @property
    def subject(self) -> str:
        """What a problem with the change is reported on."""
        meta = self.item.metadata
        return "/".join(part for part in (type(self.item).__name__, meta.namespace, meta.name) if part)


class RemoveObject(msgspec.Struct, frozen=True, gc=False):
    """Remove a deleted object."""

    kind: str
    namespace: str
    name: str

    def apply(self, tables: Tables) -> None:
        """Change the tables."""
        tables.remove(self.kind, self.namespace, self.name)

    @property
    def pod_key(self) -> str:
        """The pod that the change is about, "" for other kinds."""
        return object_key(self.namespace, self.name) if self.kind == "Pod" else ""

    @property
    def subject(self) -> str:
        """What a problem with the change is reported on."""
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)


class AssumeStatus(msgspec.Struct, frozen=True, gc=False):
    """Assume a state of a pod that its object does not show; None ends that."""

    pod_key: str
    status: TaskStatus | None

    def apply(self, tables: Tables) -> None:
        """Change the tables."""
        tables.assume(self.pod_key, self.status)

    @property
    def subject(self) -> str:
        """What a problem with the change is reported on."""
        return f"Pod/{self.pod_key}"


class SetFreeRoomOnly(msgspec.Struct, frozen=True, gc=False):
    """Make a group free room only; None ends that."""

    group_key: str
    reason: FreeRoomOnly | None
    pod_key = ""

    def apply(self, tables: Tables) -> None:
        """Change the tables."""
        tables.set_free_room_only(self.group_key, self.reason)

    @property
    def subject(self) -> str:
        """What a problem with the change is reported on."""
        return f"PodGroup/{self.group_key}"


#: One change of the tables.
TableOperation = ApplyObject | RemoveObject | AssumeStatus | SetFreeRoomOnly


def remove_by_key(kind: str, key: str) -> RemoveObject:
    """The removal of an object with this namespace/name."""
    return RemoveObject(kind, *split_key(key))


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of a batch."""

    operations: int
    #: changes that could not be applied, which must not happen
    problems: tuple[Problem, ...] = ()


def apply_operations(tables: Tables, operations: Iterable[TableOperation]) -> ApplyResult:
    """Apply changes to the tables; runs in the engine's thread while nothing else touches the tables."""
    problems: list[Problem] = []
    count = 0
    for operation in operations:
        count += 1
        try:
            operation.apply(tables)
        except Exception as error:
            # One object that the tables cannot take must not keep out the changes behind it.
            log.exception("a change could not be taken in: %s", operation.subject)
            problems.append(Problem(operation.subject, "", f"{type(error).__name__}: {error}"))
    return ApplyResult(count, tuple(problems))
