"""State on disk: what a restart finds, what a kill leaves, what a broken file says.

This is about the embedded server's own insides, not about Kubernetes.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pykai.kube.clock import Clock
from pykai.lab.apiserver import sqlitejournal
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.apiserver.sqlitejournal import STATE_FILE, StateError
from tests.lab.apiserver.apiclient import Api, config_map, definition, owned_by, pod, running_server, widget


async def test_a_restarted_server_goes_on(tmp_path: Path) -> None:
    async with running_server(data=tmp_path) as (_, api):
        created = await api.create("pods", pod("a", labels={"x": "y"}))
        await api.bind("a", "n1")
        await api.create("configmaps", config_map("gone"))
        await api.delete("configmaps", "gone")
        last = (await api.list("pods")).meta["resourceVersion"]
    async with running_server(data=tmp_path) as (_, api):
        again = await api.get("pods", "a")
        assert again.meta["uid"] == created.meta["uid"]
        assert (await api.list("pods", fieldSelector="spec.nodeName=n1", labelSelector="x=y")).names == ["a"]
        assert (await api.get("configmaps", "gone")).code == 404
        assert (await api.list("pods")).meta["resourceVersion"] == last
        newer = await api.create("pods", pod("b"))
        assert int(newer.meta["resourceVersion"]) > int(last)


async def test_a_watch_from_before_a_restart_resumes(tmp_path: Path) -> None:
    async with running_server(data=tmp_path) as (_, api):
        then = (await api.create("configmaps", config_map("a"))).meta["resourceVersion"]
        await api.create("configmaps", config_map("b", labels={"x": "y"}))
        await api.patch("configmaps", "b", {"metadata": {"labels": None}})
        await api.delete("configmaps", "a")
    async with running_server(data=tmp_path) as (_, api):
        async with api.watch("configmaps", resourceVersion=then) as watch:
            await api.create("configmaps", config_map("c"))
            assert await watch.take(4) == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a"), ("ADDED", "c")]
        async with api.watch("configmaps", resourceVersion=then, labelSelector="x=y") as watch:
            assert await watch.take(2) == [("ADDED", "b"), ("DELETED", "b")]


async def test_a_watch_from_a_forgotten_past_gets_410(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlitejournal, "_TRIM_EVERY", 1)
    monkeypatch.setattr(sqlitejournal, "HISTORY_EVENTS", 2)
    async with running_server(data=tmp_path) as (_, api):
        then = (await api.create("configmaps", config_map("a"))).meta["resourceVersion"]
        for number in range(5):
            await api.patch("configmaps", "a", {"data": {"n": str(number)}})
    async with running_server(data=tmp_path) as (_, api):
        for plural in ("configmaps", "secrets"):
            async with api.watch(plural, resourceVersion=then) as watch:
                type_, obj = await watch.next()
                assert (type_, obj["code"]) == ("ERROR", 410)


async def test_custom_kinds_and_their_objects_survive(tmp_path: Path) -> None:
    selectable = definition(selectableFields=[{"jsonPath": ".spec.size"}])
    async with running_server(data=tmp_path) as (_, api):
        await api.create("customresourcedefinitions", selectable)
        await api.create("widgets", widget("a", size=1))
        await api.create("widgets", widget("b", size=2))
    async with running_server(data=tmp_path) as (_, api):
        assert (await api.list("widgets", fieldSelector="spec.size=2")).names == ["b"]
        assert (await api.create("widgets", widget("c", size=-1))).code == 422


async def test_garbage_left_by_a_stop_is_collected(tmp_path: Path) -> None:
    async with running_server(data=tmp_path) as (server, api):
        owner = (await api.create("configmaps", config_map("owner"))).body
        await api.create("configmaps", config_map("child", ownerReferences=owned_by(owner)))
        await server.garbage_collector.stop()
        await api.delete("configmaps", "owner")
        assert (await api.get("configmaps", "child")).code == 200
    async with running_server(data=tmp_path) as (_, api):
        await api.gone("configmaps", "child")


async def test_nothing_is_answered_or_shown_before_it_is_on_disk(tmp_path: Path) -> None:
    server = await ApiServer.open(clock=Clock(), data=tmp_path)
    api = Api(server.transport())
    journal = server.storage.journal
    assert isinstance(journal, sqlitejournal.SqliteJournal)
    try:
        async with api.watch("configmaps") as watch:
            with journal._condition:
                # The thread that commits cannot go on while the test holds its lock.
                writing = asyncio.create_task(api.create("configmaps", config_map("a")))
                reading = asyncio.create_task(api.get("configmaps", "a"))
                listing = asyncio.create_task(api.list("configmaps"))
                hearing = asyncio.create_task(watch.next())
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not any(task.done() for task in (writing, listing, hearing))
                assert not reading.done()
            assert (await writing).code == 201
            assert (await reading).code == 200
            assert (await listing).names == ["a"]
            assert (await hearing)[0] == "ADDED"
    finally:
        await server.close()


async def test_installed_roles_are_brought_up_to_date_and_what_belongs_to_users_is_not(tmp_path: Path) -> None:
    def installed(verb: str, value: int) -> list[dict[str, Any]]:
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
        queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "spec": {"priority": value}}
        return [{**role, "metadata": {"name": "r"}}, {**queue, "metadata": {"name": "q"}}]

    async with running_server(data=tmp_path, objects=installed("get", 1)):
        pass
    async with running_server(data=tmp_path, objects=installed("patch", 2)) as (_, api):
        role = await api.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/r")
        assert role.body["rules"][0]["verbs"] == ["patch"]
        assert (await api.get("queues", "q")).body["spec"] == {"priority": 1}


async def test_one_file_has_one_server(tmp_path: Path) -> None:
    async with running_server(data=tmp_path):
        monkey = sqlite3.connect(tmp_path / STATE_FILE, timeout=0)
        with pytest.raises(sqlite3.OperationalError):
            monkey.execute("SELECT * FROM facts").fetchall()
        monkey.close()


async def test_a_file_that_is_none_of_ours_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_bytes(b"this is no database, it is a text" * 100)
    with pytest.raises(StateError, match="move it away"):
        await ApiServer.open(clock=Clock(), data=tmp_path)


async def test_a_disk_that_fails_fails_the_writes(tmp_path: Path) -> None:
    async with running_server(data=tmp_path) as (server, api):
        journal = server.storage.journal
        assert isinstance(journal, sqlitejournal.SqliteJournal)
        journal._database.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
        answer = await api.create("configmaps", config_map("a"))
        assert answer.code == 500
        assert "cannot be written" in answer.body["message"]
        assert (await api.create("configmaps", config_map("b"))).code == 500
        assert (await api.get("configmaps", "a")).code == 500


_WRITER = """
import asyncio, sys
from pathlib import Path
from typing import Any
from pykai.lab.apiserver.server import ApiServer
from pykai.kube.clock import Clock
from pykai.kube.transport import Request

