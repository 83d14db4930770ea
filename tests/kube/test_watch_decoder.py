"""The bytes of a watch become events, however they are cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.kube.errors import ConnectionLost
from pykai.kube.reflector import WatchDecoder

LINES = [
    {"type": kind, "object": {"metadata": {"name": f"p{number}", "labels": {"ü": '\n"{}'}}}}
    for number, kind in enumerate(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"])
]
BYTES = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in LINES)


@given(st.lists(st.integers(0, len(BYTES)), max_size=30))
def test_cuts_make_no_difference(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(BYTES)]
    decoder = WatchDecoder()
    events = [event for start, end in pairwise(places) for event in decoder.feed(BYTES[start:end])]
    assert [{"type": event.type, "object": json.loads(bytes(event.object))} for event in events] == LINES


def test_blank_lines_are_nothing() -> None:
    assert WatchDecoder().feed(b"\n\r\n  \n") == []


@pytest.mark.parametrize("line", [b"hello\n", b"[]\n", b'{"type": 7, "object": {}}\n', b'{"object": {}}\n', b"\xff\n"])
def test_what_is_no_event_ends_the_watch(line: bytes) -> None:
    with pytest.raises(ConnectionLost, match="not an event"):
        WatchDecoder().feed(line)
