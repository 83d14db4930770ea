"""When one queue may reclaim from another: the three gates over the ledgers (queues:11, cases 19.6).

Figures of a queue are GPUs unless a test says otherwise: quota `d`, fair share `f`, allocated `a`, as the cases of the
specification call them.  CPU and memory are unlimited and unused, so they decide only where a test fills them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import Queue, QueueResource, QueueResources, QueueSpec
from pykai.core.hooks import FilterBySide
from pykai.core.model.queuetree import QueueAmounts, build_tree
from pykai.core.queueing.queueledger import QueueLedger
from pykai.core.queueing.reclaimrules import ReclaimRequest, may_lose, objection, why_not_reclaim
from pykai.core.report.decisions import NoEviction


@dataclass(frozen=True)
class Row:
    """One queue; `d`, `limit`, `f`, `a` and `committed` are GPUs, `cpu` and `memory` are (quota, limit, share, has)."""

    name: str
    parent: str = ""
    d: float = 0
    f: float = 0
    a: float = 0
    limit: float = inf
    committed: float = 0
    cpu: tuple[float, float, float, float] = (inf, inf, inf, 0)
    memory: tuple[float, float, float, float] = (inf, inf, inf, 0)
    cpu_committed: float = 0


def _wire(quota: float, limit: float) -> QueueResource:
    return QueueResource(quota=-1 if quota == inf else quota, limit=-1 if limit == inf else limit, over_quota_weight=1)


def books(*rows: Row) -> QueueLedger:
    queues = [
        Queue(
            metadata=ObjectMeta(name=row.name),
            spec=QueueSpec(
                parent_queue=row.parent,
                resources=QueueResources(
                    gpu=_wire(row.d, row.limit), cpu=_wire(*row.cpu[:2]), memory=_wire(*row.memory[:2])
                ),
            ),
        )
        for row in rows
    ]
    tree = build_tree(queues, report=lambda problem: pytest.fail(str(problem)))
    named = {row.name: row for row in rows}
    ordered = [named[name] for name in tree.names]
    mega = 1e6
    return QueueLedger(
        tree,
        total=[1000.0, 1000 * mega, 10000.0],
        allocated=[[row.cpu[3], row.memory[3] * mega, row.a * 100] for row in ordered],
        allocated_non_preemptible=[[row.cpu_committed, 0.0, row.committed * 100] for row in ordered],
        request=[[0.0, 0.0, 0.0] for _ in ordered],
        fair_share=[[row.cpu[2], row.memory[2] * mega, row.f * 100] for row in ordered],
    )


def gpus(count: float) -> QueueAmounts:
    return (0.0, 0.0, count * 100)


def complaint(
    ledger: QueueLedger,
    reclaimer: str,
    ask: QueueAmounts,
    losses: dict[str, list[QueueAmounts]],
    *,
    committed: bool = False,
    multiplier: float = 1.0,
) -> str | None:
    """The result of the third gate."""
    rows = ledger.tree.rows
    claim = ReclaimRequest(rows[reclaimer], ask, committed, ledger.allocated, ledger.allocated_non_preemptible)
    return objection(ledger, claim, {rows[leaf]: parts for leaf, parts in losses.items()}, multiplier)


def fair(ledger: QueueLedger, reclaimer: str, losses: dict[str, list[float]], ask: float = 1) -> bool:
    """Whether the third gate lets a reclaimer take GPUs from leaves."""
    return (
        complaint(ledger, reclaimer, gpus(ask), {leaf: [gpus(n) for n in parts] for leaf, parts in losses.items()})
        is None
    )


# Gate 1


def test_q260_a_job_may_bring_its_queue_to_exactly_its_fair_share() -> None:
    """queues:Q-260, R20."""
    ledger = books(Row("q", d=1, f=3, a=2))
    assert why_not_reclaim(ledger, 0, gpus(1), non_preemptible=False) is None


@pytest.mark.parametrize(
    ("ask", "resource", "would_have", "bound"),
    [
        ((0.0, 0.0, 101.0), "GPU", 3.01, 3.0),
        ((501.0, 0.0, 100.0), "CPU", 1001.0, 1000.0),
        ((0.0, 2e6, 100.0), "Memory", 11e6, 10e6),
    ],
)
def test_q260_one_resource_above_the_fair_share_is_enough_to_forbid(
    ask: QueueAmounts, resource: str, would_have: float, bound: float
) -> None:
    """queues:Q-260, R20: and the verdict says which, in devices, milli and bytes."""
    ledger = books(Row("q", d=1, f=3, a=2, cpu=(0, inf, 1000, 500), memory=(0, inf, 10, 9)))
    found = why_not_reclaim(ledger, 0, ask, non_preemptible=False)
    assert found == NoEviction("reclaim", "fair_share", "q", resource, would_have, bound)


def test_q260_a_resource_that_is_not_requested_is_compared_too() -> None:
    """queues:Q-260: over its share of CPU, a queue takes no GPUs."""
    ledger = books(Row("q", d=9, f=9, cpu=(0, inf, 1000, 1001)))
    found = why_not_reclaim(ledger, 0, gpus(1), non_preemptible=False)
    assert found is not None
    assert (found.rule, found.resource) == ("fair_share", "CPU")


def test_q261_non_preemptible_work_must_be_within_quota() -> None:
    """queues:Q-261: exactly the quota is within."""
    ledger = books(Row("q", d=2, f=9, a=5, committed=1))
    assert why_not_reclaim(ledger, 0, gpus(1), non_preemptible=True) is None
    found = why_not_reclaim(ledger, 0, gpus(2), non_preemptible=True)
    assert found == NoEviction("reclaim", "quota", "q", "GPU", 3.0, 2.0)


def test_q261_the_quota_does_not_bind_preemptible_work() -> None:
    """queues:Q-261."""
    ledger = books(Row("q", d=2, f=9, a=5, committed=2))
    assert why_not_reclaim(ledger, 0, gpus(2), non_preemptible=False) is None


def test_q261_a_resource_that_is_not_requested_is_compared_too() -> None:
    """queues:Q-261: unlike the gate of allocate."""
    ledger = books(Row("q", d=2, f=9, cpu=(100, inf, inf, 200), cpu_committed=101))
    found = why_not_reclaim(ledger, 0, gpus(1), non_preemptible=True)
    assert found == NoEviction("reclaim", "quota", "q", "CPU", 101.0, 100.0)


# Gate 2


@pytest.mark.parametrize(("d", "a", "kept"), [(4, 2, False), (0, 4, True), (2, 2, True)])
def test_q267_within_quota_queues_over_or_exactly_at_theirs_are_candidates(d: float, a: float, kept: bool) -> None:
    """queues:Q-267, R21."""
    ledger = books(Row("mine", d=4), Row("theirs", d=d, f=9, a=a))
    assert may_lose(ledger, 0, 1, gpus(2)) is kept


@pytest.mark.parametrize(("a", "kept"), [(3, False), (4, False), (5, True)])
def test_q266_beyond_quota_only_queues_over_their_share_are_candidates(a: float, kept: bool) -> None:
    """queues:Q-266, R22: over quota within the share is not enough."""
    ledger = books(Row("mine", d=1, f=4), Row("theirs", d=2, f=4, a=a))
    assert may_lose(ledger, 0, 1, gpus(2)) is kept


def test_q266_over_in_one_resource_is_enough() -> None:
    """queues:Q-266, Q-275: even in one that is not wanted."""
    ledger = books(Row("mine", d=0, f=4), Row("theirs", d=2, f=4, a=3, cpu=(0, inf, 100, 101)))
    assert may_lose(ledger, 0, 1, gpus(2))


def test_q266_all_resources_of_the_reclaimer_must_be_within_quota() -> None:
    """queues:Q-266: beyond its quota of CPU it counts as beyond quota, although it wants GPUs only."""
    mine = Row("mine", d=9, f=9, cpu=(10, inf, inf, 11))
    theirs = Row("theirs", d=1, f=9, a=2)
    assert not may_lose(books(mine, theirs), 0, 1, gpus(1))
    assert may_lose(books(Row("mine", d=9, f=9, cpu=(10, inf, inf, 10)), theirs), 0, 1, gpus(1))


def test_q267_only_requested_resources_are_compared() -> None:
    """queues:Q-267, R23: CPU and memory far below quota do not protect."""
    theirs = Row("theirs", d=2, a=2, cpu=(100, inf, inf, 1), memory=(100, inf, inf, 1))
    assert may_lose(books(Row("mine", d=4), theirs), 0, 1, gpus(2))
    assert not may_lose(books(Row("mine", d=4), theirs), 0, 1, (1.0, 0.0, 200.0))


def test_q267_over_quota_in_one_requested_resource_outweighs_below_in_another() -> None:
    """queues:Q-267."""
    theirs = Row("theirs", d=4, a=2, cpu=(10, inf, inf, 11))
    assert may_lose(books(Row("mine", d=4), theirs), 0, 1, (1.0, 0.0, 100.0))


def test_q267_an_unlimited_quota_is_not_compared() -> None:
    """queues:Q-267: nothing comparable is kept, moving may help."""
    theirs = Row("theirs", d=inf, a=2)
    assert may_lose(books(Row("mine", d=4), theirs), 0, 1, gpus(1))
    mixed = Row("theirs", d=inf, a=2, cpu=(10, inf, inf, 9))
    assert not may_lose(books(Row("mine", d=4), mixed), 0, 1, (1.0, 0.0, 100.0))


def _may_lose_by_side(ledger: QueueLedger, reclaimer: str, victim: str) -> bool:
    rows = ledger.tree.rows
    passes = FilterBySide(ledger.tree, rows[reclaimer], lambda own, side: may_lose(ledger, own, side, gpus(1)))
    return passes(rows[victim])


def test_q265_the_queues_just_below_the_common_ancestor_are_compared() -> None:
    """queues:Q-265, Q-271: a leaf within its quota is looked at when its department is over."""
    rows = [Row("x", d=2), Row("y", d=1, f=1, a=2), Row("x1", "x"), Row("y1", "y", d=2, a=2)]
    ledger = books(*rows)
    assert _may_lose_by_side(ledger, "x1", "y1")
    below = books(Row("x", d=2), Row("y", d=2, f=2, a=1), Row("x1", "x"), Row("y1", "y", d=0, a=1))
    assert not _may_lose_by_side(below, "x1", "y1")


# Gate 3: the victims' side


def test_r1_a_side_exactly_at_its_allocatable_share_loses_nothing() -> None:
    """queues:Q-270, R1."""
    assert not fair(books(Row("mine", f=4), Row("theirs", f=3, a=3)), "mine", {"theirs": [1]})


def test_r1_the_objection_names_the_queue() -> None:
    """queues:Q-270."""
    ledger = books(Row("mine", f=4), Row("theirs", f=3, a=3))
    said = complaint(ledger, "mine", gpus(1), {"theirs": [gpus(1)]})
    assert said == "queue theirs would lose what it deserves"


def test_r2_over_in_one_resource_is_over() -> None:
    """queues:Q-270, R2."""
    theirs = Row("theirs", d=4, f=4, a=1, cpu=(0, inf, 100, 101))
    assert fair(books(Row("mine", f=4), theirs), "mine", {"theirs": [1]})


def test_r3_the_limit_caps_what_a_queue_may_have() -> None:
    """queues:Q-275, R3: quota 200, limit 100, 120 in use."""
    ledger = books(Row("mine", f=4), Row("theirs", d=9, f=9, a=1, cpu=(200, 100, 200, 120)))
    assert complaint(ledger, "mine", gpus(1), {"theirs": [(120.0, 0.0, 100.0)]}) is None


@pytest.mark.parametrize(
    ("case", "mine", "theirs", "expected"),
    [
        ("R4", Row("mine", d=5, f=5, a=3), Row("theirs", d=1, f=3, a=3), True),
        ("R5", Row("mine", d=1, f=5, a=3), Row("theirs", d=1, f=3, a=3), False),
        ("R6", Row("mine", d=5, f=5, a=3), Row("theirs", d=3, f=3, a=3), False),
        ("R7", Row("mine", d=5, f=5, a=3), Row("theirs", d=3, f=4, a=4), True),
        ("R8", Row("mine", d=4, f=4, a=2), Row("theirs", d=0, f=2, a=2), True),
    ],
)
def test_a_reclaimer_within_quota_takes_from_queues_over_quota(
    case: str, mine: Row, theirs: Row, expected: bool
) -> None:
    """queues:Q-270, R4 to R8: the reclaimer requests 2; both sides end below their shares."""
    assert fair(books(mine, theirs), "mine", {"theirs": [2]}, ask=2) is expected, case


@pytest.mark.parametrize(
    ("case", "p1", "p2", "expected"),
    [
        ("R9", Row("p1", "top", d=3, f=3, a=2), Row("p2", "top", d=2, f=2, a=3), True),
        ("R10", Row("p1", "top", d=3, f=3, a=2), Row("p2", "top", d=2, f=2, a=2), False),
        ("R11", Row("p1", "top", d=3, f=3, a=2), Row("p2", "top", d=2, f=3, a=3), True),
        ("R12", Row("p1", "top", d=3, f=3, a=3), Row("p2", "top", d=2, f=2, a=3), False),
    ],
)
def test_siblings_below_one_parent(case: str, p1: Row, p2: Row, expected: bool) -> None:
    """queues:Q-270, Q-272, R9 to R12."""
    ledger = books(Row("top", d=5, f=5, a=5), p1, p2)
    assert fair(ledger, "p1", {"p2": [1]}) is expected, case


def test_r14_levels_above_both_do_not_matter() -> None:
    """queues:Q-271, R14: the parent is over its own share."""
    ledger = books(Row("top", d=1, f=1, a=5), Row("p1", "top", d=3, f=3, a=2), Row("p2", "top", d=2, f=2, a=3))
    assert fair(ledger, "p1", {"p2": [1]})


def test_q271_a_leaf_within_quota_loses_when_its_department_is_over() -> None:
    """queues:Q-271: only the level where the queues part decides."""
    rows = [Row("x", d=2, f=2), Row("y", d=1, f=1, a=2), Row("x1", "x", d=2, f=2), Row("y1", "y", d=2, f=2, a=2)]
    assert fair(books(*rows), "x1", {"y1": [1]})


def test_q271_a_leaf_over_quota_keeps_what_its_department_deserves() -> None:
    """queues:Q-271."""
    rows = [Row("x", d=2, f=2), Row("y", d=2, f=2, a=2), Row("x1", "x", d=2, f=2), Row("y1", "y", f=0, a=2)]
    assert not fair(books(*rows), "x1", {"y1": [1]})


def test_q271_the_quota_of_the_reclaimers_department_decides() -> None:
    """queues:Q-271: its leaf is within quota, its department is not; the others are over quota within their share."""
    below = [Row("x1", "x", d=2, f=2), Row("y1", "y", a=2)]
    assert not fair(books(Row("x", d=0, f=2), Row("y", d=1, f=2, a=2), *below), "x1", {"y1": [1]})
    assert fair(books(Row("x", d=1, f=2), Row("y", d=1, f=2, a=2), *below), "x1", {"y1": [1]})


def test_q271_leaves_of_one_department_are_one_side() -> None:
    """queues:Q-271: what two leaves lose counts together; one over, a second part of 1 is too much."""
    rows = [Row("x", f=4), Row("y", f=2, a=3), Row("x1", "x", f=4)]
    ledger = books(*rows, Row("y1", "y", f=9, a=2), Row("y2", "y", f=9, a=1))
    assert fair(ledger, "x1", {"y1": [1]})
    assert not fair(ledger, "x1", {"y1": [1], "y2": [1]})


def test_q275_an_unlimited_queue_is_never_over() -> None:
    """queues:Q-275: quota and limit unlimited."""
    theirs = Row("theirs", d=inf, f=inf, a=50)
    assert not fair(books(Row("mine", d=4, f=4), theirs), "mine", {"theirs": [1]})


def test_q275_with_an_unlimited_quota_the_limit_is_what_counts() -> None:
    """queues:Q-275."""
    theirs = Row("theirs", d=inf, limit=4, f=4, a=5)
    assert fair(books(Row("mine", d=4, f=4), theirs), "mine", {"theirs": [1]})


@pytest.mark.parametrize("parts", list(permutations([1.0, 4.0])))
def test_q279_the_order_of_the_victims_does_not_matter(parts: tuple[float, ...]) -> None:
    """queues:Q-279, Do better: three over, parts of 1 and 4."""
    ledger = books(Row("mine", f=9), Row("theirs", f=3, a=6))
    assert fair(ledger, "mine", {"theirs": list(parts)}, ask=5)


def test_q270_the_last_part_may_push_a_side_below_its_share_but_only_the_last() -> None:
    """queues:Q-270."""
    ledger = books(Row("mine", f=9), Row("theirs", f=3, a=4))
    assert fair(ledger, "mine", {"theirs": [4]}, ask=4)
    assert not fair(ledger, "mine", {"theirs": [1, 1]}, ask=2)


def test_q270_every_side_must_be_over() -> None:
    """queues:Q-270: one queue that is over does not excuse taking from another."""
    ledger = books(Row("mine", f=9), Row("over", f=1, a=3), Row("poor", f=3, a=3))
    assert fair(ledger, "mine", {"over": [1]}, ask=2)
    assert not fair(ledger, "mine", {"over": [1], "poor": [1]}, ask=2)


def _one_by_one(have: float, parts: Sequence[float], may: float, quota: float, in_quota: bool) -> bool:
    """The specification's own loop: each part in turn while the side is over."""
    for part in parts:
        if not (have > may or (in_quota and have > quota)):
            return False
        have -= part
    return True


