"""The certificate of the server: from files, as a Secret mounts them, or from the Secret itself.

Both put a new certificate into the TLS context in use: new connections get it, open ones go on.  A pair that cannot be
loaded (half written, say) is logged without its content, and the last good one stays.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any, Final, Protocol

from pykai.kube.certificates import CertificatePair, load_pair
from pykai.kube.resources import SECRETS
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change
from pykai.webhooks.metrics import AdmissionMetrics
from pykai.webhooks.tlssecret import expiry, read_secret

log = logging.getLogger(__name__)

#: wall seconds between checks of the certificate files
RELOAD_S: Final = 10.0


class ServingCertificate(Protocol):
    """A certificate that may change while it is served."""

    @property
    def context(self) -> ssl.SSLContext:
        """For the server."""
        ...

    @property
    def loaded(self) -> asyncio.Event:
        """Set once there is a certificate."""
        ...

    async def follow(self, stop: asyncio.Event) -> None:
        """Load every change until told to stop."""
        ...


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class CertificateFiles:
    """A certificate and its key in files, loaded again when they change."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self.context = _server_context()
        self.loaded = asyncio.Event()
        self.context.load_cert_chain(certificate, key)
        self._loaded_stamps = self._stamps()
        self.loaded.set()

    async def follow(self, stop: asyncio.Event) -> None:
        """Check the files from time to time."""
        while not stop.is_set():
            self.reload_if_changed()
            try:
                async with asyncio.timeout(RELOAD_S):
                    await stop.wait()
            except TimeoutError:
                continue

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


class SecretCertificate:
    """The certificate in a Secret, which is watched by name."""

    def __init__(self, runtime: Runtime, *, namespace: str, name: str, metrics: AdmissionMetrics | None = None) -> None:
        self._place = f"{namespace}/{name}"
        self._store = runtime.caches.store(SECRETS, dict, namespace=namespace, field_selector=f"metadata.name={name}")
        self._metrics = metrics or AdmissionMetrics()
        self._served: CertificatePair | None = None
        self.context = _server_context()
        self.loaded = asyncio.Event()

    @property
    def served(self) -> CertificatePair | None:
        """The pair in use."""
        return self._served

    async def follow(self, stop: asyncio.Event) -> None:
        """Load what the watch brings."""
        self._store.subscribe(self._on_change)
        await stop.wait()

    def _on_change(self, change: Change[dict[str, Any]]) -> None:
        pair = read_secret(change.new).current if change.new is not None else None
        if pair is None:
            if self._served is not None:
                log.warning("Secret %s holds no certificate any more, the last one stays", self._place)
            return
        if pair == self._served:
            return
        try:
            load_pair(_server_context(), pair)
            load_pair(self.context, pair)
        except (OSError, ssl.SSLError) as error:
            log.warning("the certificate in Secret %s cannot be loaded, the last one stays: %s", self._place, error)
            return
        self._served = pair
        self.loaded.set()
        self._metrics.certificate_expiry.set(expiry(pair).timestamp())
        log.info("serving the certificate in Secret %s, valid until %s", self._place, expiry(pair).isoformat())
