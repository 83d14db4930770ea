"""Real kubectl against the embedded server, over HTTPS; tests/cluster/test_kubectl_real.py compares it with a real one.

Each call of kubectl costs a process, so a test does several things with one object.  Without kubectl on the PATH the
module is skipped, and says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykai.kube.clock import Clock
from pykai.lab.apiserver.server import ApiServer
from tests.lab.apiserver.apiclient import Api, pod
from tests.patience import PROGRAM_S

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(
    KUBECTL is None, reason="KUBECTL IS MISSING: what kubectl makes of the API server is NOT tested in this run"
)


class Kubectl:
    """kubectl with a kubeconfig, and a door into the server it talks to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.server = self.wait(ApiServer.open(clock=Clock()))
        self.wait(self.server.serve())
        for user in ("admin", "viewer"):
            self.server.kubeconfig(folder / user, user=user)
        self.api = Api(self.server.transport())

    def wait(self, coroutine: Any) -> Any:
        """Run something on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PROGRAM_S)

    def close(self) -> None:
        self.wait(self.server.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, line: str, stdin: str = "", *, user: str = "admin", **environment: str) -> tuple[int, str, str]:
        """Exit code, output and errors of one call."""
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.folder / user), *line.split()],
            input=textwrap.dedent(stdin),
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            env={**os.environ, "HOME": str(self.folder), **environment},
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def ok(self, line: str, stdin: str = "", **environment: str) -> str:
        """The output of a call that must succeed."""
        code, out, err = self.run(line, stdin, **environment)
        assert code == 0, f"kubectl {line}: {err}"
        return out

    def json(self, line: str) -> Any:
        """The object that a call prints."""
        return json.loads(self.ok(f"{line} -o json"))


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    kubectl = Kubectl(tmp_path_factory.mktemp("kubectl"))
    yield kubectl
    kubectl.close()


WEB = """
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web, labels: {app: web}}
    spec:
      replicas: 2
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec:
          containers:
          - {name: main, image: registry.example/web:1, resources: {limits: {cpu: "1"}}}
