"""Claims in eviction, moving and undo: devices follow their claims, claims their users (gpu:D-7, D-11, D-16, T-93)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.cycle import validate
from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.cycle.journal import Grant
from pykai.core.ledgers.claims.ledger import ClaimLedger
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, allocation_of, cluster
from tests.core.deviceclusters import device_request, devices


def ranked(world: Cluster) -> Cluster:
    return world.queue("q").priority_class("low", 50).priority_class("high", 75)


def test_a_preemptor_gets_the_device_of_its_victim_gpu_d7() -> None:
    world = ranked(devices(nodes=2, each=1))
    for number in range(2):
        world.gang(f"old-{number}", on=f"node-{number}", template=1, given=("gpu-0",), priority="low")
    result = world.gang("a", template=1, priority="high").with_actions("preempt").schedule()
    (victim,) = result.plan.evictions
    assert result.allocated_devices("a-0") == {"devices": [f"{victim.node}/gpu-0"]}
    assert result.pipelined("a") == 1


def test_reclaim_takes_devices_back_from_a_queue_over_its_share_gpu_d7() -> None:
    world = devices(nodes=1, each=4).queue("p", quota=2).queue("q", quota=2)
    for number in range(4):
        world.gang(f"old-{number}", on="node-0", template=1, given=(f"gpu-{number}",), queue="p")
    result = world.gang("a", 2, template=1).with_actions("reclaim").schedule()
    assert len(result.plan.evictions) == 2
    taken = sorted(device for n in range(2) for device in result.allocated_devices(f"a-{n}")["devices"])
    assert taken == sorted(f"node-0/gpu-{item.pod.split('-')[1]}" for item in result.plan.evictions)


def test_no_more_victims_than_devices_are_missing_gpu_d7() -> None:
    world = ranked(devices(nodes=1, each=4))
    for number in range(3):
        world.gang(f"old-{number}", on="node-0", template=1, given=(f"gpu-{number}",), priority="low")
    result = world.gang("a", template=2, priority="high").with_actions("preempt").schedule()
    assert len(result.plan.evictions) == 1


def test_a_victim_that_stays_keeps_its_very_devices() -> None:
    """Only one pod of the gang has what the preemptor needs; the others stay."""
    world = ranked(devices(nodes=1, each=2, cpu=3))
    world.gang("old", 2, min=1, on="node-0", template=1, priority="low")
    claims = [raw for raw in world.objects if raw["kind"] == "ResourceClaim"]
    for number, raw in enumerate(claims):
        raw["status"] = {
            "allocation": allocation_of("node-0", f"gpu-{number}"),
            "reservedFor": [{"resource": "pods", "uid": f"old-{number}"}],
        }
    result = world.gang("a", cpu=2, priority="high").with_actions("preempt").schedule()
    assert len(result.plan.evictions) == 1


def test_consolidation_moves_a_pod_and_its_template_claims_new_devices() -> None:
    world = devices(nodes=2, each=2).queue("q")
    for number in range(2):
        world.gang(f"old-{number}", on=f"node-{number}", template=1, given=("gpu-0",))
    result = world.gang("a", template=2).with_actions("consolidation").schedule()
    (victim,) = result.plan.evictions
    assert victim.moves_to not in ("", victim.node)
    assert result.allocated_devices(victim.pod) == {"devices": [f"{victim.moves_to}/gpu-1"]}
    assert result.allocated_devices("a-0") == {"devices": [f"{victim.node}/gpu-0", f"{victim.node}/gpu-1"]}


def test_a_pod_whose_shared_claim_has_other_users_cannot_be_moved_away_from_it() -> None:
    world = (
        devices(nodes=2, each=2)
        .queue("q")
        .device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=("old-0", "ghost"))
    )
    world.gang("old", on="node-0", shares=("c",)).gang("more", on="node-1", template=1, given=("gpu-0",))
    result = world.gang("a", template=2).with_actions("consolidation").schedule()
    assert "old-0" not in result.evicted_pods()


def test_the_devices_of_a_shared_claim_are_free_only_when_all_its_users_go() -> None:
    for users, victims in ((1, 1), (2, 2)):
        world = ranked(devices(nodes=1, each=1))
        names = tuple(f"old{n}-0" for n in range(users))
        world.device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=names)
        for number in range(users):
            world.gang(f"old{number}", on="node-0", shares=("c",), priority="low")
        result = world.gang("a", template=1, priority="high").with_actions("preempt").schedule()
        assert len(result.plan.evictions) == victims
        assert result.allocated_devices("a-0") == {"devices": ["node-0/gpu-0"]}


def test_a_claim_reserved_for_an_unknown_pod_is_never_freed() -> None:
    world = ranked(devices(nodes=1, each=1))
    world.device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=("old-0", "ghost"))
    world.gang("old", on="node-0", shares=("c",), priority="low")
    result = world.gang("a", template=1, priority="high").with_actions("preempt").schedule()
    assert not result.plan.evictions


def test_a_reservation_for_a_pod_that_does_not_name_the_claim_holds_it() -> None:
    """Even when that pod is known and has claims of its own."""
    world = ranked(devices(nodes=1, each=2))
    world.gang("other", on="node-0", template=1, given=("gpu-1",), preemptible=False)
    world.device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=("old-0", "other-0"))
    world.gang("old", on="node-0", shares=("c",), priority="low")
    result = world.gang("a", template=1, priority="high").with_actions("preempt").schedule()
    assert not result.plan.evictions


def test_a_preemptor_that_shares_the_claim_of_its_victim_takes_its_devices_over() -> None:
    world = ranked(devices(nodes=2, each=1, cpu=1))
    world.device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=("old-0",))
    world.gang("old", on="node-0", shares=("c",), priority="low")
    result = world.gang("a", shares=("c",), priority="high").with_actions("preempt").schedule()
    assert result.evicted_pods() == ["old-0"]
    assert (result.node_of("a-0"), result.allocated_devices("a-0")) == ("node-0", {"c": ["node-0/gpu-0"]})


def test_a_binding_pod_releases_the_devices_of_its_bind_request_gpu_t93() -> None:
    world = ranked(devices(nodes=1, each=1)).gang("old", template=1, priority="low")
    world.bind_request("old-0", "node-0", claims={"devices": allocation_of("node-0", "gpu-0")})
    result = world.gang("a", template=1, priority="high").with_actions("preempt").schedule()
    assert result.evicted_pods() == ["old-0"]
    assert result.allocated_devices("a-0") == {"devices": ["node-0/gpu-0"]}


def test_gangs_with_claims_are_placed_by_moving_and_evicting_together() -> None:
    world = devices(nodes=3, each=2).queue("p", quota=0).queue("q", quota=6)
    for number in range(3):
        world.gang(f"old-{number}", on=f"node-{number}", template=1, given=("gpu-1",), queue="p")
    result = world.gang("a", 3, template=2).with_actions("reclaim").schedule()
    assert result.pipelined("a") == 3
    assert len(result.plan.evictions) == 3


def test_a_device_that_all_nodes_reach_is_freed_on_one_and_nominated_on_another_gpu_d10() -> None:
    """What a victim releases on its node changes what other nodes can allocate."""
    world = ranked(cluster().device_class("gpu").slice("", 1, pool="net", allNodes=True))
    world.node(cpu=2, labels={"kind": "small"}).node(labels={"kind": "large"})
    world.gang("old", on="node-0", template=1, given=("net/gpu-0",), priority="low")
    claim = next(raw for raw in world.objects if raw["kind"] == "ResourceClaim")
    del claim["status"]["allocation"]["nodeSelector"]
    world.gang("a", template=1, cpu=9, priority="high", spec={"nodeSelector": {"kind": "large"}})
    result = world.with_actions("allocate", "preempt").schedule()
    assert result.evicted_pods() == ["old-0"]
    assert (result.node_of("a-0"), result.allocated_devices("a-0")) == ("node-1", {"devices": ["net/gpu-0"]})


def test_the_column_of_gpus_follows_the_devices_gpu_d7() -> None:
    """Idle, releasing, free, used: like any other column, a device at a time."""
    cycle = devices(nodes=1, each=2).queue("q").gang("x", on="node-0", template=1, given=("gpu-0",)).cycle()
    (books,) = (book for book in cycle.state.discrete_ledgers if isinstance(book, ClaimLedger))
    column = cycle.state.columns[:, cycle.context.snapshot.axes.index["resource.k8s.io/gpu"], 0]
    holdings = books._holdings
    assert column.tolist() == [1, 0, 1, 1]
    holdings.change([0], (1, 0, 0), (0, 1, 0))
    assert column.tolist() == [1, 1, 2, 1]
    holdings.change([0], (0, 0, 0), (0, 0, 1))
    assert column.tolist() == [1, 0, 1, 1]
    holdings.change([1], (0, 0, 0), (0, 0, 1))
    assert column.tolist() == [1, -1, 0, 2]
    holdings.change([0], (0, 1, 0), (0, 0, 0))
    holdings.change([0], (0, 0, 1), (1, 0, 0))
    holdings.change([1], (0, 0, 1), (0, 0, 0))
    assert column.tolist() == [1, 0, 1, 1]


def test_a_job_that_differs_only_in_what_it_claims_is_tried_on_its_own_cycle_sig4() -> None:
    world = ranked(devices(nodes=1, each=2))
    world.slice("node-0", 1, driver="odd.example.com").device_class("rare", 'device.driver == "odd.example.com"')
    world.gang("keeper", on="node-0", template=[device_request(1, "rare")], preemptible=False)
    claim = next(raw for raw in world.objects if raw["metadata"]["name"] == "keeper-0-devices")
    claim["status"] = {"allocation": allocation_of("node-0", "gpu-0", driver="odd.example.com")}
    world.gang("old", on="node-0", template=2, given=("gpu-0", "gpu-1"), priority="low")
    world.gang("x", template=[device_request(1, "rare")], priority="high", age=2e6).gang(
        "a", template=1, priority="high"
    )
    result = world.with_actions("allocate", "preempt").schedule()
    assert result.evicted_pods() == ["old-0"]
    assert (result.pipelined("x"), result.pipelined("a")) == (0, 1)


# Undo (gpu:T-93)


def said(cycle: Cycle) -> Any:
    """All figures of ledgers and columns."""
    (books,) = (book for book in cycle.state.discrete_ledgers if isinstance(book, ClaimLedger))
    claims = {key: (c.users[:], c.allocation) for key, c in books._claims.items() if c.allocation is not None}
    return claims, books._holdings.busy.tolist(), books._holdings.promised.tolist(), cycle.state.columns.tolist()


def gang_of(cycle: Cycle, pod: str) -> tuple[Gang, LeafState, Task]:
    task = cycle.context.snapshot.task_records[f"default/{pod}"]
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[task.group_key])
    return gang, gang.leaves[0], task


@pytest.mark.parametrize(
    "claims",
    [
        {"template": 1},
        {"template": [device_request(1), device_request(1, name="s")]},
        {"shares": ("c",)},
        {"shares": ("c", "d"), "template": 1},
    ],
    ids=["one", "many", "shared", "all"],
)
def test_placing_is_undone_exactly_gpu_t93(claims: dict[str, Any]) -> None:
    world = devices(nodes=2, each=4).queue("q").device_claim("c", queue="q").device_claim("d", queue="q")
    cycle = world.gang("a", 2, **claims).cycle()
    before = said(cycle)
    gang, _, _ = gang_of(cycle, "a-0")
    assert cycle.placer.place_gang(gang)
    assert said(cycle) != before
    validate.check_state(cycle.state, cycle.gangs)
    cycle.state.rollback(0)
    assert said(cycle) == before


def eviction_world() -> Cluster:
    world = devices(nodes=2, each=2).queue("q")
    world.device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=("x-0", "y-0"))
    world.gang("x", on="node-0", shares=("c",), template=1, given=("gpu-1",)).gang("y", on="node-0", shares=("c",))
    return world.gang("z", template=1)


def test_evicting_is_undone_exactly_and_a_shared_claim_keeps_its_devices_gpu_t93() -> None:
    cycle = eviction_world().cycle()
    before = said(cycle)
    state = cycle.state
    gang, leaf, task = gang_of(cycle, "x-0")
    state.evict(gang, leaf, task)
    claims = said(cycle)[0]
    assert claims["default/c"][0] == [1, 1, 0]
    assert claims["default/x-0-devices"][0] == [0, 1, 0]
    state.assume_gone(gang, leaf, task)
    claims = said(cycle)[0]
    assert "default/x-0-devices" not in claims
    assert claims["default/c"][0] == [1, 0, 0]
    validate._check_nodes(cycle.state)
    validate._check_discrete_ledgers(cycle.state)
    state.rollback(0)
    assert said(cycle) == before
    validate.check_state(cycle.state, cycle.gangs)


def test_a_claim_of_which_one_user_stays_holds_its_devices_live_gpu_d11() -> None:
    cycle = eviction_world().cycle()
    gang, leaf, task = gang_of(cycle, "x-0")
    cycle.state.evict(gang, leaf, task)
    (books,) = (book for book in cycle.state.discrete_ledgers if isinstance(book, ClaimLedger))
    assert books._claims["default/c"].hold_state == (1, 0, 0)
    assert books._claims["default/x-0-devices"].hold_state == (0, 1, 0)


def test_a_claim_that_gets_its_devices_back_has_an_equal_allocation_gpu_d11() -> None:
    """Undo goes by way of a claim without devices: what the API server wrote is found again."""
    cycle = eviction_world().cycle()
    state = cycle.state
    (books,) = (book for book in state.discrete_ledgers if isinstance(book, ClaimLedger))
    claim = books._claims["default/x-0-devices"]
    written = claim.result
    assert written is not None
    gang, leaf, task = gang_of(cycle, "x-0")
    state.evict(gang, leaf, task)
    state.assume_gone(gang, leaf, task)
    assert claim.result is None
    state.rollback(0)
    assert claim.result is written


def test_a_pipelined_device_is_not_given_to_a_pod_that_starts_now_gpu_d7() -> None:
    cycle = devices(nodes=1, each=2).queue("q").gang("z", template=1).cycle()
    (books,) = (book for book in cycle.state.discrete_ledgers if isinstance(book, ClaimLedger))
    books._holdings.change([0], (0, 0, 0), (0, 0, 1))
    assert books._holdings.busy.tolist() == [True, False]
    assert books._holdings.promised.tolist() == [True, False]


def test_when_the_last_user_is_gone_the_claim_gets_other_devices() -> None:
    """In a trial a shared claim without users is allocated again, and undo restores the old devices (gpu:D-11)."""
    cycle = eviction_world().cycle()
    before = said(cycle)
    state = cycle.state
    for pod in ("x-0", "y-0"):
        gang, leaf, task = gang_of(cycle, pod)
        state.evict(gang, leaf, task)
        state.assume_gone(gang, leaf, task)
    assert "default/c" not in said(cycle)[0]
    gang, leaf, task = gang_of(cycle, "y-0")
    ask = type("AskLike", (), {"task": task, "shape": task.shape})()
    (books,) = (book for book in state.discrete_ledgers if isinstance(book, ClaimLedger))
    content: Any = books.grant(state, ask, 1, idle=True)
    assert [books.inventory.ids[d].pool for d in content[0].allocation.exclusive_devices] == ["node-1"]
    state.rollback(0)
    assert said(cycle) == before


def test_a_victim_may_keep_its_devices_until_they_are_pipelined_gpu_d11() -> None:
    cycle = eviction_world().cycle()
    state = cycle.state
    gang, leaf, task = gang_of(cycle, "x-0")
    (held,) = state.placement_of(task).grants
    state.evict(gang, leaf, task)
    ask: Any = type("AskLike", (), {"task": task, "shape": task.shape})()
    (books,) = (book for book in state.discrete_ledgers if isinstance(book, ClaimLedger))
    assert books.grant(state, ask, 0, idle=False) == held.allocation
    other, leaf, rival = gang_of(cycle, "z-0")
    content = books.grant(state, type("AskLike", (), {"task": rival, "shape": rival.shape})(), 0, idle=False)
    state.place(other, leaf, rival, 0, (), (Grant(books, content),), pipelined=True)
    assert books.grant(state, ask, 0, idle=False) != held.allocation
    state.rollback(0)


def test_an_undone_eviction_restores_the_ledgers_gpu_t93() -> None:
    cycle = eviction_world().cycle()
    before = said(cycle)
    gang, leaf, task = gang_of(cycle, "x-0")
    cycle.state.evict(gang, leaf, task)
    cycle.state.cancel_eviction(gang, leaf, task)
    assert said(cycle) == before
    assert cycle.state.status_of(task) is TaskStatus.RUNNING
    validate.check_state(cycle.state, cycle.gangs)


def test_a_corrupted_ledger_is_noticed() -> None:
    """The validation of cycles can fail: every figure is compared with what the tasks hold."""

    def broken(how: Any) -> bool:
        cycle = eviction_world().cycle()
        (books,) = (book for book in cycle.state.discrete_ledgers if isinstance(book, ClaimLedger))
        how(books)
        try:
            validate.check_state(cycle.state, cycle.gangs)
        except validate.StateMismatch:
            return True
        return False

    assert not broken(lambda books: None)
    assert broken(lambda books: books._holdings.busy.__setitem__(3, True))
    assert broken(lambda books: books._holdings.promised.__setitem__(0, False))
    assert broken(lambda books: books._holdings._live.__setitem__(0, 2))
    assert broken(lambda books: books._claims["default/c"].users.__setitem__(0, 1))
    assert broken(lambda books: setattr(books._claims["default/c"], "allocation", None))
    assert broken(lambda books: books._snapshot.columns[0].__isub__(1))
    assert broken(lambda books: books._claims.pop("default/c"))


def test_a_device_given_to_two_claims_is_noticed() -> None:
    cycle = eviction_world().cycle()
    (books,) = (book for book in cycle.state.discrete_ledgers if isinstance(book, ClaimLedger))
    holdings = books._holdings
    before: list[Any] = [([0, 1], (1, 0, 0))]
    assert holdings.matches(holdings.sum_holders(before))
    holdings.change([0], (0, 0, 0), (0, 0, 1))
    assert not holdings.matches(holdings.sum_holders([*before, ([0], (0, 0, 1))]))
