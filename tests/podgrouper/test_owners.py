"""The walk from a pod to its top owner (workloads:OW-1 to OW-6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from pykai.api.meta import OwnerReference
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden, NotFound, ServerError
from pykai.podgrouper.grouping import opts_out
from pykai.podgrouper.metadata import GroupingError, ObjectName, Owner
from pykai.podgrouper.owners import OwnerCache, find_owners
from tests.podgrouper.groupings import owner, pod


class FakeClock(Clock):
    """A clock that is set by hand."""

    def __init__(self) -> None:
        super().__init__(start=datetime(2026, 1, 1, tzinfo=UTC))
        self.at_s = 0.0

    def elapsed_s(self) -> float:
        return self.at_s


class Server:
    """Has some owners, may forbid or fail, and counts."""

    def __init__(self, *owners: Owner) -> None:
        self.objects = {(each.kind, each.metadata.name): each for each in owners}
        self.refusals: dict[str, Exception] = {}
        self.asked: list[str] = []

    async def fetch(self, which: ObjectName) -> Mapping[str, Any]:
        self.asked.append(which.name)
        if which.name in self.refusals:
            raise self.refusals[which.name]
        found = self.objects.get((which.kind, which.name))
        if found is None:
            raise NotFound(404)
        return {"metadata": msgspec.to_builtins(found.metadata), "spec": {"replicas": 3}}


TOP = owner("Top", "top", "t", api="x.io/v1")
MIDDLE = owner("Middle", "middle", "m", api="x.io/v1", by=TOP)
POD = pod(by=MIDDLE)


def memory(clock: Clock | None = None) -> OwnerCache:
    return OwnerCache(clock or FakeClock(), 60)


def nothing(_: ObjectName) -> Owner | None:
    return None


def names_of(owners: tuple[Owner, ...]) -> list[str]:
    return [each.metadata.name for each in owners]


async def test_a_pod_without_owners_is_its_own_top() -> None:
    server = Server()
    top, owners = await find_owners(pod("p", "pu"), nothing, server.fetch, memory())
    assert (top.kind, top.metadata.name, owners, server.asked) == ("Pod", "p", (), [])


async def test_the_chain_is_nearest_first_and_the_top_is_read_in_full() -> None:
    """workloads:OW-2, OW-6."""
    server = Server(TOP, MIDDLE)
    top, owners = await find_owners(POD, nothing, server.fetch, memory())
    assert names_of(owners) == ["middle", "top"]
    assert (top.kind, top.group, top.version, top.body["spec"]) == ("Top", "x.io", "v1", {"replicas": 3})


async def test_an_owner_of_another_uid_is_another_object() -> None:
    """workloads:T-29, OW-3."""
    server = Server(owner("Middle", "middle", "other"))
    with pytest.raises(GroupingError, match="Owner resource with uid m not found"):
        await find_owners(POD, nothing, server.fetch, memory())


async def test_an_owner_without_uid_is_refused() -> None:
    nameless = owner("Middle", "middle", "")
    with pytest.raises(GroupingError, match="Owner resource with uid  not found"):
        await find_owners(pod(by=nameless), nothing, Server(nameless).fetch, memory())


@pytest.mark.parametrize("failure", [NotFound(404, message="no such kind"), ServerError(500, message="down")])
async def test_an_owner_that_cannot_be_read_is_reported(failure: Exception) -> None:
    """workloads:OW-3."""
    server = Server(TOP, MIDDLE)
    server.refusals["top"] = failure
    with pytest.raises(GroupingError, match=r"failed to find Top: ns/top, uid: t: .*(no such kind|down)"):
        await find_owners(POD, nothing, server.fetch, memory())


async def test_an_owner_with_malformed_metadata_is_reported() -> None:
    async def fetch(which: ObjectName) -> Mapping[str, Any]:
        return {"metadata": {"name": which.name, "uid": "m", "labels": 7}}

    with pytest.raises(GroupingError, match=r"failed to find Middle.*metadata\.labels"):
        await find_owners(POD, nothing, fetch, memory())


async def test_where_reading_is_forbidden_the_climb_ends() -> None:
    """workloads:T-30, OW-4."""
    server = Server(TOP, MIDDLE)
    server.refusals["top"] = Forbidden(403)
    top, owners = await find_owners(POD, nothing, server.fetch, memory())
    assert (top.metadata.name, names_of(owners)) == ("middle", ["middle"])
    server.refusals["middle"] = Forbidden(403)
    top, owners = await find_owners(POD, nothing, server.fetch, memory())
    assert (top.kind, names_of(owners)) == ("Pod", [])


async def test_of_several_owners_the_controller_counts() -> None:
    """workloads:OW-2, Do better: KAI takes the first, whichever controls."""
    references = [
        OwnerReference(api_version="x.io/v1", kind="Middle", name="aside", uid="a"),
        OwnerReference(api_version="x.io/v1", kind="Middle", name="middle", uid="m", controller=True),
    ]
    one = msgspec.structs.replace(POD, metadata=msgspec.structs.replace(POD.metadata, owner_references=references))
    server = Server(TOP, MIDDLE, owner("Middle", "aside", "a", api="x.io/v1"))
    top, _ = await find_owners(one, nothing, server.fetch, memory())
    assert top.metadata.name == "top"
    plain = [msgspec.structs.replace(reference, controller=False) for reference in references]
    one = msgspec.structs.replace(POD, metadata=msgspec.structs.replace(POD.metadata, owner_references=plain))
    top, _ = await find_owners(one, nothing, server.fetch, memory())
    assert top.metadata.name == "aside"


async def test_an_owner_with_several_owners_is_no_error() -> None:
    """workloads:OW-5, Do better: KAI groups no pod of it."""
    references = [
        OwnerReference(api_version="x.io/v1", kind="Top", name="aside", uid="a"),
        OwnerReference(api_version="x.io/v1", kind="Top", name="top", uid="t", controller=True),
    ]
    shared = replace(MIDDLE, metadata=msgspec.structs.replace(MIDDLE.metadata, owner_references=references))
    server = Server(TOP, shared, owner("Top", "aside", "a", api="x.io/v1"))
    top, owners = await find_owners(POD, nothing, server.fetch, memory())
    assert (top.metadata.name, names_of(owners)) == ("top", ["middle", "top"])
    plain = [msgspec.structs.replace(reference, controller=False) for reference in references]
    shared = replace(MIDDLE, metadata=msgspec.structs.replace(MIDDLE.metadata, owner_references=plain))
    server = Server(TOP, shared, owner("Top", "aside", "a", api="x.io/v1"))
    top, _ = await find_owners(POD, nothing, server.fetch, memory())
    assert top.metadata.name == "aside"


async def test_an_owner_beyond_a_forbidden_one_cannot_opt_out() -> None:
    """workloads:EX-3: it is not read."""
    skipping = owner("Top", "top", "t", api="x.io/v1", annotations={"kai.scheduler/skip-podgrouper": "true"})
    server = Server(skipping, MIDDLE)
    _, owners = await find_owners(POD, nothing, server.fetch, memory())
    assert opts_out(owners)
    server.refusals["middle"] = Forbidden(403)
    _, owners = await find_owners(POD, nothing, server.fetch, memory())
    assert (owners, opts_out(owners)) == ((), False)


async def test_owners_that_own_each_other_are_refused() -> None:
    """workloads:2.2, Do better."""
    first = owner("A", "a", "1", by=owner("B", "b", "2"))
    second = owner("B", "b", "2", by=first)
    with pytest.raises(GroupingError, match="own each other: A a -> B b"):
        await find_owners(pod(by=first), nothing, Server(first, second).fetch, memory())


async def test_a_chain_without_end_is_refused() -> None:
    chain = [owner("K", "k0", "0")]
    for number in range(1, 30):
        chain.append(owner("K", f"k{number}", str(number), by=chain[-1]))
    with pytest.raises(GroupingError, match="own each other"):
        await find_owners(pod(by=chain[-1]), nothing, Server(*chain).fetch, memory())


async def test_owners_are_cached_by_uid_for_a_while() -> None:
    """workloads:2.2, Do better: all pods of a workload cost one read."""
    server, clock = Server(TOP, MIDDLE), FakeClock()
    known = memory(clock)
    for name in ("a", "b", "c"):
        await find_owners(pod(name, by=MIDDLE), nothing, server.fetch, known)
    assert server.asked == ["middle", "top"]
    clock.at_s = 61
    await find_owners(POD, nothing, server.fetch, known)
    assert server.asked == ["middle", "top", "middle", "top"]


async def test_a_cached_owner_is_not_read_from_the_server_unless_stale() -> None:
    server = Server(TOP, MIDDLE)
    await find_owners(POD, lambda which: {"middle": MIDDLE, "top": TOP}[which.name], server.fetch, memory())
    assert server.asked == []
    earlier = {"middle": owner("Middle", "middle", "earlier"), "top": TOP}
    top, _ = await find_owners(POD, lambda which: earlier[which.name], server.fetch, memory())
    assert (top.metadata.name, server.asked) == ("top", ["middle"])


def test_expired_owners_are_dropped() -> None:
    clock = FakeClock()
    known = memory(clock)
    for name in ("a", "b", "c"):
        known.put(name, owner("Top", name, name))
        clock.at_s += 61
    assert len(known) == 1


def test_an_owner_that_was_read_again_stays_longer() -> None:
    clock = FakeClock()
    known = memory(clock)
    for at_s, name in ((0, "a"), (10, "b"), (50, "a"), (100, "c")):
        clock.at_s = at_s
        known.put(name, owner("Top", name, name))
    assert [known.get(name) is not None for name in ("a", "b", "c")] == [True, False, True]
    assert len(known) == 2


def test_only_an_owner_of_some_age_is_dropped() -> None:
    clock = FakeClock()
    known = memory(clock)
    known.put("a", TOP)
    known.drop("a", 1)
    assert known.get("a") is TOP
    clock.at_s = 1
    known.drop("a", 1)
    known.drop("unknown", 1)
    assert known.get("a") is None
