"""Large blocks of memory kept out of the heap, so that a process that runs for months stays as small as it is.

Every read of a TLS connection takes a block of 256 KiB and gives all but a few hundred bytes back at once.  The first
such blocks are mapped one by one; when they are freed, the C library (glibc) concludes that blocks of this size had
better come out of the heap from now on.  Small objects that stay then settle in between, and the next read finds no
256 KiB in one piece: the heap of a busy scheduler grew by 0.8 MiB a minute without keeping anything.

A fixed limit keeps glibc from drawing that conclusion, at the price of a few system calls a read.  Cycles take as long
as before (`kai bench fill` and `full`, 5,000 nodes); one in which nothing has changed takes 1.3 ms instead of 0.5.
"""

from __future__ import annotations

import ctypes

#: blocks of so many bytes are mapped one by one
MMAP_THRESHOLD = 256 * 1024
_M_MMAP_THRESHOLD = -3


def fix_mmap_threshold() -> bool:
    """Settle it for this process; False with a C library that has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD))
