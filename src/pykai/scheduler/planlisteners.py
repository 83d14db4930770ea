"""Listeners to plans, such as displays and recorders.  A listener that fails costs a log line, not a cycle."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pykai.core.report.decisions import Plan

log = logging.getLogger(__name__)

PlanListener = Callable[[Plan], None]


class PlanListeners:
    """Calls listeners with plans whose writes have started."""

    def __init__(self, on_failure: Callable[[], None]) -> None:
        self._listeners: list[PlanListener] = []
        self._on_failure = on_failure
        #: failures that are already logged: the listener, and the type of the exception
        self._logged: set[tuple[PlanListener, type[Exception]]] = set()

    def append(self, listener: PlanListener) -> None:
        """Call this listener with every plan from now on."""
        self._listeners.append(listener)

    def publish(self, plan: Plan) -> None:
        """Call all listeners with a plan."""
        for listener in self._listeners:
            try:
                listener(plan)
            except Exception as error:
                # A listener must not fail the cycle or keep the plan from others.
                self._on_failure()
                failure = (listener, type(error))
                if failure not in self._logged:
                    self._logged.add(failure)
                    log.exception("a plan listener failed; further failures of this kind are only counted")
