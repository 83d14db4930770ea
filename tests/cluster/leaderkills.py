"""The scheduler that leads is killed again and again, under load, in an installation on a real control plane.

    python -m tests.cluster.leaderkills --kills 20 --folder DIR

PyKAI is installed as users install it, with two schedulers.  Load, recorder and checks are those of `kai soak`
(`pykai.dev.soak`): nothing may be bound twice, lost or left over.  Of each kill it is reported after how long the other
scheduler has the lease and after how long it binds a pod, which must be within the time of the lease.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pykai.api import names
from pykai.dev.soak import workload
from pykai.dev.soak.processes import SoakFailed
from pykai.dev.soak.runner import Soak
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.kube.resources import CONFIGS, LEASES, PODS
from pykai.kube.store import Change
from pykai.lab.story import machine_kind
from pykai.services.table import account_rules
from tests.cluster.rights import forbidden
from tests.cluster.workingtime import TAKEOVER_S, takeover_clock
from tests.e2e.installation import Installation, installation_on_a_control_plane

Document = dict[str, Any]
_LEASE = "kai-scheduler"
_APP = "kai-scheduler-default"
#: how long anything may take before the whole is given up
_PATIENCE_S = 600.0


class InstalledPlane:
    """An installation as the control plane of a soak: it has no processes to kill but those of its pods."""

    flags: Mapping[str, Sequence[str]] = {}

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.installation: Installation | None = None

    async def start(self) -> None:
        # In a thread that outlives the programs: they end with the thread that started them.
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        kinds = list(map(machine_kind, workload.machines()))
        self.installation = self._stack.enter_context(installation_on_a_control_plane(self._folder, kinds))
        self.installation.install()

    def kubeconfig(self, service: str = "") -> Path:
        return self._made.kubeconfig

    async def restart(self, pause_s: float) -> None:
        raise SoakFailed("the API server is not restarted here")

    def check_alive(self) -> None:
        plane = self._made.plane
        for program in plane.programs:
            if not Path(f"/proc/{plane.pid(program)}/exe").exists():
                raise SoakFailed(f"{program} ended by itself; see {plane.folder / program}.log")

    def pids(self) -> Mapping[str, int]:
        return {}

    async def stop(self) -> None:
        await asyncio.to_thread(self._stack.close)

    def refused(self) -> list[str]:
        """Requests of our services that were forbidden."""
        return forbidden(self._made.plane.requests(), account_rules())

    @property
    def _made(self) -> Installation:
        assert self.installation is not None, "start() comes first"
        return self.installation


@dataclass(frozen=True, slots=True)
class Takeover:
    """How long it took after a kill until another scheduler had the lease, and until it bound a pod; time in which it
    could not run does not count (`tests.cluster.workingtime`)."""

    led_s: float
    bound_s: float


@dataclass(slots=True)
class LeaderKills:
    """Kills the leader so many times, each time when the one before is replaced and has a successor ready."""

    kubeconfig: Callable[[], Path]
    kills: int
    say: Callable[[str], None]
    takeovers: list[Takeover] = field(default_factory=list)
    #: of the lease
    duration_s: float = 0.0
    #: pods that a scheduler itself has bound
    _bound: int = 0

    async def run(self) -> None:
        """Kill them all."""
        transport = connect(self.kubeconfig())
        client = Client(transport)
        caches = Caches(client)
        pods, leases = caches.store(PODS, dict), caches.store(LEASES, dict, namespace=names.DEFAULT_NAMESPACE)
        pods.subscribe(self._on_pod)
        await caches.start()
        try:
            await client.patch(CONFIGS, "kai-config", {"spec": {"scheduler": {"replicas": 2}}})

            def replaced() -> str:
                """The leader, if there is one and another is ready to follow."""
                ready = [name for name, pod in _schedulers(pods.values()) if _is_ready(pod)]
                holder = _holder(leases.get(f"{names.DEFAULT_NAMESPACE}/{_LEASE}"))
                return holder if len(ready) == 2 and holder in ready else ""

            while len(self.takeovers) < self.kills:
                await pods.wait_until(lambda _: bool(replaced()), _PATIENCE_S)
                await self._binds(pods)
                leader = replaced()
                if not leader:
                    continue
                clock = takeover_clock({name for name, _ in _schedulers(pods.values())} - {leader})
                began_s = clock.time()
                await client.delete(PODS, leader, names.DEFAULT_NAMESPACE, grace_s=0)
                await leases.wait_until(partial(_is_led_by_another, leader), _PATIENCE_S)
                led_s = clock.time() - began_s
                await self._binds(pods)
                self.takeovers.append(Takeover(led_s, clock.time() - began_s))
                lease = leases.get(f"{names.DEFAULT_NAMESPACE}/{_LEASE}")
                self.duration_s = float(lease["spec"]["leaseDurationSeconds"]) if lease else 0.0
                self.say(f"kill {len(self.takeovers)} of {self.kills}: {leader}; {self.takeovers[-1]}")
        finally:
            await caches.stop()
            await transport.close()

    def _on_pod(self, change: Change[Document]) -> None:
        if change.new is None or not change.new["spec"].get("nodeName"):
            return
        was_bound = change.old is not None and change.old["spec"].get("nodeName")
        # The binder binds those that share GPUs.
        self._bound += not was_bound and names.NVIDIA_GPU in _requests(change.new)

    async def _binds(self, pods: Any) -> None:
        """Wait until a scheduler binds one more pod."""
        before = self._bound
        await pods.wait_until(lambda _: self._bound > before, _PATIENCE_S)

    def problems(self) -> list[str]:
        """What took longer than the lease allows, and a lease that is not the one we promise."""
        late = [
            f"kill {number}: the lease was free for {each.led_s:.1f} s, and {each.bound_s:.1f} s passed until a bind, "
            f"more than {TAKEOVER_S:g} s"
            for number, each in enumerate(self.takeovers, 1)
            if each.bound_s > TAKEOVER_S
        ]
        if self.duration_s != names.LEASE_DURATION_S:
            late.append(f"the lease lasts {self.duration_s:g} s, not {names.LEASE_DURATION_S} s")
        return late

    def text(self) -> str:
        """The figures."""
        led, bound = [each.led_s for each in self.takeovers], [each.bound_s for each in self.takeovers]
        return (
            f"With a lease of {self.duration_s:g} s another scheduler led after "
            f"{statistics.median(led):.1f} s (at most {max(led):.1f} s), and bound a pod after "
            f"{statistics.median(bound):.1f} s (at most {max(bound):.1f} s)"
        )


def _schedulers(pods: Sequence[Document] | Any) -> list[tuple[str, Document]]:
    """The pods of the scheduler that are not being deleted."""
    return [
        (pod["metadata"]["name"], pod)
        for pod in pods
        if pod["metadata"].get("labels", {}).get("app") == _APP and not pod["metadata"].get("deletionTimestamp")
    ]


def _is_ready(pod: Document) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _holder(lease: Document | None) -> str:
    """The pod that holds a lease."""
    return str(((lease or {}).get("spec", {}).get("holderIdentity")) or "").partition("_")[0]


def _is_led_by_another(leader: str, leases: Any) -> bool:
    return _holder(leases.get(f"{names.DEFAULT_NAMESPACE}/{_LEASE}")) not in ("", leader)


def _requests(pod: Document) -> Mapping[str, str]:
    (first, *_) = pod["spec"]["containers"]
    return dict(first.get("resources", {}).get("requests") or {})


def main() -> int:
    """Kill, and print the report; 1 if a guarantee was broken."""
    parser = argparse.ArgumentParser(description="Kill leading schedulers under load on a real control plane.")
    parser.add_argument("--kills", type=int, default=20, help="how many leaders are killed")
    parser.add_argument("--seed", type=int, default=1, help="which work")
    parser.add_argument("--folder", type=Path, help="keep logs, state and recording here")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="kai-leaders-"))
    say = partial(print, flush=True)
    say(f"everything goes to {folder}")
    plane = InstalledPlane(folder / "plane")
    kills = LeaderKills(plane.kubeconfig, options.kills, say)
    soak = Soak(folder, plane, kills=0, seconds=0.0, seed=options.seed, say=say, trial=kills.run)
    # However it is stopped, its processes end with it.
    for told in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told, signal.default_int_handler)
    try:
        report = asyncio.run(soak.run())
    except SoakFailed as error:
        say(f"The kills could not go on: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"Told to end before the time was over: nothing is judged.  What was recorded is in {folder}")
        return 130
    report.kills["schedulers that lead"] = len(kills.takeovers)
    say(kills.text())
    say(report.text())
    problems = [*kills.problems(), *(f"FORBIDDEN: {each}" for each in plane.refused())]
    say("".join(f"  {each}\n" for each in problems) or "  no takeover was late, no request was forbidden")
    return 1 if report.problems or problems else 0


if __name__ == "__main__":
    sys.exit(main())
