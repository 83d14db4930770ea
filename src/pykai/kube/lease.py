"""Leader election: one of several instances works, the others are warm standbys.

The Lease object names the leader, which renews it every `retry_period_s`.  Standbys poll as often and take the lease
once it has not changed for its whole duration.  Writes carry the resource version that was read, so of two that try at
once one gets a `Conflict`.  At the end the lease is released, and the next instance need not wait.

Subtle:
- Clocks of machines differ, so times written in the lease are for people.  Whether it has expired is measured here,
  from the moment at which we saw it change.
- A leader that cannot renew tells its work to stop after `renew_deadline_s` and cancels it when the lease runs out,
  before another instance may take it.
- A process may be frozen for longer than its lease lasts and then resume in the middle of its work.  A `Fence` is
  checked before each write: writes are fenced once the lease is lost.
- Renewals do not share the limits of other requests: they must not wait behind those that hang.
- Wall time throughout: this is about processes, not about the cluster's time.

Statements: kube:lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from pykai.kube.client import Client
from pykai.kube.errors import (
    AlreadyExists,
    Conflict,
    CredentialsError,
    KubeError,
    LeaseLost,
    NotFound,
    Unauthorized,
)
from pykai.kube.resources import LEASES

log = logging.getLogger(__name__)

#: margin after the end of a lease before a standby checks it
_EXPIRY_MARGIN_S = 0.01


def micro_time(moment: datetime) -> str:
    """RFC 3339 with microseconds, as Lease objects have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Fence:
    """Stops writes once the lease is lost; open before leading begins and after the lease is released."""

    def __init__(self) -> None:
        #: end of the lease in event loop seconds; None = this process does not lead
        self.until_s: float | None = None

    def check(self) -> None:
        """Raise `LeaseLost` once the lease has expired."""
        if self.until_s is not None and asyncio.get_running_loop().time() >= self.until_s:
            raise LeaseLost("the lease is over; nothing is written any more")


