"""Records every change that watches show to a file, one line each.

The recorder is a separate process, so the recording continues whatever dies: it survives restarts of the API server
like any client. `invariants.check_recording` reads only the file.

Subtle: after a lost connection the recorder lists again and sees many changes at once, in no order. States between two
of them never existed, so all lines of a list but the last say `more`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any, TextIO

from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.kube.reflector import Reflector, WatchSelection
from pykai.kube.resources import BIND_REQUESTS, JOBS, NODES, POD_GROUPS, PODS, Resource
from pykai.kube.store import Change, Store

#: what is recorded
RECORDED_RESOURCES: tuple[Resource, ...] = (NODES, PODS, POD_GROUPS, BIND_REQUESTS, JOBS)
#: written into the file when the first lists are in
READY = "ready"


class RecordingStore(Store[dict[str, Any]]):
    """Objects of one kind, whose changes go to a file."""

    def __init__(self, resource: Resource, out: TextIO, began_s: float) -> None:
        super().__init__(resource, dict)
        self._out = out
        self._began_s = began_s
        #: lines of the list being read; None: changes come one by one
        self._list: list[dict[str, Any]] | None = None
        self.subscribe(self._changed)

    def begin_list(self) -> None:
        """See `watch.Sink`."""
        self._list = self._list or []
        super().begin_list()

    def end_list(self, resource_version: str) -> None:
        """See `watch.Sink`."""
        super().end_list(resource_version)
        lines, self._list = self._list or [], None
        for line in lines:
            line["at"] = time.monotonic() - self._began_s
        for line in lines[:-1]:
            line["more"] = True
        for line in lines:
            _write_line(self._out, line)

    def _changed(self, change: Change[dict[str, Any]]) -> None:
        at_s, plural = time.monotonic() - self._began_s, self.resource.plural
        line = {"at": at_s, "resource": plural, "key": change.key, "object": _without_managed_fields(change.new)}
        if self._list is None:
            _write_line(self._out, line)
        else:
            self._list.append(line)


async def record(client: Client, path: Path, stop: asyncio.Event) -> None:
    """Record until `stop` is set, or until the server rejects our credentials."""
    began_s = time.monotonic()
    with path.open("a", encoding="utf-8") as out:
        stores = [RecordingStore(resource, out, began_s) for resource in RECORDED_RESOURCES]
        tasks = [asyncio.create_task(Reflector(client, WatchSelection(each.resource), each).run()) for each in stores]
        stopping = asyncio.create_task(stop.wait())
        try:
            for store in stores:
                await store.synced.wait()
            _write_line(out, {"at": time.monotonic() - began_s, "resource": READY, "key": "", "object": None})
            ended, _ = await asyncio.wait((*tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in (*tasks, stopping):
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)


def _without_managed_fields(document: dict[Any, Any] | None) -> dict[Any, Any] | None:
    """Without managedFields: they are half of an object, and the checker does not read them."""
    if document is None or "managedFields" not in document.get("metadata", {}):
        return document
    metadata = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
    return {**document, "metadata": metadata}


def _write_line(out: TextIO, document: dict[str, Any]) -> None:
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
        await record(client, options.out, stop)
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(_main())
