"""Keeps the garbage collector out of a cycle.

A cycle makes many small objects and drops nearly all of them by reference counting; the cyclic collector would walk the
whole model several times meanwhile.  It is switched off during a cycle and restored afterwards, so collections happen
between cycles.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """No cyclic garbage collection inside the block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


#: pods above which it is worth the time
_MANY_PODS = 5_000


def freeze_long_lived(pods: int) -> None:
    """Exclude existing objects from collection: they are the state of the cluster, and most of them stay.

    Done when the caches are filled and again when the tables are built from them; a full collection otherwise walks
    over a hundred thousand objects for nothing, which takes half a second in a large cluster.
    """
    if pods >= _MANY_PODS:
        gc.collect()
        gc.freeze()