class LeaderElection:
    """One candidate for one lease; `identity` must be its own (`<host name>_<uuid>`) (operations:O-39)."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_duration_s: float = 15,
        renew_deadline_s: float = 10,
        retry_period_s: float = 5,
        fence: Fence | None = None,
    ) -> None:
        if not 0 < retry_period_s < renew_deadline_s < lease_duration_s:
            raise ValueError(
                "a lease needs 0 < retry < renew < duration, "
                f"not {retry_period_s}, {renew_deadline_s}, {lease_duration_s}"
            )
        self.identity = identity
        #: whether this instance holds the lease and its work runs
        self.leading = False
        self._client = client.with_own_limits()
        self._fence = fence or Fence()
        self._namespace = namespace
        self._name = name
        self._lease_duration_s = lease_duration_s
        self._renew_deadline_s = renew_deadline_s
        self._retry_period_s = retry_period_s
        self._lease: dict[str, Any] = {}
        self._observed_record: tuple[str, str] = ("", "")
        self._observed_s = 0.0
        self._renewed_s = 0.0

    async def lead(self, stop: asyncio.Event, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        """Wait for the lease, then work until told to stop; raises `LeaseLost` when the lease is lost.

        Returns when `stop` is set or the work ends by itself, with the lease released in both cases.
        """
        if not await self._acquire(stop):
            return
        self.leading = True
        log.info("%s leads (%s/%s)", self.identity, self._namespace, self._name)
        stop_work = asyncio.Event()
        working = asyncio.ensure_future(work(stop_work))
        renewing = asyncio.ensure_future(self._renew())
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((working, renewing, stopping), return_when=asyncio.FIRST_COMPLETED)
            stop_work.set()
            # The lease is renewed while the work finishes.
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if renewing.done() and not working.done():
                remaining_s = max(0.0, self._renewed_s + self._lease_duration_s - self._now())
                await asyncio.wait((working,), timeout=remaining_s)
            if renewing.done():
                renewing.result()
            await working
        finally:
            self.leading = False
            lost = renewing.done() and not renewing.cancelled() and renewing.exception() is not None
            for task in (working, renewing, stopping):
                task.cancel()
            await asyncio.gather(working, renewing, stopping, return_exceptions=True)
            if not lost:
                await self._release()

    async def _acquire(self, stop: asyncio.Event) -> bool:
        leader = ""
        while not stop.is_set():
            try:
                if await self._try_acquire_or_renew():
                    return True
                if self._holder() != leader:
                    leader = self._holder()
                    log.info("%s stands by, %s leads (%s/%s)", self.identity, leader, self._namespace, self._name)
            except (Unauthorized, CredentialsError):
                raise
            except KubeError as error:
                log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            try:
                await asyncio.wait_for(stop.wait(), self._pause_s())
            except TimeoutError:
                continue
        return False

    def _pause_s(self) -> float:
        """Seconds until a standby checks again: earlier when the lease runs out before."""
        if not self._holder() or self._expired():
            return self._retry_period_s
        return min(self._retry_period_s, self._observed_s + self._held_duration_s() - self._now() + _EXPIRY_MARGIN_S)

    async def _renew(self) -> None:
        """Renew until it fails for too long; raises `LeaseLost`."""
        pause_s = self._retry_period_s
        while True:
            await asyncio.sleep(pause_s)
            pause_s = self._retry_period_s
            remaining_s = self._renewed_s + self._renew_deadline_s - self._now()
            failure = f"not renewed for {self._renew_deadline_s:g} s"
            if remaining_s > 0:
                try:
                    async with asyncio.timeout(remaining_s):
                        if await self._try_acquire_or_renew():
                            continue
                    # The new leader is already working.
                    self._extend_fence(float("-inf"))
                    raise LeaseLost(f"lease {self._namespace}/{self._name} is {self._holder() or 'nobody'}'s now")
                except (Unauthorized, CredentialsError):
                    raise
                except LeaseLost:
                    raise
                except Conflict:
                    # Another write came first; check at once who leads now.
                    pause_s = 0.0
                    continue
                except (KubeError, TimeoutError) as error:
                    failure = f"{failure}: {error}"
                    if self._now() < self._renewed_s + self._renew_deadline_s:
                        # Little time is left for a renewal, so retry sooner.
                        pause_s = self._retry_period_s / 5
                        continue
            raise LeaseLost(f"lease {self._namespace}/{self._name}: {failure}")

    async def _try_acquire_or_renew(self) -> bool:
        """Take or renew the lease; False if another instance holds it.  Raises `Conflict` when it changed meanwhile."""
        # Measured from the request, not from the answer: others measure from the write.
        requested_s = self._now()
        try:
            lease = await self._client.get_raw(LEASES, self._name, self._namespace)
        except NotFound:
            lease = {}
        if lease:
            self._observe(lease)
            if self._holder() not in ("", self.identity) and not self._expired():
                return False
        written = self._lease_with_our_identity(lease)
        try:
            if lease:
                answer = await self._client.update(LEASES, written)
            else:
                answer = await self._client.create(LEASES, written, self._namespace)
        except AlreadyExists:
            return False
        self._observe(answer)
        self._extend_fence(requested_s)
        return True

    def _extend_fence(self, at_s: float) -> None:
        self._renewed_s = at_s
        self._fence.until_s = at_s + self._lease_duration_s

    def _observe(self, lease: dict[str, Any]) -> None:
        self._lease = lease
        spec = _spec(lease)
        observed = (str(spec.get("holderIdentity") or ""), str(spec.get("renewTime") or ""))
        if observed != self._observed_record or not self._observed_s:
            self._observed_record = observed
            self._observed_s = self._now()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _holder(self) -> str:
        return self._observed_record[0]

    def _expired(self) -> bool:
        return self._now() >= self._observed_s + self._held_duration_s()

    def _held_duration_s(self) -> float:
        """How long the lease holds without a renewal."""
        duration = _spec(self._lease).get("leaseDurationSeconds")
        # A lease with another duration may belong to another version; its own duration counts.
        return float(duration) if isinstance(duration, (int, float)) and duration > 0 else self._lease_duration_s

    def _lease_with_our_identity(self, lease: dict[str, Any]) -> dict[str, Any]:
        now = micro_time(datetime.now(UTC))
        spec = dict(_spec(lease))
        if spec.get("holderIdentity") != self.identity:
            transitions = spec.get("leaseTransitions")
            count = transitions if isinstance(transitions, int) else 0
            spec["leaseTransitions"] = count + 1 if lease else 0
            spec["acquireTime"] = now
        spec["holderIdentity"] = self.identity
        spec["leaseDurationSeconds"] = max(1, round(self._lease_duration_s))
        spec["renewTime"] = now
        if lease:
            return {**lease, "spec": spec}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }

    async def _release(self) -> None:
        """Release the lease for the next instance; if that fails, it expires."""
        # Late reports of finished work are harmless.
        self._fence.until_s = None
        now = micro_time(datetime.now(UTC))
        spec = {**_spec(self._lease), "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        try:
            async with asyncio.timeout(self._retry_period_s):
                await self._client.update(LEASES, {**self._lease, "spec": spec})
        except (KubeError, TimeoutError) as error:
            log.warning("lease %s/%s could not be released: %s", self._namespace, self._name, error)


def _spec(lease: dict[str, Any]) -> dict[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}
