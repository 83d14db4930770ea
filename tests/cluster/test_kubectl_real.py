"""The real kubectl installs what `kai manifests` prints, and prints the same with a real and the embedded API server.

The second test runs one list of commands on both servers and compares every word they print, up to what differs by
nature: ages, moments, uids, revisions.  Objects stay between commands, so their order matters.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pykai.api.crds import custom_resource_definitions
from pykai.kube.clock import Clock
from pykai.lab.apiserver.server import ApiServer
from pykai.operator.install import installation
from tests.cluster.controlplane import ControlPlane
from tests.lab.kubectl import EXAMPLES, CommandResult, Kubectl
from tests.patience import PROGRAM_S
from tools import kubernetes

pytestmark = pytest.mark.cluster_only

BIND_REQUEST: dict[str, Any] = {
    "apiVersion": "scheduling.run.ai/v1alpha2",
    "kind": "BindRequest",
    "metadata": {"name": "pair-0", "namespace": "default", "labels": {"selected-node": "node-1"}},
    "spec": {
        "podName": "pair-0",
        "selectedNode": "node-1",
        "receivedResourceType": "Fraction",
        "receivedGPU": {"count": 1, "portion": "0.50"},
        "selectedGPUGroups": ["g1"],
    },
}
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1", "labels": {"node-role.kubernetes.io/gpu": ""}},
}
READY = {
    "status": {
        "capacity": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "8"},
        "allocatable": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        "nodeInfo": {"kubeletVersion": "v1.35.4"},
    }
}
CHILDREN = {"status": {"childQueues": ["language", "vision"], "requested": {"nvidia.com/gpu": "3"}}}
UNSCHEDULABLE = {
    "status": {
        "schedulingConditions": [
            {
                "type": "UnschedulableOnNodePool",
                "nodePool": "default",
                "status": "True",
                "transitionID": "1",
                "reasons": [{"reason": "OverLimit", "message": "no room"}],
            }
        ]
    }
}


def _example(name: str) -> str:
    return str(EXAMPLES / f"{name}.yaml")


def _changed(name: str, old: str, new: str) -> str:
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    assert old in text
    return text.replace(old, new)


#: a command, and what it is given
COMMANDS: list[tuple[str, str | None]] = [
    ("get podgroups,queues,bindrequests,topologies -A", None),
    ("apply -f -", json.dumps(NODE)),
    (f"patch node node-1 --subresource=status --type=merge -p {json.dumps(READY, separators=(',', ':'))}", None),
    ("taint node node-1 node.kubernetes.io/not-ready-", None),
    (f"apply -f {_example('queues')}", None),
    (f"apply -f {_example('queues')}", None),
    (f"apply -f {_example('topology')} -f {_example('podgroup')} -f {_example('deployment')}", None),
    ("apply --server-side -f -", json.dumps(BIND_REQUEST)),
    (f"patch queue research --subresource=status --type=merge -p {json.dumps(CHILDREN, separators=(',', ':'))}", None),
    (
        "patch podgroup pair --subresource=status --type=merge -p"
        f" {json.dumps(UNSCHEDULABLE, separators=(',', ':')).replace(' ', '_')}",
        None,
    ),
    ("get podgroups,queues,bindrequests,topologies -o wide", None),
    ("get queues", None),
    ("get pg --show-labels", None),
    ("get pg,bindrequests -A", None),
    ("get queues -o name", None),
    ("get queues --sort-by=.metadata.name -o custom-columns=N:.metadata.name,G:.spec.resources.gpu.quota", None),
    ("get queue research -o jsonpath={.status}", None),
    ("get queue vision -o yaml", None),
    ("get podgroup pair -o yaml", None),
    ("get bindrequest pair-0 -o yaml --show-managed-fields", None),
    ("describe queue research", None),
    ("describe podgroup pair", None),
    ("describe bindrequest pair-0", None),
    ("describe topology datacenter", None),
    ("explain podgroup.spec --recursive", None),
    ("explain podgroup.status.schedulingConditions.reasons.details --recursive", None),
    ("explain queue.spec.resources.gpu", None),
    ("explain bindrequest --recursive", None),
    ("explain topology.spec.levels", None),
    ("api-resources --api-group=scheduling.run.ai", None),
    ("api-resources --api-group=kai.scheduler", None),
    ("diff -f -", _changed("queues", "quota: 16", "quota: 24")),
    ("apply -f -", _changed("queues", "quota: 16", "quota: 24")),
    ("apply -f -", _changed("queues", "quota: 16", "quota: plenty")),
    ("apply --server-side -f -", _changed("queues", "quota: 16", "quota: 8")),
    ("apply --server-side --force-conflicts -f -", _changed("queues", "quota: 16", "quota: 8")),
    ("apply -f -", _changed("topology", "example.com/rack", "example.com/row")),
    ("apply -f -", _changed("podgroup", "minMember: 2", "minMember: -2")),
    ("apply -f -", _changed("podgroup", "minMember: 2", "minMembers: 2")),
    ("patch queue vision --type=json -p [{'op':'replace','path':'/spec/priority','value':7}]", None),
    ("patch queue vision --type=json -p [{'op':'add','path':'/spec/priority','value':7}]", None),
    ("patch queue vision --type=strategic -p {'spec':{'priority':8}}", None),
    ("label queue vision team=a", None),
    ("annotate queue vision note=b", None),
    ("edit queue vision", None),
    ("get queue vision --show-labels", None),
    ("scale deployment/chat --replicas=3", None),
    ("set image deployment/chat server=vllm:2", None),
    ("get deployments,jobs -o wide", None),
    ("describe deployment chat", None),
    ("describe job one-rack", None),
    ("get pods -o wide", None),
    ("describe pod pair-0", None),
    ("get nodes -o wide", None),
    ("label pod pair-0 team=a --overwrite", None),
    ("get pod pair-0 -o yaml", None),
    ("scale podgroup/pair --replicas=3", None),
    ("get queue nothing", None),
    ("get nonsense", None),
    ("create namespace team", None),
    ("create configmap c --from-literal=a=b -n team", None),
    ("create job train --image=registry.example/t:1 -n team", None),
    ("get configmaps,jobs -n team", None),
    ("auth can-i create queues", None),
    ("delete queue vision --wait=false", None),
    (f"delete -f {_example('podgroup')} --wait=false", None),
    ("get pods,pg", None),
]


def manifests(*arguments: str) -> str:
    """The output of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "pykai", "manifests", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder: Path = tmp_path_factory.mktemp("installation")
    with ControlPlane(folder) as plane:
        yield Kubectl(str(kubernetes.program_path("kubectl")), plane.kubeconfig)


