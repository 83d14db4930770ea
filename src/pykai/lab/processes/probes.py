"""Probes of a container: whether it is ready, and whether it lives; asked over HTTP where its process listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from pykai.api.unstructured import JsonObject
from pykai.lab.processes.failures import CannotRun


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP probe with the defaults of Kubernetes."""

    url: str
    delay_s: float
    period_s: float
    timeout_s: float
    failures: int
    successes: int

    async def watch(self, asks: aiohttp.ClientSession, said: Callable[[bool], None]) -> None:
        """Ask until cancelled; `said(True)` after enough successes in a row, `said(False)` after enough failures."""
        await asyncio.sleep(self.delay_s)
        row, last = 0, None
        while True:
            answer = await self._ask(asks)
            row = row + 1 if answer is last else 1
            last = answer
            if row >= (self.successes if answer else self.failures):
                said(answer)
            await asyncio.sleep(self.period_s)

    async def _ask(self, asks: aiohttp.ClientSession) -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=self.timeout_s)
            # As a kubelet: the certificate of a probe is not checked.
            async with asks.get(self.url, timeout=timeout, ssl=False) as answer:
                return 200 <= answer.status < 400
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False


def probe_of(container: JsonObject, kind: str, address: str) -> Probe | None:
    """The probe of this kind, such as `readinessProbe`; raises `CannotRun` for one that is not HTTP."""
    given = container.get(kind)
    if given is None:
        return None
    http = given.get("httpGet")
    if http is None:
        raise CannotRun("CreateContainerConfigError", f"{kind}: only httpGet is supported here")
    port = http["port"]
    if not isinstance(port, int):
        named = {each.get("name"): each["containerPort"] for each in container.get("ports") or ()}
        if port not in named:
            raise CannotRun("CreateContainerConfigError", f"{kind}: the container has no port named {port!r}")
        port = named[port]
    scheme = str(http.get("scheme") or "HTTP").lower()
    return Probe(
        url=f"{scheme}://{address}:{port}{http.get('path') or '/'}",
        delay_s=float(given.get("initialDelaySeconds") or 0),
        period_s=float(given.get("periodSeconds") or 10),
        timeout_s=float(given.get("timeoutSeconds") or 1),
        failures=int(given.get("failureThreshold") or 3),
        successes=int(given.get("successThreshold") or 1),
    )
