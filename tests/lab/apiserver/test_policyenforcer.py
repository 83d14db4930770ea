"""The table of guarded fields has two readers, CEL and Python: they say the same about any write.

What a real API server makes of the whole policies is in test_policies.py; here the expressions alone are compared, over
many more objects, with the CEL library.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api import guardedfields, names
from pykai.lab.apiserver.policyenforcer import is_touched
from pykai.operator import policies
from tests.lab.apiserver.apiclient import Object

cel = pytest.importorskip("cel_expr_python.cel", reason="the extra `dra` brings the CEL library")

TABLE = [(policy, guard) for policy in guardedfields.field_policies() for guard in policy.guards]
VALUES = st.sampled_from(["", "g", "h", names.RESERVATION_APP])
LABELS = st.sampled_from(
    [names.GPU_GROUP_LABEL, "runai-gpu-group/g", "runai-gpu-group/h", "runai-gpu-groups", "app", "x"]
)
ANNOTATIONS = st.sampled_from(
    [
        names.RECEIVED_TYPE_ANNOTATION,
        names.NUMA_PREDICTED_ANNOTATION,
        names.NUMA_OBSERVED_ANNOTATION,
        names.RESERVED_GPU_ANNOTATION,
        *guardedfields.TIMESTAMPS,
        "gpu-fraction",
    ]
)
NODES = st.sampled_from([{}, {"nodeName": "n"}, {"nodeName": "m"}])
SPECS = st.builds(
    lambda node, scheduler: {"schedulerName": scheduler, **node},
    NODES,
    st.sampled_from([names.SCHEDULER_NAME, "other"]),
)


@st.composite
def objects(draw: st.DrawFn) -> Object:
    """What any of the guarded kinds may look like; empty maps are absent, as an API server stores them."""
    metadata = {
        "labels": draw(st.dictionaries(LABELS, VALUES)),
        "annotations": draw(st.dictionaries(ANNOTATIONS, VALUES)),
    }
    return {"metadata": {"name": "a", **{key: value for key, value in metadata.items() if value}}, "spec": draw(SPECS)}


WRITES = st.one_of(
    st.tuples(st.just(guardedfields.CREATE), objects(), st.none()),
    st.tuples(st.just(guardedfields.UPDATE), objects(), objects()),
    objects().map(lambda same: (guardedfields.UPDATE, same, same)),
)


class Evaluator:
    """CEL expressions over the variables of a policy."""

    def __init__(self) -> None:
        from cel_expr_python.ext import ext_optional, ext_strings

        names = ("object", "oldObject", "request", "variables")
        self._environment = cel.NewEnv(
            variables=dict.fromkeys(names, cel.Type.DYN),
            extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
        )
        self._programs: dict[str, Any] = {}

    def value(self, expression: str, data: Object) -> Any:
        if expression not in self._programs:
            self._programs[expression] = self._environment.compile(expression)
        return self._programs[expression].eval(data=data).plain_value()


EVALUATOR = Evaluator()


def by_cel(
    policy: guardedfields.FieldPolicy, guard: guardedfields.FieldGuard, operation: str, new: Object, old: Object | None
) -> bool:
    data: Object = {"object": new, "oldObject": old, "request": {"operation": operation}, "variables": {}}
    looked_at = EVALUATOR.value(policies.match_expression(policy.guards), data)
    assert isinstance(looked_at, bool), looked_at
    if not looked_at:
        return False
    for variable in policies.policy_variables(policy.guards):
        data["variables"][variable["name"]] = EVALUATOR.value(variable["expression"], data)
    found = EVALUATOR.value(policies.touched_expression(guard), data)
    assert isinstance(found, bool), found
    return found


@given(write=WRITES)
def test_cel_and_python_see_the_same_touch(write: tuple[str, Object, Object | None]) -> None:
    operation, new, old = write
    for policy, guard in TABLE:
        assert by_cel(policy, guard, operation, new, old) == is_touched(guard, operation, new, old), guard.fields


@given(same=objects(), name=st.text(max_size=5))
def test_a_write_that_leaves_the_fields_alone_touches_nothing(same: Object, name: str) -> None:
    renamed = {**same, "metadata": {**same["metadata"], "ownerReferences": [{"name": name}]}}
    assert not [guard.fields for _, guard in TABLE if is_touched(guard, guardedfields.UPDATE, renamed, same)]


def test_no_expression_asks_more_than_its_cost_allows() -> None:
    """Kubernetes: an expression may cost 1,000,000, and a question to the authoriser costs 350,000."""
    for each in policies.admission_policies():
        for validation in each["spec"].get("validations", ()):
            asked = [branch.count(".check(") for branch in re.split(r" \? | : ", validation["expression"])]
            assert max(asked) <= 2


def test_users_words_are_guarded_by_nothing() -> None:
    """operations:E-6, workloads:EX-1, 3: what users write by contract."""
    keys = {field.key for _, guard in TABLE for field in guard.fields if not field.value}
    free = {
        names.POD_GROUP_ANNOTATION,
        names.SUBGROUP_LABEL,
        names.TASK_PRIORITY_LABEL,
        names.SKIP_POD_GROUPER_ANNOTATION,
        names.GPU_FRACTION_ANNOTATION,
        names.GPU_MEMORY_ANNOTATION,
        names.GPU_NUM_DEVICES_ANNOTATION,
        names.PRIORITY_CLASS_LABEL,
        names.APP_LABEL,
    }
    assert not free & keys


def test_the_namespaces_can_be_chosen() -> None:
    made = policies.admission_policies(guardedfields.GuardSettings(closed_namespaces=("a", "b")))
    (policy,) = [
        each for each in made if each["metadata"]["name"] == "kai-closed-namespaces" and "Binding" not in each["kind"]
    ]
    selector = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert selector == [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}]
    without = policies.admission_policies(guardedfields.GuardSettings(closed_namespaces=()))
    assert not [each for each in without if each["metadata"]["name"] == "kai-closed-namespaces"]
