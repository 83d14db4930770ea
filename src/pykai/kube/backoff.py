"""The delay before an attempt is repeated: it doubles with each failure in a row, up to a limit.

Jitter is up to the caller: some spread requests of many clients, others must keep an order.
"""

from __future__ import annotations

from dataclasses import dataclass

#: beyond this the limit holds, and a longer row of failures must not overflow
_MAX_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after failures."""

    first_s: float
    longest_s: float

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row; 0 after none."""
        if failures <= 0:
            return 0.0
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
