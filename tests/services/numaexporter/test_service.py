"""The exporter of NUMA placements on an API server, with a kubelet that is none (gpu:X-2 to X-4, T-112)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import ConnectionLost, Unauthorized
from pykai.kube.flags import OptionError
from pykai.kube.resources import PODS
from pykai.kube.runtime import Runtime
from pykai.kube.transport import Response
from pykai.numaexporter.kubelet import KubeletUnavailable, PodResourcesSocket
from pykai.numaexporter.metrics import NumaExporterMetrics
from pykai.numaexporter.options import NumaExporterOptions
from pykai.numaexporter.service import NumaExporter, from_flags
from tests.numaexporter.kubeletanswers import cores, devices, pod, sysfs
from tests.servers import embedded
from tests.services.servicecluster import RecordingTransport, ServiceCluster, refusal, service_cluster
from tests.webhooks.test_server import runtime_of_nothing

NODE_OF_CORE = {0: 0, 1: 0, 2: 1}
ON_0 = '[{"zone":"node-0","amount":{"cpu":"1"}}]'
ON_1 = '[{"zone":"node-1","amount":{"cpu":"1"}}]'


class Kubelet:
    """Answers from memory; `asked` counts how often."""

    def __init__(self, *pods: bytes) -> None:
        self.pods = pods
        self.problem: Exception | None = None
        self.asked = 0
        self.rounds: asyncio.Queue[int] = asyncio.Queue()

    async def list_pods(self) -> bytes:
        self.asked += 1
        self.rounds.put_nowait(self.asked)
        if self.problem is not None:
            raise self.problem
        return b"".join(self.pods)

    async def close(self) -> None:
        """Nothing is open."""

    async def finish_rounds(self, count: int = 1) -> None:
        """Wait until so many rounds that begin after now are over."""
        last = self.asked + count + 1
        while await self.rounds.get() < last:
            pass


@pytest.fixture
async def place() -> AsyncIterator[ServiceCluster]:
    async with service_cluster("numa-placement-exporter") as found:
        yield found


@asynccontextmanager
async def exporting(
    place: ServiceCluster,
    kubelet: Kubelet,
    *,
    wire: RecordingTransport | None = None,
    resync_s: float = 0,
    poll_s: float = 1,
    metrics: NumaExporterMetrics | None = None,
) -> AsyncIterator[NumaExporter]:
    """The exporter of node `n1`, under its own rights; a second takes a hundredth."""

    async def no_pause(_: float) -> None:
        """The client's own pauses are tested elsewhere."""

    client = Client(wire or place.wire(), sleep=no_pause)
    options = NumaExporterOptions(node_name="n1", poll_ns=int(poll_s * 1e9), resync_ns=int(resync_s * 1e9))
    exporter = NumaExporter(Runtime(client, Caches(client), Clock(speed=100)), options, kubelet, NODE_OF_CORE, metrics)
    stop = asyncio.Event()
    task = asyncio.create_task(exporter.run(stop))
    try:
        async with asyncio.timeout(10):
            yield exporter
    finally:
        stop.set()
        await task


async def on_node(place: ServiceCluster, name: str, observed: str = "") -> None:
    """A pod on node `n1`."""
    notes = {names.NUMA_OBSERVED_ANNOTATION: observed} if observed else {}
    await place.pod(name, annotations=notes, spec={"nodeName": "n1"})


def annotation(place: ServiceCluster, name: str) -> str:
    found = place.pods.get(f"default/{name}")
    return found.metadata.annotations.get(names.NUMA_OBSERVED_ANNOTATION, "") if found is not None else ""


async def until_observed(place: ServiceCluster, name: str, expected: str) -> None:
    await place.pods.wait_until(lambda _: annotation(place, name) == expected)


def patch_of(name: str) -> str:
    return f"PATCH /api/v1/namespaces/default/pods/{name}"


async def test_t112_a_placement_is_written_once_and_again_when_it_changes(place: ServiceCluster) -> None:
    """gpu:X-3, T-112: with the rights of its own account."""
    await on_node(place, "a")
    await on_node(place, "b")
    kubelet, wire = Kubelet(pod("a", [cores(0)]), pod("b", [cores(2)])), place.wire()
    async with exporting(place, kubelet, wire=wire) as exporter:
        await until_observed(place, "a", ON_0)
        await until_observed(place, "b", ON_1)
        await kubelet.finish_rounds(3)
        assert sorted(wire.writes) == [patch_of("a"), patch_of("b")]
        assert exporter.ready()
        kubelet.pods = (pod("a", [cores(2)]), pod("b", [cores(2)]))
        await until_observed(place, "a", ON_1)
        assert wire.writes[2:] == [patch_of("a")]


