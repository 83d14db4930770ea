"""The queue forest: what is read from Queue objects, what is left out and why, and shares over several levels."""

from math import inf, nan

import numpy as np
import pytest
from msgspec import structs

from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import Queue, QueueResource, QueueResources, QueueSpec
from pykai.core.model.problems import Problem
from pykai.core.model.queuetree import CPU, GPU, MEMORY, RESOURCES, QueueTree, build_tree
from pykai.core.queueing.fairshare import fair_shares, roll_up

NOTHING = QueueResource()


def queue(
    name: str,
    parent: str = "",
    *,
    created: str | None = None,
    display_name: str = "",
    priority: int | None = None,
    gpu: QueueResource = NOTHING,
    cpu: QueueResource = NOTHING,
    memory: QueueResource = NOTHING,
    preempt_min_runtime: str | None = None,
    reclaim_min_runtime: str | None = None,
) -> Queue:
    return Queue(
        metadata=ObjectMeta(name=name, creation_timestamp=created),
        spec=QueueSpec(
            display_name=display_name,
            parent_queue=parent,
            priority=priority,
            preempt_min_runtime=preempt_min_runtime,
            reclaim_min_runtime=reclaim_min_runtime,
            resources=QueueResources(gpu=gpu, cpu=cpu, memory=memory),
        ),
    )


def numbers(quota: float = 0, limit: float = -1, weight: float = 1) -> QueueResource:
    return QueueResource(quota=quota, limit=limit, over_quota_weight=weight)


def queue_with(resource: str, figures: QueueResource) -> Queue:
    """A queue "a" with values for one resource only."""
    resources = structs.replace(QueueResources(), **{resource: figures})
    return Queue(metadata=ObjectMeta(name="a"), spec=QueueSpec(resources=resources))


def tree_of(*queues: Queue) -> QueueTree:
    """The forest of valid queues."""
    problems: list[Problem] = []
    tree = build_tree(queues, report=problems.append)
    assert problems == []
    return tree


def faulty_tree_of(*queues: Queue) -> tuple[QueueTree, list[Problem]]:
    problems: list[Problem] = []
    return build_tree(queues, report=problems.append), problems


class TestShape:
    def test_no_queues(self) -> None:
        tree = tree_of()
        assert tree.names == []
        assert tree.roots == tree.top_down == ()
        assert fair_shares(tree, [1, 1, 1], [[], [], []]) == [[], [], []]

    def test_rows_are_sorted_by_creation_then_name(self) -> None:
        tree = tree_of(
            queue("c", created="2026-01-01T00:00:01Z"),
            queue("a", created="2026-01-01T00:00:02Z"),
            queue("b", created="2026-01-01T00:00:01Z"),
            queue("d"),
        )
        assert tree.names == ["d", "b", "c", "a"]
        assert tree.rows == {"d": 0, "b": 1, "c": 2, "a": 3}
        assert tree.creation_ns == [0, 1767225601_000000000, 1767225601_000000000, 1767225602_000000000]

    def test_parents_children_chains_and_roots(self) -> None:
        # The parent may be younger than its children.
        tree = tree_of(
            queue("top", created="2026-01-03T00:00:00Z"),
            queue("mid", "top", created="2026-01-02T00:00:00Z"),
            queue("y", "mid"),
            queue("x", "mid"),
            queue("other"),
        )
        other, x, y, mid, top = range(5)
        assert tree.names == ["other", "x", "y", "mid", "top"]
        assert tree.parents == [-1, mid, mid, top, -1]
        assert tree.children == [(), (), (), (x, y), (mid,)]
        assert tree.chains == [(other,), (x, mid, top), (y, mid, top), (mid, top), (top,)]
        assert tree.roots == (other, top)
        assert tree.top_down == (other, top, mid, x, y)

    def test_q64_a_leaf_has_no_children_in_the_forest(self) -> None:
        tree = tree_of(queue("a"), queue("b", "a"))
        assert [bool(children) for children in tree.children] == [True, False]

    def test_of_two_queues_of_one_name_the_last_counts(self) -> None:
        tree = tree_of(queue("a", priority=1), queue("a", priority=2))
        assert tree.priorities == [2]

    def test_a_chain_of_thousands_of_queues(self) -> None:
        depth = 3000
        gpu = numbers(quota=1)
        queues = [queue(f"q{level:04d}", f"q{level - 1:04d}" if level else "", gpu=gpu) for level in range(depth)]
        tree = tree_of(*queues)
        assert tree.chains[-1] == tuple(reversed(range(depth)))
        request = [[0.0] * depth for _ in range(RESOURCES)]
        request[GPU][-1] = 1.0
        roll_up(tree, request)
        assert request[GPU] == [1.0] * depth
        assert fair_shares(tree, [0, 0, 4], request)[GPU] == [1.0] * depth


