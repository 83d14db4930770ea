"""Leader election: of several instances one works, the others stand by, warm.

The leader is whom a Lease object names.  It renews the lease every `retry_s`; who stands by looks as often and takes a
lease as soon as it has not changed for its whole duration.  Writes carry the resource version that was read, so of two
that try at once one gets a `Conflict`.  At the end the lease is released, and the next instance need not wait.

Subtle:
- Clocks of machines differ, so times written in the lease are for people.  Whether it has expired is measured here,
  from the moment at which we saw it change.
- A leader that cannot renew stops early enough: it tells its work to stop after `renew_deadline_s` without success and
  cancels it when the lease runs out, before anybody else may take it.
- A process may be frozen for longer than its lease lasts, and then go on in the middle of its work.  A `Fence` is asked
  before each write, so that none goes out that was decided under a lease that is over.
- Renewals go apart from all other requests: they must not wait behind those that hang.
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

#: so much later than at the very end a lease is looked at
_EXPIRY_MARGIN_S = 0.01


def micro_time(moment: datetime) -> str:
    """RFC 3339 with microseconds, as Lease objects have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Fence:
    """Says whether whoever leads may still write; open until somebody begins to lead, and after he has given it up."""

    def __init__(self) -> None:
        #: end of the lease, seconds of the event loop; None = nobody leads here
        self.until_s: float | None = None

    def check(self) -> None:
        """Raise `LeaseLost` when the lease is over."""
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
        #: whether the lease is ours and the work runs
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
        """Wait for the lease, then work until told to stop; raises `LeaseLost` if we may not go on.

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
            # The lease is kept up while the work comes to its end.
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
        """Until the next look of one who stands by; a lease that runs out is not left lying until then."""
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
                    # He works already.
                    self._extend_fence(float("-inf"))
                    raise LeaseLost(f"lease {self._namespace}/{self._name} is {self._holder() or 'nobody'}'s now")
                except (Unauthorized, CredentialsError):
                    raise
                except LeaseLost:
                    raise
                except Conflict:
                    # Somebody wrote to it; look at once who leads now.
                    pause_s = 0.0
                    continue
                except (KubeError, TimeoutError) as error:
                    failure = f"{failure}: {error}"
                    if self._now() < self._renewed_s + self._renew_deadline_s:
                        # Little time is left for a renewal, so failures are tried again sooner.
                        pause_s = self._retry_period_s / 5
                        continue
            raise LeaseLost(f"lease {self._namespace}/{self._name}: {failure}")

    async def _try_acquire_or_renew(self) -> bool:
        """Take or renew the lease; False if it is somebody else's.  Raises `Conflict` if somebody was faster."""
        # What counts is when we asked, not when the answer came: others measure from the write.
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
        # A lease of another duration than ours may belong to another version of us; its own word counts.
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
        """Leave the lease to whoever comes next; if that fails, it expires."""
        # What is still told of work that has ended disturbs nobody.
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
