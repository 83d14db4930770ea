"""Arguments of plugins: text to fields; what cannot be used is reported and left out (cycle:21)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.model.problems import Problem
from pykai.core.plugins import built_in_plugin
from pykai.core.plugins.arguments import read_count, read_duration_ns
from pykai.core.plugins.dynamicresources import DynamicResourcesPlugin
from pykai.core.plugins.minruntime import LCA, MinRuntime
from pykai.core.plugins.predicates import Predicates
from pykai.core.plugins.proportion import Proportion
from pykai.core.plugins.scores import GpuSharingOrder
from pykai.core.plugins.topology import TopologyPlugin


def made(name: str, **arguments: str) -> tuple[Any, list[str]]:
    """A built-in plugin with these arguments, and what was reported."""
    problems: list[Problem] = []
    plugin = built_in_plugin(name, arguments, "tiers", problems.append)
    return plugin, [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("name", "argument", "said"),
    [
        ("topology", "stick", "unknown argument; it knows order, sticky; ignored; did you mean sticky?"),
        ("nodeavailability", "weight", "unknown argument; it takes none; ignored"),
        ("elastic", "weight", "unknown argument; it takes none; ignored"),
    ],
)
def test_an_unknown_argument_is_reported_with_those_a_plugin_knows(name: str, argument: str, said: str) -> None:
    plugin, problems = made(name, **{argument: "true"})
    assert plugin == made(name)[0]
    assert problems == [f"plugin {name}: tiers.{argument}: {said}"]


def test_the_arguments_beside_an_unknown_one_count() -> None:
    assert made("topology", weight="3", sticky="true")[0] == TopologyPlugin(sticky=True)


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("predicates", Predicates(topology_spread=True)),
        ("gpusharingorder", GpuSharingOrder(shared_only=False)),
        ("topology", TopologyPlugin(order="binpack", sticky=False)),
        ("minruntime", MinRuntime(default_preempt_ns=0, default_reclaim_ns=0, resolve=LCA)),
        ("proportion", Proportion(k_value=1.0, saturation_multiplier=1.0, strict_remainders=False)),
        ("dynamicresources", DynamicResourcesPlugin(max_cel_cache_entries=10)),
    ],
)
def test_without_arguments_the_defaults_count(name: str, defaults: object) -> None:
    assert made(name) == (defaults, [])


def test_a_count_has_at_most_18_digits() -> None:
    assert read_count("9" * 18) == 10**18 - 1
    with pytest.raises(ValueError, match="whole number"):
        read_count("1" * 19)


def test_no_time_at_all_is_a_duration() -> None:
    assert read_duration_ns("0s") == 0


@pytest.mark.parametrize(("text", "used"), [("0.5", 1.0), ("-3", 1.0), ("1", 1.0), ("1.5", 1.5)])
def test_reclaim_is_never_less_reluctant_than_by_default(text: str, used: float) -> None:
    """queues:Q-274: a multiplier below 1 counts as 1."""
    assert made("proportion", reclaimerSaturationMultiplier=text)[0].saturation_multiplier == used
