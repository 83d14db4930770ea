"""Every example of examples/kinds runs in the lab: its pods are one gang of the expected size, and it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pykai.kube.resources import POD_GROUPS
from pykai.kube.store import Change
from pykai.lab.operators.families import ALL
from tests.lab.operators.operatedcluster import (
    EXAMPLES,
    KINDS,
    Document,
    example,
    holds_true,
    operated_cluster,
    status_is,
)


class Expected(NamedTuple):
    """What becomes of an example."""

    #: the group's field with its minimum, and the value
    minimum: tuple[str, int]
    #: whether it has reached the state in which it stays
    done: Callable[[Document], bool]


def pods(count: int) -> tuple[str, int]:
    return "minMember", count


def jobs(count: int) -> tuple[str, int]:
    return "minSubGroup", count


EXPECTED: dict[str, Expected] = {
    "pytorchjob": Expected(pods(4), holds_true("Succeeded")),
    "tfjob": Expected(pods(4), holds_true("Succeeded")),
    "xgboostjob": Expected(pods(3), holds_true("Succeeded")),
    "jaxjob": Expected(pods(2), holds_true("Succeeded")),
    "mpijob": Expected(pods(4), holds_true("Succeeded")),
    "trainjob": Expected(jobs(1), holds_true("Complete")),
    "jobset": Expected(jobs(2), holds_true("Completed")),
    "leaderworkerset": Expected(pods(3), holds_true("Available")),
    "raycluster": Expected(pods(3), holds_true("RayClusterProvisioned")),
    "rayjob": Expected(pods(3), status_is("jobDeploymentStatus", "Complete")),
    "rayservice": Expected(pods(3), status_is("serviceStatus", "Running")),
    "sparkapplication": Expected(pods(1), status_is("applicationState.state", "COMPLETED")),
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == EXPECTED.keys()


def groups_of(workload: Document, groups: Iterable[str]) -> list[str]:
    """The names of a workload's groups; those of a TrainJob are its JobSet's."""
    meta = workload["metadata"]
    uid = "" if workload["kind"] == "TrainJob" else meta["uid"]
    prefix = workload["status"].get("sparkApplicationId", f"pg-{meta['name']}-{uid}")
    return [group for group in groups if group.startswith(prefix)]


async def test_every_example_runs_as_a_gang_and_ends() -> None:
    async with operated_cluster(ALL) as cluster:
        minimums: dict[str, set[tuple[str, int]]] = {}

        def note(change: Change[Document]) -> None:
            if change.new is not None:
                spec = change.new["spec"]
                field = "minSubGroup" if "minSubGroup" in spec else "minMember"
                minimums.setdefault(change.new["metadata"]["name"], set()).add((field, spec[field]))

        cluster.stores[POD_GROUPS].subscribe(note)
        workloads = {name: list(example(name)) for name in EXPECTED}
        for documents in workloads.values():
            await cluster.apply(*documents)
        for name, expected in EXPECTED.items():
            top = workloads[name][-1]
            found = await cluster.until(KINDS[top["kind"]], top["metadata"]["name"], expected.done)
            # An MPIJob waits for its launcher, too, once that exists.
            assert expected.minimum in set().union(*(minimums[group] for group in groups_of(found, minimums))), name
        # What runs on is what never ends; the pods of jobs that are over have been deleted.
        await cluster.until_pods(lambda pods: sum(phase == "Running" for phase in pods.values()) == 12)
        running = {name.split("-")[0] for name, phase in cluster.pods().items() if phase == "Running"}
        assert running == {"serving", "ray", "rayservice"}
