"""Moves modules and renames identifiers across the repository: `python tools/rename.py mapping.toml`.

A mapping (see `tools/renaming/mapping.py`) names modules, packages and test files that move, words that are renamed
everywhere, and things that are renamed by what they are. Code, tests, tools, mutants, documents, layers and test ids
follow. `--check` prints what would change and writes nothing.

The order: the repository must be clean. mypy resolves the owner of each attribute, if the mapping names members. While
there are problems (a new name is taken, a member is inherited from a library, a field has no name on the wire) nothing
is written. Then the files are written and moved, ruff sorts and formats, and the checks run: the tests that pytest
collects before and after map one to one, and ruff, mypy, import-linter and the mutants have no complaint.

Exit status: 0 when all is well, 1 when something was refused and nothing written, 2 when checks failed afterwards.
Doubts (a place that may mean a renamed thing) and words left in prose are printed and fail nothing.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.renaming import checking
from tools.renaming.mapping import BadMapping, read_mapping
from tools.renaming.planning import Plan, git, tracked


def show(title: str, lines: Iterable[str]) -> bool:
    """Print a list, if there is anything in it."""
    found = list(dict.fromkeys(lines))
    if found:
        print(f"\n{title} ({len(found)})")
        print("\n".join(f"  {line}" for line in found), flush=True)
    return bool(found)


def summary(plan: Plan, *, diff: bool) -> None:
    """What changes."""
    changes = plan.changes()
    print(f"{len(plan.mapping.moves)} files move, {len(changes)} change")
    show("new packages", plan.new_packages())
    show("also", plan.report.notes)
    if not diff:
        return
    for path, text in sorted(changes.items()):
        before = (plan.root / path).read_text(encoding="utf-8").splitlines()
        print(
            "\n".join(
                difflib.unified_diff(before, text.splitlines(), path, plan.mapping.moved_path(path), "", "", 0, "")
            )
        )


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(prog="rename.py", description="Move modules and rename identifiers.")
    parser.add_argument("mapping", type=Path, help="what to rename (TOML)")
    parser.add_argument("--check", action="store_true", help="print what would change, write nothing")
    parser.add_argument("--diff", action="store_true", help="with --check: print the changed lines")
    parser.add_argument("--unchecked", action="store_true", help="leave out the checks afterwards")
    parser.add_argument("--dirty", action="store_true", help="accept changes that are not committed")
    parser.add_argument("--root", metavar="DIR", type=Path, default=Path(__file__).parents[1], help="the project")
    options = parser.parse_args(given)
    root: Path = options.root.resolve()
    began = time.monotonic()
    if not options.check and not options.dirty and git(root, "status", "--porcelain", "--untracked-files=no"):
        print("error: there are changes that are not committed")
        return 1
    wants_tests = not options.check and not options.unchecked
    collecting = checking.collecting(root) if wants_tests else None
    files = tracked(root)
    try:
        plan = Plan(root, read_mapping(options.mapping, files), files)
    except BadMapping as error:
        print(f"error: {error}")
        return 1
    before, failure = checking.collected(collecting) if collecting is not None else (Counter[str](), "")
    if failure:
        plan.report.problems.append(f"the tests cannot be collected:\n{failure}")
    if show("problems", plan.report.problems):
        show("doubts", plan.report.doubts)
        return 1
    summary(plan, diff=options.diff)
    show("doubts", plan.report.doubts)
    if options.check:
        return 0
    plan.report.doubts.clear()
    plan.apply()
    show("doubts, after moving", plan.report.doubts)
    print(f"\nwritten after {time.monotonic() - began:.0f} s", flush=True)
    failed = show("ruff", checking.tidy(root))
    failed |= show("mutants", checking.repair_mutants(root))
    if collecting is not None:
        again = checking.collecting(root)
        failed |= show("mypy", checking.types(root))
        failed |= show("layers", checking.layers(root))
        after, failure = checking.collected(again)
        failed |= show("tests cannot be collected", [failure] if failure else [])
        failed |= show("tests", checking.compare_tests(plan, before, after))
        print(f"\n{sum(before.values())} tests before, {sum(after.values())} after")
    show("left to do by hand", checking.to_do(plan))
    print(f"\n{time.monotonic() - began:.0f} s; {'checks failed' if failed else 'all checks passed'}")
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
