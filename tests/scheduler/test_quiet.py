"""The garbage collector is paused and put back as it was."""

import gc

import pytest

from pykai.scheduler.gccontrol import gc_paused


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_off_inside_and_as_before_after(on: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        with gc_paused():
            assert not gc.isenabled()
        assert gc.isenabled() is on
    finally:
        (gc.enable if was else gc.disable)()


def test_also_when_the_block_fails() -> None:
    with pytest.raises(RuntimeError), gc_paused():
        raise RuntimeError
    assert gc.isenabled()
