"""KAI Scheduler in Python: a Kubernetes scheduler for GPU and AI workloads, wire-compatible.

One scheduling cycle is a pure function from a snapshot of the cluster to decisions; it lives in `pykai.core`.
`pykai.api` holds the wire types it reads, `pykai.cli` the command `kai`. The services around them carry the decisions
out.
"""

from pykai.deprecated import find_old_modules

__version__ = "0.1.0"

find_old_modules()
