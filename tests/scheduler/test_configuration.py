"""The configuration file: upstream's files work, mistakes are named with their path, and nothing else stops."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from pykai.core.plugins import DEFAULT_PLUGINS
from pykai.core.plugins.proportion import Proportion
from pykai.core.plugins.scores import NodePlacement
from pykai.core.policy import UNITS_PER_SECOND, SearchBudgets
from pykai.scheduler.config.configuration import (
    Configuration,
    ConfigurationError,
    LastGoodConfiguration,
    default_configuration,
    load_configuration,
)
from pykai.scheduler.config.usagedb import UsageConfig
from tests.core.builders import cluster

DEFAULT_NAMES = [
    "predicates",
    "proportion",
    "priority",
    "elastic",
    "kubeflow",
    "ray",
    "nodeavailability",
    "gpusharingorder",
    "gpupack",
    "resourcetype",
    "subgrouporder",
    "taskorder",
    "nominatednode",
    "dynamicresources",
    "nodeplacement",
    "minruntime",
    "topology",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
]

#: As upstream's operator writes it.
OPERATOR_FILE = """
actions: "allocate, consolidation, reclaim, preempt, stalegangeviction"
tiers:
- plugins:
  - name: predicates
  - name: proportion
    arguments:
      kValue: "0.5"
      relcaimerSaturationMultiplier: "1.5"
  - name: priority
    disableJobOrder: false
  - name: nodeavailability
  - name: resourcetype
  - name: podaffinity
  - name: elastic
  - name: kubeflow
  - name: ray
  - name: subgrouporder
  - name: taskorder
  - name: nominatednode
  - name: gpuspread
  - name: nodeplacement
    arguments:
      cpu: binpack
      gpu: spread
queueDepthPerAction:
  allocate: 10
  reclaim: 5
