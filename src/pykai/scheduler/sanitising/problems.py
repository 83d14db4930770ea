"""Impossible claims of nodes, pods and PodGroups."""

from __future__ import annotations

from collections.abc import Iterator

from pykai.core.model.problems import Problem


class SanitisingProblems(dict[str, tuple[Problem, ...]]):
    """`Kind/key` of an object -> its problems."""

    def record(self, subject: str, problems: tuple[Problem, ...]) -> None:
        """Set all problems of an object; they replace earlier ones."""
        if problems:
            self[subject] = problems
        else:
            self.pop(subject, None)

    def in_order(self) -> Iterator[Problem]:
        """All problems, by subject."""
        return (problem for subject in sorted(self) for problem in self[subject])
