"""What one namespace may cost a cycle while others wait: units counted from objects, and turns
(`core/queueing/allowance.py`)."""

from __future__ import annotations

import csv
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.decode import decode_object
from pykai.core.cluster.tables import Tables
from pykai.core.policy import NAMESPACE_ALLOWANCE
from pykai.core.queueing.allowance import select_groups
from pykai.core.report.decisions import Postponed
from tests.core.builders import NOW_NS, Cluster, Raw, Result, cluster

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SHARED = Path(__file__).parents[3].parent / "shared"


def apart(*apps: str) -> Raw:
    """Anti-affinity to pods of these apps."""
    terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}} for app in apps]
    return {"affinity": {"podAntiAffinity": {REQUIRED: terms}}}


def two_nodes() -> Cluster:
    return cluster(nodes=2, gpus=8).queue("q")


def crowd(made: Cluster, pods: int, terms: int = 3, namespace: str = "crowd") -> Cluster:
    """Pods of one namespace with so many terms each, no two alike; each costs twice as many units."""
    for pod in range(pods):
        made.gang(f"c{pod}", namespace=namespace, spec=apart(*(f"{pod}-{number}" for number in range(terms))))
    return made


def postponed(result: Result, namespace: str = "crowd") -> list[str]:
    return [
        item.group
        for item in result.plan.unscheduled
        if item.namespace == namespace and any(isinstance(why, Postponed) for why in item.refusals)
    ]


def started(result: Result, namespace: str = "crowd") -> set[str]:
    return {bind.group.partition("/")[2] for bind in result.plan.binds if bind.namespace == namespace}


def test_what_exceeds_the_allowance_is_put_off_and_others_are_served() -> None:
    made = crowd(two_nodes(), 5).gang("mine", namespace="honest").with_policy(namespace_allowance=13)
    result = made.schedule()
    assert started(result) == {"c0", "c1"}
    assert postponed(result) == ["c2", "c3", "c4"]
    assert result.bound("mine", namespace="honest") == 1
    assert "crowd need 30 units" in result.why("c2", namespace="crowd")
    assert "at most 13" in result.why("c2", namespace="crowd")


def test_the_rest_goes_first_in_the_next_cycle() -> None:
    """The placed pods are pending again in the next cycle: the ones put off are served nevertheless."""
    resume: dict[str, str] = {}
    turns = []
    for _ in range(4):
        made = crowd(two_nodes(), 5).gang("mine", namespace="honest").with_policy(namespace_allowance=13, resume=resume)
        result = made.schedule()
        turns.append(started(result))
        resume = dict(result.plan.resume or ())
    assert turns == [{"c0", "c1"}, {"c2", "c3"}, {"c4", "c0"}, {"c1", "c2"}]


@pytest.mark.parametrize("gone", [False, True], ids=["its victim leaves", "its victim has gone"])
def test_a_group_with_a_nomination_is_not_put_off(gone: bool) -> None:
    """Others would take the node freed for it, and it would evict them in its next turn, endlessly."""

    def contest(*, policy: dict[str, Any], **victim: Any) -> Result:
        made = cluster(nodes=1, gpus=1).with_actions("allocate", "preempt").queue("q")
        made.priority_class("low", 10).priority_class("high", 90)
        if victim:
            made.gang("old", namespace="honest", priority="low", gpu=1, on="node-0", **victim)
        made.gang("fresh", namespace="honest", priority="low", gpu=1)
        made.gang("c0", namespace="crowd", priority="high", gpu=1, spec=apart("a", "b"))
        made.gang("c1", namespace="crowd", priority="high", gpu=9, spec=apart("c", "d"))
        return made.with_policy(namespace_allowance=3, **policy).schedule()

    first = contest(policy={}, deleted=None).plan
    assert [item.pod for item in first.evictions] == ["old-0"]
    assert [item.pod for item in first.nominations] == ["c0-0"]
    promised = frozenset(item.group for item in first.nominations)
    second = contest(
        policy={"resume": dict(first.resume or ()), "nominated_groups": promised}, **({} if gone else {"deleted": 5})
    ).plan
    assert [item.pod for item in (second.binds if gone else second.nominations)] == ["c0-0"]
    assert second.resume == (("crowd", "crowd/c1"),)