@given(
    share=st.integers(0, 8),
    quota=st.integers(0, 8),
    has=st.integers(0, 12),
    mine_quota=st.integers(0, 6),
    parts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_q279_a_set_is_fair_to_its_side_exactly_when_some_order_is(
    share: int, quota: int, has: int, mine_quota: int, parts: list[int]
) -> None:
    """queues:Q-270, Q-279 (Do better): against the specification's loop over all orders."""
    ledger = books(Row("mine", d=mine_quota, f=100), Row("theirs", d=quota, f=share, a=has))
    orders = permutations([float(part) for part in parts])
    some = any(_one_by_one(has, order, max(quota, share), quota, mine_quota >= 1) for order in orders)
    assert fair(ledger, "mine", {"theirs": [float(part) for part in parts]}) is some


# Gate 3: the reclaimer's side


def test_r15_a_reclaimer_never_ends_above_the_queue_it_takes_from() -> None:
    """queues:Q-272, R15: left would be at 2.0, right at 0."""
    rows = [Row("left", d=1, f=1, a=1), Row("right", d=1, f=1, a=2), Row("l1", "left", d=1, f=1)]
    ledger = books(*rows, Row("r1", "right", f=1, a=2))
    said = complaint(ledger, "l1", gpus(1), {"r1": [gpus(2)]})
    assert said == "queue left would exceed its fair share of GPU by no less than right, from which it takes"


def _mids(leaf2: float) -> QueueLedger:
    return books(
        Row("mid1", d=1, f=1, a=0.5),
        Row("mid2", d=1, f=1, a=1.5),
        Row("leaf1", "mid1", d=1, f=1),
        Row("leaf2", "mid1", a=leaf2),
        Row("leaf3", "mid2", a=1.5),
    )


def test_r16_r17_what_its_own_side_loses_counts_for_the_reclaimer() -> None:
    """queues:Q-272, R16, R17."""
    assert not fair(_mids(0.5), "leaf1", {"leaf3": [1.5]})
    assert fair(_mids(0.5), "leaf1", {"leaf3": [1.5], "leaf2": [0.5]})


@pytest.mark.parametrize(
    ("have", "multiplier", "expected"),
    [(7, 1.0, True), (4.76, 1.0, True), (4.75, 1.0, False), (7, 1.6, False), (7, 1.5, True)],
)
def test_r18_beyond_its_share_a_side_must_stay_less_saturated(have: float, multiplier: float, expected: bool) -> None:
    """queues:Q-272, Q-274, R18: 5 of 4 against what the other has left of 3; the multiplier makes it more reluctant."""
    ledger = books(Row("d1", f=4, a=4), Row("d2", f=3, a=have), Row("c1", "d1", f=9), Row("c2", "d2", a=have))
    said = complaint(ledger, "c1", gpus(1), {"c2": [gpus(1)]}, multiplier=multiplier)
    assert (said is None) is expected


def test_q272_up_to_its_share_a_side_may_leave_others_with_less() -> None:
    """queues:Q-272: at a ratio of exactly 1 anything goes."""
    ledger = books(Row("d1", f=5, a=4), Row("d2", f=3, a=4), Row("c1", "d1", f=9), Row("c2", "d2", a=4))
    assert fair(ledger, "c1", {"c2": [4]})


def test_q272_equal_saturation_is_too_much() -> None:
    """queues:Q-272: the comparison is not strict."""
    ledger = books(Row("d1", f=4, a=4), Row("d2", f=4, a=6))
    assert not fair(ledger, "d1", {"d2": [1]})
    assert fair(books(Row("d1", f=4, a=4), Row("d2", f=4, a=6.01)), "d1", {"d2": [1]})


def test_q272_every_level_of_the_reclaimer_is_judged() -> None:
    """queues:Q-272: the leaf is fine, its parent is not, and the other way round."""
    above = books(Row("x", f=1, a=1), Row("y", f=1, a=2), Row("x1", "x", f=9), Row("y1", "y", a=2))
    assert not fair(above, "x1", {"y1": [1]})
    below = books(Row("x1", f=1, a=1), Row("y1", f=1, a=2))
    assert not fair(below, "x1", {"y1": [1]})


def test_q272_siblings_it_takes_nothing_from_do_not_matter() -> None:
    """queues:Q-272: an idle third queue changes nothing."""
    ledger = books(Row("mine", f=1, a=1), Row("rich", f=1, a=9), Row("idle", f=5))
    assert fair(ledger, "mine", {"rich": [1]})


def test_r19_resources_that_are_not_taken_are_not_compared() -> None:
    """queues:Q-272, R19: far over on CPU, only GPUs involved."""
    mine = Row("mine", d=3, f=3, a=2, cpu=(0, inf, 10, 5000))
    theirs = Row("theirs", d=2, f=2, a=3, cpu=(0, inf, 10, 10))
    assert fair(books(mine, theirs), "mine", {"theirs": [1]})


def test_q272_resources_the_victims_lose_are_compared_though_they_are_not_requested() -> None:
    """queues:Q-272: the involved resources of a side are those its parts have."""
    mine = Row("mine", f=3, a=2, cpu=(0, inf, 10, 5000))
    ledger = books(mine, Row("theirs", f=2, a=3, cpu=(0, inf, 10, 10)))
    said = complaint(ledger, "mine", gpus(1), {"theirs": [(1.0, 0.0, 100.0)]})
    assert said is not None
    assert "fair share of CPU" in said


def test_q272_requested_resources_are_compared_though_no_victim_loses_them() -> None:
    """queues:Q-272."""
    mine = Row("mine", f=3, a=2, cpu=(0, inf, 10, 10))
    ledger = books(mine, Row("theirs", f=2, a=3, cpu=(0, inf, 10, 10)))
    said = complaint(ledger, "mine", (1.0, 0.0, 100.0), {"theirs": [gpus(1)]})
    assert said is not None
    assert "fair share of CPU" in said


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        (Row("mine", f=inf, a=9), Row("theirs", d=1, f=1, a=3), True),
        (Row("mine", f=1, a=9), Row("theirs", d=1, f=0, a=3), True),
        (Row("mine", f=0, a=0), Row("theirs", d=1, f=1, a=3), False),
        (Row("mine", f=1, a=9), Row("theirs", limit=1, d=inf, f=inf, a=3), False),
        (Row("mine", f=inf, a=9), Row("theirs", limit=1, d=inf, f=inf, a=3), True),
    ],
)
def test_q272_shares_without_a_bound_or_of_nothing(mine: Row, theirs: Row, expected: bool) -> None:
    """queues:11.3: an unlimited share is never saturated, a share of zero always; a side without a share is
    not compared."""
    assert fair(books(mine, theirs), "mine", {"theirs": [1]}) is expected


