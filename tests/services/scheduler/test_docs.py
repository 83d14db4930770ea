"""docs/scheduler.md is right: every metric, every flag of our own, every link."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.metrics_core import Metric

from pykai.scheduler.flags import FLAGS
from pykai.scheduler.metrics import SchedulerMetrics

DOCS = Path(__file__).parents[3] / "docs"
DOC = (DOCS / "scheduler.md").read_text(encoding="utf-8")


def exposed_name(metric: Metric) -> str:
    """The name that Prometheus stores."""
    return metric.name + ("_total" if metric.type == "counter" else "")


def test_every_metric_is_in_the_table_and_no_other() -> None:
    metrics = SchedulerMetrics("", None)
    table = DOC.partition("## Metrics")[2]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == {exposed_name(metric) for metric in metrics.registry.collect()}


def test_every_flag_of_our_own_is_in_the_table() -> None:
    ours = {flag.name: flag.default for flag in FLAGS if "not in KAI Scheduler" in flag.meaning}
    table = DOC.partition("## Flags of our own")[2].partition("## Metrics")[0]
    rows = re.findall(r"^\| `--([\w-]+)` \| (?:`(.*?)`)? ?\|", table, re.MULTILINE)
    assert dict(rows) == ours


def test_the_links_resolve() -> None:
    for target in re.findall(r"\]\(([^)#]+)", DOC):
        assert (DOCS / target).exists(), target
