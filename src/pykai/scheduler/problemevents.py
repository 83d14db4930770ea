"""Unusable objects: reported once, as an event on the object, a log line and a metric.

Problems come from two sides: the caches, about objects that cannot be decoded, and the tables, about invalid fields.
Other objects are served meanwhile.  A problem is reported when it appears or changes; a fixed one is forgotten, so that
it is reported again if it comes back.

The configuration file of the scheduler is one more source.  It is no API object, so its event is about the scheduler's
own pod or, where it runs elsewhere, about the namespace that holds its lease.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from pykai.api import names
from pykai.api.decode import KINDS, DecodeError
from pykai.core.model.problems import Problem
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.sinks import StatusSink
from pykai.scheduler.status.statusevents import WARNING

log = logging.getLogger(__name__)

#: problems reported per object
_MAX_PER_OBJECT = 5
#: events at once; a metric shows how many problems there are
_MAX_AT_ONCE = 200


class ProblemEvents:
    """The problems that were published, by object."""

    def __init__(self, sink: StatusSink, metrics: SchedulerMetrics, own_object: Callable[[], tuple[str, str]]) -> None:
        self._sink = sink
        self._metrics = metrics
        #: kind and key of the object that represents this scheduler
        self._own_object = own_object
        self._configuration_problems: tuple[str, ...] = ()
        self._problems: tuple[Problem, ...] = ()
        self._published: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}
        #: kind -> objects with a problem: every object of a large kind may have one, and each is reported by itself
        self._problem_counts: Counter[str] = Counter()
        self._logged_lines: frozenset[str] = frozenset()

    def report_problems(self, problems: tuple[Problem, ...], plan_problems: Iterable[str] = ()) -> None:
        """Report the problems of a cycle; `lines` are further problems of the plan that concern no object."""
        if problems is not self._problems and problems != self._problems:
            self._problems = problems
            self._publish_changes()
        current_lines = frozenset(plan_problems)
        if current_lines != self._logged_lines:
            for line in sorted(current_lines - self._logged_lines - {str(problem) for problem in problems}):
                log.warning("%s", line)
            self._logged_lines = current_lines

    def report_configuration(self, problems: tuple[str, ...]) -> None:
        """Report the parts of the configuration file that are not in use; the file has logged them."""
        if problems == self._configuration_problems:
            return
        self._configuration_problems = problems
        self._metrics.set_configuration_problems(len(problems))
        if problems:
            more = len(problems) - _MAX_PER_OBJECT
            text = ". ".join(problems[:_MAX_PER_OBJECT]) + (f". And {more} more" if more > 0 else "")
            kind, key = self._own_object()
            self._sink.object_event(kind, key, WARNING, names.EVENT_INVALID_CONFIGURATION, text)

    def report_unreadable(self, kind: str, key: str, error: DecodeError | None) -> None:
        """Report an unreadable object; None when it is readable again."""
        subject = f"{kind}/{key}"
        if subject not in self._published:
            self._problem_counts[kind] += (error is not None) - (subject in self._unreadable)
        if error is None:
            self._unreadable.pop(subject, None)
        else:
            text = f"{error.path}: {error.problem}" if error.path else error.problem
            if self._unreadable.get(subject) != text:
                self._unreadable[subject] = text
                self._publish(subject, f"{text}; the object is left out until this is fixed")
        self._metrics.set_problem_counts(self._problem_counts)

    def _publish_changes(self) -> None:
        by_subject: dict[str, list[Problem]] = {}
        for problem in self._problems:
            by_subject.setdefault(problem.subject, []).append(problem)
        published: dict[str, str] = {}
        sent = 0
        for subject, problems in by_subject.items():
            lines = [": ".join(part for part in (each.field, each.text) if part) for each in problems]
            more = len(lines) - _MAX_PER_OBJECT
            text = ". ".join(lines[:_MAX_PER_OBJECT]) + (f". And {more} more" if more > 0 else "")
            published[subject] = text
            if self._published.get(subject) != text and sent < _MAX_AT_ONCE:
                sent += 1
                self._publish(subject, text)
        self._published = published
        self._problem_counts = Counter(
            subject.partition("/")[0] for subject in published.keys() | self._unreadable.keys()
        )
        self._metrics.set_problem_counts(self._problem_counts)

    def _publish(self, subject: str, text: str) -> None:
        kind, _, key = subject.partition("/")
        log.warning("%s: %s", subject, text)
        if kind in KINDS and key:
            self._sink.object_event(kind, key, WARNING, f"{names.EVENT_INVALID_PREFIX}{kind}", text)
