"""docs/time-based-fair-share.md is right: its configurations are read, its keys, metrics and log lines exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pykai.queues.gauges import HELP
from pykai.scheduler.config.configuration import load_configuration
from pykai.scheduler.config.usagedb import EXTRA_KEYS, UsageConfig
from pykai.scheduler.metrics import SchedulerMetrics

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "time-based-fair-share.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS)
def test_every_configuration_is_read(text: str) -> None:
    configuration = load_configuration(text)
    assert configuration.problems == ()
    assert (configuration.usage is not None) == ("usageDBConfig" in text)


def test_every_extra_parameter_is_listed_with_its_default() -> None:
    rows = dict(
        re.findall(r"^\| `(\w+)` \| `([^`]+)`", DOC.partition("extraParams")[2].partition("##")[0], re.MULTILINE)
    )
    assert rows.keys() == set(EXTRA_KEYS)
    defaults = UsageConfig("prometheus")
    assert set(rows.values()) == {"10s", "1m", *defaults.allocation_metrics, *defaults.capacity_metrics}


def test_every_parameter_is_listed() -> None:
    table = DOC.partition("## Choose what counts")[2].partition("\n\nHow strongly")[0]
    source = (ROOT / "src/pykai/scheduler/config/usagedb.py").read_text(encoding="utf-8")
    read = set(re.findall(r'(?:_span\(params, |params\.get\()"(\w+)"', source)) - {"extraParams"}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == read


def test_every_metric_exists() -> None:
    families = list(SchedulerMetrics("kai", None).registry.collect())
    exposed = {family.name for family in families} | {f"kai_{name}" for name in HELP}
    exposed |= {sample.name for family in families for sample in family.samples}
    named = set(re.findall(r"\bkai_\w+[a-z]\b", DOC))
    assert len(named) > 8
    assert named <= exposed


def test_every_log_line_is_one_of_the_program() -> None:
    source = "".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "src/pykai/scheduler/usage").glob("*.py"))
    )
    plain = re.sub(r"%s|\{[^{}]*\}", "…", source)
    rows = re.findall(r"^\| `(.*?)` \|", DOC.partition("| log |")[2], re.MULTILINE)
    assert len(rows) == 6
    for row in rows:
        text = row.replace(" 10s ", " … ").replace(" cpu ", " … ").removeprefix("usage could not be fetched: ")
        assert text.removeprefix("… ") in plain, row
