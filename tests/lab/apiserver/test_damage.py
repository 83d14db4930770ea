"""A state file that is not as it was written is refused at the start, and says which file it is and what to do.

This is about the embedded server's own file, not about Kubernetes.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykai.kube.clock import Clock
from pykai.lab.apiserver.integrity import check_wal, damaged_state_error, row_checksum
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.apiserver.sqlitejournal import STATE_FILE, StateError
from tests.lab.apiserver.apiclient import config_map, pod, running_server

PAGE = 4096
#: places that one run tries
MANY = 60
#: larger than a page: its rest lies in pages of their own, into which SQLite does not look
LARGE = {"text": "words and words " * 1500}


async def write_state(folder: Path) -> None:
    """A state with small and large objects, changed and deleted ones, stopped in peace."""
    async with running_server(data=folder) as (_, api):
        for number in range(12):
            await api.create("configmaps", config_map(f"small-{number}"))
        for number in range(4):
            await api.create("configmaps", {**config_map(f"large-{number}"), "data": LARGE})
        await api.create("pods", pod("a"))
        await api.patch("configmaps", "large-1", {"data": {"more": "x" * 9000}})
        await api.delete("configmaps", "small-3")


async def content(folder: Path) -> dict[str, Any]:
    """Everything that was written, as a server from this folder shows it, and what a watch of the past tells."""
    async with running_server(data=folder) as (_, api):
        shown: dict[str, Any] = {plural: (await api.list(plural)).body["items"] for plural in ("configmaps", "pods")}
        async with api.watch("configmaps", resourceVersion="1") as watch:
            shown["past"] = [await watch.next() for _ in range(18)]
        return shown


class State(NamedTuple):
    """A folder with a state, and what a server shows of it."""

    folder: Path
    whole: dict[str, Any]

    def __repr__(self) -> str:
        return f"State({self.folder})"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    folder = tmp_path_factory.mktemp("state")
    asyncio.run(write_state(folder))
    copy = tmp_path_factory.mktemp("copy") / "state"
    shutil.copytree(folder, copy)
    return State(folder, asyncio.run(content(copy)))


def spoilt(state: Path, folder: Path, at: int, data: bytes) -> Path:
    """A copy of the state with other bytes at one place."""
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(state, folder)
    with (folder / STATE_FILE).open("r+b") as file:
        file.seek(at)
        file.write(data)
    return folder


def refused_or_whole(folder: Path, whole: dict[str, Any]) -> bool:
    """Whether a server refuses to start from this folder; if it starts, it shows everything."""
    try:
        shown = asyncio.run(content(folder))
    except StateError as error:
        text = str(error)
    else:
        # Not a plain assert, which would print both.
        if shown != whole:
            pytest.fail("the server serves another state than the one that was written")
        return False
    assert str(folder / STATE_FILE) in text
    assert "move it away" in text
    return True


def test_a_page_of_random_bytes_is_noticed_wherever_it_lies(state: State, tmp_path: Path) -> None:
    folder, whole = state
    pages = (folder / STATE_FILE).stat().st_size // PAGE
    assert pages > 20
    refused = 0
    for number in range(pages):
        bytes_ = random.Random(number).randbytes(PAGE)
        refused += refused_or_whole(spoilt(folder, tmp_path / "spoilt", number * PAGE, bytes_), whole)
    # What is not refused are pages that hold nothing.
    assert refused >= pages - _free_pages(folder)


def _free_pages(folder: Path) -> int:
    database = sqlite3.connect(folder / STATE_FILE)
    try:
        return int(database.execute("PRAGMA freelist_count").fetchone()[0])
    finally:
        database.close()


@settings(max_examples=MANY, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_a_single_byte_is_noticed_or_means_nothing(state: State, tmp_path: Path, place: float, change: int) -> None:
    folder, whole = state
    at = int(place * (folder / STATE_FILE).stat().st_size)
    byte = (folder / STATE_FILE).read_bytes()[at] ^ change
    refused_or_whole(spoilt(folder, tmp_path / "spoilt", at, bytes([byte])), whole)


def test_a_word_inside_a_large_object_is_noticed(state: State, tmp_path: Path) -> None:
    """The structure of the file is as good as ever, and the object is still JSON: only its checksum tells."""
    folder, whole = state
    raw = (folder / STATE_FILE).read_bytes()
    at = raw.index(b"words and words words and words ")
    other = spoilt(folder, tmp_path / "spoilt", at, b"swords")
    database = sqlite3.connect(other / STATE_FILE)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
    assert refused_or_whole(other, whole)


def test_an_index_that_names_other_rows_is_noticed(state: State, tmp_path: Path) -> None:
    """Every row is as it was written, but looked for by its index this one would be among other kinds."""
    raw, row = (state.folder / STATE_FILE).read_bytes(), b"configmapsdefault/small-5"
    # In the tables a row goes on with its JSON.
    places = [found.start() for found in re.finditer(row, raw) if b"{" not in raw[found.end() : found.end() + 20]]
    assert len(places) == 1
    assert refused_or_whole(spoilt(state.folder, tmp_path / "spoilt", places[0], b"konfigmaps"), state.whole)


def test_the_command_says_so_and_ends(state: State, tmp_path: Path) -> None:
    other = spoilt(state[0], tmp_path / "spoilt", 3 * PAGE, random.Random(1).randbytes(PAGE))
    command = [sys.executable, "-m", "pykai", "server", "--data", str(other)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 1
    assert found.stderr.startswith(f"Error: the state file {other / STATE_FILE} is damaged: ")
    assert "Traceback" not in found.stderr


#: writes objects and dies without closing its file, so that the log stays
_DYING = """
import asyncio, os, sys
from pathlib import Path
from pykai.lab.apiserver.server import ApiServer
from pykai.kube.clock import Clock
from pykai.kube.transport import Request

