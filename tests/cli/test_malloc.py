"""Large blocks stay out of the heap, however often such a block was freed."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

#: prints how many large blocks are mapped by themselves after many of that size were taken and freed
MAPPED = """
import ctypes, sys
from pykai.cli.malloc import MMAP_THRESHOLD, fix_mmap_threshold

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]

mapped = ctypes.CDLL(None).mallinfo2
mapped.restype = Info
if sys.argv[1] == "apart":
    assert fix_mmap_threshold()
for _ in range(10):
    bytes(MMAP_THRESHOLD + 32)
before = mapped().hblks
kept = [bytes(MMAP_THRESHOLD + 32) for _ in range(10)]
print(mapped().hblks - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
@pytest.mark.parametrize(("how", "apart"), [("apart", 10), ("as usual", 0)])
def test_large_blocks_are_mapped_one_by_one(how: str, apart: int) -> None:
    found = subprocess.run([sys.executable, "-c", MAPPED, how], capture_output=True, text=True, check=True)
    assert int(found.stdout) == apart
