"""Reports at the end of a run which kinds of clusters and plans the property tests have drawn."""

import pytest

from tests.property.drawnkinds import CLUSTER_KINDS, DRAWN, PLAN_KINDS
from tests.property.topologies import TOPOLOGY_KINDS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How often each kind was drawn."""
    if not DRAWN:
        return
    terminalreporter.section("drawn clusters and plans")
    for title, kinds in (("clusters", CLUSTER_KINDS), ("plans", PLAN_KINDS), ("topologies", TOPOLOGY_KINDS)):
        terminalreporter.write_line(f"{title}: " + ", ".join(f"{kind} {DRAWN[kind]}" for kind in kinds))
