"""Each part on its own, as docs/services.md says: a server, all services, and machines make a cluster that works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pykai.dev.soak.controlplanes import free_port
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.lab.player import StoryWorkload
from pykai.lab.story import DEFAULT_STORY, JobEntry, job_object, read_story


@contextmanager
def running(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs on; it is asked to end afterwards, and must end well."""
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "pykai", *arguments], stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            code = process.wait(60)
    assert code == 0, log.read_text()


async def test_server_services_and_machines_are_a_cluster_with_nodes(tmp_path: Path) -> None:
    config = tmp_path / "config"
    port = str(free_port())
    of_scheduler = ("--listen-address", "", "--plugin-server-port", str(free_port()))
    with ExitStack() as parts:
        data = ("--data", str(tmp_path / "data"), "--port", port, "--kubeconfig", str(config))
        server = parts.enter_context(running(tmp_path / "server.log", "server", *data))
        while not config.exists():
            assert server.poll() is None, (tmp_path / "server.log").read_text()
            await asyncio.sleep(0.05)
        parts.enter_context(running(tmp_path / "all.log", "run", "all", "--kubeconfig", str(config), *of_scheduler))
        machines = ("run", "machines", "--kubeconfig", str(config))
        parts.enter_context(running(tmp_path / "machines.log", *machines))
        client = Client(connect(config))
        caches = Caches(client)
        nodes = caches.store(resources.NODES, dict)
        jobs = caches.store(resources.JOBS, StoryWorkload)
        await caches.start()
        expected = sum(each.count for each in read_story(DEFAULT_STORY).machines)
        await nodes.wait_until(lambda store: len(store) == expected, 60)
        await client.create(
            resources.JOBS, job_object(JobEntry(name="train", queue="default-queue", gpus=8, runs="1s"))
        )
        await jobs.wait_until(lambda store: any(job.ended and not job.failed for job in store.values()), 60)
        await caches.stop()
        await client.close()
