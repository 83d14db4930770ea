"""Formats of what is kept or handed on: snapshots, plans, records, state files, recordings, stories, cases, CRDs."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import sqlite3
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path

import msgspec

from tests.frozen import program
from tests.frozen.paths import of_document, of_schema, of_type


def snapshot() -> list[str]:
    """The file of `/get-snapshot`: its keys, and the fields of the objects in it."""
    flags = program.read_flags({})
    packed = program.snapshot_zip(
        [], flags, {}, 0, resume={"n": "g"}, nominated_groups=["g"], usage={"q": (0.0, 0.0, 0.0)}, served_first=["g"]
    )
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        content = json.loads(archive.read(program.SNAPSHOT_ENTRY))
    lines = [f"entry {program.SNAPSHOT_ENTRY}", *of_document(content, maps=("pykai.resume", "pykai.usage"))]
    for key, kind in program.OBJECT_LISTS.items():
        lines += of_type(kind, f"rawObjects.{key}[]")
    return lines


def plan() -> list[str]:
    """The plan in the output of `kai replay --json`."""
    return of_type(program.Plan)


def records() -> list[str]:
    """ConfigMaps in which a scheduler keeps what the next one has to know."""
    shard = program.read_flags({}).shard
    kept = program.HandoverRecords(None, shard, "kai-scheduler")  # type: ignore[arg-type]
    text = program.encode_plan([program.PendingBind("pod", "uid", "node")])
    lines = [f"{kind} name {kept.name_of(kind, 'uid')}" for kind in _kinds()]
    lines.append(f"{program.BIND_PLAN_RECORD} text {text}")
    lines += [f"{program.FAILED_BINDS_RECORD} {line}" for line in of_type(program._FailedBindsRecord)]
    return lines


def _kinds() -> tuple[str, str]:
    return program.BIND_PLAN_RECORD, program.FAILED_BINDS_RECORD


def state() -> list[str]:
    """Files of the embedded API server, and the tables of its state."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)

        async def lived() -> None:
            server = await program.ApiServer.open(clock=program.Clock(), data=data)
            await server.close()

        asyncio.run(lived())
        files = sorted(path.name for path in data.iterdir() if not path.name.endswith(("-wal", "-shm")))
        lines = [f"file {name}" for name in files]
        for name in files:
            if name.endswith(".sqlite"):
                lines += _tables(data / name)
    return lines


def _tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        made = database.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        facts = database.execute("SELECT name, value FROM facts").fetchall()
    lines = [f"{kind} {name}: {' '.join(sql.split())}" for kind, name, sql in made]
    return lines + [f"fact {name} = {value if name == 'format' else '...'}" for name, value in facts]


def recordings() -> list[str]:
    """Lines that a soak writes, of what was seen and of memory."""
    out = io.StringIO()
    kept = program.RecordingStore(program.PODS, out, 0.0)
    raw = [json.dumps({"metadata": {"name": name, "namespace": "n", "uid": name}}).encode() for name in "ab"]
    kept.begin_list()
    kept.add_listed([msgspec.Raw(each) for each in raw])
    kept.end_list("1")
    lines = [f"recording {line}" for text in out.getvalue().splitlines() for line in of_document(json.loads(text))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory"

        async def sampled() -> None:
            sampling = asyncio.create_task(program.MemorySampler(path, lambda: {"part": os.getpid()}).run())
            while not (path.exists() and path.read_text(encoding="utf-8")):
                await asyncio.sleep(0)
            sampling.cancel()

        asyncio.run(sampled())
        text = path.read_text(encoding="utf-8").splitlines()[0]
    return sorted({*lines, *(f"memory {line}" for line in of_document(json.loads(text)))})


def stories() -> list[str]:
    """The file of a story, and a line of recorded cases."""
    return [*(f"story {line}" for line in of_type(program.Story)), *(f"case {line}" for line in of_type(program.Case))]


def definitions() -> list[str]:
    """Custom resources: a hash of each definition, and its fields."""
    lines = []
    for definition in program.custom_resource_definitions():
        name = definition["metadata"]["name"]
        digest = hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()
        lines.append(f"{name} sha256 {digest}")
        for version in definition["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            lines += [f"{name} {version['name']} {path}" for path in of_schema(schema)]
    return lines
