"""docs/binder.md is right: every flag, plugin and series is listed."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from prometheus_client import CollectorRegistry

from pykai.binder.lifecycle import BindStep
from pykai.binder.metrics import BinderMetrics
from pykai.binder.options import DEFAULT_PLUGINS, FLAGS

DOC = (Path(__file__).parents[2] / "docs" / "binder.md").read_text(encoding="utf-8")


def test_every_flag_is_listed_with_its_default() -> None:
    for flag in FLAGS:
        meaning = f"{flag.meaning}; accepted, without effect" if flag.no_effect else flag.meaning
        default = f"`{flag.default}`" if flag.default else ""
        assert f"| `--{flag.name}` | {default} | {meaning} |" in DOC


def test_every_plugin_is_listed() -> None:
    for plugin in DEFAULT_PLUGINS.values():
        assert f"| `{plugin.name}` | {plugin.priority}" in DOC


def test_every_series_is_listed() -> None:
    registry = CollectorRegistry()
    BinderMetrics(registry)
    for series in registry.collect():
        assert f"`{series.name}" in DOC
    (row,) = (line for line in DOC.splitlines() if "`kai_binder_bind_failures_total{reason}`" in line)
    for step in get_args(BindStep):
        assert f"`{step}`" in row