async def test_rounds_and_written_annotations_are_counted(place: ServiceCluster) -> None:
    """operations:OD-17."""
    registry = CollectorRegistry()

    def counted(name: str, **labels: str) -> float:
        found = registry.get_sample_value(f"kai_numa_exporter_{name}_total", labels)
        assert found is not None
        return found

    await on_node(place, "a")
    await on_node(place, "b", ON_1)
    kubelet = Kubelet(pod("a", [cores(0)]), pod("b", [cores(2)]))
    async with exporting(place, kubelet, metrics=NumaExporterMetrics(registry)):
        assert counted("rounds", result="done") == counted("pods_annotated") == 0
        await until_observed(place, "a", ON_0)
        await kubelet.finish_rounds(3)
        assert counted("pods_annotated") == 1
        assert counted("rounds", result="done") >= 2
        assert counted("rounds", result="failed") == 0
        kubelet.problem = KubeletUnavailable("no socket")
        await kubelet.finish_rounds()
        assert counted("rounds", result="failed") >= 1


async def test_what_is_there_already_is_not_written_by_a_new_process(place: ServiceCluster) -> None:
    await on_node(place, "a", ON_0)
    await on_node(place, "b", ON_0)
    kubelet, wire = Kubelet(pod("a", [cores(0)]), pod("b", [cores(2)])), place.wire()
    async with exporting(place, kubelet, wire=wire):
        await until_observed(place, "b", ON_1)
        await kubelet.finish_rounds()
    assert wire.writes == [patch_of("b")]


async def set_by_another(place: ServiceCluster, name: str, text: str) -> None:
    patch = {"metadata": {"annotations": {names.NUMA_OBSERVED_ANNOTATION: text}}}
    await place.client.patch(PODS, name, patch, "default", kind=PatchKind.MERGE)


async def test_t112_drift_is_repaired_at_intervals(place: ServiceCluster) -> None:
    """gpu:X-4, T-112"""
    await on_node(place, "a")
    kubelet, wire = Kubelet(pod("a", [cores(0)])), place.wire()
    async with exporting(place, kubelet, wire=wire, resync_s=3):
        await until_observed(place, "a", ON_0)
        await set_by_another(place, "a", "forged")
        while wire.writes != [patch_of("a")] * 2:
            await kubelet.finish_rounds()
        await until_observed(place, "a", ON_0)


async def test_without_an_interval_pods_are_read_once(place: ServiceCluster) -> None:
    """gpu:X-4"""
    await on_node(place, "a")
    kubelet, wire = Kubelet(pod("a", [cores(0)])), place.wire()
    async with exporting(place, kubelet, wire=wire):
        await until_observed(place, "a", ON_0)
        await set_by_another(place, "a", "forged")
        await kubelet.finish_rounds(3)
    assert wire.reads == ["GET /api/v1/pods"]
    assert annotation(place, "a") == "forged"


async def test_t112_a_pod_that_is_gone_is_skipped(place: ServiceCluster) -> None:
    """gpu:T-112: others are annotated, and it is not asked for again."""
    await on_node(place, "b")
    kubelet, wire = Kubelet(pod("gone", [cores(0)]), pod("b", [cores(0)])), place.wire()
    async with exporting(place, kubelet, wire=wire) as exporter:
        await until_observed(place, "b", ON_0)
        await kubelet.finish_rounds(3)
        assert exporter.ready()
    assert sorted(wire.writes) == [patch_of("b"), patch_of("gone")]


async def test_a_pod_that_left_and_came_back_is_annotated_again(place: ServiceCluster) -> None:
    """gpu:X-3"""
    await on_node(place, "a")
    kubelet = Kubelet(pod("a", [cores(0)]))
    async with exporting(place, kubelet):
        await until_observed(place, "a", ON_0)
        await place.client.delete(PODS, "a", "default", grace_s=0)
        kubelet.pods = ()
        await kubelet.finish_rounds()
        await on_node(place, "a")
        kubelet.pods = (pod("a", [cores(0)]),)
        await until_observed(place, "a", ON_0)


