"""Writes the Helm chart, the bases for kustomize and docs/values.md from the tables in src/pykai/operator/chart.

python tools/chart.py            writes what is stale
python tools/chart.py --check    only says what is
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pykai.operator.chart.files import CHART_NAME, chart_files
from pykai.operator.chart.kustomization import kustomize_files
from pykai.operator.chart.valuefiles import reference_text

ROOT = Path(__file__).resolve().parent.parent
CHART = f"charts/{CHART_NAME}"
_KUSTOMIZE = "charts/kustomize"
#: folders that hold nothing else
_FOLDERS = (CHART, _KUSTOMIZE)


def wanted_files() -> dict[str, str]:
    """Path in the repository -> text."""
    return {
        **{f"{CHART}/{name}": text for name, text in chart_files().items()},
        **{f"{_KUSTOMIZE}/{name}": text for name, text in kustomize_files().items()},
        "docs/values.md": reference_text(),
    }


def stale(root: Path = ROOT) -> list[str]:
    """The files that differ from the tables, are missing, or belong to no table."""
    wanted = wanted_files()
    there = {
        str(path.relative_to(root)) for folder in _FOLDERS for path in (root / folder).rglob("*") if path.is_file()
    }
    differing = {name for name, text in wanted.items() if _content(root / name) != text}
    return sorted(differing | (there - wanted.keys()))


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def write(root: Path = ROOT) -> list[str]:
    """Bring the files up to date; returns those that changed."""
    wanted, changed = wanted_files(), stale(root)
    for name in changed:
        path = root / name
        if name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[name], encoding="utf-8")
        else:
            path.unlink()
    return changed


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say which files are stale")
    checks = parser.parse_args().check
    found = stale() if checks else write()
    for name in found:
        print(f"{'stale' if checks else 'written'}: {name}")
    return 1 if checks and found else 0


if __name__ == "__main__":
    sys.exit(main())
