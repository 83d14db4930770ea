"""Expressions of dashboards and alerts, evaluated by a real Prometheus that reads `kai up` (`make test-prometheus`)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pykai.lab.cluster import LabCluster, LabOptions
from pykai.lab.story import parse_story
from pykai.operator.install import installation
from pykai.operator.monitoring.files import monitoring_files
from tests.operator.monitoring.alertcases import CASES, Case, rule_test
from tests.operator.monitoring.expressions import all_expressions
from tests.scheduler.usage.realprometheus import real_prometheus

pytestmark = pytest.mark.prometheus

#: work that shares, waits and is reclaimed
STORY = """
title: Two teams
machines: [{name: h100, count: 2, gpus: 8, memoryMiB: 81559}]
queues: [{name: vision, gpu: {quota: 8}}, {name: language, gpu: {quota: 8}}]
steps:
- at: 0s
  jobs:
  - {name: train, queue: vision, pods: 4, minimum: 1, gpus: 4, runs: 10m}
- at: 3s
  jobs:
  - {name: tune, queue: language, pods: 1, gpus: 4, runs: 10m}
  - {name: wait, queue: vision, pods: 2, gpus: 8, runs: 10m}
  services:
  - {name: chat, queue: language, replicas: 2, fraction: 0.25}
"""
#: series without which a dashboard would be empty
EXPECTED = {
    "kai-queues: GPUs in use 1",
    "kai-queues: Nodes by free GPUs 0",
    "kai-queues: Allocated GPUs 0",
    "kai-queues: Quota 0",
    "kai-queues: Fair share 0",
    "kai-queues: Requested GPUs 0",
    "kai-queues: Pods that found no place 0",
    "kai-queues: Wait until the bind 0",
    "kai-scheduler: Cycle 1",
    "kai-scheduler: Cycles 0",
    "kai-scheduler: Actions 0",
    "kai-scheduler: Plugins 0",
    "kai-scheduler: PodGroups that got places 0",
    "kai-scheduler: Evicted pods 0",
    "kai-scheduler: Sets of victims 0",
    "kai-scheduler: Searches for victims 0",
    "kai-services: Bind attempts 0",
    "kai-services: Reservation pods 0",
    "kai-services: Controllers 0",
    "kai-services: Objects that wait for a controller 0",
}
#: those of them whose series begin at 0
RISING = {"kai-scheduler: Cycles 0", "kai-scheduler: Evicted pods 0", "kai-services: Bind attempts 0"}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "kai.yaml"
    path.write_text(monitoring_files()["rules/kai.yaml"], encoding="utf-8")
    return path


def test_promtool_takes_the_rules(rules: Path) -> None:
    promtool = Path(os.environ["KAI_PROMETHEUS"]) / "promtool"
    checked = subprocess.run([promtool, "check", "rules", str(rules)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.alert}: {each.title}")
def test_an_alert_fires_when_it_must_and_only_then(case: Case, rules: Path, tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(json.dumps(rule_test(case, str(rules))), encoding="utf-8")
    promtool = Path(os.environ["KAI_PROMETHEUS"]) / "promtool"
    tested = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def settings(port: int, rules: Path) -> str:
    return (
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{rules}]\n"
        f"scrape_configs: [{{job_name: kai, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n"
    )


async def asked(session: aiohttp.ClientSession, address: str, expression: str) -> list[Any]:
    """The series of an expression; fails where Prometheus has an error."""
    async with session.get(f"{address}/api/v1/query", params={"query": expression}) as answer:
        document = await answer.json()
    assert document["status"] == "success", f"{expression}: {document}"
    series: list[Any] = document["data"]["result"]
    return series


async def until_answered(session: aiohttp.ClientSession, address: str, expressions: Iterable[str]) -> None:
    """Wait until each has had a series."""
    missing = set(expressions)
    while missing:
        for expression in sorted(missing):
            if await asked(session, address, expression):
                missing.discard(expression)
        await asyncio.sleep(0.2)


async def test_every_expression_is_evaluated_and_the_main_ones_have_data(rules: Path, tmp_path: Path) -> None:
    cluster = await LabCluster.start(
        LabOptions(story=parse_story(STORY), objects=installation(), endpoint_address="127.0.0.1:0")
    )
    assert cluster.endpoint is not None
    stop = asyncio.Event()
    expressions = all_expressions()
    with ExitStack() as stack:
        made = real_prometheus(tmp_path, None, settings(cluster.endpoint.port, rules))
        # It starts in a thread: it reads from this loop.
        address = await asyncio.to_thread(stack.enter_context, made)
        async with asyncio.timeout(120), aiohttp.ClientSession() as session:
            # What happened before the first sample is in no rate.
            await until_answered(session, address, ["kai_evicted_pods_total"])
            running = asyncio.create_task(cluster.run(stop))
            try:
                wanted = (f"({expressions[name]}){' > 0' if name in RISING else ''}" for name in EXPECTED)
                await until_answered(session, address, wanted)
                for expression in expressions.values():
                    await asked(session, address, expression)
                async with session.get(f"{address}/api/v1/metadata") as answer:
                    types = {name: each[0]["type"] for name, each in (await answer.json())["data"].items()}
                # KAI's counters that do not end in `_total`.
                assert types["kai_podgroups_scheduled_by_action"] == types["kai_total_preemption_attempts"] == "counter"
                assert "unknown" not in types.values()
                async with session.get(f"{address}/api/v1/rules") as answer:
                    groups = (await answer.json())["data"]["groups"]
                wrong = [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")]
                assert wrong == []
            finally:
                stop.set()
                await running
