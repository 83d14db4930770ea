"""The board of `kai up`: what is gathered, and what is drawn."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.decode import decode_object
from pykai.api.scheduling import PodGroup
from pykai.cli.board import draw, summary
from pykai.cli.view import BoardView, GpuCell, QueueView, WaitingView, build_view


def node(name: str, gpus: int) -> Node:
    found = decode_object(
        {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "status": {"allocatable": {names.NVIDIA_GPU: gpus}},
        }
    )
    assert isinstance(found, Node)
    return found


def pod(name: str, **settings: Any) -> Pod:
    labels = {names.GPU_GROUP_LABEL: settings["gpu_group"]} if "gpu_group" in settings else {}
    metadata = {
        "name": name,
        "namespace": "d",
        "labels": labels,
        "annotations": {names.POD_GROUP_ANNOTATION: settings.get("group", name)},
    }
    if settings.get("leaving"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    limits = {names.NVIDIA_GPU: settings["gpus"]} if "gpus" in settings else {}
    found = decode_object(
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": metadata,
            "spec": {
                "nodeName": settings.get("node", ""),
                "schedulerName": names.SCHEDULER_NAME,
                "containers": [{"name": "c", "resources": {"limits": limits}}],
            },
            "status": {"phase": settings.get("phase", "Running")},
        }
    )
    assert isinstance(found, Pod)
    return found


def group(queue: str) -> PodGroup:
    found = decode_object(
        {
            "kind": "PodGroup",
            "apiVersion": names.POD_GROUP_API_VERSION,
            "metadata": {"name": "g"},
            "spec": {"queue": queue},
        }
    )
    assert isinstance(found, PodGroup)
    return found


def test_gpus_belong_to_the_queues_of_their_pods() -> None:
    pods = [
        pod("whole", node="n-1", gpus=2, group="g"),
        pod("half-a", node="n-1", gpu_group="x", group="h"),
        pod("half-b", node="n-1", gpu_group="x", group="h"),
        pod("going", node="n-1", gpus=1, group="g", leaving=True),
        pod("done", node="n-1", gpus=1, group="g", phase="Succeeded"),
        pod("later", group="g", gpus=1),
    ]
    view = build_view([node("n-1", 5)], pods, {"d/g": group("a"), "d/h": group("b")}, None)
    assert view.nodes[0].cells == (
        GpuCell("a"),
        GpuCell("a"),
        GpuCell("a", terminating=True),
        GpuCell("b", 2),
        GpuCell(),
    )
    assert (view.gpus, view.gpus_used, view.running, view.pending) == (5, 4, 4, 1)


def test_nodes_stand_in_reading_order() -> None:
    view = build_view([node("n-10", 1), node("n-9", 1), node("a", 1)], [], {}, None)
    assert [each.name for each in view.nodes] == ["a", "n-9", "n-10"]


def test_the_board_shows_queues_nodes_and_reasons() -> None:
    view = BoardView(
        nodes=build_view(
            [node("n-1", 2)], [pod("p", node="n-1", gpus=1, group="g")], {"d/g": group("vision")}, None
        ).nodes,
        queues=(
            QueueView("research", "Research", 0, 8, 8, 1, 4),
            QueueView("vision", "Vision", 1, None, 8, 1, 4),
        ),
        waiting=tuple(WaitingView(f"pg-train-{number}", "vision", 3, "no room for it.") for number in range(4)),
        gpus=2,
        gpus_used=1,
    )
    console = Console(width=120, record=True, force_terminal=False, color_system=None)
    console.print(
        draw(view, heading="A lab", story_lines=["First.", "Vision trains."], footer="kubectl ...", most_waiting=2)
    )
    text = console.export_text()
    for part in (
        "A lab",
        "Vision trains.",
        "  Vision",
        "■□",
        "1/2",
        "no room for it.",
        "and 2 more groups",
        "kubectl ...",
    ):
        assert part in text
    assert "First." not in text
    assert summary(view) == "1 of 2 GPUs used, 0 pods placed, 0 waiting; GPUs used/fair share: vision 1/8"
