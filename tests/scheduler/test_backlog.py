"""Pods that cost much to take in come in turns: no namespace keeps the others from their cycle."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.core.model.status import TaskStatus
from pykai.scheduler.intake.backlog import Backlog
from pykai.scheduler.intake.operations import ApplyObject, AssumeStatus, RemoveObject, TableOperation


def a_pod(name: str, *, terms: int = 0, resources: int = 1, node: str = "", namespace: str = "crowd") -> Pod:
    """A pod with so many terms of anti-affinity and names of resources."""
    chosen = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": str(number)}}} for number in range(terms)]
    spec: dict[str, Any] = {
        "nodeName": node,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": chosen}},
        "containers": [{"resources": {"requests": {f"r{number}": "1" for number in range(resources)}}}],
    }
    return decode_as(Pod, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def begun(allowance: int = 100) -> Backlog:
    """A backlog after the first cycle."""
    backlog = Backlog(allowance)
    backlog.admit([ApplyObject(a_pod("first"))])
    return backlog


def named(operations: list[TableOperation]) -> list[str]:
    return [operation.item.metadata.name for operation in operations if isinstance(operation, ApplyObject)]


def test_a_namespace_takes_its_allowance_and_goes_on_with_the_rest() -> None:
    backlog = begun()
    crowd: list[TableOperation] = [ApplyObject(a_pod(f"big-{number}", terms=39)) for number in range(5)]
    honest: TableOperation = ApplyObject(a_pod("mine", terms=39, namespace="honest"))
    assert named(backlog.admit([*crowd, honest])) == ["big-0", "big-1", "mine"]
    assert len(backlog) == 3
    assert named(backlog.admit([])) == ["big-2", "big-3"]
    assert named(backlog.admit([ApplyObject(a_pod("late", terms=39))])) == ["big-4", "late"]
    assert not backlog


def test_names_of_resources_count_as_terms_do() -> None:
    backlog = begun()
    crowd: list[TableOperation] = [ApplyObject(a_pod(f"big-{number}", resources=60)) for number in range(2)]
    assert named(backlog.admit(crowd)) == ["big-0"]


def test_one_pod_always_passes_and_small_ones_cost_nothing() -> None:
    backlog = begun(allowance=20)
    pods: list[TableOperation] = [ApplyObject(a_pod("huge", terms=500))]
    pods += [ApplyObject(a_pod(f"small-{number}", terms=3)) for number in range(50)]
    assert len(backlog.admit(pods)) == 51


def test_a_pod_on_a_node_is_ingested_at_once() -> None:
    """Room that it uses must not be given away."""
    backlog = begun(allowance=20)
    waiting: list[TableOperation] = [ApplyObject(a_pod(name, terms=30)) for name in ("a", "b")]
    assert named(backlog.admit(waiting)) == ["a"]
    assert named(backlog.admit([ApplyObject(a_pod("c", terms=30)), ApplyObject(a_pod("b", terms=30, node="n"))])) == [
        "c",
        "b",
    ]
    assert not backlog


def test_the_first_cycle_sees_everything() -> None:
    backlog = Backlog(allowance=20)
    assert len(backlog.admit([ApplyObject(a_pod(f"big-{number}", terms=30)) for number in range(9)])) == 9


def test_a_deletion_ends_what_is_held_back() -> None:
    backlog = begun(allowance=20)
    backlog.admit([ApplyObject(a_pod(name, terms=30)) for name in ("a", "b")])
    assert backlog.admit([RemoveObject("Pod", "crowd", "b")]) in (
        [RemoveObject("Pod", "crowd", "b")],
        [ApplyObject(a_pod("b", terms=30)), RemoveObject("Pod", "crowd", "b")],
    )
    assert not backlog


_CHANGES = st.tuples(
    st.sampled_from(["apply", "place", "remove", "assume"]), st.sampled_from(["a", "b", "c"]), st.integers(0, 60)
)


def _operation(change: tuple[str, str, int]) -> TableOperation:
    what, name, size = change
    if what == "remove":
        return RemoveObject("Pod", "crowd", name)
    if what == "assume":
        return AssumeStatus(f"crowd/{name}", TaskStatus.GATED if size % 2 else None)
    return ApplyObject(a_pod(name, terms=size, node="n" if what == "place" else ""))


def _state(operations: list[TableOperation]) -> dict[str, Any]:
    """The last word about each pod, and what was assumed of it since it came; after its end an assumption is void."""
    state: dict[str, Any] = {}
    for operation in operations:
        name = operation.pod_key.partition("/")[2]
        if isinstance(operation, RemoveObject):
            state.pop(name, None)
        elif isinstance(operation, AssumeStatus):
            if name in state:
                state[name] = (state[name][0], operation.status)
        elif isinstance(operation, ApplyObject):
            state[name] = (operation.item, state.get(name, (None, None))[1])
    return state


@example([[("apply", "a", 60), ("apply", "b", 60)], [("assume", "b", 1)], [("remove", "b", 0), ("apply", "b", 0)]])
@example(
    [
        [("apply", "b", 50)],
        [("apply", "a", 50), ("apply", "c", 50), ("apply", "b", 51)],
        [("assume", "b", 1)],
        [("assume", "b", 0), ("apply", "b", 52)],
    ]
)
@example([[("apply", "a", 50), ("apply", "c", 50), ("apply", "b", 50)], [("assume", "b", 1), ("apply", "b", 51)]])
@given(st.lists(st.lists(_CHANGES, max_size=6), max_size=6))
def test_in_the_end_the_tables_have_seen_the_same(batches: list[list[tuple[str, str, int]]]) -> None:
    backlog = begun(allowance=40)
    came = [[_operation(change) for change in batch] for batch in batches]
    applied = [operation for batch in came for operation in backlog.admit(batch)]
    while backlog:
        applied += backlog.admit([])
    assert _state(applied) == _state([operation for batch in came for operation in batch])
