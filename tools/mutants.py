"""Breaks the code on purpose, one rule at a time, and checks that the tests notice: `make mutants`.

`mutants/*.toml` list the mutants, about one for every statement of the specification, and `mutants/required.txt` the
statements that must have one (`tools/listing.py`). Each is a fragment of code in a function and its replacement; the
fragment is found by its shape, so that formatting, moving and renaming do not break it (`tools/anchors.py`). All run in
private copies of the tree (`tools/trees.py`), and the run fails unless all are caught.

    tools/mutants.py --only cycle:PG-5     one statement
    tools/mutants.py --changed             those of what differs from origin/main (--base REV), and a tenth of the rest
                                           (`tools/choosing.py`)
    tools/mutants.py --repair              write down where code has moved to and what it is called now
                                           (`tools/repair.py`); to be run after a renaming, before it is committed

`tools/mutate.py` generates mutants that are not listed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    # As a program: its own folder is where Python looks for modules.
    sys.path[0] = str(Path(__file__).parents[1])

from tools.choosing import NoRevision, changed_and_a_tenth, named
from tools.listing import Checker, Mutant, read_mutants, read_required
from tools.repair import repair
from tools.trees import CAUGHT, INVALID, SURVIVED, Broken, Result, Tree, copy_tree, grown, say, shared_out


def run_all(mutants: dict[Mutant, Broken], trees: Sequence[Tree]) -> dict[Mutant, Result]:
    """Run the mutants, and report each as it ends."""
    of = {broken: mutant for mutant, broken in mutants.items()}
    results: dict[Mutant, Result] = {}
    for result in shared_out(mutants.values(), trees, Tree.run):
        mutant = of[result.broken]
        results[mutant] = result
        verdict = result.verdict if result.verdict == CAUGHT else result.verdict.upper()
        say(f"{verdict:<9} {mutant.id:<14} {mutant.title}  ({result.seconds:.1f} s)")
    return {mutant: results[mutant] for mutant in mutants if mutant in results}


def report(results: dict[Mutant, Result], root: Path) -> None:
    """Print the survivors, then the counts."""
    for mutant, result in results.items():
        if result.verdict == CAUGHT:
            continue
        say(f"\n{result.verdict.upper()}: {mutant.name}")
        say(result.broken.patch(root))
        say(f"tests: {' '.join(mutant.tests)}")
        if result.note:
            say(result.note)
    say()
    sources = sorted({mutant.source for mutant in results})
    width = max(len(name) for name in (*sources, "total"))
    for name in (*sources, "total"):
        counts = Counter(result.verdict for mutant, result in results.items() if name in ("total", mutant.source))
        rest = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (SURVIVED, INVALID) if counts[verdict])
        say(f"{name:<{width}}  {counts[CAUGHT]:>4} of {counts.total()} caught{', ' + rest if rest else ''}")


def write_json(path: Path, results: dict[Mutant, Result]) -> None:
    """The results for programs."""
    counts = Counter(result.verdict for result in results.values())
    content = {
        "total": len(results),
        **{verdict: counts[verdict] for verdict in (CAUGHT, SURVIVED, INVALID)},
        "mutants": [
            {
                "source": mutant.source,
                "id": mutant.id,
                "title": mutant.title,
                "where": mutant.anchor,
                "file": result.broken.file,
                "verdict": result.verdict,
                "seconds": round(result.seconds, 2),
                "cpu_s": round(result.cpu_s, 3),
                "imported": result.imported,
                "note": result.note,
            }
            for mutant, result in results.items()
        ],
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="mutants.py", description="Break the code; see that the tests notice.")
    parser.add_argument("--only", metavar="PATTERN", help="mutants with this id (* and ? allowed) or text in the title")
    parser.add_argument("--changed", action="store_true", help="those of what differs from BASE, a tenth of the rest")
    parser.add_argument("--base", metavar="REV", default="origin/main", help="for --changed (origin/main)")
    parser.add_argument("--list", action="store_true", help="list the mutants and run nothing")
    parser.add_argument("--repair", action="store_true", help="write the present names into the lists and run nothing")
    parser.add_argument("--since", metavar="REV", default="HEAD", help="the revision that the lists fit (HEAD)")
    # More than the number of processors: tests that wait for what a mutant prevents use none.
    jobs = (os.cpu_count() or 1) + 3
    parser.add_argument("--jobs", metavar="N", type=int, default=jobs, help=f"workers ({jobs})")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results here too")
    parser.add_argument("--timeout", metavar="S", type=float, default=120, help="seconds a mutant may take (120)")
    parser.add_argument("--root", metavar="DIR", type=Path, default=Path(__file__).parents[1], help="the project")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    options = arguments(given)
    root = options.root.resolve()
    mutants, errors = read_mutants(root / "mutants")
    if options.repair and not errors:
        lines, errors = repair(root, mutants, options.since)
        for line in lines:
            say(line)
        for error in errors:
            say(f"error: {error}")
        say(f"{len(lines)} mutants rewritten, {len(errors)} not found")
        return 1 if errors else 0
    selected = named(mutants, options.only)
    if options.only is None:
        known = {mutant.id for mutant in mutants}
        required = read_required(root / "mutants" / "required.txt")
        errors += [f"required.txt: {statement} has no mutant" for statement in required if statement not in known]
    if not selected:
        errors.append(f"no mutant fits {options.only!r}" if options.only else "no mutants are listed")
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        # From here on only the copy is used, so the tree may be edited.
        tests = {test for mutant in selected for test in mutant.tests}
        first = Tree(Path(temporary).resolve() / "0", sorted(tests), options.timeout)
        copy_tree(root, first.path)
        checked = Checker(first.path).check(selected)
        errors += checked.errors
        if options.list:
            for mutant in selected:
                say(f"{mutant.id:<14} {mutant.title}  ({mutant.source}, {mutant.anchor})")
        for note in checked.notes:
            say(f"note: {note}; --repair writes this down")
        for error in errors:
            say(f"error: {error}")
        if errors or options.list:
            return 1 if errors else 0
        broken = checked.broken
        if options.changed:
            broken = _of_what_changed(root, broken, options.base)
            first.tests = sorted({test for mutant in broken for test in mutant.tests})
        return _run(broken, first, options)


def _of_what_changed(root: Path, broken: dict[Mutant, Broken], base: str) -> dict[Mutant, Broken]:
    """A part of the mutants; all of them where git cannot say what has changed."""
    files = {mutant: each.file for mutant, each in broken.items()}
    try:
        chosen = changed_and_a_tenth(root, list(broken), files, base)
    except NoRevision as reason:
        say(f"Running all mutants: {reason}")
        return broken
    say(chosen.text)
    return {mutant: broken[mutant] for mutant in chosen.mutants}


def _run(mutants: dict[Mutant, Broken], first: Tree, options: argparse.Namespace) -> int:
    began = time.monotonic()
    workers = max(1, min(options.jobs, len(mutants)))
    say(f"Collecting the tests of {len(mutants)} mutants")
    try:
        with grown(first, workers) as trees:
            say(f"Running {len(mutants)} mutants with {workers} workers")
            results = run_all(mutants, trees)
    except RuntimeError as error:
        say(f"error: {error}")
        return 1
    report(results, first.path)
    imported = sum(bool(result.imported) for result in results.values())
    # Importing the project costs more than most tests: hardly any mutant should need it.
    say(f"{time.monotonic() - began:.0f} s; {imported} of {len(results)} mutants imported the project again")
    if options.json is not None:
        write_json(options.json, results)
    return 0 if len(results) == len(mutants) and all(each.verdict == CAUGHT for each in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
