"""The plan of a gang as text: which pods are about to be bound where.

Binding a gang is many writes, and a process can die between any two of them.  The whole plan is kept in a record
(`records`) from before the first write until after the last.  The scheduler that takes over finishes the plan before
other work may take its places, as far as it is still valid (`core.resume`), or evicts what was bound if the plan cannot
be finished.

The text is compact JSON, a list of `[pod, uid, node]`.  All pods are in the namespace of the group.  Other fields of a
BindRequest are not kept: they would have to be decided again.  A large plan is compressed, marked by its first letter.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pykai.api.scheduling import BindRequestSpec
from pykai.core.model.groups import Branch, Leaf
from pykai.core.report.decisions import PlannedBind
from pykai.scheduler.dispatch.records import MAX_RECORD_CHARACTERS

#: Characters of a plan that is not compressed, and of any plan: the record holds a few names besides.
_PLAIN_LIMIT = 300_000
_LIMIT = MAX_RECORD_CHARACTERS - 1000
_COMPRESSED = "z"
#: No scheduler writes a plan of this many bytes; keeps a broken record from filling the memory.
_MAX_BYTES = 32_000_000


class BindPlanError(ValueError):
    """The text is not a readable plan, or the plan is too large for a record."""


class PendingBind(msgspec.Struct, frozen=True, gc=False):
    """One pod that is to be bound."""

    pod: str
    uid: str
    node: str
    #: spec of the BindRequest it goes through, None = it is bound directly
    request: dict[str, Any] | None = None
    #: annotations of that BindRequest
    annotations: dict[str, str] = {}

    def spec(self) -> BindRequestSpec:
        """The placement for the tables."""
        if self.request is None:
            return BindRequestSpec(pod_name=self.pod, selected_node=self.node)
        return msgspec.convert(self.request, BindRequestSpec)


_DECODER = msgspec.json.Decoder(list[tuple[str, str, str]])


def encode_plan(entries: Iterable[PendingBind]) -> str:
    """The text of a plan; raises BindPlanError if even the compressed plan is too large."""
    binds = [(entry.pod, entry.uid, entry.node) for entry in entries]
    text = msgspec.json.encode(binds)
    if len(text) <= _PLAIN_LIMIT:
        return text.decode()
    packed = _COMPRESSED + base64.b64encode(zlib.compress(text, 6)).decode()
    if len(packed) > _LIMIT:
        raise BindPlanError(
            f"the plan for {len(binds)} pods has {len(text)} bytes, {len(packed)} compressed; a record "
            f"holds {_LIMIT}; split the PodGroup"
        )
    return packed


def decode_plan(text: str) -> list[PlannedBind]:
    """The plan in a text; raises BindPlanError."""
    try:
        raw = text.encode()
        if text.startswith(_COMPRESSED):
            unpacking = zlib.decompressobj()
            raw = unpacking.decompress(base64.b64decode(raw[1:], validate=True), _MAX_BYTES)
            if unpacking.unconsumed_tail:
                raise BindPlanError(f"the plan has more than {_MAX_BYTES} bytes")
        places = [PlannedBind(*each) for each in _DECODER.decode(raw)]
    except (msgspec.DecodeError, binascii.Error, zlib.error, UnicodeError, RecursionError) as error:
        raise BindPlanError(f"not a plan: {error}") from None
    if not all(all(place) for place in places):
        raise BindPlanError("an entry lacks its pod, uid or node")
    if len({place.pod for place in places}) < len(places):
        raise BindPlanError("a pod is planned twice")
    return places


def has_minimum(root: Branch, active: Mapping[str, int] | Counter[str]) -> bool:
    """Whether so many active pods by subgroup satisfy the minimums of a group (cycle:PG-5)."""
    return sum(_is_satisfied(child, active) for child in root.children) >= root.min_children


def _is_satisfied(node: Branch | Leaf, active: Mapping[str, int]) -> bool:
    if isinstance(node, Leaf):
        return active.get(node.name, 0) >= node.minimum
    return sum(_is_satisfied(child, active) for child in node.children) >= node.min_children
