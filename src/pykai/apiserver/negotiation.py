"""Forms of bodies: what a request's bytes mean, and in which form its sender reads the answer.

Requests come as JSON, YAML or Kubernetes' protobuf; answers are JSON, in full, as a Table, or as metadata alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
import yaml

from pykai.apiserver import protobuf
from pykai.apiserver.failures import bad_request, not_acceptable, unsupported_media_type

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
#: largest body, as a real server has it
MAX_BODY: Final = 3 << 20

#: characters that a body of YAML with aliases may stand for, where each value counts as so many
_MOST_MEANT: Final = 2 * MAX_BODY
_VALUE: Final = 32

#: levels of objects and lists in a body
_DEEPEST: Final = 200

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


class _TextLoader(_Loader):  # type: ignore[misc]
    """YAML whose timestamps stay text, as JSON would have them."""


_TextLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in _Loader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Form:
    """How an answer is written."""

    #: empty (as it is), Table, PartialObjectMetadata or PartialObjectMetadataList, APIGroupDiscoveryList
    kind: str = ""


_PLAIN: Final = Form()
_SUPPORTED: Final = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"})


@lru_cache(maxsize=256)
def accepted(header: str) -> Form:
    """The first form in an Accept header that the server writes; 406 where there is none."""
    if header in ("", "application/json", "*/*"):
        return _PLAIN
    for choice in header.split(","):
        media, *parameters = [part.strip() for part in choice.split(";")]
        options = dict(part.partition("=")[::2] for part in parameters)
        if media not in ("application/json", "*/*", "application/*", "text/plain"):
            continue
        wanted = options.get("as", "")
        if not wanted:
            return _PLAIN
        if wanted in _SUPPORTED and options.get("v", "v1") in ("v1", "v2"):
            return Form(wanted)
    raise not_acceptable(
        "only the following media types are accepted: application/json (this server writes no protobuf and no YAML)"
    )


def _within_reason(document: Any) -> Any:
    """The document, unless its aliases stand for more than a body may hold: a few lines can mean gigabytes."""
    size, waiting = 0, [document]
    while waiting:
        value = waiting.pop()
        size += _VALUE
        if isinstance(value, dict):
            waiting.extend(value.values())
            waiting.extend(value)
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, (str, bytes)):
            size += len(value)
        if size + len(waiting) * _VALUE > _MOST_MEANT:
            raise ValueError("its aliases stand for too much; write out what is needed")
    return document


def read_body(body: bytes | None, content_type: str) -> Any:
    """The value that a body holds."""
    if not body:
        return None
    value = _read(body, content_type)
    if body.count(b"{") + body.count(b"[") > _DEEPEST or body[:1] != b"{":
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Refuse what is nested so deeply that those who walk through it would not come to its end."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST + 1):
        level = [each for each in level if isinstance(each, (dict, list))]
        if not level:
            return
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    raise bad_request(f"the body is nested more than {_DEEPEST} levels deep")


def _read(body: bytes, content_type: str) -> Any:
    if len(body) > MAX_BODY:
        raise unsupported_media_type(f"the body is larger than {MAX_BODY} bytes")
    media = content_type.partition(";")[0].strip().lower()
    if media == PROTOBUF:
        try:
            return protobuf.decode(body)
        except ValueError as error:
            raise bad_request(f"the protobuf body cannot be read: {error}") from None
    if media in ("application/yaml", "application/apply-patch+yaml") and body[:1] not in (b"{", b"["):
        try:
            # Through JSON, so that what only YAML knows (keys that are numbers, binary) becomes what JSON knows.
            document = yaml.load(body, Loader=_TextLoader)
            return _decode_json(_encode_json(_within_reason(document) if b"*" in body else document))
        except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
            raise bad_request(f"the YAML body cannot be read: {error}") from None
    if media in ("", "*/*", "application/octet-stream", "text/plain") or media.endswith(("json", "yaml")):
        try:
            return _decode_json(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise bad_request(f"the JSON body cannot be read: {error}") from None
    raise unsupported_media_type(
        f"the body of the request was in an unknown format ({media}) - accepted media types include: application/json,"
        f" application/yaml, {PROTOBUF}"
    )
