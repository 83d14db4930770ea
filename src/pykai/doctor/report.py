"""Findings as text that fits a terminal of 80 columns, and as JSON for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from pykai.doctor.facts import Facts
from pykai.doctor.findings import Finding
from pykai.doctor.table import CHECKS, summary, worst

WIDTH: Final = 80
_MARGIN: Final = 9


def as_text(facts: Facts, found: Sequence[Finding]) -> str:
    """A block for each finding, and a last line that counts them."""
    blocks = ["\n".join(_lines(each)) for each in found]
    server = facts.server_version or "an API server of unknown version"
    last = f"{len(CHECKS)} checks on {server}, namespace {facts.namespace}: {summary(found)}."
    blocks.append(textwrap.fill(last, WIDTH, break_on_hyphens=False))
    return "\n\n".join(blocks)


def _lines(finding: Finding) -> Iterable[str]:
    figure = f" ({finding.figure})" if finding.figure else ""
    head, *rest = _wrapped(f"{finding.code}: {finding.where}")
    yield finding.severity.label.upper().ljust(_MARGIN) + head
    for line in (*rest, *_wrapped(f"{finding.what}{figure}"), *_wrapped(finding.fix, "-> ")):
        yield " " * _MARGIN + line


def _wrapped(text: str, start: str = "") -> list[str]:
    # Commands stay whole where they can: a name is cut only if it is wider than the line.
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH - _MARGIN,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_on_hyphens=False,
    )


def as_json(facts: Facts, found: Sequence[Finding]) -> bytes:
    """The same for programs; codes, keys and severities do not change."""
    content: dict[str, Any] = {
        "version": 1,
        "namespace": facts.namespace,
        "serverVersion": facts.server_version,
        "severity": worst(found).label,
        "checks": [each.name for each in CHECKS],
        "findings": [{**msgspec.structs.asdict(each), "severity": each.severity.label} for each in found],
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2)