def said(kubectl: Kubectl, *arguments: str, given: str) -> list[str]:
    """The lines that a command prints, which succeeds without a warning."""
    done = kubectl.run(*arguments, given=given)
    assert (done.code, done.err) == (0, ""), done.err
    return done.out.splitlines()


def outcomes(lines: list[str]) -> set[str]:
    """The outcome of objects: `created`, `unchanged`, ..."""
    return {line.rpartition(" ")[2] for line in lines}


def test_everything_is_installed_without_a_warning(kubectl: Kubectl) -> None:
    """In two steps, as docs/services.md says: kubectl looks up all kinds before it creates the first object."""
    definitions, everything = manifests("--crds-only"), manifests()
    dry = said(kubectl, "apply", "--server-side", "--dry-run=server", "-f", "-", given=definitions)
    assert len(dry) == len(custom_resource_definitions())
    assert outcomes(said(kubectl, "apply", "-f", "-", given=definitions)) == {"created"}
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30m")
    applied = said(kubectl, "apply", "-f", "-", given=everything)
    count = len([each for each in installation() if each["kind"] != "CustomResourceDefinition"])
    assert len(applied) == count
    assert outcomes(applied) == {"created"}
    assert outcomes(said(kubectl, "apply", "-f", "-", given=everything)) == {"unchanged"}
    assert outcomes(said(kubectl, "apply", "--server-side", "-f", "-", given=everything)) == {"serverside-applied"}
    assert said(kubectl, "diff", "-f", "-", given=everything) == []
    assert len(said(kubectl, "get", "-o", "name", "-f", "-", given=everything)) == count


@contextmanager
def embedded_server(folder: Path) -> Iterator[Path]:
    """The embedded server in a thread of its own; gives its kubeconfig."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def wait(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(PROGRAM_S)

    server = wait(ApiServer.open(clock=Clock()))
    try:
        wait(server.serve())
        server.kubeconfig(folder / "kubeconfig")
        yield folder / "kubeconfig"
    finally:
        wait(server.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


_BY_NATURE = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"[0-9-]{10}T[0-9:]{8}Z"), "TIME"),
    (re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} [0-9:]{8} [+-]\d{4}"), "TIME"),
    (re.compile(r'(?i)(resource ?version: +)"?\d+"?'), r"\1REVISION"),
    (re.compile(r"\b(\d+[smh])+( ago)?(?=\s|$)"), "AGE"),
    (re.compile(r"/tmp/\S+(\s+[0-9-]{10} [0-9:.]+ [+-]\d{4})?"), "FILE"),
    # The whole object comes before the reason.
    (re.compile(r'Invalid value: "\{.*\}": (strict decoding error)'), r"Invalid value: \1"),
    # No controller manages service accounts in this cluster.
    (re.compile(r"(?m)^ *(Service Account|serviceAccount(Name)?): +default\n"), ""),
    (re.compile(r" +"), " "),
)


def shown(done: CommandResult) -> list[str]:
    """The output of a command, without what differs by nature."""
    text = f"{done.code}\n{done.out}\n{done.err}"
    for pattern, word in _BY_NATURE:
        text = pattern.sub(word, text)
    return [line.rstrip() for line in text.splitlines()]


def run(kubectl: Kubectl, command: str, given: str | None) -> list[str]:
    arguments = [word.replace("'", '"') if word[0] in "[{" else word for word in command.split()]
    return shown(kubectl.run(*arguments, given=given, environment={"EDITOR": "sed -i s/Vision/Visual/"}))


def test_kubectl_gets_equal_answers_from_both_servers(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("delete", "queues", "--all")
    with embedded_server(tmp_path) as kubeconfig, ThreadPoolExecutor(2) as pool:
        ours = Kubectl(kubectl.program, kubeconfig)
        all_real, all_embedded = pool.map(lambda one: [run(one, *each) for each in COMMANDS], (kubectl, ours))
    differing = []
    for (command, _), real, embedded in zip(COMMANDS, all_real, all_embedded, strict=True):
        if real != embedded:
            lines = difflib.unified_diff(real, embedded, "real", "embedded", lineterm="", n=1)
            differing.append("\n".join((f"kubectl {command}", *lines)))
    assert not differing, "\n\n".join(differing)
