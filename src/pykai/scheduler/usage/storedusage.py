"""The recorded usage of queues as bytes, for the ConfigMap of a shard (usage:stored, usage:bounds); pure.

JSON in gzip: the names of the queues once, then one row a span with its begin and end in milliseconds since 1970, the
area of the capacity, and four numbers for each queue that held something: its index, CPU, memory and GPUs, in amounts
times seconds with five digits.

Only the scheduler writes it, but a person may: what is read is checked, unpacked no further than a limit, and spans of
the future are dropped.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from math import isfinite

import msgspec

from pykai.api.duration import MILLISECOND
from pykai.core.queueing.usagehistory import UsageAmounts, UsageSpan, compacted

#: bytes of a ConfigMap, of which the API server admits 1 MiB with its base64
MAX_BYTES = 256 << 10
_MAX_UNPACKED_BYTES = 32 << 20
_VERSION = 1


class StoredUsageError(ValueError):
    """The bytes are not recorded usage; the text says what is wrong."""


class _Row(msgspec.Struct, array_like=True):
    begin_ms: int
    end_ms: int
    capacity: UsageAmounts
    #: index of a queue, CPU, memory, GPUs, and so on
    allocated: list[float]


class _Document(msgspec.Struct):
    version: int
    queues: list[str]
    spans: list[_Row]


def encode_usage(spans: Sequence[UsageSpan]) -> bytes:
    """Spans as bytes; equal spans give equal bytes."""
    queues = sorted({queue for span in spans for queue in span.allocated})
    index = {queue: at for at, queue in enumerate(queues)}
    rows = [
        _Row(
            span.begin_ns // MILLISECOND,
            span.end_ns // MILLISECOND,
            (_short(span.capacity[0]), _short(span.capacity[1]), _short(span.capacity[2])),
            [
                number
                for queue in sorted(span.allocated)
                for number in (index[queue], *map(_short, span.allocated[queue]))
            ],
        )
        for span in spans
        if span.begin_ns // MILLISECOND < span.end_ns // MILLISECOND
    ]
    return gzip.compress(msgspec.json.encode(_Document(_VERSION, queues, rows)), compresslevel=6, mtime=0)


def _short(number: float) -> float:
    rounded = float(f"{number:.5g}")
    return int(rounded) if rounded.is_integer() else rounded


def encode_within(
    spans: Sequence[UsageSpan], now_ns: int, fineness: int, max_bytes: int = MAX_BYTES
) -> tuple[bytes, int]:
    """Spans as bytes within a limit, and the fineness this took; 0 means that the oldest were dropped as well."""
    while True:
        encoded = encode_usage(spans)
        if len(encoded) <= max_bytes or not spans:
            return encoded, fineness
        fineness //= 2
        spans = compacted(spans, now_ns, fineness) if fineness else spans[(len(spans) + 1) // 2 :]


def decode_usage(data: bytes, now_ns: int) -> list[UsageSpan]:
    """The spans until now; raises `StoredUsageError`."""
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(data, _MAX_UNPACKED_BYTES)
        if not unpacker.eof:
            raise StoredUsageError(f"it is cut off, or unpacks to more than {_MAX_UNPACKED_BYTES >> 20} MiB")
        document = msgspec.json.decode(text, type=_Document)
    except zlib.error as error:
        raise StoredUsageError(f"it is not gzip: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoredUsageError(str(error)) from None
    if document.version != _VERSION:
        raise StoredUsageError(f"it has version {document.version}; this scheduler reads version {_VERSION}")
    spans: list[UsageSpan] = []
    earliest_ns = 0
    for at, row in enumerate(document.spans):
        span = _read_row(row, document.queues, f"spans[{at}]")
        if not earliest_ns <= span.begin_ns < span.end_ns:
            raise StoredUsageError(f"spans[{at}] begins before the one before it ends, or ends before it begins")
        earliest_ns = span.end_ns
        spans.append(span)
    return [span for span in spans if span.end_ns <= now_ns]


def _read_row(row: _Row, queues: Sequence[str], path: str) -> UsageSpan:
    numbers = row.allocated
    if len(numbers) % 4 or not all(isfinite(number) and number >= 0 for number in (*row.capacity, *numbers)):
        raise StoredUsageError(f"{path} holds an amount that is none")
    allocated: dict[str, UsageAmounts] = {}
    for at in range(0, len(numbers), 4):
        number = numbers[at]
        if number >= len(queues) or number != int(number):
            raise StoredUsageError(f"{path} names queue {number}; there are {len(queues)}")
        allocated[queues[int(number)]] = (numbers[at + 1], numbers[at + 2], numbers[at + 3])
    return UsageSpan(row.begin_ms * MILLISECOND, row.end_ms * MILLISECOND, row.capacity, allocated)