@pytest.mark.parametrize("problem", [KubeletUnavailable("no socket"), ValueError("damaged")])
async def test_a_kubelet_that_does_not_answer_is_asked_again(
    place: ServiceCluster, problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    await on_node(place, "a")
    kubelet = Kubelet(pod("a", [cores(0)]))
    kubelet.problem = problem
    async with exporting(place, kubelet) as exporter:
        await kubelet.finish_rounds(2)
        assert not exporter.ready()
        kubelet.problem = None
        await until_observed(place, "a", ON_0)
    pauses = [record.getMessage().rpartition("follows in ")[2] for record in caplog.records]
    assert pauses[:3] == ["1 s", "2 s", "4 s"]


@pytest.mark.parametrize("fault", [ConnectionLost("cut"), refusal(500, "InternalError"), refusal(403, "Forbidden")])
@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_an_api_server_that_is_away_is_asked_again(
    place: ServiceCluster, fault: Response | Exception, method: str
) -> None:
    await on_node(place, "a")
    await on_node(place, "b")
    kubelet, wire = Kubelet(pod("a", [cores(0)]), pod("b", [cores(0)])), place.wire()
    failures = iter(range(10))
    wire.fault = lambda request: fault if request.method == method and next(failures, None) is not None else None
    async with exporting(place, kubelet, wire=wire, poll_s=0.1):
        await until_observed(place, "a", ON_0)
        await until_observed(place, "b", ON_0)


async def test_credentials_that_are_refused_end_it(place: ServiceCluster) -> None:
    wire = place.wire()
    wire.fault = lambda request: refusal(401, "Unauthorized")
    client = Client(wire)
    runtime = Runtime(client, Caches(client), Clock())
    exporter = NumaExporter(runtime, NumaExporterOptions(node_name="n1"), Kubelet(), NODE_OF_CORE)
    with pytest.raises(Unauthorized):
        await exporter.run(asyncio.Event())


class SocketOfAKubelet:
    """A gRPC server on a socket, as the kubelet's."""

    def __init__(self, path: Path, answer: Callable[[], bytes]) -> None:
        async def respond(request: bytes, _: Any) -> bytes:
            assert request == b""
            return answer()

        methods = {"List": grpc.unary_unary_rpc_method_handler(respond)}
        self._server = grpc.aio.server()
        handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{path}")

    async def __aenter__(self) -> SocketOfAKubelet:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)


@pytest.fixture
def folder() -> Any:
    """A short path: the address of a socket has at most 107 bytes."""
    with TemporaryDirectory(prefix="kai-numa-") as name:
        yield Path(name)


async def test_the_socket_of_a_kubelet_is_asked_also_after_it_was_away(folder: Path) -> None:
    """gpu:X-2: an answer may have 16 MiB."""
    answer = pod("p", [devices("nvidia.com/gpu", *("G" * 1000 for _ in range(6000)))])
    source = PodResourcesSocket(folder / "kubelet.sock")
    try:
        with pytest.raises(KubeletUnavailable, match=r"kubelet\.sock: UNAVAILABLE"):
            await source.list_pods()
        async with SocketOfAKubelet(folder / "kubelet.sock", lambda: answer), asyncio.timeout(10):
            while True:
                try:
                    assert await source.list_pods() == answer
                    break
                except KubeletUnavailable:
                    # gRPC pauses for up to a second before it connects again.
                    await asyncio.sleep(0.05)
    finally:
        await source.close()


def test_flags_that_cannot_work_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gpu:X-4: no cores, no node."""
    monkeypatch.delenv("NODE_NAME", raising=False)

    def refused(**given: str) -> str:
        flags = {name.replace("_", "-"): value for name, value in given.items()}
        with pytest.raises(OptionError) as error:
            from_flags(runtime_of_nothing(), flags, CollectorRegistry())
        return str(error.value)

    root = str(folder)
    assert refused(sysfs_root=root) == "--node-name: name the node, or set NODE_NAME in the environment"
    assert "lists no cores; mount the host's /sys" in refused(node_name="n1", sysfs_root=root)
    assert "--poll-interval: '0s': expected a duration of more than 0" in refused(node_name="n1", poll_interval="0s")
    sysfs(folder, {0: "0-3"})
    monkeypatch.setenv("NODE_NAME", "n1")
    (service,) = from_flags(runtime_of_nothing(), {"sysfs-root": root}, CollectorRegistry())
    assert service.name == "numa-exporter"
    monkeypatch.setitem(sys.modules, "grpc.aio", None)
    assert "pip install 'pykai[numa]'" in refused(sysfs_root=root)


@pytest.mark.embedded_only("the process takes the kubeconfig of the embedded server")
async def test_the_process_annotates_the_pods_of_its_node(place: ServiceCluster, folder: Path) -> None:
    """`kai run numa-exporter` as the DaemonSet runs it."""
    await on_node(place, "a")
    api = embedded(place.server)
    await api.serve("127.0.0.1", 0)
    api.kubeconfig(folder / "kubeconfig")
    sysfs(folder, {0: "0-1", 1: "2-3"})
    answer = pod("a", [cores(0), devices("nvidia.com/gpu", "GPU-a", nodes=[1])])
    expected = '[{"zone":"node-0","amount":{"cpu":"1"}},{"zone":"node-1","amount":{"nvidia.com/gpu":"1"}}]'
    arguments = [f"--podresources-socket={folder / 'kubelet.sock'}", f"--sysfs-root={folder}", "--poll-interval=1s"]
    async with SocketOfAKubelet(folder / "kubelet.sock", lambda: answer):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pykai", "run", "numa-exporter", *arguments),
            env={**os.environ, "NODE_NAME": "n1", "KUBECONFIG": str(folder / "kubeconfig")},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await until_observed(place, "a", expected)
            process.send_signal(signal.SIGTERM)
            _, log = await process.communicate()
            assert process.returncode == 0, log.decode()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
