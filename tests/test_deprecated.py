"""Plugins written for version 0.1 run, with warnings that have the new names."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykai import deprecated
from pykai.scheduler.config.configuration import Configuration, load_configuration
from tests.core.builders import cluster

#: The example of docs/plugins.md in version 0.1.
QUIET_NODES = """
from dataclasses import dataclass
from typing import Any, ClassVar

from pykai.core.hooks import Ask, Hooks, NodeScore, Scope
from pykai.core.model.axes import Rows
from pykai.core.snapshot import Snapshot
from pykai.core.state import State


@dataclass(frozen=True)
class Theirs:
    label: str = "example.com/quiet"
    ARGUMENTS: ClassVar[dict[str, Any]] = {"label": ("label", str)}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        quiet = snapshot.nodes.per_label(self.label, lambda value: value == "true")

        def score(state: State, ask: Ask, rows: Rows, context: None) -> Any:
            return 100_000.0 * quiet[rows]

        return Hooks(node_scores=(NodeScore("quietnodes", score, scope=Scope.NODES),))
"""

#: Hooks by their old names: at most two pods a node, reclaim only from preemptible work.
TWO_A_NODE = """
import numpy as np

from pykai.core.decisions import Verdict
from pykai.core.hooks import EVERY_NODE, Ask, Hooks, NodeCheck, NodeSet, NoSets, Scope, Taking

SEEN = []


class Index:
    def __init__(self, size):
        self.pods = np.zeros(size, dtype=np.int64)

    def came(self, task, row):
        self.pods[row] += task.ours

    def went(self, task, row):
        self.pods[row] -= task.ours


class Theirs:
    def prepare(self, snapshot):
        index = Index(len(snapshot.nodes))

        def check(state, ask: Ask, rows):
            SEEN.append(("open", ask.gang.open))
            return (index.pods[rows] > 1).astype(np.int64)

        def node_sets(state, gang, subgroup, tasks, nodes: NodeSet):
            return [nodes] if nodes is EVERY_NODE else NoSets(())

        def gate(state, taking: Taking):
            SEEN.append(("taking", taking.core, len(taking.committed), state.ledger.leaving))
            return None

        return Hooks(
            node_checks=(NodeCheck("twopods", ("taken",), check, scope=Scope.ASK, key=lambda ask: ask.task.key),),
            node_sets=node_sets,
            may_reclaim=lambda state, gang, required: Verdict("reclaim", "plugin", other="x") if gang.semi else None,
            reclaim_gate=gate,
            hopeless=lambda ask, tasks: False,
            ask_key=lambda ask: ask.task.key,
            observer=index,
        )
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Configuration, list[str]]]:
    """Installs a plugin as pip does; gives the configuration that has it first, and the warnings of loading it."""

    def install(source: str) -> tuple[Configuration, list[str]]:
        (tmp_path / "their_old_plugin.py").write_text(source, encoding="utf-8")
        info = tmp_path / "their_old_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-old-plugin\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[pykai.plugins]\ntheirsold = their_old_plugin:Theirs\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "their_old_plugin", raising=False)
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            configuration = load_configuration(
                "tiers: [{plugins: [{name: theirsold}, {name: predicates}, {name: proportion}, {name: priority},"
                " {name: sg-nodelocalgreedy}]}]"
            )
        assert configuration.problems == ()
        assert {warning.category for warning in raised} <= {DeprecationWarning}
        return configuration, [str(warning.message) for warning in raised]

    return install


def old_names(messages: list[str]) -> set[str]:
    return {message.partition(" is deprecated")[0] for message in messages}


def test_the_old_example_decides_as_before(load: Callable[[str], tuple[Configuration, list[str]]]) -> None:
    configuration, messages = load(QUIET_NODES)
    assert old_names(messages) == {
        "pykai.core.hooks.Ask",
        "pykai.core.snapshot.Snapshot",
        "pykai.core.state.State",
    }
    assert "use pykai.plugin.PlacementRequest" in messages[0]
    built = cluster().node("a", gpus=8).node("b", gpus=8, labels={"example.com/quiet": "true"}).queue("q")
    result = built.gang("train", pods=2, gpu=1).with_policy(plugins=configuration.policy.plugins).schedule()
    assert result.nodes_used("train") == {"b": 2}
    assert result.plan.problems == ()


def test_old_hooks_and_attributes_work(load: Callable[[str], tuple[Configuration, list[str]]]) -> None:
    configuration, messages = load(TWO_A_NODE)
    assert {"pykai.core.decisions.Verdict", "pykai.core.hooks.EVERY_NODE"} <= old_names(messages)
    built = cluster(nodes=2, gpus=2).queue("over", quota=0).queue("under", quota=2)
    built.gang("one", gpu=2, queue="over", on="node-0").gang("two", gpu=2, queue="over", on="node-1")
    built.gang("three", gpu=2, queue="under").with_actions("allocate", "reclaim")
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result = built.with_actions("allocate", "reclaim").with_policy(plugins=configuration.policy.plugins).schedule()
    assert result.plan.problems == ()
    assert len(result.evicted_pods()) == 1
    seen: list[Any] = sys.modules["their_old_plugin"].SEEN
    assert ("taking", False, 2, None) in seen
    assert {kind for kind, *_ in seen} == {"open", "taking"}
    assert old_names([str(warning.message) for warning in raised]) >= {
        "EvictionProposal.committed",
        "EvictionProposal.core",
        "Gang.open",
        "Gang.semi",
        "Hooks(ask_key=...)",
        "Hooks(hopeless=...)",
        "Index.came",
        "QueueLedger.leaving",
        "Scope.ASK",
        "Task.ours",
    }
    assert {Path(warning.filename).name for warning in raised} == {"their_old_plugin.py"}


@pytest.mark.parametrize("module", deprecated.MODULES)
def test_every_old_module_gives_what_the_stable_one_has(module: str) -> None:
    old = importlib.import_module(module)
    stable = importlib.import_module(deprecated.STABLE_MODULE)
    for name, new in deprecated.MODULES[module].items():
        with pytest.warns(DeprecationWarning, match=rf"{module}\.{name} .* pykai\.plugin\.{new}$"):
            assert getattr(old, name) is getattr(stable, new)
    with pytest.raises(AttributeError, match="no_such_name"):
        old.no_such_name  # noqa: B018


@pytest.mark.parametrize("place", deprecated.ATTRIBUTES)
def test_every_old_attribute_leads_to_one_that_exists(place: str) -> None:
    module, _, name = place.partition(":")
    owner = getattr(importlib.import_module(module), name)
    members = {*dir(owner), *getattr(owner, "__annotations__", ()), *getattr(owner, "__slots__", ())}
    assert set(deprecated.ATTRIBUTES[place].values()) <= members
    deprecated.accept_old_names()
    for old in deprecated.ATTRIBUTES[place]:
        assert isinstance(vars(owner)[old], deprecated._OldAttribute)


def test_modules_that_never_existed_are_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pykai.core.no_such_module")
