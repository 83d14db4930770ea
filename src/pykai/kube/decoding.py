"""From the bytes of an API server to objects and their identities.

A `ResourceDecoder` belongs to one resource and one type: a wire type, or `dict` for callers that need everything.  It
decodes straight from JSON into that type.  An unreadable object still has an identity as far as possible, so that a
cache knows which object became unreadable.

Subtle: resource versions are opaque to clients by contract, and decimal numbers in practice.  They are compared as
numbers where both are; otherwise `is_newer` returns None and rules that need a result do not apply.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from pykai.api.decode import DecodeError, decode_as
from pykai.api.keys import object_key
from pykai.api.meta import ObjectMeta, Wire
from pykai.kube.resources import Resource

T = TypeVar("T")

_JSON_DECODER = msgspec.json.Decoder()


class ObjectIdentity(NamedTuple):
    """Which object, and which version of it; fields that could not be read are empty."""

    key: str
    uid: str
    resource_version: str


class _IdentityMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class _IdentityDocument(msgspec.Struct):
    metadata: _IdentityMetadata | None = None


_IDENTITY_DECODER = msgspec.json.Decoder(_IdentityDocument)


class PartialObjectMetadata(Wire):
    """An object of which only the metadata was asked for."""

    metadata: ObjectMeta


class ResourceDecoder(Generic[T]):
    """Decodes the objects of one resource into one type."""

    def __init__(self, resource: Resource, into: type[T]) -> None:
        self.resource = resource
        self.into = into
        self._untyped = into is dict

    def decode(self, raw: bytes | msgspec.Raw) -> T:
        """The object; raises `DecodeError`, which names object and field."""
        if not self._untyped:
            return cast(T, decode_as(cast("type[Wire]", self.into), raw, self.resource.api_version))
        try:
            document = _JSON_DECODER.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DecodeError(f"{self.resource.kind} without a readable name", "", f"not JSON: {error}") from None
        if not isinstance(document, dict):
            raise DecodeError(f"{self.resource.kind} without a readable name", "", "expected a JSON object")
        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise DecodeError(f"{self.resource.kind} without a readable name", "metadata.name", "expected text")
        return cast(T, document)

    def identity(self, obj: T) -> ObjectIdentity:
        """Key, uid and resource version of an object."""
        if self._untyped:
            metadata = cast("dict[str, Any]", obj)["metadata"]
            return ObjectIdentity(
                self.resource.key(metadata.get("namespace") or "", metadata["name"]),
                metadata.get("uid") or "",
                metadata.get("resourceVersion") or "",
            )
        meta = cast(Any, obj).metadata
        key = object_key(meta.namespace, meta.name) if self.resource.namespaced else meta.name
        return ObjectIdentity(key, meta.uid, meta.resource_version)

    def raw_identity(self, raw: bytes | msgspec.Raw) -> ObjectIdentity:
        """Of an object that may be unreadable otherwise; an empty key where not even that can be read."""
        try:
            head = _IDENTITY_DECODER.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._identity_of_unreadable(raw)
        metadata = head.metadata or _IdentityMetadata()
        key = self.resource.key(metadata.namespace or "", metadata.name) if metadata.name else ""
        return ObjectIdentity(key, metadata.uid or "", metadata.resource_version or "")

    def _identity_of_unreadable(self, raw: bytes | msgspec.Raw) -> ObjectIdentity:
        try:
            document = _JSON_DECODER.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ObjectIdentity("", "", "")
        metadata = document.get("metadata") if isinstance(document, dict) else None
        if not isinstance(metadata, dict):
            return ObjectIdentity("", "", "")

        def text(field: str) -> str:
            value = metadata.get(field)
            return value if isinstance(value, str) else ""

        key = self.resource.key(text("namespace"), text("name")) if text("name") else ""
        return ObjectIdentity(key, text("uid"), text("resourceVersion"))


def is_newer(version: str, than: str) -> bool | None:
    """Whether a resource version comes after another; None where they cannot be compared."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return None
