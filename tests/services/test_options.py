"""Flags of a service become its options; with one that is wrong the service does not start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from pykai.binder.options import BinderOptions
from pykai.kube.flags import (
    Flag,
    OptionError,
    read_bool,
    read_options,
    read_pairs,
    read_positive,
    read_positive_number,
    read_text,
)
from pykai.lab.machines.options import MachineOptions
from pykai.podgrouper.options import PodGrouperOptions, selector_pairs
from pykai.podgroups.options import PodGroupsOptions
from pykai.queues.options import QueuesOptions
from pykai.services.table import SERVICES


@dataclass(frozen=True)
class Options:
    name: str = "x"
    number: int = 1
    part: float = 0.5
    switch: bool = True
    pairs: Mapping[str, str] = field(default_factory=dict)


FLAGS = (
    Flag("name", "x", read_text, "", field="name"),
    Flag("number", "1", read_positive, "", field="number"),
    Flag("part", "0.5", read_positive_number, "", field="part"),
    Flag("switch", "true", read_bool, "", field="switch"),
    Flag("pairs", "", read_pairs, "", field="pairs"),
    Flag("old", "", read_text, "", no_effect=True),
)


def test_every_kind_of_value() -> None:
    given = {"name": "y", "--number": "7", "part": "2", "switch": "F", "pairs": "a=1, b = 2 ,a=3", "old": "z"}
    assert read_options(Options(), FLAGS, given) == Options("y", 7, 2.0, False, {"a": "3", "b": "2"})
    assert read_options(Options(), FLAGS, {"pairs": "", "name": None}) == Options()


@pytest.mark.parametrize(
    ("flag", "value"),
    [("number", "0"), ("number", "-1"), ("number", "٣"), ("part", "0"), ("part", "x"), ("part", "inf")]
    + [("switch", "maybe"), ("pairs", "a"), ("unknown", "1")],
)
def test_what_is_wrong_is_an_error_that_names_the_flag(flag: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"^--{flag}: "):
        read_options(Options(), FLAGS, {flag: value})


@pytest.mark.parametrize("name", SERVICES)
def test_every_flag_has_a_meaning_and_a_default_that_can_be_read(name: str) -> None:
    for flag in SERVICES[name].flags():
        assert flag.meaning, flag.name
        flag.read(flag.default)
        assert not (flag.no_effect and flag.field), flag.name


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("binder", BinderOptions()),
        ("podgrouper", PodGrouperOptions()),
        ("podgroups", PodGroupsOptions()),
        ("queues", QueuesOptions()),
        ("machines", MachineOptions()),
    ],
)
def test_options_without_flags_are_the_defaults_of_the_table(name: str, options: object) -> None:
    flags = SERVICES[name].flags()
    assert read_options(options, flags, {flag.name: flag.default for flag in flags}) == options


def test_everything_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(OptionError, match=r"^--number: 'x': expected .*; --other: unknown flag$"):
        read_options(Options(), FLAGS, {"number": "x", "other": "1"})


def test_the_error_about_a_misspelt_flag_suggests_the_right_one() -> None:
    with pytest.raises(OptionError, match=r"--numbr: unknown flag; did you mean --number\?"):
        read_options(Options(), FLAGS, {"numbr": "1"})


def test_kais_flags_are_accepted(caplog: pytest.LogCaptureFixture) -> None:
    """workloads:12.1, 12.2; queues:4.1."""
    grouper = {
        "scheduler-name": "s",
        "queue-label-key": "q",
        "nodepool-label-key": "n",
        "search-legacy-pg": "false",
        "knative-gang-schedule": "false",
        "generic-karta-fallback": "false",
        "default-priorities-configmap-name": "c",
        "default-priorities-configmap-namespace": "d",
        "pod-label-selector": "a=b",
        "namespace-label-selector": "c=d",
        "qps": "50",
        "burst": "300",
        "max-concurrent-reconciles": "3",
        "leader-elect": "true",
        "metrics-bind-address": ":1",
        "health-probe-bind-address": ":2",
    }
    assert read_options(PodGrouperOptions(), SERVICES["podgrouper"].flags(), grouper) == PodGrouperOptions(
        "s", "q", "n", False, False, False, "c", "d", "a=b", "c=d", 3
    )
    groups = {
        "scheduler-name": "s",
        "enable-podgroup-webhook": "true",
        "max-concurrent-reconciles": "3",
        "log-level": "3",
        "skip-controller-name-validation": "true",
    }
    assert read_options(PodGroupsOptions(), SERVICES["podgroups"].flags(), groups) == PodGroupsOptions("s", 3)
    queues = {
        "enable-webhook": "true",
        "enable-quota-validation": "true",
        "metrics-listen-address": ":1",
        "metrics-namespace": "m",
        "queue-label-to-metric-label": "a=b",
        "queue-label-to-default-metric-value": "a=c",
    }
    assert read_options(QueuesOptions(), SERVICES["queues"].flags(), queues) == QueuesOptions(
        "m", {"a": "b"}, {"a": "c"}
    )
    assert caplog.text == ""


def test_selector_pairs() -> None:
    """workloads:GR-2."""
    assert selector_pairs(" team = ai ,nonsense,a=b=c,=x,") == {"team": "ai", "a": "b=c"}
    assert selector_pairs("") == {}