def test_a_nominated_group_takes_one_turn_and_the_others_follow_by_name() -> None:
    """neighbours:promises: it goes first, and is not put off with those whose names are about its own."""
    snapshot = crowd(two_nodes(), 3).gang("mine", namespace="honest").tables().snapshot(NOW_NS)
    selection = select_groups(snapshot, 6, {}, frozenset({"crowd/c1"}))
    assert list(selection.postponed) == ["crowd/c0", "crowd/c2"]
    assert selection.resume == (("crowd", "crowd/c0"),)


def test_a_single_namespace_may_use_the_whole_cycle() -> None:
    result = crowd(two_nodes(), 5).with_policy(namespace_allowance=13).schedule()
    assert len(started(result)) == 5
    assert not result.plan.resume


def test_one_group_always_takes_part() -> None:
    """Otherwise one that costs more than the allowance would wait forever."""
    made = crowd(two_nodes(), 2, terms=50).gang("mine", namespace="honest").with_policy(namespace_allowance=13)
    assert started(made.schedule()) == {"c0"}


def test_groups_that_cost_nothing_are_not_put_off() -> None:
    made = crowd(two_nodes(), 3).gang("plain", namespace="crowd").gang("mine", namespace="honest")
    result = made.with_policy(namespace_allowance=1).schedule()
    assert started(result) == {"c0", "plain"}


def test_equal_pods_are_paid_for_once() -> None:
    made = two_nodes().gang("mine", namespace="honest").with_policy(namespace_allowance=2)
    for number in range(4):
        made.gang(f"c{number}", namespace="crowd", spec=apart("web"))
    assert len(started(made.schedule())) == 4


def test_a_plan_without_turns_does_not_mention_them() -> None:
    assert b"resume" not in two_nodes().gang("mine").schedule().plan.encoded()


def price(made: Cluster, allowance: int = 10**12) -> int:
    """Units that the groups of the namespace crowd cost."""
    tables = made.gang("mine", namespace="honest").tables()
    low, high = 0, allowance
    while low < high:
        middle = (low + high) // 2
        if select_groups(tables.snapshot(NOW_NS), middle, {}).postponed:
            low = middle + 1
        else:
            high = middle
    return low


def test_the_cost_of_groups() -> None:
    """Two groups each, because one is never put off; units are those of both."""

    def two(**how: Any) -> Cluster:
        made = two_nodes()
        for number in range(2):
            own = {key: value(number) if callable(value) else value for key, value in how.items()}
            made.gang(f"c{number}", namespace="crowd", **own)
        return made

    assert price(two(spec=lambda number: apart(f"{number}-a", f"{number}-b"))) == 2 * 2 * 2
    assert price(two(fraction=lambda number: f"0.{number + 1}")) == 2 * 2 * 70
    # cpu, memory and pods are names too, and sixteen are free.
    names = price(two(extra=lambda number: {f"example.com/{number}-{name}": 1 for name in range(20)}))
    assert names == 2 * (20 + 3 - 16) * 640
    for many, units in ((16, 0), (17, 17 * 1024)):
        parts = [{"name": f"s{index}", "minMember": 0} for index in range(many)]
        trees = two_nodes()
        for number in range(2):
            trees.group(f"c{number}", namespace="crowd", subGroups=parts)
            trees.pod(f"c{number}-0", group=f"c{number}", namespace="crowd", subgroup="s0")
        assert price(trees) == 2 * units


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 60))
def test_every_namespace_gets_a_turn(pods: int, terms: int, allowance: int) -> None:
    """Whatever the allowance, each group takes part within as many cycles as there are groups."""
    tables = crowd(two_nodes(), pods, terms).gang("mine", namespace="honest").tables()
    waiting = set(tables.snapshot(NOW_NS).group_index.waiting)
    served: set[str] = set()
    resume: dict[str, str] = {}
    for _ in range(pods):
        turns = select_groups(tables.snapshot(NOW_NS), allowance, resume)
        assert "honest/mine" not in turns.postponed
        served |= waiting - turns.postponed.keys()
        resume = dict(turns.resume)
    assert served == waiting


