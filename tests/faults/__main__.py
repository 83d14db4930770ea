"""Records the calls of our services in the story and under its faults: calls.txt and recovery.txt."""

from __future__ import annotations

from tests.faults.calls import FILE, RECOVERY, write_calls
from tests.faults.story import tell
from tests.faults.test_matrix import cases

if __name__ == "__main__":
    plain = set(tell().calls)
    under_faults = {call for fault in cases() for call in tell(fault=fault).calls}
    write_calls(FILE, plain, "Every call of our services in the story of tests/faults")
    write_calls(RECOVERY, under_faults - plain, "Calls that our services make only where another call has failed")
