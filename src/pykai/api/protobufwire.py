"""The wire format of protobuf: the entries of a message, without knowing its fields.

Two readers know fields: the embedded API server reads kubectl's bodies by the table of built-in kinds, the exporter of
NUMA placements reads what the kubelet answers.  Protobuf's own runtime would generate code for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

#: number, wire type, and the value: an int of a varint, the bytes of the others
WireField = tuple[int, int, Any]


def wire_fields(body: bytes) -> Iterator[WireField]:
    """The entries of a message; ValueError where it is damaged."""
    at = 0
    end = len(body)
    while at < end:
        tag, at = varint(body, at)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == VARINT:
            value, at = varint(body, at)
        elif wire == BYTES:
            length, at = varint(body, at)
            value, at = body[at : at + length], at + length
        elif wire == FIXED64:
            value, at = body[at : at + 8], at + 8
        elif wire == FIXED32:
            value, at = body[at : at + 4], at + 4
        else:
            raise ValueError(f"the protobuf body has an entry of the unknown wire type {wire}")
        if at > end or number == 0:
            raise ValueError("the protobuf body is cut short or damaged")
        yield number, wire, value


def varint(body: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where the next entry begins."""
    result = shift = 0
    while True:
        if at >= len(body) or shift > 63:
            raise ValueError("the protobuf body is cut short or damaged")
        byte = body[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def packed_varints(body: bytes) -> Iterator[int]:
    """The numbers that one entry packs."""
    at = 0
    while at < len(body):
        number, at = varint(body, at)
        yield number


def signed(number: int) -> int:
    """A varint as the int64 that it stands for."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >= 1 << 63 else number


def utf8(value: bytes) -> str:
    """The bytes of an entry as text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError("the protobuf body holds a text that is not UTF-8") from None
