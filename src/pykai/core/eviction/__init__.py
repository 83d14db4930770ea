"""Eviction: which tasks, in which order, and for which gang.

`victims` (what goes together, worst first inside a queue) -> `victimorder` (worst first over the queues) -> `scenarios`
(sets of victims to try) -> `bounds` (which of them cannot suffice) -> `trial` (try one in the journal) -> `search`
(the first set that is fair and suffices).
"""
