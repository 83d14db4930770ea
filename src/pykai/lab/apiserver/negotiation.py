"""Content negotiation: decoding of request bodies, and the format of responses.

Requests come as JSON, YAML or Kubernetes' protobuf; answers are JSON, in full, as a Table, or as metadata alone.

Bodies may be hostile. All are limited to 3 MiB, as on a real server, and to 200 levels. YAML expands aliases and is a
hundred times slower to read than JSON, so its events are counted first, with each alias at its expanded size. Large
bodies are read in a separate thread, one at a time, while the event loop serves other requests.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
import yaml

from pykai.kube.transport import Request
from pykai.lab.apiserver import protobuf
from pykai.lab.apiserver.apierrors import bad_request, not_acceptable, too_large, unsupported_media_type

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
#: largest body, as on a real server
MAX_BODY: Final = 3 << 20

#: expanded size of a YAML body in characters, and what each value counts for
_MAX_EXPANDED_SIZE: Final = 2 * MAX_BODY
_VALUE_SIZE: Final = 32

#: size from which a body is read in a thread
_THREADED_READ_SIZE: Final = 64 << 10

#: levels of objects and lists in a body
_MAX_DEPTH: Final = 200

_YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


class _TextLoader(_YamlLoader):  # type: ignore[misc]  # the C loader has no type
    """YAML as Kubernetes reads it: timestamps and numbers to the base of sixty (`1:30`) stay text."""

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """A number; an explicitly tagged base-60 value is refused, since it takes too long to read."""
        if ":" in node.value:
            raise yaml.constructor.ConstructorError(None, None, f"{node.value[:40]!r} is not a number", node.start_mark)
        if node.tag == _INT:
            return self.construct_yaml_int(node)
        return self.construct_yaml_float(node)


_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_EXCLUDED_TAGS: Final = (_INT, _FLOAT, "tag:yaml.org,2002:timestamp")
_TextLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag not in _EXCLUDED_TAGS]
    for letter, resolvers in _YamlLoader.yaml_implicit_resolvers.items()
}
# As the YAML library of Kubernetes has them; the first that matches counts.
_TextLoader.add_implicit_resolver(
    _INT,
    re.compile(r"[-+]?(?:0b[0-1_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z"),
    list("-+0123456789"),
)
_TextLoader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"
        r"|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
    ),
    list("-+0123456789."),
)
for _tag in (_INT, _FLOAT):
    _TextLoader.add_constructor(_tag, _TextLoader.construct_number)


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """How an answer is written."""

    #: empty (as it is), Table, PartialObjectMetadata or PartialObjectMetadataList, APIGroupDiscoveryList
    kind: str = ""


_UNCHANGED: Final = ResponseFormat()
_SUPPORTED: Final = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"})


@lru_cache(maxsize=256)
def response_format(header: str) -> ResponseFormat:
    """The first format in an Accept header that the server writes; 406 if there is none."""
    if header in ("", "application/json", "*/*"):
        return _UNCHANGED
    for choice in header.split(","):
        media, *parameters = [part.strip() for part in choice.split(";")]
        options = dict(part.partition("=")[::2] for part in parameters)
        if media not in ("application/json", "*/*", "application/*", "text/plain"):
            continue
        wanted = options.get("as", "")
        if not wanted:
            return _UNCHANGED
        if wanted in _SUPPORTED and options.get("v", "v1") in ("v1", "v2"):
            return ResponseFormat(wanted)
    raise not_acceptable(
        "only the following media types are accepted: application/json (this server writes no protobuf and no YAML)"
    )


def _check_yaml(body: bytes) -> None:
    """Refuse YAML that is too deep or expands too far; only counts events."""
    size, aliases = 0, False
    #: where each open collection began, and its anchor
    opened: list[tuple[int, str | None]] = []
    #: anchor -> its expanded size
    expanded_sizes: dict[str, int] = {}
    for event in yaml.parse(body, Loader=_YamlLoader):
        if isinstance(event, yaml.AliasEvent):
            aliases = True
            # An anchor that is still open contains itself.
            size += expanded_sizes.get(event.anchor or "", _MAX_EXPANDED_SIZE)
        elif isinstance(event, yaml.ScalarEvent):
            scalar_size = _VALUE_SIZE + len(event.value)
            size += scalar_size
            if event.anchor is not None:
                expanded_sizes[event.anchor] = scalar_size
        elif isinstance(event, yaml.CollectionStartEvent):
            if event.anchor is not None:
                expanded_sizes.pop(event.anchor, None)
            opened.append((size, event.anchor))
            size += _VALUE_SIZE
            if len(opened) > _MAX_DEPTH:
                raise bad_request(f"the body is nested more than {_MAX_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            began, anchor = opened.pop()
            if anchor is not None:
                expanded_sizes[anchor] = size - began
        if size > _MAX_EXPANDED_SIZE:
            if aliases:
                raise ValueError("its aliases stand for too much; write out what is needed")
            raise too_large("the YAML body holds too many values; send it as JSON")


#: one body at a time, to limit the share of the interpreter
_BODY_READER_POOL: Final = ThreadPoolExecutor(1, "pykai-body")


async def read_request_body(request: Request) -> Any:
    """The decoded body of a request; other requests are served while a large one is read."""
    body = request.body
    if body is None or len(body) < _THREADED_READ_SIZE:
        return read_body(body, request.content_type)
    return await asyncio.get_running_loop().run_in_executor(_BODY_READER_POOL, read_body, body, request.content_type)


def read_body(body: bytes | None, content_type: str) -> Any:
    """The decoded body."""
    if not body:
        return None
    value = _decode_body(body, content_type)
    if body.count(b"{") + body.count(b"[") > _MAX_DEPTH or body[:1] != b"{":
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Refuse nesting that would exhaust the stack of recursive functions."""
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH + 1):
        level = [each for each in level if isinstance(each, (dict, list))]
        if not level:
            return
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    raise bad_request(f"the body is nested more than {_MAX_DEPTH} levels deep")


def _decode_body(body: bytes, content_type: str) -> Any:
    if len(body) > MAX_BODY:
        raise too_large(f"the body is larger than {MAX_BODY} bytes")
    media = content_type.partition(";")[0].strip().lower()
    if media == PROTOBUF:
        try:
            return protobuf.decode(body)
        except ValueError as error:
            raise bad_request(f"the protobuf body cannot be read: {error}") from None
    if media in ("application/yaml", "application/apply-patch+yaml") and body[:1] not in (b"{", b"["):
        try:
            _check_yaml(body)
            # Through JSON, so that types that only YAML has (number keys, binary) become JSON types.
            return _decode_json(_encode_json(yaml.load(body, Loader=_TextLoader)))
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
