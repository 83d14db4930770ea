"""How long the steps of a cycle take, and how the searches for victims go (cycle:20; operations:8).

The engine has no clock; this listener has one.  It runs in the engine's thread.  A cycle whose plan is that of the last
one has no steps: the gauges keep their values then.

KAI has a second value of the label `OnSession`, for plugins that close a session.  Plugins have nothing to close here.
"""

from __future__ import annotations

from collections.abc import Callable

from pykai.core import listening
from pykai.core.listening import CycleListener
from pykai.observe.metrics import Metrics

_FINE_MILLISECONDS = tuple(0.5 * 2**power for power in range(15))
_SEARCH_SECONDS = tuple(0.001 * 2**power for power in range(16))
_SIMULATED = "simulated"
#: what became of a set of victims -> the states in which it counts, beside "emitted"
_STATES = {
    listening.SOLVED: (_SIMULATED,),
    listening.UNSOLVED: (_SIMULATED,),
    listening.VALIDATOR_REJECTED: (_SIMULATED, listening.VALIDATOR_REJECTED),
    listening.DUPLICATE: (listening.DUPLICATE,),
}
#: the result of a search that needed no set to try; KAI has one word for both
FOUND_WITHOUT_TRYING = "hopeless"


class CycleMetrics(CycleListener):
    """Metrics of the steps of cycles; `now_s` is a clock that is never set."""

    def __init__(self, make: Metrics, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._step_s = 0.0
        self._scenario_s = 0.0
        self._action = ""
        self._generator = ""
        self._plugins = make.gauge(
            "plugin_scheduling_latency_milliseconds",
            "Milliseconds that a plugin took to prepare its rules",
            ["plugin", "OnSession"],
        )
        self._actions = make.gauge(
            "action_scheduling_latency_milliseconds", "Milliseconds that an action took in the last cycle", ["action"]
        )
        self._action_histogram = make.histogram(
            "action_scheduling_latency_histogram_milliseconds",
            "Milliseconds that actions took",
            _FINE_MILLISECONDS,
            ["action"],
        )
        self._simulated = make.unsuffixed_counter(
            "scenarios_simulation_by_action", "Sets of victims that were tried", ["action"]
        )
        self._filtered = make.unsuffixed_counter(
            "scenarios_filtered_by_action", "Sets of victims not tried, because they cannot suffice", ["action"]
        )
        self._jobs = make.counter(
            "scenario_search_jobs",
            "Searches for victims, one for each PodGroup and action",
            ["action", "result", "reduced_budget"],
        )
        self._durations = make.histogram(
            "scenario_search_duration_seconds",
            "Seconds to find and try one set of victims",
            _SEARCH_SECONDS,
            ["action", "generator", "result"],
        )
        self._scenarios = make.counter(
            "scenario_search_scenarios", "Sets of victims, by what became of them", ["action", "generator", "state"]
        )

    def cycle_began(self) -> None:
        """Plugins are prepared next."""
        self._step_s = self._now_s()

    def plugin_prepared(self, plugin: str) -> None:
        """Set how long it took."""
        self._plugins.labels(plugin, "OnSessionOpen").set(self._step_took_ms())

    def action_began(self, action: str) -> None:
        """Note which one."""
        self._action = action
        self._step_s = self._now_s()

    def action_ended(self) -> None:
        """Set how long it took."""
        took_ms = self._step_took_ms()
        self._actions.labels(self._action).set(took_ms)
        self._action_histogram.labels(self._action).observe(took_ms)

    def generator_began(self, generator: str) -> None:
        """Note which one."""
        self._generator = generator
        self._scenario_s = self._now_s()

    def scenarios_left_out(self, count: int) -> None:
        """Count them."""
        self._filtered.inc(self._action, by=count)

    def scenario_ended(self, result: str) -> None:
        """Count a set, and record how long it took since the one before."""
        now_s = self._now_s()
        self._durations.labels(self._action, self._generator, result).observe(now_s - self._scenario_s)
        self._scenario_s = now_s
        states = _STATES.get(result)
        if states is None:
            return
        for state in ("emitted", *states):
            self._scenarios.labels(self._action, self._generator, state).inc()
        if _SIMULATED in states:
            self._simulated.inc(self._action)

    def search_ended(self, result: str, *, reduced_budget: bool) -> None:
        """Count a search."""
        word = listening.GENERATORS_EXHAUSTED if result == FOUND_WITHOUT_TRYING else result
        self._jobs.labels(self._action, word, "true" if reduced_budget else "false").inc()

    def _step_took_ms(self) -> float:
        now_s = self._now_s()
        took_ms, self._step_s = 1000.0 * (now_s - self._step_s), now_s
        return took_ms
