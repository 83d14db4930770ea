"""The endpoint: pages, checks, and addresses."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession, web

from pykai.observe.endpoint import CannotListen, Endpoint, split_address
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


@pytest.mark.parametrize(
    ("text", "address"),
    [(":8080", ("", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


@pytest.mark.parametrize("text", ["", "localhost", ":x", ":70000"])
def test_addresses_that_are_none(text: str) -> None:
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
