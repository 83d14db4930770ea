"""docs/autoscaling.md is right: its story is read, its names are those of the program, its conditions are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pykai.api import names
from pykai.lab.autoscaling.nodegroups import PROVISIONERS
from pykai.lab.story import node_group, parse_story

DOC = (Path(__file__).parents[2] / "docs" / "autoscaling.md").read_text(encoding="utf-8")
(STORY,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)


def test_the_story_is_read() -> None:
    story = parse_story(STORY)
    (group,) = map(node_group, story.node_groups)
    assert (group.most, group.boot_s, group.idle_s, group.machines[0].gpus) == (4, 120.0, 600.0, 8)
    assert story.gates_queues


@pytest.mark.parametrize("provisioner", PROVISIONERS.values(), ids=lambda each: each.name)
def test_taints_and_events_are_those_of_the_program(provisioner: object) -> None:
    assert isinstance(provisioner, type(PROVISIONERS["karpenter"]))
    assert f"`{provisioner.leaving_taint}`" in DOC
    assert f"reason={provisioner.event}" in DOC


def test_conditions_are_those_of_the_program() -> None:
    table = DOC.split("## What an autoscaler reads")[1].split("\n## ")[0]
    for reason in (
        names.CONDITION_REASON_UNSCHEDULABLE,
        names.CONDITION_REASON_NOT_READY,
        names.CONDITION_REASON_QUEUE_ACCESS_DENIED,
        names.CONDITION_REASON_GATED,
    ):
        assert f"`{reason}`" in table
    assert f"`{names.KARPENTER_DO_NOT_DISRUPT_ANNOTATION}`" in DOC