class TestLeftOut:
    def test_q63_a_child_of_a_missing_parent(self) -> None:
        tree, problems = faulty_tree_of(queue("a"), queue("b", "gone"))
        assert tree.names == ["a"]
        text = "queue 'b' has the parent 'gone', which does not exist; this queue is left out"
        assert problems == [Problem("Queue/b", "spec.parentQueue", text)]

    def test_q63_with_its_whole_subtree(self) -> None:
        tree, problems = faulty_tree_of(
            queue("a", "b"), queue("b", "c"), queue("c", "gone"), queue("z"), queue("y", "z")
        )
        assert tree.names == ["y", "z"]
        assert [problem.subject for problem in problems] == ["Queue/a", "Queue/b", "Queue/c"]
        assert len({problem.text for problem in problems}) == 1
        assert "queue 'c' has the parent 'gone'" in problems[0].text

    def test_q63_an_orphan_is_not_a_child_of_any_queue(self) -> None:
        tree, _ = faulty_tree_of(queue("a"), queue("b", "gone"), queue("c", "b"))
        assert tree.children == [()]
        assert tree.roots == (0,)

    def test_a_queue_that_is_its_own_parent(self) -> None:
        tree, problems = faulty_tree_of(queue("a", "a"), queue("b"))
        assert tree.names == ["b"]
        text = "the parents form a cycle, a -> a; this queue is left out"
        assert problems == [Problem("Queue/a", "spec.parentQueue", text)]

    def test_a_cycle_and_everything_below_it(self) -> None:
        tree, problems = faulty_tree_of(queue("a", "z"), queue("z", "c"), queue("c", "z"), queue("d", "a"), queue("e"))
        assert tree.names == ["e"]
        assert [problem.subject for problem in problems] == ["Queue/a", "Queue/c", "Queue/d", "Queue/z"]
        text = "the parents form a cycle, c -> z -> c; this queue is left out"
        assert {problem.text for problem in problems} == {text}

    def test_two_cycles_are_reported_separately(self) -> None:
        _, problems = faulty_tree_of(queue("a", "b"), queue("b", "a"), queue("c", "d"), queue("d", "c"))
        assert "a -> b -> a" in problems[0].text
        assert "c -> d -> c" in problems[3].text

    def test_a_long_cycle_is_named_in_short(self) -> None:
        tree, problems = faulty_tree_of(*(queue(f"q{n:03d}", f"q{(n + 1) % 500:03d}") for n in range(500)))
        assert tree.names == []
        assert len(problems) == 500
        assert "q000 -> q001 -> q002" in problems[0].text
        assert "(500 queues)" in problems[0].text
        assert len(problems[0].text) < 150

    def test_a_queue_without_a_name(self) -> None:
        tree, problems = faulty_tree_of(queue(""), queue("a"))
        assert tree.names == ["a"]
        assert [problem.field for problem in problems] == ["metadata.name"]

    def test_problems_do_not_depend_on_the_order_of_queues(self) -> None:
        queues = [queue("b", "x"), queue("a", "x"), queue("d", "c"), queue("c", "d"), queue("e", created="never")]
        assert faulty_tree_of(*queues) == faulty_tree_of(*reversed(queues))


