"""Detects damage of the state file at start: a state that lost something must not be served as if complete.

A disk, a file system or a bad copy can change bytes in three kinds of places, and each needs a check of its own:

- Pages that give the file its structure: `PRAGMA integrity_check` walks all of them and compares tables with indexes.
- Pages that hold nothing but content, as those with the rest of a large object: SQLite does not check them, so every
  row has a checksum over all its columns (`row_checksum`), which is compared when the row is read.
- The write-ahead log beside the file, which is there after a crash: SQLite stops reading it at the first frame whose
  checksum is wrong, and what was committed after that frame is lost silently.  `check_wal` reads it first.

Subtle: a log may end in a transaction that was cut off. Its writes were never acknowledged, so dropping it loses
nothing. Frames that follow a whole transaction show that the disk had it before they were written; a bad frame before
them is damage.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from pathlib import Path
from typing import Final

from pykai.kube import errors

_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
_MASK: Final = 0xFFFFFFFF


class StateError(errors.KubeError):
    """The state cannot be used; the text says why and what to do."""


def damaged_state_error(path: Path, what: str) -> StateError:
    """The error for a damaged file."""
    return StateError(
        f"the state file {path} is damaged: {what}; put a copy of the folder in its place that was made while the "
        "server was stopped, or move it away to start with an empty cluster"
    )


def row_checksum(*columns: str | int | bytes | None) -> int:
    """A checksum of a row that includes the column borders."""
    checksum = 0
    for column in columns:
        part = column if isinstance(column, bytes) else repr(column).encode()
        checksum = zlib.crc32(part, zlib.crc32(b"%d:" % len(part), checksum))
    return checksum


def check_structure(database: sqlite3.Connection, path: Path) -> None:
    """Raise `StateError` where pages or indexes of the file contradict each other."""
    (first, *_) = database.execute("PRAGMA integrity_check(1)").fetchall()
    if first[0] != "ok":
        raise damaged_state_error(path, " ".join(str(first[0]).split()))


def check_wal(path: Path) -> None:
    """Raise `StateError` where the log beside the file lost what was committed to it."""
    log = path.with_name(f"{path.name}-wal")
    try:
        data = log.read_bytes()
    except FileNotFoundError:
        return
    if len(data) <= _LOG_HEADER:
        return
    magic, _, page_size, _, *salts, first, second = struct.unpack(">8I", data[:_LOG_HEADER])
    order = _MAGIC.get(magic)
    if order is None or _wal_checksum(data[: _LOG_HEADER - 8], order, 0, 0) != (first, second):
        if any(data):
            raise damaged_state_error(log, "its header is broken, and with it everything that was written last")
        return
    sums, is_after_commit, broken_at = (first, second), False, -1
    step = _FRAME_HEADER + page_size
    for number, at in enumerate(range(_LOG_HEADER, len(data) - step + 1, step)):
        _, commits, *rest = struct.unpack(">6I", data[at : at + _FRAME_HEADER])
        if rest[:2] != salts:
            # Frames of an earlier round of the log, behind those of this one.
            break
        if broken_at >= 0:
            if is_after_commit:
                raise damaged_state_error(
                    log, f"frame {broken_at} of it is broken, and transactions after it would be lost"
                )
            is_after_commit = commits != 0
            continue
        found = _wal_checksum(data[at : at + 8] + data[at + _FRAME_HEADER : at + step], order, *sums)
        if found != (rest[2], rest[3]):
            broken_at, is_after_commit = number, commits != 0
        sums = found


def _wal_checksum(data: bytes, order: str, first: int, second: int) -> tuple[int, int]:
    """SQLite's running checksum of a log."""
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
