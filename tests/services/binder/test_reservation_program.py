"""The program in reservation pods, on an API server and with the binder (gpu:RP-1 to RP-3, RV-5)."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.sharing import reservation_name
from pykai.binder.options import BinderOptions
from pykai.binder.reservation import reservation_pod
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import ConnectionLost, Unauthorized
from pykai.kube.resources import PODS
from pykai.kube.store import Change
from pykai.kube.transport import Request, Response
from pykai.reservation.failures import DeviceError
from pykai.reservation.program import OwnPod, ReservationError, hold_device, own_pod
from tests.reservation.fakedrivers import with_driver
from tests.servers import embedded
from tests.services.binder.bindercluster import (
    RESERVATIONS,
    BinderCluster,
    FaultyBinderTransport,
    binder_cluster,
    status,
)

GROUP = "g"
NAME = reservation_name("n1", GROUP)
OURS = OwnPod(RESERVATIONS, NAME)
ASKED = [f"GET /api/v1/namespaces/{RESERVATIONS}/pods/{NAME}", f"PATCH /api/v1/namespaces/{RESERVATIONS}/pods/{NAME}"]


def gpu_7() -> str:
    return "GPU-7"


def no_driver() -> str:
    raise DeviceError("no driver")


class Wire(FaultyBinderTransport):
    """The transport of the program, under the rights of its account."""

    def __init__(self, it: BinderCluster) -> None:
        super().__init__(it.server.account(RESERVATIONS, names.RESERVATION_APP))
        self.asked: list[str] = []
        #: set once the program has nothing more to ask
        self.closed = asyncio.Event()

    async def close(self) -> None:
        self.closed.set()
        await super().close()

    async def send(self, request: Request) -> Response:
        self.asked.append(f"{request.method} {request.path}")
        return await super().send(request)


async def no_pause(_: float) -> None:
    """The client's own pauses are tested elsewhere."""


