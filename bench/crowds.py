"""The cost of one tenant's objects per cycle: attacks on the engine compared with the same cluster without them.

    python -m bench.crowds                    all attacks at 1,000 nodes
    python -m bench.crowds --nodes 200 shares subgroups

The cluster has 8-GPU nodes, half full of one-GPU jobs of an honest namespace. An attacker has one namespace and one
queue. For each attack a separate process prints CPU milliseconds of a cycle with and without the attacker's objects:

- `first`: the first cycle that sees the objects, with empty caches;
- `steady`: the median of later cycles. Before each of them an honest job comes, and the attacker writes a new label on
  a tenth of its pods; placed pods of the attacker are replaced by new pending ones.

and the peak memory that the attack added. `honest` says in how many cycles the honest job was placed at once. Compare
figures of one machine only; tests count units of work instead of milliseconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import resource
import sys
from collections.abc import Callable
from dataclasses import replace as replace_policy
from statistics import median
from time import thread_time
from typing import Any

from msgspec.structs import replace

from pykai.api import names
from pykai.api.decode import WireObject, decode_object
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.memory import CycleMemory
from pykai.core.schedule import schedule
from pykai.scheduler.config.configuration import default_configuration
from pykai.scheduler.gccontrol import gc_paused

Raw = dict[str, Any]
_NOW_NS = 1_767_225_600_000_000_000
_STEADY_CYCLES = 5
ATTACKER, HONEST = "attacker", "honest"
#: Labels of nodes that anti-affinity may name.
_KEYS = ("kubernetes.io/hostname", "rack", "zone")


def _decoded(raw: Raw) -> WireObject:
    item = decode_object(raw)
    assert item is not None
    return item


def _node(number: int) -> WireObject:
    name = f"node-{number:05}"
    labels = {
        "kubernetes.io/hostname": name,
        "rack": f"r{number // 16}",
        "zone": f"z{number // 128}",
        names.GPU_MEMORY_NODE_LABEL: "81920",
    }
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    metadata = {"name": name, "labels": labels}
    return _decoded({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}})


def _queue(name: str, parent: str = "") -> WireObject:
    open_ended = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec: Raw = {"resources": {"gpu": open_ended, "cpu": open_ended, "memory": open_ended}}
    if parent:
        spec["parentQueue"] = parent
    return _decoded({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec})


def _group(namespace: str, name: str, spec: Raw) -> WireObject:
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
    group_spec = {"queue": namespace, "minMember": 1, **spec}
    if "subGroups" in spec:
        del group_spec["minMember"]
    return _decoded(
        {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": group_spec}
    )


def _pod(
    namespace: str,
    group: str,
    name: str,
    *,
    requests: Raw | None = None,
    affinity: Raw | None = None,
    labels: Raw | None = None,
    annotations: Raw | None = None,
    node: str = "",
) -> WireObject:
    spec: Raw = {
        "schedulerName": names.SCHEDULER_NAME,
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", **(requests or {})}}}],
    }
    if affinity is not None:
        spec["affinity"] = affinity
    if node:
        spec["nodeName"] = node
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "labels": labels or {},
        "annotations": {names.POD_GROUP_ANNOTATION: group, **(annotations or {})},
    }
    status = {"phase": "Running" if node else "Pending"}
    return _decoded({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})


def _job(namespace: str, name: str, **pod: Any) -> list[WireObject]:
    return [_group(namespace, name, {}), _pod(namespace, name, name, **pod)]


def _terms(pod: int, count: int, **more: Any) -> list[Raw]:
    """Terms that no other pod has."""
    return [
        {
            "topologyKey": _KEYS[number % len(_KEYS)],
            "labelSelector": {"matchLabels": {"app": f"app-{pod}-{number}"}},
            "namespaceSelector": {},
            **more,
        }
        for number in range(count)
    ]


_PREFERRED, _REQUIRED = (
    "preferredDuringSchedulingIgnoredDuringExecution",
    "requiredDuringSchedulingIgnoredDuringExecution",
)


def _weighed(terms: list[Raw]) -> list[Raw]:
    return [{"weight": 1 + number % 100, "podAffinityTerm": term} for number, term in enumerate(terms)]


def _affine(affinity: Callable[[int], Raw], *, running: bool = False) -> list[WireObject]:
    objects: list[WireObject] = []
    for pod in range(150):
        node = f"node-{pod:05}" if running else ""
        objects += _job(ATTACKER, f"crowd-{pod:03}", affinity=affinity(pod), labels={"app": f"app-{pod}-0"}, node=node)
    return objects


def preferred_affinity(nodes: int) -> list[WireObject]:
    """150 pods that prefer 300 others each, and to be away from none."""
    return _affine(lambda pod: {"podAffinity": {_PREFERRED: _weighed(_terms(pod, 300))}})


def required_affinity(nodes: int) -> list[WireObject]:
    """150 pods that must be near 300 others each; none of them is there."""
    return _affine(lambda pod: {"podAffinity": {_REQUIRED: _terms(pod, 300)}})


def anti_affinity(nodes: int) -> list[WireObject]:
    """150 waiting pods that must be away from 300 others each."""
    return _affine(lambda pod: {"podAntiAffinity": {_REQUIRED: _terms(pod, 300)}})


def invented_keys(nodes: int) -> list[WireObject]:
    """150 waiting pods with 300 terms each, about topology keys that no node has."""

    def affinity(pod: int) -> Raw:
        terms = _terms(pod, 300)
        for number, term in enumerate(terms):
            term["topologyKey"] = f"example.com/key-{pod}-{number}"
        return {"podAntiAffinity": {_REQUIRED: terms[:150]}, "podAffinity": {_PREFERRED: _weighed(terms[150:])}}

    return _affine(affinity)


def held_anti_affinity(nodes: int) -> list[WireObject]:
    """150 running pods that keep 300 others each away."""
    return _affine(lambda pod: {"podAntiAffinity": {_REQUIRED: _terms(pod, 300)}}, running=True)


def held_preferences(nodes: int) -> list[WireObject]:
    """150 running pods that prefer 300 others each."""
    return _affine(lambda pod: {"podAffinity": {_PREFERRED: _weighed(_terms(pod, 300))}}, running=True)


def wide_selectors(nodes: int) -> list[WireObject]:
    """150 waiting pods whose 300 anti-affinity terms list 20 values each that match almost every pod."""

    def affinity(pod: int) -> Raw:
        terms = [
            {
                "topologyKey": "kubernetes.io/hostname",
                "namespaceSelector": {},
                "labelSelector": {
                    "matchExpressions": [
                        {"key": "app", "operator": "NotIn", "values": [f"{pod}-{number}-{k}" for k in range(20)]}
                    ]
                },
            }
            for number in range(300)
        ]
        return {"podAntiAffinity": {_PREFERRED: _weighed(terms)}}

    return _affine(affinity)


def unknown_topology(nodes: int) -> list[WireObject]:
    """20 PodGroups of 2,000 subgroups that each name a topology that does not exist; a pod in the last of each."""
    objects: list[WireObject] = []
    wanted = {"topology": "nowhere", "requiredTopologyLevel": "rack"}
    for number in range(20):
        group = f"crowd-{number:03}"
        subgroups = [{"name": f"s{index}", "minMember": 0, "topologyConstraint": wanted} for index in range(2000)]
        objects.append(_group(ATTACKER, group, {"subGroups": subgroups, "topologyConstraint": wanted}))
        for index in (0, 1, 1000, 1999):
            pod = f"{group}-{index}"
            objects.append(_pod(ATTACKER, group, pod, labels={names.SUBGROUP_LABEL: f"s{index}"}))
    return objects


def subgroup_pods(nodes: int) -> list[WireObject]:
    """4 PodGroups of 1,000 subgroups with a pod each, each naming a topology that does not exist."""
    objects: list[WireObject] = []
    wanted = {"topology": "nowhere", "requiredTopologyLevel": "rack"}
    for number in range(4):
        group = f"crowd-{number:03}"
        subgroups = [{"name": f"s{index}", "minMember": 1, "topologyConstraint": wanted} for index in range(1000)]
        objects.append(_group(ATTACKER, group, {"subGroups": subgroups}))
        for index in range(1000):
            pod = f"{group}-{index}"
            objects.append(_pod(ATTACKER, group, pod, labels={names.SUBGROUP_LABEL: f"s{index}"}))
    return objects


def subgroup_trees(nodes: int) -> list[WireObject]:
    """10 PodGroups whose subgroups are a binary tree of 16,382, with pods in two leaves."""
    objects: list[WireObject] = []
    for number in range(10):
        group = f"crowd-{number:03}"
        subgroups: list[Raw] = []
        for index in range(2, 16384):
            parent = {"parent": f"s{index // 2}"} if index >= 4 else {}
            least = {"minMember": 0} if index >= 8192 else {"minSubGroup": 1}
            subgroups.append({"name": f"s{index}", **parent, **least})
        objects.append(_group(ATTACKER, group, {"subGroups": subgroups, "minSubGroup": 1}))
        for index in (8192, 16383):
            pod = f"{group}-{index}"
            objects.append(_pod(ATTACKER, group, pod, labels={names.SUBGROUP_LABEL: f"s{index}"}))
    return objects


def bounded_trees(nodes: int) -> list[WireObject]:
    """40 PodGroups with as many subgroups as are allowed, in a tree, with pods in all leaves of one of them."""
    objects: list[WireObject] = []
    for number in range(40):
        group = f"crowd-{number:03}"
        subgroups: list[Raw] = []
        for index in range(2, 1024):
            parent = {"parent": f"s{index // 2}"} if index >= 4 else {}
            least = {"minMember": 1} if index >= 512 else {}
            subgroups.append({"name": f"s{index}", **parent, **least})
        objects.append(_group(ATTACKER, group, {"subGroups": subgroups}))
        for index in range(512, 1024 if not number else 640):
            pod = f"{group}-{index}"
            objects.append(_pod(ATTACKER, group, pod, labels={names.SUBGROUP_LABEL: f"s{index}"}))
    return objects


def invented_names(nodes: int) -> list[WireObject]:
    """400 pods that ask for 100 resources each that no node has."""
    objects: list[WireObject] = []
    for pod in range(400):
        requests = {f"example.com/thing-{pod}-{number}": "1" for number in range(100)}
        objects += _job(ATTACKER, f"crowd-{pod:03}", requests=requests)
    return objects


def shares(nodes: int) -> list[WireObject]:
    """600 pods with a different part of a GPU each."""
    objects: list[WireObject] = []
    for pod in range(600):
        portion = f"{0.1 + pod / 1000:.3f}"
        objects += _job(ATTACKER, f"crowd-{pod:03}", annotations={names.GPU_FRACTION_ANNOTATION: portion})
    return objects


def node_selectors(nodes: int) -> list[WireObject]:
    """600 pods with 50 node affinity terms of their own each."""
    objects: list[WireObject] = []
    for pod in range(600):
        terms = [
            {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": [f"v{pod}-{number}"]}]}
            for number in range(50)
        ]
        affinity = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
        objects += _job(ATTACKER, f"crowd-{pod:03}", affinity=affinity)
    return objects


ATTACKS: dict[str, Callable[[int], list[WireObject]]] = {
    "preferred": preferred_affinity,
    "required": required_affinity,
    "anti": anti_affinity,
    "keys": invented_keys,
    "held-anti": held_anti_affinity,
    "held-preferred": held_preferences,
    "wide": wide_selectors,
    "topology": unknown_topology,
    "subgroup-pods": subgroup_pods,
    "subgroups": subgroup_trees,
    "trees": bounded_trees,
    "names": invented_names,
    "shares": shares,
    "selectors": node_selectors,
}


def _cluster(nodes: int) -> Tables:
    tables = Tables()
    for number in range(nodes):
        tables.apply(_node(number))
    for queue in (_queue("all"), _queue(HONEST, "all"), _queue(ATTACKER, "all")):
        tables.apply(queue)
    gpu = {"nvidia.com/gpu": "1"}
    for number in range(4 * nodes):
        for item in _job(HONEST, f"run-{number}", requests=gpu, node=f"node-{number // 4:05}"):
            tables.apply(item)
    return tables


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(nodes: int, attack_objects: list[WireObject]) -> Raw:
    """Cycles of a cluster with these objects."""
    tables = _cluster(nodes)
    for item in attack_objects:
        tables.apply(item)
    pods = [item for item in attack_objects if type(item).__name__ == "Pod"]
    policy, memory = default_configuration().policy, CycleMemory()
    gc.collect()
    before = _peak_mib()
    seconds: list[float] = []
    placed = units = 0
    for number in range(1 + _STEADY_CYCLES):
        name = f"new-{number}"
        honest = _job(HONEST, name, requests={"nvidia.com/gpu": "1"})
        tenth = pods[number % 10 :: 10]
        changed = [
            replace(pod, metadata=replace(pod.metadata, labels={**pod.metadata.labels, "seen": str(number)}))
            for pod in tenth
        ]  # type: ignore[union-attr, attr-defined]
        gc.collect()
        with gc_paused():
            began = thread_time()
            for item in (*honest, *(changed if number else ())):
                tables.apply(item)
            plan = schedule(tables.snapshot(_NOW_NS + number), policy, memory)
            policy = replace_policy(policy, resume=dict(plan.resume or ()))
            seconds.append(thread_time() - began)
        units = plan.work
        for bind in plan.binds:
            if bind.namespace == HONEST and bind.pod == name:
                placed += 1
                for item in _job(HONEST, name, requests={"nvidia.com/gpu": "1"}, node=bind.node):
                    tables.apply(item)
    return {
        "first_ms": 1000 * seconds[0],
        "steady_ms": 1000 * median(seconds[1:]),
        "worst_ms": 1000 * max(seconds[1:]),
        "peak_mib": _peak_mib() - before,
        "placed": placed,
        "attackers": sum(bind.namespace == ATTACKER for bind in plan.binds),
        "units": units,
    }


def _one(arguments: tuple[int, str]) -> Raw:
    nodes, attack = arguments
    return measure(nodes, ATTACKS[attack](nodes) if attack else [])


def main() -> int:
    """Print one line per attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", help=f"of {', '.join(ATTACKS)}; all when left out")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    options = parser.parse_args()
    unknown = [name for name in options.attacks if name not in ATTACKS]
    if unknown:
        parser.error(f"no such attack: {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    chosen = options.attacks or list(ATTACKS)
    # One process each, so that memory peaks are separate.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in ("", *chosen):
            result = pool.map(_one, [(options.nodes, name)])[0]
            line = {"attack": name or "none", "nodes": options.nodes, **result}
            if options.json:
                print(json.dumps({key: round(v, 1) if isinstance(v, float) else v for key, v in line.items()}))
            else:
                print(
                    f"{line['attack']:15} first {result['first_ms']:8.1f} ms  steady {result['steady_ms']:8.1f} ms  "
                    f"worst {result['worst_ms']:8.1f} ms  memory +{result['peak_mib']:6.0f} MiB  "
                    f"honest {result['placed']}/{1 + _STEADY_CYCLES}  of the attacker {result['attackers']}  "
                    f"units {result['units']}"
                )
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
