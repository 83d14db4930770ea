"""docs/numa.md is right: every flag of the exporter is listed."""

from __future__ import annotations

import re
from pathlib import Path

from pykai.numaexporter.options import FLAGS

DOC = (Path(__file__).parents[2] / "docs" / "numa.md").read_text(encoding="utf-8")


def test_every_flag_is_listed_with_its_default() -> None:
    table = DOC.partition("\n## The exporter\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `--([a-z-]+)` \| (\S*) ?\| (.+) \|$", table, re.MULTILINE)
    assert listed == [(flag.name, f"`{flag.default}`" if flag.default else "", flag.meaning) for flag in FLAGS]
