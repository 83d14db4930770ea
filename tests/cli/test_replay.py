"""`kai replay` says in a sentence why a file cannot be used, and unpacks none that would fill the memory."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pykai.cli.replay import replay
from pykai.scheduler.flags import read_flags
from pykai.scheduler.snapshotfile import SNAPSHOT_ENTRY, SnapshotError, read_snapshot, snapshot_zip


def archive(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as file:
        for name, content in entries:
            file.writestr(name, content)
    return packed.getvalue()


def encrypted() -> bytes:
    """A file whose entry says that it is encrypted, in both of its headers."""
    data = bytearray(archive((SNAPSHOT_ENTRY, b"{}")))
    central = data.index(b"PK\x01\x02")
    data[6] |= 1
    data[central + 8] |= 1
    return bytes(data)


def bomb(size: int) -> bytes:
    """A few bytes that, by their headers, unpack to very many."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(b" " * (1 << 20)) + packer.flush()
    name = SNAPSHOT_ENTRY.encode()
    head = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0x21, 0, len(packed), size, len(name), 0)
    local = b"PK\x03\x04" + head + name + packed
    central = b"PK\x01\x02" + struct.pack("<H", 20) + head + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    return local + central + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (encrypted(), "snapshot.json is encrypted"),
        (bomb(200 << 20), "no cluster is that regular"),
        (bomb(1100 << 20), "no snapshot has more than 1073741824"),
        (archive((SNAPSHOT_ENTRY, b"{}"), *((f"entry-{at}", b"") for at in range(100))), "101 entries"),
        (
            archive((SNAPSHOT_ENTRY, b"{}"), *((f"entry-{at}", b"") for at in range(2000))),
            "a directory for more than 100",
        ),
        (archive((SNAPSHOT_ENTRY, b"{}"), method=zipfile.ZIP_LZMA), "packed by method 14"),
        (archive(("other.json", b"{}")), "holds no snapshot.json"),
        (archive((SNAPSHOT_ENTRY, b"{}"))[:-30], "no directory"),
        (b"", "no directory"),
        (b"PK\x05\x06" + b"\xff" * 40, "zip file"),
        (archive((SNAPSHOT_ENTRY, b"[")), "snapshot.json: "),
        (archive((SNAPSHOT_ENTRY, b'{"config":' * 100_000)), "snapshot.json: "),
    ],
    ids=["encrypted", "regular", "huge", "many", "crowd", "lzma", "other", "cut", "empty", "directory", "json", "deep"],
)
def test_an_unusable_file_is_reported_in_a_sentence(data: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.zip"
    file.write_bytes(data)
    found = CliRunner().invoke(replay, [str(file)])
    assert found.exit_code == 1
    assert isinstance(found.exception, SystemExit)
    assert f"Error: {file}: " in found.output
    assert says in found.output


def test_a_file_without_end_is_given_up() -> None:
    found = CliRunner().invoke(replay, ["/dev/zero"])
    assert found.exit_code == 1
    assert "the file has more than 256 MiB" in found.output


def test_a_directory_in_the_new_form_is_not_read() -> None:
    """Its size stands elsewhere, and may be anything."""
    data = archive((SNAPSHOT_ENTRY, b"{}"))
    at = data.rindex(b"PK\x05\x06")
    with pytest.raises(SnapshotError, match="a directory for more than"):
        read_snapshot(data[:at] + b"PK\x06\x07" + b"\0" * 16 + data[at:])


@given(data=st.binary(max_size=60), at=st.floats(0, 1, exclude_max=True))
def test_spoilt_bytes_are_an_error_or_a_cluster(data: bytes, at: float) -> None:
    whole = snapshot_zip([], read_flags({}), {"actions": "allocate"}, 5)
    place = int(at * len(whole))
    try:
        read_snapshot(whole[:place] + data + whole[place + len(data) :])
    except SnapshotError as error:
        text = str(error)
        assert text


@given(
    ours=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=3),
    key=st.sampled_from(["nowNs", "flags"]),
)
def test_our_own_part_may_hold_anything(ours: Any, key: str) -> None:
    content = {"pykai": {key: ours}, "schedulerParams": {"partitionParams": ours, "schedulePeriod": ours}}
    assert read_snapshot(archive((SNAPSHOT_ENTRY, json.dumps(content).encode()))).now_ns >= 0
