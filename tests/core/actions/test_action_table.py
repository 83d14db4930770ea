"""The table of actions: one row and one function are all that a new action needs."""

from __future__ import annotations

import pytest

from pykai.cli.sentences import eviction_sentences
from pykai.core import actions
from pykai.core.actions.action import Action
from pykai.core.cycle.recording import EvictionCause, record_decisions
from pykai.core.opencycle import Cycle
from pykai.core.report.evictions import EvictionFacts, EvictionTexts
from pykai.scheduler.config.configuration import read_configuration
from tests.core.builders import cluster


def swept_text(facts: EvictionFacts) -> str:
    return f"Pod {facts.pod} was swept"


def sweep(cycle: Cycle, action: Action) -> None:
    """Evict everything that runs."""
    assert action.texts is not None
    state = cycle.state
    mark = state.mark()
    for entry in cycle.context.snapshot.group_entries.values():
        gang = cycle.gangs.gang(entry)
        for leaf in gang.leaves:
            for task in gang.active_tasks(state.status_of).get(leaf.name, ()):
                state.evict(gang, leaf, task)
    cause = EvictionCause(action.name, action.texts.event)
    record_decisions(cycle.decisions, state, cycle.context.rules, state.commit(mark), cause)


SWEEP = Action("sweep", sweep, has_budget=True, texts=EvictionTexts(swept_text, "sweep: {pods} of {victims} go"))
SEARCHING = ("consolidation", "reclaim", "preempt")
CONFIGURATION = {"actions": "allocate, sweep", "scenarioSearchBudgets": {"maxActionSearchDuration": {"sweep": "1s"}}}


@pytest.fixture
def _with_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(actions.ACTIONS, "sweep", SWEEP)


def test_an_action_without_a_row_is_unknown() -> None:
    paths = [problem.field for problem in read_configuration(CONFIGURATION).problems]
    assert paths == ["actions[1]", "scenarioSearchBudgets.maxActionSearchDuration.sweep"]


@pytest.mark.usefixtures("_with_sweep")
def test_a_new_row_is_known_to_the_configuration() -> None:
    configuration = read_configuration(CONFIGURATION)
    assert not configuration.problems
    assert configuration.policy.actions == ("allocate", "sweep")
    assert configuration.policy.search_budgets.action_units("sweep") == 20_000


@pytest.mark.usefixtures("_with_sweep")
def test_messages_about_unknown_actions_name_a_new_row() -> None:
    problems = read_configuration({"actions": "sweeep"}).problems
    assert any("sweep" in problem.text for problem in problems)


@pytest.mark.usefixtures("_with_sweep")
def test_a_new_row_runs_and_reports() -> None:
    world = cluster(nodes=1, gpus=1).queue("q").gang("job", gpu=1, on="node-0")
    plan = world.with_policy(actions=("allocate", "sweep")).schedule().plan
    assert [(evict.action, evict.message) for evict in plan.evictions] == [("sweep", "Pod default/job-0 was swept")]
    assert eviction_sentences(plan) == ["sweep: 1 pod of job go"]


@pytest.mark.parametrize(("name", "searches"), [(name, name in SEARCHING) for name in actions.ACTIONS])
def test_actions_that_search_for_victims_have_a_budget(name: str, searches: bool) -> None:
    """cycle:SOL-5: the other actions have none to set."""
    problems = read_configuration({"scenarioSearchBudgets": {"maxActionSearchDuration": {name: "1s"}}}).problems
    assert (not problems) is searches
