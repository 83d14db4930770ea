"""The endpoint: pages, checks, and addresses."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession, TCPConnector, web
from prometheus_client import Metric
from prometheus_client.registry import Collector

from pykai.observe.endpoint import CannotListen, CoalescedCall, Endpoint, split_address
from pykai.observe.metrics import Metrics


async def test_pages() -> None:
    make = Metrics("kai")
    make.gauge("depth", "how deep").set(1)
    wrong = "not yet"

    def ready() -> str:
        return wrong

    def broken() -> str:
        raise RuntimeError("oops")

    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    endpoint = Endpoint(
        "127.0.0.1:0",
        registry=make.registry,
        health={"loop": lambda: "", "odd": broken},
        readiness={"caches": ready},
        pages={"/hello": hello},
        unknown="no such page",
    )
    base = f"http://127.0.0.1:{await endpoint.start()}"
    try:
        async with ClientSession() as http:

            async def get(path: str) -> tuple[int, str]:
                async with http.get(base + path) as answer:
                    return answer.status, await answer.text()

            assert "kai_depth 1.0" in (await get("/metrics"))[1]
            assert await get("/readyz") == (503, "[-]caches: not yet\ncheck failed\n")
            wrong = ""
            assert await get("/readyz") == (200, "[+]caches ok\nok\n")
            status, text = await get("/healthz")
            assert status == 503
            assert "[+]loop ok" in text
            assert "[-]odd: the check itself failed: RuntimeError: oops" in text
            assert await get("/hello") == (200, "hello")
            assert await get("/else") == (404, "no such page")
    finally:
        await endpoint.stop()


async def test_many_concurrent_scrapes_cost_two_renderings() -> None:
    begun: list[int] = []
    go_on = asyncio.Event()

    async def make() -> int:
        begun.append(len(begun))
        await go_on.wait()
        return begun[-1]

    shared = CoalescedCall(make)
    first = [asyncio.create_task(shared.get()) for _ in range(100)]
    while not begun:
        await asyncio.sleep(0)
    later = [asyncio.create_task(shared.get()) for _ in range(100)]
    await asyncio.sleep(0)
    later[0].cancel()
    go_on.set()
    assert set(await asyncio.gather(*first)) == {0}
    assert set(await asyncio.gather(*later[1:])) == {1}
    assert begun == [0, 1]


async def test_a_failed_page_is_rendered_again_for_the_next_client() -> None:
    answers = iter([RuntimeError("no"), None])

    async def make() -> str:
        if (error := next(answers)) is not None:
            raise error
        return "made"

    shared = CoalescedCall(make)
    with pytest.raises(RuntimeError):
        await shared.get()
    assert await shared.get() == "made"


async def test_a_flood_of_scrapes_is_answered_without_starving_other_requests() -> None:
    make = Metrics("kai")
    looked = 0

    class Counted(Collector):
        def collect(self) -> list[Metric]:
            nonlocal looked
            looked += 1
            return []

    make.registry.register(Counted())
    looked = 0
    endpoint = Endpoint("127.0.0.1:0", registry=make.registry, health={"ping": str})
    base = f"http://127.0.0.1:{await endpoint.start()}"
    try:
        async with ClientSession(connector=TCPConnector(limit=0)) as http:

            async def get(path: str) -> int:
                async with http.get(base + path) as answer:
                    await answer.read()
                    return answer.status

            flood = [get("/metrics") for _ in range(300)] + [get("/healthz") for _ in range(100)]
            assert set(await asyncio.gather(*flood)) == {200}
    finally:
        await endpoint.stop()
    assert 1 <= looked < 150


@pytest.mark.parametrize(
    ("text", "address"),
    [(":8080", ("", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


@pytest.mark.parametrize("text", ["", "localhost", ":x", ":70000"])
def test_invalid_addresses_are_refused(text: str) -> None:
    with pytest.raises(CannotListen):
        split_address(text)


async def test_notices_are_listed_and_leave_a_service_ready() -> None:
    said = ["a.yaml: unknown plugin"]
    endpoint = Endpoint("127.0.0.1:0", readiness={"caches": lambda: ""}, notices={"configuration": lambda: said})
    port = await endpoint.start()
    try:
        async with ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                assert (answer.status, await answer.text()) == (
                    200,
                    "[+]caches ok\n[!]configuration: a.yaml: unknown plugin\nok\n",
                )
            said.clear()
            async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                assert await answer.text() == "[+]caches ok\nok\n"
    finally:
        await endpoint.stop()
