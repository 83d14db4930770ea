"""What is wrong with the objects of the cluster, by object."""

from __future__ import annotations

from collections.abc import Iterator

from pykai.core.cluster.changetokens import ChangeTracker
from pykai.core.model.problems import Problem


class ObjectProblems:
    """Problems by the object that has them; a change of them counts as a change of the cluster."""

    __slots__ = ("_by_subject", "_changes")

    def __init__(self, changes: ChangeTracker) -> None:
        self._changes = changes
        self._by_subject: dict[str, list[Problem]] = {}

    def __iter__(self) -> Iterator[Problem]:
        for subject in sorted(self._by_subject):
            yield from self._by_subject[subject]

    def of(self, subject: str) -> list[Problem]:
        """The problems of an object."""
        return self._by_subject.get(subject, [])

    def set(self, subject: str, problems: list[Problem]) -> None:
        """Replace the problems of an object; none removes it."""
        if problems == self._by_subject.get(subject, []):
            return
        self._changes.rest_changed()
        if problems:
            self._by_subject[subject] = problems
        else:
            del self._by_subject[subject]
