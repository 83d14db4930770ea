"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and, where wanted, controllers and scheduler.

    with ControlPlane(folder) as plane:
        client = Client(connect(plane.kubeconfig))

The programs are built by `tools/kubernetes.py`.  Everything listens on 127.0.0.1 on free ports, everything written is
below `folder`, and everything started ends with the block, also when this process dies.  `kill` and
`start` act on single programs, as operators and accidents do.

RBAC decides about permissions.  The administrator has a token of its own; `token_of` gives those of service
accounts, as the API server itself issues them.  Every request is in the audit log (`requests`).
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pykai.lab.processes.network import egress_configuration
from tests.kube.certificates import Authority
from tools import kubernetes

ETCD, API_SERVER, CONTROLLERS, SCHEDULER = "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"
#: how long a program may take to answer its first request
_START_TIMEOUT_S = 90.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PORTS = range(10_000, 32_768)
#: what `free_port` has returned in this process
_GIVEN_PORTS: set[int] = set()
#: the programs collect garbage a fourth as often as usual: a small heap costs more processor time than memory
_GOGC = "400"

#: the audit logs of all control planes that this process has started; for inspection
AUDIT_LOGS: list[Path] = []

#: each request once, when it is answered, without its body; watches when they begin
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class ControlPlaneFailed(Exception):
    """A program of the control plane did not start, or ended."""


def missing_programs() -> list[str]:
    """The programs that were not built yet."""
    return [program for program in kubernetes.CONTROL_PLANE if kubernetes.built(program) is None]


