"""Clocks: this machine's against the API server's, whose time all leases and grace periods are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pykai.api import names
from pykai.doctor.facts import Facts
from pykai.doctor.findings import Finding, Severity

#: the Date header has whole seconds, and the answer takes its time
_NOTICED_S: Final = 3.0


def skew(facts: Facts) -> Iterator[Finding]:
    """The difference of the clocks; an error once it is as long as a lease."""
    if facts.server_ahead is None:
        return
    ahead_s = facts.server_ahead.total_seconds()
    if abs(ahead_s) <= _NOTICED_S:
        return
    severity = Severity.ERROR if abs(ahead_s) >= names.LEASE_DURATION_S else Severity.WARNING
    what = f"The clock of the API server is {'ahead of' if ahead_s > 0 else 'behind'} this machine's."
    fix = "Let NTP or chrony set both clocks; certificates and leases depend on them."
    yield Finding(severity, "clock-skew", "API server", what, fix, f"{abs(ahead_s):.0f} s")
