"""State on disk: an SQLite file that holds every write before it is acknowledged.

Writes are appended to a batch; a separate thread commits the batch in one transaction and reports back, while the next
batch fills. So concurrent writes share one commit, and a kill at any time loses nothing that was acknowledged or shown
to a watch.

The file holds the objects, the last revision, and recent events, from which watches resume after a restart. Its format
is ours alone: one table of objects, one of history, one of facts, each row with a checksum. A damaged file is refused
at start (`integrity.py`).

Subtle: later writes may build on ones that are not on disk yet; they follow in the same order, so a disk failure fails
them all. After such a failure the server refuses to write.

Statements: apiserver:damage.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from pykai.kube import errors
from pykai.lab.apiserver.crds import CRDS, served_kinds
from pykai.lab.apiserver.integrity import StateError as StateError
from pykai.lab.apiserver.integrity import check_structure, check_wal, damaged_state_error, row_checksum
from pykai.lab.apiserver.kinds import KindRegistry, ResourceKind, StoreKey
from pykai.lab.apiserver.metadata import selectable_field_reader
from pykai.lab.apiserver.storage import DELETED, HISTORY_EVENTS, ObjectStorage, StorageEvent, StoredObject, decode

STATE_FILE: Final = "state.sqlite"
_FORMAT: Final = "2"
#: format without row checksums
_OLD_FORMAT: Final = "1"
#: history rows that are dropped in one go
_TRIM_EVERY: Final = 4096
_log = logging.getLogger(__name__)

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    grp TEXT NOT NULL, plural TEXT NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL, raw BLOB NOT NULL,
    sum INTEGER, PRIMARY KEY (grp, plural, key));
CREATE TABLE IF NOT EXISTS history (
    revision INTEGER PRIMARY KEY, grp TEXT NOT NULL, plural TEXT NOT NULL, key TEXT NOT NULL, type TEXT NOT NULL,
    raw BLOB NOT NULL, old BLOB, sum INTEGER);
"""
#: SQLite's error codes when the file may be fine but is not accessible
_ACCESS_ERRORS: Final = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
)
#: columns that a row's checksum covers
_CHECKSUM_COLUMNS: Final = {
    "facts": ("name", "value"),
    "objects": ("grp", "plural", "key", "revision", "raw"),
    "history": ("revision", "grp", "plural", "key", "type", "raw", "old"),
}


