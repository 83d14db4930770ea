"""How to reach the API server, and as which user: `connect`.

Sources, the first that exists wins: the path given, `$KUBECONFIG`, the service account of the pod we run in,
`~/.kube/config`.  Tokens in files are read again, because kubelets replace them; plugins run again before their
credentials expire (`execplugin`).

Errors name the file and the field.  Nothing here prints or logs a secret.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pykai.kube import kubeconfig as config
from pykai.kube.errors import CredentialsError
from pykai.kube.execplugin import ExecCredentials
from pykai.kube.http import ClientCertificate, Credentials, HttpTransport, RequestCredentials

#: where a kubelet puts the service account
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: a token in a file is read again after so many wall seconds; kubelets replace them long before they expire
_REREAD_S = 60.0


class StaticCredentials:
    """Credentials that never change: a token, a client certificate, a user name with password."""

    def __init__(self, authorization: str = "", certificate: ClientCertificate | None = None) -> None:
        self._credentials = RequestCredentials(authorization, certificate)

    async def current(self) -> RequestCredentials:
        return self._credentials

    async def refresh_after_401(self, presented: RequestCredentials) -> bool:
        return False


class TokenFileCredentials:
    """A token in a file that is replaced from time to time."""

    def __init__(
        self, path: Path, certificate: ClientCertificate | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._certificate = certificate
        self._now = now
        self._credentials: RequestCredentials | None = None
        self._read_s = 0.0

    async def current(self) -> RequestCredentials:
        if self._credentials is None or self._now() - self._read_s >= _REREAD_S:
            self._read()
        assert self._credentials is not None
        return self._credentials

    async def refresh_after_401(self, presented: RequestCredentials) -> bool:
        self._read()
        return self._credentials != presented

    def _read(self) -> None:
        try:
            token = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._credentials is not None:
                # An old token is better than none: the file may be in the middle of being replaced.
                return
            raise CredentialsError(f"{self._path}: the token cannot be read: {error}") from None
        if not token:
            if self._credentials is not None:
                return
            raise CredentialsError(f"{self._path}: the token is empty")
        self._credentials = RequestCredentials(f"Bearer {token}", self._certificate)
        self._read_s = self._now()


def connect(kubeconfig: Path | None = None, *, context: str = "") -> HttpTransport:
    """A transport to the API server; nothing is sent yet.  Raises `CredentialsError`."""
    return _connect(kubeconfig, context, os.environ, Path.home() / ".kube" / "config", SERVICE_ACCOUNT)


def _connect(
    kubeconfig: Path | None, context: str, environment: Mapping[str, str], home: Path, service_account: Path
) -> HttpTransport:
    if kubeconfig is not None:
        return transport_for(config.load_rest_config([kubeconfig], context))
    listed = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        # As for kubectl, files of the list may be absent, but not all of them.
        present = [path for path in listed if path.exists()]
        if not present:
            raise CredentialsError(f"$KUBECONFIG: none of these files exists: {', '.join(map(str, listed))}")
        return transport_for(config.load_rest_config(present, context))
    if not context and environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environment, service_account)
    if home.exists():
        return transport_for(config.load_rest_config([home], context))
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
    return HttpTransport(
        f"https://{authority}:{port}", ca=ca, credentials=TokenFileCredentials(service_account / "token")
    )


def transport_for(rest_config: config.RestConfig) -> HttpTransport:
    """The transport for what a kubeconfig says."""
    credentials: Credentials
    if rest_config.exec is not None:
        credentials = ExecCredentials(rest_config.exec, rest_config)
    elif rest_config.token_file is not None:
        credentials = TokenFileCredentials(rest_config.token_file, rest_config.certificate)
    else:
        credentials = StaticCredentials(rest_config.authorization, rest_config.certificate)
    return HttpTransport(
        rest_config.server,
        ca=rest_config.ca,
        credentials=credentials,
        insecure=rest_config.insecure,
        server_name=rest_config.server_name,
    )
