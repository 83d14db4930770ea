"""Recorded usage as bytes: it comes back as it was, has a limit, and nothing bad is believed (usage:stored)."""

from __future__ import annotations

import gzip
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.duration import DAY, HOUR, MILLISECOND, MINUTE
from pykai.api.timestamp import parse_timestamp
from pykai.core.queueing.usagehistory import UsageHistory, UsageSpan, UsageWindow, usage_within
from pykai.scheduler.usage.storedusage import (
    MAX_BYTES,
    StoredUsageError,
    decode_usage,
    encode_usage,
    encode_within,
)

NOW = parse_timestamp("2026-03-02T12:00:00Z")
SPANS = [
    UsageSpan(NOW - 2 * HOUR, NOW - HOUR, (3600.0, 7.25, 36000.0), {"b": (1.5, 0.0, 3600.0), "a": (0.0, 2.0, 0.25)}),
    UsageSpan(NOW - HOUR, NOW, (1e12, 2e15, 0.0), {}),
]


def test_spans_come_back_as_they_were() -> None:
    """usage:stored"""
    assert decode_usage(encode_usage(SPANS), NOW) == SPANS
    assert encode_usage(SPANS) == encode_usage(list(SPANS)), "byte for byte"


amounts = st.floats(0, 1e18, allow_nan=False)


@given(st.lists(st.tuples(st.integers(1, 10**6), amounts, amounts), max_size=8))
def test_numbers_keep_five_digits(rows: list[tuple[int, float, float]]) -> None:
    at, spans = NOW - DAY, []
    for length, total, held in rows:
        spans.append(UsageSpan(at, at + length * MILLISECOND, (total, 0.0, total), {"q": (held, held, 0.0)}))
        at += length * MILLISECOND
    for given_span, span in zip(spans, decode_usage(encode_usage(spans), at), strict=True):
        assert span[:2] == given_span[:2]
        assert span.capacity == pytest.approx(given_span.capacity, rel=1e-4)
        assert span.allocated["q"] == pytest.approx(given_span.allocated["q"], rel=1e-4)


def test_spans_of_the_future_are_dropped() -> None:
    """usage:stored: the clock of the writer was wrong."""
    assert decode_usage(encode_usage(SPANS), NOW - MINUTE) == SPANS[:1]


def packed(document: Any) -> bytes:
    return gzip.compress(msgspec.json.encode(document))


def document(**fields: Any) -> dict[str, Any]:
    return {"version": 1, "queues": ["a"], "spans": [[1, 2, [1, 1, 1], [0, 1, 1, 1]]], **fields}


def rows(*spans: Any) -> dict[str, Any]:
    return document(spans=list(spans))


BAD = {
    "nothing": b"",
    "text": b"hello",
    "cut off": encode_usage(SPANS)[:-20],
    "no JSON": gzip.compress(b"hello"),
    "no text": gzip.compress(b"\xff\xfe"),
    "a list": packed([]),
    "another version": packed(document(version=2)),
    "no queues": packed({"version": 1, "spans": []}),
    "a queue that is a number": packed(document(queues=[1])),
    "a row that is too short": packed(rows([1, 2, [1, 1, 1]])),
    "two amounts": packed(rows([1, 2, [1, 1], []])),
    "an odd list": packed(rows([1, 2, [1, 1, 1], [0, 1, 1]])),
    "a negative amount": packed(rows([1, 2, [1, 1, 1], [0, -1, 1, 1]])),
    "a negative capacity": packed(rows([1, 2, [1, 1, -1], []])),
    "an amount beyond all numbers": gzip.compress(b'{"version":1,"queues":[],"spans":[[1,2,[1,1,1e999],[]]]}'),
    "a queue that is not listed": packed(rows([1, 2, [1, 1, 1], [1, 1, 1, 1]])),
    "half a queue": packed(rows([1, 2, [1, 1, 1], [0.5, 1, 1, 1]])),
    "an end before the begin": packed(rows([2, 1, [1, 1, 1], []])),
    "an empty span": packed(rows([2, 2, [1, 1, 1], []])),
    "spans that overlap": packed(rows([1, 3, [1, 1, 1], []], [2, 4, [1, 1, 1], []])),
    "a time before 1970": packed(rows([-5, 2, [1, 1, 1], []])),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_what_is_not_ours_is_refused(data: bytes) -> None:
    """usage:stored"""
    with pytest.raises(StoredUsageError):
        decode_usage(data, NOW)


def test_a_good_document_of_the_same_form_is_taken() -> None:
    (span,) = decode_usage(packed(document()), NOW)
    assert span == UsageSpan(MILLISECOND, 2 * MILLISECOND, (1, 1, 1), {"a": (1, 1, 1)})


def test_a_bomb_is_not_unpacked() -> None:
    with pytest.raises(StoredUsageError, match="more than 32 MiB"):
        decode_usage(gzip.compress(b" " * (33 << 20)), NOW)


# The limit


def busy(queues: int, fineness: int = 32, every: int = 1) -> UsageHistory:
    """Two days in which every queue holds another amount every minute, or every few."""
    chance, made = random.Random(5), UsageHistory(fineness=fineness)
    for ago in range(2 * 24 * 60, 0, -every):
        held = {f"department-{row}": (chance.random() * 1e5, chance.random() * 1e12, 1.0) for row in range(queues)}
        made.record(NOW - ago * MINUTE, held, (1e6, 1e13, 1000.0))
        if ago % 30 == 0:
            made.compact(NOW - ago * MINUTE)
    made.compact(NOW)
    return made


def test_usage_that_is_too_large_gets_coarser() -> None:
    """usage:bounds: and counts as before, but for what a coarser span blurs."""
    spans, window = busy(20).spans(NOW), UsageWindow(size_ns=DAY)
    whole, fineness = encode_within(spans, NOW, 32)
    assert (fineness, whole) == (32, encode_usage(spans))
    limit = len(whole) // 3
    small, fineness = encode_within(spans, NOW, 32, limit)
    assert len(small) <= limit
    assert fineness in (4, 8)
    before, after = (usage_within(decode_usage(each, NOW), window, NOW) for each in (whole, small))
    for queue, used in before.items():
        assert after[queue] == pytest.approx(used, rel=0.05)


def test_where_that_is_not_enough_the_oldest_go() -> None:
    """usage:bounds"""
    spans = busy(20).spans(NOW)
    small, fineness = encode_within(spans, NOW, 32, 2_000)
    assert (len(small) <= 2_000, fineness) == (True, 0)
    kept = decode_usage(small, NOW)
    assert kept
    assert kept[-1].end_ns == NOW, "the newest stay"
    nothing, _ = encode_within(spans, NOW, 32, 1)
    assert decode_usage(nothing, NOW) == []


def test_a_thousand_queues_fit() -> None:
    """usage:bounds: as base64 it is within what an API server stores."""
    encoded, _ = encode_within(busy(1000, fineness=1, every=2).spans(NOW), NOW, 1)
    assert len(encoded) <= MAX_BYTES < 700_000
