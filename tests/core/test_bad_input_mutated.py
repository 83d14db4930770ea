"""Objects changed at random places: a field dropped, of another type, absurdly large, empty, in odd letters.

A cluster with one of everything (topologies, zones, devices, volumes, spread, affinity) is damaged in a few places and
read from its bytes, as a server sends it.  Nothing but `DecodeError` may come out of reading, nothing at all out of the
tables and the cycle, and a gang that has nothing to do with any of it gets its nodes.
"""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from pykai.api.decode import WireObject, decode_each
from pykai.core.cluster.tables import Tables
from pykai.core.policy import Policy
from pykai.core.schedule import schedule
from tests.core.badinput import everything, with_haven
from tests.core.builders import NOW_NS, Cluster, Raw, allocation_of, cluster
from tests.core.topologies import inside, topology

#: What a damaged place holds instead; the first stands for a field that is gone.
_GONE = object()
_VALUES: tuple[Any, ...] = (
    _GONE,
    None,
    "",
    "x",
    "0",
    "-1",
    "1e30",
    "٣\u0000é🦥",
    "a/b/c",
    "#",
    "x" * 5000,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63 - 1,
    -(2**63),
    10**40,
    [],
    {},
    [None],
    [{}],
    {"": ""},
    [[]],
)
#: Kinds of which any place may be damaged; of the healthy gang, its queue and its node nothing is.
_KINDS = (
    "BindRequest",
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
    "DeviceClass",
    "Node",
    "NodeResourceTopology",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "PodGroup",
    "ResourceClaim",
    "ResourceSlice",
    "StorageClass",
    "Topology",
)


def _near(label: str) -> Raw:
    term = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": label}}}
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}],
    }