def _shapes() -> Any:
    """The module of clusters for measurements, which runs a program when it is imported."""
    path = SHARED / "shapes" / "shapes.py"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    spec = importlib.util.spec_from_file_location("shapes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    arguments, sys.argv = sys.argv, ["shapes.py", "--list"]
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        pass
    finally:
        sys.argv = arguments
    return module


def _with_another(objects: Iterator[Raw] | list[Raw]) -> Tables:
    """A cluster in which another namespace waits, so that allowances bind."""
    tables = Tables()
    for raw in (*objects, *two_nodes().gang("mine", namespace="another").objects[2:]):
        item = decode_object(raw)
        assert item is not None
        tables.apply(item)
    return tables


def test_no_shape_of_the_measurements_is_cut() -> None:
    module = _shapes()
    for shape in module.SHAPES:
        tables = _with_another(module.build(shape, 64))
        assert not select_groups(tables.snapshot(NOW_NS), NAMESPACE_ALLOWANCE, {}).postponed, shape


@pytest.mark.parametrize("trace", ["default", "gpushare100", "gpuspec33", "multigpu50"])
def test_the_openb_trace_is_not_cut(trace: str) -> None:
    """All of its pods at once, and another namespace waiting."""
    folder = Path(os.environ.get("KAI_OPENB_DIR", SHARED / "data" / "openb"))
    if not folder.exists():
        pytest.skip(f"{folder} is not there")

    def rows(name: str) -> list[dict[str, str]]:
        with (folder / name).open() as file:
            return list(csv.DictReader(file))

    made = Cluster().queue("q")
    for node in rows("openb_node_list_gpu_node.csv"):
        labels = {"model": node["model"]}
        made.node(node["sn"], gpus=int(node["gpu"]), cpu=f"{node['cpu_milli']}m", labels=labels)
    kinds: dict[tuple[str, ...], dict[str, str]] = {}
    for pod in rows(f"openb_pod_list_{trace}.csv"):
        # Equal pods are paid for once.
        kinds[tuple(pod.get(key, "") for key in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"))] = pod
    for pod in kinds.values():
        share = int(pod["gpu_milli"]) / 1000 if pod["num_gpu"] == "1" else 1.0
        spec: Raw = {}
        if pod.get("gpu_spec"):
            models = pod["gpu_spec"].split("|")
            terms = [{"matchExpressions": [{"key": "model", "operator": "In", "values": models}]}]
            spec = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
        wanted: dict[str, Any] = {"fraction": f"{share:.3f}"} if share < 1 else {"gpu": int(pod["num_gpu"])}
        made.gang(pod["name"], cpu=f"{pod['cpu_milli']}m", memory=f"{pod['memory_mib']}Mi", spec=spec, **wanted)
    tables = _with_another(made.objects)
    assert not select_groups(tables.snapshot(NOW_NS), NAMESPACE_ALLOWANCE, {}).postponed


def test_cached_costs_of_a_group_equal_recomputed_ones() -> None:
    """docs/caches.md: `GroupEntry.load`."""
    tables = crowd(two_nodes(), 5).gang("mine", namespace="honest").tables()
    first, again = (select_groups(tables.snapshot(NOW_NS), 13, {}) for _ in range(2))
    snapshot = tables.snapshot(NOW_NS)
    assert any(entry.load is not None for entry in snapshot.group_entries.values())
    for entry in snapshot.group_entries.values():
        entry.load = None
    counted = select_groups(snapshot, 13, {})
    assert first.postponed
    for kept in (first, again):
        assert (kept.postponed, kept.resume) == (counted.postponed, counted.resume)


def test_a_group_that_changes_is_counted_again() -> None:
    """docs/caches.md: `GroupEntry.load`; the last group loses the pod with terms."""
    made = crowd(two_nodes(), 2).gang("mine", namespace="honest")
    tables = made.tables()
    assert list(select_groups(tables.snapshot(NOW_NS), 6, {}).postponed) == ["crowd/c1"]
    plain = two_nodes().gang("c1", namespace="crowd").objects[-1]
    tables.remove("Pod", "crowd", "c1-0")
    tables.apply(decode_object(plain))
    assert not select_groups(tables.snapshot(NOW_NS), 6, {}).postponed
