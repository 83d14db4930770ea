"""The subgroup tree of a PodGroup: how it is read, and every way in which it can be wrong (cycle:6.1).

Trees are compared in a short notation: `name:3` is a leaf with a minimum of 3, `name[2](...)` a branch that needs two
of its children.  The root has no name.
"""

from typing import Any

import pytest

from pykai.api.decode import decode_object
from pykai.api.scheduling import PodGroup
from pykai.core.model.groups import Branch, Leaf, build_subgroup_tree
from pykai.core.report.decisions import BrokenTree, StrayPod
from tests.core.builders import Cluster, branch, cluster, leaf


def podgroup(*sub_groups: dict[str, Any], **spec: Any) -> PodGroup:
    """A PodGroup off the wire."""
    found = decode_object(
        {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "job", "namespace": "default"},
            "spec": {"subGroups": list(sub_groups), **spec},
        }
    )
    assert isinstance(found, PodGroup)
    return found


def notation(node: Branch | Leaf) -> str:
    if isinstance(node, Leaf):
        return f"{node.name}:{node.minimum}"
    return f"{node.name}[{node.min_children}]({', '.join(notation(child) for child in node.children)})"


def tree_of(*sub_groups: dict[str, Any], **spec: Any) -> str:
    """The tree in short notation; the object must be valid."""
    root, error = build_subgroup_tree(podgroup(*sub_groups, **spec))
    assert error == ""
    return notation(root)


def chain(levels: int) -> list[dict[str, Any]]:
    """Subgroups below each other: level-1 at the top, the last one a leaf."""
    return [{"name": f"level-{i}", "parent": f"level-{i - 1}" if i > 1 else ""} for i in range(1, levels + 1)]


def test_without_subgroups_there_is_one_leaf_with_the_minimum_of_the_group() -> None:
    """cycle:PG-2"""
    assert tree_of(minMember=3) == "[1](default:3)"


def test_without_subgroups_no_minimum_means_one() -> None:
    """cycle:PG-2"""
    assert tree_of() == "[1](default:1)"


def test_without_subgroups_a_minimum_of_zero_stays_zero() -> None:
    """cycle:PG-2: fully elastic."""
    assert tree_of(minMember=0) == "[1](default:0)"


def test_a_negative_minimum_of_the_group_counts_as_zero() -> None:
    """cycle:PG-2"""
    assert tree_of(minMember=-2) == "[1](default:0)"


def test_an_entry_without_children_is_a_leaf() -> None:
    """cycle:PG-1"""
    assert tree_of({"name": "a", "minMember": 2}, {"name": "b", "minMember": 1}) == "[2](a:2, b:1)"


def test_an_entry_named_as_parent_is_a_branch_and_its_min_member_means_nothing() -> None:
    """cycle:PG-1"""
    assert tree_of({"name": "a", "minMember": 7}, {"name": "b", "parent": "a", "minMember": 1}) == "[1](a[1](b:1))"


def test_children_may_be_listed_before_their_parent() -> None:
    """cycle:PG-1"""
    assert tree_of({"name": "b", "parent": "a", "minMember": 1}, {"name": "a"}) == "[1](a[1](b:1))"


def test_a_leaf_without_minimum_needs_no_pods() -> None:
    """cycle:PG-1"""
    assert tree_of({"name": "a"}) == "[1](a:0)"


def test_a_negative_minimum_of_a_leaf_counts_as_zero() -> None:
    """cycle:PG-1"""
    assert tree_of({"name": "a", "minMember": -3}) == "[1](a:0)"


def test_the_minimum_of_the_group_means_nothing_beside_subgroups() -> None:
    """cycle:PG-1, PG-2"""
    assert tree_of({"name": "a", "minMember": 2}, minMember=9) == "[1](a:2)"