def test_q272_a_side_without_a_share_may_lose_everything() -> None:
    """queues:11.3: a side without a share and without resources is not compared."""
    assert fair(books(Row("mine", f=1, a=9), Row("theirs", f=0, a=3)), "mine", {"theirs": [3]})


# Gate 3: non-preemptible work


def test_r13_committed_work_must_be_within_quota_at_every_level() -> None:
    """queues:Q-273, R13: the leaf has room in its quota, its parent has not."""
    rows = [Row("top", d=3, f=9, a=5, committed=3), Row("p1", "top", d=2, f=4, a=1)]
    ledger = books(*rows, Row("p2", "top", f=1, a=4))
    losses = {"p2": [gpus(1)]}
    said = complaint(ledger, "p1", gpus(1), losses, committed=True)
    assert said == "queue top would exceed its quota with work that cannot be taken back"
    assert complaint(ledger, "p1", gpus(1), losses, committed=False) is None


def test_q273_committed_work_may_fill_the_quota() -> None:
    """queues:Q-273."""
    rows = [Row("top", d=3, f=9, a=5, committed=2), Row("p1", "top", d=2, f=4, a=2, committed=1)]
    ledger = books(*rows, Row("p2", "top", f=1, a=4))
    assert complaint(ledger, "p1", gpus(1), {"p2": [gpus(1)]}, committed=True) is None
    assert complaint(ledger, "p1", gpus(2), {"p2": [gpus(2)]}, committed=True) is not None


