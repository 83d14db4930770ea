"""The cluster of `bench.openb` is the one of the lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.openb import cluster, main
from pykai.dev.objectsbench import measure_once

_PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
none,1000,1024,0,0,
whole,1000,1024,2,1000,T4|P100
part,1000,1024,1,250,
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Lists of the form of the trace."""
    nodes = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,40,T4\nn1,64000,262144,1,G2\n"
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(nodes)
    (tmp_path / "openb_pod_list_default.csv").write_text(_PODS)
    return tmp_path


def test_pods_are_drawn_until_they_ask_for_all_gpus(folder: Path) -> None:
    pods = [each for each in cluster(folder, "default", 0) if each["kind"] == "Pod"]
    parts = [float(pod["metadata"]["annotations"].get("gpu-fraction", 0)) for pod in pods]
    whole = [int(pod["spec"]["containers"][0]["resources"]["requests"].get("nvidia.com/gpu", 0)) for pod in pods]
    assert set(parts) == {0, 0.25}
    assert set(whole) == {0, 2}
    assert 41 <= sum(parts) + sum(whole) < 43
    assert any("affinity" in pod["spec"] for pod in pods)
    assert list(cluster(folder, "default", 0)) != list(cluster(folder, "default", 1))


def test_it_is_measured_and_printed(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder), "--objects"])
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == list(cluster(folder, "default", 0))
    path = tmp_path / "objects"
    path.write_text("\n".join(lines))
    found = measure_once(path)
    assert found.nodes == 2
    assert found.pods - 2 <= found.binds <= found.pods
    main([str(folder), "--runs", "1"])
    assert f"2 nodes, {found.pods} pods: {found.binds} bound" in capsys.readouterr().out