class TestWithoutHierarchy:
    def build(self, *queues: Queue, now_ns: int = 0) -> tuple[QueueTree, list[Problem]]:
        problems: list[Problem] = []
        return build_tree(queues, full_hierarchy=False, now_ns=now_ns, report=problems.append), problems

    def test_q62_one_parent_for_all_queues_that_have_a_parent(self) -> None:
        tree, problems = self.build(queue("dept"), queue("team", "dept"), queue("sub", "team"), now_ns=5)
        assert problems == []
        assert tree.names == ["sub", "team", "default"]
        assert tree.parents == [2, 2, -1]
        assert tree.chains == [(0, 2), (1, 2), (2,)]
        assert not tree.children[tree.rows["team"]]

    def test_q62_the_synthetic_parent_is_sorted_like_the_others(self) -> None:
        tree, _ = self.build(queue("z", "dept"), queue("a", "dept"))
        assert tree.names == ["a", "default", "z"]
        assert tree.children == [(), (0, 2), ()]

    def test_q62_the_synthetic_parent(self) -> None:
        tree, _ = self.build(now_ns=5)
        assert tree.names == tree.display_names == ["default"]
        assert tree.creation_ns == [5]
        assert tree.priorities == [100]
        assert tree.quota == tree.limit == [[inf], [inf], [inf]]
        assert tree.weight == [[1], [1], [1]]
        assert tree.preempt_min_runtime_ns == tree.reclaim_min_runtime_ns == [None]

    def test_q62_the_limit_of_a_department_is_ignored(self) -> None:
        tree, _ = self.build(queue("dept", gpu=numbers(limit=0)), queue("team", "dept", gpu=numbers()))
        request = [[0.0, 0.0], [0.0, 0.0], [3.0, 0.0]]
        request[GPU][tree.rows["team"]] = 3.0
        request[GPU][tree.rows["default"]] = 3.0
        assert fair_shares(tree, [0, 0, 8], request)[GPU] == [3, 3]

    def test_q62_no_queue_is_an_orphan(self) -> None:
        tree, problems = self.build(queue("a", "gone"), queue("b", "b"))
        assert problems == []
        assert sorted(tree.names) == ["a", "b", "default"]

    def test_q62_a_queue_with_the_name_of_the_synthetic_parent(self) -> None:
        tree, problems = self.build(queue("default", "dept", priority=7), queue("team", "default"), now_ns=9)
        assert tree.names == ["team", "default"]
        assert tree.priorities == [100, 100]
        assert [(problem.subject, problem.field) for problem in problems] == [("Queue/default", "metadata.name")]

    def test_q61_the_hierarchy_is_used_by_default(self) -> None:
        assert tree_of(queue("dept"), queue("team", "dept")).names == ["dept", "team"]


