"""What a cycle has read, so that the next one knows whether its plan still holds.

The tables replace a token with every change: one for groups that wait (or are broken), one for work that runs, one for
all the rest.  Pods that run change all the time, and most of that means nothing to those that wait: what counts are the
free amounts of nodes and the sums of queues, which are compared by value, and any further look at running work, of
which the snapshot keeps track (`Snapshot.inspected_running`).
"""

from __future__ import annotations

from typing import NamedTuple


class ChangeTokens(NamedTuple):
    """Tokens: the same object as long as nothing of its kind has changed."""

    #: groups that wait or are broken, and their tasks
    waiting: object
    #: other groups and tasks
    running: object
    #: nodes, queues, and everything else
    rest: object

    def is_same(self, other: ChangeTokens) -> bool:
        """Whether nothing at all has changed."""
        return self.waiting is other.waiting and self.running is other.running and self.rest is other.rest

    def same_except_running(self, other: ChangeTokens) -> bool:
        """Whether at most running work has changed."""
        return self.waiting is other.waiting and self.rest is other.rest
