"""Get, list and watch, with selectors, pages, revisions, and response formats.

A list in the plain form is a concatenation of stored bytes; only Tables, metadata-only answers and versions other than
the stored one decode objects.

Pages: a continue token holds the revision of the first page and the key to go on from. Later pages show the state of
that revision (`ObjectStorage.list_at`), so a list is consistent despite writes in between, and answers 410 when the
history no longer reaches back.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

import msgspec

from pykai.api.unstructured import JsonObject
from pykai.kube.clock import Clock
from pykai.kube.errors import Gone
from pykai.lab.apiserver import apierrors
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.kinds import METADATA_FIELDS
from pykai.lab.apiserver.negotiation import ResponseFormat
from pykai.lab.apiserver.printers import tables
from pykai.lab.apiserver.selectors import parse_field_selector, parse_label_selector
from pykai.lab.apiserver.storage import ObjectStorage, StoredObject, decode, encode
from pykai.lab.apiserver.watches import ResponseTransform, Watch

RecordFilter = Callable[[StoredObject], bool]


class ObjectReader:
    """Serves reads."""

    def __init__(self, storage: ObjectStorage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def record(self, call: Call) -> StoredObject:
        """One object, or 404."""
        record = self._storage.get(call.kind.store, call.key)
        if record is None:
            raise apierrors.not_found(call.kind.group, call.kind.plural, call.name)
        return record

    def encode_object(self, call: Call, form: ResponseFormat, record: StoredObject) -> bytes:
        """The bytes of one object in the requested format."""
        if form.kind == "Table":
            return encode(self._table(call, [record.raw], str(record.revision)))
        transform = _response_transform(call, form)
        return record.raw if transform is None else transform(record.raw)

    def matching_records(self, call: Call) -> list[StoredObject]:
        """All records that match the selectors of the query, now."""
        collection = self._storage.collection(call.kind.store)
        records = self._storage.list_at(collection, call.namespace, self._storage.revision)
        selects = _record_filter(call)
        return records if selects is None else [record for record in records if selects(record)]

    def list_page(self, call: Call, form: ResponseFormat) -> tuple[bytes, int]:
        """A page of objects, and the revision it shows."""
        query = call.query
        limit = _number(query.get("limit", ""), "limit")
        token = query.get("continue", "")
        revision, after = self._storage.revision, ""
        if token:
            if query.get("resourceVersion", "0") not in ("", "0"):
                raise apierrors.bad_request("specifying resource version is not allowed when using continue")
            revision, after = _parse_continue_token(token)
        else:
            revision = self._requested_revision(query)
        collection = self._storage.collection(call.kind.store)
        try:
            records = self._storage.list_at(collection, call.namespace, revision)
        except Gone:
            if not token:
                raise
            raise apierrors.expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a new"
                " list without the continue parameter."
            ) from None
        selects = _record_filter(call)
        if selects is not None:
            records = [record for record in records if selects(record)]
        if after:
            low, high = 0, len(records)
            while low < high:
                middle = (low + high) // 2
                if records[middle].key <= after:
                    low = middle + 1
                else:
                    high = middle
            records = records[low:]
        left = 0
        if limit and len(records) > limit:
            left = len(records) - limit
            records = records[:limit]
        return self.encode_list(call, form, records, revision, left), revision

    def encode_list(
        self, call: Call, form: ResponseFormat, records: list[StoredObject], revision: int, left: int = 0
    ) -> bytes:
        """The List object of these records."""
        metadata: JsonObject = {"resourceVersion": str(revision)}
        if left:
            metadata["continue"] = _continue_token(revision, records[-1].key)
            if not call.query.get("labelSelector") and not call.query.get("fieldSelector"):
                metadata["remainingItemCount"] = left
        if form.kind == "Table":
            table = self._table(call, [record.raw for record in records], str(revision))
            table["metadata"] = metadata
            return encode(table)
        kind = call.kind
        partial = form.kind.startswith("PartialObjectMetadata")
        head = {
            "kind": "PartialObjectMetadataList" if partial else kind.list_kind or f"{kind.kind}List",
            "apiVersion": "meta.k8s.io/v1" if partial else kind.api_version,
            "metadata": metadata,
        }
        transform = _response_transform(call, form)
        raws = [record.raw for record in records]
        if transform is not None:
            raws = [transform(raw) for raw in raws]
        elif not kind.is_custom:
            # The list has apiVersion and kind; like a real server, omit them from items of built-in kinds.
            said = encode({"kind": kind.kind, "apiVersion": kind.api_version})[:-1] + b","
            raws = [b"{" + raw.removeprefix(said) if raw.startswith(said) else raw for raw in raws]
        return b"".join((encode(head)[:-1], b',"items":[', b",".join(raws), b"]}"))

    def watch(self, call: Call, form: ResponseFormat) -> Watch:
        """A watch from the requested revision."""
        query = call.query
        initial_asked = query.get("sendInitialEvents")
        match = query.get("resourceVersionMatch", "")
        if initial_asked is not None and match != "NotOlderThan":
            cause = apierrors.forbidden_field(
                "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
            raise apierrors.invalid_options("ListOptions", cause)
        if initial_asked is None and match:
            cause = apierrors.forbidden_field(
                "resourceVersionMatch", "is forbidden for watch without sendInitialEvents"
            )
            raise apierrors.invalid_options("ListOptions", cause)
        version = query.get("resourceVersion", "")
        revision = _number(version, "resourceVersion")
        if revision > self._storage.revision:
            raise apierrors.too_large_revision(revision, self._storage.revision)
        transform = self._table_transform(call) if form.kind == "Table" else _response_transform(call, form)
        seconds = query.get("timeoutSeconds", "")
        bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        watch = Watch(
            self._storage,
            self._storage.collection(call.kind.store),
            namespace=call.namespace,
            record_filter=_record_filter(call),
            transform=transform,
            bookmarks=bookmarks,
            api_version=call.kind.api_version,
            kind=call.kind.kind,
            timeout_s=float(_number(seconds, "timeoutSeconds")) or None,
        )
        if initial_asked is not None:
            initial = initial_asked in ("true", "1")
        else:
            initial = version in ("", "0")
        ends_initial = initial_asked in ("true", "1") and bookmarks
        watch.begin(revision if version not in ("", "0") else None, initial=initial, ends_initial=ends_initial)
        return watch

    def _requested_revision(self, query: Any) -> int:
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        requested = _number(version, "resourceVersion")
        current = self._storage.revision
        if match not in ("", "Exact", "NotOlderThan"):
            raise apierrors.invalid_options(
                "ListOptions", apierrors.unsupported_value("resourceVersionMatch", match, "Exact", "NotOlderThan", "")
            )
        if match and not version:
            text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            raise apierrors.invalid_options("ListOptions", apierrors.forbidden_field("resourceVersionMatch", text))
        if requested > current:
            raise apierrors.too_large_revision(requested, current)
        if match == "Exact":
            if not requested:
                text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                raise apierrors.invalid_options("ListOptions", apierrors.forbidden_field("resourceVersionMatch", text))
            return requested
        return current

    def _table(self, call: Call, raws: list[bytes], version: str) -> JsonObject:
        include = call.query.get("includeObject", "Metadata")
        transform = _response_transform(call, ResponseFormat())
        items = [decode(raw if transform is None else transform(raw)) for raw in raws]
        kind = call.kind
        table = tables.make_table(
            kind.kind,
            kind.group,
            items,
            columns=kind.printer_columns or None,
            now=self._clock.now(),
            include_object=include,
        )
        table["metadata"] = {"resourceVersion": version}
        return table

    def _table_transform(self, call: Call) -> ResponseTransform:
        first = True

        def shape(raw: bytes) -> bytes:
            nonlocal first
            obj = decode(raw)
            version = str(obj["metadata"].get("resourceVersion", ""))
            # A bookmark has no name and makes a Table without rows.
            table = self._table(call, [raw] if "name" in obj["metadata"] else [], version)
            annotations = obj["metadata"].get("annotations")
            if not table["rows"] and annotations:
                table["metadata"]["annotations"] = annotations
            if not first:
                table["columnDefinitions"] = None
            first = False
            return encode(table)

        return shape


def _record_filter(call: Call) -> RecordFilter | None:
    kind, query = call.kind, call.query
    by_label = parse_label_selector(query["labelSelector"]) if query.get("labelSelector") else None
    by_field = None
    if query.get("fieldSelector"):
        by_field = parse_field_selector(query["fieldSelector"], (*METADATA_FIELDS, *kind.selectable_fields), kind.kind)
    if by_label is not None and by_field is not None:
        labels_match, fields_match = by_label, by_field
        return lambda record: labels_match(record.labels) and fields_match(record.fields)
    if by_label is not None:
        labels_match = by_label
        return lambda record: labels_match(record.labels)
    if by_field is not None:
        fields_match = by_field
        return lambda record: fields_match(record.fields)
    return None


def _response_transform(call: Call, form: ResponseFormat) -> ResponseTransform | None:
    """The function from stored bytes to this version and format; None if they are the same."""
    kind = call.kind
    if form.kind.startswith("PartialObjectMetadata"):

        def partial(raw: bytes) -> bytes:
            metadata = decode(raw)["metadata"]
            return encode({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})

        return partial
    if kind.storage_version and kind.storage_version != kind.version:
        api_version = kind.api_version

        def converted(raw: bytes) -> bytes:
            return encode({**decode(raw), "apiVersion": api_version})

        return converted
    return None


def _number(text: str, name: str) -> int:
    if not text:
        return 0
    if not text.isdecimal():
        raise apierrors.bad_request(f"{name}: Invalid value: {text!r}: must be a number of 0 or more")
    return int(text)


def _continue_token(revision: int, key: str) -> str:
    return base64.urlsafe_b64encode(encode({"v": "meta.k8s.io/v1", "rv": revision, "start": key})).decode().rstrip("=")


def _parse_continue_token(token: str) -> tuple[int, str]:
    try:
        decoded = decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(decoded["rv"]), str(decoded["start"])
    except (msgspec.DecodeError, binascii.Error, KeyError, TypeError, ValueError):
        raise apierrors.bad_request("continue key is not valid: it was not made by this server") from None