class NotingClock(Clock):
    """A clock whose pauses are noted and take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def at_work(
    wire: Wire, find: Callable[[], str] = gpu_7, clock: Clock | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """The program; it must end at once when it is stopped."""
    stop = asyncio.Event()
    program = asyncio.ensure_future(
        hold_device(Client(wire, sleep=no_pause), OURS, find, stop, clock=clock or NotingClock())
    )
    try:
        async with asyncio.timeout(5.0):
            yield program
    finally:
        stop.set()
        await asyncio.gather(program, return_exceptions=True)


async def reservation(it: BinderCluster, **annotations: str) -> None:
    """The pod that the binder makes for a group."""
    document = reservation_pod(Pod(), "n1", GROUP, BinderOptions())
    document["metadata"]["annotations"] |= annotations
    await it.client.create(PODS, document)


async def annotated(it: BinderCluster) -> str:
    """The GPU that the program has reported."""

    async def reported() -> str | None:
        found = await it.get(PODS, NAME, RESERVATIONS)
        return ((found or {}).get("metadata", {}).get("annotations") or {}).get("run.ai/reserve_for_gpu_index")

    return str(await it.until(reported))


@pytest.fixture
async def it() -> AsyncIterator[BinderCluster]:
    async with binder_cluster() as made:
        made.answers = False
        yield made


async def test_the_device_is_reported_with_the_rights_of_the_program_and_held(it: BinderCluster) -> None:
    await reservation(it)
    wire = Wire(it)
    async with at_work(wire) as program:
        assert await annotated(it) == "GPU-7"
        assert not program.done()
    assert program.result() is None
    assert wire.asked == ASKED


async def test_what_was_reported_before_stays(it: BinderCluster) -> None:
    """gpu:RP-1: a restarted container asks no driver."""
    await reservation(it, **{names.RESERVED_GPU_ANNOTATION: "GPU-3"})
    wire = Wire(it)
    async with at_work(wire, no_driver) as program:
        await wire.closed.wait()
        assert not program.done()
    assert program.result() is None
    assert await annotated(it) == "GPU-3"
    assert wire.asked == ASKED[:1]


@pytest.mark.parametrize("fault", [ConnectionLost("cut"), status(500, "InternalError"), status(429, "TooManyRequests")])
async def test_the_program_waits_for_an_api_server_that_is_away(it: BinderCluster, fault: Response | Exception) -> None:
    await reservation(it)
    wire = Wire(it)
    failures = iter(range(20))
    wire.fault = lambda request: fault if next(failures, None) is not None else None
    clock = NotingClock()
    async with at_work(wire, clock=clock):
        assert await annotated(it) == "GPU-7"
    assert next(failures, None) is None
    # It asks ever more seldom: thousands of such pods may wait.
    assert clock.pauses_s == [0.5, 1.0, 2.0]


async def test_a_late_program_writes_nothing_into_the_pod_that_has_its_name_now(it: BinderCluster) -> None:
    await reservation(it)
    looking, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow() -> str:
        loop.call_soon_threadsafe(looking.set)
        go_on.wait()
        return "GPU-7"

    async with at_work(Wire(it), slow) as program:
        await looking.wait()
        await it.client.delete(PODS, NAME, RESERVATIONS, grace_s=0)
        await reservation(it)
        go_on.set()
        with pytest.raises(ReservationError, match=f"pod {RESERVATIONS}/{NAME} is gone, or another pod has its name"):
            await program
    found = await it.get(PODS, NAME, RESERVATIONS)
    assert found is not None
    assert names.RESERVED_GPU_ANNOTATION not in found["metadata"]["annotations"]


async def test_other_failures_end_the_program(it: BinderCluster) -> None:
    """gpu:RP-2: the kubelet starts it again."""
    async with at_work(Wire(it)) as program:
        with pytest.raises(ReservationError, match="is gone"):
            await program
    await reservation(it)
    async with at_work(Wire(it), no_driver) as program:
        with pytest.raises(DeviceError):
            await program


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (status(403, "Forbidden"), ReservationError, "needs the rights to get and patch pods in kai-resource-reserv"),
        (status(401, "Unauthorized"), Unauthorized, "injected"),
    ],
)
async def test_refused_requests_are_not_repeated(
    it: BinderCluster, answer: Response, error: type[Exception], said: str
) -> None:
    await reservation(it)
    wire = Wire(it)
    wire.fault = lambda request: answer
    async with at_work(wire) as program:
        with pytest.raises(error, match=said):
            await program
    assert wire.asked == ASKED[:1]


@pytest.mark.parametrize("missing", ["POD_NAME", "POD_NAMESPACE"])
def test_the_pod_must_be_named(missing: str) -> None:
    """gpu:RP-1"""
    environment = {"POD_NAME": "p", "POD_NAMESPACE": "ns"}
    assert own_pod(environment) == OwnPod("ns", "p")
    for empty in ({missing: ""}, {}):
        with pytest.raises(ReservationError, match=missing):
            own_pod({each: value for each, value in environment.items() if each != missing} | empty)


class Nodes:
    """Starts the containers of reservation pods as processes, each with a GPU of its own."""

    def __init__(self, it: BinderCluster, kubeconfig: Path, driver: dict[str, str]) -> None:
        self._it = it
        self._kubeconfig = kubeconfig
        self._driver = driver
        self.processes: list[asyncio.subprocess.Process] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._seen: set[str] = set()
        it.pods.subscribe(self._changed)

    def _changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is not None and pod.metadata.namespace == RESERVATIONS and pod.metadata.uid not in self._seen:
            self._seen.add(pod.metadata.uid)
            self._starting.add(asyncio.ensure_future(self._start(pod.metadata.name)))

    async def _start(self, name: str) -> None:
        found = await self._it.get(PODS, name, RESERVATIONS)
        assert found is not None
        (container,) = found["spec"]["containers"]
        self.processes.append(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pykai", *container["args"]),
                env=self._driver | downward(found, container) | {"KUBECONFIG": str(self._kubeconfig)},
                stderr=asyncio.subprocess.PIPE,
            )
        )

    async def end(self) -> None:
        """Kill what is left."""
        await asyncio.gather(*self._starting)
        for process in self.processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


def downward(pod: dict[str, Any], container: dict[str, Any]) -> dict[str, str]:
    """The variables that the kubelet takes from fields of the pod."""
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    return {name: pod["metadata"][path.removeprefix("metadata.")] for name, path in fields.items()}


@pytest.mark.embedded_only("the process takes the kubeconfig of the embedded server")
async def test_the_binder_gives_a_pod_the_gpu_that_the_process_in_its_reservation_pod_found(
    it: BinderCluster, tmp_path: Path
) -> None:
    """gpu:RV-5, RP-3: `kai reserve` as the container runs it, with a driver; SIGTERM ends it at once, with 0."""
    driver = with_driver("NVML", "GPU-7")
    api = embedded(it.server)
    await api.serve("127.0.0.1", 0)
    api.kubeconfig(tmp_path / "kubeconfig", host="127.0.0.1")
    nodes = Nodes(it, tmp_path / "kubeconfig", driver)
    try:
        async with it.working():
            await it.request(await it.pod(fraction="0.5"), groups=(GROUP,))
            await it.until_phase("Succeeded")
        assert await annotated(it) == "GPU-7"
        told = await it.config_maps()
        assert "GPU-7" in {each.get("NVIDIA_VISIBLE_DEVICES") for each in told.values()}
        (process,) = nodes.processes
        assert process.returncode is None
        process.send_signal(signal.SIGTERM)
        _, log = await process.communicate()
        assert process.returncode == 0, log.decode()
    finally:
        await nodes.end()


@pytest.mark.embedded_only("the process takes the kubeconfig of the embedded server")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
async def test_a_signal_ends_it_while_the_driver_hangs(it: BinderCluster, tmp_path: Path, name: str) -> None:
    driver = with_driver("NVML", status="hang")
    await reservation(it)
    api = embedded(it.server)
    await api.serve("127.0.0.1", 0)
    api.kubeconfig(tmp_path / "kubeconfig", host="127.0.0.1")
    asked = asyncio.Event()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pykai", "reserve"),
        env=driver | {"POD_NAME": NAME, "POD_NAMESPACE": RESERVATIONS, "KUBECONFIG": str(tmp_path / "kubeconfig")},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async for line in process.stderr:
            if b"asks the driver" in line:
                asked.set()
                break
        assert asked.is_set()
        process.send_signal(getattr(signal, name))
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
