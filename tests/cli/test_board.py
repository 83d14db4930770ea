"""The board of `kai up`: what is gathered, and what is drawn."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.decode import WireObject, decode_object
from pykai.api.scheduling import BindRequestSpec, PodGroup
from pykai.cli.board import draw, summary
from pykai.core.cluster.tables import Tables
from pykai.core.clusterview import ClusterView, GpuView, GroupView, QueueView, build_cluster_view
from pykai.core.model.shard import Shard
from pykai.core.model.status import TaskStatus
from pykai.scheduler.dispatch.bindrequests import assumed_request


def node(name: str, gpus: int, resource: str = names.NVIDIA_GPU) -> Node:
    found = decode_object(
        {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "status": {"allocatable": {resource: gpus}},
        }
    )
    assert isinstance(found, Node)
    return found


def pod(name: str, **settings: Any) -> Pod:
    labels = {names.GPU_GROUP_LABEL: settings["gpu_group"]} if "gpu_group" in settings else {}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "d",
        "uid": name,
        "labels": labels,
        "annotations": {names.POD_GROUP_ANNOTATION: settings.get("group", name)},
    }
    if "gpu_group" in settings:
        metadata["annotations"][names.GPU_FRACTION_ANNOTATION] = "0.5"
    if settings.get("leaving"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    limits = {settings.get("resource", names.NVIDIA_GPU): settings["gpus"]} if "gpus" in settings else {}
    found = decode_object(
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": metadata,
            "spec": {
                "nodeName": settings.get("node", ""),
                "schedulerName": names.SCHEDULER_NAME,
                "containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}],
            },
            "status": {"phase": settings.get("phase", "Running")},
        }
    )
    assert isinstance(found, Pod)
    return found


def reservation(gpu_group: str, node: str) -> Pod:
    """The pod that holds a shared GPU."""
    found = decode_object(
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "name": f"gpu-reservation-{gpu_group}",
                "namespace": names.RESERVATION_NAMESPACE,
                "labels": {names.GPU_GROUP_LABEL: gpu_group, "app": names.RESERVATION_APP},
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "resources": {"limits": {names.NVIDIA_GPU: 1}}}],
            },
            "status": {"phase": "Running"},
        }
    )
    assert isinstance(found, Pod)
    return found


def group(name: str, queue: str) -> PodGroup:
    found = decode_object(
        {
            "kind": "PodGroup",
            "apiVersion": names.POD_GROUP_API_VERSION,
            "metadata": {"name": name, "namespace": "d"},
            "spec": {"queue": queue},
        }
    )
    assert isinstance(found, PodGroup)
    return found


def view_of(*objects: WireObject) -> ClusterView:
    return build_cluster_view(Tables(Shard(), objects).snapshot(0), None)


def drawn(view: ClusterView, **settings: Any) -> str:
    console = Console(width=120, record=True, force_terminal=False, color_system=None)
    console.print(draw(view, **settings))
    return console.export_text()


def test_gpus_of_every_vendor_are_shown() -> None:
    for resource in ("amd.com/gpu", "gpu.intel.com/xe"):
        running = pod("p", node="n", gpus=1, resource=resource, group="g")
        assert view_of(node("n", 2, resource), running, group("g", "a")).nodes[0].gpus == (GpuView("a"), GpuView())


def test_gpus_belong_to_the_queues_of_their_pods() -> None:
    pods = [
        pod("whole", node="n-1", gpus=2, group="g"),
        reservation("x", node="n-1"),
        pod("half-a", node="n-1", gpu_group="x", group="h"),
        pod("half-b", node="n-1", gpu_group="x", group="h"),
        pod("going", node="n-1", gpus=1, group="g", leaving=True),
        pod("done", node="n-1", gpus=1, group="g", phase="Succeeded"),
        pod("later", group="g", gpus=1, phase="Pending"),
    ]
    view = view_of(node("n-1", 5), *pods, group("g", "a"), group("h", "b"))
    assert view.nodes[0].gpus == (
        GpuView("a"),
        GpuView("a"),
        GpuView("a", terminating=True),
        GpuView("b", 2),
        GpuView(),
    )
    assert (view.gpus, view.gpus_used, view.pods_placed, view.pods_waiting) == (5, 4, 4, 1)
    assert view.running == (GroupView("d/g", "a", 2, 0), GroupView("d/h", "b", 2, 0))


def test_a_bind_that_was_decided_is_not_on_its_node_yet() -> None:
    tables = Tables(Shard(), [node("n-1", 1), pod("p", gpus=1, group="g", phase="Pending"), group("g", "a")])
    tables.apply(assumed_request("d", "p", BindRequestSpec(pod_name="p", selected_node="n-1")))
    snapshot = tables.snapshot(0)
    assert snapshot.task_records["d/p"].status is TaskStatus.BINDING
    view = build_cluster_view(snapshot, None)
    assert (view.gpus_used, view.pods_placed, view.pods_waiting) == (0, 0, 1)


def test_nodes_stand_in_reading_order() -> None:
    text = drawn(view_of(node("n-10", 1), node("n-9", 1)), heading="")
    assert text.index("n-9") < text.index("n-10")


def test_the_board_shows_queues_nodes_and_reasons() -> None:
    view = ClusterView(
        nodes=view_of(node("n-1", 2), pod("p", node="n-1", gpus=1, group="g"), group("g", "vision")).nodes,
        queues=(
            QueueView("research", "Research", 0, 8, 8, 1, 4),
            QueueView("vision", "Vision", 1, None, 8, 1, 4),
        ),
        waiting=tuple(
            GroupView(f"d/pg-train-{number}", "vision", 0, 3, "Nothing is free:\n no room. ") for number in range(4)
        ),
    )
    text = drawn(view, heading="A lab", story_lines=["First.", "Vision trains."], footer="kubectl ...", most_waiting=2)
    for part in (
        "A lab",
        "Vision trains.",
        "  Vision",
        "■□",
        "1/2",
        "Nothing is free: no room.",
        "and 2 more groups",
        "kubectl ...",
    ):
        assert part in text
    assert "First." not in text
    assert summary(view) == "1 of 2 GPUs used, 0 pods placed, 0 waiting; GPUs used/fair share: vision 1/8"
