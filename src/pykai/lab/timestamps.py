"""Conversion between timestamps of objects and seconds since 1970."""

from __future__ import annotations

from functools import lru_cache

from pykai.api.timestamp import TimestampError, format_timestamp, parse_timestamp


def to_timestamp(at_s: float) -> str:
    """A time as objects hold it: whole seconds, UTC."""
    return _format_seconds(int(at_s))


@lru_cache(maxsize=1024)
def _format_seconds(at_s: int) -> str:
    return format_timestamp(at_s * 1_000_000_000)


def to_seconds(timestamp: str | None) -> float | None:
    """A timestamp in seconds since 1970, None if it is absent or unreadable."""
    if not timestamp:
        return None
    try:
        return parse_timestamp(timestamp) / 1e9
    except TimestampError:
        return None
