"""docs/volumes.md is right: its configuration loads, its texts are those of the engine."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from pykai.core.model.volumerequests import UNBOUND_IMMEDIATE
from pykai.scheduler.config.configuration import read_configuration

DOC = (Path(__file__).parents[2] / "docs" / "volumes.md").read_text(encoding="utf-8")


def test_the_configuration_loads_and_switches_limits_on() -> None:
    (listing,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
    found = read_configuration({"actions": "allocate", **yaml.safe_load(listing)})
    assert [named.name for named in found.policy.plugins] == ["predicates", "volumelimits"]
    assert not found.problems


def test_texts_are_those_of_the_engine() -> None:
    assert f"`{UNBOUND_IMMEDIATE}`" in DOC
