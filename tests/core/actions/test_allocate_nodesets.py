"""Allocate under node sets: which sets are tried, and which subgroup is named when none fits (cycle:ALC-2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import BranchState, Gang, LeafState
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks, NodeSet, Plugin
from pykai.core.model.tasks import Task
from pykai.core.policy import NamedPlugin
from pykai.core.report.decisions import NoPlace
from tests.core.builders import Cluster, cluster, leaf


def with_plugin(built: Cluster, plugin: Plugin) -> Cluster:
    return built.with_policy(plugins=(*built.policy().plugins, NamedPlugin("test", plugin)))


@dataclass(frozen=True)
class Domains:
    """Offers the nodes of each value of a label as one set, to the subgroups of the given names."""

    labels: dict[str, str]
    #: names of the subgroups whose node sets were requested, in order
    asked: list[str] = field(default_factory=list)

    def prepare(self, snapshot: Snapshot) -> Hooks:
        def equals(wanted: str | None) -> Callable[[str | None], bool]:
            return lambda value: value == wanted

        def node_sets(
            state: State, gang: Gang, subgroup: BranchState | LeafState, tasks: Sequence[Task], inside: NodeSet
        ) -> list[NodeSet]:
            self.asked.append(subgroup.name)
            label = self.labels.get(subgroup.name)
            if label is None:
                return [inside]
            _, values = snapshot.nodes.label_codes(label)
            found = []
            for value in sorted(value for value in values if value is not None):
                mask = snapshot.nodes.per_label(label, equals(value))
                if inside.mask is not None:
                    mask = mask & inside.mask
                found.append(NodeSet(mask, value))
            return found

        return Hooks(node_sets=node_sets)


def racks(**gpus: int) -> Cluster:
    """A node for each word, its rack being the first letter."""
    built = cluster()
    for name, count in gpus.items():
        built.node(name, gpus=count, labels={"rack": name[0], "host": name})
    return built.queue("q")


def test_alc2_the_next_set_is_tried_when_the_first_cannot_hold_the_gang() -> None:
    built = with_plugin(racks(a1=2, b1=4).gang("job", 2, gpu=2), Domains({"": "rack"}))
    result = built.schedule()
    assert result.nodes_used("job") == {"b1": 2}
    assert [bind.pod for bind in result.plan.binds] == ["job-0", "job-1"]


def test_alc2_without_a_set_the_group_fails() -> None:
    built = with_plugin(racks(a1=2).gang("job", 2, gpu=1), Domains({"": "zone"}))
    cycle = built.cycle()
    (gang,) = cycle.gangs.waiting()
    assert not cycle.placer.place_gang(gang)
    result = built.schedule()
    assert result.plan.binds == ()
    assert "no set of nodes can hold the subgroup" in result.why("job")


def test_alc2_a_subgroup_stays_inside_the_set_of_its_parent() -> None:
    """Rack a has room for the parts but no host for both pods of the first; host c1 would do for that one alone."""
    built = racks(a1=1, a2=1, a3=1, b1=2, b2=1, c1=2)
    built.tree("job", leaf("near", 2, pending=2), leaf("far", 1, pending=1), gpu=1)
    result = with_plugin(built, Domains({"": "rack", "near": "host"})).schedule()
    assert [result.node_of(f"job-near-{index}") for index in range(2)] == ["b1", "b1"]
    assert result.node_of("job-far-0") == "b2"


def test_alc2_no_node_set_is_requested_for_a_subgroup_without_tasks() -> None:
    built = racks(a1=4).tree("job", leaf("done", 1, running=1), leaf("new", 1, pending=1), on="a1", gpu=1)
    plugin = Domains({})
    assert with_plugin(built, plugin).schedule().bound_pods("job") == ["job-new-0"]
    assert "done" not in plugin.asked
    assert "new" in plugin.asked


def test_alc2_the_sets_of_several_plugins_are_narrowed_one_after_the_other() -> None:
    built = racks(a1=4, a2=1, b1=4).gang("job", 2, gpu=2)
    built = with_plugin(with_plugin(built, Domains({"": "rack"})), Domains({"default": "host"}))
    assert built.schedule().nodes_used("job") == {"a1": 2}


def test_alc4_an_attempt_under_node_sets_places_every_subgroup_or_nothing() -> None:
    built = racks(a1=2).tree("job", leaf("a", 3, pending=3), leaf("b", 1, pending=1), gpu=1)
    cycle = with_plugin(built, Domains({"": "rack"})).cycle()
    (gang,) = cycle.gangs.waiting()
    assert not cycle.placer.place_gang(gang)
    assert cycle.state.placements == {}


def test_alc4_subgroups_under_node_sets_fail_together_too() -> None:
    built = racks(a1=2, b1=2)
    built.tree("job", leaf("a", 2, pending=2, gpu=1), leaf("b", 1, pending=1, gpu=1))
    result = with_plugin(built.gang("next", 4, gpu=1), Domains({"": "rack"})).schedule()
    assert result.bound("job") == 0
    assert result.bound("next") == 0, "the rack is too small for four pods"
    assert with_plugin(built.gang("last", 2, gpu=1), Domains({"": "rack"})).schedule().bound("last") == 2


def test_alc2_the_subgroup_without_a_set_is_the_one_that_is_named() -> None:
    built = racks(a1=4).tree("job", leaf("a", 2, pending=2), leaf("b", 2, pending=2), gpu=1)
    record = with_plugin(built, Domains({"b": "zone"})).schedule().unscheduled("job")
    assert record is not None
    (refusal,) = record.refusals
    assert isinstance(refusal, NoPlace)
    assert (refusal.pod, refusal.subgroup, refusal.found) == ("default/job-b-0", "b", 2)


def test_exp2_counts_add_up_over_the_sets_that_were_tried() -> None:
    record = with_plugin(racks(a1=1, b1=1).gang("job", 2, gpu=1), Domains({"": "rack"})).schedule().unscheduled("job")
    assert record is not None
    (refusal,) = record.refusals
    assert isinstance(refusal, NoPlace)
    assert refusal.nodes == {"node(s) didn't have enough resources: GPUs": 2}
