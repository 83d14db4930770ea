"""Small recorded cases for tests: two GPUs on one node, and a gang that wants them."""

from typing import Any

from pykai.dev.cases import Case, Cycles
from tests.core.builders import cluster

Raw = dict[str, Any]


def objects(pods: int = 2) -> list[Raw]:
    """Two GPUs on one node, and a gang of pods with one GPU each."""
    return cluster(nodes=1, gpus=2).queue("q", quota=2).gang("train", pods=pods, gpu=1).objects


def case(number: int, expect: Raw, pods: int = 2, **more: Any) -> Raw:
    what = {} if "cycles" in more else {"actions": ["allocate"]}
    return {
        "id": f"small/{number:03}",
        "now": "2026-01-01T00:00:00Z",
        "objects": objects(pods),
        "expect": expect,
        **what,
        **more,
    }


def read(raw: Raw) -> Case:
    return Case(
        id=raw["id"],
        now=raw["now"],
        objects=raw["objects"],
        expect=raw["expect"],
        actions=raw.get("actions"),
        cycles=Cycles(**raw["cycles"]) if "cycles" in raw else None,
        pod_states=raw.get("podStates", {}),
        environment=raw.get("environment", {}),
        settings=raw.get("settings", {}),
        scheduler_conf=raw.get("schedulerConf"),
    )


BINDING: Raw = {"podGroups": {"train": {"status": "Binding", "node": "node-0"}}}
PENDING: Raw = {"podGroups": {"train": {"status": "Pending"}}}
SHARES: Raw = {"fairShares": {"q": {"GPU": 2}}}
