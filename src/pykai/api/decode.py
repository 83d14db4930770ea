"""From JSON, or from parsed YAML, to wire types; a bad object gives an error that says what to fix.

`decode_object` takes any object and picks the type by kind and API group; `decode_as` is for callers that know the
type, as items of a list carry neither. `decode_each` and `decode_list` do the same for many and return the bad ones
separately, so that one unreadable object never hides the others.

The usual object passes through one msgspec decoder and nothing else. One that the decoder refuses is read again into
plain dicts and walked by `nulls`, which replaces nulls as Go does and names the exact field if it is still wrong.
Claims and slices of resource.k8s.io/v1beta1 are rewritten to the shape of v1 first.

Subtle: the kind alone does not determine the type. `PodGroup` and `Topology` exist in several API groups with other
fields, so an object of a foreign group is an `UnknownKind`, not a broken object. Versions within a group are not
distinguished. Quantities, durations and timestamps inside objects are not read here; their readers raise their own
errors.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

import msgspec

from pykai.api import names
from pykai.api.core import ConfigMap, Namespace, Node, Pod, PriorityClass
from pykai.api.disruption import PodDisruptionBudget
from pykai.api.meta import Wire
from pykai.api.nulls import FieldError, describe_value, replace_nulls
from pykai.api.numa import NodeResourceTopology
from pykai.api.resource import DeviceClass, ResourceClaim, ResourceSlice, upgrade_v1beta1
from pykai.api.scheduling import BindRequest, PodGroup, Queue
from pykai.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from pykai.api.topology import Topology

#: Any object that `decode_object` returns.
WireObject = (
    Node
    | Pod
    | PriorityClass
    | ConfigMap
    | Namespace
    | Queue
    | PodGroup
    | BindRequest
    | Topology
    | ResourceClaim
    | ResourceSlice
    | DeviceClass
    | NodeResourceTopology
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSIDriver
    | CSINode
    | CSIStorageCapacity
    | PodDisruptionBudget
)

#: Kind to type.
KINDS: dict[str, type[WireObject]] = {
    "Node": Node,
    "Pod": Pod,
    "PriorityClass": PriorityClass,
    "ConfigMap": ConfigMap,
    "Namespace": Namespace,
    "Queue": Queue,
    "PodGroup": PodGroup,
    "BindRequest": BindRequest,
    "Topology": Topology,
    "ResourceClaim": ResourceClaim,
    "ResourceSlice": ResourceSlice,
    "DeviceClass": DeviceClass,
    "NodeResourceTopology": NodeResourceTopology,
    "PersistentVolume": PersistentVolume,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "StorageClass": StorageClass,
    "CSIDriver": CSIDriver,
    "CSINode": CSINode,
    "CSIStorageCapacity": CSIStorageCapacity,
    "PodDisruptionBudget": PodDisruptionBudget,
}

#: Kind to the API group in which it is read; the core group is the empty text.
API_GROUPS: dict[str, str] = {
    "Node": "",
    "Pod": "",
    "PriorityClass": names.PRIORITY_GROUP,
    "ConfigMap": "",
    "Namespace": "",
    "Queue": names.SCHEDULING_GROUP,
    "PodGroup": names.SCHEDULING_GROUP,
    "BindRequest": names.SCHEDULING_GROUP,
    "Topology": names.KAI_GROUP,
    "ResourceClaim": names.DRA_GROUP,
    "ResourceSlice": names.DRA_GROUP,
    "DeviceClass": names.DRA_GROUP,
    "NodeResourceTopology": names.NUMA_GROUP,
    "PersistentVolume": "",
    "PersistentVolumeClaim": "",
    "StorageClass": names.STORAGE_GROUP,
    "CSIDriver": names.STORAGE_GROUP,
    "CSINode": names.STORAGE_GROUP,
    "CSIStorageCapacity": names.STORAGE_GROUP,
    "PodDisruptionBudget": names.POLICY_GROUP,
}

#: JSON, or a document already parsed.
EncodedObject = bytes | msgspec.Raw | dict[str, Any]

_V1BETA1 = f"{names.DRA_GROUP}/v1beta1"
_T = TypeVar("_T", bound=Wire)


class DecodeError(ValueError):
    """An object cannot be read: `subject` names it, `path` the field (empty for all of it), `problem` says why.

    `uid` is the object's, where its reader found it: events without it are not shown by `kubectl describe`.  So is
    `resource_version`.
    """

    def __init__(self, subject: str, path: str, problem: str) -> None:
        self.subject = subject
        self.path = path
        self.problem = problem
        self.uid = ""
        self.resource_version = ""
        super().__init__(": ".join(part for part in (subject, path, problem) if part))


class UnknownKind(DecodeError):
    """The object may be valid, but we read no objects of its kind and API group."""


class _Header(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""


_HEADER = msgspec.json.Decoder(_Header)
_ANYTHING = msgspec.json.Decoder()


def decode_object(data: EncodedObject) -> WireObject:
    """The object, typed by its kind and API group; raises `DecodeError`, of which `UnknownKind` is one."""
    kind, api_version = _header(data)
    group, slash, _ = api_version.partition("/")
    wire_type = KINDS.get(kind)
    if wire_type is None or API_GROUPS[kind] != (group if slash else ""):
        foreign = f"{kind or 'an object without kind'} of {api_version or 'no apiVersion'}"
        raise UnknownKind(_subject(_parsed_or_none(data), kind), "", f"{foreign} is not a kind that is read here")
    return decode_as(wire_type, data, api_version)


def decode_as(wire_type: type[_T], data: EncodedObject, api_version: str = "") -> _T:
    """The object as this type, whatever its kind says; an item of a list takes `api_version` from its list."""
    kind = wire_type.__name__
    if not isinstance(data, dict) and api_version != _V1BETA1:
        try:
            decoded: _T = _decoder(wire_type).decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return decoded
    document = data if isinstance(data, dict) else _parsed(data, kind)
    if api_version == _V1BETA1 and isinstance(document, dict):
        document = upgrade_v1beta1(document)
    try:
        return msgspec.convert(document, wire_type)
    except msgspec.ValidationError:
        pass
    try:
        return msgspec.convert(replace_nulls(document, wire_type), wire_type)
    except FieldError as error:
        raise DecodeError(_subject(document, kind), error.path, error.problem) from None
    except msgspec.ValidationError as error:
        raise DecodeError(_subject(document, kind), "", str(error)) from None


def decode_each(items: Iterable[EncodedObject]) -> tuple[list[WireObject], list[DecodeError]]:
    """The objects that can be read, in order, and what is wrong with the others."""
    objects: list[WireObject] = []
    problems: list[DecodeError] = []
    for item in items:
        try:
            objects.append(decode_object(item))
        except DecodeError as problem:
            problems.append(problem)
    return objects, problems


def decode_list(
    wire_type: type[_T], items: Iterable[EncodedObject], api_version: str = ""
) -> tuple[list[_T], list[DecodeError]]:
    """Items of one kind that can be read, in order, and what is wrong with the others."""
    objects: list[_T] = []
    problems: list[DecodeError] = []
    for item in items:
        try:
            objects.append(decode_as(wire_type, item, api_version))
        except DecodeError as problem:
            problems.append(problem)
    return objects, problems


@cache
def _decoder(wire_type: type[_T]) -> msgspec.json.Decoder[_T]:
    return msgspec.json.Decoder(wire_type)


def _header(data: EncodedObject) -> tuple[str, str]:
    if not isinstance(data, dict):
        try:
            header = _HEADER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return header.kind, header.api_version
    document = data if isinstance(data, dict) else _parsed(data, "")
    if not isinstance(document, dict):
        raise DecodeError(_subject(document, ""), "", "expected a JSON object")
    return _header_text(document, "kind"), _header_text(document, "apiVersion")


def _header_text(document: dict[str, Any], path: str) -> str:
    value = document.get(path)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DecodeError(_subject(document, ""), path, f"expected text, got {describe_value(value)}")
    return value


def _parsed(data: bytes | msgspec.Raw, kind: str) -> Any:
    subject = _subject(None, kind)
    try:
        return _ANYTHING.decode(data)
    except msgspec.DecodeError as error:
        raise DecodeError(subject, "", f"not JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise DecodeError(subject, "", f"not UTF-8: {error.reason}") from None
    except RecursionError:
        raise DecodeError(subject, "", "nested too deeply") from None


def _parsed_or_none(data: EncodedObject) -> Any:
    if isinstance(data, dict):
        return data
    try:
        return _parsed(data, "")
    except DecodeError:
        return None


def _subject(document: object, kind: str) -> str:
    """`Pod ns/name` as far as it can be read; this serves errors, so it must accept anything."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict):
        metadata = {}
    parts = [part for key in ("namespace", "name") if isinstance(part := metadata.get(key), str) and part]
    return f"{kind or 'object'} {'/'.join(parts) or 'without a readable name'}"
