"""Figures of queues as plans and events show them."""

from __future__ import annotations

from pykai.core.model.queuetree import QueueTree
from pykai.core.queueing.queueledger import QueueLedger
from pykai.core.report.decisions import QueueFigures, ResourceAmounts


def queue_figures(tree: QueueTree, ledger: QueueLedger, queue: int, allocated: list[float]) -> QueueFigures:
    """Figures of a queue that has so much allocated."""
    return QueueFigures(
        name=tree.names[queue],
        display_name=tree.display_names[queue],
        parent=tree.names[tree.parents[queue]] if tree.parents[queue] >= 0 else "",
        priority=tree.priorities[queue],
        fair_share=_in_devices(ledger.fair_share[queue]),
        quota=_in_devices(ledger.quota[queue]),
        limit=_in_devices(ledger.limit[queue]),
        request=_in_devices(ledger.request[queue]),
        allocated=_in_devices(allocated),
        allocated_non_preemptible=_in_devices(ledger.allocated_non_preemptible[queue]),
    )


def _in_devices(row: list[float] | tuple[float, ...]) -> ResourceAmounts:
    return (row[0], row[1], round(row[2] / 100.0, 9))
