"""The webhook server: admission of pods as a real API server asks for it (gpu:10.1).

    POST /mutate--v1-pod      AdmissionReview v1 in, AdmissionReview v1 with a JSONPatch out
    POST /validate--v1-pod    AdmissionReview v1 in, allowed or refused out
    GET  /healthz             200

Certificates are files, as a Secret mounts them.  When they change, new connections get the new certificate.  A pair
that cannot be loaded (half written, say) is logged and the last good one stays.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from pykai.webhooks.admission import is_privileged, random_letters
from pykai.webhooks.gpusharing import DEFAULT_RULES, AdmissionDenied, SharingRules, mutate, validate

log = logging.getLogger(__name__)

MUTATE_PATH = "/mutate--v1-pod"
VALIDATE_PATH = "/validate--v1-pod"
#: wall seconds between checks of the certificate files
RELOAD_S = 10.0
_MAX_REVIEW_BYTES = 8 << 20


def json_diff(old: Any, new: Any, path: str = "") -> list[dict[str, Any]]:
    """The operations that turn one document into another; a list that differs is replaced as a whole."""
    if isinstance(old, dict) and isinstance(new, dict):
        operations: list[dict[str, Any]] = []
        for key in old.keys() - new.keys():
            operations.append({"op": "remove", "path": f"{path}/{_escaped(key)}"})
        for key, value in new.items():
            below = f"{path}/{_escaped(key)}"
            if key not in old:
                operations.append({"op": "add", "path": below, "value": value})
            elif old[key] is not value:
                operations += json_diff(old[key], value, below)
        return operations
    return [] if old == new else [{"op": "replace", "path": path, "value": new}]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def review_mutation(review: dict[str, Any], rules: SharingRules, random: Callable[[int], str]) -> dict[str, Any]:
    """The answer to a review of a new pod."""
    request = _request(review)
    pod = request.get("object")
    if not isinstance(pod, dict):
        return _review_response(request)
    try:
        changed = mutate(pod, namespace=str(request.get("namespace") or ""), random=random, rules=rules)
    except AdmissionDenied as refused:
        return _review_response(request, refusal=str(refused))
    return _review_response(request, patch=json_diff(pod, changed) if changed is not None else None)


def review_validation(review: dict[str, Any], rules: SharingRules) -> dict[str, Any]:
    """The answer to a review of a new or changed pod."""
    request = _request(review)
    pod, old = request.get("object"), request.get("oldObject")
    if request.get("operation") == "DELETE" or not isinstance(pod, dict):
        return _review_response(request)
    user = request.get("userInfo") or {}
    privileged = is_privileged(str(user.get("username") or ""), user.get("groups") or ())
    problems = validate(pod, old if isinstance(old, dict) else None, privileged=privileged, rules=rules)
    return _review_response(request, refusal=problems[0] if problems else "")


def _request(review: dict[str, Any]) -> dict[str, Any]:
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict) or not request.get("uid"):
        raise ValueError("no AdmissionReview with a request and its uid")
    return request


def _review_response(request: dict[str, Any], *, patch: list[Any] | None = None, refusal: str = "") -> dict[str, Any]:
    response: dict[str, Any] = {"uid": request["uid"], "allowed": not refusal}
    if refusal:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": refusal}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


class CertificateFiles:
    """A certificate and its key in files, loaded again when they change."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._loaded_stamps: tuple[tuple[int, int], ...] = ()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.load_cert_chain(certificate, key)
        self._loaded_stamps = self._stamps()

    def reload_if_changed(self) -> bool:
        """Load the files if they are not those loaded last; whether that was done."""
        try:
            stamps = self._stamps()
            if stamps == self._loaded_stamps:
                return False
            # Tried on a context of its own first: a pair that does not match must not reach the one in use.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            log.warning("the certificate in %s cannot be loaded, the last one stays: %s", self._files[0], error)
            return False
        self._loaded_stamps = stamps
        log.info("loaded the new certificate in %s", self._files[0])
        return True

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        stats = [file.stat() for file in self._files]
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)


class AdmissionServer:
    """Serves the webhooks; a service of its own process."""

    name = "admission"

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        rules: SharingRules = DEFAULT_RULES,
        host: str = "127.0.0.1",
        port: int = 9443,
        random: Callable[[int], str] = random_letters,
    ) -> None:
        self.certificate = CertificateFiles(certificate, key)
        self._rules = rules
        self._host = host
        self._random = random
        #: the port in use once it serves, also when 0 was asked for
        self.port = port
        self.serving = asyncio.Event()

    def ready(self) -> bool:
        """Whether connections are taken."""
        return self.serving.is_set()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop."""
        runner = web.AppRunner(self._app(), access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self.port, ssl_context=self.certificate.context)
            await site.start()
            for address in runner.addresses:
                self.port = address[1]
            self.serving.set()
            while not stop.is_set():
                self.certificate.reload_if_changed()
                try:
                    async with asyncio.timeout(RELOAD_S):
                        await stop.wait()
                except TimeoutError:
                    continue
        finally:
            self.serving.clear()
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_REVIEW_BYTES)
        app.router.add_post(MUTATE_PATH, self._mutate)
        app.router.add_post(VALIDATE_PATH, self._validate)
        app.router.add_get("/healthz", self._healthy)
        return app

    async def _mutate(self, request: web.Request) -> web.Response:
        return await self._answer_review(request, lambda review: review_mutation(review, self._rules, self._random))

    async def _validate(self, request: web.Request) -> web.Response:
        return await self._answer_review(request, lambda review: review_validation(review, self._rules))

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    @staticmethod
    async def _answer_review(request: web.Request, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> web.Response:
        try:
            body = msgspec.json.encode(answer(msgspec.json.decode(await request.read())))
        except (ValueError, TypeError, AttributeError) as error:
            return web.Response(status=400, text=f"this is not a readable AdmissionReview: {error}")
        return web.Response(body=body, content_type="application/json")
