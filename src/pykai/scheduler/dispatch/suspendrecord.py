"""What is kept of a suspended workload: its owner, since when, and its pods (suspend:record).

The record is written before the owner is touched, and deleted when the pods are back.  It is in the scheduler's
namespace, where tenants do not write; the annotation that the owner carries must agree with it.

Pods are kept as distinct templates with their number: labels, annotations and spec, as far as the engine reads them.
The text is compressed JSON.
"""

from __future__ import annotations

import base64
import binascii
import enum
import zlib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Pod, PodSpec, PodStatus
from pykai.api.keys import object_key, split_key
from pykai.api.meta import ObjectMeta
from pykai.scheduler.dispatch.records import MAX_RECORD_CHARACTERS
from pykai.scheduler.intake.placeholderpods import PLACEHOLDER_PREFIX

#: Characters of the text; the record holds a few names besides.
_LIMIT = MAX_RECORD_CHARACTERS - 10_000
#: No scheduler writes a text of this many bytes; keeps a broken record from filling the memory.
_MAX_BYTES = 64_000_000
#: the field of a record
_DATA = "workload"
_TOKEN_VOLUME = "kube-api-access-"
_CAME_WITH_NODE = frozenset(
    (names.GPU_GROUP_LABEL, names.RECEIVED_TYPE_ANNOTATION, names.ADMITTED_TIMESTAMP_ANNOTATION)
)


class SuspendRecordError(ValueError):
    """The record cannot be read, or does not fit into a ConfigMap."""


class SuspendState(enum.Enum):
    """How far a suspension is."""

    #: the owner is being suspended, and its pods leave
    SUSPENDING = "suspending"
    #: placeholders wait in place of the pods
    SUSPENDED = "suspended"
    #: placeholders hold the room, and the owner creates its pods
    RESUMING = "resuming"


class WorkloadOwner(msgspec.Struct, frozen=True):
    """The object that is suspended; in the namespace of the group."""

    api_version: str
    kind: str
    name: str
    uid: str


class PodTemplate(msgspec.Struct, frozen=True):
    """Equal pods: what the engine reads of them."""

    count: int
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: PodSpec


class SuspendRecord(msgspec.Struct, frozen=True):
    """What the next scheduler has to know."""

    owner: WorkloadOwner
    #: when it was suspended (RFC 3339)
    since: str
    templates: tuple[PodTemplate, ...]
    state: SuspendState = SuspendState.SUSPENDED
    #: uids of the pods that leave
    leaving: tuple[str, ...] = ()
    #: while it is resumed: name of a placeholder -> its node
    nodes: dict[str, str] = {}
    #: until when they hold their nodes, in nanoseconds
    held_until_ns: int = 0

    def mark(self, group_uid: str) -> str:
        """The annotation on the owner."""
        return f"{group_uid}/{self.since}"

    def encode(self) -> dict[str, str]:
        """The data of the record; raises SuspendRecordError if it is too large."""
        text = base64.b64encode(zlib.compress(msgspec.json.encode(self), 6)).decode()
        if len(text) > _LIMIT:
            pods = sum(template.count for template in self.templates)
            raise SuspendRecordError(f"{pods} pods need a record of {len(text)} bytes; a ConfigMap holds {_LIMIT}")
        return {_DATA: text, "owner": f"{self.owner.kind}/{self.owner.name}", "state": self.state.value}

    def placeholders(self, group: str, group_uid: str) -> list[Pod]:
        """A placeholder for each pod; the same names at every call."""
        namespace, _ = split_key(group)
        found: list[Pod] = []
        for template in self.templates:
            for _ in range(template.count):
                name = f"{PLACEHOLDER_PREFIX}{group_uid}:{len(found)}"
                meta = ObjectMeta(
                    name=name,
                    namespace=namespace,
                    uid=name,
                    labels=template.labels,
                    annotations=template.annotations,
                    creation_timestamp=self.since,
                )
                found.append(Pod(metadata=meta, spec=template.spec, status=PodStatus(phase="Pending")))
        return found


def templates_of(pods: Iterable[Pod]) -> tuple[PodTemplate, ...]:
    """The distinct templates of pods, in the order of the first pod of each."""
    numbers: dict[bytes, int] = {}
    templates: dict[bytes, PodTemplate] = {}
    for pod in sorted(pods, key=lambda each: each.metadata.name):
        # The volume of the token of its account has another name in each pod.
        volumes = tuple(volume for volume in pod.spec.volumes if not volume.name.startswith(_TOKEN_VOLUME))
        spec = replace(pod.spec, node_name="", scheduling_gates=(), volumes=volumes)
        labels, annotations = _without_node(pod.metadata.labels), _without_node(pod.metadata.annotations)
        template = PodTemplate(1, labels, annotations, spec)
        text = msgspec.json.encode(template, order="sorted")
        templates.setdefault(text, template)
        numbers[text] = numbers.get(text, 0) + 1
    return tuple(replace(template, count=numbers[text]) for text, template in templates.items())


def _without_node(values: Mapping[str, str]) -> dict[str, str]:
    """Labels or annotations without those that came with the node."""
    return {
        key: text
        for key, text in values.items()
        if key not in _CAME_WITH_NODE and not key.startswith(names.GPU_GROUP_LABEL_PREFIX)
    }


def decode_record(data: Mapping[str, str]) -> SuspendRecord:
    """The record in a ConfigMap; raises SuspendRecordError."""
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(base64.b64decode(data.get(_DATA, "").encode(), validate=True), _MAX_BYTES)
        if unpacking.unconsumed_tail:
            raise SuspendRecordError(f"the record has more than {_MAX_BYTES} bytes")
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, binascii.Error, zlib.error, UnicodeError, RecursionError) as error:
        raise SuspendRecordError(f"not a record of a suspended workload: {error}") from None


_DECODER = msgspec.json.Decoder(SuspendRecord)


def placeholder_key(group: str, name: str) -> str:
    """The key of a placeholder of a group."""
    return object_key(split_key(group)[0], name)