class SqliteJournal:
    """Commits writes to disk in order, then publishes them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives its side files the mode of this one.
            path.touch(mode=0o600)
            check_wal(path)
        except OSError as error:
            raise StateError(f"the state file {path} cannot be used: {error.strerror or error}") from error
        self._database = _open(path)
        self._condition = threading.Condition()
        self._batch: list[tuple[StoreKey, StorageEvent]] = []
        self._closing = False
        self._failed: Exception | None = None
        self._since_trim = 0
        self._storage: ObjectStorage | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def restore(self) -> ObjectStorage:
        """The stored state, backed by this journal; raises `StateError` if it cannot be trusted."""
        try:
            with _state_errors(self._path):
                return self._restore()
        except BaseException:
            # An open file would stay locked.
            self._database.close()
            raise

    def _restore(self) -> ObjectStorage:
        facts = dict(self._rows("facts", "name, value"))
        storage = ObjectStorage(self, int(facts.get("revision", "1")))
        # Selectable fields depend on the kind, so CRDs come first.
        registry = KindRegistry()
        self._load(storage, CRDS, registry)
        for record in storage.collection(CRDS).records.values():
            try:
                for kind in served_kinds(record.object()):
                    registry.add(kind)
            except Exception:
                # Objects of other kinds are still served; those of this one are when its definition is corrected.
                _log.exception("the stored CustomResourceDefinition %s cannot be read", record.key)
        for store in self._database.execute("SELECT DISTINCT grp, plural FROM objects").fetchall():
            if store != CRDS:
                self._load(storage, store, registry)
        if ("revision" in facts) != any(collection.records for collection in storage.collections()):
            raise damaged_state_error(self._path, "it has a past, but no objects, or the other way round")
        self._load_history(storage, registry, facts)
        self._storage = storage
        return storage

    def start(self) -> None:
        """Start committing; call it on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._commit_batches, name="pykai-state", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Commit what is left and close the file."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        await asyncio.sleep(0)
        self._database.close()

    def append(self, store: StoreKey, event: StorageEvent) -> None:
        """Append one write."""
        if self._failed is not None:
            raise self._failure()
        with self._condition:
            self._batch.append((store, event))
            if len(self._batch) == 1:
                self._condition.notify()

    def _failure(self) -> errors.ServerError:
        text = f"the state file {self._path} cannot be written: {self._failed}; fix that and start the server again"
        return errors.ServerError(500, "InternalError", text)

    def _rows(self, table: str, columns: str, rest: str = "", values: Iterable[str] = ()) -> Iterator[Any]:
        """Rows of a table with verified checksums; raises `StateError`."""
        summed = _CHECKSUM_COLUMNS[table]
        wanted = [summed.index(name) for name in columns.split(", ")]
        query = f"SELECT {', '.join(summed)}, sum FROM {table} {rest}"
        for *row, found in self._database.execute(query, tuple(values)):
            if found != row_checksum(*row):
                named = "/".join(str(each) for each in row[:4] if isinstance(each, (str, int)))
                raise damaged_state_error(self._path, f"a row of {table} is not as it was written: {named}")
            yield tuple(row[at] for at in wanted)

    def _load(self, storage: ObjectStorage, store: StoreKey, registry: KindRegistry) -> None:
        kind = registry.storage_kind(store)
        rows = self._rows("objects", "key, revision, raw", "WHERE grp = ? AND plural = ? ORDER BY key", store)
        records = [_restored_record(kind, key, revision, raw) for key, revision, raw in rows]
        if any(record.revision > storage.revision for record in records):
            raise damaged_state_error(self._path, f"it holds {store[1]} that are newer than its last revision")
        storage.load(store, records)

    def _load_history(self, storage: ObjectStorage, registry: KindRegistry, facts: dict[str, str]) -> None:
        """The recent history; older revisions are unknown."""
        (begins,) = self._database.execute("SELECT min(revision) FROM history").fetchone()
        compacted_revision = int(facts.get("history_after", "0"))
        if begins is None:
            compacted_revision = storage.revision
        storage.compacted_revision = compacted_revision
        for collection in storage.collections():
            collection.compacted_revision = compacted_revision
        rows = self._rows("history", "revision, grp, plural, key, type, raw, old", "ORDER BY revision")
        for revision, group, plural, key, type_, raw, old in rows:
            kind = registry.storage_kind((group, plural))
            old_record = _restored_record(kind, key, revision, old) if old is not None else None
            event = StorageEvent(type_, revision, _restored_record(kind, key, revision, raw), old_record)
            storage.collection((group, plural)).append_event(event)

    def _commit_batches(self) -> None:
        while True:
            with self._condition:
                while not self._batch and not self._closing:
                    self._condition.wait()
                batch, self._batch = self._batch, []
                if not batch:
                    return
            try:
                self._commit(batch)
            except Exception as error:
                # Whatever the cause, what is not on disk must not be acknowledged.
                self._failed = error
                _log.critical("the state file %s cannot be written: %s", self._path, error)
                self._run_on_loop(self._fail)
                return
            self._run_on_loop(partial(self._publish, batch))

    def _run_on_loop(self, call: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(call)

    def _publish(self, batch: list[tuple[StoreKey, StorageEvent]]) -> None:
        storage = self._storage
        if storage is not None:
            for store, event in batch:
                storage.publish(store, event)

    def _fail(self) -> None:
        if self._storage is not None:
            self._storage.fail(self._failure())

    def _commit(self, batch: list[tuple[StoreKey, StorageEvent]]) -> None:
        database = self._database
        last_events: dict[tuple[str, str, str], StorageEvent] = {}
        history = []
        for (group, plural), event in batch:
            record, old = event.record, event.old
            last_events[group, plural, record.key] = event
            past = old.raw if old is not None else None
            history.append(_with_checksum(event.revision, group, plural, record.key, event.type, record.raw, past))
        deleted_keys = [place for place, event in last_events.items() if event.type == DELETED]
        upserted_rows = [
            _with_checksum(*place, e.revision, e.record.raw) for place, e in last_events.items() if e.type != DELETED
        ]
        last = batch[-1][1].revision
        with database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)", upserted_rows)
            database.executemany("DELETE FROM objects WHERE grp = ? AND plural = ? AND key = ?", deleted_keys)
            database.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?)", history)
            _set_fact(database, "revision", str(last))
            self._since_trim += len(batch)
            if self._since_trim >= _TRIM_EVERY:
                self._since_trim = 0
                after = last - HISTORY_EVENTS
                database.execute("DELETE FROM history WHERE revision <= ?", (after,))
                _set_fact(database, "history_after", str(max(0, after)))


