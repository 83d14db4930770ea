"""What the workers of a run on real control planes did, and what it adds up to.

Each worker of pytest-xdist has a control plane of its own, and sees a share of the requests.  A right is used if it was
used on any of them, and a request is forbidden if it was on all that decided about it: so the audit logs of all workers
are read together, by the process that shows the results.  A run without workers is one of one worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import servers
from tests.cluster.controlplane import AUDIT_LOGS, requests_in

#: what a worker calls it in its output
KEY = "use of servers"


@dataclass
class ServerUse:
    """Of one worker, or of all."""

    #: how many servers tests have asked for
    opened: int = 0
    #: how many tests need the embedded server; the same for every worker
    left_out: int = 0
    audit_logs: list[Path] = field(default_factory=list)

    def add(self, other: ServerUse) -> None:
        self.opened += other.opened
        self.left_out = max(self.left_out, other.left_out)
        self.audit_logs += other.audit_logs

    @property
    def embedded_only(self) -> float:
        """Of a hundred tests that need a server, those that were left out."""
        return 100 * self.left_out / max(1, self.opened + self.left_out)

    def requests(self) -> Iterator[dict[str, Any]]:
        """All that the servers have answered."""
        for log in self.audit_logs:
            if log.exists():
                yield from requests_in(log)

    def plain(self) -> dict[str, Any]:
        """As a worker sends it."""
        return {"opened": self.opened, "left_out": self.left_out, "audit_logs": [str(log) for log in self.audit_logs]}

    @classmethod
    def from_plain(cls, sent: Mapping[str, Any]) -> ServerUse:
        return cls(sent["opened"], sent["left_out"], [Path(log) for log in sent["audit_logs"]])


def use_of_this_process(left_out: int) -> ServerUse:
    """What this process has asked for and started."""
    return ServerUse(servers.opened, left_out, list(AUDIT_LOGS))