def test_the_root_carries_min_sub_group() -> None:
    """cycle:PG-1"""
    assert tree_of({"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}, minSubGroup=1) == "[1](a:1, b:1)"


def test_a_branch_carries_min_sub_group() -> None:
    """cycle:PG-1"""
    children = ({"name": "b", "parent": "a", "minMember": 1}, {"name": "c", "parent": "a", "minMember": 1})
    assert tree_of({"name": "a", "minSubGroup": 1}, *children) == "[1](a[1](b:1, c:1))"


def test_min_sub_group_of_zero_is_not_the_same_as_none() -> None:
    """cycle:PG-5"""
    entries = ({"name": "a", "minMember": 1}, {"name": "b", "minMember": 1})
    assert tree_of(*entries, minSubGroup=0) == "[0](a:1, b:1)"
    assert tree_of(*entries) == "[2](a:1, b:1)"


def test_a_negative_min_sub_group_counts_as_zero() -> None:
    """cycle:PG-1"""
    assert tree_of({"name": "a", "minMember": 1}, minSubGroup=-1) == "[0](a:1)"


def test_names_of_parents_are_lower_cased_before_lookup() -> None:
    """cycle:PG-1"""
    assert tree_of({"name": "workers"}, {"name": "w0", "parent": "Workers", "minMember": 1}) == "[1](workers[1](w0:1))"


def test_branches_and_leaves_may_share_one_parent() -> None:
    """cycle:PG-3"""
    assert (
        tree_of({"name": "ab"}, {"name": "a", "parent": "ab", "minMember": 2}, {"name": "c", "minMember": 1})
        == "[2](ab[1](a:2), c:1)"
    )


def test_the_deepest_tree_has_32_levels() -> None:
    root, error = build_subgroup_tree(podgroup(*chain(32)))
    assert error == ""
    assert notation(root).count("level-") == 32


def test_a_topology_constraint_of_the_group_sits_at_the_root() -> None:
    """cycle:PG-1"""
    root, _ = build_subgroup_tree(podgroup({"name": "a"}, topologyConstraint={"topology": "racks"}))
    assert root.topology is not None
    assert root.topology.topology == "racks"


def test_a_topology_constraint_of_the_group_that_names_no_topology_is_none() -> None:
    """cycle:PG-1"""
    for entries in ([], [{"name": "a"}]):
        root, _ = build_subgroup_tree(podgroup(*entries, topologyConstraint={"requiredTopologyLevel": "rack"}))
        assert root.topology is None


def test_a_topology_constraint_of_a_subgroup_sits_at_the_subgroup() -> None:
    """cycle:PG-1"""
    constraint = {"topology": "racks", "requiredTopologyLevel": "rack"}
    root, _ = build_subgroup_tree(
        podgroup(
            {"name": "a", "topologyConstraint": constraint},
            {"name": "b", "parent": "a", "topologyConstraint": {**constraint, "requiredTopologyLevel": "host"}},
        )
    )
    a = root.children[0]
    assert isinstance(a, Branch)
    levels = [node.topology.required_topology_level for node in (a, *a.children) if node.topology is not None]
    assert levels == ["rack", "host"]


BROKEN = {
    "without a name": ([{"minMember": 1}], "a subgroup has no name"),
    "listed twice": ([{"name": "a"}, {"name": "a"}], 'subgroup "a" is listed twice'),
    "with an unknown parent": (
        [{"name": "a"}, {"name": "b", "parent": "x"}],
        'subgroup "b" names parent "x", which does not exist',
    ),
    # Only the parent is lower-cased, so a capital in the name of a branch can never be found.
    "whose parent has a capital": (
        [{"name": "Workers"}, {"name": "w0", "parent": "Workers"}],
        'subgroup "w0" names parent "Workers", which does not exist',
    ),
    "that is its own parent": ([{"name": "a", "parent": "a"}], 'subgroup "a" is its own ancestor'),
    "in a circle": (
        [{"name": "a", "parent": "b"}, {"name": "b", "parent": "c"}, {"name": "c", "parent": "a"}],
        'subgroup "a" is its own ancestor',
    ),
    # The message names one in the cycle, not the one below it.
    "below a circle": (
        [{"name": "x", "parent": "a"}, {"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}],
        'subgroup "a" is its own ancestor',
    ),
    "in a circle beside a sound one": (
        [{"name": "ok", "minMember": 1}, {"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}],
        'subgroup "a" is its own ancestor',
    ),
    "nested too deep": (chain(33), 'subgroup "level-33" is nested deeper than 32 levels'),
}


@pytest.mark.parametrize(("entries", "what"), BROKEN.values(), ids=BROKEN)
def test_a_broken_tree_becomes_one_default_leaf_with_a_reason(entries: list[dict[str, Any]], what: str) -> None:
    """cycle:PG-1"""
    root, error = build_subgroup_tree(podgroup(*entries, minMember=5, minSubGroup=0))
    assert error == what
    assert notation(root) == "[1](default:1)"


def broken() -> Cluster:
    """A group with an unknown parent, one pod in a subgroup and one without."""
    return (
        cluster(nodes=1, gpus=8)
        .queue("q")
        .group("job", subGroups=[{"name": "a", "parent": "gone", "minMember": 1}])
        .pod("labelled", group="job", subgroup="a", gpu=1)
        .pod("plain", group="job", gpu=1)
    )


def test_a_group_with_a_broken_tree_waits_as_a_whole_with_a_reason() -> None:
    """cycle:PG-1, Do better: upstream starts the pods without label and only logs the error."""
    result = broken().schedule()
    assert result.plan.binds == ()
    record = result.unscheduled("job")
    assert record is not None
    assert record.pending == 2
    assert BrokenTree('subgroup "a" names parent "gone", which does not exist') in record.refusals
    assert any("PodGroup/default/job: spec.subGroups:" in line for line in result.plan.problems)


def test_pods_of_a_broken_tree_are_strays() -> None:
    """cycle:PG-1, PG-4"""
    record = broken().schedule().unscheduled("job")
    assert record is not None
    assert StrayPod("default/labelled", "a", "default/job") in record.refusals


def test_a_broken_tree_does_not_affect_other_groups() -> None:
    """cycle:PG-1"""
    assert broken().gang("other", gpu=1).schedule().bound("other") == 1


def test_a_fixed_tree_is_scheduled() -> None:
    """cycle:PG-1: only the tree was in the way."""
    result = cluster(nodes=1, gpus=8).queue("q").tree("job", leaf("a", 1, pending=1), gpu=1).schedule()
    assert result.bound("job") == 1


def test_a_pod_of_an_unknown_subgroup_waits_with_a_reason_while_the_others_start() -> None:
    """cycle:PG-4; workloads:EX-5."""
    result = (
        cluster(nodes=1, gpus=8)
        .queue("q")
        .tree("job", leaf("a", 1, pending=1), gpu=1)
        .pod("lost", group="job", subgroup="nowhere", gpu=1)
        .schedule()
    )
    assert result.bound_pods("job") == ["job-a-0"]
    assert 'Pod default/lost references subgroup "nowhere", which does not exist in PodGroup default/job' in result.why(
        "job"
    )


def test_a_pod_without_subgroup_is_a_stray_in_a_group_that_has_subgroups() -> None:
    """cycle:PG-4; cycle:TSK-5: no label means `default`."""
    result = (
        cluster(nodes=1, gpus=8)
        .queue("q")
        .tree("job", leaf("a", 1, pending=1), gpu=1)
        .pod("lost", group="job", gpu=1)
        .schedule()
    )
    assert result.bound_pods("job") == ["job-a-0"]
    assert 'references subgroup "default", which does not exist' in result.why("job")


def test_a_subgroup_may_be_called_default_and_takes_the_pods_without_label() -> None:
    """cycle:PG-4; cycle:TSK-5"""
    result = (
        cluster(nodes=1, gpus=8)
        .queue("q")
        .tree("job", leaf("default", 1), leaf("a", 1, pending=1), gpu=1)
        .pod("plain", group="job", gpu=1)
        .schedule()
    )
    assert result.bound("job") == 2


def test_a_pod_that_names_a_branch_is_a_stray() -> None:
    """cycle:PG-4: pods belong to leaves."""
    result = (
        cluster(nodes=1, gpus=8)
        .queue("q")
        .tree("job", branch("ab", leaf("a", 1, pending=1)), gpu=1)
        .pod("lost", group="job", subgroup="ab", gpu=1)
        .schedule()
    )
    assert result.bound_pods("job") == ["job-a-0"]
    assert 'references subgroup "ab", which does not exist' in result.why("job")


def test_strays_do_not_count_toward_the_minimum() -> None:
    """cycle:PG-4, PG-6"""
    result = (
        cluster(nodes=1, gpus=8)
        .queue("q")
        .tree("job", leaf("a", 2, pending=1), gpu=1)
        .pod("lost", group="job", subgroup="nowhere", gpu=1)
        .schedule()
    )
    assert result.plan.binds == ()
    assert "Waiting for 2 pods for SubGroup a, currently 1 exist" in result.why("job")