class TestFields:
    def test_amounts_in_the_units_of_the_columns(self) -> None:
        tree = tree_of(
            queue(
                "a",
                cpu=QueueResource(quota=500, limit=2000, over_quota_weight=2),
                memory=QueueResource(quota=4, limit=8.5, over_quota_weight=3),
                gpu=QueueResource(quota=0.5, limit=2, over_quota_weight=4.5),
            )
        )
        assert tree.quota == [[500], [4_000_000], [0.5]]
        assert tree.limit == [[2000], [8_500_000], [2]]
        assert tree.weight == [[2], [3], [4.5]]
        assert (CPU, MEMORY, GPU, RESOURCES) == (0, 1, 2, 3)

    def test_q15_missing_fields_are_zero(self) -> None:
        tree = tree_of(queue("a", gpu=numbers(quota=2)))
        assert tree.quota == [[0], [0], [2]]
        assert tree.limit == [[0], [0], [inf]]
        assert tree.weight == [[0], [0], [1]]

    def test_q15_no_resources_at_all(self) -> None:
        tree = tree_of(Queue(metadata=ObjectMeta(name="a")))
        assert tree.quota == tree.limit == tree.weight == [[0], [0], [0]]

    def test_q1_minus_one_is_unlimited(self) -> None:
        unlimited = QueueResource(quota=-1, limit=-1)
        tree = tree_of(queue("a", cpu=unlimited, memory=unlimited, gpu=unlimited))
        assert tree.quota == tree.limit == [[inf], [inf], [inf]]

    @pytest.mark.parametrize("value", [-0.25, -2.0, -1e9])
    def test_q17_for_memory_every_negative_number_is_unlimited(self, value: float) -> None:
        tree = tree_of(queue("a", memory=QueueResource(quota=value, limit=value)))
        assert tree.quota[MEMORY] == tree.limit[MEMORY] == [inf]

    @pytest.mark.parametrize("resource", ["cpu", "gpu"])
    def test_q17_for_cpu_and_gpu_other_negative_numbers_count_as_zero(self, resource: str) -> None:
        tree, problems = faulty_tree_of(queue_with(resource, QueueResource(quota=-5, limit=-0.5)))
        assert tree.quota == tree.limit == [[0], [0], [0]]
        assert problems == [
            Problem(
                "Queue/a",
                f"spec.resources.{resource}.quota",
                "-5 is negative, and only -1 means unlimited; it counts as 0",
            ),
            Problem(
                "Queue/a",
                f"spec.resources.{resource}.limit",
                "-0.5 is negative, and only -1 means unlimited; it counts as 0",
            ),
        ]

    @pytest.mark.parametrize("resource", ["cpu", "memory", "gpu"])
    def test_a_negative_weight_counts_as_zero_and_the_queue_stays(self, resource: str) -> None:
        tree, problems = faulty_tree_of(queue_with(resource, QueueResource(over_quota_weight=-1)))
        assert tree.names == ["a"]
        assert tree.weight == [[0], [0], [0]]
        path = f"spec.resources.{resource}.overQuotaWeight"
        assert problems == [Problem("Queue/a", path, "-1 is negative; it counts as 0")]

    @pytest.mark.parametrize("value", [nan, inf, -inf])
    @pytest.mark.parametrize("resource", ["cpu", "memory", "gpu"])
    def test_values_that_are_not_numbers_count_as_zero(self, resource: str, value: float) -> None:
        tree, problems = faulty_tree_of(queue_with(resource, numbers(quota=value, limit=value, weight=value)))
        assert tree.quota == tree.limit == tree.weight == [[0], [0], [0]]
        assert [problem.field for problem in problems] == [
            f"spec.resources.{resource}.{key}" for key in ("quota", "limit", "overQuotaWeight")
        ]

    def test_priority_is_100_by_default(self) -> None:
        tree = tree_of(queue("a"), queue("b", priority=0), queue("c", priority=-3))
        assert tree.priorities == [100, 0, -3]

    def test_s1_the_display_name_is_for_messages_only(self) -> None:
        """queues:S1."""
        tree = tree_of(queue("a", display_name="Team A"), queue("b", "a"))
        assert tree.names == ["a", "b"]
        assert tree.display_names == ["Team A", "b"]

    def test_minimum_runtimes(self) -> None:
        tree = tree_of(
            queue("a", preempt_min_runtime="10m"),
            queue("b", reclaim_min_runtime="1h30m"),
            queue("c"),
            queue("d", preempt_min_runtime="0s", reclaim_min_runtime="0"),
        )
        assert tree.preempt_min_runtime_ns == [600_000_000_000, None, None, 0]
        assert tree.reclaim_min_runtime_ns == [None, 5_400_000_000_000, None, 0]

    def test_an_invalid_runtime_is_inherited(self) -> None:
        tree, problems = faulty_tree_of(queue("a", preempt_min_runtime="soon", reclaim_min_runtime="10"))
        assert tree.names == ["a"]
        assert tree.preempt_min_runtime_ns == tree.reclaim_min_runtime_ns == [None]
        assert [problem.field for problem in problems] == ["spec.preemptMinRuntime", "spec.reclaimMinRuntime"]
        assert problems[0].text.startswith("'soon' is not a duration")

    def test_an_invalid_creation_time(self) -> None:
        tree, problems = faulty_tree_of(queue("a", created="yesterday"), queue("b", created="1971-01-01T00:00:00Z"))
        assert tree.names == ["a", "b"]
        assert tree.creation_ns[0] == 0
        assert [(problem.subject, problem.field) for problem in problems] == [("Queue/a", "metadata.creationTimestamp")]

    def test_a_problem_reads_as_one_line(self) -> None:
        _, problems = faulty_tree_of(queue("team-a", gpu=numbers(weight=-2)))
        assert str(problems[0]) == "Queue/team-a: spec.resources.gpu.overQuotaWeight: -2 is negative; it counts as 0"


