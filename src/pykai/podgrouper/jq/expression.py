"""A compiled expression and its evaluation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pykai.podgrouper.jq.budget import MAX_RESULTS, Budget, JqError, JqLimit
from pykai.podgrouper.jq.nodes import FieldPath, JqNode, JqScope
from pykai.podgrouper.jq.parser import parse
from pykai.podgrouper.jq.values import Json


@dataclass(frozen=True, slots=True)
class JqExpression:
    """An expression of the subset."""

    text: str
    root: JqNode

    def outputs(self, value: Json, budget: Budget) -> list[Json]:
        """All results; raises `JqError` with the expression and the position where it fails (workloads:KT-3)."""
        results: list[Json] = []
        try:
            for result in self.root.run(value, JqScope(budget)):
                if len(results) >= MAX_RESULTS:
                    raise JqLimit(f"it has more than {MAX_RESULTS} results")
                results.append(result)
        except JqError as error:
            raise error.within(self.text) from None
        return results

    def reads_only(self, paths: Collection[FieldPath]) -> bool:
        """Whether every field that it reads of its input lies at or below one of these."""
        return all(any(read[: len(path)] == path for path in paths) for read in self.root.reads())


def compile_jq(text: str) -> JqExpression:
    """Parse an expression; raises `JqSyntaxError`."""
    return JqExpression(text, parse(text))
