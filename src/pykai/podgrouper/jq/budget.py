"""Limits on expressions and their evaluation, and the errors of both."""

from __future__ import annotations

from typing import Final

#: characters of an expression
MAX_LENGTH: Final = 4096
#: levels of an expression; a chain of operators or path steps counts one level each
MAX_DEPTH: Final = 100
#: results of one expression (workloads:KT-3)
MAX_RESULTS: Final = 999
#: steps of one decision: some 20 ms
DEFAULT_STEPS: Final = 20_000


class JqError(Exception):
    """An expression cannot be evaluated on this value; `?` suppresses it."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        #: offset in the expression, known to the innermost part that failed
        self.position = position

    def within(self, text: str) -> JqError:
        """The same error with the expression named."""
        return type(self)(place(text, self.position, self.reason), self.position)


class JqLimit(JqError):
    """An evaluation takes too many steps or has too many results; nothing suppresses it."""


class JqUnsupported(JqError):
    """jq has a result here that the subset does not give; nothing suppresses it, so no result differs from jq's."""


class JqSyntaxError(Exception):
    """A text is no expression of the subset."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(place(text, position, reason))
        self.position = position


def place(text: str, position: int | None, reason: str) -> str:
    """A reason with the expression and the position in front."""
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    where = "" if position is None else f", position {position + 1}"
    return f"jq expression {shown!r}{where}: {reason}"


class Budget:
    """The steps left for one decision."""

    __slots__ = ("_left",)

    def __init__(self, steps: int = DEFAULT_STEPS) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        """Take steps; raises `JqLimit` when too few are left."""
        self._left -= steps
        if self._left < 0:
            raise JqLimit("evaluating it takes too many steps; use a simpler expression or a smaller object")