class TestRollUp:
    def test_sums_reach_the_root(self) -> None:
        tree = tree_of(queue("a"), queue("b", "a"), queue("c", "b"), queue("d", "b"), queue("e"))
        columns = [[0.0, 0.0, 1.0, 2.0, 4.0], [0.0] * 5, [0.0, 0.0, 0.5, 0.25, 8.0]]
        roll_up(tree, columns)
        assert columns == [[3, 3, 1, 2, 4], [0] * 5, [0.75, 0.75, 0.5, 0.25, 8]]

    def test_q66_a_queue_with_children_keeps_its_own(self) -> None:
        tree = tree_of(queue("a"), queue("b", "a"))
        columns = [[1.0, 2.0]]
        roll_up(tree, columns)
        assert columns == [[3, 2]]

    def test_a_parent_younger_than_its_children(self) -> None:
        tree = tree_of(queue("a", "b"), queue("b", "c"), queue("c"))
        columns = [[1.0, 0.0, 0.0]]
        roll_up(tree, columns)
        assert columns == [[1, 1, 1]]


def departments(
    total: float,
    *,
    quotas: tuple[float, float, float, float] = (2, 2, 2, 2),
    weights: tuple[float, float] = (1, 1),
    priorities: tuple[int, int] = (100, 100),
) -> list[float]:
    """The shares of d1, q1, d2, q2 (queues:19.2, H1 to H6); each queue requests 100."""
    tree = tree_of(
        queue("d1", gpu=numbers(quotas[0], weight=weights[0]), priority=priorities[0]),
        queue("q1", "d1", gpu=numbers(quotas[1])),
        queue("d2", gpu=numbers(quotas[2], weight=weights[1]), priority=priorities[1]),
        queue("q2", "d2", gpu=numbers(quotas[3])),
    )
    request = [[0.0] * 4, [0.0] * 4, [100.0] * 4]
    shares = fair_shares(tree, [0, 0, total], request, k=0)
    assert shares[CPU] == shares[MEMORY] == [0] * 4
    return [shares[GPU][tree.rows[name]] for name in ("d1", "q1", "d2", "q2")]


