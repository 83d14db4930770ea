"""What a reservation pod does: it finds its GPU, writes the identity into an annotation of its pod, and waits.

The binder waits for the annotation (gpu:RV-5).  A container that is restarted has the GPU of before, so an annotation
that is there stays.  While the API server is away, requests are repeated; any other failure ends the program, and the
kubelet starts it again.

Subtle:
- A driver that hangs must not keep the program from ending on a signal: asking happens in a thread that ends with it.
- The next reservation pod of a group has the same name.  The patch names the uid, so a program that comes late writes
  nothing into its successor.
- The connection is closed once the annotation is written: there may be eight of these programs on a node, for months.

Statements: gpu:RP-1, RP-2, RP-3.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from pykai.api import names
from pykai.kube.backoff import Backoff
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import (
    Conflict,
    ConnectionLost,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
)
from pykai.kube.resources import PODS
from pykai.kube.runtime import run_until_stopped

log = logging.getLogger(__name__)
T = TypeVar("T")

_BACKOFF = Backoff(0.5, 30.0)
_SERVER_IS_AWAY = (ConnectionLost, ServerError, TooManyRequests)


class ReservationError(Exception):
    """The program cannot do its work; the text says why and what to do."""


class OwnPod(NamedTuple):
    """The pod in which the program runs."""

    namespace: str
    name: str


def own_pod(environment: Mapping[str, str]) -> OwnPod:
    """The pod that the environment names (gpu:RP-1)."""
    missing = [name for name in ("POD_NAMESPACE", "POD_NAME") if not environment.get(name)]
    if missing:
        raise ReservationError(
            f"{' and '.join(missing)} must be set: the container takes them from metadata.namespace and metadata.name"
            " of its pod, through the downward API"
        )
    return OwnPod(environment["POD_NAMESPACE"], environment["POD_NAME"])


async def hold_device(
    client: Client, pod: OwnPod, find: Callable[[], str], stop: asyncio.Event, *, clock: Clock | None = None
) -> None:
    """Write down the device that `find` gives, then wait for `stop`.

    Raises `ReservationError`, and what `find` raises.
    """
    if await run_until_stopped(stop, _report(client, pod, find, clock or Clock())):
        await client.close()
        await stop.wait()


async def _report(client: Client, pod: OwnPod, find: Callable[[], str], clock: Clock) -> None:
    key = f"{pod.namespace}/{pod.name}"
    metadata = (await _answer(lambda: client.get_raw(PODS, pod.name, pod.namespace), pod, clock))["metadata"]
    if gpu := (metadata.get("annotations") or {}).get(names.RESERVED_GPU_ANNOTATION):
        log.info("pod %s holds device %s already", key, gpu)
        return
    log.info("pod %s asks the driver for its device", key)
    gpu = await _in_background(find)
    patch = {"metadata": {"uid": metadata["uid"], "annotations": {names.RESERVED_GPU_ANNOTATION: gpu}}}
    await _answer(lambda: client.patch(PODS, pod.name, patch, pod.namespace, brief=True), pod, clock)
    log.info("pod %s holds device %s", key, gpu)


async def _answer(ask: Callable[[], Awaitable[dict[str, Any]]], pod: OwnPod, clock: Clock) -> dict[str, Any]:
    """The server's answer, however long it is away; both requests may be repeated."""
    key = f"{pod.namespace}/{pod.name}"
    failures = 0
    while True:
        try:
            return await ask()
        except _SERVER_IS_AWAY as error:
            failures += 1
            delay_s = _BACKOFF.delay_s(failures)
            log.warning("the API server is away (%s); the next attempt follows in %g s", error, delay_s)
            await clock.sleep(delay_s)
        except Forbidden as error:
            raise ReservationError(
                f"{error}. The account of reservation pods needs the rights to get and patch pods in {pod.namespace}:"
                " `kai manifests` prints its Role"
            ) from error
        except (NotFound, Conflict, Invalid) as error:
            # A patch with the uid of an earlier pod is Invalid.
            raise ReservationError(f"pod {key} is gone, or another pod has its name now: {error}") from error


def _in_background(call: Callable[[], T]) -> asyncio.Future[T]:
    """The result of a call that may hang; its thread does not keep the process alive."""
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()

    def work() -> None:
        try:
            result.set_result(call())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=work, name="device", daemon=True).start()
    return asyncio.wrap_future(result)
