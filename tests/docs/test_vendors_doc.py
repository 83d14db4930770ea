"""docs/vendors.md is right: the table is that of the program, and its story comes to its end."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import yaml

from pykai.api.gpuvendors import VENDORS, is_gpu
from pykai.core.placing.reasons import UNSHAREABLE
from pykai.lab.cluster import LabCluster, LabOptions
from pykai.lab.stalldetection import StallDetector
from pykai.lab.story import parse_story
from pykai.operator.install import installation

DOC = (Path(__file__).parents[2] / "docs" / "vendors.md").read_text(encoding="utf-8")
POD, STORY = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)


def test_every_vendor_is_listed_with_its_resources() -> None:
    rows = dict(re.findall(r"^\| (\w+) \| (`.*) \|$", DOC, re.MULTILINE))
    assert list(rows) == [vendor.name for vendor in VENDORS]
    for vendor in VENDORS:
        assert [name for name in re.findall(r"`([^`]+)`", rows[vendor.name]) if "<" not in name] == list(
            vendor.resources
        )


def test_the_message_is_that_of_the_program() -> None:
    assert f"```\n{UNSHAREABLE}\n```" in DOC


def test_the_pod_asks_for_a_gpu() -> None:
    (container,) = yaml.safe_load(POD)["spec"]["containers"]
    assert all(map(is_gpu, container["resources"]["limits"]))


async def test_the_story_comes_to_its_end() -> None:
    cluster = await LabCluster.start(LabOptions(story=parse_story(STORY), speed=50, objects=installation()))
    still = StallDetector(cluster.runtime, cluster.scheduler, cluster.player)
    stop = asyncio.Event()
    running = asyncio.create_task(cluster.run(stop))
    ends = [asyncio.create_task(event.wait()) for event in (cluster.player.finished, still.stalled)]
    await asyncio.wait({running, *ends}, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await running
    for end in ends:
        end.cancel()
    assert (still.reasons, cluster.player.failed(), cluster.player.refused) == ([], [], [])