"""


def names(configuration: Configuration) -> list[str]:
    return [named.name for named in configuration.policy.plugins]


def paths(configuration: Configuration) -> list[str]:
    return [problem.field for problem in configuration.problems]


def test_the_built_in_configuration_is_that_of_cfg_2() -> None:
    """cycle:CFG-2; plugins without a part in this version are left out without a word."""
    configuration = default_configuration()
    assert configuration.problems == ()
    assert names(configuration) == DEFAULT_NAMES
    assert configuration.policy.actions == ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
    assert configuration.policy.queue_depth == {}


def test_the_whole_list_of_cfg_2_is_in_order() -> None:
    """cycle:CFG-2, the plugins that decide nothing in this version included."""
    assert [name for name, _ in DEFAULT_PLUGINS] == [
        *DEFAULT_NAMES[:14],
        "nodeplacement",
        "minruntime",
        "topology",
        "snapshot",
        "sg-nodelocalgreedy",
        "sg-multinodegang",
    ]
    assert dict(DEFAULT_PLUGINS)["nodeplacement"] == {"cpu": "binpack", "gpu": "binpack"}


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "tiers: []", "actions: ''", "actions:\ntiers:\n"])
def test_an_empty_file_is_the_built_in_configuration(text: str) -> None:
    """cycle:CFG-1"""
    assert load_configuration(text) == default_configuration()


def test_what_is_missing_comes_from_the_built_in_configuration() -> None:
    """cycle:CFG-1"""
    configuration = load_configuration("actions: allocate")
    assert configuration.policy.actions == ("allocate",)
    assert names(configuration) == DEFAULT_NAMES


def test_a_file_of_the_operator_works_unchanged() -> None:
    configuration = load_configuration(OPERATOR_FILE)
    assert configuration.problems == ()
    assert names(configuration)[0] == "predicates"
    assert names(configuration)[-1] == "nodeplacement"
    plugins = {named.name: named.plugin for named in configuration.policy.plugins}
    assert plugins["proportion"] == Proportion(k_value=0.5, saturation_multiplier=1.5)
    assert plugins["nodeplacement"] == NodePlacement(cpu="binpack", gpu="spread")
    assert configuration.policy.queue_depth == {"allocate": 10, "reclaim": 5}


def test_several_tiers_are_one_list() -> None:
    """cycle:CYC-3"""
    configuration = load_configuration("tiers: [{plugins: [{name: priority}]}, {plugins: [{name: elastic}]}]")
    assert names(configuration) == ["priority", "elastic"]


def test_plugins_that_only_serve_pages_are_accepted() -> None:
    configuration = load_configuration(
        "tiers: [{plugins: [{name: snapshot}, {name: reflectjoborder}, {name: elastic}]}]"
    )
    assert names(configuration) == ["elastic"]
    assert not configuration.problems


@pytest.mark.parametrize(
    ("text", "path", "part"),
    [
        ("actions: allocate, fly", "actions[1]", "fly"),
        ("actions: 7", "actions", "commas"),
        ("tires: []", "tires", "unknown key"),
        ("tiers: {}", "tiers", "list"),
        ("tiers: [7]", "tiers[0]", "plugins"),
        ("tiers: [{plugins: [{name: nosuch}]}]", "tiers[0].plugins[0]", "nosuch"),
        ("tiers: [{plugins: [{}]}]", "tiers[0].plugins[0]", "name"),
        ("tiers: [{plugins: [{name: priority, colour: red}]}]", "tiers[0].plugins[0].colour", "unknown key"),
        ("tiers: [{plugins: [{name: priority, arguments: [1]}]}]", "tiers[0].plugins[0].arguments", "mapping"),
        (
            "tiers: [{plugins: [{name: priority, arguments: {up: x}}]}]",
            "tiers[0].plugins[0].arguments.up",
            "takes none",
        ),
        (
            "tiers: [{plugins: [{name: nodeplacement, arguments: {gpu: tight}}]}]",
            "tiers[0].plugins[0].arguments.gpu",
            "binpack",
        ),
        (
            "tiers: [{plugins: [{name: proportion, arguments: {kValue: lots}}]}]",
            "tiers[0].plugins[0].arguments.kValue",
            "number",
        ),
        (
            "tiers: [{plugins: [{name: proportion, arguments: {kvalue: 1}}]}]",
            "tiers[0].plugins[0].arguments.kvalue",
            "kValue",
        ),
        ("queueDepthPerAction: {fly: 3}", "queueDepthPerAction.fly", "isn't one of them"),
        ("queueDepthPerAction: {allocate: -1}", "queueDepthPerAction.allocate", "at least 0"),
        ("queueDepthPerAction: {allocate: many}", "queueDepthPerAction.allocate", "whole number"),
        ("queueDepthPerAction: 3", "queueDepthPerAction", "mapping"),
        ("queueDepthPerAction: {allocate: true}", "queueDepthPerAction.allocate", "whole number"),
        (
            "actions: allocate\nqueueDepthPerAction: {reclaim: 1}",
            "queueDepthPerAction.reclaim",
            "actions are allocate.",
        ),
        ("7: x", "7", "unknown key"),
        ("tiers: [{plugins: [{name: priority}, {name: priority}]}]", "tiers[0].plugins[1]", "listed twice"),
        (
            "tiers: [{plugins: [{name: priority}]}, {plugins: [{name: priority}]}]",
            "tiers[1].plugins[0]",
            "listed twice",
        ),
        ("tiers: [{plugins: []}, {}]", "tiers[1]", "list of plugins"),
        ("tiers: [{plugins: [{name: 7}]}]", "tiers[0].plugins[0]", "name"),
        ("tiers: [{plugins: [priority]}]", "tiers[0].plugins[0]", "name"),
        (
            "tiers: [{plugins: [{name: proportion, arguments: {kValue: [1]}}]}]",
            "tiers[0].plugins[0].arguments.kValue",
            "text or a number",
        ),
        (
            "tiers: [{plugins: [{name: proportion, arguments: {kValue: }}]}]",
            "tiers[0].plugins[0].arguments.kValue",
            "number",
        ),
        (
            "tiers: [{plugins: [{name: proportion, arguments: {kValue: .inf}}]}]",
            "tiers[0].plugins[0].arguments.kValue",
            "finite",
        ),
        ("actions: allocate\nactions: allocate", "line 2", "'actions' is given twice"),
        ("tiers:\n- plugins:\n  - name: priority\n    name: elastic\n", "line 4", "'name' is given twice"),
    ],
)
def test_a_mistake_is_named_with_its_path_and_the_rest_works(text: str, path: str, part: str) -> None:
    configuration = load_configuration(text)
    assert paths(configuration) == [path]
    assert part in configuration.problems[0].text
    plugins = configuration.policy.plugins
    result = cluster(nodes=1, gpus=1).queue("q").gang("job", gpu=1).with_policy(plugins=plugins).schedule()
    assert result.bound("job") == 1


def test_a_bad_value_leaves_the_default() -> None:
    configuration = load_configuration("tiers: [{plugins: [{name: proportion, arguments: {kValue: x}}]}]")
    assert configuration.policy.plugins[0].plugin == Proportion()


@pytest.mark.parametrize(("text", "k"), [("0", 0.0), ("-3", 0.0), ("2.5", 2.5)])
def test_k_at_or_below_zero_means_usage_is_ignored(text: str, k: float) -> None:
    """queues:Q-346"""
    configuration = load_configuration(f"tiers: [{{plugins: [{{name: proportion, arguments: {{kValue: '{text}'}}}}]}}]")
    assert configuration.policy.plugins[0].plugin == Proportion(k_value=k)


def test_a_multiplier_below_one_is_one() -> None:
    """queues:Q-274"""
    for name in ("relcaimerSaturationMultiplier", "reclaimerSaturationMultiplier", "reclaimerUtilizationMultiplier"):
        configuration = load_configuration(f"tiers: [{{plugins: [{{name: proportion, arguments: {{{name}: 0.5}}}}]}}]")
        assert configuration.problems == ()
        assert configuration.policy.plugins[0].plugin == Proportion(saturation_multiplier=1.0)


def test_values_need_not_be_quoted() -> None:
    text = "tiers: [{plugins: [{name: proportion, arguments: {kValue: 2, strictRemainders: true}}]}]"
    configuration = load_configuration(text)
    assert configuration.problems == ()
    assert configuration.policy.plugins[0].plugin == Proportion(k_value=2.0, strict_remainders=True)


SWITCHES = (
    "disableJobOrder",
    "disableTaskOrder",
    "disablePreemptable",
    "disableReclaimable",
    "disableQueueOrder",
    "disablePredicate",
    "disableNodeOrder",
)


def test_the_disable_switches_are_accepted_and_change_nothing() -> None:
    """cycle:7.1"""
    switches = ", ".join(f"{name}: true" for name in SWITCHES)
    configuration = load_configuration(f"tiers: [{{plugins: [{{name: predicates, {switches}}}]}}]")
    assert configuration == load_configuration("tiers: [{plugins: [{name: predicates}]}]")
    assert configuration.problems == ()


def test_budgets_and_usage_are_read_from_the_same_file() -> None:
    """cycle:SOL-5, queues:Q-330; the details are in test_budgets.py and test_usage.py."""
    text = "usageDBConfig: {clientType: builtin}\nscenarioSearchBudgets: {maxJobSearchDuration: 2s}\n"
    configuration = load_configuration(text)
    assert configuration.problems == ()
    assert configuration.usage == UsageConfig("builtin")
    assert configuration.policy.search_budgets == SearchBudgets(job=2 * UNITS_PER_SECOND)


def test_empty_budgets_and_no_usage_are_the_built_in_configuration() -> None:
    """cycle:CFG-1"""
    configuration = load_configuration("usageDBConfig:\nscenarioSearchBudgets: {}\n")
    assert configuration == default_configuration()
    assert configuration.usage is None


def test_mistakes_in_budgets_and_usage_are_named_like_all_others() -> None:
    """queues:14.2, cycle:SOL-5: neither stops the scheduler."""
    text = "actions: allocate\nusageDBConfig: {}\nscenarioSearchBudgets: {maxJobSearchDuration: soon}\n"
    configuration = load_configuration(text)
    assert sorted(paths(configuration)) == ["scenarioSearchBudgets.maxJobSearchDuration", "usageDBConfig.clientType"]
    assert configuration.policy.actions == ("allocate",)
    assert configuration.policy.search_budgets == SearchBudgets()
    assert configuration.usage is None


def test_every_mistake_of_a_file_is_named() -> None:
    text = """
