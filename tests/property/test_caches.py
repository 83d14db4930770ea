"""Caches change nothing but the work: plans with caches and without are the same (docs/caches.md).

Statements: caches.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pykai.api import names
from pykai.core.caching import caches_disabled
from pykai.core.policy import SearchBudgets
from pykai.core.report.decisions import Plan
from tests.core.builders import Cluster, Raw, cluster
from tests.core.numaclusters import GPU, built_in_and_numa
from tests.core.queueing.test_terminating import marked
from tests.property import claimed
from tests.property.clusters import clusters, tight_clusters
from tests.property.test_volumes import a_cluster as cluster_with_volumes

#: Budgets count work, which is what caches save.
ENDLESS = SearchBudgets(default_action=None, job=None, generators={}, default_generator=None)


def plan_of(built: Cluster) -> Plan:
    return built.with_policy(actions=names.DEFAULT_ACTIONS, search_budgets=ENDLESS).schedule().plan


def zoned_cluster(random: Random) -> Cluster:
    """Nodes of two zones, and gangs that the kubelet aligns."""
    built = cluster().queue("q").configured(built_in_and_numa())
    for number in range(3):
        zone = {GPU: random.choice((1, 2)), "cpu": 8}
        built.node(f"n{number}", gpus=4, cpu=16).zones(f"n{number}", zone, zone)
    for number in range(random.randrange(2, 10)):
        node = random.choice(("", "", f"n{random.randrange(3)}"))
        amounts = {"cpu": str(random.choice((1, 3))), GPU: str(random.choice((1, 1, 2)))}
        spec = {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]}
        built.gang(f"job-{number}", random.choice((1, 2)), on=node, spec=spec, qos="Guaranteed")
    return built


def cluster_with_neighbours(random: Random) -> Cluster:
    """Gangs that attract and avoid each other, and spread."""
    built = cluster().queue("q", quota=2).queue("other", quota=6).namespace("default", team="a")
    for number in range(4):
        built.node(f"n{number}", gpus=2, labels={"zone": f"z{number % 2}"})
    for number in range(random.randrange(2, 12)):
        term = {
            "topologyKey": random.choice(("zone", "kubernetes.io/hostname")),
            "labelSelector": {"matchLabels": {"app": random.choice(("web", "db"))}},
            **random.choice(({}, {"namespaceSelector": {"matchLabels": {"team": random.choice("ab")}}})),
        }
        kind = random.choice(("podAffinity", "podAntiAffinity"))
        skew = {**term, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone"}
        skew.pop("namespaceSelector", None)
        spec: Raw = random.choice(
            (
                {},
                {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}},
                {"topologySpreadConstraints": [skew]},
            )
        )
        pod: Raw = {"gpu": random.choice((0, 1, 1)), "spec": spec, "labels": {"app": random.choice(("web", "db"))}}
        node = random.choice(("", "", f"n{random.randrange(4)}"))
        built.gang(f"job-{number}", random.choice((1, 2)), on=node, queue=random.choice(("q", "other")), **pod)
    return built


def cluster_with_terminating_pods(random: Random) -> Cluster:
    """Queues at their limits; some of the pods in them terminate, evicted for gangs that wait."""
    built = cluster(nodes=2, gpus=4).queue("q", quota=2, limit=4).queue("other", quota=6)
    for number in range(random.randrange(2, 8)):
        queue, deleted = random.choice(("q", "other")), random.choice((None, -30, -900))
        built.gang(f"old-{number}", gpu=1, on=f"node-{number % 2}", queue=queue, deleted=deleted)
        if deleted is not None:
            built.objects[-1]["status"]["conditions"] = [marked(f"new-{random.randrange(3)}")]
    for number in range(random.randrange(1, 5)):
        queue = random.choice(("q", "other"))
        built.gang(f"new-{number}", gpu=random.choice((1, 2)), queue=queue, preemptible=bool(number))
    return built


def seeded(build: Callable[[Random], Cluster]) -> st.SearchStrategy[Cluster]:
    return st.randoms(use_true_random=True).map(build)


def compare_plans(built: Cluster) -> None:
    """The plans of a cluster with caches and without are equal except in the work done."""
    cached = plan_of(built)
    with caches_disabled():
        fresh = plan_of(built)
    assert cached.work <= fresh.work
    assert replace(cached, work=0).encoded() == replace(fresh, work=0).encoded()


@pytest.mark.parametrize(
    "drawn",
    [
        pytest.param(clusters(), id="roomy"),
        pytest.param(tight_clusters(), id="tight"),
        pytest.param(seeded(claimed.a_cluster), id="claims"),
        pytest.param(seeded(cluster_with_volumes), id="volumes"),
        pytest.param(seeded(zoned_cluster), id="zones"),
        pytest.param(seeded(cluster_with_neighbours), id="neighbours"),
        pytest.param(seeded(cluster_with_terminating_pods), id="terminating"),
    ],
)
def test_plans_are_the_same_without_caches(drawn: st.SearchStrategy[Cluster]) -> None:
    @settings(max_examples=40, deadline=None)
    @given(drawn)
    def compare(built: Cluster) -> None:
        compare_plans(built)

    compare()


def test_without_caches_nothing_is_kept() -> None:
    """The comparison above would prove nothing if caches stayed on."""
    built = Cluster().nodes(2, gpus=1).queue("q")
    for number in range(6):
        built.gang(f"job-{number}", gpu=1)
    cached: Any = built.cycle()
    placed = [cached.placer.place_gang(gang) for gang in cached.gangs.waiting()]
    with caches_disabled():
        fresh: Any = built.cycle()
        assert [fresh.placer.place_gang(gang) for gang in fresh.gangs.waiting()] == placed == [True, True, *[False] * 4]
    assert cached.placer._failures
    assert not fresh.placer._failures
    assert len(cached.rankings._rankings) == 1
    assert not fresh.rankings._rankings
    assert cached.gangs.waiting()[2].order_key is not None
    assert fresh.gangs.waiting()[2].order_key is None


def test_a_value_of_an_old_state_is_not_used() -> None:
    """Consolidation counts free GPUs again after each move: the first gang leaves too few for the second."""
    built = cluster(nodes=2, gpus=4).queue("q")
    for number in range(2):
        built.gang(f"old-{number}", gpu=2, on=f"node-{number}")
    built.gang("first", gpu=3, age=20).gang("second", gpu=2, cpu=2, age=10)
    compare_plans(built)
    result = built.with_policy(actions=("consolidation",)).schedule()
    assert result.verdicts("second") == {"consolidation": "too_little_free"}