async def main():
    server = await ApiServer.open(clock=Clock(), data=Path(sys.argv[1]))
    transport = server.transport()
    async def write(worker):
        number = 0
        while True:
            name = f"w{worker}-{number}"
            body = ('{"metadata":{"name":"%s"}}' % name).encode()
            answer = await transport.send(Request("POST", "/api/v1/namespaces/default/configmaps", {}, body))
            assert answer.status == 201
            print(name, flush=True)
            number += 1
    await asyncio.gather(*(write(worker) for worker in range(4)))

asyncio.run(main())
"""


async def test_a_killed_server_keeps_every_answered_write(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    answered = [process.stdout.readline().strip() for _ in range(60)]
    process.send_signal(signal.SIGKILL)
    answered += [line.strip() for line in process.stdout.read().split("\n")[:-1]]
    process.wait()
    async with running_server(data=tmp_path) as (_, api):
        stored = set((await api.list("configmaps")).names)
        assert set(answered) <= stored
        assert len(stored) - len(answered) <= 4


async def test_secrets_of_the_folder_are_private(tmp_path: Path) -> None:
    async with running_server(data=tmp_path) as (server, _):
        await server.serve()
        server.kubeconfig(tmp_path / "kubeconfig")
        for name in (STATE_FILE, "tokens.json", "ca.key", "kubeconfig"):
            assert (tmp_path / name).stat().st_mode & 0o077 == 0, name
        tokens = json.loads((tmp_path / "tokens.json").read_text())
        pem = server.authority.pem
    async with running_server(data=tmp_path) as (server, _):
        assert server.tokens.tokens == tokens
        assert server.authority.pem == pem
