"""Credentials from a program: exec plugins of client.authentication.k8s.io, v1 and v1beta1.

The program prints an ExecCredential with a token, a client certificate or both, and perhaps until when they hold.  It
is run once for all requests that wait, again shortly before that time, and again when the server refuses what it gave.

What the program prints on standard output is a secret and never shown; the end of its standard error is.

Statements: kube:plugins.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.kube.errors import CredentialsError
from pykai.kube.http import ClientCertificate, RequestCredentials
from pykai.kube.kubeconfig import ExecConfig, RestConfig

#: the program runs again this long before its credentials expire
_REFRESH_AHEAD_S = 10.0
_TIMEOUT_S = 60.0


class _ExecCredentialStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _ExecCredentialStatus | None = None


class ExecCredentials:
    """Runs the program when needed and caches its credentials."""

    def __init__(
        self,
        plugin: ExecConfig,
        rest_config: RestConfig,
        *,
        now: Callable[[], float] = time.time,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._plugin = plugin
        self._rest_config = rest_config
        self._now = now
        self._timeout_s = timeout_s
        self._credentials: RequestCredentials | None = None
        self._expires_s: float | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> RequestCredentials:
        async with self._lock:
            if self._credentials is None or (
                self._expires_s is not None and self._now() >= self._expires_s - _REFRESH_AHEAD_S
            ):
                self._credentials = await self._run()
            return self._credentials

    async def refresh_after_401(self, presented: RequestCredentials) -> bool:
        async with self._lock:
            # Several requests may be refused at once; only the first refusal runs the program again.
            if self._credentials is presented:
                self._credentials = None
        return True

    async def _run(self) -> RequestCredentials:
        plugin = self._plugin
        environment = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": self._exec_info()}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
            reason = error.strerror or str(error)
            raise CredentialsError(f"{plugin.where}.command: {plugin.command}: {reason}{hint}") from None
        try:
            async with asyncio.timeout(self._timeout_s):
                stdout, stderr = await process.communicate()
        except TimeoutError:
            raise self._error(f"did not end within {self._timeout_s:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            error_lines = stderr.decode("utf-8", "replace").strip().splitlines()
            raise self._error(
                f"ended with {process.returncode}" + (f": {error_lines[-1][:300]}" if error_lines else "")
            )
        return self._parse_output(stdout)

    def _parse_output(self, stdout: bytes) -> RequestCredentials:
        try:
            credential = msgspec.json.decode(stdout, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._error("printed no ExecCredential") from None
        if credential.kind != "ExecCredential" or credential.api_version != self._plugin.api_version:
            expected = f"ExecCredential of {self._plugin.api_version}"
            raise self._error(f"printed {credential.kind or 'nothing'} of {credential.api_version}, not {expected}")
        status = credential.status or _ExecCredentialStatus()
        certificate = None
        if status.client_certificate_data or status.client_key_data:
            if not status.client_certificate_data or not status.client_key_data:
                raise self._error("printed a client certificate without its key, or a key without its certificate")
            certificate = ClientCertificate(status.client_certificate_data.encode(), status.client_key_data.encode())
        if not status.token and certificate is None:
            raise self._error("printed neither status.token nor a client certificate")
        self._expires_s = None
        if status.expiration_timestamp:
            try:
                self._expires_s = parse_timestamp(status.expiration_timestamp) / 1e9
            except TimestampError as error:
                raise self._error(f"status.expirationTimestamp: {error}") from None
        return RequestCredentials(f"Bearer {status.token}" if status.token else "", certificate)

    def _exec_info(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.provide_cluster_info:
            cluster: dict[str, Any] = {"server": self._rest_config.server}
            if self._rest_config.ca is not None:
                cluster["certificate-authority-data"] = base64.b64encode(self._rest_config.ca).decode()
            if self._rest_config.insecure:
                cluster["insecure-skip-tls-verify"] = True
            if self._rest_config.server_name:
                cluster["tls-server-name"] = self._rest_config.server_name
            spec["cluster"] = cluster
        info = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(info).decode()

    def _error(self, problem: str) -> CredentialsError:
        return CredentialsError(f"{self._plugin.where}: {self._plugin.command} {problem}")
