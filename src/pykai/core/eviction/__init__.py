"""Taking resources back: who may be evicted, in which order, and for whom.

`units` (what goes together, worst first inside a queue) -> `order` (worst first over the queues) -> `scenarios` (sets
of victims to try) -> `bounds` (which of them cannot suffice) -> `trial` (try one in the journal) -> `search` (the first
set that is fair and suffices).
"""
