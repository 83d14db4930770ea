"""docs/metrics.md lists every metric of every service, with its type, labels and meaning."""

from __future__ import annotations

import re

from pykai.operator.monitoring.dashboards import DASHBOARDS
from tests.docs.metricspage import PAGE, tables, written

DOC = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_program() -> None:
    """operations:8."""
    assert written(DOC) == tables(), "python -m tests.docs.metricspage --write writes them"


def test_every_dashboard_is_named() -> None:
    for dashboard in DASHBOARDS:
        assert f"`{dashboard.name}`" in DOC


def test_the_links_resolve() -> None:
    for target in re.findall(r"\]\(([^)#]+)", DOC):
        assert (PAGE.parent / target).exists(), target