actions: allocate, fly
colour: red
tiers:
- plugins:
  - name: nosuch
  - name: nodeplacement
    arguments: {gpu: tight, cpu: spread}
queueDepthPerAction: {fly: 1, allocate: 2}
"""
    configuration = load_configuration(text)
    assert sorted(paths(configuration)) == [
        "actions[1]",
        "colour",
        "queueDepthPerAction.fly",
        "tiers[0].plugins[0]",
        "tiers[0].plugins[1].arguments.gpu",
    ]
    assert configuration.policy.actions == ("allocate",)
    assert [named.plugin for named in configuration.policy.plugins] == [NodePlacement(cpu="spread", gpu="binpack")]
    assert configuration.policy.queue_depth == {"allocate": 2}


@pytest.mark.parametrize(
    "text",
    [
        "actions: [",
        "- a\n- b",
        "just words",
        "a: b: c",
        "actions: allocate\n---\nactions: allocate",
        "? [a]\n: b",
        "actions: \x00",
        "x: \ud800",
        "a: " + "[" * 100_000,
        "queueDepthPerAction: {allocate: " + "9" * 5000 + "}",
        "!!python/object/apply:os.system ['true']",
    ],
    ids=range(11),
)
def test_a_file_that_is_not_a_mapping_is_an_error_at_start(text: str) -> None:
    with pytest.raises(ConfigurationError, match="configuration"):
        load_configuration(text)


def test_a_running_service_keeps_the_last_good_configuration() -> None:
    said: list[str] = []
    kept = LastGoodConfiguration("actions: allocate")
    assert not kept.reload("actions: [", said.append)
    assert list(kept.current.policy.actions) == ["allocate"]
    assert "last good configuration stays" in said[0]
    assert kept.reload("actions: allocate, reclaim", said.append)
    assert list(kept.current.policy.actions) == ["allocate", "reclaim"]
    assert len(said) == 1


def test_a_file_with_mistakes_is_still_taken_over() -> None:
    said: list[str] = []
    kept = LastGoodConfiguration("actions: allocate")
    assert kept.reload("actions: allocate, reclaim\ncolour: red", said.append)
    assert paths(kept.current) == ["colour"]
    assert said == []


def test_a_service_does_not_start_with_a_broken_file() -> None:
    with pytest.raises(ConfigurationError):
        LastGoodConfiguration("actions: [")


@pytest.mark.parametrize(
    ("text", "mode"),
    [("actions: allocate", "prefer"), ("podDisruptionBudgets:", "prefer"), ("podDisruptionBudgets: strict", "strict")],
)
def test_budgets_are_preferred_unless_the_file_says_otherwise(text: str, mode: str) -> None:
    """disruptions:prefer"""
    assert load_configuration(text).policy.disruption_budgets == mode
    assert not load_configuration(text).problems


#: what stops a scheduler at its start, and what it says
FATAL = [
    ("actions: alocate", r"actions\[0\]: unknown action 'alocate'; .*; did you mean allocate\?"),
    ("actions: 7", "actions: expected names separated by commas"),
    ("profile: kubernets", "unknown profile 'kubernets'; .*; did you mean kubernetes"),
    ("tiers: {}", "tiers: expected a list"),
    ("podDisruptionBudgets: hard", "podDisruptionBudgets: 'hard': expected one of prefer, strict, ignore"),
    ("podDisruptionBudgets: {}", "podDisruptionBudgets: {}: expected one of prefer"),
    ("queueDepthPerAction: 3", "queueDepthPerAction: expected a mapping"),
    ("queueDepthPerAction: {allocate: many}", "queueDepthPerAction.allocate: 'many': expected a whole number"),
]
#: what a newer KAI may have and this version has not, or what KAI skips as well (cycle:CYC-3, queues:Q-308)
SKIPPED = [
    ("tiers: [{plugins: [{name: priorty}, {name: elastic}]}]", "did you mean priority?"),
    ("tiers: [{plugins: [{name: proportion, arguments: {kvalue: 1}}]}]", "did you mean kValue?"),
    ("tiers: [{plugins: [{name: minruntime, arguments: {defaultReclaimMinRuntime: soon}}]}]", "'soon'"),
    ("tires: []", "did you mean tiers?"),
    ("queueDepthPerAction: {newaction: 3}", "isn't one of them"),
]


@pytest.mark.parametrize(("text", "says"), FATAL)
def test_cfg_1_a_service_does_not_start_with_unknown_actions_or_wrong_values(text: str, says: str) -> None:
    """cycle:CFG-1"""
    with pytest.raises(ConfigurationError, match=says):
        LastGoodConfiguration(text)
    said: list[str] = []
    kept = LastGoodConfiguration("actions: allocate")
    assert not kept.reload(text, said.append)
    assert kept.current.policy.actions == ("allocate",)
    assert re.search(says, said[0])


@pytest.mark.parametrize(("text", "says"), SKIPPED)
def test_cyc_3_what_a_newer_version_may_have_is_skipped_unless_strict(text: str, says: str) -> None:
    """cycle:CYC-3, queues:Q-308"""
    assert says in LastGoodConfiguration(text).current.problems[0].text
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        LastGoodConfiguration(text, strict=True)
    kept = LastGoodConfiguration("actions: allocate", strict=True)
    assert not kept.reload(text, lambda _: None)
    assert kept.current.policy.actions == ("allocate",)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """A distribution with one plugin called `theirs`, as pip leaves it."""
    (folder / "their_plugin.py").write_text(source)
    info = folder / "their_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pykai.plugins]\ntheirs = their_plugin:Theirs\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "their_plugin", raising=False)


THEIRS = """
from pykai.plugin import Hooks

