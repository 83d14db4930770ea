"""Usage from a Prometheus over HTTP; a small server plays it here, `test_real_prometheus.py` has a real one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from pykai.api.duration import HOUR, MILLISECOND, SECOND
from pykai.api.timestamp import parse_timestamp
from pykai.core.queueing.usagehistory import TUMBLING, UsageAmounts, UsageWindow
from pykai.scheduler.config.usagedb import UsageConfig
from pykai.scheduler.usage.prometheus import PrometheusUsage
from pykai.scheduler.usage.promql import UsageError
from tests.scheduler.usage.fakeprometheus import CAPACITY, FakePrometheus, fake_prometheus

NOW = parse_timestamp("2026-03-02T12:00:00Z")


def config(fake: FakePrometheus, **fields: Any) -> UsageConfig:
    return replace(UsageConfig("prometheus", fake.address), **fields)


async def fetch(fake: FakePrometheus, **fields: Any) -> dict[str, UsageAmounts]:
    return dict(await PrometheusUsage(config(fake, **fields)).fetch(NOW))


async def failure(fake: FakePrometheus, **fields: Any) -> str:
    with pytest.raises(UsageError) as caught:
        await fetch(fake, **fields)
    return str(caught.value)


async def test_q339_usage_is_what_queues_had_of_the_cluster() -> None:
    """queues:Q-335, Q-338 to Q-340: capacities first, all at the same instant."""
    vectors = {
        **CAPACITY,
        "cpu_cores": [("a", "25")],
        "memory_bytes": [("a", "500"), ("b", "100")],
        "gpus": [("b", "1")],
    }
    async with fake_prometheus(vectors=vectors) as fake:
        assert await fetch(fake) == {"a": (0.25, 0.5, 0.0), "b": (0.0, 0.1, 0.1)}
        assert ["capacity" in query for query in fake.queries] == [True] * 3 + [False] * 3
        assert {(method, time) for method, _, time, _ in fake.asked} == {("POST", f"{NOW // SECOND}.000")}


async def test_q340_without_any_capacity_the_fetch_fails() -> None:
    """queues:Q-340: and says what to look at."""
    async with fake_prometheus(vectors={"gpus": [("a", "1")]}) as fake:
        text = await failure(fake)
        assert "no data returned for the capacity of the cluster" in text
        assert "kube-state-metrics" in text
        assert len(fake.queries) == 3


async def test_q344_a_cluster_without_gpus_has_usage_of_the_rest() -> None:
    """queues:Q-344: nothing is asked about what it does not have."""
    vectors = {**CAPACITY, "nvidia_com_gpu": [], "cpu_cores": [("a", "25")], "gpus": [("a", "1")]}
    async with fake_prometheus(vectors=vectors) as fake:
        assert await fetch(fake) == {"a": (0.25, 0.0, 0.0)}
        assert not any("allocated_gpus" in query for query in fake.queries)


async def test_q340_queues_without_data_used_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """queues:Q-340: a warning, once."""
    async with fake_prometheus(vectors=CAPACITY) as fake:
        usage = PrometheusUsage(config(fake))
        for _ in range(3):
            assert await usage.fetch(NOW) == {}
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "no data returned for the cpu of queues" in said[0]


async def test_warnings_of_the_server_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_prometheus(vectors={**CAPACITY, "kai_queue": [("a", "1")]}, warnings=["half the data"]) as fake:
        assert await fetch(fake)
    assert "half the data" in caplog.text


async def test_q341_a_window_that_has_not_begun_has_no_usage() -> None:
    """queues:Q-341, case U3: nothing is asked."""
    async with fake_prometheus() as fake:
        assert await fetch(fake, window=UsageWindow(TUMBLING, HOUR, NOW + HOUR)) == {}
        assert fake.asked == []


async def test_a_server_below_a_path_that_takes_no_post() -> None:
    async with fake_prometheus("/monitoring", vectors={**CAPACITY, "gpus": [("a", "1")]}, posts=False) as fake:
        assert await fetch(fake) == {"a": (0.0, 0.0, 0.1)}
        assert {method for method, *_ in fake.asked} == {"GET"}


# What goes wrong


async def test_an_error_of_the_server_is_shown_with_the_query() -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"status": "error", "error": 'unknown function "summ"'}, status=422)

    async with fake_prometheus(answer=refuse) as fake:
        text = await failure(fake, capacity_metrics=("summ(x)", "b", "c"))
    assert text.startswith(f"Prometheus at {fake.address}: answered 422 to the query sum_over_time((summ(x))[")
    assert text.endswith('unknown function "summ"')


async def test_a_server_that_is_no_prometheus_is_refused() -> None:
    async def greet(_: web.Request) -> web.Response:
        return web.Response(text="<html>welcome</html>")

    async with fake_prometheus(answer=greet) as fake:
        assert "answered 200" in await failure(fake)


async def test_an_answer_without_end_is_cut_off() -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(40):
            await answer.write(b" " * (1 << 20))
        return answer

    async with fake_prometheus(answer=flood) as fake:
        assert "more than 16 MiB" in await failure(fake)


async def test_the_time_limit_is_that_of_the_configuration() -> None:
    """queues:14.2 usageQueryTimeout"""

    async with fake_prometheus() as fake:

        async def hang(_: web.Request) -> web.Response:
            await fake.ending.wait()
            return web.Response()

        fake.answer = hang
        text = await failure(fake, query_timeout_ns=50 * MILLISECOND)
    assert text == f"Prometheus at {fake.address} did not answer within 50ms (usageQueryTimeout)"


async def test_a_server_that_is_not_there_is_named() -> None:
    async with fake_prometheus() as fake:
        pass
    assert f"Prometheus at {fake.address} cannot be reached" in await failure(fake)


async def test_a_password_is_sent_and_not_shown() -> None:
    async with fake_prometheus(vectors={**CAPACITY, "gpus": [("a", "1")]}) as fake:
        address = fake.address.replace("http://", "http://kai:secret@")
        assert await PrometheusUsage(UsageConfig("prometheus", address)).fetch(NOW)
        assert all(authorization.startswith("Basic ") for *_, authorization in fake.asked)
    with pytest.raises(UsageError) as caught:
        await PrometheusUsage(UsageConfig("prometheus", address)).fetch(NOW)
    assert "secret" not in str(caught.value)


async def test_the_address_may_stand_in_the_environment() -> None:
    """queues:14.2 connectionStringEnvVar: it may be empty, which a fetch says."""
    async with fake_prometheus(vectors={**CAPACITY, "gpus": [("a", "1")]}) as fake:
        variable = UsageConfig("prometheus", connection_variable="USAGE_URL")
        assert await PrometheusUsage(variable, {"USAGE_URL": fake.address}).fetch(NOW) == {"a": (0.0, 0.0, 0.1)}
        for environment in ({}, {"USAGE_URL": ""}):
            with pytest.raises(UsageError, match=r"USAGE_URL \(connectionStringEnvVar\) is empty"):
                await PrometheusUsage(variable, environment).fetch(NOW)


@pytest.mark.parametrize("address", ["prometheus:9090", "ftp://prometheus", "http://", "http://[", "/metrics"])
async def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"connectionString is not an address such as http://prometheus:9090"):
        await PrometheusUsage(UsageConfig("prometheus", address)).fetch(NOW)
