"""Which scaling pods come and which go (gpu:SA-4, SA-7, T-120 to T-124)."""

from __future__ import annotations

import pytest

from pykai.core.model.shapes import GpuKind, GpuRequest
from pykai.nodescale.adjustment import ScalingPod, in_turn, to_create, unneeded
from pykai.nodescale.demand import UnschedulableShare, needed_gpus
from pykai.nodescale.scalingpod import back_reference


def share(
    name: str, portion: float = 0.5, devices: int = 1, *, namespace: str = "ns", since: int = 0
) -> UnschedulableShare:
    request = GpuRequest(GpuKind.FRACTION, devices, portion)
    return UnschedulableShare(namespace, name, f"uid-{name}", f"2026-01-01T00:00:{since:02}Z", request, 0, 0)


def scaling(name: str, gpus: int = 1, *, namespace: str = "ns", has_ended: bool = False) -> ScalingPod:
    return ScalingPod(f"s-{name}", f"uid-s-{name}", back_reference(namespace, name), gpus, has_ended)


def created(shares: list[UnschedulableShare], existing: list[ScalingPod], most: int = 100) -> list[tuple[str, int]]:
    chosen = to_create(shares, existing, needed_gpus(shares, [], 0.1), most)
    return [(each.name, each.request.devices) for each in chosen]


@pytest.mark.parametrize(
    ("shares", "existing", "expected"),
    [
        pytest.param([share("a", 0.7), share("b", 0.7), share("c", 0.1)], [scaling("a"), scaling("b")], [], id="T-120"),
        pytest.param([share("a", 0.7), share("b", 0.1)], [], [("a", 1)], id="T-122: one"),
        pytest.param([share("a", 0.7), share("b", 0.7)], [], [("a", 1), ("b", 1)], id="T-122: two"),
        pytest.param([share("a", 0.2, 2)], [], [("a", 2)], id="T-123: small"),
        pytest.param([share("a", 0.9, 2)], [], [("a", 2)], id="T-123: large"),
        pytest.param([share("a", 0.5, 2), share("b", 0.1, 2)], [], [("a", 2)], id="T-124: one is enough"),
        pytest.param([share("a", 0.5, 2), share("b", 0.8, 2)], [], [("a", 2), ("b", 2)], id="T-124: two"),
        pytest.param([share("a", 0.2, 2), share("b", 0.1, 3)], [], [("a", 2), ("b", 3)], id="T-124: one is too small"),
        pytest.param([share("a", 0.9), share("b", 0.9)], [scaling("a")], [("b", 1)], id="one has its own"),
        pytest.param([share("a", 0.9), share("b", 0.9)], [scaling("x", 8)], [], id="another's GPUs are enough"),
        pytest.param([share("a", 0.1, 3)], [scaling("x"), scaling("y", 4)], [], id="the largest is large enough"),
    ],
)
def test_scaling_pods_are_created_while_gpus_are_missing(
    shares: list[UnschedulableShare], existing: list[ScalingPod], expected: list[tuple[str, int]]
) -> None:
    assert created(shares, existing) == expected


def test_t121_a_scaling_pod_without_its_pod_is_not_needed() -> None:
    wanted = {back_reference("ns", "pod1")}
    assert unneeded([scaling("pod1"), scaling("pod2")], wanted) == [scaling("pod2")]


def test_a_scaling_pod_that_ended_is_not_needed() -> None:
    ended = scaling("a", has_ended=True)
    assert unneeded([ended], {back_reference("ns", "a")}) == [ended]


def test_there_are_never_more_than_allowed() -> None:
    shares = [share(str(number), 1.0) for number in range(10)]
    assert len(created(shares, [scaling("x")], most=4)) == 3


def test_namespaces_take_turns_oldest_first() -> None:
    crowd = [share(f"c{number}", namespace="crowd", since=number) for number in range(3)]
    late = share("late", namespace="other", since=50)
    assert [each.name for each in in_turn([late, *reversed(crowd)])] == ["c0", "late", "c1", "c2"]
