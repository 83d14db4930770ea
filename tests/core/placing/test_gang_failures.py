"""A failed attempt explains the next equal one; what makes two attempts different (cycle:ALC-8)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks
from tests.core.actions.test_allocate_nodesets import Domains, racks, with_plugin
from tests.core.builders import Raw, branch, cluster, leaf


def test_equal_pods_in_other_subgroups_fail_elsewhere() -> None:
    """Three equal pods each, but the second pod ends the first subgroup of one and begins the second of the other."""
    built = cluster(nodes=1, gpus=1).queue("q")
    for name, sizes in (("long", (2, 1)), ("short", (1, 2))):
        parts = [leaf(part, size, pending=size) for part, size in zip("ab", sizes, strict=True)]
        built.tree(name, *parts, gpu=1)
    result = built.schedule()
    assert [result.no_place(name).pod for name in ("long", "short")] == ["default/long-a-1", "default/short-b-0"]
    assert [result.no_place(name).found for name in ("long", "short")] == [1, 1]


def test_a_subgroup_without_a_set_is_named_by_its_first_pod_and_may_fit_later() -> None:
    """cycle:ALC-2: an eviction may help, so the failure is not for good."""
    parts = branch("up", leaf("a", 1, pending=1), leaf("b", 1, pending=1))
    built = with_plugin(racks(a1=2).tree("job", parts, gpu=1), Domains({"up": "zone"}))
    found = built.schedule().no_place("job")
    assert (found.pod, found.unresolvable) == ("default/job-a-0", False)


def test_one_condition_that_no_eviction_meets_is_enough() -> None:
    """cycle:FLT-5: a claim with too many users may be free later, a missing config map may not."""
    volumes: Raw = {"volumes": [{"name": "c", "configMap": {"name": "missing"}}]}
    users = tuple(f"u{index}" for index in range(256))
    built = cluster(nodes=1).queue("q").device_claim("full", queue="q", users=users)
    found = built.gang("job", shares=("full",), spec=volumes).schedule().no_place("job")
    assert "maximum number of consumers" in found.base
    assert found.unresolvable


@dataclass(frozen=True)
class Prepares:
    """Notes for which gangs it was told to prepare."""

    gangs: list[str] = field(default_factory=list)

    def prepare(self, snapshot: Snapshot) -> Hooks:
        def before(state: State, gang: Gang) -> None:
            self.gangs.append(gang.key)

        return Hooks(before_gang=before)


def test_plugins_see_a_gang_before_each_attempt_and_each_trial() -> None:
    plugin = Prepares()
    built = cluster(nodes=1, gpus=1).queue("q").priority_class("high", 100).priority_class("low", 1)
    built.gang("old", gpu=1, on="node-0", priority="low").gang("job", gpu=1, priority="high")
    result = with_plugin(built.with_actions("allocate", "preempt"), plugin).schedule()
    assert result.evicted("old") == 1
    assert plugin.gangs.count("default/job") >= 2
    assert "default/old" in plugin.gangs