"""


def test_apply_diff_scale_and_roll_out(kubectl: Kubectl) -> None:
    assert kubectl.ok("apply -f -", WEB) == "deployment.apps/web created\n"
    assert kubectl.ok("apply -f -", WEB) == "deployment.apps/web unchanged\n"
    side = WEB + "          - {name: side, image: registry.example/side:1}\n"
    assert kubectl.ok("apply -f -", side) == "deployment.apps/web configured\n"
    containers = kubectl.json("get deployment web")["spec"]["template"]["spec"]["containers"]
    assert [container["name"] for container in containers] == ["main", "side"]
    kubectl.ok("apply -f -", WEB)
    deployment = kubectl.json("get deployment web")
    assert len(deployment["spec"]["template"]["spec"]["containers"]) == 1
    assert kubectl.ok("scale deployment web --replicas 3") == "deployment.apps/web scaled\n"
    generation = kubectl.json("get deployment web")["metadata"]["generation"]
    ready = {
        "observedGeneration": generation,
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
    }
    kubectl.wait(kubectl.api.patch("deployments", "web", {"status": ready}, "status"))
    assert "successfully rolled out" in kubectl.ok("rollout status deployment web --timeout 30m")
    assert kubectl.ok("get deployment web").splitlines()[1].split()[:4] == ["web", "3/3", "3", "3"]
    everything = kubectl.ok("get all -o wide")
    assert "deployment.apps/web" in everything
    assert "registry.example/web:1" in everything


def test_server_side_apply_names_conflicts(kubectl: Kubectl) -> None:
    ours = WEB.replace("name: web", "name: shared")
    kubectl.ok("apply --server-side --field-manager ours -f -", ours)
    theirs = ours.replace("replicas: 2", "replicas: 5")
    code, _, err = kubectl.run("apply --server-side --field-manager theirs -f -", theirs)
    assert code != 0
    assert 'conflict with "ours": .spec.replicas' in err
    kubectl.ok("apply --server-side --field-manager theirs --force-conflicts -f -", theirs)
    assert kubectl.json("get deployment shared")["spec"]["replicas"] == 5


def test_a_wrong_field_is_refused_by_name(kubectl: Kubectl) -> None:
    code, _, err = kubectl.run("apply -f -", WEB.replace("name: web", "name: wrong").replace("replicas", "replicsa"))
    assert code != 0
    assert 'unknown field "spec.replicsa"' in err


def test_pods_are_labelled_annotated_patched_described_and_deleted(kubectl: Kubectl) -> None:
    kubectl.ok("run p1 --image registry.example/p:1 --labels a=1")
    assert kubectl.ok("label pod p1 b=2 a-") == "pod/p1 labeled\n"
    assert kubectl.ok("annotate pod p1 c=3") == "pod/p1 annotated\n"
    patch = '{"metadata":{"labels":{"d":"4"}}}'
    for kind in ("strategic", "merge"):
        kubectl.ok(f"patch pod p1 --type {kind} -p {patch}")
    kubectl.ok("""patch pod p1 --type json -p [{"op":"add","path":"/metadata/labels/e","value":"5"}]""")
    meta = kubectl.json("get pod p1")["metadata"]
    assert meta["labels"] == {"b": "2", "d": "4", "e": "5"}
    assert meta["annotations"] == {"c": "3"}
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPU is free"}
    kubectl.wait(kubectl.api.patch("pods", "p1", {"status": {"conditions": [waits]}}, "status"))
    about = {"kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": "p1", "uid": meta["uid"]}
    event = {
        "metadata": {"name": "p1.1"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "no GPU is free",
    }
    kubectl.wait(kubectl.api.create("events", event)).ok()
    described = kubectl.ok("describe pod p1")
    assert "FailedScheduling" in described
    assert "no GPU is free" in described
    assert "Pending" in kubectl.ok("get pods --field-selector metadata.name=p1 -L b")
    assert 'b: "2"' in kubectl.ok("get pod p1 -o yaml")
    assert kubectl.ok("delete pod p1") == 'pod "p1" deleted\n'
    code, _, err = kubectl.run("get pod p1")
    assert (code, err) == (1, 'Error from server (NotFound): pods "p1" not found\n')


def test_waiting_for_conditions_and_deletion(kubectl: Kubectl) -> None:
    kubectl.wait(kubectl.api.create("pods", pod("p2")))
    waiting = subprocess.Popen(
        ["kubectl", "--kubeconfig", str(kubectl.folder / "admin"), "wait", "pod/p2", "--for", "condition=Ready"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(kubectl.folder)},
    )
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    kubectl.wait(kubectl.api.patch("pods", "p2", {"status": ready}, "status"))
    assert waiting.communicate(timeout=PROGRAM_S)[0] == "pod/p2 condition met\n"
    kubectl.wait(kubectl.api.delete("pods", "p2"))
    kubectl.ok("wait pod/p2 --for delete --timeout 30m")


def test_edit(kubectl: Kubectl) -> None:
    kubectl.wait(kubectl.api.create("configmaps", {"metadata": {"name": "edited"}, "data": {"x": "old"}}))
    editor = kubectl.folder / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/x: old/x: new/' \"$1\"\n")
    editor.chmod(0o700)
    assert kubectl.ok("edit configmap edited", EDITOR=str(editor)) == "configmap/edited edited\n"
    assert kubectl.json("get configmap edited")["data"] == {"x": "new"}


def test_create_in_protobuf(kubectl: Kubectl) -> None:
    assert kubectl.ok("create namespace team") == "namespace/team created\n"
    assert kubectl.ok("create job train --image registry.example/t:1 -n team") == "job.batch/train created\n"
    kubectl.ok("create deployment api --image registry.example/a:1 --replicas 2 -n team")
    kubectl.ok("create configmap c --from-literal a=b -n team")
    kubectl.ok("create secret generic s --from-literal p=q -n team")
    job = kubectl.json("get job train -n team")
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/t:1"
    assert job["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "train"
    assert "train" in kubectl.ok("describe job train -n team")
    kubectl.ok("delete namespace team --timeout 30m")
    assert kubectl.run("get namespace team")[0] == 1


def test_explain(kubectl: Kubectl) -> None:
    assert "limits\t<map[string]Quantity>" in kubectl.ok("explain pod.spec.containers.resources")
    assert "parentQueue\t<string>" in kubectl.ok("explain queue.spec")


def test_kubectl_auth_can_i(kubectl: Kubectl) -> None:
    assert kubectl.ok("auth can-i create pods") == "yes\n"
    assert kubectl.run("auth can-i create pods", user="viewer")[1].startswith("no")
    assert "kubernetes-admin" in kubectl.ok("auth whoami")
    code, _, err = kubectl.run("create namespace mine", user="viewer")
    assert code == 1
    assert 'User "viewer" cannot create resource "namespaces"' in err


def test_there_is_no_container_to_talk_to(kubectl: Kubectl) -> None:
    kubectl.wait(kubectl.api.create("pods", pod("quiet")))
    for line in ("logs quiet", "exec quiet -- ls"):
        code, _, err = kubectl.run(line)
        assert code != 0
        assert "no container behind this pod" in err


def test_custom_kinds(kubectl: Kubectl) -> None:
    queue = """
        apiVersion: scheduling.run.ai/v2
        kind: Queue
        metadata: {name: research}
        spec: {priority: 5, resources: {gpu: {quota: 4, limit: -1, overQuotaWeight: 1}}}
    """
    assert kubectl.ok("apply -f -", queue) == "queue.scheduling.run.ai/research created\n"
    assert (
        kubectl.ok("apply -f -", queue.replace("quota: 4", "quota: 8"))
        == "queue.scheduling.run.ai/research configured\n"
    )
    assert kubectl.json("get queue research")["spec"]["resources"]["gpu"]["quota"] == 8
    assert kubectl.ok("get queues").splitlines()[0].split()[:2] == ["NAME", "PRIORITY"]
    assert "Queue" in kubectl.ok("describe queue research")
    code, _, err = kubectl.run("apply -f -", queue.replace("priority: 5", "priority: high"))
    assert code != 0
    assert "spec.priority" in err
    kubectl.ok("delete queue research")


def test_the_resources_are_listed(kubectl: Kubectl) -> None:
    listed = kubectl.ok("api-resources --no-headers -o name").split()
    assert {"pods", "jobs.batch", "queues.scheduling.run.ai", "resourceclaims.resource.k8s.io"} <= set(listed)
    assert "v1.35." in kubectl.ok("version")
