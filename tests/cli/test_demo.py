"""`kai demo`: one example of every scheduling decision, in readable output."""

import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykai.cli import demo, main
from pykai.core.actions import ACTIONS
from pykai.core.cluster.tables import Tables
from pykai.core.report.decisions import Plan
from pykai.core.schedule import schedule
from pykai.lab.demo import NOW_NS, demo_objects
from pykai.scheduler.config.configuration import default_configuration
from tests.patience import PROGRAM_S


@pytest.fixture(scope="module")
def output() -> str:
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    return result.output


@cache
def plan() -> Plan:
    return schedule(Tables(None, demo_objects()).snapshot(NOW_NS), default_configuration().policy)


def rows(output: str, title: str) -> dict[str, list[str]]:
    """First word of every row of a table -> its words; lines that go on belong to the row above."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    table = output.split(f"\n{title}", 1)[1]
    for line in table.splitlines()[4:]:
        if not line.strip():
            if found and title != "Cluster":
                break
            continue
        if line.startswith(" " * 20):
            current += line.split()
        elif not line.startswith((" ", "─")) and found:
            break
        else:
            current = line.split()
            found[current[0]] = current
    return found


def reason(output: str, job: str) -> str:
    return " ".join(rows(output, "Waiting, and why")[job][3:])


def test_nodes_are_shown_before_and_after(output: str) -> None:
    nodes = rows(output, "Cluster")
    assert nodes["a100-4"] == ["a100-4", "40", "GiB", "8", "□□□□□□□□", "0", "8", "■■■■■■■■", "8", "0"]
    assert nodes["a100-6"][-3:] == ["node", "is", "unschedulable"]
    assert nodes["a100-3"][-5:] == ["8", "being", "released,", "8", "promised"]
    assert nodes["a100-2"][-2:] == ["2", "promised"]
    assert nodes["h100-3"][-5:] == ["2", "being", "released,", "8", "promised"], "six are free already"
    assert " ".join(nodes["h100-4"]).endswith("dedicated=serving, 4 being released, 4 promised")
    total, used, free, used_after, free_after = map(int, nodes["total"][1:])
    assert total == used + free == used_after + free_after == 100
    assert used_after > used


def test_queues_are_shown_as_a_tree_with_their_figures(output: str) -> None:
    queues = rows(output, "Queues, in GPUs")
    assert queues["search"][1:3] == ["12", "20"]
    assert list(queues) == [
        *("product", "ads", "search", "serving"),
        *("research", "language", "vision"),
        *("students", "thesis"),
    ]
    for parent, children in {"product": ("ads", "search", "serving"), "research": ("language", "vision")}.items():
        assert float(queues[parent][6]) == sum(float(queues[child][6]) for child in children)


def test_placed_work_is_one_row_a_job(output: str) -> None:
    placed = rows(output, "Placed")
    assert " ".join(placed["finetuning"]) == "finetuning language 4 4 GPUs a100-4 x 2, a100-5 x 2"
    assert " ".join(placed["chat-model"]) == "chat-model serving 2 2 GPUs h100-4 x 2 as soon as it is free"
    assert " ".join(placed["evaluation"]) == "evaluation language 1 8 GPUs a100-3 as soon as it is free"
    assert " ".join(placed["preprocessing"]).endswith("72 CPU cores cpu-1")
    assert placed["sweep"][2] == "8"
    assert " ".join(placed["assignments"]).endswith("on 2 shared GPUs")
    assert "10000 MiB of a GPU" in " ".join(placed["reranker"])
    assert "probing" not in placed, "it is moved, not placed"


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        ("probing-0", "vision h100-3 a100-2 scaling-laws (language) consolidation: moved together, both fit"),
        ("contest-3", "thesis workstation has to wait creatives (ads) reclaim: ads is below its fair share"),
        ("contest-2", "thesis workstation has to wait creatives (ads) reclaim: ads is below its fair share"),
        ("batch-scoring-3", "serving h100-4 has to wait chat-model (serving) preempt: more urgent in the same queue"),
        ("batch-scoring-2", "serving h100-4 has to wait chat-model (serving) preempt: more urgent in the same queue"),
    ],
)
def test_an_evicted_job_shows_its_preemptor_and_the_reason(output: str, pod: str, told: str) -> None:
    evicted = rows(output, "Evicted, and for which job")
    assert " ".join(evicted[pod]) == f"{pod} {told}"


def test_every_eviction_has_its_row_and_every_action_its_words(output: str) -> None:
    assert {item.action for item in plan().evictions} == {"consolidation", "reclaim", "preempt"}
    assert set(rows(output, "Evicted, and for which job")) == {item.pod for item in plan().evictions}
    assert demo._CAUSES.keys() == {name for name, action in ACTIONS.items() if action.texts is not None}


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ("pretraining-2", "queue language would have 64 GPUs, more than its fair share of 39 GPUs."),
        ("blackwell", "even without everyone who may be evicted there would be too little room."),
        ("sweep", "no fair set of victims makes enough room."),
    ],
)
def test_the_reason_for_no_eviction_is_one_line(output: str, job: str, why: str) -> None:
    assert reason(output, job).endswith(f"No reclaim: {why}")
    assert reason(output, job).count("No reclaim") == 1


@pytest.mark.parametrize("job", ["auction", "reindexing", "giant", "simulation", "robotics-demo"])
def test_where_no_eviction_would_help_none_is_mentioned(output: str, job: str) -> None:
    assert not re.search(r"No (reclaim|preempt|consolidation)", reason(output, job))


@pytest.mark.parametrize("job", ["chat-model", "creatives", "scaling-laws"])
def test_a_job_that_others_make_room_for_does_not_wait(output: str, job: str) -> None:
    assert job in rows(output, "Placed")
    assert job not in rows(output, "Waiting, and why")


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ("auction", r"Non-preemptible workload is over quota\. Workload requested 4 GPUs, but ads quota is 8 GPUs"),
        ("reindexing", r"search quota has reached the allowable limit of GPUs\. Limit is 20 GPUs"),
        ("giant", r"Max GPU resources available in a single node in the default node-pool is topped at 8\.$"),
        ("pretraining-2", r"Resources were found for 1 pods while 4 are required for gang scheduling"),
        ("simulation", r"Waiting for 4 pods, currently 2 exist"),
        ("blackwell", r"node\(s\) didn't match Pod's node affinity/selector"),
        ("sweep", r"node\(s\) didn't have enough resources: GPUs"),
        ("robotics-demo", r"Queue 'robotics' does not exist\.$"),
    ],
)
def test_every_reason_to_wait_is_shown(output: str, job: str, why: str) -> None:
    assert re.search(why, reason(output, job))


def test_the_summary_counts_pods_and_jobs(output: str) -> None:
    decided = plan()
    last = output.rstrip().splitlines()[-1]
    assert f"Start now: {len(decided.binds)} pods of 5 jobs." in last
    assert f"Start when their place is free: {len(decided.nominations) - 1} of 4." in last
    assert f"Evicted: {len(decided.evictions)}, of which 1 moved." in last
    assert f"Wait: {sum(record.pending for record in decided.unscheduled)} of 8." in last


def test_the_laboratory_is_readable_and_its_sums_are_right() -> None:
    policy = replace(default_configuration().policy, validate=True)
    plan = schedule(Tables(None, demo_objects()).snapshot(NOW_NS), policy)
    assert plan.problems == ()
    assert plan.orphans == ()


def test_into_a_pipe_goes_plain_text_of_120_columns_always_the_same(output: str) -> None:
    command = [sys.executable, "-m", "pykai", "demo"]
    environment = {"FORCE_COLOR": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "40"}
    done = subprocess.run(command, capture_output=True, env=environment, check=True, timeout=PROGRAM_S)
    text = done.stdout.decode()
    assert text == output
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) == 120


def test_where_text_is_ascii_so_are_the_tables() -> None:
    command = [sys.executable, "-m", "pykai", "demo"]
    environment = {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=True, timeout=PROGRAM_S)
    assert "########" in done.stdout.decode("ascii")


def test_the_picture_needs_nothing_from_the_network(tmp_path: Path) -> None:
    target = tmp_path / "demo.svg"
    result = CliRunner().invoke(main, ["demo", "--picture", str(target)])
    assert result.exit_code == 0
    drawn = target.read_text(encoding="utf-8")
    assert "Waiting," in drawn
    assert "url(" not in drawn.replace("url(#", "")


def test_the_picture_of_the_readme_is_the_demo_of_today(tmp_path: Path) -> None:
    target = tmp_path / "demo.svg"
    CliRunner().invoke(main, ["demo", "--picture", str(target)])
    shown = Path(__file__).parents[2] / "docs" / "images" / "demo.svg"
    assert shown.read_text(encoding="utf-8") == target.read_text(encoding="utf-8"), (
        "run: kai demo --picture docs/images/demo.svg"
    )
