"""Writes everything that a watch shows to a file, one line a change, and does nothing else.

The recorder is a process of its own, so that whatever dies, the recording goes on: it survives restarts of the API
server like any client.  `checking.check` reads only the file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.kube.resources import BIND_REQUESTS, JOBS, NODES, POD_GROUPS, PODS, Resource
from pykai.kube.store import Change

#: what is recorded
RECORDED: tuple[Resource, ...] = (NODES, PODS, POD_GROUPS, BIND_REQUESTS, JOBS)
#: written into the file when the first lists are in
READY = "ready"


async def record(caches: Caches, path: Path, stop: asyncio.Event) -> None:
    """Record until told to stop."""
    began_s = time.monotonic()
    with path.open("a", encoding="utf-8") as out:
        stores = [caches.store(resource, dict) for resource in RECORDED]
        for resource, store in zip(RECORDED, stores, strict=True):
            store.subscribe(partial(_write, out, began_s, resource.plural))
        await caches.start()
        await caches.synced()
        _line(out, {"at": time.monotonic() - began_s, "resource": READY, "key": "", "object": None})
        await stop.wait()
        await caches.stop()


def _write(out: TextIO, began_s: float, plural: str, change: Change[dict[Any, Any]]) -> None:
    _line(out, {"at": time.monotonic() - began_s, "resource": plural, "key": change.key, "object": _plain(change.new)})


def _plain(document: dict[Any, Any] | None) -> dict[Any, Any] | None:
    """Without the notes of the server on who wrote which field: half of an object, and nobody reads them."""
    if document is None or "managedFields" not in document.get("metadata", {}):
        return document
    metadata = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
    return {**document, "metadata": metadata}


def _line(out: TextIO, document: dict[str, Any]) -> None:
    out.write(json.dumps(document, separators=(",", ":")) + "\n")
    out.flush()


async def _main() -> None:
    parser = argparse.ArgumentParser(description="Record what a watch shows until told to stop.")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = Client(connect(options.kubeconfig))
    try:
        await record(Caches(client), options.out, stop)
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(_main())
