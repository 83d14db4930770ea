"""Users: bearer tokens for an administrator, a reader, and the account of each service.

Tokens are created at first start and kept beside the certificates (mode 0600). Roles decide what a user may do
(`rbac`). A caller of the local transport names its user without proof; it runs in this process anyway.

Statements: rbac:token.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pykai.services.table import installed_services

#: accounts of services that get a token of their own
SERVICES: Final = tuple(service.account for service in installed_services())
#: its members may do everything
MASTERS: Final = "system:masters"
_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class User:
    """The sender of requests."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN: Final = User("kubernetes-admin", (MASTERS, "system:authenticated"))
VIEWER: Final = User("viewer", ("system:authenticated",))
ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


def service_user(name: str, namespace: str = "kai-scheduler") -> User:
    """A service account, by default that of one of our services."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"{_ACCOUNT}{namespace}:{name}", groups)


def user_named(name: str) -> User:
    """`admin`, `viewer`, the account of a service by its short name, or a full user name."""
    if name in ("admin", ADMIN.name):
        return ADMIN
    if name == VIEWER.name:
        return VIEWER
    if name in SERVICES:
        return service_user(name)
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    if name.startswith(_ACCOUNT) and account:
        return service_user(account, namespace)
    return User(name, ("system:authenticated",))


class Tokens:
    """Tokens by user."""

    def __init__(self, tokens: dict[str, str]) -> None:
        #: short user name -> token
        self.tokens = tokens

    @classmethod
    def load(cls, folder: Path | None) -> Tokens:
        """The tokens of the folder; missing ones are created. Without a folder they last as long as the server."""
        path = folder / "tokens.json" if folder is not None else None
        tokens: dict[str, str] = {}
        if path is not None and path.exists():
            tokens = {str(name): str(token) for name, token in json.loads(path.read_text()).items()}
        missing = [name for name in ("admin", "viewer", *SERVICES) if name not in tokens]
        for name in missing:
            tokens[name] = secrets.token_urlsafe(32)
        if path is not None and missing:
            write_private(path, json.dumps(tokens, indent=2) + "\n")
        return cls(tokens)

    def user(self, token: str) -> User | None:
        """The user of a token."""
        matching_user = None
        for name, expected in self.tokens.items():
            # A header may hold any bytes; invalid UTF-8 arrives as lone surrogates.
            if hmac.compare_digest(expected.encode(), token.encode(errors="surrogateescape")):
                matching_user = user_named(name)
        return matching_user


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    beside.replace(path)
