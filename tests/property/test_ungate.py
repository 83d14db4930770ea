"""However queues and groups are: what is admitted fits every queue above it, gangs are admitted whole, and in order.

What queues hold is added up here from the pods that were drawn (queues:Q-406, Q-407).
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.core.builders import Cluster, Result, cluster, timestamp_before

GATE = "kai.scheduler/queue-admission"
ADMITTED = "kai.scheduler/queue-admitted-timestamp"
PARENTS = {"root": "", "left": "root", "right": "root", "a": "left", "b": "left", "c": "right"}
LEAVES = ("a", "b", "c")
BOUNDS = st.sampled_from((-1, 0, 1, 2, 3, 5, 8))


@dataclass(frozen=True)
class Drawn:
    """A group: how many of its pods run, were admitted and wait, wait behind the gate, and behind a foreign one."""

    queue: str
    gpus: int
    minimum: int
    preemptible: bool
    running: int
    waiting: int
    held: int
    foreign: int

    @property
    def ungated(self) -> int:
        return self.running + self.waiting


GROUPS = st.builds(
    Drawn,
    st.sampled_from(LEAVES),
    st.integers(1, 2),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 4),
    st.integers(0, 1),
)
Bounds = dict[str, tuple[int, int]]


def built(groups: list[Drawn], bounds: Bounds) -> Cluster:
    made = cluster(nodes=1, gpus=16)
    for name, parent in PARENTS.items():
        quota, limit = bounds[name]
        made.queue(name, parent=parent, quota=quota, limit=limit, admissionGating=True)
    for index, drawn in enumerate(groups):
        name = f"g{index}"
        kind = "preemptible" if drawn.preemptible else "non-preemptible"
        made.group(name, queue=drawn.queue, minMember=drawn.minimum, preemptibility=kind)
        states = ["running"] * drawn.running + ["waiting"] * drawn.waiting + ["held"] * drawn.held
        for number, state in enumerate(states + ["foreign"] * drawn.foreign):
            gates = {"held": [GATE], "foreign": [GATE, "example.com/later"]}.get(state, [])
            made.pod(
                f"{name}-{number}-{state}",
                group=name,
                gpu=drawn.gpus,
                on="node-0" if state == "running" else "",
                annotations={ADMITTED: timestamp_before(5)} if state == "waiting" else None,
                spec={"schedulingGates": [{"name": gate} for gate in gates]} if gates else None,
            )
    # Without allocate nothing but this action decides.
    return made.with_policy(actions=("ungate",), admission_reservation_ns=600 * 10**9)


def admitted(result: Result) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for item in result.plan.ungates or ():
        found.setdefault(int(item.group.rpartition("/g")[2]), []).append(item.pod)
    return found


def chain(queue: str) -> list[str]:
    return [queue, *chain(PARENTS[queue])] if queue else []


def over_bounds(groups: list[Drawn], new: dict[int, list[str]], bounds: Bounds) -> list[str]:
    """Queues that took something in beyond their quota or limit."""
    wrong = []
    for queue, (quota, limit) in bounds.items():
        below = [(index, drawn) for index, drawn in enumerate(groups) if queue in chain(drawn.queue)]
        for bound, counted in (
            (limit, below),
            (quota, [(index, drawn) for index, drawn in below if not drawn.preemptible]),
        ):
            added = sum(drawn.gpus * len(new.get(index, ())) for index, drawn in counted)
            held = sum(drawn.gpus * drawn.ungated for _, drawn in counted)
            if added and bound >= 0 and held + added > bound:
                wrong.append(f"{queue}: {held} + {added} of {bound}")
    return wrong


@settings(max_examples=60)
@given(
    st.lists(GROUPS, min_size=1, max_size=6), st.fixed_dictionaries(dict.fromkeys(PARENTS, st.tuples(BOUNDS, BOUNDS)))
)
def test_no_queue_takes_in_more_than_it_may_and_no_gang_is_admitted_in_part(
    groups: list[Drawn], bounds: Bounds
) -> None:
    result = built(groups, bounds).schedule()
    new = admitted(result)
    note(f"{groups} {bounds} {new}")
    assert over_bounds(groups, new, bounds) == []
    for index, pods in new.items():
        assert all(pod.endswith("-held") for pod in pods)
        assert len(set(pods)) == len(pods)
        assert groups[index].ungated + len(pods) >= groups[index].minimum


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(0, 8))
def test_equal_groups_of_a_queue_are_admitted_in_order_of_age(queues: list[int], limit: int) -> None:
    groups = [Drawn(LEAVES[queue], 1, 1, True, 0, 0, 1, 0) for queue in queues]
    bounds = {name: (-1, limit if name == "root" else -1) for name in PARENTS}
    new = admitted(built(groups, bounds).schedule())
    assert len(new) == min(limit, len(groups))
    for name in LEAVES:
        own = [index for index, drawn in enumerate(groups) if drawn.queue == name]
        assert [index for index in own if index in new] == own[: sum(index in new for index in own)]
