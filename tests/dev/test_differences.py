"""Two outcomes of one case, held against each other."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from pykai.cli import main
from pykai.dev.cases import Case, Cycles
from pykai.dev.differences import compare_outcomes
from tests.core.builders import Cluster, cluster, timestamp_before


def case(built: Cluster, **running: int) -> Case:
    """A case that recorded so many running pods after three cycles."""
    expect = {"runningPods": running}
    return Case(id="made/up", now=timestamp_before(0), objects=built.objects, expect=expect, cycles=Cycles(run=3))


def two_queues() -> Cluster:
    built = cluster(nodes=1, gpus=2).queue("q", quota=1).queue("r", quota=1)
    return built.gang("mine", 2, min=1, gpu=1, queue="q").gang("theirs", gpu=1, queue="r")


def test_ours_is_as_good_if_no_group_runs_more_in_the_recorded_outcome() -> None:
    found = compare_outcomes(case(two_queues(), mine=1, theirs=0))
    assert (found.as_fair, found.as_many_gpus, found.stable, found.as_good) == (True, True, True, True)
    text = "\n".join(found.lines)
    assert "group theirs: 1 pods run, recorded 0" in text
    assert "queue r: 1 GPUs" in text
    assert "GPUs allocated: 2, recorded 1" in text
    assert "no group runs more pods in the recorded outcome" in text
    assert "ours is as fair, allocates no fewer GPUs and stays as it is" in text


def test_an_end_with_more_gpus_is_better_than_ours() -> None:
    found = compare_outcomes(case(two_queues(), mine=2, theirs=1))
    assert not found.as_many_gpus
    assert not found.as_good
    assert "allocates FEWER GPUs" in found.lines[-1]


def test_an_end_that_serves_the_worst_better_is_fairer_than_ours() -> None:
    built = cluster(nodes=1, gpus=2).queue("q", quota=0).queue("r", quota=1).queue("s", quota=1)
    built.gang("mine", gpu=2, queue="q", preemptible=False, on="node-0")
    built.gang("theirs", gpu=1, queue="r").gang("others", gpu=1, queue="s")
    found = compare_outcomes(case(built, mine=0, theirs=1, others=1))
    assert not found.as_fair
    assert "LESS FAIR" in found.lines[-1]


def test_a_queue_that_is_starved_is_not_hidden_by_another_in_its_place() -> None:
    """In both outcomes one queue has all and one has nothing, but only one of them deserves nothing."""
    built = cluster(nodes=1, gpus=2).queue("q", quota=0, weight=0).queue("r", quota=2)
    built.gang("mine", gpu=2, queue="q", preemptible=False, on="node-0").gang("theirs", gpu=2, queue="r")
    found = compare_outcomes(case(built, mine=0, theirs=1))
    assert not found.as_fair
    text = "\n".join(found.lines)
    assert "queue r is BELOW its fair share of 2 GPUs with 0, recorded 2; above theirs: q" in text
    assert "LESS FAIR" in found.lines[-1]


def test_a_queue_is_starved_of_what_others_have_too_much_of() -> None:
    """It lacks a core that it deserves, and the other has too many GPUs."""
    built = cluster(nodes=1, gpus=2, cpu=3).queue("q", quota=0, weight=0).queue("r", quota=0, weight=0)
    built.gang("mine", gpu=2, cpu=1, queue="q", preemptible=False, on="node-0")
    built.gang("theirs", cpu=3, queue="r")
    found = compare_outcomes(case(built, mine=0, theirs=1))
    assert "BELOW" not in "\n".join(found.lines)


def test_a_queue_that_no_other_can_help_is_not_starved() -> None:
    """No queue has more than its fair share: the free GPUs are not on one node."""
    built = cluster(nodes=2, gpus=2).queue("q", quota=2).queue("r", quota=2)
    built.gang("a", gpu=1, queue="q", preemptible=False, on="node-0")
    built.gang("b", gpu=1, queue="q", preemptible=False, on="node-1").gang("theirs", gpu=2, queue="r")
    found = compare_outcomes(case(built, a=1, b=0, theirs=1))
    assert "BELOW" not in "\n".join(found.lines)


def test_a_group_that_runs_fewer_pods_shows_the_rule() -> None:
    found = compare_outcomes(case(two_queues(), mine=2, theirs=0))
    text = "\n".join(found.lines)
    assert "group mine waits: " in text
    assert "queues:Q-260 reclaim: queue q would have 2 GPUs, more than its fair share of 1 GPUs" in text


def test_the_command_explains_what_differs(tmp_path: Path) -> None:
    made = case(two_queues(), mine=1, theirs=0)
    line = {"id": made.id, "now": made.now, "objects": made.objects, "expect": made.expect, "cycles": {"run": 3}}
    (tmp_path / "made.up.jsonl").write_text(json.dumps(line) + "\n")
    result = CliRunner().invoke(main, ["conformance", str(tmp_path), "--explain"])
    assert result.exit_code == 1
    assert "made/up:\n" in result.output
    assert "ours is as fair" in result.output
