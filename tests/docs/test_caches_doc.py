"""docs/caches.md lists every cache of the engine, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "caches.md").read_text(encoding="utf-8")
CACHE = re.compile(r"(\w+): (?:Cache|Memo|VersionedCache|VersionedValue)\b")


def cache_names() -> set[str]:
    sources = (ROOT / "src" / "pykai" / "core").rglob("*.py")
    return {name for path in sources for name in CACHE.findall(path.read_text(encoding="utf-8"))}


def test_every_cache_has_a_row() -> None:
    names = cache_names()
    assert {"_rankings", "_failures", "memo"} <= names, "the pattern finds caches"
    rows = "\n".join(line.split("|")[1] for line in DOC.splitlines() if line.startswith("| `"))
    assert {name for name in names if not re.search(rf"\b{name}`", rows)} == set()


def test_the_tests_it_names_exist() -> None:
    tests = set(re.findall(r"`(tests/[\w/]+\.py)`", DOC))
    assert tests
    assert {path for path in tests if not (ROOT / path).is_file()} == set()
