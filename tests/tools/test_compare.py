"""`tools/compare`: every difference between two installations is found and named, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tools.compare.clusters import Cluster
from tools.compare.counting import Counts
from tools.compare.differing import first_difference
from tools.compare.runner import run_clusters

Line = dict[str, Any]


@cache
def _lines() -> tuple[str, ...]:
    return tuple(json.dumps(line, sort_keys=True) for line in run_clusters(8, 1, 2))


def line_with(holds: Callable[[Line], Any]) -> Line:
    """A line of a runner for which something holds."""
    return next(line for line in map(json.loads, _lines()) if holds(line))


def difference(old: Line, new: Line, **options: bool) -> str:
    return first_difference(json.dumps(old, sort_keys=True), json.dumps(new, sort_keys=True), **options)


def tampered(line: Line, change: Callable[[Line], None]) -> Line:
    changed: Line = json.loads(json.dumps(line))
    change(changed)
    return changed


def test_a_second_run_is_equal() -> None:
    again = [json.dumps(line, sort_keys=True) for line in run_clusters(3, 1, 2)]
    assert [first_difference(old, new) for old, new in zip(_lines(), again, strict=False)] == [""] * len(again)


def test_work_is_compared_unless_it_is_ignored() -> None:
    line = line_with(lambda line: line["plan"]["work"])
    faster = tampered(line, lambda line: line["plan"].update(work=0))
    assert "plan.work differs" in difference(line, faster)
    assert not difference(line, faster, ignore_work=True)
    other = tampered(faster, lambda line: line["plan"].update(now="elsewhen"))
    assert "plan.now differs" in difference(line, other, ignore_work=True)


def test_a_changed_decision_is_named_with_case_cycle_and_field() -> None:
    line = line_with(lambda line: line["plan"]["binds"])
    node = line["plan"]["binds"][0]["node"]
    changed = tampered(line, lambda line: line["plan"]["binds"][0].update(node="elsewhere"))
    text = difference(line, changed, ignore_own=True)
    assert f"{line['case']}, cycle {line['cycle']}: plan.binds[0].node differs" in text
    assert node in text
    assert "elsewhere" in text


def test_a_decision_that_is_gone_differs() -> None:
    line = line_with(lambda line: line["plan"]["evictions"])
    changed = tampered(line, lambda line: line["plan"]["evictions"].pop())
    number = len(line["plan"]["evictions"]) - 1
    assert f"plan.evictions[{number}] differs" in difference(line, changed, ignore_own=True)


def test_a_figure_of_another_type_differs() -> None:
    line = line_with(lambda line: line["plan"]["queues"])
    changed = tampered(line, lambda line: line["plan"]["queues"][0].update(priority=100.0))
    line["plan"]["queues"][0]["priority"] = 100
    assert "plan.queues[0].priority differs" in difference(line, changed)


def said(line: Line, kind: str) -> Line:
    """What is said about the first refusal of a kind."""
    for group in line["plan"]["unscheduled"]:
        for number, refusal in enumerate(group["refusals"]):
            if refusal["type"] == kind:
                found: Line = line["said"]["groups"][f"{group['namespace']}/{group['group']}"]["refusals"][number]
                return found
    raise LookupError(kind)


def has(kind: str) -> Callable[[Line], bool]:
    return lambda line: any(each["type"] == kind for group in line["plan"]["unscheduled"] for each in group["refusals"])


@pytest.mark.parametrize("kind", ["NoPlace", "OverCapacity", "NotReady"])
def test_sentences_of_kai_are_always_compared(kind: str) -> None:
    line = line_with(has(kind))
    changed = tampered(line, lambda line: said(line, kind).update(text="other words"))
    assert "text differs" in difference(line, changed, ignore_own=True)


@pytest.mark.parametrize("kind", ["FreeRoomOnly", "NotLeafQueue"])
def test_sentences_of_ours_are_left_out_where_asked(kind: str) -> None:
    line = line_with(has(kind))
    changed = tampered(line, lambda line: said(line, kind).update(text="other words"))
    assert difference(line, changed, ignore_own=True) == ""
    assert "text differs" in difference(line, changed)


def test_what_a_service_writes_is_compared() -> None:
    body = {"kind": "Event", "reason": "Evict", "message": "a"}
    line: Line = {"case": "story", "cycle": 1, "write": {"body": body}}
    changed = tampered(line, lambda line: line["write"]["body"].update(message="b"))
    assert "write.body.message differs" in difference(line, changed, ignore_own=True)
    line["write"]["body"]["reason"] = changed["write"]["body"]["reason"] = "GangBroken"
    assert difference(line, changed, ignore_own=True) == ""
    assert "write.body.message differs" in difference(line, changed)


def test_the_clusters_are_not_dull() -> None:
    """A few clusters see binds, promises, evictions and several refusals; all together see all of them."""
    counts = Counts()
    for line in _lines():
        counts.add(json.loads(line))
    text = "\n".join(counts.lines())
    for word in ("binds Fraction", "promises", "evictions: ", "OverCapacity", "NoPlace", "NotReady"):
        assert word in text


def test_a_cluster_is_a_function_of_its_seed() -> None:
    assert Cluster(5).held == Cluster(5).held
    assert Cluster(5).held != Cluster(6).held
