"""One pod as processes: started in the order of its containers, watched by its probes, restarted, and stopped with it.

What is written is the whole status, whenever it differs from the last one.  A pod that is deleted gets SIGTERM and its
grace period, then SIGKILL; one that was removed at once, SIGKILL.

Statements: operations:OD-21.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import aiohttp

from pykai.api.unstructured import JsonObject
from pykai.kube.backoff import Backoff
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.kube.resources import PODS
from pykai.lab.machines.nodes import node_address
from pykai.lab.processes.addresses import PodAddresses, listening_address
from pykai.lab.processes.containers import Surroundings, command_line, environment_of
from pykai.lab.processes.failures import CannotRun
from pykai.lab.processes.mounts import is_mounted, text_of, write_volumes
from pykai.lab.processes.podstatus import ProcessState, phase_of, status_patch
from pykai.lab.processes.probes import probe_of
from pykai.lab.processes.tokens import AccountTokens
from pykai.lab.timestamps import to_timestamp

log = logging.getLogger(__name__)

_RESTARTS = Backoff(0.5, 30.0)
#: wall seconds after which what was missing is looked for again, if no change said so before
_LOOK_AGAIN_S: Final = 5.0
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_DEFAULT_GRACE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Surface:
    """What all pods share."""

    client: Client
    clock: Clock
    #: one folder below for each pod
    folder: Path
    addresses: PodAddresses
    tokens: AccountTokens
    session: aiohttp.ClientSession
    #: kind, namespace and name -> the object, None if there is none
    read: Callable[[str, str, str], JsonObject | None]


class PodProcess:
    """The processes of one pod."""

    def __init__(self, pod: JsonObject, surface: Surface) -> None:
        self.pod = pod
        self.uid = str(pod["metadata"]["uid"])
        self._surface = surface
        self._spec = pod["spec"]
        self._folder = surface.folder / f"{pod['metadata']['namespace']}_{pod['metadata']['name']}_{self.uid[:8]}"
        self._address = ""
        self._started = self._now()
        self._initial = [_waiting(each) for each in self._spec.get("initContainers") or ()]
        self._states = [_waiting(each) for each in self._spec["containers"]]
        self._written: JsonObject = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        #: something to write, or to try again
        self._changed = asyncio.Event()
        self._objects_changed = asyncio.Event()
        #: the pod is to end, within so many seconds
        self._ends = asyncio.Event()
        self._grace_s = float(self._spec.get("terminationGracePeriodSeconds") or 0)
        self.update(pod)

    def update(self, pod: JsonObject | None) -> None:
        """The pod has changed, or is gone."""
        if pod is None:
            self._end(0.0)
            return
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            grace_s = pod["metadata"].get("deletionGracePeriodSeconds")
            self._end(_DEFAULT_GRACE_S if grace_s is None else float(grace_s))

    def _end(self, grace_s: float) -> None:
        self._grace_s = min(self._grace_s, grace_s) if self._ends.is_set() else grace_s
        self._ends.set()
        if grace_s == 0:
            self._signal(signal.SIGKILL)

    def on_object(self, kind: str, name: str) -> None:
        """A config map or secret of the namespace has changed."""
        self._objects_changed.set()
        if self._address and is_mounted(self.pod, kind, name):
            with contextlib.suppress(CannotRun):
                self._volumes()

    async def run(self) -> None:
        """From the start to the end of the pod."""
        life = asyncio.create_task(self._live(), name=f"containers of {self._folder.name}")
        writing = asyncio.create_task(self._keep_status(), name=f"status of {self._folder.name}")
        try:
            await self._ends.wait()
            await self._stop_all()
            for task in (life, writing):
                task.cancel()
            await asyncio.gather(life, writing, return_exceptions=True)
            await self._remove()
        finally:
            self._signal(signal.SIGKILL)
            for task in (life, writing):
                task.cancel()
            await asyncio.gather(life, writing, return_exceptions=True)
            if self._address:
                self._surface.addresses.release(self._address)
            await asyncio.to_thread(shutil.rmtree, self._folder / "volumes", ignore_errors=True)

    async def _live(self) -> None:
        around = await self._when_possible(self._surroundings)
        for index, container in enumerate(self._spec.get("initContainers") or ()):
            await self._keep_running(container, self._initial, index, around, is_initial=True)
            if self._initial[index].exit_code != 0:
                self._states = [each.waiting("PodInitializing") for each in self._states]
                return
        async with asyncio.TaskGroup() as group:
            for index, container in enumerate(self._spec["containers"]):
                group.create_task(self._keep_running(container, self._states, index, around))

    async def _when_possible(self, prepare: Callable[[], Any]) -> Any:
        """What `prepare` makes, as soon as everything it needs is there."""
        while True:
            self._objects_changed.clear()
            try:
                return await prepare()
            except (CannotRun, ApiError) as error:
                reason = error.reason if isinstance(error, CannotRun) else "ContainerCreating"
                self._states = [each.waiting(reason or "ContainerCreating", str(error)) for each in self._states]
                self._changed.set()
                log.warning("%s waits: %s", self._folder.name, error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._objects_changed.wait(), _LOOK_AGAIN_S)

    async def _surroundings(self) -> Surroundings:
        if not self._address:
            self._address = self._surface.addresses.take()
        namespace = self.pod["metadata"]["namespace"]

        def content(kind: str) -> Callable[[str], Mapping[str, str] | None]:
            def read(name: str) -> Mapping[str, str] | None:
                found = self._surface.read(kind, namespace, name)
                return None if found is None else text_of(found)

            return read

        home = self._folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "HOSTNAME": self.pod["metadata"]["name"],
            "PYTHONUNBUFFERED": "1",
        }
        if self._spec.get("automountServiceAccountToken", True):
            environment["KUBECONFIG"] = str(await self._surface.tokens.write(self.pod, self._folder / "account"))
        return Surroundings(
            pod=self.pod,
            address=self._address,
            listens_at=listening_address(self._address),
            volumes=self._volumes(),
            config_map=content("configmap"),
            secret=content("secret"),
            environment=environment,
        )

    def _volumes(self) -> dict[str, Path]:
        namespace = self.pod["metadata"]["namespace"]
        host = self._surface.folder / "host" / str(self._spec.get("nodeName"))
        return write_volumes(
            self.pod,
            self._folder / "volumes",
            host,
            lambda kind, name: self._surface.read(kind, namespace, name),
        )

    async def _keep_running(
        self,
        container: JsonObject,
        states: list[ProcessState],
        index: int,
        around: Surroundings,
        *,
        is_initial: bool = False,
    ) -> None:
        """Start a container, and again as the restart policy says."""
        policy = self._spec.get("restartPolicy", "Always")
        restarts = 0
        while not self._ends.is_set():
            try:
                exit_code = await self._run_once(container, states, index, around, restarts)
            except CannotRun as error:
                self._set(states, index, states[index].waiting(error.reason, error.message))
                log.warning("%s: container %s cannot start: %s", self._folder.name, container["name"], error)
                exit_code = None
            finished = exit_code == 0 and (is_initial or policy != "Always")
            if finished or (exit_code is not None and policy == "Never"):
                return
            restarts += exit_code is not None
            delay_s = _RESTARTS.delay_s(max(restarts, 1))
            if exit_code is not None:
                said = f"back-off {delay_s:.1f}s restarting container={container['name']}"
                self._set(states, index, states[index].waiting("CrashLoopBackOff", said))
            await asyncio.sleep(delay_s)

    async def _run_once(
        self, container: JsonObject, states: list[ProcessState], index: int, around: Surroundings, restarts: int
    ) -> int:
        environment = environment_of(container, around)
        words = command_line(container, around, environment)
        readiness = probe_of(container, "readinessProbe", around.listens_at)
        liveness = probe_of(container, "livenessProbe", around.listens_at)
        process = await self._start(container["name"], words, environment)
        log.info("%s: started %s (pid %d)", self._folder.name, container["name"], process.pid)
        running = states[index].running(self._now(), restarts=restarts)
        self._set(states, index, replace(running, is_ready=readiness is None))

        def ready(answer: bool) -> None:
            if states[index].is_running and states[index].is_ready != answer:
                self._set(states, index, replace(states[index], is_ready=answer))

        def alive(answer: bool) -> None:
            if not answer and process.returncode is None:
                log.warning("%s: %s fails its liveness probe", self._folder.name, container["name"])
                process.terminate()

        watches = [
            asyncio.create_task(probe.watch(self._surface.session, said))
            for probe, said in ((readiness, ready), (liveness, alive))
            if probe is not None
        ]
        try:
            status = await process.wait()
        finally:
            for watch in watches:
                watch.cancel()
        self._processes.pop(container["name"], None)
        # As a container runtime reports a signal.
        exit_code = status if status >= 0 else 128 - status
        self._set(states, index, states[index].ended(exit_code, self._now()))
        level = logging.INFO if exit_code == 0 or self._ends.is_set() else logging.WARNING
        log.log(level, "%s: %s ended with %d", self._folder.name, container["name"], exit_code)
        return exit_code

    async def _start(self, name: str, words: list[str], environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{name}.log").open("ab") as output:
            self._processes[name] = process = await asyncio.create_subprocess_exec(
                *words,
                cwd=self._folder,
                env=dict(environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        if self._ends.is_set():
            process.terminate()
        return process

    async def _stop_all(self) -> None:
        self._signal(signal.SIGTERM if self._grace_s else signal.SIGKILL)
        waits = [asyncio.ensure_future(process.wait()) for process in self._processes.values()]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=self._grace_s)
        if late:
            log.warning("%s did not end within %g s and is killed", self._folder.name, self._grace_s)
            self._signal(signal.SIGKILL)
            await asyncio.wait(late)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)

    async def _keep_status(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._write_status()
            except (NotFound, Conflict):
                return
            except ApiError as error:
                log.warning("the status of %s cannot be written: %s", self._folder.name, error)
                await asyncio.sleep(1.0)
                continue
            await self._changed.wait()

    async def _write_status(self) -> None:
        if not self._address:
            return
        policy = self._spec.get("restartPolicy", "Always")
        failed = any(each.has_ended and each.exit_code for each in self._initial) and policy == "Never"
        phase = (
            "Failed"
            if failed
            else phase_of(self._states, restarts_always=policy == "Always", restarts_failed=policy == "OnFailure")
        )
        status = status_patch(
            phase,
            self._initial,
            self._states,
            address=self._address,
            host=node_address(str(self._spec.get("nodeName"))),
            started=self._started,
            at=self._now(),
        )
        if _without_times(status) == _without_times(self._written):
            return
        metadata = self.pod["metadata"]
        body = {"metadata": {"uid": self.uid}, "status": status}
        await self._surface.client.patch(
            PODS,
            metadata["name"],
            body,
            metadata["namespace"],
            kind=PatchKind.STRATEGIC,
            subresource="status",
            brief=True,
        )
        self._written = status

    async def _remove(self) -> None:
        """Nothing runs any more: the pod may go."""
        metadata = self.pod["metadata"]
        with contextlib.suppress(NotFound, Conflict):
            await self._surface.client.delete(PODS, metadata["name"], metadata["namespace"], uid=self.uid, grace_s=0)

    def _set(self, states: list[ProcessState], index: int, state: ProcessState) -> None:
        states[index] = state
        self._changed.set()

    def _now(self) -> str:
        return to_timestamp(self._surface.clock.now().timestamp())


def _waiting(container: JsonObject) -> ProcessState:
    return ProcessState(str(container["name"]), str(container.get("image", "")))


def _without_times(status: JsonObject) -> str:
    """What counts as a change: a condition that was written a second later is none."""
    conditions = [{**each, "lastTransitionTime": ""} for each in status.get("conditions") or ()]
    return json.dumps({**status, "conditions": conditions}, sort_keys=True)


def _die_with_parent() -> None:
    """In the child: nothing is left behind when the agent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
