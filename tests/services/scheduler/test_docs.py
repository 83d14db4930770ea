"""docs/scheduler.md is right: every flag of our own, every link."""

from __future__ import annotations

import re
from pathlib import Path

from pykai.scheduler.flags import FLAGS

DOCS = Path(__file__).parents[3] / "docs"
DOC = (DOCS / "scheduler.md").read_text(encoding="utf-8")


def test_every_flag_of_our_own_is_in_the_table() -> None:
    ours = {flag.name: flag.default for flag in FLAGS if "not in KAI Scheduler" in flag.meaning}
    table = DOC.partition("## Flags of our own")[2].partition("## Metrics")[0]
    rows = re.findall(r"^\| `--([\w-]+)` \| (?:`(.*?)`)? ?\|", table, re.MULTILINE)
    assert dict(rows) == ours


def test_the_links_resolve() -> None:
    for target in re.findall(r"\]\(([^)#]+)", DOC):
        assert (DOCS / target).exists(), target
