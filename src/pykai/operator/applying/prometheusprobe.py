"""Whether a Prometheus that is not ours answers (operations:O-45, OD-8).

In: its address and how often to check.  Out: a condition of its own, so that it does not fight with `Available`.
A check is a request for the server's configuration, of whose answer only the status counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import aiohttp
from yarl import URL

from pykai.api.installation import HealthProbeSpec, PrometheusSpec
from pykai.kube.clock import Clock

_PAGE: Final = "api/v1/status/config"
_INTERVAL_S, _TIMEOUT_S, _RETRIES = 30, 10, 5


class ProbeTarget(NamedTuple):
    """What is checked, and how."""

    address: str
    interval_s: int = _INTERVAL_S
    timeout_s: int = _TIMEOUT_S
    #: failed checks in a row until a server that has answered counts as lost
    retries: int = _RETRIES


def probe_target(spec: PrometheusSpec) -> ProbeTarget | None:
    """The server that a Config names, if it names one."""
    if not spec.enabled or not spec.external_prometheus_url:
        return None
    given = spec.external_prometheus_health_probe or HealthProbeSpec()
    return ProbeTarget(
        spec.external_prometheus_url,
        max(1, given.interval or _INTERVAL_S),
        max(1, given.timeout or _TIMEOUT_S),
        max(1, given.max_retries or _RETRIES),
    )


class PrometheusProbe:
    """Checks one server for as long as it is wanted."""

    def __init__(self, clock: Clock, on_change: Callable[[], None]) -> None:
        """`on_change` is called when `failure` has changed."""
        self._clock = clock
        self._on_change = on_change
        self._target: ProbeTarget | None = None
        self._changed = asyncio.Event()
        #: why the server does not answer, "" if it does; None: not known, or none is checked
        self.failure: str | None = None

    def watch(self, target: ProbeTarget | None) -> None:
        """Check this server from now on."""
        if target != self._target:
            self._target, self.failure = target, None
            self._changed.set()

    async def run(self) -> None:
        """Check until cancelled."""
        failures = 0
        while True:
            target = self._target
            self._changed.clear()
            if target is not None:
                found = await _check(target)
                failures = failures + 1 if found else 0
                is_known = self.failure is None or not found or failures >= target.retries
                if self._target == target and is_known and found != self.failure:
                    self.failure = found
                    self._on_change()
            wait_s = None if target is None else self._clock.wall_s(target.interval_s)
            try:
                await asyncio.wait_for(self._changed.wait(), wait_s)
            except TimeoutError:
                continue
            failures = 0


async def _check(target: ProbeTarget) -> str:
    """Why a server does not answer, "" if it does; never with the password of its address."""
    try:
        address = URL(target.address)
        if address.scheme not in ("http", "https") or not address.host:
            return "prometheus.externalPrometheusUrl is not an address such as http://prometheus:9090"
        shown = address.with_user(None)
        limit = aiohttp.ClientTimeout(total=target.timeout_s)
        async with (
            aiohttp.ClientSession(timeout=limit, trust_env=True) as session,
            session.get(address / _PAGE, allow_redirects=False) as answer,
        ):
            return "" if answer.status == 200 else f"{shown} answers {answer.status} to /{_PAGE}"
    except TimeoutError:
        return f"{shown} does not answer within {target.timeout_s} s"
    except (aiohttp.ClientError, OSError) as error:
        return f"{shown} cannot be reached: {type(error).__name__}"
    except ValueError:
        return "prometheus.externalPrometheusUrl is not an address such as http://prometheus:9090"
