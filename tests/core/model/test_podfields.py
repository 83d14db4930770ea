"""Invalid values of fields that users write by hand: the problem, and what is used instead."""

from __future__ import annotations

import pytest

from pykai.api.decode import decode_object
from pykai.core.model.problems import Problem
from tests.core.builders import Cluster, Raw, cluster

FRACTION, MEMORY, DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
MIG = "nvidia.com/mig-1g.5gb"


def told(made: Cluster) -> list[Problem]:
    return list(made.cycle().context.snapshot.problems)


def waiting(annotations: dict[str, str], **how: object) -> Cluster:
    made = cluster(nodes=1, gpus=2).queue("q").group("j", minMember=1)
    return made.pod("j-0", group="j", annotations=annotations, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("annotations", "field", "text"),
    [
        ({FRACTION: "banana"}, FRACTION, "'banana' is not a number above 0 and at most 1; the pod gets no GPU"),
        ({FRACTION: "1.5"}, FRACTION, "'1.5' is not a number above 0 and at most 1; the pod gets no GPU"),
        ({FRACTION: "x", MEMORY: "9"}, FRACTION, "'x' is not a number above 0 and at most 1; gpu-memory is used"),
        ({MEMORY: "lots"}, MEMORY, "'lots' is not a whole number of MiB above 0; the pod gets no GPU"),
        ({MEMORY: "0"}, MEMORY, "'0' is not a whole number of MiB above 0; the pod gets no GPU"),
        ({MEMORY: "x", FRACTION: ".5"}, MEMORY, "'x' is not a whole number of MiB above 0; gpu-fraction is used"),
        ({FRACTION: ".5", DEVICES: "many"}, DEVICES, "'many' is not a whole number above 0; the pod shares one GPU"),
        ({MIG: "one"}, MIG, "'one' is not a whole number above 0; the pod gets no GPU"),
    ],
)
def test_an_invalid_annotation_is_a_problem(annotations: dict[str, str], field: str, text: str) -> None:
    assert told(waiting(annotations)) == [Problem("Pod/default/j-0", f"metadata.annotations[{field}]", text)]


def test_other_requests_of_the_pod_are_used() -> None:
    (problem,) = told(waiting({FRACTION: "half"}, gpu=1))
    assert problem.text.endswith("; the pod gets the whole GPUs that it requests")


def test_a_long_value_is_cut() -> None:
    (problem,) = told(waiting({FRACTION: "9" * 5000 + "x"}))
    assert len(problem.text) < 200


def test_a_priority_that_is_not_a_number() -> None:
    (problem,) = told(waiting({}, labels={"kai.scheduler/task-priority": "high"}))
    assert problem.field == "metadata.labels[kai.scheduler/task-priority]"
    assert problem.text == "'high' is not a whole number; the pod comes after those of its group that have a number"


@pytest.mark.parametrize("how", [{"on": "node-0"}, {"scheduler": "other"}])
def test_pods_that_run_or_belong_to_others_are_left_alone(how: dict[str, str]) -> None:
    assert told(waiting({FRACTION: "banana"}, **how)) == []


@pytest.mark.parametrize("annotations", [{FRACTION: "1"}, {MEMORY: "+5"}, {FRACTION: ".5", DEVICES: "2"}, {MIG: "1"}])
def test_valid_values_are_not_a_problem(annotations: dict[str, str]) -> None:
    assert told(waiting(annotations, labels={"kai.scheduler/task-priority": "-3"})) == []


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        (
            {"preemptionDelay": "soon"},
            "spec.preemptionDelay",
            "'soon' is not a duration: expected a number with a unit; no delay is used",
        ),
        ({"preemptionDelay": "-5s"}, "spec.preemptionDelay", "'-5s' is negative; no delay is used"),
        (
            {"stalenessGracePeriod": "x"},
            "spec.stalenessGracePeriod",
            "'x' is not a duration: expected a number with a unit; the scheduler's default is used",
        ),
        (
            {"preemptibility": "maybe"},
            "spec.preemptibility",
            "'maybe' is not one of preemptible, non-preemptible, semi-preemptible; the priority decides",
        ),
    ],
)
def test_an_invalid_field_of_a_group_is_a_problem(spec: Raw, field: str, text: str) -> None:
    made = cluster(nodes=1).queue("q").group("j", minMember=1, **spec).pod("j-0", group="j")
    assert told(made) == [Problem("PodGroup/default/j", field, text)]


def test_a_negative_preemption_delay_delays_nothing() -> None:
    """The warning is true."""

    def evicted(**spec: str) -> list[str]:
        made = cluster(nodes=1, gpus=1).queue("q").priority_class("high", 90).priority_class("low", 10)
        made.gang("old", gpu=1, on="node-0", priority="low")
        made.group("new", minMember=1, age=1.0, priorityClassName="high", **spec).pod("new-0", group="new", gpu=1)
        return made.with_actions("allocate", "preempt").schedule().evicted_pods()

    assert evicted() == evicted(preemptionDelay="-5s") == evicted(preemptionDelay="soon") == ["old-0"]
    assert evicted(preemptionDelay="1h") == []


def unknown_class(name: str = "urgent") -> Cluster:
    made = cluster(nodes=1).queue("q")
    return made.group("j", minMember=1, priorityClassName=name).pod("j-0", group="j")


def test_a_priority_class_that_does_not_exist() -> None:
    """queues:Q-80."""
    (problem,) = told(unknown_class())
    assert problem == Problem(
        "PodGroup/default/j",
        "spec.priorityClassName",
        "priority class 'urgent' does not exist; priority 50 is used instead",
    )
    (problem,) = told(unknown_class().priority_class("usual", 70, default=True))
    assert problem.text.endswith("; priority 70 is used instead, that of the default class usual")


def test_a_priority_class_created_later_ends_the_problem() -> None:
    made = unknown_class()
    tables = made.tables()
    assert tables.snapshot(0).problems
    tables.apply(decode_object(cluster().priority_class("urgent", 90).objects[0]))
    assert not tables.snapshot(0).problems
    tables.remove("PriorityClass", "", "urgent")
    assert tables.snapshot(0).problems


def test_groups_that_name_no_class_or_do_not_wait_are_left_alone() -> None:
    assert told(unknown_class("")) == []
    made = cluster(nodes=1).queue("q").group("j", minMember=1, priorityClassName="gone")
    assert told(made.pod("j-0", group="j", on="node-0")) == []


def test_many_groups_are_reported_in_parts() -> None:
    made = cluster(nodes=1).queue("q")
    for index in range(150):
        made.group(f"j{index:03}", minMember=1, priorityClassName="gone").pod(f"p{index}", group=f"j{index:03}")
    assert [problem.subject for problem in told(made)] == [f"PodGroup/default/j{index:03}" for index in range(100)]
