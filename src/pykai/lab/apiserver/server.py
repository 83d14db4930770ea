"""The embedded API server, assembled from its parts.

`ApiServer.open` creates it, from a data folder or in memory; `transport` is for clients in this process, `serve` opens
the HTTPS port for others, `close` ends both.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from pykai.api.crds import custom_resource_definitions
from pykai.kube.certificates import CertificateAuthority
from pykai.kube.clock import Clock
from pykai.kube.errors import AlreadyExists
from pykai.kube.transport import Transport
from pykai.lab.apiserver.admission import Admission, Mutator, Validator
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.certificates import LOCAL_NAMES, load_authority, server_context
from pykai.lab.apiserver.crds import Definitions
from pykai.lab.apiserver.defaultroles import default_roles
from pykai.lab.apiserver.discovery import Discovery
from pykai.lab.apiserver.garbagecollector import GarbageCollector
from pykai.lab.apiserver.handler import RequestHandler
from pykai.lab.apiserver.http import HttpServer
from pykai.lab.apiserver.integrity import StateError
from pykai.lab.apiserver.kinds import KindRegistry, StoreKey
from pykai.lab.apiserver.localtransport import LocalTransport
from pykai.lab.apiserver.metadata import new_uid
from pykai.lab.apiserver.reader import ObjectReader
from pykai.lab.apiserver.serverstate import ServerState
from pykai.lab.apiserver.sqlitejournal import STATE_FILE, SqliteJournal
from pykai.lab.apiserver.storage import DELETED, ObjectStorage, StorageEvent
from pykai.lab.apiserver.users import Tokens, user_named, write_private
from pykai.lab.apiserver.writer import ObjectWriter

_log = logging.getLogger(__name__)
#: API groups whose installed objects are updated at start
_UPGRADED_GROUPS: Final = frozenset({"rbac.authorization.k8s.io", "admissionregistration.k8s.io"})
_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class ApiServer:
    """An API server in this process."""

    def __init__(
        self,
        storage: ObjectStorage,
        clock: Clock,
        admission: Admission,
        data: Path | None = None,
        journal: SqliteJournal | None = None,
    ) -> None:
        self.storage = storage
        self.data = data
        self.port = 0
        self._journal = journal
        self._authority: CertificateAuthority | None = None
        self._tokens: Tokens | None = None
        self._http: list[HttpServer] = []
        self.clock = clock
        self.registry = KindRegistry()
        self.definitions = Definitions(storage, self.registry)
        self.state = ServerState(storage, self.registry, clock)
        self.writer = ObjectWriter(self.state, admission)
        self.reader = ObjectReader(storage, clock)
        self.authorizer = admission.authorizer
        self.handler = RequestHandler(self.state, self.reader, self.writer, Discovery(self.registry), self.authorizer)
        self.garbage_collector = GarbageCollector(self.state, self.writer)
        storage.listeners.append(self._create_default_account)

    @classmethod
    async def open(
        cls,
        *,
        clock: Clock,
        data: Path | None = None,
        mutators: Iterable[Mutator] = (),
        validators: Iterable[Validator] = (),
        objects: Iterable[Mapping[str, Any]] = (),
    ) -> Self:
        """A running server; missing `objects` are created, after our own CRDs."""
        journal = SqliteJournal(data / STATE_FILE) if data is not None else None
        storage = journal.restore() if journal is not None else ObjectStorage()
        server = cls(storage, clock, Admission(storage, mutators, validators), data, journal)
        if journal is not None:
            journal.start()
        try:
            for name in _NAMESPACES:
                await server.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            for role in default_roles():
                await server.ensure(role)
            for definition in custom_resource_definitions():
                await server.ensure(definition, renew=True)
            for obj in objects:
                # Roles belong to a version of the services; queues and the like belong to users.
                await server.ensure(obj, renew=str(obj.get("apiVersion")).partition("/")[0] in _UPGRADED_GROUPS)
        except BaseException:
            # A cancelled start closes the state file, too.
            await server.close()
            raise
        server.garbage_collector.start()
        return server

    def compact(self) -> None:
        """Drop the history of all kinds: clients that resume have to list again."""
        for collection in self.storage.collections():
            collection.drop_history()

    def transport(self, user: str = "admin") -> Transport:
        """The transport for clients in this process."""
        return LocalTransport(self.handler, user_named(user))

    async def ensure(self, obj: Mapping[str, Any], *, renew: bool = False) -> None:
        """Create an object unless it exists; `renew` replaces everything but metadata of an existing one."""
        kind = self.registry.by_kind(str(obj.get("apiVersion")), str(obj.get("kind")))
        if kind is None:
            raise ValueError(f"{obj.get('apiVersion')} {obj.get('kind')} is not a kind that this server serves")
        meta = obj.get("metadata") or {}
        namespace = str(meta.get("namespace") or "default") if kind.namespaced else ""
        try:
            record = await self.writer.create(Call("create", kind, namespace), dict(obj))
        except AlreadyExists:
            if not renew:
                return
            call = Call("update", kind, namespace, str(meta["name"]))
            wanted = {field: value for field, value in obj.items() if field != "metadata"}
            record = await self.writer.update(call, lambda live: {**live, **wanted})
        await self.storage.wait_durable(record.revision)

    def load(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Store many objects as they are, including status, without checks, for benchmarks."""
        for obj in objects:
            kind = self.registry.by_kind(str(obj["apiVersion"]), str(obj["kind"]))
            if kind is None:
                raise ValueError(f"{obj['apiVersion']} {obj['kind']} is not a kind that this server serves")
            meta = {"uid": new_uid(), "creationTimestamp": self.state.now(), **obj["metadata"]}
            self.state.write(kind, {**obj, "metadata": meta})

    async def close(self) -> None:
        """End watches, tasks and connections, and flush writes to disk."""
        if self.handler.closed:
            return
        self.handler.closed = True
        self.storage.end_watches()
        for http in self._http:
            await http.stop()
        await self.garbage_collector.stop()
        await self.writer.admission.close()
        if self._journal is not None:
            await self._journal.stop()

    @property
    def authority(self) -> CertificateAuthority:
        """The authority that signs the server's certificate."""
        if self._authority is None:
            with self._file_errors("ca.crt and ca.key"):
                self._authority = load_authority(self.data)
        return self._authority

    @property
    def tokens(self) -> Tokens:
        """The tokens of HTTPS users."""
        if self._tokens is None:
            with self._file_errors("tokens.json"):
                self._tokens = Tokens.load(self.data)
        return self._tokens

    @contextmanager
    def _file_errors(self, files: str) -> Iterator[None]:
        """Turn problems with files of the data folder into a `StateError`."""
        try:
            yield
        except (OSError, ValueError, AttributeError) as error:
            text = f"{files} in {self.data} cannot be used: {error}; remove them, and the server makes new ones"
            raise StateError(text) from error

    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen for HTTPS; returns the port."""
        if not is_loopback(host):
            _log.warning("the API server listens on %s: any client that reaches it can try tokens", host)
        names = tuple(dict.fromkeys((*LOCAL_NAMES, *(() if host in ("", "0.0.0.0", "::") else (host,)))))
        http = HttpServer(self.handler, self.tokens)
        self.port = await http.start(host, port, server_context(self.authority, names))
        self._http.append(http)
        return self.port

    def kubeconfig(self, path: Path, *, user: str = "admin", host: str = "127.0.0.1") -> None:
        """Write a kubeconfig for a user of the HTTPS port; only its owner can read it."""
        token = self.tokens.tokens.get(user)
        if token is None:
            raise ValueError(f"there is no user {user!r}; there are {', '.join(sorted(self.tokens.tokens))}")
        if not self.port:
            raise ValueError("the server does not listen yet: call serve() first")
        address = f"[{host}]" if ":" in host else host
        server = {
            "server": f"https://{address}:{self.port}",
            "certificate-authority-data": base64.b64encode(self.authority.pem).decode(),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "pykai", "cluster": server}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "pykai", "context": {"cluster": "pykai", "user": user}}],
            "current-context": "pykai",
        }
        write_private(path, json.dumps(config, indent=2) + "\n")

    def _create_default_account(self, store: StoreKey, event: StorageEvent) -> None:
        """Each namespace has a service account `default`."""
        if store != ("", "namespaces") or event.type == DELETED or event.record.terminating or event.old is not None:
            return
        kind = self.registry.find("", "v1", "serviceaccounts")
        name = event.record.key
        if kind is not None and self.storage.get(kind.store, f"{name}/default") is None:
            meta = {
                "name": "default",
                "namespace": name,
                "uid": new_uid(),
                "creationTimestamp": self.state.now(),
            }
            self.state.write(kind, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
