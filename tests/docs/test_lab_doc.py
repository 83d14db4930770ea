"""docs/lab.md is right: every annotation is listed with its default, the example is a Job that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pykai.api import names
from pykai.kube.resources import JOBS
from pykai.lab.controllers.podgc import NODE_MISSING_S
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from tests.lab.controllers.test_jobs import is_complete
from tests.lab.simulatedcluster import simulated_cluster

DOC = (Path(__file__).parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")
DECLARED = {
    names.START_SECONDS_ANNOTATION: f"| {BehaviourDefaults().start_s:g} |",
    names.RUN_SECONDS_ANNOTATION: f"else {BehaviourDefaults().run_s:g} |",
    names.EXIT_CODE_ANNOTATION: "| 0 |",
    names.STOP_SECONDS_ANNOTATION: f"| {BehaviourDefaults().stop_s:g} |",
}


@pytest.mark.parametrize("annotation", DECLARED)
def test_every_annotation_is_listed_with_its_default(annotation: str) -> None:
    (row,) = re.findall(rf"^\| `{re.escape(annotation)}` .*$", DOC, re.MULTILINE)
    assert row.endswith(DECLARED[annotation])


def test_other_names_are_right() -> None:
    for name in (names.DEVICES_ANNOTATION, names.SIMULATED_NODE_LABEL, names.RESERVED_GPU_ANNOTATION):
        assert name in DOC
    assert f"gone for {NODE_MISSING_S:g} seconds" in DOC


async def test_the_example_runs() -> None:
    (listing,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
    job = yaml.safe_load(listing)
    async with simulated_cluster(speed=2000, controllers=True) as w:
        await w.node("n", gpus=8)
        w.binds_to("n")
        job["metadata"]["namespace"] = "default"
        await w.create(JOBS, job)
        done = await w.wait_for_job(job["metadata"]["name"], is_complete)
        assert done.status.succeeded == 4
