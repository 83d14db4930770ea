"""The division among siblings: the spec's cases (queues:19.1, 14.4), and each of its rules by its id."""

from itertools import permutations
from math import inf, nan
from typing import NamedTuple

import pytest

from pykai.core.queueing.fairshare import FairShareSettings
from tests.core.queueing.demands import QueueDemand, divide


def queue(
    name: str,
    *,
    quota: float = 0,
    weight: float = 1,
    request: float = 100,
    limit: float = inf,
    priority: int = 100,
    created: int = 0,
    usage: float = 0,
) -> QueueDemand:
    return QueueDemand(name, created, priority, quota, limit, weight, request, usage)


class Case(NamedTuple):
    total: float
    claims: list[QueueDemand]
    shares: list[float]
    left: float


CASES = {
    "D1": Case(1, [queue("a", quota=3, weight=0, request=2)], [2], 0),
    "D2": Case(7, [queue("a", quota=3, weight=0, request=5)], [3], 4),
    "D3": Case(2, [queue("a", quota=1.5, weight=0, request=2)], [1.5], 0.5),
    "D4": Case(2, [queue("a", quota=3, weight=0, request=1.5)], [1.5], 0.5),
    "D5": Case(3.5, [queue("a", quota=3, weight=1, request=5)], [3.5], 0),
    "D6": Case(8, [queue("a", quota=2, weight=1, request=6), queue("b", quota=2, weight=3, request=6)], [3, 5], 0),
    "D7": Case(
        12, [queue("a", quota=2, weight=2, request=6, limit=5), queue("b", quota=2, weight=2, request=6)], [5, 6], 1
    ),
    "D8": Case(11, [queue("a", quota=2, weight=1, request=10), queue("b", quota=2, weight=4, request=10)], [3, 8], 0),
    "D9": Case(
        11,
        [queue("z", quota=2, weight=2, request=6, created=1), queue("b", quota=2, weight=2, request=6, created=2)],
        [6, 5],
        0,
    ),
    "D10": Case(4, [queue("a", quota=2, request=6, priority=1), queue("b", quota=2, request=6, priority=2)], [2, 2], 0),
    "D11": Case(
        6,
        [queue("a", quota=2, weight=100, request=6, priority=1), queue("b", quota=2, request=6, priority=2)],
        [2, 4],
        0,
    ),
    "D12": Case(
        5,
        [
            queue("a", quota=2, weight=2, request=5, priority=2),
            queue("b", quota=2, weight=2, request=5, priority=2),
            queue("c", quota=1, weight=2, request=0, priority=1),
        ],
        [3, 2, 0],
        0,
    ),
    "D13": Case(
        5,
        [
            queue("a", quota=2, weight=2, request=5, priority=2),
            queue("b", quota=2, weight=2, request=5, priority=2),
            queue("c", quota=0, weight=2, request=5, priority=1),
        ],
        [2, 2, 1],
        0,
    ),
    "D14": Case(
        1000,
        [queue("a", quota=250, weight=1, request=5000), queue("b", quota=150, weight=2, request=5000)],
        [450, 550],
        0,
    ),
    "D15": Case(
        1000,
        [queue("a", quota=250, weight=1, request=5000), queue("b", quota=150, weight=2, request=5000, limit=400)],
        [600, 400],
        0,
    ),
    "D16": Case(
        45,
        [
            queue("a", quota=12, weight=12, request=32.55),
            queue("b", quota=7, weight=7, request=9.5),
            queue("c", quota=2, weight=2, request=1.65, limit=2),
        ],
        [32.55, 9.5, 1.65],
        1.3,
    ),
    "D17": Case(
        5,
        [queue("queue-1", quota=2, weight=2, request=3), queue("queue-2", quota=2, weight=2, request=3)],
        [3, 2],
        0,
    ),
    "D18": Case(
        10000,
        [queue("a", quota=5000, weight=5000, request=10000), queue("b", quota=0, weight=0, request=5000)],
        [10000, 0],
        0,
    ),
    "D19": Case(
        10000,
        [
            queue("a", quota=5000, weight=5000, request=7000),
            queue("b", quota=5000, weight=5000, request=2000),
            queue("c", quota=5000, weight=5000, request=2000),
        ],
        [6000, 2000, 2000],
        0,
    ),
    "D20": Case(18000, [queue(name, quota=5000, weight=5000, request=6000) for name in "abc"], [6000] * 3, 0),
    "D21": Case(100, [queue("a", quota=10, weight=3), queue("b", quota=10, weight=1)], [70, 30], 0),
    "D22": Case(16000, [queue(name, quota=inf, request=100000) for name in "ab"], [16000, 16000], 0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_division(case: Case) -> None:
    """queues:D1 to D22."""
    shares = divide(case.total, case.claims, k=0)
    assert shares == case.shares
    assert max(0.0, case.total - sum(shares)) == pytest.approx(case.left)


@pytest.mark.parametrize(
    ("usages", "k", "shares"),
    [
        ((0, 0), 1, [8, 8]),
        ((0.25, 0), 1, [7, 9]),
        ((0.5, 0), 1, [5, 11]),
        ((1, 0), 1, [0, 16]),
        ((0.5, 0.5), 1, [8, 8]),
        ((0.5, 0.1), 0, [8, 8]),
        ((0.5, 0.1), 0.5, [7, 9]),
        ((0.5, 0.1), 1, [6, 10]),
        ((0.5, 0.1), 10, [2, 14]),
    ],
)
def test_usage(usages: tuple[float, float], k: float, shares: list[float]) -> None:
    """Section 14.4: 16 GPUs, two queues of weight 1, unbounded demand."""
    assert divide(16, [queue("a", usage=usages[0]), queue("b", usage=usages[1])], k=k) == shares


def test_usage_u9_a_heavy_user_of_huge_weight_yields() -> None:
    claims = [queue("a", weight=10000, usage=1.0), queue("b", weight=1, request=1)]
    assert divide(1, claims, k=10000) == [0, 1]


def test_no_claims() -> None:
    assert divide(8, []) == []


class TestGuaranteed:
    def test_q130_quota_is_not_capped_by_the_pool(self) -> None:
        assert divide(4, [queue("a", quota=3), queue("b", quota=3)]) == [3, 3]

    def test_q130_quota_ignores_priority(self) -> None:
        assert divide(4, [queue("a", quota=3, priority=1), queue("b", quota=3, priority=2)]) == [3, 3]

    def test_q130_quota_ignores_weight(self) -> None:
        assert divide(4, [queue("a", quota=2, weight=0), queue("b", quota=2, weight=9)]) == [2, 2]

    def test_q130_quota_in_an_empty_pool(self) -> None:
        assert divide(0, [queue("a", quota=3, request=2)]) == [2]

    def test_q131_unlimited_quota_is_the_whole_pool_of_the_level(self) -> None:
        assert divide(16, [queue("a", quota=inf), queue("b", quota=inf)]) == [16, 16]

    def test_q131_unlimited_quota_still_ends_at_the_request(self) -> None:
        assert divide(16, [queue("a", quota=inf, request=5), queue("b", quota=0)]) == [5, 11]

    def test_q137_nothing_requested_nothing_deserved(self) -> None:
        assert divide(10, [queue("a", quota=5, request=0), queue("b", quota=inf, request=0), queue("c")]) == [0, 0, 10]

    def test_the_request_bounds_the_quota(self) -> None:
        assert divide(10, [queue("a", quota=5, weight=0, request=3)]) == [3]

    def test_the_limit_bounds_the_quota(self) -> None:
        assert divide(10, [queue("a", quota=5, weight=0, limit=3)]) == [3]

    def test_the_limit_bounds_the_surplus(self) -> None:
        assert divide(10, [queue("a", limit=3), queue("b", limit=4)]) == [3, 4]


class TestSurplus:
    def test_q132_higher_priority_first(self) -> None:
        claims = [queue("a", priority=1, weight=100), queue("b", priority=2, request=6), queue("c", priority=-5)]
        assert divide(8, claims) == [2, 6, 0]

    def test_q132_priorities_are_numbers_not_words(self) -> None:
        claims = [queue("a", priority=9), queue("b", priority=10), queue("c", priority=-10)]
        assert divide(8, claims) == [0, 8, 0]

    def test_q132_only_equals_share_a_bucket(self) -> None:
        claims = [queue("a", priority=1), queue("b", priority=2), queue("c", priority=2)]
        assert divide(8, claims) == [0, 4, 4]

    def test_q133_proportional_to_weight(self) -> None:
        assert divide(8, [queue("a", weight=1), queue("b", weight=3)]) == [2, 6]

    def test_q133_weights_of_satisfied_queues_do_not_count(self) -> None:
        claims = [queue("a", weight=1), queue("b", weight=3), queue("c", quota=4, weight=100, request=4)]
        assert divide(12, claims, k=0) == [2, 6, 4]

    def test_q133_repeats_while_a_queue_wants_less_than_its_share(self) -> None:
        # Round 1: 30 each, a needs 1.  Round 2: 14.5 each, b needs 5.  Round 3: the last 10 to c.
        claims = [queue("a", request=1), queue("b", request=35), queue("c", request=90)]
        assert divide(90, claims) == [1, 35, 54]

    def test_q133_does_not_repeat_when_all_wants_are_met_exactly_or_not_at_all(self) -> None:
        # 1.5, 2.5 and 4: c gets exactly its share, a and b lost half a unit each, which goes to the older.
        # Another round over that unit would favour b.
        claims = [queue("a", weight=3, request=30), queue("b", weight=5, request=30), queue("c", weight=8, request=4)]
        assert divide(8, claims) == [2, 2, 4]

    def test_q133_the_pot_of_a_round_is_fixed_before_it(self) -> None:
        claims = [queue("a", weight=1), queue("b", weight=1), queue("c", weight=2)]
        assert divide(8, claims) == [2, 2, 4]

    def test_q134_no_weight_no_surplus(self) -> None:
        assert divide(10, [queue("a", weight=0), queue("b", quota=2, weight=0)]) == [0, 2]
        assert divide(10, [queue("a", weight=0), queue("b", request=3)]) == [0, 3]

    def test_q134_no_weight_no_remainder(self) -> None:
        assert divide(3, [queue("a", weight=0), queue("b"), queue("c")], k=0) == [0, 2, 1]

    def test_q135_a_queue_that_gets_less_than_it_wants_gets_whole_units(self) -> None:
        # 2.75 and 8.25; the unit left over goes to the larger fraction.
        assert divide(11, [queue("a", weight=1), queue("b", weight=3)], k=0) == [3, 8]

    def test_q135_less_than_a_unit_is_nothing(self) -> None:
        assert divide(1.5, [queue("a"), queue("b")], k=0) == [1, 0.5]

    def test_q135_a_want_below_the_share_is_granted_exactly(self) -> None:
        assert divide(10, [queue("a", request=1.25), queue("b", request=2.5)]) == [1.25, 2.5]

    def test_q135_a_want_equal_to_the_share_is_granted_exactly(self) -> None:
        assert divide(3, [queue("a", request=1.5), queue("b", request=1.5)]) == [1.5, 1.5]

    def test_a_want_that_rounding_left_open_is_granted_in_the_next_round(self) -> None:
        # 0.2 + (0.9 - 0.2) is 0.8999999999999999.
        assert divide(10, [queue("a", quota=0.2, request=0.9)]) == [0.9]


class TestRemainders:
    def test_q136_largest_fraction_first(self) -> None:
        # 1.75 and 5.25
        assert divide(7, [queue("a", weight=3, created=1), queue("b", weight=1, created=0)], k=0) == [5, 2]

    def test_q136_one_unit_each(self) -> None:
        # 1.6 each
        assert divide(8, [queue(name) for name in "abcde"], k=0) == [2, 2, 2, 1, 1]

    def test_q136_ties_to_the_older(self) -> None:
        assert divide(5, [queue("a", created=2), queue("b", created=1)], k=0) == [2, 3]

    def test_q136_ties_of_one_age_to_the_smaller_name(self) -> None:
        assert divide(5, [queue("b"), queue("a")], k=0) == [2, 3]

    def test_q136_what_is_left_if_less_than_a_unit(self) -> None:
        assert divide(2.5, [queue("a"), queue("b")], k=0) == [1.5, 1]
        assert divide(3.5, [queue("a"), queue("b")], k=0) == [2, 1.5]

    def test_q136_higher_priority_first(self) -> None:
        # 0.5 each in either bucket, so no queue gets anything before the remainders.
        claims = [queue("c", priority=1), queue("d", priority=1), queue("a", priority=2), queue("b", priority=2)]
        assert divide(1, claims, k=0) == [0, 0, 1, 0]

    def test_q136_the_last_round_decides_the_fraction(self) -> None:
        # Round 1 (pot 3): c 0.375, b 1.125, a 1.5; round 2 (pot 1): c 0.25, b 0.75.
        claims = [queue("c", weight=1), queue("b", weight=3), queue("a", weight=4, request=1)]
        assert divide(3, claims, k=0) == [0, 2, 1]

    def test_q136_a_satisfied_queue_has_no_fraction_any_more(self) -> None:
        # Round 1 (pot 7): a 2.33 of which it gets 2, b its 1.  Round 2: a gets the 4 it wants.
        claims = [queue("a", quota=2, weight=1, request=6), queue("b", quota=1, weight=2, limit=3, created=1)]
        assert divide(10, claims, k=0) == [6, 3]

    def test_q141_gifts_ignore_the_want(self) -> None:
        assert divide(1, [queue("a", request=0.6), queue("b", request=0.6)]) == [1, 0]

    def test_q141_gifts_ignore_the_limit(self) -> None:
        assert divide(1, [queue("a", limit=0.7), queue("b")]) == [1, 0]

    def test_q142_fractions_of_a_high_bucket_leak_into_a_lower_one(self) -> None:
        claims = [queue("a", quota=2, priority=2), queue("b", quota=2, priority=2), queue("c", priority=1)]
        assert divide(5, claims) == [2, 2, 1]

    def test_q143_a_fraction_outlives_a_later_integral_share(self) -> None:
        # Round 1 (pot 2.5): b 0.42, c 0.83, a takes its 1.  Round 2 (pot 1.5): b 0.5, c exactly 1; c keeps its 0.83.
        claims = [
            queue("b", quota=1, limit=2, weight=1),
            queue("c", weight=2),
            queue("a", limit=1, weight=3, created=1),
        ]
        assert divide(3.5, claims, k=0) == [1, 1.5, 1]


class TestUsage:
    def test_q138_usage_leaves_the_guaranteed_part_alone(self) -> None:
        assert divide(10, [queue("a", quota=6, usage=1), queue("b")], k=10) == [6, 4]

    def test_q138_usage_does_not_reach_across_buckets(self) -> None:
        assert divide(10, [queue("a", priority=2, usage=1), queue("b", priority=1)], k=10) == [10, 0]

    @pytest.mark.parametrize("k", [0, 1, 3, 1000])
    def test_q138_without_usage_k_is_ignored(self, k: float) -> None:
        claims = [queue("a", quota=1, weight=3), queue("b", weight=2), queue("c", request=2.5)]
        assert divide(17, claims, k=k) == divide(17, claims, k=0) == [9.5, 5, 2.5]

    def test_q140_the_order_of_the_input_does_not_matter(self) -> None:
        claims = [
            queue("a", weight=0.1, quota=0.7, request=5.3, created=3, usage=0.1),
            queue("b", weight=0.3, quota=0.1, request=2.9, created=1, usage=0.3),
            queue("c", weight=0.7, quota=0.2, request=8.1, created=1),
            queue("d", weight=0.1, quota=0.3, request=0.4, created=2),
        ]
        shares = {claim.name: share for claim, share in zip(claims, divide(9.7, claims), strict=True)}
        for permuted in permutations(claims):
            assert divide(9.7, permuted) == [shares[claim.name] for claim in permuted]

    def test_q140_siblings_go_by_age_then_name(self) -> None:
        claims = [queue("a", created=2), queue("c", created=1), queue("b", created=1)]
        assert divide(1, claims) == [0, 0, 1]

    @pytest.mark.parametrize("usage", [nan, inf, -inf, -1.0])
    def test_q144_invalid_usage_counts_as_none(self, usage: float) -> None:
        assert divide(8, [queue("a", usage=usage), queue("b")]) == [4, 4]

    def test_q144_if_all_used_too_much_the_round_ignores_usage(self) -> None:
        assert divide(8, [queue("a", weight=1, usage=5), queue("b", weight=3, usage=5)]) == [2, 6]

    def test_q144_only_that_round_ignores_usage(self) -> None:
        # Round 1: every weight is reduced to 0, so 4 each; a needs 1.  Round 2 (pot 3): only c's weight is above 0.
        claims = [queue("a", request=1, usage=9), queue("b", usage=1.2), queue("c", usage=0.7)]
        assert divide(12, claims, k=1) == [1, 4, 7]

    def test_q346_k_scales_the_distance_of_usage_from_weight(self) -> None:
        # n = 0.25 and 0.75, so s = 0.25 + 2 (0.25 - 0.125) = 0.5 and 0.75 + 2 (0.75 - 0.875) = 0.5.
        claims = [queue("a", weight=1, usage=0.125), queue("b", weight=3, usage=0.875)]
        assert divide(8, claims, k=2) == [4, 4]

    @pytest.mark.parametrize("k", [0.0, -1.0, -inf, inf, nan])
    def test_q346_k_below_zero_or_no_number_switches_usage_off(self, k: float) -> None:
        assert divide(16, [queue("a", usage=0.5), queue("b")], k=k) == [8, 8]

    def test_q346_k_is_one_by_default(self) -> None:
        claims = [queue("a", usage=0.5), queue("b")]
        assert divide(16, claims) == [5, 11]

    def test_q347_usage_leaves_limits_alone(self) -> None:
        assert divide(16, [queue("a", usage=1), queue("b", limit=4)]) == [12, 4]

    def test_q348_a_queue_bent_to_nothing_gets_what_the_others_leave(self) -> None:
        assert divide(16, [queue("a", usage=1), queue("b", request=10)]) == [6, 10]
        assert divide(16, [queue("a", usage=1), queue("b")]) == [0, 16]


class TestNumbersOutOfRange:
    @pytest.mark.parametrize("weight", [-1.0, -inf, inf, nan])
    def test_weight(self, weight: float) -> None:
        assert divide(10, [queue("a", weight=weight), queue("b", request=4)]) == [0, 4]

    @pytest.mark.parametrize("quota", [-5.0, -inf, nan])
    def test_quota(self, quota: float) -> None:
        assert divide(10, [queue("a", quota=quota, weight=0), queue("b")]) == [0, 10]

    @pytest.mark.parametrize("limit", [-5.0, -inf, nan])
    def test_limit(self, limit: float) -> None:
        assert divide(10, [queue("a", quota=2, limit=limit), queue("b")]) == [0, 10]

    @pytest.mark.parametrize("request_", [-5.0, -inf, nan])
    def test_request(self, request_: float) -> None:
        assert divide(10, [queue("a", quota=2, request=request_), queue("b")]) == [0, 10]

    @pytest.mark.parametrize("total", [-5.0, -inf, nan])
    def test_pool(self, total: float) -> None:
        assert divide(total, [queue("a", quota=2), queue("b", quota=inf), queue("c")]) == [2, 0, 0]

    def test_a_pool_without_bound_meets_every_want(self) -> None:
        assert divide(inf, [queue("a", request=5), queue("b", limit=7, weight=3), queue("c", weight=0)]) == [5, 7, 0]

    def test_all_without_bound(self) -> None:
        shares = divide(inf, [queue("a", quota=inf, request=inf), queue("b", request=inf)])
        assert 1e300 < shares[0] < inf
        assert shares[1] == 0

    def test_request_without_bound(self) -> None:
        assert divide(10, [queue("a", request=inf), queue("b", request=inf)]) == [5, 5]

    def test_weights_whose_sum_is_not_finite(self) -> None:
        assert divide(10, [queue("a", weight=1.7e308), queue("b", weight=1.7e308, quota=1)]) == [0, 1]

    def test_whole_numbers_come_out_as_floats(self) -> None:
        claims = [queue("a", quota=1, weight=0), queue("b", weight=0), queue("c")]
        assert all(type(share) is float for share in divide(7, claims))

    def test_whole_numbers_that_float64_cannot_hold(self) -> None:
        assert divide(1e17, [queue("a", request=2**53 + 1)]) == [2.0**53]


class TestBits:
    """Floating point, where the order of operations decides (queues:20)."""

    def test_the_weight_is_normalised_before_it_meets_the_pot(self) -> None:
        claims = [
            queue("c", quota=0.1, weight=7, request=8, priority=1, usage=1),
            queue("a", quota=0.5, limit=0.3, weight=0.2, request=0.2, priority=1, created=1),
            queue("b", quota=0.5, weight=1, request=0.7, priority=0, usage=0.25),
        ]
        assert divide(2, claims, k=0.5) == [1.1, 0.2, 0.7]

    def test_sums_are_added_one_by_one(self) -> None:
        # 1/3 + 1/2 + 1/6 is just below 1 that way, so d is entitled to just above its want and another round follows.
        claims = [
            queue("b", quota=2, limit=4, weight=1, request=3, created=1),
            queue("a", weight=2, request=5),
            queue("d", quota=2, limit=5, weight=3, request=4),
        ]
        assert divide(8, claims, k=0) == [2, 2, 4]

    def test_a_round_is_finished_although_rounding_took_the_rest_below_zero(self) -> None:
        claims = [queue("a", weight=5, request=2e17), queue("b", weight=7, request=2e17)]
        claims.append(queue("c", weight=7e-16, request=1))
        shares = divide(2e17, claims, k=0)
        assert 2e17 - shares[0] - shares[1] < 0
        assert shares[2] == 1

    def test_a_rest_below_zero_is_not_taken_back(self) -> None:
        claims = [queue("a", weight=0.1, request=3e16), queue("b", quota=0.2, weight=5, request=3e16)]
        assert divide(3e16, claims, k=0) == [588235294117647.0, 29411764705882356.0]


class TestStrictRemainders:
    def test_q141_gifts_end_at_the_want(self) -> None:
        claims = [queue("a", request=0.6), queue("b", request=0.6)]
        assert divide(1, claims, strict_remainders=True) == [0.6, 0.4]

    def test_q141_gifts_end_at_the_limit(self) -> None:
        assert divide(1, [queue("a", limit=0.7), queue("b")], strict_remainders=True) == pytest.approx([0.7, 0.3])

    def test_q142_a_bucket_keeps_its_fractions(self) -> None:
        claims = [queue("a", quota=2, priority=2), queue("b", quota=2, priority=2), queue("c", priority=1)]
        assert divide(5, claims, strict_remainders=True) == [3, 2, 0]

    def test_q142_the_next_bucket_gets_what_the_first_cannot_use(self) -> None:
        claims = [
            queue("a", request=0.5, priority=2),
            queue("b", request=0.75, priority=2),
            queue("c", priority=1),
        ]
        assert divide(4, claims, strict_remainders=True) == [0.5, 0.75, 2.75]

    def test_a_gift_is_still_one_unit_at_most(self) -> None:
        assert divide(5, [queue("a"), queue("b")], strict_remainders=True) == [3, 2]

    def test_not_even_one_bit_above_the_request(self) -> None:
        # 0.3 + (0.9 - 0.3) is 0.9000000000000001.
        claims = [queue("a", quota=0.3, request=0.9)]
        assert divide(5, claims) == [0.9000000000000001]
        assert divide(5, claims, strict_remainders=True) == [0.9]

    def test_strict_remainders_are_off_by_default(self) -> None:
        claims = [queue("a", request=0.6), queue("b", request=0.6)]
        assert divide(1, claims) == [1, 0]


def _alike(*requests: float, quota: float = 0.0) -> list[QueueDemand]:
    return [QueueDemand(f"q{at}", at, 0, quota, inf, 1.0, request) for at, request in enumerate(requests)]


def test_q133_one_queue_that_leaves_something_is_enough_for_another_round() -> None:
    """queues:Q-133: the second takes exactly its part, and the third gets what the first leaves."""
    assert divide(9, _alike(1, 3, 10)) == [1, 3, 5]


def test_strict_gifts_end_at_what_a_queue_can_still_use() -> None:
    """queues:8, Do better: the share from its quota counts."""
    assert divide(2.2, _alike(1.15, 1.15, quota=1), strict_remainders=True) == pytest.approx([1.15, 1.05])


def test_without_a_plugin_shares_are_divided_as_upstream_does() -> None:
    """queues:8, Do better: strict remainders are a choice."""
    assert FairShareSettings() == FairShareSettings(k_value=1.0, strict_remainders=False)
