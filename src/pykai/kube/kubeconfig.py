"""Kubeconfig files: several merged into one, a context chosen, its cluster and user as one `Access`.

Merging is kubectl's: the first file that sets `current-context` or names a context, cluster or user wins; relative
paths are relative to their file; data wins over files, and a token over a token file.

Unsupported settings are refused, because ignoring them would use another identity: proxies, impersonation and
auth-provider plugins (superseded by exec plugins).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pykai.kube.errors import CredentialsError
from pykai.kube.http import ClientCertificate

EXEC_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True, slots=True, repr=False)
class ExecConfig:
    """A program that prints credentials."""

    #: file and field, for errors
    where: str
    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    api_version: str
    install_hint: str = ""
    provide_cluster_info: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class RestConfig:
    """Address of the server and credentials for it.  Holds secrets: never printed."""

    server: str
    ca: bytes | None = None
    insecure: bool = False
    server_name: str = ""
    namespace: str = ""
    authorization: str = ""
    certificate: ClientCertificate | None = None
    token_file: Path | None = None
    exec: ExecConfig | None = None


@dataclass(frozen=True, slots=True)
class _KubeconfigEntry:
    """A named part of a kubeconfig, and where it stands."""

    file: Path
    where: str
    fields: Mapping[str, Any]

    def error(self, name: str, problem: str) -> CredentialsError:
        return CredentialsError(f"{self.file}: {self.where}.{name}: {problem}")

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(name, f"expected text, got {type(value).__name__}")
        return value

    def flag(self, name: str) -> bool:
        value = self.fields.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.error(name, f"expected true or false, got {type(value).__name__}")
        return value

    def path(self, name: str) -> Path | None:
        text = self.text(name)
        return self.file.parent / text if text else None

    def data(self, name: str) -> bytes | None:
        """What `name-data` holds, or else the file that `name` names."""
        encoded = self.text(f"{name}-data")
        if encoded:
            try:
                return base64.b64decode("".join(encoded.split()), validate=True)
            except (binascii.Error, ValueError) as error:
                raise self.error(f"{name}-data", f"not base64: {error}") from None
        path = self.path(name)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise self.error(name, f"{path} cannot be read: {error.strerror or error}") from None

    def refuse_fields(self, names: Mapping[str, str]) -> None:
        for name, instead in names.items():
            if self.fields.get(name):
                raise self.error(name, f"is not supported; {instead}")


@dataclass(slots=True)
class _MergedKubeconfig:
    current: str = ""
    clusters: dict[str, _KubeconfigEntry] = field(default_factory=dict)
    users: dict[str, _KubeconfigEntry] = field(default_factory=dict)
    contexts: dict[str, _KubeconfigEntry] = field(default_factory=dict)


def load_rest_config(paths: Sequence[Path], context: str = "") -> RestConfig:
    """What these files, merged, say about a context (the current one if none is named)."""
    merged = _MergedKubeconfig()
    for path in paths:
        _merge(path, merged)
    files = ", ".join(map(str, paths))
    name = context or merged.current
    if not name:
        context_names = ", ".join(sorted(merged.contexts)) or "none"
        raise CredentialsError(f"{files}: current-context is not set; contexts there: {context_names}")
    chosen = merged.contexts.get(name)
    if chosen is None:
        context_names = ", ".join(sorted(merged.contexts)) or "none"
        raise CredentialsError(f"{files}: there is no context {name!r}; contexts there: {context_names}")
    cluster = merged.clusters.get(chosen.text("cluster"))
    if cluster is None:
        raise chosen.error("cluster", f"there is no cluster {chosen.text('cluster')!r}")
    user_name = chosen.text("user")
    user = merged.users.get(user_name)
    if user is None and user_name:
        raise chosen.error("user", f"there is no user {user_name!r}")
    return _rest_config(chosen, cluster, user)


def _merge(path: Path, merged: _MergedKubeconfig) -> None:
    try:
        document = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise CredentialsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        # The text around the error may be a secret and is not shown.
        raise CredentialsError(f"{path}: no YAML{line}: {getattr(error, 'problem', '') or 'malformed'}") from None
    if document is None:
        return
    if not isinstance(document, dict):
        raise CredentialsError(f"{path}: expected a Config object")
    root = _KubeconfigEntry(path, "", document)
    if not merged.current:
        value = document.get("current-context")
        if value is not None and not isinstance(value, str):
            raise CredentialsError(f"{path}: current-context: expected text")
        merged.current = value or ""
    for plural, singular, into in (
        ("clusters", "cluster", merged.clusters),
        ("users", "user", merged.users),
        ("contexts", "context", merged.contexts),
    ):
        items = root.fields.get(plural) or []
        if not isinstance(items, list):
            raise CredentialsError(f"{path}: {plural}: expected a list")
        for number, item in enumerate(items):
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                raise CredentialsError(f"{path}: {plural}[{number}].name: expected text")
            fields = item.get(singular) or {}
            where = f"{plural}[name={item['name']}].{singular}"
            if not isinstance(fields, dict):
                raise CredentialsError(f"{path}: {where}: expected an object")
            into.setdefault(item["name"], _KubeconfigEntry(path, where, fields))


def _rest_config(context: _KubeconfigEntry, cluster: _KubeconfigEntry, user: _KubeconfigEntry | None) -> RestConfig:
    server = cluster.text("server")
    if not server.startswith(("https://", "http://")):
        raise cluster.error("server", "expected an http or https URL" + (f", got {server!r}" if server else ""))
    cluster.refuse_fields({"proxy-url": "connect without a proxy"})
    insecure = cluster.flag("insecure-skip-tls-verify")
    ca = cluster.data("certificate-authority")
    if insecure and ca is not None:
        raise cluster.error("insecure-skip-tls-verify", "contradicts certificate-authority; leave one of them out")
    rest_config = RestConfig(server, ca, insecure, cluster.text("tls-server-name"), context.text("namespace"))
    if user is None:
        return rest_config
    user.refuse_fields(
        {
            "auth-provider": "use an exec plugin",
            "as": "use the credentials of that user",
            "as-uid": "use the credentials of that user",
            "as-groups": "use the credentials of that user",
            "as-user-extra": "use the credentials of that user",
        }
    )
    return RestConfig(
        rest_config.server,
        rest_config.ca,
        rest_config.insecure,
        rest_config.server_name,
        rest_config.namespace,
        _authorization(user),
        _certificate(user),
        user.path("tokenFile") if not user.text("token") else None,
        _exec(user),
    )


def _authorization(user: _KubeconfigEntry) -> str:
    token = user.text("token")
    if token:
        return f"Bearer {token}"
    if user.text("username"):
        pair = f"{user.text('username')}:{user.text('password')}".encode()
        return "Basic " + base64.b64encode(pair).decode()
    return ""


def _certificate(user: _KubeconfigEntry) -> ClientCertificate | None:
    certificate, key = user.data("client-certificate"), user.data("client-key")
    if certificate is None and key is None:
        return None
    if certificate is None:
        raise user.error("client-certificate-data", "missing, though there is a client key")
    if key is None:
        raise user.error("client-key-data", "missing, though there is a client certificate")
    return ClientCertificate(certificate, key)


def _exec(user: _KubeconfigEntry) -> ExecConfig | None:
    fields = user.fields.get("exec")
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise user.error("exec", "expected an object")
    plugin = _KubeconfigEntry(user.file, f"{user.where}.exec", fields)
    command = plugin.text("command")
    if not command:
        raise plugin.error("command", "missing")
    api_version = plugin.text("apiVersion")
    if api_version not in EXEC_API_VERSIONS:
        raise plugin.error("apiVersion", f"expected one of {', '.join(EXEC_API_VERSIONS)}, got {api_version!r}")
    if plugin.text("interactiveMode") == "Always":
        raise plugin.error("interactiveMode", "the plugin wants a terminal, and there is none")
    args = fields.get("args") or []
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise plugin.error("args", "expected a list of texts")
    env: dict[str, str] = {}
    for number, item in enumerate(fields.get("env") or []):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise plugin.error(f"env[{number}].name", "expected text")
        env[item["name"]] = str(item.get("value") or "")
    if "/" in command:
        # Like kubectl: a path is relative to the file, a bare name is looked up in $PATH.
        command = str(user.file.parent / command)
    return ExecConfig(
        f"{user.file}: {plugin.where}",
        command,
        tuple(args),
        env,
        api_version,
        plugin.text("installHint"),
        plugin.flag("provideClusterInfo"),
    )