class Theirs:
    ARGUMENTS = {"size": ("size", int)}

    def __init__(self, size=1):
        self.size = size

    def prepare(self, snapshot):
        return Hooks()
"""


def test_a_third_party_plugin_is_loaded_through_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, THEIRS)
    configuration = load_configuration("tiers: [{plugins: [{name: theirs, arguments: {size: 3, colour: red}}]}]")
    (named,) = configuration.policy.plugins
    assert named.third_party
    assert named.plugin.size == 3  # type: ignore[attr-defined]
    assert paths(configuration) == ["tiers[0].plugins[0].arguments.colour"]


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("import no_such_module_anywhere", "no_such_module_anywhere"),
        ("class Theirs:\n    def __init__(self):\n        raise RuntimeError('no luck')", "no luck"),
        ("class Theirs:\n    pass", "prepare"),
        ("Theirs = 7", "not callable"),
        ("", "Theirs"),
        ("import sys; sys.exit('bye')", "SystemExit: bye"),
        ("class Theirs:\n    prepare = 7", "prepare"),
        ("class Theirs:\n    ARGUMENTS = 7\n    def prepare(self, snapshot): ...", "Theirs"),
        ("this is no Python", "SyntaxError"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_reported_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, part: str
) -> None:
    install(tmp_path, monkeypatch, source)
    configuration = load_configuration("tiers: [{plugins: [{name: theirs, arguments: {a: 1}}, {name: priority}]}]")
    assert names(configuration) == ["priority"]
    problem = configuration.problems[-1]
    assert (problem.subject, problem.field) == ("plugin theirs", "tiers[0].plugins[0]")
    assert part in problem.text
    assert not any("unknown plugin" in problem.text for problem in configuration.problems)


def test_a_name_that_several_packages_offer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, THEIRS + "\nclass Another(Theirs):\n    pass\n")
    info = tmp_path / "another-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pykai.plugins]\ntheirs = their_plugin:Another\n")
    configuration = load_configuration("tiers: [{plugins: [{name: theirs}]}]")
    (named,) = configuration.policy.plugins
    assert type(named.plugin).__name__ == "Another"
    assert paths(configuration) == ["tiers[0].plugins[0]"]
    assert "their_plugin:Another, their_plugin:Theirs" in configuration.problems[0].text


def test_a_built_in_name_is_always_the_built_in_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, THEIRS)
    points = tmp_path / "their_plugin-1.0.dist-info" / "entry_points.txt"
    points.write_text("[pykai.plugins]\nproportion = their_plugin:Theirs\n")
    configuration = load_configuration("tiers: [{plugins: [{name: proportion}]}]")
    assert [named.plugin for named in configuration.policy.plugins] == [Proportion()]


def test_built_in_plugins_are_not_foreign() -> None:
    assert not any(named.third_party for named in default_configuration().policy.plugins)


def test_queue_depth_keeps_the_best_groups_of_every_leaf() -> None:
    """cycle:ORD-5, Do better"""
    depth = load_configuration("queueDepthPerAction: {allocate: 1}").policy.queue_depth
    base = cluster(nodes=1, gpus=8).queue("a").queue("b").priority_class("high", 90)
    for queue in "ab":
        base.gang(f"{queue}-low", queue=queue, gpu=1).gang(f"{queue}-high", queue=queue, gpu=1, priority="high")
    result = base.with_policy(queue_depth=depth).schedule()
    assert sorted(result.order()) == ["a-high", "b-high"]


WISHES = ["topologyspread", "nodeaffinity", "tainttoleration", "volumelimits"]


def test_a_profile_decides_which_plugins_are_on_where_the_file_lists_none() -> None:
    """cycle:FLT-4"""
    assert names(load_configuration("profile: kubernetes")) == [*DEFAULT_NAMES, *WISHES]
    assert names(load_configuration("profile: kubernetes\ntiers: []")) == [*DEFAULT_NAMES, *WISHES]
    assert names(load_configuration("profile: kubernetes\ntiers:\n- plugins:\n  - name: predicates")) == ["predicates"]
    assert names(load_configuration("profile: kubernetes\ntiers: all of them")) == [*DEFAULT_NAMES, *WISHES]


def test_a_profile_given_by_a_flag_wins_over_the_file() -> None:
    assert names(load_configuration("profile: default", "kubernetes")) == [*DEFAULT_NAMES, *WISHES]
    assert names(load_configuration("profile: kubernetes", "default")) == DEFAULT_NAMES
    assert names(load_configuration("", "kubernetes")) == [*DEFAULT_NAMES, *WISHES]


@pytest.mark.parametrize("profile", ["kube", "7", "[kubernetes]"])
def test_an_unknown_profile_is_named_and_the_default_one_used(profile: str) -> None:
    read = load_configuration(f"profile: {profile}")
    assert names(read) == DEFAULT_NAMES
    (problem,) = read.problems
    assert problem.field == "profile"
    assert "known are default, kubernetes" in problem.text
    assert read.errors == (problem,)


def test_a_reloaded_file_keeps_the_profile_of_the_flag() -> None:
    kept = LastGoodConfiguration("", "kubernetes")
    assert kept.reload("queueDepthPerAction: {allocate: 1}", lambda text: None)
    assert names(kept.current) == [*DEFAULT_NAMES, *WISHES]
