"""Keeps the certificate of the webhooks valid, and API servers' trust in it; one replica at a time, with a lease.

Each round reads the registrations, then the Secret, does one step of `tlssecret` and writes the authorities into the
registrations that have others.  Nothing else of a registration is touched, since clusters add fields of their own
(operations:O-30).

Subtle:
- Both writes carry the version that was read.  Registrations are read before the Secret: one that has not changed since
  cannot hold authorities of a later Secret, so a newer bundle is never overwritten, not even by a replica that was
  frozen in between.
- No API server says when it has read a registration.  A pair is promoted when all registrations have had its authority
  for `overlap_s`.
- Losing the lease ends no admission: this replica goes on serving and waits for the lease again.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pykai.api import names
from pykai.kube.client import Client, PatchKind
from pykai.kube.errors import Conflict, KubeError, LeaseLost, NotFound
from pykai.kube.lease import Fence, LeaderElection
from pykai.kube.ownpod import own_pod_name
from pykai.kube.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.webhooks import table
from pykai.webhooks.fields import dicts_at, object_at
from pykai.webhooks.tlssecret import (
    LIFETIME,
    CertificateStep,
    changed_secret,
    due_at,
    next_step,
    read_secret,
)

log = logging.getLogger(__name__)

#: wall seconds between rounds in which nothing has changed
_ROUND_S: Final = 600.0
_RETRY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RotatorOptions:
    """What can be set about certificates."""

    namespace: str = names.DEFAULT_NAMESPACE
    secret: str = table.TLS_SECRET
    #: names and addresses beside those of the Services
    hosts: tuple[str, ...] = ()
    lifetime: timedelta = LIFETIME
    #: wall seconds between trust in a certificate and its use
    overlap_s: float = 120.0
    leader_elect: bool = False


@dataclass(frozen=True, slots=True)
class _Trust:
    """Since when all registrations have had a bundle, in event loop seconds."""

    bundle: bytes = b""
    since_s: float = 0.0


class CertificateRotator:
    """Fills and rotates the Secret; a service beside the server."""

    name = "certificates"

    def __init__(
        self,
        runtime: Runtime,
        options: RotatorOptions,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._options = options
        self._now = now
        self._fence = Fence()
        self._lease_client = runtime.client
        self._client: Client = runtime.client.fenced(self._fence.check)
        self._hosts = (*table.service_hosts(options.namespace), *options.hosts)
        self._trust = _Trust()
        caches = runtime.caches
        by_name = f"metadata.name={options.secret}"
        self._secret = caches.store(SECRETS, dict, namespace=options.namespace, field_selector=by_name)
        self._registrations: list[Store[dict[str, Any]]] = [
            caches.store(kind, dict, field_selector=f"metadata.name={name}")
            for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
            for name in table.configuration_names(kind)
        ]
        self._wake = asyncio.Event()
        for store in (self._secret, *self._registrations):
            store.subscribe(lambda _: self._wake.set())

    def ready(self) -> bool:
        """A server is ready without it."""
        return True

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop, while this replica holds the lease."""
        if not self._options.leader_elect:
            await self._rotate(stop)
            return
        while not stop.is_set():
            election = LeaderElection(
                self._lease_client,
                namespace=self._options.namespace,
                name=table.CERTIFICATES_LEASE,
                identity=f"{own_pod_name()}_{uuid.uuid4()}",
                fence=self._fence,
            )
            try:
                await election.lead(stop, self._rotate)
            except LeaseLost as error:
                log.warning("certificates are left to another replica: %s", error)
                self._fence.until_s = None

    async def _rotate(self, stop: asyncio.Event) -> None:
        for store in (self._secret, *self._registrations):
            await _first_of(store.synced, stop)
        self._trust = _Trust()
        while not stop.is_set():
            self._wake.clear()
            try:
                pause_s = await self._round()
            except LeaseLost:
                raise
            except Conflict:
                # Someone else has written; the watch brings it.
                pause_s = _RETRY_S
            except NotFound:
                log.warning(
                    "Secret %s/%s does not exist; `kai manifests --admission` prints it",
                    self._options.namespace,
                    self._options.secret,
                )
                pause_s = _ROUND_S
            except KubeError as error:
                log.warning("the certificate of the webhooks could not be renewed: %s", error)
                pause_s = _RETRY_S
            await self._pause(stop, pause_s)

    async def _round(self) -> float:
        """One step; how many seconds until the next."""
        registrations = [each for store in self._registrations for each in _documents(store)]
        document = await self._client.get_raw(SECRETS, self._options.secret, self._options.namespace)
        secret = read_secret(document)
        now = self._now()
        is_trusted = self._trusted_for_s(secret.bundle) >= self._options.overlap_s
        step = next_step(secret, self._hosts, now, is_trusted=is_trusted)
        if step is not CertificateStep.KEEP:
            changed = changed_secret(document, step, self._hosts, now, self._options.lifetime)
            await self._client.update(SECRETS, changed)
            log.info("certificate of the webhooks: %s", step.value)
            return 0.0
        if await self._publish(registrations, secret.bundle):
            # The watch brings what was written; until then nothing is known to be trusted.
            return _RETRY_S
        if self._trust.bundle != secret.bundle:
            self._trust = _Trust(secret.bundle, asyncio.get_running_loop().time())
        if secret.next is not None:
            return max(0.01, self._options.overlap_s - self._trusted_for_s(secret.bundle))
        assert secret.current is not None
        return min(_ROUND_S, max(0.0, (due_at(secret.current) - now).total_seconds()))

    def _trusted_for_s(self, bundle: bytes) -> float:
        """For how long all registrations have had the bundle; -1 if they do not."""
        if self._trust.bundle != bundle:
            return -1.0
        return asyncio.get_running_loop().time() - self._trust.since_s

    async def _publish(self, registrations: list[dict[str, Any]], bundle: bytes) -> bool:
        """Write the bundle where it is missing; whether anything was written."""
        wanted = base64.b64encode(bundle).decode()
        written = False
        for each in registrations:
            patch = list(bundle_patch(each, wanted, self._options.namespace))
            if not patch:
                continue
            metadata = object_at(each, "metadata")
            version = {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata.get("resourceVersion")}
            kind = _kind_of(each)
            await self._client.patch(kind, str(metadata["name"]), [version, *patch], kind=PatchKind.JSON, brief=True)
            written = True
            log.info("%s %s has the authorities of the webhooks' certificate", kind.kind, metadata["name"])
        return written

    async def _pause(self, stop: asyncio.Event, pause_s: float) -> None:
        if pause_s <= 0:
            return
        waiting = asyncio.ensure_future(_first_of(self._wake, stop))
        try:
            await asyncio.wait((waiting,), timeout=pause_s)
        finally:
            waiting.cancel()


def bundle_patch(registration: Mapping[str, Any], bundle: str, namespace: str) -> Iterator[dict[str, Any]]:
    """What gives the webhooks of the services of a namespace the bundle; nothing if they have it (install:places)."""
    ours = {webhook.name_in(namespace) for webhook in table.WEBHOOKS}
    for index, webhook in enumerate(dicts_at(registration, "webhooks")):
        client = object_at(webhook, "clientConfig")
        if webhook.get("name") in ours and client.get("caBundle") != bundle:
            yield {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}


def _documents(store: Store[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"kind": store.resource.kind, **each} for each in store.values()]


def _kind_of(registration: Mapping[str, Any]) -> Resource:
    return MUTATING_WEBHOOKS if registration.get("kind") == MUTATING_WEBHOOKS.kind else VALIDATING_WEBHOOKS


async def _first_of(*events: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
