"""Who may do what: bearer tokens, one administrator, one reader, and a user for each service.

Tokens are made at first start and kept beside the certificates (mode 0600).  There are no roles: a user may write or
may only read.  Over the local transport a caller says who it is and is believed; it runs in this process anyway.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pykai.apiserver.failures import qualified
from pykai.kube import errors

#: services that get a token of their own
SERVICES: Final = ("scheduler", "binder", "podgrouper", "podgroups", "queues", "simulator")
READ_VERBS: Final = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who sends requests."""

    name: str
    groups: tuple[str, ...] = ()
    writes: bool = True


ADMIN: Final = User("kubernetes-admin", ("system:masters", "system:authenticated"))
VIEWER: Final = User("viewer", ("system:authenticated",), writes=False)
ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",), writes=False)


def service_user(name: str, namespace: str = "kai-scheduler") -> User:
    """The service account of one of our services."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


def user_named(name: str) -> User:
    """`admin`, `viewer`, a service's short name, or a full user name."""
    if name in ("admin", ADMIN.name):
        return ADMIN
    if name == VIEWER.name:
        return VIEWER
    return User(name, ("system:authenticated",)) if ":" in name else service_user(name)


class Tokens:
    """Which token is whose."""

    def __init__(self, tokens: dict[str, str]) -> None:
        #: short user name -> token
        self.tokens = tokens

    @classmethod
    def load(cls, folder: Path | None) -> Tokens:
        """Those of the folder; what is missing is made and written.  Without a folder they are gone with the server."""
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
        """Whose token this is."""
        found = None
        for name, known in self.tokens.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                found = user_named(name)
        return found


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    beside.replace(path)


def authorize(
    user: User, verb: str, group: str, plural: str, *, namespace: str = "", name: str = "", subresource: str = ""
) -> None:
    """403 in Kubernetes' words where the user may not."""
    if user.writes or verb in READ_VERBS:
        return
    resource = f"{plural}/{subresource}" if subresource else plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    quoted = f' "{name}"' if name else ""
    raise errors.Forbidden(
        403,
        "Forbidden",
        f'{qualified(group, plural)}{quoted} is forbidden: User "{user.name}" cannot {verb} resource "{resource}"'
        f' in API group "{group}" {where}',
        details={"name": name, "group": group, "kind": plural},
    )
