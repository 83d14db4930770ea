"""What a user does with kubectl on a living cluster: the examples, a gang that waits and starts as one, cleaning up.

One cluster serves all steps, which build on each other in the order of the file; so they are one test a kubectl.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.kubectl import EXAMPLES, Kubectl, programs, running_cluster


def _example(name: str) -> str:
    return str(EXAMPLES / f"{name}.yaml")


def _nodes_of(kubectl: Kubectl, selector: str) -> list[str]:
    pods = json.loads(kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
    return [pod["spec"].get("nodeName", "") for pod in pods]


def the_server_says_who_it_is(kubectl: Kubectl) -> None:
    assert "v1.35" in kubectl("version")
    assert "Ready" in kubectl("get", "nodes")


def queues_are_applied_shown_and_explained(kubectl: Kubectl) -> None:
    assert "queue.scheduling.run.ai/vision created" in kubectl("apply", "-f", _example("queues"))
    assert "unchanged" in kubectl("apply", "-f", _example("queues"))
    kubectl("wait", "queue/research", "--for=jsonpath={.status.childQueues[1]}=vision", "--timeout=30m")
    shown = kubectl("get", "queues")
    assert "DISPLAYNAME" in shown
    assert "Vision team" in shown
    assert "overQuotaWeight" in kubectl("explain", "queue.spec.resources.gpu")


def a_pod_gets_a_group_and_a_node(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", _example("pod"))
    kubectl("wait", "pod/notebook", "--for=condition=Ready", "--timeout=30m")
    described = kubectl.wait_for_output("Successfully assigned", "describe", "pod", "notebook")
    assert "pod-group-name: pg-notebook-" in described
    assert "pg-notebook-" in kubectl("get", "podgroups")
    kubectl("label", "pod", "notebook", "team=vision")
    kubectl("annotate", "pod", "notebook", "note=hello")
    kubectl("patch", "pod", "notebook", "--type=merge", "-p", '{"metadata":{"labels":{"patched":"yes"}}}')
    labels = json.loads(kubectl("get", "pod", "notebook", "-o", "json"))["metadata"]["labels"]
    assert {"team": "vision", "patched": "yes"}.items() <= labels.items()
    assert "no container" in kubectl.run("logs", "notebook").err
    assert "no container" in kubectl.run("exec", "notebook", "--", "true").err
    kubectl("delete", "-f", _example("pod"))
    assert "NotFound" in kubectl.run("get", "pod", "notebook").err


def a_deployment_is_rolled_out_and_scaled(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", _example("deployment"))
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/chat", "--timeout=30m")
    kubectl("scale", "deployment/chat", "--replicas=3")
    kubectl("rollout", "status", "deployment/chat", "--timeout=30m")
    assert len(_nodes_of(kubectl, "app=chat")) == 3
    edited = kubectl("edit", "deployment", "chat", environment={"EDITOR": "sed -i s/vllm/vllm:2/"})
    assert "deployment.apps/chat edited" in edited
    kubectl("rollout", "status", "deployment/chat", "--timeout=30m")
    kubectl("delete", "-f", _example("deployment"))
    kubectl("wait", "pods", "-l", "app=chat", "--for=delete", "--timeout=30m")


def a_gang_waits_and_then_starts_as_one(kubectl: Kubectl) -> None:
    """Twelve nodes of eight GPUs: nine are taken, so that a gang of four nodes has to wait for one of them."""
    blocker = (EXAMPLES / "gang.yaml").read_text(encoding="utf-8")
    blocker = blocker.replace("name: training", "name: blocker").replace('"4"', '"9"').replace(": 4\n", ": 9\n")
    blocker = blocker.replace('run-seconds: "60"', 'run-seconds: "100000"')
    kubectl("apply", "-f", "-", given=blocker)
    kubectl("wait", "pods", "-l", "job-name=blocker", "--for=condition=Ready", "--timeout=30m")
    kubectl("apply", "-f", _example("gang"))
    kubectl("wait", "pods", "-l", "job-name=training", "--for=condition=PodScheduled=False", "--timeout=30m")
    pod = json.loads(kubectl("get", "pods", "-l", "job-name=training", "-o", "json"))["items"][0]
    described = kubectl.wait_for_output("Unschedulable", "describe", "pod", pod["metadata"]["name"])
    assert "GPUs" in described
    assert _nodes_of(kubectl, "job-name=training") == [""] * 4
    kubectl("delete", "job", "blocker")
    kubectl("wait", "pods", "-l", "job-name=training", "--for=condition=PodScheduled", "--timeout=30m")
    assert len(set(_nodes_of(kubectl, "job-name=training"))) == 4
    kubectl("wait", "job/training", "--for=condition=Complete", "--timeout=30m")
    kubectl("delete", "-f", _example("gang"))


def a_group_made_by_hand_and_shared_gpus(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", _example("podgroup"), "-f", _example("shared-gpu"))
    kubectl("wait", "pods", "--all", "--for=condition=Ready", "--timeout=30m")
    pods = {each["metadata"]["name"]: each for each in json.loads(kubectl("get", "pods", "-o", "json"))["items"]}
    halves = [pods[f"half-{letter}"]["metadata"]["labels"]["runai-gpu-group"] for letter in "ab"]
    assert halves[0] == halves[1]
    assert len(kubectl("get", "pods", "-n", "kai-resource-reservation", "-o", "name").split()) == 1
    kubectl("delete", "-f", _example("podgroup"), "-f", _example("shared-gpu"))
    kubectl("wait", "pods", "--all", "-n", "kai-resource-reservation", "--for=delete", "--timeout=30m")


def imperative_commands(kubectl: Kubectl) -> None:
    several = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one-of-a-list"}}
    kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": [several]}))
    kubectl("delete", "configmap", "one-of-a-list")
    kubectl("create", "namespace", "scratch")
    kubectl("create", "job", "hello", "--image=busybox", "-n", "scratch")
    assert "hello" in kubectl("get", "jobs", "-n", "scratch")
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "requests" in kubectl("explain", "pod.spec.containers.resources")
    kubectl("delete", "namespace", "scratch")
    assert "NotFound" in kubectl.run("get", "namespace", "scratch").err


def everything_is_cleaned_up(kubectl: Kubectl) -> None:
    kubectl("delete", "-f", _example("queues"))
    for kind in ("pods", "jobs", "deployments", "podgroups", "bindrequests"):
        assert kubectl("get", kind, "-A", "-o", "name") == ""
    assert set(kubectl("get", "queues", "-o", "name").split()) == {
        "queue.scheduling.run.ai/default-parent-queue",
        "queue.scheduling.run.ai/default-queue",
    }


def test_the_folder_of_examples_is_used() -> None:
    assert {path.stem for path in Path(EXAMPLES).glob("*.yaml")} >= {
        "queues",
        "pod",
        "deployment",
        "gang",
        "podgroup",
        "shared-gpu",
        "topology",
    }


STEPS: tuple[Callable[[Kubectl], None], ...] = (
    the_server_says_who_it_is,
    queues_are_applied_shown_and_explained,
    a_pod_gets_a_group_and_a_node,
    a_deployment_is_rolled_out_and_scaled,
    a_gang_waits_and_then_starts_as_one,
    a_group_made_by_hand_and_shared_gpus,
    imperative_commands,
    everything_is_cleaned_up,
)


@pytest.mark.skipif(
    not programs(), reason="NO KUBECTL: neither on PATH nor in KAI_KUBECTL; what a user does with kubectl is not tested"
)
@pytest.mark.parametrize("program", programs(), ids=[f"kubectl-{number}" for number, _ in enumerate(programs())])
def test_what_users_do_with_kubectl(program: str, tmp_path: Path) -> None:
    with running_cluster(tmp_path, "--scenario", "none", "--speed", "20") as kubeconfig:
        kubectl = Kubectl(program, kubeconfig)
        for step in STEPS:
            step(kubectl)
