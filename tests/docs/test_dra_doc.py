"""docs/dra.md is right: its claim is one the engine takes, its texts are those of the engine."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from pykai.core.plugins import DEFAULT_PLUGINS
from tests.core.deviceclusters import devices, waits_for

DOC = (Path(__file__).parents[2] / "docs" / "dra.md").read_text(encoding="utf-8")


def test_the_claim_can_be_used_by_the_queue_it_names() -> None:
    (listing,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
    world = devices(each=2).device_class("gpu.nvidia.com").queue("team-queue").queue("other")
    world.add(yaml.safe_load(listing)).gang("a", shares=("shared",), namespace="team", queue="team-queue")
    world.gang("b", shares=("shared",), namespace="team", queue="other")
    result = world.schedule()
    assert (result.bound("a", "team"), result.bound("b", "team")) == (1, 0)


def test_texts_are_those_of_the_engine() -> None:
    texts = re.findall(r"^\| `([^`]+)`", DOC, re.MULTILINE)
    assert len(texts) == 11
    result = devices().queue("q").gang("a", shares=("c",)).gang("b", 3, template=1).schedule()
    said = [waits_for(result, "a"), *result.node_reasons("b")]
    for text in ("resource claim … does not exist", "node(s) didn't have enough resources: GPUs"):
        assert text in texts
        pattern = ".*".join(re.escape(part) for part in text.split("…"))
        assert any(re.search(pattern, each) for each in said)


def test_the_plugin_is_built_in() -> None:
    assert "dynamicresources" in dict(DEFAULT_PLUGINS)