class TestFairShares:
    def test_h1(self) -> None:
        assert departments(4) == [2, 2, 2, 2]

    def test_h2_q130_a_child_may_get_more_than_its_parent(self) -> None:
        assert departments(4, quotas=(3, 2, 1, 2)) == [3, 3, 1, 2]

    def test_h3(self) -> None:
        assert departments(12, quotas=(3, 2, 1, 2)) == [7, 7, 5, 5]

    def test_h4(self) -> None:
        assert departments(12, quotas=(3, 2, 1, 2), weights=(1, 7)) == [4, 4, 8, 8]

    def test_h5(self) -> None:
        assert departments(12, quotas=(1, 1, 1, 1), weights=(7, 1), priorities=(1, 2)) == [1, 1, 11, 11]

    def test_h6(self) -> None:
        tree = tree_of(
            queue("a-top", gpu=numbers(3)),
            queue("b-mid", "a-top", gpu=numbers(3)),
            queue("c-leaf", "b-mid", gpu=numbers(2)),
            queue("d-leaf", "b-mid", gpu=numbers(1)),
        )
        request = [[0.0] * 4, [0.0] * 4, [0.0, 0.0, 2.0, 1.0]]
        roll_up(tree, request)
        assert fair_shares(tree, [0, 0, 3], request, k=0)[GPU] == [3, 3, 2, 1]

    def test_parents_younger_than_their_children(self) -> None:
        tree = tree_of(
            queue("a", "b", gpu=numbers()),
            queue("b", "c", gpu=numbers(limit=2)),
            queue("c", gpu=numbers(limit=3)),
            queue("d", "c", gpu=numbers()),
        )
        assert fair_shares(tree, [0, 0, 9], [[0.0] * 4, [0.0] * 4, [9.0] * 4])[GPU] == [2, 2, 3, 1]

    def test_q131_below_the_top_an_unlimited_quota_is_the_share_of_the_parent(self) -> None:
        tree = tree_of(
            queue("a", gpu=numbers(5, weight=0)), queue("b", "a", gpu=numbers(-1)), queue("c", gpu=numbers())
        )
        assert fair_shares(tree, [0, 0, 12], [[0.0] * 3, [0.0] * 3, [100.0] * 3])[GPU] == [5, 5, 7]

    def test_q139_every_queue_has_a_share_of_every_resource(self) -> None:
        """These are the figures of the fair-share metrics."""
        same = numbers()
        tree = tree_of(
            *(
                queue(name, parent, cpu=same, memory=same, gpu=same)
                for name, parent in (("a", ""), ("b", "a"), ("c", "b"))
            )
        )
        shares = fair_shares(tree, [1000, 5e9, 8], [[100.0] * 3, [1e9] * 3, [2.0] * 3])
        assert shares == [[100] * 3, [1e9] * 3, [2] * 3]

    def test_q140_the_oldest_sibling_gets_the_odd_unit_at_every_level(self) -> None:
        old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
        gpu = numbers()
        tree = tree_of(
            queue("top", gpu=gpu),
            queue("a", "top", created=new, gpu=gpu),
            queue("b", "top", created=old, gpu=gpu),
        )
        shares = fair_shares(tree, [0, 0, 3], [[0.0] * 3, [0.0] * 3, [9.0] * 3])
        assert shares[GPU][tree.rows["b"]] == 2
        assert shares[GPU][tree.rows["a"]] == 1

    def test_usage_and_k(self) -> None:
        tree = tree_of(queue("a", gpu=numbers()), queue("b", gpu=numbers()))
        request = [[0.0] * 2, [0.0] * 2, [100.0] * 2]
        usage = [[0.0] * 2, [0.0] * 2, [0.5, 0.1]]
        assert fair_shares(tree, [0, 0, 16], request)[GPU] == [8, 8]
        assert fair_shares(tree, [0, 0, 16], request, usage=usage)[GPU] == [6, 10]
        assert fair_shares(tree, [0, 0, 16], request, usage=usage, k=0.5)[GPU] == [7, 9]
        assert fair_shares(tree, [0, 0, 16], request, usage=usage, k=0)[GPU] == [8, 8]

    def test_q346_usage_is_that_of_the_resource(self) -> None:
        same = numbers()
        tree = tree_of(queue("a", cpu=same, gpu=same), queue("b", cpu=same, gpu=same))
        request = [[100.0] * 2, [0.0] * 2, [100.0] * 2]
        usage = [[0.0] * 2, [0.0] * 2, [1.0, 0.0]]
        shares = fair_shares(tree, [16, 0, 16], request, usage=usage)
        assert shares[CPU] == [8, 8]
        assert shares[GPU] == [0, 16]

    def test_strict_remainders(self) -> None:
        tree = tree_of(queue("a", gpu=numbers()), queue("b", gpu=numbers()))
        request = [[0.0] * 2, [0.0] * 2, [0.6] * 2]
        assert fair_shares(tree, [0, 0, 1], request)[GPU] == [1, 0]
        assert fair_shares(tree, [0, 0, 1], request, strict_remainders=True)[GPU] == [0.6, 0.4]

    def test_arrays_are_taken_and_plain_floats_returned(self) -> None:
        tree = tree_of(queue("a", gpu=numbers()), queue("b", "a", gpu=numbers()))
        request = np.zeros((RESOURCES, 2))
        request[GPU] = 3
        shares = fair_shares(tree, np.array([0.0, 0.0, 2.0]), request)  # type: ignore[arg-type]
        assert shares[GPU] == [2, 2]
        assert all(type(share) is float for column in shares for share in column)
