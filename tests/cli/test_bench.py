"""`kai bench`: one line of JSON with the figures people compare; no timing is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykai.cli import main
from pykai.dev.bench import COMPARED, SIZES

KEYS = {"shape", "nodes", "pods", "seconds", "floor_seconds", "ratio", "peak_mib", "decisions", "evictions"}
MORE = {
    "full": {"second_seconds"},
    "racks": {"refusal_seconds"},
    "racks64": {"refusal_seconds"},
    "living": {"median_seconds", "new_pod_seconds"},
}

OPEN = {"quota": -1, "limit": -1}
GROUP = {"queue": "q", "minMember": 1}
POD = {
    "schedulerName": "kai-scheduler",
    "containers": [{"name": "c", "image": "x", "resources": {"requests": {"nvidia.com/gpu": "1"}}}],
}


@pytest.mark.parametrize(
    ("shape", "nodes", "pods", "decisions", "evictions"),
    [
        ("fill", 8, 64, 64, 0),
        ("gang", 8, 8, 8, 0),
        ("full", 8, 64, 0, 0),
        ("reclaim", 8, 6, 6, 48),
        ("frag", 8, 1, 6, 5),
        ("racks", 256, 2048, 2048, 0),
        ("racks64", 32, 256, 256, 0),
        ("living", 10, 2, 2, 0),
        ("apply", 8, 1, 500, 0),
    ],
)
def test_a_measurement_is_one_line_of_json(shape: str, nodes: int, pods: int, decisions: int, evictions: int) -> None:
    result = CliRunner().invoke(main, ["bench", shape, "--nodes", str(nodes), "--json", "--quick"])
    assert result.exit_code == 0, result.output
    (line,) = result.output.splitlines()
    record = json.loads(line)
    assert set(record) == KEYS | MORE.get(shape, set())
    assert (record["shape"], record["nodes"], record["pods"]) == (shape, nodes, pods)
    assert (record["decisions"], record["evictions"]) == (decisions, evictions)
    assert record["seconds"] > 0
    assert record["floor_seconds"] > 0


def test_grouping_writes_a_pod_once_a_group_once_and_nothing_again() -> None:
    """Exact figures: ten workloads of 20 pods, one of them a LeaderWorkerSet of two groups."""
    result = CliRunner().invoke(main, ["bench", "kinds", "--quick", "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.output)
    assert record.pop("seconds") > 0
    # An owner between the top and a pod is read from the server where the cache has not shown it yet.
    assert 10 <= record.pop("reads") <= 30
    assert record == {
        "shape": "kinds",
        "kinds": 10,
        "workloads": 10,
        "pods": 200,
        "groups": 11,
        "pod_writes": 200,
        "group_writes": 11,
        "most_writes_of_a_pod": 1,
        "most_writes_of_a_group": 1,
        "writes_after_update": 0,
    }


def test_without_json_it_is_a_line_for_people() -> None:
    result = CliRunner().invoke(main, ["bench", "gang", "--nodes", "8", "--quick"])
    assert "8 decisions" in result.output


def test_objects_of_a_file_are_scheduled_in_one_cycle(tmp_path: Path) -> None:
    """`kai bench objects`: a node with two GPUs takes two of three jobs, and a second cycle is measured, too."""
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "9", "nvidia.com/gpu": "2"}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    objects: list[dict[str, object]] = [
        {**node, "status": status},
        {**queue, "spec": {"resources": dict.fromkeys(("cpu", "memory", "gpu"), OPEN)}},
    ]
    for number in range(3):
        meta = {"name": f"j{number}", "namespace": "d", "uid": f"j{number}"}
        objects.append(
            {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": meta, "spec": GROUP}
        )
        pod = {**meta, "annotations": {"pod-group-name": f"j{number}"}}
        objects.append(
            {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": POD, "status": {"phase": "Pending"}}
        )
    file = tmp_path / "objects.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in objects))
    result = CliRunner().invoke(main, ["bench", "objects", str(file), "--once", "--json"])
    record = json.loads(result.output)
    counted = {name: record[name] for name in ("nodes", "pods", "binds", "nominations", "evictions", "ended_searches")}
    assert counted == {"nodes": 1, "pods": 3, "binds": 2, "nominations": 0, "evictions": 0, "ended_searches": 0}
    assert {"cpu_seconds", "seconds", "second_cpu_seconds", "second_seconds", "tables_seconds", "peak_mib"} <= set(
        record
    )


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    file = tmp_path / "objects.jsonl"
    file.write_text("not json\n")
    result = CliRunner().invoke(main, ["bench", "objects", str(file), "--once"])
    assert result.exit_code == 1
    assert "objects.jsonl, line 1" in result.output


@pytest.mark.parametrize("arguments", [["bench"], ["bench", "fly"]])
def test_an_unknown_shape_is_a_usage_error_that_names_the_known_ones(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "fill, gang, full, reclaim, frag, racks, racks64, living, apply, kinds, objects FILE" in result.output


def test_a_cluster_that_a_shape_cannot_fill_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["bench", "racks", "--nodes", "100", "--quick"])
    assert result.exit_code == 2
    assert "a multiple of 64 nodes" in result.output


def test_the_usual_sizes_hold_those_that_are_compared() -> None:
    assert {name: set(COMPARED[name]) <= set(sizes) for name, sizes in SIZES.items()} == dict.fromkeys(SIZES, True)
