"""Runs in one installation and prints what it decides: a JSON object a line, for `python -m tools.compare`.

python runner.py cases FOLDER | clusters COUNT SEED CYCLES | story TREE
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.compare.adapter import find, member, new_memory
from tools.compare.clusters import Cluster, Raw
from tools.compare.sentences import record

#: kind -> key of `rawObjects` in a snapshot file
_LISTS = {
    "Pod": "pods",
    "Node": "nodes",
    "Queue": "queues",
    "PodGroup": "podGroups",
    "BindRequest": "bindRequests",
    "PriorityClass": "priorityClasses",
    "ConfigMap": "configMaps",
    "PersistentVolume": "persistentVolumes",
    "PersistentVolumeClaim": "persistentVolumeClaims",
    "StorageClass": "storageClasses",
    "ResourceClaim": "resourceClaims",
    "ResourceSlice": "resourceSlices",
    "DeviceClass": "deviceClasses",
    "Topology": "topologies",
    "NodeResourceTopology": "nodeResourceTopologies",
}
#: cycles at the end in which nothing new arrives
_QUIET = 3


def _recording(content: Raw) -> Any:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("snapshot.json", json.dumps(content))
    return find("read_snapshot")(packed.getvalue())


def _content(cluster: Cluster, objects: list[Raw], plan: Raw | None) -> Raw:
    """A snapshot file: settings, objects, and whose turn it is after a plan."""
    lists: dict[str, list[Raw]] = {}
    for raw in objects:
        lists.setdefault(_LISTS[raw["kind"]], []).append(raw)
    content = {**cluster.settings(), "rawObjects": lists}
    ours = {**content["pykai"], "nowNs": cluster.now_ns}
    if plan is not None:
        ours |= {"resume": dict(plan.get("resume") or ())}
        ours |= {"promised": sorted({each["group"] for each in plan["nominations"]})}
    return {**content, "pykai": ours}


def run_cluster(number: int, seed: int, cycles: int) -> Iterator[dict[str, Any]]:
    """The plans of a random cluster, cycle by cycle, with one model and one memory, as a scheduler has them."""
    cluster = Cluster(seed * 1_000_003 + number)
    recording = _recording(_content(cluster, list(cluster.held.values()), None))
    tables, policy, memory = recording.tables(), recording.policy, new_memory()
    problems = [str(each) for each in (*recording.unreadable, *recording.configuration.problems)]
    decode = find("decode_object")
    effective_policy = policy
    for cycle in range(1, cycles + _QUIET + 1):
        name = f"cluster {number} of seed {seed}"
        first = {"problems": problems, "features": sorted(cluster.features)} if cycle == 1 else {}
        order = find("job_order")(tables.snapshot(cluster.now_ns), effective_policy) if cycle == 1 else {}
        plan = find("schedule")(tables.snapshot(cluster.now_ns), effective_policy, memory)
        line = record(
            name,
            cycle,
            plan,
            order=order,
            dead=sorted(member(tables, "stale_bind_requests", "dead_requests")()),
            **first,
        )
        yield line
        raw = line["plan"]
        happened = cluster.apply_decisions(raw) if cycle < cycles else cluster.settle(raw)
        for (kind, namespace, key), changed in happened.items():
            if changed is None:
                tables.remove(kind, namespace, key)
            else:
                tables.apply(decode(changed))
        turns = raw.get("resume") or raw["nominations"]
        effective_policy = _recording(_content(cluster, [], raw)).policy if turns else policy


def run_clusters(count: int, seed: int, cycles: int) -> Iterator[dict[str, Any]]:
    """All of them."""
    for number in range(count):
        yield from run_cluster(number, seed, cycles)


def run_cases(folder: Path) -> Iterator[dict[str, Any]]:
    """The plans of all recorded cases, cycle by cycle, and whether each is as recorded."""
    for path in sorted(folder.glob("*.jsonl")):
        for case in find("read_cases")(path):
            run = find("CaseRun")(case)
            last = member(case.cycles, "last_cycle", "last") if case.cycles is not None else 1
            for cycle in range(1, last + 1):
                plan = find("schedule")(run.tables.snapshot(run.now_ns), run.policy, None)
                yield record(f"{path.name} {case.id}", cycle, plan)
                if case.cycles is not None:
                    run.step()
            yield {"case": f"{path.name} {case.id}", "cycle": 0, "differences": find("check_case")(case)}


def run_story(tree: Path) -> Iterator[dict[str, Any]]:
    """What the services write to each object in the story of `tests/faults` of a source tree."""
    import logging

    from tools.compare import story

    sys.path.insert(0, str(tree))
    logging.disable(logging.CRITICAL)
    with story.steady():
        from tests.faults.story import tell
    writes, seen, told = story.recorded(tell)
    for subject, written in story.normalised(writes, seen).items():
        for number, each in enumerate(written, 1):
            yield {"case": f"story {subject}", "cycle": number, "write": each}
    yield {"case": "story", "cycle": 0, "problems": told.problems(), "calls": sum(told.calls.values())}


def lines(what: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """The lines of one part."""
    if what == "cases":
        return run_cases(Path(arguments[0]))
    if what == "clusters":
        return run_clusters(*map(int, arguments))
    if what == "story":
        return run_story(Path(arguments[0]))
    raise SystemExit(f"no such part: {what}")


if __name__ == "__main__":
    for line in lines(*sys.argv[1:]):
        sys.stdout.write(json.dumps(line, sort_keys=True) + "\n")