def test_an_empty_victim_set_is_always_fair() -> None:
    """queues:11.3: all victims moved elsewhere."""
    assert complaint(books(Row("mine", f=1, a=5), Row("theirs", f=9, a=1)), "mine", gpus(1), {}) is None


def test_the_ledgers_are_only_read() -> None:
    """queues:11.3: the check changes nothing."""
    ledger = _mids(0.5)
    before = [row.copy() for row in ledger.allocated]
    complaint(ledger, "leaf1", gpus(1), {"leaf3": [gpus(1.5)], "leaf2": [gpus(0.5)]})
    assert ledger.allocated == before


@pytest.mark.parametrize(("quota", "expected"), [(1, True), (0.5, False)])
def test_q265_memory_counts_for_the_quota_of_the_reclaimer(quota: float, expected: bool) -> None:
    """queues:Q-265: a queue within its quota in everything takes from one above quota and below its share."""
    ledger = books(Row("mine", d=4, memory=(quota, inf, inf, 0)), Row("theirs", d=1, f=4, a=3))
    rows = ledger.tree.rows
    assert may_lose(ledger, rows["mine"], rows["theirs"], (0.0, 1e6, 100.0)) is expected


@pytest.mark.parametrize(("has", "expected"), [(10, False), (11, True)])
def test_q266_a_side_exactly_at_its_share_of_cpu_is_not_over(has: float, expected: bool) -> None:
    """queues:Q-266."""
    ledger = books(Row("mine"), Row("theirs", f=4, a=3, cpu=(0, inf, 10, has)))
    rows = ledger.tree.rows
    assert may_lose(ledger, rows["mine"], rows["theirs"], gpus(1)) is expected


def test_q272_the_smallest_amount_saturates_a_share_of_nothing() -> None:
    """queues:11.3: one thousandth of a CPU."""
    ledger = books(Row("mine", cpu=(0, inf, 0, 0)), Row("theirs", cpu=(0, inf, 10, 12)))
    assert complaint(ledger, "mine", (1.0, 0.0, 0.0), {"theirs": [(1.0, 0.0, 0.0)]}) is not None
