"""Forms of bodies: what a request's bytes mean, and in which form its sender reads the answer.

Requests come as JSON, YAML or Kubernetes' protobuf; answers are JSON, in full, as a Table, or as metadata alone.

A body may be written to do harm.  All are limited to 3 MiB, as on a real server, and to 200 levels.  YAML can say much
in few bytes, and is read a hundred times as slowly as JSON: before anything is built of it, its events are counted,
with each alias for all that it stands for, so neither depth nor number nor size is a surprise.  Large bodies are read
in a thread of their own, one at a time, while the event loop goes on answering others.
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
#: largest body, as a real server has it
MAX_BODY: Final = 3 << 20

#: characters that a body of YAML may stand for, where each value counts as so many
_MAX_EXPANDED_SIZE: Final = 2 * MAX_BODY
_VALUE_SIZE: Final = 32

#: bytes from which on a body is read beside the event loop
_THREADED_READ_SIZE: Final = 64 << 10

#: levels of objects and lists in a body
_MAX_DEPTH: Final = 200

_YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


class _TextLoader(_YamlLoader):  # type: ignore[misc]
    """YAML as Kubernetes reads it: timestamps and numbers to the base of sixty (`1:30`) stay text."""

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """A number; a base-60 value that only an explicit tag makes one is refused: it takes too long to read."""
        if ":" in node.value:
            raise yaml.constructor.ConstructorError(None, None, f"{node.value[:40]!r} is no number", node.start_mark)
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
    """The first form in an Accept header that the server writes; 406 where there is none."""
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
    """Refuse YAML that is too deep, or stands for more than a body may hold; only counts, builds nothing."""
    size, aliases = 0, False
    #: where each open collection began, and its anchor
    opened: list[tuple[int, str | None]] = []
    #: anchor -> how much it stands for
    expanded_sizes: dict[str, int] = {}
    for event in yaml.parse(body, Loader=_YamlLoader):
        if isinstance(event, yaml.AliasEvent):
            aliases = True
            # One that is still open contains itself.
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


#: one body at a time, so that readers never take more than a share of the interpreter
_BODY_READER_POOL: Final = ThreadPoolExecutor(1, "pykai-body")


async def read_request_body(request: Request) -> Any:
    """The value that the body of a request holds; others are served while a large one is read."""
    body = request.body
    if body is None or len(body) < _THREADED_READ_SIZE:
        return read_body(body, request.content_type)
    return await asyncio.get_running_loop().run_in_executor(_BODY_READER_POOL, read_body, body, request.content_type)


def read_body(body: bytes | None, content_type: str) -> Any:
    """The value that a body holds."""
    if not body:
        return None
    value = _decode_body(body, content_type)
    if body.count(b"{") + body.count(b"[") > _MAX_DEPTH or body[:1] != b"{":
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Refuse what is nested so deeply that those who walk through it would not come to its end."""
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
            # Through JSON, so that what only YAML knows (keys that are numbers, binary) becomes what JSON knows.
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