def _world() -> Cluster:
    """One of everything."""
    found = topology(cluster(), "zone", "rack", aliases={"rack": "row"}).queue("q")
    for number in range(2):
        found.node(gpus=2, labels={"zone": "z", "rack": f"r{number}"}, extra={"example.com/nic": 2})
        name = f"node-{number}"
        zone: dict[str, str | int] = {"cpu": 50, "memory": "500Gi", "nvidia.com/gpu": 1}
        found.zones(name, zone, zone, policy="restricted")
        devices = [
            {
                "name": f"gpu-{place}",
                "attributes": {"model": {"string": "a"}, "index": {"int": place}, "v": {"version": "1.2.3"}},
                "capacity": {"memory": {"value": "40Gi"}},
                "consumesCounters": [{"counterSet": "all", "counters": {"memory": {"value": "40Gi"}}}],
            }
            for place in range(2)
        ]
        counters = [{"name": "all", "counters": {"memory": {"value": "80Gi"}}}]
        found.slice(name, devices, sharedCounters=counters).csi_node(name, **{"csi.x": 4})
        found.volume(f"local-{number}", on=name).storage_capacity(f"room-{number}", of="made", on=name)
    found.device_class("gpu", 'device.attributes["gpu.example.com"].model == "a"')
    found.device_class("nic", extendedResourceName="example.com/link")
    found.storage_class("fast").storage_class("made", provisioner="csi.x", zones=("z",)).csi_driver("csi.x")
    found.volume("bound", claim="bound", driver="csi.x", zone="z").claim("bound", bound_to="bound")
    found.claim("local").claim("made", of="made")
    found.device_claim("ours", queue="q", given=("gpu-0",), on="node-0", users=("user-0",))
    found.gang("user", on="node-0", shares=("ours",), labels={"app": "user"})
    found.gang("aligned", gpu=1, on="node-1", qos="Guaranteed", numa={"zone-0": {"cpu": 1, "nvidia.com/gpu": 1}})
    found.gang("kept", 2, cpu=1, group_spec=inside("rack", "zone"))
    found.tree("parts", *(), group_spec={"subGroups": [{"name": "a", "minMember": 1, **inside("rack")}]})
    found.pod("parts-a-0", group="parts", subgroup="a", gpu=1, qos="Guaranteed")
    found.gang("devices", template=1).gang("linked", extra={"example.com/link": 1})
    found.gang("stored", claims=("bound", "local", "made"))
    spread = {"maxSkew": 1, "topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "even"}}}
    kinds = [{**spread, "whenUnsatisfiable": how} for how in ("DoNotSchedule", "ScheduleAnyway")]
    found.gang("even", 2, labels={"app": "even"}, spec={"topologySpreadConstraints": kinds})
    found.gang("near", labels={"app": "near"}, spec={"affinity": {"podAffinity": _near("user")}})
    found.gang("far", labels={"app": "far"}, spec={"affinity": {"podAntiAffinity": _near("near")}})
    found.gang("binding", template=1)
    found.bind_request("binding-0", "node-1", claims={"devices": allocation_of("node-1", "gpu-1")})
    found.disruption_budget("budget", 1, matchLabels={"app": "user"})
    return with_haven(found)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document except the header with its kind."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    for key, below in items:
        if path or key not in ("kind", "apiVersion"):
            found += _places(below, (*path, key))
    return found


@cache
def _healthy() -> tuple[list[Raw], list[tuple[int, tuple[Any, ...]]], Policy]:
    """The objects, the places that may be damaged, and the policy with every plugin."""
    found = _world()
    places = [
        (number, path)
        for number, raw in enumerate(found.objects)
        if raw["kind"] in _KINDS and "haven" not in (raw["metadata"]["name"], raw["metadata"].get("namespace"))
        for path in _places(raw)
    ]
    return found.objects, places, everything(found)


def _damage(raw: Raw, path: tuple[Any, ...], value: Any) -> None:
    """Put something else at a place; a place that earlier damage has taken away is left alone."""

    def is_there(holder: Any, key: Any) -> bool:
        if isinstance(holder, list):
            # What was a mapping may have become a list.
            return isinstance(key, int) and key < len(holder)
        return isinstance(holder, dict) and key in holder

    holder: Any = raw
    for key in path[:-1]:
        if not is_there(holder, key):
            return
        holder = holder[key]
    if is_there(holder, path[-1]):
        if value is _GONE:
            del holder[path[-1]]
        else:
            holder[path[-1]] = deepcopy(value)


def _read(objects: list[Raw]) -> list[WireObject]:
    """What a watch would deliver: objects that can be read; the others are reported."""
    return decode_each(json.dumps(raw).encode() for raw in objects)[0]


def _bound(tables: Tables, policy: Policy) -> set[str]:
    return {bind.pod for bind in schedule(tables.snapshot(NOW_NS), policy).binds if bind.namespace == "haven"}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_objects_stop_no_other_work(data: st.DataObject) -> None:
    objects, places, policy = _healthy()
    damaged = deepcopy(objects)
    for number, path in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=5)):
        _damage(damaged[number], path, data.draw(st.sampled_from(_VALUES)))
    tables = Tables(objects=_read(damaged))
    assert _bound(tables, policy) == {"fine-0", "fine-1"}
    # The same objects one by one over the healthy ones, and then restored.
    later = Tables(objects=_read(objects))
    for item in _read(damaged):
        later.apply(item)
    assert _bound(later, policy) == {"fine-0", "fine-1"}
    for item in _read(objects):
        later.apply(item)
    for raw in damaged:
        meta = raw.get("metadata")
        if isinstance(meta, dict):
            later.remove(raw["kind"], str(meta.get("namespace") or ""), str(meta.get("name")))
    later.snapshot(NOW_NS)


def test_the_undamaged_cluster_is_healthy() -> None:
    """Otherwise the test above would damage objects that are never read."""
    objects, _, policy = _healthy()
    read, problems = decode_each(json.dumps(raw).encode() for raw in objects)
    assert not problems
    plan = schedule(Tables(objects=read).snapshot(NOW_NS), policy)
    assert not plan.problems
    placed = {bind.group.partition("/")[2] for bind in plan.binds}
    assert placed >= {"fine", "kept", "parts", "devices", "stored", "even", "near", "far"}
