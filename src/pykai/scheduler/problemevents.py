"""Objects that cannot be used as they stand: said once, as an event on the object, a log line and a metric.

Problems come from two sides: the caches, about objects that cannot be decoded, and the tables, about fields that mean
nothing.  Both serve everybody else meanwhile.  A problem is told when it appears or changes; a mended one is forgotten,
so that it would be told again.

The configuration file of the scheduler is one more source.  It is no object, so its event is about the scheduler's own
pod or, where it runs elsewhere, about the namespace that holds its lease.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from pykai.api import names
from pykai.api.decode import KINDS, DecodeError
from pykai.core.model.problems import Problem
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.sinks import NewsOutlet
from pykai.scheduler.status.statusevents import WARNING

log = logging.getLogger(__name__)

#: an object with more problems than this tells the first ones
_MOST_PER_OBJECT = 5
#: events in one go; a metric tells how many there are
_MOST_AT_ONCE = 200


class Complaints:
    """What was told about whom."""

    def __init__(self, announcer: NewsOutlet, metrics: SchedulerMetrics, own: Callable[[], tuple[str, str]]) -> None:
        self._announcer = announcer
        self._metrics = metrics
        #: kind and key of the object that stands for this scheduler
        self._own = own
        self._configuration: tuple[str, ...] = ()
        self._problems: tuple[Problem, ...] = ()
        self._told: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}
        #: kind -> objects with a problem: every object of a large kind may have one, and each comes by itself
        self._kinds: Counter[str] = Counter()
        self._lines: frozenset[str] = frozenset()

    def found(self, problems: tuple[Problem, ...], lines: Iterable[str] = ()) -> None:
        """The problems of a cycle; `lines` are those that the plan has besides, without an object to tell."""
        if problems is not self._problems and problems != self._problems:
            self._problems = problems
            self._tell()
        told = frozenset(lines)
        if told != self._lines:
            for line in sorted(told - self._lines - {str(problem) for problem in problems}):
                log.warning("%s", line)
            self._lines = told

    def configuration(self, complaints: tuple[str, ...]) -> None:
        """What of the configuration file is not in use; the file has logged it."""
        if complaints == self._configuration:
            return
        self._configuration = complaints
        self._metrics.configuration(len(complaints))
        if complaints:
            more = len(complaints) - _MOST_PER_OBJECT
            text = ". ".join(complaints[:_MOST_PER_OBJECT]) + (f". And {more} more" if more > 0 else "")
            kind, key = self._own()
            self._announcer.object_event(kind, key, WARNING, names.EVENT_INVALID_CONFIGURATION, text)

    def unreadable(self, kind: str, key: str, error: DecodeError | None) -> None:
        """An object cannot be read; None when that is over."""
        subject = f"{kind}/{key}"
        if subject not in self._told:
            self._kinds[kind] += (error is not None) - (subject in self._unreadable)
        if error is None:
            self._unreadable.pop(subject, None)
        else:
            text = f"{error.path}: {error.problem}" if error.path else error.problem
            if self._unreadable.get(subject) != text:
                self._unreadable[subject] = text
                self._complain(subject, f"{text}; the object is left out until this is mended")
        self._metrics.problems(self._kinds)

    def _tell(self) -> None:
        by_subject: dict[str, list[Problem]] = {}
        for problem in self._problems:
            by_subject.setdefault(problem.subject, []).append(problem)
        told: dict[str, str] = {}
        news = 0
        for subject, problems in by_subject.items():
            lines = [": ".join(part for part in (each.field, each.text) if part) for each in problems]
            more = len(lines) - _MOST_PER_OBJECT
            text = ". ".join(lines[:_MOST_PER_OBJECT]) + (f". And {more} more" if more > 0 else "")
            told[subject] = text
            if self._told.get(subject) != text and news < _MOST_AT_ONCE:
                news += 1
                self._complain(subject, text)
        self._told = told
        self._kinds = Counter(subject.partition("/")[0] for subject in told.keys() | self._unreadable.keys())
        self._metrics.problems(self._kinds)

    def _complain(self, subject: str, text: str) -> None:
        kind, _, key = subject.partition("/")
        log.warning("%s: %s", subject, text)
        if kind in KINDS and key:
            self._announcer.object_event(kind, key, WARNING, f"{names.EVENT_INVALID_PREFIX}{kind}", text)