def _with_checksum(*columns: Any) -> tuple[Any, ...]:
    return (*columns, row_checksum(*columns))


def _set_fact(database: sqlite3.Connection, name: str, value: str) -> None:
    database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", _with_checksum(name, value))


def _restored_record(kind: ResourceKind | None, key: str, revision: int, raw: bytes) -> StoredObject:
    obj = decode(raw)
    record = StoredObject(
        key, revision, bytes(raw), obj, selectable_field_reader(kind)(obj) if kind is not None else {}
    )
    record.obj = None
    return record


@contextmanager
def _state_errors(path: Path) -> Iterator[None]:
    """Turn problems while reading the state into a `StateError`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        # The low byte is the primary code; invalid UTF-8 has no code.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _ACCESS_ERRORS:
            raise StateError(
                f"{path} cannot be opened: {error}; is another server using it, and may this user write there?"
            ) from error
        if code == sqlite3.SQLITE_NOTADB:
            text = f"{path} is not the state of this server ({error}); move it away or name another folder"
            raise StateError(text) from error
        raise damaged_state_error(path, str(error)) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged_state_error(path, f"a value in it cannot be read ({error})") from error


def _open(path: Path) -> sqlite3.Connection:
    with _state_errors(path):
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            # One server per file: a second one would serve an old state.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            check_structure(database, path)
            _prepare_tables(database, path)
        except BaseException:
            # An open file would stay locked.
            database.close()
            raise
    return database


def _prepare_tables(database: sqlite3.Connection, path: Path) -> None:
    """Create the tables, or upgrade those of the previous format."""
    has_tables = database.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'facts'").fetchone()[0]
    row = database.execute("SELECT value FROM facts WHERE name = 'format'").fetchone() if has_tables else None
    if has_tables and (row is None or row[0] not in (_FORMAT, _OLD_FORMAT)):
        found = f"format {row[0]}" if row is not None else "no format"
        raise StateError(f"{path} has {found}, this server reads format {_FORMAT}; move it away")
    database.execute("BEGIN IMMEDIATE")
    if not has_tables:
        for statement in _TABLES.split(";"):
            database.execute(statement)
        _set_fact(database, "format", _FORMAT)
        _set_fact(database, "history_after", "0")
    elif row is not None and row[0] == _OLD_FORMAT:
        database.create_function("row_sum", -1, row_checksum, deterministic=True)
        for table, columns in _CHECKSUM_COLUMNS.items():
            database.execute(f"ALTER TABLE {table} ADD COLUMN sum INTEGER")
            database.execute(f"UPDATE {table} SET sum = row_sum({', '.join(columns)})")
        _set_fact(database, "format", _FORMAT)
    database.execute("COMMIT")
