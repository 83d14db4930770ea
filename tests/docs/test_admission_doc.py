"""docs/admission.md is right: every flag, webhook and series is listed."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from pykai.api.names import DEFAULT_NAMESPACE
from pykai.webhooks.metrics import AdmissionMetrics
from pykai.webhooks.options import FLAGS
from pykai.webhooks.table import ADMISSION_SERVICE, WEBHOOKS

DOC = (Path(__file__).parents[2] / "docs" / "admission.md").read_text(encoding="utf-8")


def test_every_flag_is_listed_with_its_default() -> None:
    for flag in FLAGS:
        meaning = f"{flag.meaning}; accepted, without effect" if flag.no_effect else flag.meaning
        default = f"`{flag.default}`" if flag.default else ""
        assert f"| `--{flag.name}` | {default} | {meaning} |" in DOC


def test_every_webhook_is_listed() -> None:
    for webhook in WEBHOOKS:
        cells = (webhook.configuration, webhook.name_in(DEFAULT_NAMESPACE), ADMISSION_SERVICE, webhook.path)
        assert f"| {' | '.join(f'`{cell}`' for cell in cells)} |" in DOC


def test_every_series_is_listed() -> None:
    registry = CollectorRegistry()
    AdmissionMetrics(registry)
    for series in registry.collect():
        assert f"`{series.name}" in DOC