class ControlPlane:
    """The programs of one control plane."""

    def __init__(
        self,
        folder: Path,
        *,
        controllers: Sequence[str] = (),
        scheduler: bool = False,
        service_accounts: bool = False,
        audit: bool = False,
        options: Mapping[str, Sequence[str]] | None = None,
        network: Path | None = None,
        lasting_accounts: Iterable[tuple[str, str]] = (),
    ) -> None:
        """`controllers` as in `--controllers`: ("*",) for all; `service_accounts`: pods need theirs, as in a real
        cluster; `options` are further flags by program; `network`: the socket of a proxy that leads to Services;
        `lasting_accounts`: whose tokens hold for as long as the server runs."""
        self.folder = folder
        self.controllers = tuple(controllers)
        self.programs = [ETCD, API_SERVER, *([CONTROLLERS] if controllers else []), *([SCHEDULER] if scheduler else [])]
        self._service_accounts = service_accounts
        self._audit = audit
        self._options = dict(options or {})
        self._network = network
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {name: free_port() for name in (ETCD, "peers", API_SERVER, CONTROLLERS, SCHEDULER)}
        self._token = secrets.token_urlsafe(24)
        #: (namespace, account) -> a token that also holds while the account is deleted and made again
        self._lasting_tokens = {account: secrets.token_urlsafe(24) for account in lasting_accounts}

    @property
    def server(self) -> str:
        """The address of the API server."""
        return f"https://127.0.0.1:{self._ports[API_SERVER]}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "admin.kubeconfig"

    @property
    def authority(self) -> Path:
        """The certificate to trust."""
        return self.folder / "authority.crt"

    def __enter__(self) -> Self:
        try:
            self._prepare()
            if self._audit:
                AUDIT_LOGS.append(self.folder / "audit.log")
            self.start(ETCD)
            self.start(API_SERVER)
            self.kubeconfig.write_text(self._kubeconfig(self._token), encoding="utf-8")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_controllers(self) -> None:
        """Start the controller manager and the scheduler, as far as they are wanted.

        Not with the API server: the garbage collector learns new kinds only every 30 s, so definitions go first.
        """
        for program in self.programs[2:]:
            self.start(program)

    def start(self, program: str) -> None:
        """Start one program and wait until it answers."""
        log = (self.folder / f"{program}.log").open("ab")
        with log:
            self._processes[program] = subprocess.Popen(
                [str(kubernetes.program_path(program)), *self._arguments(program), *self._options.get(program, ())],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "GOGC": _GOGC},
                preexec_fn=die_with_parent,
            )
        self._await(program)

    def kill(self, program: str) -> None:
        """Kill a program."""
        process = self._processes.pop(program)
        process.kill()
        process.wait()

    def restart(self, program: str) -> None:
        """Kill a program and start it again."""
        self.kill(program)
        self.start(program)

    def stop(self) -> None:
        """End everything, last started first; what does not end in time is killed."""
        for program in reversed(list(self._processes)):
            process = self._processes.pop(program)
            process.send_signal(signal.SIGTERM if program != API_SERVER else signal.SIGKILL)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def pid(self, program: str) -> int:
        """The process of a program."""
        return self._processes[program].pid

    def compact(self) -> None:
        """Compact all history: a watch that resumes from before is answered 410."""
        etcd = f"http://127.0.0.1:{self._ports[ETCD]}"
        key = base64.b64encode(b"x").decode()
        revision = _post(f"{etcd}/v3/kv/range", {"key": key})["header"]["revision"]
        _post(f"{etcd}/v3/kv/compaction", {"revision": revision, "physical": True})

    def token_of(self, namespace: str, account: str) -> str:
        """A token of a service account that exists."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        spec = {"spec": {"expirationSeconds": 86400}}
        made = self._ask(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", **spec})
        return str(json.loads(made)["status"]["token"])

    def kubeconfig_of(self, namespace: str, account: str) -> Path:
        """A kubeconfig of a service account that exists."""
        path = self.folder / f"{namespace}.{account}.kubeconfig"
        path.touch(0o600)
        lasting = self._lasting_tokens.get((namespace, account))
        path.write_text(self._kubeconfig(lasting or self.token_of(namespace, account)), encoding="utf-8")
        return path

    def _tokens(self) -> Iterator[str]:
        yield f'{self._token},admin,admin,"system:masters"\n'
        for (namespace, account), token in self._lasting_tokens.items():
            user = f"system:serviceaccount:{namespace}:{account}"
            yield f'{token},{user},{user},"system:serviceaccounts,system:serviceaccounts:{namespace}"\n'

    def requests(self) -> Iterator[dict[str, Any]]:
        """The audit log: one document per request that was answered."""
        return requests_in(self.folder / "audit.log")

    def _prepare(self) -> None:
        if missing := missing_programs():
            raise ControlPlaneFailed(f"not built yet: {', '.join(missing)}; `make cluster-programs` builds them")
        self.folder.mkdir(parents=True, exist_ok=True)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        # Its own would be an RSA key, which takes a millisecond of the processor for each connection.
        authority = Authority()
        issued = authority.issue("kube-apiserver")
        for name, content in (
            ("authority.crt", authority.pem),
            ("apiserver.crt", issued.certificate),
            ("apiserver.key", issued.key),
            ("accounts.key", private),
            ("accounts.pub", public),
            ("tokens.csv", "".join(self._tokens()).encode()),
            ("audit.json", json.dumps(_AUDIT_POLICY).encode()),
        ):
            path = self.folder / name
            path.touch(0o600)
            path.write_bytes(content)
        if self._network is not None:
            (self.folder / "egress.json").write_text(egress_configuration(self._network), encoding="utf-8")

    def _arguments(self, program: str) -> list[str]:
        folder, ports = self.folder, self._ports
        secure = ["--bind-address=127.0.0.1", f"--secure-port={ports.get(program)}"]
        if program == ETCD:
            clients, peers = (f"http://127.0.0.1:{ports[each]}" for each in (ETCD, "peers"))
            return [
                f"--data-dir={folder / 'etcd'}",
                *(f"--{each}={clients}" for each in ("listen-client-urls", "advertise-client-urls")),
                *(f"--{each}={peers}" for each in ("listen-peer-urls", "initial-advertise-peer-urls")),
                f"--initial-cluster=default={peers}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ]
        if program == API_SERVER:
            return [
                *secure,
                f"--etcd-servers=http://127.0.0.1:{ports[ETCD]}",
                "--advertise-address=127.0.0.1",
                "--endpoint-reconciler-type=none",
                f"--tls-cert-file={folder / 'apiserver.crt'}",
                f"--tls-private-key-file={folder / 'apiserver.key'}",
                f"--service-account-key-file={folder / 'accounts.pub'}",
                f"--service-account-signing-key-file={folder / 'accounts.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.0.0.0/24",
                *([f"--egress-selector-config-file={folder / 'egress.json'}"] if self._network else []),
                *([] if self._service_accounts else ["--disable-admission-plugins=ServiceAccount"]),
                *(
                    [
                        f"--audit-policy-file={folder / 'audit.json'}",
                        f"--audit-log-path={folder / 'audit.log'}",
                        # One file, however long it gets (in MB): no request may be forgotten.
                        "--audit-log-maxsize=10000",
                    ]
                    if self._audit
                    else []
                ),
            ]
        common = [
            *secure,
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
        ]
        if program == SCHEDULER:
            return [*common, f"--cert-dir={folder / 'scheduler'}"]
        return [
            *common,
            f"--cert-dir={folder / 'controllers'}",
            f"--controllers={','.join(self.controllers)}",
            f"--service-account-private-key-file={folder / 'accounts.key'}",
            f"--root-ca-file={self.authority}",
            f"--flex-volume-plugin-dir={folder / 'volumes'}",
            "--node-monitor-grace-period=24h",
        ]

    def _kubeconfig(self, token: str) -> str:
        cluster = {"server": self.server, "certificate-authority": str(self.authority)}
        context = {"cluster": "tests", "user": "tests"}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "tests", "cluster": cluster}],
                "users": [{"name": "tests", "user": {"token": token}}],
                "contexts": [{"name": "tests", "context": context}],
                "current-context": "tests",
            }
        )

    def _await(self, program: str) -> None:
        until = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < until:
            if (status := self._processes[program].poll()) is not None:
                raise ControlPlaneFailed(f"{program} ended with status {status}:\n{self._log_tail(program)}")
            if self._answers(program):
                return
            time.sleep(0.05)
        raise ControlPlaneFailed(f"{program} did not answer in {_START_TIMEOUT_S:.0f} s:\n{self._log_tail(program)}")

    def _answers(self, program: str) -> bool:
        try:
            if program == ETCD:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._ports[ETCD]}/health", timeout=5) as answer:
                    return bool(json.load(answer)["health"] == "true")
            if program == API_SERVER:
                self._ask("/readyz")
                return True
            with socket.create_connection(("127.0.0.1", self._ports[program]), timeout=5):
                return True
        except (OSError, urllib.error.URLError, KeyError, ValueError):
            return False

    def _ask(self, path: str, content: Mapping[str, Any] | None = None) -> bytes:
        """One request of the administrator, without a client."""
        request = urllib.request.Request(
            f"{self.server}{path}",
            data=json.dumps(content).encode() if content is not None else None,
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        context = ssl.create_default_context(cafile=str(self.authority))
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return bytes(answer.read())

    def _log_tail(self, program: str) -> str:
        lines = (self.folder / f"{program}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-15:])


def requests_in(audit_log: Path) -> Iterator[dict[str, Any]]:
    """One document per request that was answered."""
    with audit_log.open("rb") as lines:
        for line in lines:
            # The last one may be half written, and so may the last one of a server that was killed.
            with suppress(ValueError):
                yield msgspec.json.decode(line)


def free_port() -> int:
    """A port for a program that is started later; nothing else on this machine that asks here gets the same.

    Below the ports that the system gives to connections: one of those may be taken before the program listens.  A lock
    on a byte of a file, which ends with this process, keeps the port from others until the program listens.
    """
    locks = _open_port_locks()
    while True:
        port = secrets.choice(_PORTS)
        if port in _GIVEN_PORTS:
            continue
        try:
            fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _GIVEN_PORTS.add(port)
            return port
        fcntl.lockf(locks, fcntl.LOCK_UN, 1, port)


@cache
def _open_port_locks() -> int:
    """Open once: closing any descriptor of the file would end all locks of this process."""
    path = Path(tempfile.gettempdir()) / f"pykai-ports-{os.getuid()}.lock"
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def have_go() -> bool:
    """Whether the programs could be built."""
    return shutil.which("go") is not None


def _post(url: str, content: Mapping[str, Any]) -> Any:
    request = urllib.request.Request(url, data=json.dumps(content).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def die_with_parent() -> None:
    """In a child: nothing is left behind when the tests are killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
