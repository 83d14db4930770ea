"""The soak on a real control plane: Kubernetes' own controllers, every service under its own account.

    python -m tests.cluster.soak --kills 30 --restarts 3 --minutes 30 --folder DIR

What is killed, submitted, recorded and checked is that of `kai soak` (`pykai.dev.soak`); here the API server is a
kube-apiserver, Jobs and Deployments are run by kube-controller-manager, pods pass through our admission service, and
`kai run machines` plays kubelets only.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from pykai.api import names
from pykai.dev.soak.controlplanes import EmbeddedControlPlane
from pykai.dev.soak.processes import SoakFailed
from pykai.dev.soak.runner import Soak
from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.kube.errors import NotFound
from pykai.kube.resources import MUTATING_WEBHOOKS, SERVICE_ACCOUNTS
from pykai.operator.install import installation
from pykai.services.table import account_rules
from tests.cluster.controlplane import API_SERVER, ControlPlane, free_port
from tests.cluster.plane import install, registration
from tests.cluster.rights import forbidden
from tests.kube.certificates import Authority

#: service -> its account
ACCOUNTS = {
    "scheduler": "scheduler",
    "binder": "binder",
    "podgrouper": "pod-grouper",
    "podgroups": "podgroup-controller",
    "queues": "queue-controller",
    "admission": "admission",
}
_TIMEOUT_S = 900.0


class RealControlPlane:
    """A control plane with all of Kubernetes' controllers, ours installed."""

    def __init__(self, folder: Path) -> None:
        self._plane = ControlPlane(folder, controllers=("*",), service_accounts=True, audit=True)
        self._certificates = folder / "admission"
        self._port = free_port()
        self._kubeconfigs: dict[str, Path] = {}

    @property
    def flags(self) -> Mapping[str, Sequence[str]]:
        admission = (
            f"--webhook-addr={self._port}",
            f"--cert-dir={self._certificates}",
            "--gpu-sharing-enabled=true",
        )
        return {
            **EmbeddedControlPlane.flags,
            "machines": ("--controllers=false", "--default-scheduler=false"),
            "admission": admission,
        }

    async def start(self) -> None:
        # In a thread that outlives the programs: they end with the thread that started them.
        await asyncio.to_thread(self._plane.__enter__)
        transport = connect(self._plane.kubeconfig)
        try:
            await install(transport, installation())
            await Client(transport).create(MUTATING_WEBHOOKS, self._admission())
            await asyncio.to_thread(self._plane.start_controllers)
            # Without it no pod is taken.
            await _until_there(Client(transport), "default", "default")
        finally:
            await transport.close()
        for service, account in ACCOUNTS.items():
            self._kubeconfigs[service] = self._plane.kubeconfig_of(names.DEFAULT_NAMESPACE, account)

    def kubeconfig(self, service: str = "") -> Path:
        return self._kubeconfigs.get(service, self._plane.kubeconfig)

    async def restart(self, pause_s: float) -> None:
        await asyncio.to_thread(self._plane.kill, API_SERVER)
        await asyncio.sleep(pause_s)
        await asyncio.to_thread(self._plane.start, API_SERVER)

    def check_alive(self) -> None:
        for program in self._plane.programs:
            if not Path(f"/proc/{self._plane.pid(program)}/exe").exists():
                raise SoakFailed(f"{program} ended by itself; see {self._plane.folder / program}.log")

    def pids(self) -> Mapping[str, int]:
        return {}

    async def stop(self) -> None:
        await asyncio.to_thread(self._plane.stop)

    def refused(self) -> list[str]:
        """Requests of our services that were forbidden."""
        return forbidden(self._plane.requests(), account_rules())

    def _admission(self) -> dict[str, object]:
        """The certificate of our admission service, and what registers it."""
        authority = Authority()
        issued = authority.issue("admission")
        self._certificates.mkdir(parents=True)
        (self._certificates / "tls.crt").write_bytes(issued.certificate)
        key = self._certificates / "tls.key"
        key.touch(0o600)
        key.write_bytes(issued.key)
        return registration(
            f"https://127.0.0.1:{self._port}",
            authority.pem,
            {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        )


async def _until_there(client: Client, namespace: str, account: str) -> None:
    async with asyncio.timeout(_TIMEOUT_S):
        while True:
            try:
                await client.get_raw(SERVICE_ACCOUNTS, account, namespace)
                return
            except NotFound:
                await asyncio.sleep(0.1)


def main() -> int:
    """Run a soak and print its report; 1 if a guarantee was broken."""
    parser = argparse.ArgumentParser(description="Kill processes under load on a real control plane.")
    parser.add_argument("--kills", type=int, default=30, help="how many services are killed in all")
    parser.add_argument("--restarts", type=int, default=3, help="how often the API server is killed and started again")
    parser.add_argument("--minutes", type=float, default=30, help="how long the load lasts; from 15 on memory counts")
    parser.add_argument("--seed", type=int, default=1, help="which kills and which work")
    parser.add_argument(
        "--faults",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="requests, watches, nodes, kubelets and clocks fail, too",
    )
    parser.add_argument("--folder", type=Path, help="keep logs, state and recording here")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="kai-soak-"))
    say = partial(print, flush=True)
    say(f"everything goes to {folder}")
    plane = RealControlPlane(folder / "plane")
    soak = Soak(
        folder,
        plane,
        kills=options.kills,
        restarts=options.restarts,
        seconds=options.minutes * 60,
        seed=options.seed,
        faults=options.faults,
        say=say,
    )
    # However it is stopped, its processes end with it.
    for told in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told, signal.default_int_handler)
    try:
        report = asyncio.run(soak.run())
    except SoakFailed as error:
        say(f"The soak could not go on: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"Told to end before the time was over: nothing is judged.  What was recorded is in {folder}")
        return 130
    say(report.text())
    refused = plane.refused()
    say("".join(f"  FORBIDDEN: {each}\n" for each in refused) or "  nobody asked for what his role does not allow")
    return 1 if report.problems or refused else 0


if __name__ == "__main__":
    sys.exit(main())
