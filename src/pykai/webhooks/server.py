"""The webhook server: AdmissionReview v1 in and out, over HTTPS (gpu:10.1).

    POST <path of a webhook>    allowed, refused or changed, with warnings
    GET  /healthz               200

A review that cannot be read, or that a handler fails on, is answered with an HTTP error: the failure policy of the
registration decides then.  Neither stops the server, and the log has no object of a review.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from pykai.webhooks.handlers import ReviewHandler, ReviewHandlers
from pykai.webhooks.metrics import AdmissionMetrics
from pykai.webhooks.reviews import ReviewError, read_review, review_response
from pykai.webhooks.servingcertificates import ServingCertificate

log = logging.getLogger(__name__)

#: a review holds an object twice, before and after; an API server stores objects of up to 3 MiB
_MAX_REVIEW_BYTES: Final = 8 << 20


class AdmissionServer:
    """Serves the webhooks."""

    name = "admission"

    def __init__(
        self,
        certificate: ServingCertificate,
        handlers: ReviewHandlers,
        *,
        host: str | None = "127.0.0.1",
        port: int = 9443,
        metrics: AdmissionMetrics | None = None,
    ) -> None:
        self.certificate = certificate
        self._handlers = handlers
        self._host = host
        self._metrics = metrics or AdmissionMetrics()
        #: the port in use once it serves, also when 0 was asked for
        self.port = port
        self.serving = asyncio.Event()

    def ready(self) -> bool:
        """Whether connections are taken."""
        return self.serving.is_set()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop, as soon as there is a certificate."""
        following = asyncio.create_task(self.certificate.follow(stop))
        loaded = asyncio.create_task(self.certificate.loaded.wait())
        try:
            await asyncio.wait((following, loaded), return_when=asyncio.FIRST_COMPLETED)
            if loaded.done():
                await self._serve(stop)
            await following
        finally:
            following.cancel()
            loaded.cancel()

    async def _serve(self, stop: asyncio.Event) -> None:
        runner = web.AppRunner(self._app(), access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self.port, ssl_context=self.certificate.context)
            await site.start()
            for address in runner.addresses:
                self.port = address[1]
            self.serving.set()
            await stop.wait()
        finally:
            self.serving.clear()
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_REVIEW_BYTES)
        for path, handler in self._handlers.items():
            app.router.add_post(path, partial(self._answer, path, handler))
        app.router.add_get("/healthz", self._healthy)
        return app

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _answer(self, path: str, handler: ReviewHandler, http_request: web.Request) -> web.Response:
        started_s = asyncio.get_running_loop().time()
        try:
            request = read_review(msgspec.json.decode(await http_request.read()))
        except (ReviewError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return web.Response(status=400, text=f"this is not a readable AdmissionReview: {error}")
        try:
            answer = await handler(request)
            body = msgspec.json.encode(review_response(request, answer))
        except Exception as error:
            # A bug: the error's own text is not logged, since it may hold parts of the object.
            place = traceback.extract_tb(error.__traceback__)[-1]
            log.error("%s failed: %s in %s:%s", path, type(error).__name__, place.filename, place.lineno)
            return web.Response(status=500, text="the review failed; the log of the admission service says where")
        self._metrics.observe(path, not answer.refusal, asyncio.get_running_loop().time() - started_s)
        return web.Response(body=body, content_type="application/json")
