"""Our services as an operator runs them: processes, each with the token of its own account, on a real cluster.

The controllers are Kubernetes' own; machines are played by a process of the simulator, as the administrator.  Users
come with kubectl and the project's examples.  At the end all services are stopped, and the audit log shows what they
did.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pykai.api import names
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.credentials import connect
from pykai.lab.machines import create_nodes
from pykai.lab.machines.nodes import MachineKind
from pykai.operator.install import installation
from pykai.services.table import account_rules
from tests.cluster.controlplane import ControlPlane, free_port
from tests.cluster.plane import install
from tests.cluster.rights import rights_problems
from tests.kube.certificates import Authority
from tests.lab.kubectl import EXAMPLES, Kubectl
from tools import kubernetes

pytestmark = [pytest.mark.cluster_only, pytest.mark.slow]

#: what `kai run` calls a service -> its account
SERVICES = {
    "scheduler": "scheduler",
    "binder": "binder",
    "podgrouper": "pod-grouper",
    "podgroups": "podgroup-controller",
    "queues": "queue-controller",
    "nodescale": "node-scale-adjuster",
}
PATIENCE_S = 900.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path / "plane", controllers=("*",), service_accounts=True, audit=True) as found:
        asyncio.run(_prepare(found))
        found.start_controllers()
        yield found


async def _prepare(plane: ControlPlane) -> None:
    transport = connect(plane.kubeconfig)
    try:
        await install(transport, installation())
        await create_nodes(Client(transport), Clock(), [MachineKind(count=5, gpus=8)])
    finally:
        await transport.close()


@contextmanager
def processes(plane: ControlPlane, folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """`kai run` for all services; processes left at the end are killed."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    flags = {
        "scheduler": [f"--listen-address=127.0.0.1:{free_port()}", f"--plugin-server-port={free_port()}"],
        "machines": ["--controllers=false", "--default-scheduler=false", "--default-run-seconds=1"],
    }
    try:
        for name in ("machines", *SERVICES):
            account = SERVICES.get(name)
            kubeconfig = plane.kubeconfig_of(names.DEFAULT_NAMESPACE, account) if account else plane.kubeconfig
            elect = ["--leader-elect=true"] if account else []
            command = ["run", name, "--kubeconfig", str(kubeconfig), *elect, *flags.get(name, [])]
            with (folder / f"{name}.log").open("wb") as log:
                started[name] = subprocess.Popen([sys.executable, "-m", "pykai", *command], stdout=log, stderr=log)
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


@contextmanager
def admission(plane: ControlPlane, folder: Path, kubectl: Kubectl) -> Iterator[None]:
    """`kai run admission`, registered once it is ready, as docs/admission.md says."""
    authority = Authority()
    issued = authority.issue("admission")
    (folder / "ca.crt").write_bytes(authority.pem)
    (folder / "tls.crt").write_bytes(issued.certificate)
    (folder / "tls.key").write_bytes(issued.key)
    kubeconfig = plane.kubeconfig_of(names.DEFAULT_NAMESPACE, "admission")
    port, health = free_port(), f"127.0.0.1:{free_port()}"
    flags = [f"--cert-dir={folder}", f"--webhook-addr={port}", f"--health-probe-bind-address={health}"]
    command = ["run", "admission", "--kubeconfig", str(kubeconfig), "--gpu-sharing-enabled", *flags]
    with subprocess.Popen([sys.executable, "-m", "pykai", *command]) as process:
        try:
            _await_ready(f"http://{health}/readyz")
            address = f"https://127.0.0.1:{port}"
            printed = ["manifests", "--admission", address, "--admission-ca", str(folder / "ca.crt")]
            given = subprocess.run(
                [sys.executable, "-m", "pykai", *printed], check=True, capture_output=True, text=True
            )
            kubectl("apply", "-f", "-", given=given.stdout)
            _await_asked(kubectl)
            yield
        finally:
            process.terminate()


def _await_ready(url: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert time.monotonic() < until_s, f"{url} does not answer"
            time.sleep(0.05)


def _await_asked(kubectl: Kubectl) -> None:
    """The API server rereads its configurations periodically."""
    wrong = (EXAMPLES / "shared-gpu.yaml").read_text(encoding="utf-8").replace('"0.5"', '"2"')
    until_s = time.monotonic() + PATIENCE_S
    while "denied the request" not in (last := kubectl.run("apply", "--dry-run=server", "-f", "-", given=wrong)).err:
        assert time.monotonic() < until_s, last


def await_condition(kubectl: Kubectl, *what: str) -> None:
    """`kubectl wait`, as often as a busy machine needs it."""
    until_s = time.monotonic() + PATIENCE_S
    while (done := kubectl.run("wait", *what, "--timeout=30m")).code:
        assert time.monotonic() < until_s, done.err


def test_examples_run_under_the_roles_of_the_services(plane: ControlPlane, tmp_path: Path) -> None:
    kubectl = Kubectl(str(kubernetes.program_path("kubectl")), plane.kubeconfig)
    with processes(plane, tmp_path) as started, admission(plane, tmp_path, kubectl):
        kubectl("apply", "-f", str(EXAMPLES / "queues.yaml"))
        gang = (EXAMPLES / "gang.yaml").read_text(encoding="utf-8").replace('"60"', '"1"')
        kubectl("apply", "-f", "-", given=gang)
        for example in ("pod", "podgroup", "deployment", "shared-gpu"):
            kubectl("apply", "-f", str(EXAMPLES / f"{example}.yaml"))
        await_condition(kubectl, "--for=condition=complete", "job/training")
        await_condition(kubectl, "--for=condition=Available", "deployment/chat")
        await_condition(kubectl, "--for=condition=Ready", "pod/notebook", "pod/pair-0", "pod/pair-1")
        await_condition(kubectl, "--for=condition=Ready", "pod/half-a", "pod/half-b")
        refused = kubectl.run("annotate", "pod/half-a", f"{names.GPU_FRACTION_ANNOTATION}=0.7", "--overwrite")
        assert "cannot be changed after the pod was created" in refused.err
        await_condition(kubectl, "--for=jsonpath={.status.allocated.nvidia\\.com/gpu}=4", "queue/language")
        groups = json.loads(kubectl("get", "podgroups", "-o", "json"))["items"]
        # The gang, the pod, the pair, the two that share a GPU, and one for each replica.
        assert len(groups) == 7
        for name in SERVICES:
            started[name].terminate()
        ends = {name: started[name].wait(PATIENCE_S) for name in SERVICES}
        assert ends == dict.fromkeys(SERVICES, 0), {name: (tmp_path / f"{name}.log").read_text() for name in SERVICES}
    leases = json.loads(kubectl("get", "leases", "-n", names.DEFAULT_NAMESPACE, "-o", "json"))["items"]
    assert [lease["spec"]["holderIdentity"] for lease in leases] == [""] * len(SERVICES)
    requests = list(plane.requests())
    assert rights_problems(requests, account_rules(), is_complete_run=False) == []
    users = {request["user"]["username"] for request in requests}
    assert {f"system:serviceaccount:{names.DEFAULT_NAMESPACE}:{account}" for account in SERVICES.values()} <= users
