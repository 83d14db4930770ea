"""Scheduler flags as a case gives them: `settings`, name without dashes -> value.

The flags are those of the scheduler itself. A problem that a running scheduler only reports (an unknown flag, a bad
value) fails a case: a case with unsupported settings must not pass by chance.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykai.dev.cases import CaseError
from pykai.scheduler.flags import Flags, read_flags

#: What all cases share where KAI Scheduler's own default differs.
_CASE_DEFAULTS: Mapping[str, object] = {"max-consolidation-preemptees": -1}


def read_settings(flags: Mapping[str, object]) -> Flags:
    """The flags of a case; raises CaseError for an unsupported one."""
    parsed = read_flags({**_CASE_DEFAULTS, **{name.lstrip("-"): value for name, value in flags.items()}})
    if parsed.problems:
        raise CaseError(
            "; ".join(f"settings.{problem.field.lstrip('-')}: {problem.text}" for problem in parsed.problems)
        )
    return parsed
