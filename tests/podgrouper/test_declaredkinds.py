"""Kinds that an administrator declares (kinds:declared)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.core import Pod
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.declaredkinds import DeclaredKinds, read_declared_kinds
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.metadata import Grouper, GroupingError, GroupVersionKind, Metadata
from pykai.podgrouper.writes import new_group
from pykai.webhooks.podgroups import validate
from tests.podgrouper.groupings import grouped, owner, pod

SWEEP = ("example.com", "v1", "Sweep")
HEAD = "- {apiVersion: example.com/v1, kind: Sweep"
ROLES = (
    "roles: [{name: leader, podLabel: role},"
    " {name: worker, replicas: spec.workers.replicas, default: 2, podLabel: role, podLabelValue: w}]"
)


def declared(*entries: str) -> DeclaredKinds:
    return read_declared_kinds("kinds:\n" + "".join(f"{entry}\n" for entry in entries))


def by_declaration(entry: str, one: Pod, **spec: Any) -> Metadata:
    found = declared(entry)
    assert found.problems == ()
    groupers: dict[GroupVersionKind, Grouper] = {**built_in_groupers(), **found.groupers}
    top = owner("Sweep", "s", "u", api="example.com/v1", labels={"kai.scheduler/queue": "q"}, spec=spec)
    meta = grouped(one, top, readers=RecordedReaders(groupers=groupers))
    assert validate(new_group(meta)).errors == ()
    return meta


def minimums(meta: Metadata) -> dict[str, int | None]:
    return {each.name: each.min_member for each in meta.sub_groups}


WORKER, LEADER = pod(labels={"role": "w"}), pod(labels={"role": "leader"})


def test_roles_are_subgroups_that_start_together() -> None:
    """kinds:declared."""
    entry = f"{HEAD}, priorityClass: build, {ROLES}}}"
    meta = by_declaration(entry, WORKER, workers={"replicas": 4})
    assert (meta.name, meta.queue, meta.priority_class, meta.min_sub_group) == ("pg-s-u", "q", "build", 2)
    assert (minimums(meta), meta.pod_sub_group) == ({"leader": 1, "worker": 4}, "worker")
    assert by_declaration(entry, LEADER, workers={"replicas": 4}).pod_sub_group == "leader"
    assert minimums(by_declaration(entry, LEADER)) == {"leader": 1, "worker": 2}
    assert minimums(by_declaration(entry, LEADER, workers={"replicas": 0})) == {"leader": 1}


@pytest.mark.parametrize(
    ("minimum", "wanted"),
    [
        ("all", {"leader": 1, "worker": 4}),
        ("3", {"leader": 1, "worker": 2}),
        ("0", {"leader": 0, "worker": 0}),
        ("spec.least", {"leader": 1, "worker": 1}),
        ("spec.absent", {"leader": 1, "worker": 4}),
    ],
)
def test_roles_fill_the_minimum_in_their_order(minimum: str, wanted: dict[str, int]) -> None:
    """kinds:declared."""
    entry = f"{HEAD}, minimum: {minimum}, {ROLES}}}"
    assert minimums(by_declaration(entry, WORKER, workers={"replicas": 4}, least=2)) == wanted


def test_a_kind_without_roles_is_one_gang() -> None:
    """kinds:declared."""
    meta = by_declaration(f"{HEAD}, minimum: spec.trials}}", pod(), trials=5)
    assert (meta.min_available, meta.sub_groups, meta.priority_class) == (5, (), "train")
    with pytest.raises(GroupingError, match=r"Sweep ns/s: spec\.trials: missing"):
        by_declaration(f"{HEAD}, minimum: spec.trials}}", pod())


def test_a_role_without_a_label_has_the_other_pods() -> None:
    """kinds:declared."""
    roles = "roles: [{name: leader, podLabel: role}, {name: rest, replicas: 3}]"
    assert by_declaration(f"{HEAD}, {roles}}}", pod()).pod_sub_group == "rest"
    with pytest.raises(GroupingError, match="pod p has no role: its label role names none of leader, worker"):
        by_declaration(f"{HEAD}, {ROLES}}}", pod())


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"workers": 3}, "spec.workers.replicas: there is no field 'replicas' in 3"),
        ({"workers": {"replicas": "4"}}, "'4' is no number of pods"),
        ({"workers": {"replicas": True}}, "True is no number of pods"),
        ({"workers": {"replicas": -1}}, "a minimum of -1 pods is not possible"),
        ({"workers": {"replicas": 1 << 40}}, "is no number of pods"),
    ],
)
def test_a_workload_that_does_not_fit_is_refused(spec: dict[str, Any], reason: str) -> None:
    """kinds:declared."""
    with pytest.raises(GroupingError, match=reason):
        by_declaration(f"{HEAD}, {ROLES}}}", WORKER, **spec)


def test_a_minimum_above_all_pods_is_refused() -> None:
    """kinds:declared: the gang could never start."""
    with pytest.raises(GroupingError, match="minimum: 9 is more than the 3 pods of all roles"):
        by_declaration(f"{HEAD}, minimum: 9, {ROLES}}}", WORKER)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("- nonsense", "line 3, kinds[1]: expected apiVersion, kind and roles"),
        (f"{HEAD}, rolls: []}}", "kinds[1]: 'rolls' is unknown; did you mean roles?"),
        (
            f"{HEAD}, roles: [{{name: a, replica: 1}}]}}",
            "roles[0]: 'replica' is unknown; did you mean replicas?",
        ),
        (f"{HEAD}, roles: 3}}", "kinds[1].roles: "),
        (f'{HEAD}, minimum: 1, priorityClass: "\\ud800"}}', "half of a character"),
        ("- &a [*a]", "expected apiVersion, kind and roles"),
        ("- &a {apiVersion: *a}", "expected"),
        (f"{HEAD}}}", "declare roles, or a minimum"),
        (f"{HEAD}, minimum: -1}}", "kinds[1].minimum: -1 is negative"),
        (f"{HEAD}, minimum: 'spec..x'}}", "is neither `all`, a number nor a place"),
        (f"{HEAD}, roles: [{{name: A}}]}}", "kinds[1].roles[0].name: 'A' is no name of a subgroup"),
        (f"{HEAD}, roles: [{{name: a}}, {{name: a, podLabel: x}}]}}", "is the name of two roles"),
        (f"{HEAD}, roles: [{{name: a}}, {{name: b}}]}}", "more than one role has no podLabel"),
        (f"{HEAD}, roles: [{{name: a, replicas: 'x[0]'}}]}}", "neither a number nor a place"),
        (f"{HEAD}, roles: [{{name: a, replicas: -2}}]}}", "kinds[1].roles[0].replicas: -2 is negative"),
        (f"{HEAD}, roles: [{{name: a, default: -2}}]}}", "kinds[1].roles[0].default: -2 is negative"),
        ("- {apiVersion: v1, kind: X, minimum: 1}", "'v1' is no group and version, such as example.com/v1"),
        ("- {apiVersion: x.io/v1, minimum: 1}", "kinds[1].kind: missing"),
        ("- {apiVersion: batch/v1, kind: Job, minimum: 1}", "Job of batch/v1 has a grouper already"),
        ("- {apiVersion: nvidia.com/v9, kind: DynamoGraphDeployment, minimum: 1}", "has a grouper already"),
        ("- {apiVersion: x.io/v1, kind: Good, minimum: 1}", "Good of x.io/v1 is declared twice"),
    ],
)
def test_a_wrong_entry_is_named_and_the_others_are_used(entry: str, reason: str) -> None:
    """kinds:declared."""
    found = declared("- {apiVersion: x.io/v1, kind: Good, minimum: 1}", entry)
    assert list(found.groupers) == [("x.io", "v1", "Good")]
    assert any(reason in problem for problem in found.problems)
    assert all(problem.startswith("line 3, kinds[1]") for problem in found.problems)


@pytest.mark.parametrize(
    "text", ["kinds: [", "a: b", "[]]", "kinds: 7", "x" * (1 << 17), "kinds: " + "[" * 5000, "- " * 5000]
)
def test_a_text_that_declares_nothing_is_refused_as_a_whole(text: str) -> None:
    """kinds:declared."""
    found = read_declared_kinds(text)
    assert found.groupers == {}
    assert len(found.problems) == 1


def test_an_empty_text_declares_nothing() -> None:
    assert read_declared_kinds("") == read_declared_kinds("kinds: []") == DeclaredKinds({}, {}, ())


KEYS = st.sampled_from(("apiVersion", "kind", "roles", "minimum", "name", "replicas", "x"))
ENTRIES = st.recursive(
    st.none() | st.integers() | st.text(max_size=9) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(ENTRIES)
def test_anything_may_be_an_entry(entry: Any) -> None:
    """kinds:declared."""
    found = read_declared_kinds(json.dumps({"kinds": [entry]}))
    assert bool(found.groupers) != bool(found.problems)
