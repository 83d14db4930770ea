"""One attempt to carry out a BindRequest, as its plugins see it.

A plugin prepares one thing that the pod needs on its node (volumes, devices of claims, ConfigMaps) and can undo it.
Plugins are idempotent both ways: an attempt may resume where an earlier process stopped at any write, and undoing
something that was never done, or only half done, is no error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import BindRequest
from pykai.binder.reservation import ReservedGpu


@dataclass(slots=True)
class BindAttempt:
    """What an attempt works on; only `reserved` changes on the way."""

    request: BindRequest
    #: the request with all its fields, where allocations go to claims unpruned; else an empty spec
    raw_request: dict[str, Any]
    pod: Pod
    node: Node
    #: one a GPU group, in the request's order
    reserved: list[ReservedGpu] = field(default_factory=list)

    @property
    def key(self) -> str:
        """`namespace/name` of the pod."""
        return object_key(self.pod.metadata.namespace, self.pod.metadata.name)

    @property
    def is_shared(self) -> bool:
        """Whether the pod gets parts of GPUs."""
        return self.request.spec.received_resource_type == names.RECEIVED_FRACTION

    @property
    def groups(self) -> list[str]:
        """The GPU groups the pod is to join, each once."""
        return list(dict.fromkeys(self.request.spec.selected_gpu_groups)) if self.is_shared else []


class BinderPlugin(Protocol):
    """A binder plugin."""

    @property
    def name(self) -> str:
        """As in `--plugins`."""
        ...

    async def pre_bind(self, attempt: BindAttempt) -> None:
        """Do what must be done before the pod is bound; raises `BindFailure` when it cannot be."""
        ...

    async def rollback(self, attempt: BindAttempt) -> None:
        """Undo it."""
        ...
