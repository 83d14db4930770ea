"""Sums over the forest of queues, and what is wrong with it (queues:Q-40 to Q-44)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykai.queues.forest import QueueForest, QueueUsage
from tests.heldentries import entry_counts

N = 10**9


def cpus(count: int) -> QueueUsage:
    return QueueUsage({"cpu": count}, {"cpu": count}, {})


def forest(**parents: str) -> QueueForest:
    found = QueueForest()
    for queue, parent in parents.items():
        found.put_queue(queue, parent)
    return found


def requested(found: QueueForest, queue: str) -> int:
    return found.total(queue).requested.get("cpu", 0)


def test_groups_add_to_their_queue_and_all_above() -> None:
    """queues:Q-42."""
    found = forest(top="", team="top", other="top")
    assert found.put_group("a", "team", cpus(1)) == {"team", "top"}
    assert found.put_group("b", "other", cpus(2)) == {"other", "top"}
    assert found.put_group("c", "top", cpus(4)) == {"top"}
    assert [requested(found, queue) for queue in ("team", "other", "top")] == [1, 2, 7]


def test_a_group_that_moves_concerns_both_sides() -> None:
    """queues:Q-40."""
    found = forest(top="", team="top", other="")
    found.put_group("a", "team", cpus(1))
    assert requested(found, "top") == 1
    assert found.put_group("a", "other", cpus(1)) == {"team", "top", "other"}
    assert [requested(found, queue) for queue in ("team", "top", "other")] == [0, 0, 1]
    assert found.put_group("a", "other", cpus(1)) == set()
    assert found.put_group("a", "", None) == {"other"}
    assert requested(found, "other") == 0


def test_a_queue_that_moves_takes_its_groups_along() -> None:
    found = forest(left="", right="", team="left")
    found.put_group("a", "team", cpus(1))
    assert (requested(found, "left"), requested(found, "right")) == (1, 0)
    assert found.put_queue("team", "right") == {"team", "left", "right"}
    assert (requested(found, "left"), requested(found, "right")) == (0, 1)
    assert (found.children("left"), found.children("right")) == ([], ["team"])


def test_children_are_in_order() -> None:
    found = forest(b="top", a="top", top="", c="top")
    assert found.children("top") == ["a", "b", "c"]


def test_an_orphan_is_one_until_its_parent_comes() -> None:
    found = forest(child="parent")
    assert found.is_orphan("child")
    assert found.put_queue("parent", "") == {"parent", "child"}
    assert not found.is_orphan("child")
    assert found.drop_queue("parent") == {"child"}
    assert found.is_orphan("child")
    assert found.drop_queue("parent") == set()


def test_a_group_may_come_before_its_queue() -> None:
    found = forest(top="")
    assert found.put_group("a", "team", cpus(1)) == set()
    found.put_queue("team", "top")
    assert (requested(found, "team"), requested(found, "top")) == (1, 1)


def test_a_cycle_is_reported_on_all_its_queues_and_sums_do_not_grow() -> None:
    found = forest(a="b", b="c", leaf="a", alone="")
    assert not any(map(found.is_cyclic, ("a", "b", "leaf")))
    assert found.put_queue("c", "a") >= {"a", "b", "c"}
    assert [found.is_cyclic(queue) for queue in ("a", "b", "c", "leaf", "alone")] == [True, True, True, False, False]
    found.put_group("x", "leaf", cpus(1))
    found.put_group("y", "b", cpus(2))
    assert [requested(found, queue) for queue in ("a", "b", "c", "leaf")] == [1, 2, 0, 1]
    assert found.put_queue("c", "") >= {"a", "b", "c"}
    assert [requested(found, queue) for queue in ("a", "b", "c")] == [1, 3, 3]


def test_a_queue_that_is_its_own_parent() -> None:
    """queues:4.2, Do better."""
    found = forest(a="a")
    found.put_group("x", "a", cpus(1))
    assert (found.is_cyclic("a"), found.is_orphan("a"), requested(found, "a")) == (True, False, 1)


def test_a_deep_forest_is_handled() -> None:
    found = QueueForest()
    found.put_queue("q0", "")
    for number in range(1, 1100):
        found.put_queue(f"q{number}", f"q{number - 1}")
    found.put_group("x", "q1099", cpus(1))
    assert requested(found, "q0") == 1


QUEUES = ("a", "b", "c", "d")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("queue"), st.sampled_from(QUEUES), st.sampled_from(("", *QUEUES, "none"))),
        st.tuples(st.just("drop"), st.sampled_from(QUEUES), st.just("")),
        st.tuples(st.just("group"), st.sampled_from(("g", "h")), st.sampled_from((*QUEUES, "none"))),
        st.tuples(st.just("gone"), st.sampled_from(("g", "h")), st.just("")),
    ),
    max_size=12,
)


@given(CHANGES)
def test_step_by_step_equals_all_at_once(changes: list[tuple[str, str, str]]) -> None:
    """Cached sums are never stale: after any changes they equal those of a new forest."""
    steps = QueueForest()
    parents: dict[str, str] = {}
    groups: dict[str, str] = {}
    for what, name, where in changes:
        before = {queue: (steps.total(queue), steps.is_cyclic(queue), steps.is_orphan(queue)) for queue in parents}
        if what == "queue":
            parents[name] = where
            told = steps.put_queue(name, where)
        elif what == "drop":
            parents.pop(name, None)
            told = steps.drop_queue(name)
        elif what == "group":
            groups[name] = where
            told = steps.put_group(name, where, cpus(len(name) + 1))
        else:
            groups.pop(name, None)
            told = steps.put_group(name, "", None)
        after = {queue: (steps.total(queue), steps.is_cyclic(queue), steps.is_orphan(queue)) for queue in parents}
        changed = {queue for queue, state in after.items() if before.get(queue) != state}
        assert changed <= told
    fresh = QueueForest()
    for queue, parent in sorted(parents.items()):
        fresh.put_queue(queue, parent)
    for group, queue in sorted(groups.items()):
        fresh.put_group(group, queue, cpus(len(group) + 1))
    assert {queue: steps.total(queue) for queue in parents} == {queue: fresh.total(queue) for queue in parents}


def test_queues_and_groups_that_come_and_go_leave_nothing_behind() -> None:
    found = forest(top="")
    assert requested(found, "top") == 0
    before = entry_counts(found)
    for number in range(3):
        found.put_queue(f"q{number}", "top")
        found.put_group("idle", f"q{number}", QueueUsage())
        found.put_group("busy", f"q{number}", cpus(1))
        assert requested(found, "top") == 1
        found.put_group("busy", "", None)
        found.put_group("idle", "", None)
        found.drop_queue(f"q{number}")
        assert requested(found, "top") == 0
    assert entry_counts(found) == before
