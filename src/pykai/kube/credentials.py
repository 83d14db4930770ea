"""Who we are, and how to get to the API server: `connect`.

Where the answer comes from, first that exists: the path given, `$KUBECONFIG`, the service account of the pod we run in,
`~/.kube/config`.  Tokens in files are read again, because kubelets replace them; plugins are asked again before what
they said expires (`execplugin`).

Errors name the file and the field.  Nothing here prints or logs a secret.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pykai.kube import kubeconfig as config
from pykai.kube.errors import CredentialsError
from pykai.kube.execplugin import ExecPlugin
from pykai.kube.http import ClientCertificate, Credentials, HttpTransport, Presented

#: where a kubelet puts the service account
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: a token in a file is read again after so many wall seconds; kubelets replace them long before they expire
_REREAD_S = 60.0


class Fixed:
    """Credentials that never change: a token, a client certificate, a user name with password."""

    def __init__(self, authorization: str = "", certificate: ClientCertificate | None = None) -> None:
        self._presented = Presented(authorization, certificate)

    async def present(self) -> Presented:
        return self._presented

    async def refused(self, presented: Presented) -> bool:
        return False


class TokenFile:
    """A token in a file that somebody replaces."""

    def __init__(
        self, path: Path, certificate: ClientCertificate | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._certificate = certificate
        self._now = now
        self._presented: Presented | None = None
        self._read_s = 0.0

    async def present(self) -> Presented:
        if self._presented is None or self._now() - self._read_s >= _REREAD_S:
            self._read()
        assert self._presented is not None
        return self._presented

    async def refused(self, presented: Presented) -> bool:
        self._read()
        return self._presented != presented

    def _read(self) -> None:
        try:
            token = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._presented is not None:
                # Better the token of a minute ago than none: the file may be in the middle of being replaced.
                return
            raise CredentialsError(f"{self._path}: the token cannot be read: {error}") from None
        if not token:
            if self._presented is not None:
                return
            raise CredentialsError(f"{self._path}: the token is empty")
        self._presented = Presented(f"Bearer {token}", self._certificate)
        self._read_s = self._now()


def connect(kubeconfig: Path | None = None, *, context: str = "") -> HttpTransport:
    """The way to the API server; nothing is sent yet.  Raises `CredentialsError`."""
    return _connect(kubeconfig, context, os.environ, Path.home() / ".kube" / "config", SERVICE_ACCOUNT)


def _connect(
    kubeconfig: Path | None, context: str, environment: Mapping[str, str], home: Path, service_account: Path
) -> HttpTransport:
    if kubeconfig is not None:
        return from_access(config.load([kubeconfig], context))
    listed = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        # As for kubectl, files of the list may be absent, but not all of them.
        present = [path for path in listed if path.exists()]
        if not present:
            raise CredentialsError(f"$KUBECONFIG: none of these files exists: {', '.join(map(str, listed))}")
        return from_access(config.load(present, context))
    if not context and environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environment, service_account)
    if home.exists():
        return from_access(config.load([home], context))
    raise CredentialsError(
        "no API server to talk to: give --kubeconfig, set $KUBECONFIG, or run in a pod with a service account"
    )


def in_cluster(environment: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> HttpTransport:
    """As the service account of the pod we run in."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    authority = f"[{host}]" if ":" in host else host
    path = service_account / "ca.crt"
    try:
        ca = path.read_bytes()
    except OSError as error:
        raise CredentialsError(f"{path}: the CA certificate cannot be read: {error}") from None
    return HttpTransport(f"https://{authority}:{port}", ca=ca, credentials=TokenFile(service_account / "token"))


def from_access(access: config.Access) -> HttpTransport:
    """The transport for what a kubeconfig says."""
    credentials: Credentials
    if access.exec is not None:
        credentials = ExecPlugin(access.exec, access)
    elif access.token_file is not None:
        credentials = TokenFile(access.token_file, access.certificate)
    else:
        credentials = Fixed(access.authorization, access.certificate)
    return HttpTransport(
        access.server,
        ca=access.ca,
        credentials=credentials,
        insecure=access.insecure,
        server_name=access.server_name,
    )
