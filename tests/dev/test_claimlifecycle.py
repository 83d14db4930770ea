"""What binder and controllers do to claims between two cycles (gpu:D-12, D-17), as the simulated cluster does it."""

from __future__ import annotations

from typing import Any

from pykai.api.decode import decode_object
from pykai.api.timestamp import format_timestamp
from pykai.core.model.status import TaskStatus
from pykai.dev.cases import Case
from pykai.dev.conformance import CaseRun
from tests.core.builders import NOW_NS, Cluster, cluster
from tests.core.deviceclusters import devices


def run_of(world: Cluster, *actions: str) -> CaseRun:
    case = Case("claims", format_timestamp(NOW_NS), world.objects, {}, actions=list(actions or ("allocate",)))
    return CaseRun(case, validate=True)


def claims_of(running: CaseRun) -> dict[str, tuple[list[str], list[str]]]:
    """Claim -> its devices and users."""
    found = {}
    for key, claim in running.tables.claims.claims.items():
        given = claim.status.allocation
        results: list[Any] = given.devices.results if given is not None else []
        found[key.partition("/")[2]] = ([r.device for r in results], [user.uid for user in claim.status.reserved_for])
    return found


def test_what_is_bound_is_written_into_the_claim_and_reserved_gpu_d12() -> None:
    running = run_of(devices(each=2).queue("q").device_claim("c", queue="q").gang("a", 2, shares=("c",)))
    running.step()
    assert claims_of(running) == {"c": (["gpu-0"], ["a-0", "a-1"])}
    running.step()
    assert claims_of(running) == {"c": (["gpu-0"], ["a-0", "a-1"])}


def test_the_claim_of_extended_resources_is_made_and_goes_with_the_pod_gpu_d17() -> None:
    world = cluster(nodes=1).device_class("gpu", extendedResourceName="nvidia.com/gpu").queue("q").slice("node-0", 1)
    world.priority_class("low", 50).priority_class("high", 75)
    running = run_of(world.gang("a", gpu=1, priority="low"), "allocate", "preempt")
    running.step()
    assert claims_of(running) == {"a-0-extended-resources": (["gpu-0"], ["a-0"])}
    later = Cluster().gang("b", gpu=1, priority="high")
    running.tables.apply(decode_object(later.objects[0]))
    running._replace("default/b-0", later.objects[1])
    running.step()
    assert claims_of(running) == {}
    running.step()
    assert claims_of(running) == {"b-0-extended-resources": (["gpu-0"], ["b-0"])}


def test_devices_come_back_with_the_last_user() -> None:
    world = devices(each=2).queue("q").device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=("x-0", "y-0"))
    running = run_of(world.gang("x", on="node-0", shares=("c",), deleted=-30).gang("y", on="node-0", shares=("c",)))
    running.apply_decisions(running.open())
    assert claims_of(running) == {"c": (["gpu-0"], ["y-0"])}
    assert running.tables.snapshot(NOW_NS).task_records["default/y-0"].node == "node-0"
    running.tables.assume("default/y-0", TaskStatus.RELEASING)
    running.apply_decisions(running.open())
    assert claims_of(running) == {"c": ([], [])}


def test_a_pod_that_was_only_promised_a_place_keeps_what_its_claim_has() -> None:
    world = devices(each=1, cpu=1).queue("q").gang("old", on="node-0", deleted=-30)
    world.device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=("a-0",)).gang("a", shares=("c",))
    running = run_of(world)
    cycle = running.step()
    assert "default/a-0" in cycle.decisions.nominations
    assert claims_of(running) == {"c": (["gpu-0"], ["a-0"])}
