"""The plan of a gang on its PodGroup: which pods are about to be bound where.

Binding a gang is many writes, and a process can die between any two of them.  Before the first one the whole plan is
put into one annotation of the PodGroup; after the last it goes.  Whoever finds a plan there finishes it before other
work may take its places, or takes back what was bound if it cannot be finished.

The text is compact JSON, a list of `[pod, uid, node]`, with a fourth element where the pod goes through a BindRequest:
the spec of that request.  All pods are in the namespace of the group.  A plan too large for an annotation (the API
server admits 256 KiB for all of an object's annotations) is compressed, marked by its first letter.
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
from pykai.core.groups import Branch, Leaf

#: Characters of a plan that is not compressed, and of any plan: the annotations of a PodGroup share 256 KiB.
_PLAIN_LIMIT = 100_000
_LIMIT = 230_000
_COMPRESSED = "z"
#: A plan of this many bytes is nobody's plan; keeps a forged annotation from filling the memory.
_MOST_BYTES = 16_000_000


class PlanError(ValueError):
    """The annotation holds no plan that can be read, or the plan no annotation can hold."""


class Planned(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One pod of a plan."""

    pod: str
    uid: str
    node: str
    #: spec of the BindRequest it goes through, None = it is bound directly
    request: dict[str, Any] | None = None
    #: annotations of that BindRequest
    annotations: dict[str, str] = {}

    def spec(self) -> BindRequestSpec:
        """What the tables are told about the placement."""
        if self.request is None:
            return BindRequestSpec(pod_name=self.pod, selected_node=self.node)
        return msgspec.convert(self.request, BindRequestSpec)


_DECODER = msgspec.json.Decoder(list[Planned])


def encode_plan(entries: Iterable[Planned]) -> str:
    """The text of the annotation; raises PlanError when even the compressed plan is too large."""
    text = msgspec.json.encode([_listed(entry) for entry in entries])
    if len(text) <= _PLAIN_LIMIT:
        return text.decode()
    packed = _COMPRESSED + base64.b64encode(zlib.compress(text, 6)).decode()
    if len(packed) > _LIMIT:
        raise PlanError(f"the plan has {len(text)} bytes, {len(packed)} compressed; an annotation holds {_LIMIT}")
    return packed


def _listed(entry: Planned) -> list[Any]:
    place = [entry.pod, entry.uid, entry.node]
    return place if entry.request is None else [*place, entry.request, entry.annotations]


def decode_plan(text: str) -> list[Planned]:
    """The plan in an annotation; raises PlanError."""
    try:
        raw = text.encode()
        if text.startswith(_COMPRESSED):
            unpacking = zlib.decompressobj()
            raw = unpacking.decompress(base64.b64decode(raw[1:], validate=True), _MOST_BYTES)
            if unpacking.unconsumed_tail:
                raise PlanError(f"the plan has more than {_MOST_BYTES} bytes")
        entries = _DECODER.decode(raw)
        for entry in entries:
            if not (entry.pod and entry.uid and entry.node):
                raise PlanError("an entry lacks its pod, uid or node")
            spec = entry.spec()
            if (spec.pod_name, spec.selected_node) != (entry.pod, entry.node):
                raise PlanError(f"the BindRequest of pod {entry.pod} is for another pod or node")
    except (msgspec.DecodeError, binascii.Error, zlib.error, UnicodeError, RecursionError) as error:
        raise PlanError(f"not a plan: {error}") from None
    return entries


def whole(root: Branch, active: Mapping[str, int] | Counter[str]) -> bool:
    """Whether so many active pods by subgroup satisfy the minimums of a group (cycle:PG-5)."""
    return sum(_satisfied(child, active) for child in root.children) >= root.needed


def _satisfied(node: Branch | Leaf, active: Mapping[str, int]) -> bool:
    if isinstance(node, Leaf):
        return active.get(node.name, 0) >= node.minimum
    return sum(_satisfied(child, active) for child in node.children) >= node.needed
