"""A configuration file that is not fully in use is reported: in the log, as an event, as a metric, on `/readyz`."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest
from aiohttp import ClientSession

from pykai.scheduler.config.configuration import ConfigurationError
from pykai.scheduler.service import Scheduler
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster

NEWER = "tiers: [{plugins: [{name: predicates}, {name: proportion}, {name: quantumorder}]}]\n"


async def pages(scheduler: Scheduler) -> tuple[str, str]:
    """The bodies of `/readyz` and `/metrics` of a ready scheduler."""
    endpoint = scheduler.metrics_endpoint("127.0.0.1:0")
    port = await endpoint.start()
    try:
        async with ClientSession() as http:
            found = []
            for page in ("readyz", "metrics"):
                async with http.get(f"http://127.0.0.1:{port}/{page}") as answer:
                    assert answer.status == 200, await answer.text()
                    found.append(await answer.text())
            return found[0], found[1]
    finally:
        await endpoint.stop()


async def at_work(lab: SchedulerCluster) -> None:
    """Wait until the scheduler has run a cycle."""
    await lab.node("a", gpus=1)
    await lab.gang("job", pods=1, gpu=1)
    await lab.until_bound("job", 1)


async def test_cyc_3_an_unknown_plugin_is_skipped_and_reported_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """cycle:CYC-3"""
    file = tmp_path / "scheduler.yaml"
    file.write_text(NEWER)
    async with scheduler_cluster() as lab:
        async with lab.scheduler(scheduler_conf=str(file), namespace="kai-scheduler") as scheduler:
            await at_work(lab)
            ready, metrics = await pages(scheduler)
            assert "[!]configuration: scheduler configuration: tiers[0].plugins[2]: unknown plugin" in ready
            assert "kai_configuration_problems 1.0" in metrics
            assert "unknown plugin 'quantumorder'" in await lab.wait_for_event("InvalidConfiguration", "kai-scheduler")
        errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert any("quantumorder" in line for line in errors)


async def test_a_bad_file_at_reload_keeps_the_last_good_one_and_is_reported_until_fixed(tmp_path: Path) -> None:
    """cycle:CFG-1"""
    file = tmp_path / "scheduler.yaml"
    file.write_text("actions: allocate\n")
    async with scheduler_cluster() as lab, lab.scheduler(scheduler_conf=str(file)) as scheduler:
        await at_work(lab)
        for at, text in enumerate(("actions: alocate, reclaim\n", "actions: [", "profile: kubernets\n")):
            file.write_text(text)
            os.utime(file, (at, at))
            await scheduler.loop.cycle()
            assert list(scheduler.loop.policy.actions) == ["allocate"]
            ready, metrics = await pages(scheduler)
            assert f"[!]configuration: {file}: " in ready
            assert "the last good configuration stays in use" in ready
            assert "kai_configuration_problems 1.0" in metrics
        file.unlink()
        await scheduler.loop.cycle()
        assert "cannot be read" in (await pages(scheduler))[0]
        file.write_text("actions: allocate, reclaim\n")
        await scheduler.loop.cycle()
        assert list(scheduler.loop.policy.actions) == ["allocate", "reclaim"]
        ready, metrics = await pages(scheduler)
        assert "[!]" not in ready
        assert "kai_configuration_problems 0.0" in metrics


async def test_a_file_that_is_put_back_as_it_was_is_in_use(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("actions: allocate\n")
    async with scheduler_cluster() as lab, lab.scheduler(scheduler_conf=str(file)) as scheduler:
        await at_work(lab)
        for at, text in enumerate(("actions: [", "actions: allocate\n")):
            file.write_text(text)
            os.utime(file, (at, at))
            await scheduler.loop.cycle()
        assert "[!]" not in (await pages(scheduler))[0]


@pytest.mark.skipif(socket.gethostname() != socket.gethostname().lower(), reason="this machine's name is no pod's")
async def test_in_a_pod_the_event_is_about_that_pod(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("colour: red\n")
    async with scheduler_cluster() as lab:
        own = await lab.pod(socket.gethostname().lower(), "", schedulerName="default-scheduler")
        async with lab.scheduler(scheduler_conf=str(file), namespace="default"):
            await lab.wait_for_event("InvalidConfiguration", own["metadata"]["name"])
        (event,) = [each for each in lab.events.values() if each["reason"] == "InvalidConfiguration"]
        assert event["involvedObject"]["uid"] == own["metadata"]["uid"]
        assert "colour: unknown key" in event["message"]


@pytest.mark.parametrize("text", [NEWER, "tiers: [{plugins: [{name: proportion, arguments: {kvalue: 1}}]}]"])
async def test_strict_does_not_start_with_what_would_be_skipped(tmp_path: Path, text: str) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    async with scheduler_cluster() as lab:
        with pytest.raises(ConfigurationError, match=r"scheduler\.yaml: .*unknown"):
            lab.make_scheduler(scheduler_conf=str(file), strict="true")


async def test_a_missing_file_is_named() -> None:
    async with scheduler_cluster() as lab:
        with pytest.raises(
            ConfigurationError, match=r"--scheduler-conf: /nowhere/x\.yaml cannot be read: No such file"
        ):
            lab.make_scheduler(scheduler_conf="/nowhere/x.yaml")
