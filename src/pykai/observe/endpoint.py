"""HTTP for operators: `/metrics`, `/healthz`, `/readyz`, and further pages of a service.

`Endpoint` listens on an address such as `:8080` or `127.0.0.1:0`.  Checks are named callables that return an empty text
when all is well, otherwise what is wrong.  Both pages list every check, as Kubernetes does, and answer 200 or 503.
Notices are facts for the operator that do not affect readiness: `/readyz` lists them and stays 200.

An expensive page (`CoalescedCall`) is computed once for all requests that came before it was begun.

Subtle: `/healthz` says "restart me", `/readyz` says "do not count on me yet".  A standby of a leader election is both
healthy and ready.

Statements: faults:flood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry

from pykai.observe.metrics import CONTENT_TYPE, exposition

#: "" when all is well, otherwise what is wrong
HealthCheck = Callable[[], str]
#: facts for the operator, a sentence each
Notice = Callable[[], Iterable[str]]
PageHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")


class CannotListen(Exception):
    """An address is none, is in use, or is not one of this machine; the text says which and why."""


class CoalescedCall(Generic[T]):
    """Computes one result for all waiting requests: any number costs at most two, the one under way and the next.

    No request gets a result that was begun before it came, so an answer is never older than its question.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._call = make
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The next one; a request that stops waiting does not stop it for others."""
        if self._next is None:
            self._next = asyncio.create_task(self._run_next())
        return await asyncio.shield(self._next)

    async def _run_next(self) -> T:
        async with self._lock:
            # Requests that have arrived already are let in.
            await asyncio.sleep(0)
            self._next = None
            return await self._call()


class Endpoint:
    """One small HTTP server."""

    def __init__(
        self,
        address: str,
        *,
        registry: CollectorRegistry | None = None,
        health: Mapping[str, HealthCheck] | None = None,
        readiness: Mapping[str, HealthCheck] | None = None,
        notices: Mapping[str, Notice] | None = None,
        pages: Mapping[str, PageHandler] | None = None,
        unknown: str = "not found",
    ) -> None:
        self.host, self.port = split_address(address)
        self._address = address
        self._registry = registry
        self._health = health
        self._readiness = readiness
        self._notices = notices or {}
        self._pages = pages or {}
        self._unknown = unknown
        self._runner: web.AppRunner | None = None
        self._exposition = CoalescedCall(self._make_exposition)

    async def start(self) -> int:
        """Listen; returns the port, which the system chose if the address said 0; raises `CannotListen`."""
        app = web.Application()
        if self._registry is not None:
            app.router.add_get("/metrics", self._metrics)
        if self._health is not None:
            app.router.add_get("/healthz", checks_page(self._health))
        if self._readiness is not None:
            app.router.add_get("/readyz", checks_page(self._readiness, self._notices))
        for path, page in self._pages.items():
            app.router.add_get(path, page)
        app.router.add_route("*", "/{rest:.*}", self._not_found)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host or None, self.port)
        try:
            await site.start()
        except BaseException as error:
            # A cancelled start frees its sockets, too.
            await self.stop()
            if isinstance(error, OSError):
                raise CannotListen(f"cannot listen on {self._address}: {error.strerror or error}") from error
            raise
        self.port = self._runner.addresses[0][1]
        return self.port

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._exposition.get(), headers={"Content-Type": CONTENT_TYPE})

    async def _make_exposition(self) -> bytes:
        assert self._registry is not None
        return exposition(self._registry)

    async def _not_found(self, _: web.Request) -> web.Response:
        return web.Response(status=404, text=self._unknown)


def checks_page(checks: Mapping[str, HealthCheck], notices: Mapping[str, Notice] | None = None) -> PageHandler:
    """A page that lists checks, 200 if all hold and 503 otherwise, and notices, which change nothing."""

    async def page(_: web.Request) -> web.Response:
        found = {name: _run_check(check) for name, check in checks.items()}
        lines = [f"[-]{name}: {wrong}" if wrong else f"[+]{name} ok" for name, wrong in found.items()]
        lines += [f"[!]{name}: {text}" for name, notice in (notices or {}).items() for text in notice()]
        failed = any(found.values())
        lines.append("check failed" if failed else "ok")
        return web.Response(status=503 if failed else 200, text="\n".join(lines) + "\n")

    return page


def _run_check(check: HealthCheck) -> str:
    try:
        return check()
    except Exception as error:
        # A check that fails is unhealthy; the others still answer.
        return f"the check itself failed: {type(error).__name__}: {error}"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `:8080`, `127.0.0.1:0` or `[::1]:8080`; an empty host means all interfaces.

    Raises `CannotListen` for an invalid address.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CannotListen(f"{address!r} is not an address to listen on; expected host:port, such as 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)
