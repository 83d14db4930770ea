"""One cycle on a published trace of a GPU cluster: all pods of a day wait at once.

    python -m bench.openb FOLDER [--pods default] [--seed 0] [--runs 3]
    python -m bench.openb FOLDER --objects

The first measures one cycle as `kai bench objects` does and prints processor time a pod; the second prints the cluster
as Kubernetes objects, one JSON object a line. The folder holds the lists of nodes and pods of the trace "openb" of
Alibaba, as published with the paper on FGD (USENIX ATC 2023). Pods are drawn from the list at random until they ask for
as many GPUs as there are.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pykai.api import names
from pykai.api.timestamp import format_timestamp
from pykai.dev.objectsbench import measure_objects

Document = dict[str, Any]

_NODES: Final = "openb_node_list_gpu_node.csv"
_PODS: Final = "openb_pod_list_{}.csv"
_QUEUE: Final = "openb"
_SINCE_S: Final = 1_767_000_000
_WHOLE_GPU: Final = 1000
#: MiB of one GPU; those that are not listed have 16 GiB
_GPU_MIB: Final = {"A10": 24576, "G2": 24576, "G3": 40960, "V100M32": 32768}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def _node(row: dict[str, str]) -> Document:
    name, gpus = row["sn"], row["gpu"]
    amounts = {
        "cpu": f"{row['cpu_milli']}m",
        "memory": f"{row['memory_mib']}Mi",
        "pods": "110",
        names.NVIDIA_GPU: gpus,
    }
    labels = {
        names.HOSTNAME_LABEL: name,
        names.GPU_MEMORY_NODE_LABEL: str(_GPU_MIB.get(row["model"], 16384)),
        names.GPU_COUNT_NODE_LABEL: gpus,
        "model": row["model"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _job(number: int, row: dict[str, str]) -> Iterator[Document]:
    """A group of one pod."""
    name, created = f"job-{number:06}", format_timestamp((_SINCE_S + number) * 10**9)
    metadata: Document = {"name": name, "namespace": _QUEUE, "uid": name, "creationTimestamp": created}
    yield {
        "apiVersion": f"{names.SCHEDULING_GROUP}/v2alpha2",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"queue": _QUEUE, "minMember": 1, "preemptibility": names.PREEMPTIBLE},
    }
    annotations = {names.POD_GROUP_ANNOTATION: name}
    requests = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}
    gpus, part = int(row["num_gpu"]), int(row["gpu_milli"])
    if gpus == 1 and part < _WHOLE_GPU:
        annotations[names.GPU_FRACTION_ANNOTATION] = str(part / _WHOLE_GPU)
    elif gpus:
        requests[names.NVIDIA_GPU] = str(gpus)
    spec: Document = {
        "schedulerName": names.SCHEDULER_NAME,
        "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}],
    }
    if row.get("gpu_spec"):
        models = row["gpu_spec"].split("|")
        term = {"matchExpressions": [{"key": "model", "operator": "In", "values": models}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {"nodeAffinity": required}
    yield {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "name": f"{name}-0", "uid": f"{name}-0", "annotations": annotations},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def _gpus_asked(row: dict[str, str]) -> int:
    """Thousandths of a GPU."""
    return int(row["num_gpu"]) * int(row["gpu_milli"])


def cluster(folder: Path, pods: str, seed: int) -> Iterator[Document]:
    """All nodes of the trace, one queue, and waiting jobs that ask for as many GPUs as there are."""
    nodes = _rows(folder / _NODES)
    yield from map(_node, nodes)
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    for name, parent in ((f"all-{_QUEUE}", ""), (_QUEUE, f"all-{_QUEUE}")):
        yield {
            "apiVersion": f"{names.SCHEDULING_GROUP}/v2",
            "kind": "Queue",
            "metadata": {"name": name, "uid": name, "creationTimestamp": format_timestamp(_SINCE_S * 10**9)},
            "spec": {
                **({"parentQueue": parent} if parent else {}),
                "resources": {"gpu": unlimited, "cpu": unlimited, "memory": unlimited},
            },
        }
    rows = _rows(folder / _PODS.format(pods))
    draw = random.Random(seed)
    left = _WHOLE_GPU * sum(int(node["gpu"]) for node in nodes)
    number = 0
    while left > 0:
        row = draw.choice(rows)
        yield from _job(number, row)
        left -= _gpus_asked(row)
        number += 1


def main(arguments: Sequence[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.openb", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of the trace")
    parser.add_argument("--pods", default="default", help="which list of pods (default)")
    parser.add_argument("--seed", type=int, default=0, help="other pods (0)")
    parser.add_argument("--runs", type=int, default=3, help="processes for each measurement (3)")
    parser.add_argument("--objects", action="store_true", help="print the objects instead")
    given = parser.parse_args(arguments)
    lines = (json.dumps(document) for document in cluster(given.folder, given.pods, given.seed))
    if given.objects:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "openb.jsonl"
        path.write_text("\n".join(lines))
        found = measure_objects(path, given.runs)
    print(f"{found.nodes:,} nodes, {found.pods:,} pods: {found.binds:,} bound, {found.peak_mib:.0f} MiB")
    print(f"{1e6 * found.cpu_seconds / found.pods:.0f} us of CPU a pod")


if __name__ == "__main__":
    main()
