"""What is wrong with an object that users wrote, as data.

A wrong field never stops a cycle: the reader falls back to something safe and reports a `Problem` that names the
object, the field and what happens instead.  Readers inside the engine cannot log; they pass problems to a `report`
callable of the caller, which decides about events, log lines and conditions.

Problems are equal when they say the same, so a caller can tell new ones from those already reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong field of one object."""

    #: Kind and name, with the namespace where there is one: "Queue/team-a".
    subject: str
    #: Path to the field: "spec.resources.gpu.overQuotaWeight".
    field: str
    #: What is wrong, and what happens now.
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.subject, self.field, self.text) if part)


#: Takes a problem when it is found.
ProblemReporter = Callable[[Problem], None]