async def main():
    server = await ApiServer.open(clock=Clock(), data=Path(sys.argv[1]))
    for number in range(20):
        body = b'{"metadata":{"name":"map-%d"}}' % number
        answer = await server.transport().send(Request("POST", "/api/v1/namespaces/default/configmaps", {}, body))
        assert answer.status == 201
    os._exit(0)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server that was killed."""
    folder = tmp_path_factory.mktemp("crashed")
    subprocess.run([sys.executable, "-c", _DYING, str(folder)], check=True, timeout=60)
    assert (folder / f"{STATE_FILE}-wal").stat().st_size > 30 * PAGE
    return folder


async def maps(folder: Path) -> set[str]:
    async with running_server(data=folder) as (_, api):
        return set((await api.list("configmaps")).names)


def test_the_log_of_a_killed_server_is_read(crashed: Path, tmp_path: Path) -> None:
    shutil.copytree(crashed, tmp_path / "copy")
    assert len(asyncio.run(maps(tmp_path / "copy"))) == 20


@pytest.mark.parametrize("frame", [0, 1, 10, 25])
def test_a_broken_frame_of_the_log_is_noticed(crashed: Path, tmp_path: Path, frame: int) -> None:
    """SQLite itself would leave out everything that was committed after it, without a word."""
    shutil.copytree(crashed, tmp_path / "copy")
    log = tmp_path / "copy" / f"{STATE_FILE}-wal"
    with log.open("r+b") as file:
        file.seek(32 + frame * (24 + PAGE) + 24)
        file.write(random.Random(frame).randbytes(PAGE))
    before = log.read_bytes()
    with pytest.raises(StateError, match=f"{STATE_FILE}-wal is damaged: frame {frame} of it is broken"):
        asyncio.run(maps(tmp_path / "copy"))
    assert log.read_bytes() == before


def test_a_broken_header_of_the_log_is_noticed(crashed: Path, tmp_path: Path) -> None:
    shutil.copytree(crashed, tmp_path / "copy")
    with (tmp_path / "copy" / f"{STATE_FILE}-wal").open("r+b") as file:
        file.write(random.Random(0).randbytes(32))
    with pytest.raises(StateError, match="its header is broken"):
        asyncio.run(maps(tmp_path / "copy"))


def test_a_log_that_was_cut_off_is_no_damage(crashed: Path, tmp_path: Path) -> None:
    """The last transaction was not answered: its sender knows nothing of it."""
    shutil.copytree(crashed, tmp_path / "copy")
    log = tmp_path / "copy" / f"{STATE_FILE}-wal"
    data = log.read_bytes()
    for cut in (len(data) - 100, len(data) - PAGE, 32 + 5 * (24 + PAGE) + 50, 40, 32, 10, 0):
        log.write_bytes(data[:cut])
        check_wal(tmp_path / "copy" / STATE_FILE)
    log.write_bytes(data[:-100])
    assert asyncio.run(maps(tmp_path / "copy")) >= {f"map-{number}" for number in range(19)}


async def test_a_state_of_the_format_before_is_taken_over(tmp_path: Path) -> None:
    await write_state(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "copy")
    whole = await content(tmp_path / "copy")
    database = sqlite3.connect(tmp_path / STATE_FILE)
    for table in ("facts", "objects", "history"):
        database.execute(f"ALTER TABLE {table} DROP COLUMN sum")
    database.execute("UPDATE facts SET value = '1' WHERE name = 'format'")
    database.commit()
    database.close()
    assert await content(tmp_path) == whole
    database = sqlite3.connect(tmp_path / STATE_FILE)
    assert database.execute("SELECT count(*) FROM objects WHERE sum IS NULL").fetchone() == (0,)
    database.close()


async def test_a_state_of_a_later_format_is_refused(tmp_path: Path) -> None:
    await write_state(tmp_path)
    database = sqlite3.connect(tmp_path / STATE_FILE)
    database.execute("UPDATE facts SET value = '3' WHERE name = 'format'")
    database.commit()
    database.close()
    with pytest.raises(StateError, match="has format 3, this server reads format 2"):
        await ApiServer.open(clock=Clock(), data=tmp_path)


async def test_objects_that_are_all_gone_are_noticed(tmp_path: Path) -> None:
    await write_state(tmp_path)
    database = sqlite3.connect(tmp_path / STATE_FILE)
    database.execute("DELETE FROM objects")
    database.commit()
    database.close()
    with pytest.raises(StateError, match="a past, but no objects"):
        await ApiServer.open(clock=Clock(), data=tmp_path)


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null/state"])
async def test_a_folder_that_cannot_be_used_is_named(place: str) -> None:
    with pytest.raises(StateError, match=f"{place}/{STATE_FILE} cannot be used: "):
        await ApiServer.open(clock=Clock(), data=Path(place))


def test_sums_tell_columns_apart() -> None:
    assert row_checksum("ab", "c") != row_checksum("a", "bc")
    assert row_checksum("1") != row_checksum(1)
    assert row_checksum(None) != row_checksum("")
    assert row_checksum(b"x", 2) == row_checksum(b"x", 2)
    assert "x is damaged: y; " in str(damaged_state_error(Path("x"), "y"))


@pytest.mark.parametrize("name", ["tokens.json", "ca.key", "ca.crt"])
async def test_a_broken_file_beside_the_state_is_named(tmp_path: Path, name: str) -> None:
    async with running_server(data=tmp_path) as (server, _):
        await server.serve()
    (tmp_path / name).write_text("[1, 2")
    async with running_server(data=tmp_path) as (server, _):
        with pytest.raises(StateError, match=f"{name}.* in {tmp_path} cannot be used: .*; remove them"):
            await server.serve()
