"""State on disk: an SQLite file that has every write before its answer goes out.

Writes are appended to a batch; a thread of its own takes the batch, commits it in one transaction and reports back,
while the next batch fills.  So the cost of reaching the disk is shared by all writes of that moment, and a kill at any
instant loses nothing that was answered or shown to a watch.

The file holds the objects, the last revision, and the events of the recent past, from which watches of before a
restart resume.  Its format is ours alone: one table of objects, one of history, one of facts.

Subtle: the store goes on with what is not yet on disk, so later writes may build on it; they are later in the same
order, and a failure of the disk fails them all.  After such a failure the server refuses to write.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pykai.apiserver.definitions import CRDS, kinds_of
from pykai.apiserver.kinds import Kind, Registry, StoreKey
from pykai.apiserver.metadata import fields_of
from pykai.apiserver.storage import DELETED, HISTORY_EVENTS, Event, Record, Storage, decode
from pykai.kube import errors

FILE: Final = "state.sqlite"
_FORMAT: Final = "1"
#: history rows that are dropped at once when there are too many
_TRIM_EVERY: Final = 4096
_log = logging.getLogger(__name__)

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    grp TEXT NOT NULL, plural TEXT NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL, raw BLOB NOT NULL,
    PRIMARY KEY (grp, plural, key));
CREATE TABLE IF NOT EXISTS history (
    revision INTEGER PRIMARY KEY, grp TEXT NOT NULL, plural TEXT NOT NULL, key TEXT NOT NULL, type TEXT NOT NULL,
    raw BLOB NOT NULL, old BLOB);
"""


class StateError(errors.KubeError):
    """The file cannot be used; the text says why and what to do."""


class SqliteJournal:
    """Takes writes to disk, in order, and has them published."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives its side files the mode of this one.
        path.touch(mode=0o600)
        self._database = _open(path)
        self._condition = threading.Condition()
        self._batch: list[tuple[StoreKey, Event]] = []
        self._closing = False
        self._failed: Exception | None = None
        self._since_trim = 0
        self._storage: Storage | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def restore(self) -> Storage:
        """The store as it was left, with this journal behind it."""
        row = self._database.execute("SELECT value FROM facts WHERE name = 'revision'").fetchone()
        storage = Storage(self, int(row[0]) if row is not None else 1)
        # What field selectors ask for depends on the kind, so the definitions of kinds come first.
        registry = Registry()
        self._load(storage, CRDS, registry)
        for record in storage.collection(CRDS).records.values():
            try:
                for kind in kinds_of(record.object()):
                    registry.add(kind)
            except Exception:
                _log.exception("the stored CustomResourceDefinition %s cannot be read", record.key)
        for store in self._database.execute("SELECT DISTINCT grp, plural FROM objects").fetchall():
            if store != CRDS:
                self._load(storage, store, registry)
        self._load_history(storage, registry)
        self._storage = storage
        return storage

    def start(self) -> None:
        """Begin to commit; to be called on the event loop."""
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

    def append(self, store: StoreKey, event: Event) -> None:
        """Take one write."""
        if self._failed is not None:
            raise self._failure()
        with self._condition:
            self._batch.append((store, event))
            if len(self._batch) == 1:
                self._condition.notify()

    def _failure(self) -> errors.ServerFailed:
        text = f"the state file {self._path} cannot be written: {self._failed}; mend that and start the server again"
        return errors.ServerFailed(500, "InternalError", text)

    def _load(self, storage: Storage, store: StoreKey, registry: Registry) -> None:
        rows = self._database.execute(
            "SELECT key, revision, raw FROM objects WHERE grp = ? AND plural = ? ORDER BY key", store
        )
        kind = registry.stored(store)
        storage.load(store, [_record(kind, key, revision, raw) for key, revision, raw in rows])

    def _load_history(self, storage: Storage, registry: Registry) -> None:
        """The recent past; what is older than its first event is not known any more."""
        (begins,) = self._database.execute("SELECT min(revision) FROM history").fetchone()
        row = self._database.execute("SELECT value FROM facts WHERE name = 'history_after'").fetchone()
        known_after = int(row[0]) if row is not None else 0
        if begins is None:
            known_after = storage.revision
        storage.known_after = known_after
        for collection in storage.collections():
            collection.known_after = known_after
        rows = self._database.execute(
            "SELECT revision, grp, plural, key, type, raw, old FROM history ORDER BY revision"
        )
        for revision, group, plural, key, type_, raw, old in rows:
            kind = registry.stored((group, plural))
            past = _record(kind, key, revision, old) if old is not None else None
            event = Event(type_, revision, _record(kind, key, revision, raw), past)
            storage.collection((group, plural)).recall(event)

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
                self._failed = error
                _log.critical("the state file %s cannot be written: %s", self._path, error)
                self._report(self._fail)
                return
            self._report(lambda batch=batch: self._publish(batch))  # type: ignore[misc]

    def _report(self, call: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(call)

    def _publish(self, batch: list[tuple[StoreKey, Event]]) -> None:
        storage = self._storage
        if storage is not None:
            for store, event in batch:
                storage.publish(store, event)

    def _fail(self) -> None:
        if self._storage is not None:
            self._storage.fail(self._failure())

    def _commit(self, batch: list[tuple[StoreKey, Event]]) -> None:
        database = self._database
        final: dict[tuple[str, str, str], Event] = {}
        history = []
        for (group, plural), event in batch:
            record, old = event.record, event.old
            final[group, plural, record.key] = event
            past = old.raw if old is not None else None
            history.append((event.revision, group, plural, record.key, event.type, record.raw, past))
        gone = [place for place, event in final.items() if event.type == DELETED]
        kept = [(*place, e.revision, e.record.raw) for place, e in final.items() if e.type != DELETED]
        last = batch[-1][1].revision
        with database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", kept)
            database.executemany("DELETE FROM objects WHERE grp = ? AND plural = ? AND key = ?", gone)
            database.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", history)
            database.execute("INSERT OR REPLACE INTO facts VALUES ('revision', ?)", (str(last),))
            self._since_trim += len(batch)
            if self._since_trim >= _TRIM_EVERY:
                self._since_trim = 0
                after = last - HISTORY_EVENTS
                database.execute("DELETE FROM history WHERE revision <= ?", (after,))
                database.execute("INSERT OR REPLACE INTO facts VALUES ('history_after', ?)", (str(max(0, after)),))


def _record(kind: Kind | None, key: str, revision: int, raw: bytes) -> Record:
    obj = decode(raw)
    record = Record(key, revision, bytes(raw), obj, fields_of(kind)(obj) if kind is not None else {})
    record.obj = None
    return record


def _open(path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        # One server per file: a second one would serve an old state.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.executescript(_TABLES)
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT OR IGNORE INTO facts VALUES ('format', ?)", (_FORMAT,))
        database.execute("COMMIT")
        (found,) = database.execute("SELECT value FROM facts WHERE name = 'format'").fetchone()
    except sqlite3.OperationalError as error:
        raise StateError(
            f"{path} cannot be opened: {error}; is another server using it, and may this user write there?"
        ) from error
    except sqlite3.DatabaseError as error:
        raise StateError(f"{path} is no state of this server ({error}); move it away or name another folder") from error
    if found != _FORMAT:
        raise StateError(f"{path} has format {found}, this server reads format {_FORMAT}; move it away")
    return database
