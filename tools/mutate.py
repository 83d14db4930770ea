"""Generates small changes of modules, and shows those that no test notices: `make mutants-all`.

    tools/mutate.py                         the modules that differ from origin/main (--base REV)
    tools/mutate.py 'core/placing/*.py'     these, below the package
    tools/mutate.py --sample '**/*.py'      one change for each line instead of all
    tools/mutate.py --sample-every 4 ...    of those one in four, spread at random and the same in every run

Every change (`tools/operators.py`) is run as a listed mutant is (`tools/trees.py`), with the tests that call the
changed function, the quickest first (`tools/touching.py`). Code that fails to import, or with which the tests do not
end, counts as noticed. Survivors are printed as a patch and as a table for `mutants/survivors.toml`, the list of
accepted survivors:

    [[survivor]]
    where = "core.place.gang:place_gang"    # see tools/anchors.py
    old = "len(batches) > 1"
    new = "len(batches) >= 1"
    reason = "a single batch is walked the same way; the check only saves time"

The run fails when an unlisted change survives, when a listed one has no reason, and when a listed one of the given
modules is caught now or no longer generated.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

if not __package__:
    # As a program: its own folder is where Python looks for modules.
    sys.path[0] = str(Path(__file__).parents[1])

from tools.anchors import Source, Sources, Unanchored
from tools.listing import SURVIVORS, Checker, as_toml, read_tables
from tools.operators import Change, changes
from tools.touching import Touched, touched
from tools.trees import CAUGHT, INVALID, SURVIVED, Broken, Result, Tree, copy_tree, grown, say, shared_out

#: Most tests to run for a changed function, and their total seconds: a change that survives them is taken to survive
#: the rest. They must end well within the time limit, or slow tests would count as an endless loop.
MOST_TESTS, MOST_SECONDS = 300, 8.0
#: A run ends after this many times the seconds that its tests take on unchanged code, plus start-up.
_SLOWDOWN, _START_S = 4.0, 10.0
_FIELDS = {"where", "old", "new", "nth", "reason"}


@dataclass(frozen=True)
class Survivor:
    """An accepted survivor."""

    name: str
    module: str
    file: str
    #: the module with the change, in a form that does not depend on layout
    after: str


def read_survivors(root: Path) -> tuple[list[Survivor], list[str], list[str]]:
    """The accepted survivors, errors of the list, and stale entries."""
    path = root / "mutants" / SURVIVORS
    if not path.exists():
        return [], [], []
    tables, errors = read_tables(path, "survivor")
    checker = Checker(root)
    found, stale = [], []
    for number, table in enumerate(tables, 1):
        name = f"{SURVIVORS}: survivor {number} ({table.get('where', 'without where')}: {table.get('old', '')})"
        where, old, new, nth, reason = (table.get(key) for key in ("where", "old", "new", "nth", "reason"))
        if unknown := sorted(set(table) - _FIELDS):
            errors.append(f"{name}: unknown field {', '.join(unknown)}")
        elif not isinstance(reason, str) or not reason.strip():
            errors.append(f"{name}: no reason")
        elif not isinstance(where, str) or not isinstance(old, str) or not isinstance(new, str):
            errors.append(f"{name}: where, old and new: expected text")
        elif nth is not None and not isinstance(nth, int):
            errors.append(f"{name}: nth: expected a number")
        else:
            try:
                place, _, after = checker.applied(where, old, new, nth)
            except Unanchored as error:
                stale.append(f"{name}: {error}")
                continue
            found.append(Survivor(name, place.source.module, place.source.file, _plain(after)))
    return found, errors, stale


def _plain(text: str) -> str:
    return ast.unparse(ast.parse(text))


def selected(root: Path, patterns: Sequence[str], base: str) -> list[Path]:
    """Files of the package that match the patterns or, without patterns, differ from a revision."""
    packages = sorted(path.parent for path in root.glob("src/*/__init__.py"))
    if patterns:
        found = {file for package in packages for pattern in patterns for file in package.glob(pattern)}
        return sorted(file for file in found if file.suffix == ".py")
    command = ["git", "diff", "--name-only", "--diff-filter=d", base, "--", *(str(package) for package in packages)]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(root / name for name in names if name.endswith(".py"))


def tests_for(root: Path, files: Iterable[Path], sources: Sources) -> list[str]:
    """The folders of tests for modules: `tests/` mirrors the package, and some folders belong to several."""
    folders: dict[str, None] = {}
    for file in files:
        package = sources.module(file).partition(".")[0]
        own = [f"tests/{package}", f"tests/services/{package}"]
        folders |= dict.fromkeys([*own, "tests/property"] if package == "core" else own)
    found = [folder for folder in folders if (root / folder).is_dir()]
    return found or ["tests"]


def of_function(change: Change, tests: Sequence[Touched], most_s: float = MOST_SECONDS) -> tuple[Touched, ...]:
    """The tests that call the changed function, the quickest first; outside of functions those that use the module."""
    file, qualname = change.place.source.file, change.place.qualname
    lines = set()
    for steps in change.place.source.scopes.get(qualname, ()):
        parent, name, index = steps[-1]
        node = getattr(parent, name)[index]
        if not isinstance(node, ast.ClassDef):
            lines.add((file, min([node.lineno, *(each.lineno for each in node.decorator_list)])))
    found = [test for test in tests if (test.functions & lines if lines else _uses(test, file))]
    chosen: list[Touched] = []
    seconds = 0.0
    for test in sorted(found, key=lambda test: test.seconds)[:MOST_TESTS]:
        seconds += test.seconds
        if chosen and seconds > most_s:
            break
        chosen.append(test)
    return tuple(chosen)


def _uses(test: Touched, file: str) -> bool:
    return any(name == file for name, _ in test.functions)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="mutate.py", description="Generate changes that no test notices.")
    parser.add_argument("modules", nargs="*", metavar="PATTERN", help="files below the package (* and ** allowed)")
    parser.add_argument("--base", metavar="REV", default="origin/main", help="without patterns: what differs from this")
    parser.add_argument("--tests", metavar="PATH", nargs="+", help="folders or files of tests (those of the package)")
    sample = parser.add_mutually_exclusive_group()
    one = "one change for each line, the same in every run"
    sample.add_argument("--sample", dest="sample_every", action="store_const", const=1, default=0, help=one)
    sample.add_argument("--sample-every", metavar="N", type=int, help="of these one in N")
    most = f"seconds of tests that a change is shown to ({MOST_SECONDS:g})"
    parser.add_argument("--most-seconds", metavar="S", type=float, default=MOST_SECONDS, help=most)
    parser.add_argument("--list", action="store_true", help="list the changes and run nothing")
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", metavar="N", type=int, default=jobs, help=f"workers ({jobs})")
    parser.add_argument("--timeout", metavar="S", type=float, default=40, help="seconds a change may take (40)")
    parser.add_argument("--root", metavar="DIR", type=Path, default=Path(__file__).parents[1], help="the project")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    options = arguments(given)
    root = options.root.resolve()
    files = selected(root, options.modules, options.base)
    if not files:
        say("no module fits" if options.modules else f"no module differs from {options.base}")
        return 1 if options.modules else 0
    survivors, errors, stale = read_survivors(root)
    for error in errors:
        say(f"error: {error}")
    if errors:
        return 1
    sources = Sources(root)
    read = [source for source in (sources.get(sources.module(file)) for file in files) if source is not None]
    generated = [change for source in read for change in changes(source, sample_every=options.sample_every)]
    say(f"{len(generated)} changes of {len(files)} modules")
    if options.list:
        for change in generated:
            say(f"{change.place.where}:{change.place.line}  {change.title}")
        return 0
    try:
        accepted = {(survivor.file, survivor.after) for survivor in survivors}
        results, untested = _run(root, generated, options, tests_for(root, files, sources), accepted)
    except RuntimeError as error:
        say(f"error: {error}")
        return 1
    return report(root, generated, results, untested, read, survivors, stale, sample=options.sample_every > 0)


def _run(
    root: Path,
    generated: Sequence[Change],
    options: argparse.Namespace,
    folders: Sequence[str],
    accepted: Container[tuple[str, str]],
) -> tuple[dict[Change, Result], list[Change]]:
    """The results of the changes, and the changes in functions that no test calls; survivors are shown at once."""
    wanted = options.tests or folders
    say(f"Looking up which functions the tests of {', '.join(wanted)} call")
    tests = touched(root, wanted, options.jobs, root / ".venv" / "touched")
    broken: dict[Broken, Change] = {}
    untested: list[Change] = []
    for change in generated:
        chosen = of_function(change, tests, options.most_seconds)
        name = f"{change.place.where}:{change.place.line} {change.title}"
        if chosen:
            timeout_s = _START_S + _SLOWDOWN * sum(test.seconds for test in chosen)
            names = tuple(test.test for test in chosen)
            file, text = change.place.source.file, change.after()
            broken[Broken(name, file, text, names, timeout_s=timeout_s)] = change
        else:
            untested.append(change)
    results: dict[Change, Result] = {}
    used = sorted({test for each in broken for test in each.tests})
    with tempfile.TemporaryDirectory(prefix="mutate-") as temporary:
        first = Tree(Path(temporary).resolve() / "0", used, options.timeout)
        copy_tree(root, first.path)
        began = time.monotonic()
        with grown(first, max(1, min(options.jobs, len(broken)))) as trees:
            say(f"Running {len(broken)} changes with {len(trees)} workers")
            for result in shared_out(broken, trees, Tree.run):
                change = broken[result.broken]
                results[change] = result
                if result.verdict == SURVIVED and _key(change) not in accepted:
                    _show(root, change, called=True)
                if len(results) % 100 == 0:
                    say(f"{len(results)} of {len(broken)} after {time.monotonic() - began:.0f} s")
    return results, untested


def report(
    root: Path,
    generated: Sequence[Change],
    results: dict[Change, Result],
    untested: Sequence[Change],
    modules: Sequence[Source],
    survivors: Sequence[Survivor],
    stale: list[str],
    *,
    sample: bool = False,
) -> int:
    """Sum up, show what no test calls; the exit status. A sample need not contain the accepted survivors."""
    given = {source.module for source in modules}
    accepted = {(survivor.file, survivor.after): survivor for survivor in survivors if survivor.module in given}
    left = dict(accepted)
    new = 0
    for change in generated:
        verdict = results[change].verdict if change in results else SURVIVED
        if verdict != SURVIVED:
            continue
        if left.pop(_key(change), None) is None:
            new += 1
            if change not in results:
                _show(root, change, called=False)
    caught = {
        _key(change): change
        for change, result in results.items()
        if left and result.verdict != SURVIVED and change.place.source.file in {file for file, _ in left}
    }
    for key, survivor in left.items():
        if key in caught or not sample:
            stale.append(f"{survivor.name}: {'is caught now' if key in caught else 'is no longer generated'}")
    for line in stale:
        say(f"stale: {line}")
    counts = Counter(result.verdict for result in results.values())
    cpu_s = sum(result.cpu_s for result in results.values())
    endless = sum(result.note.startswith("the tests had not ended") for result in results.values())
    say(
        f"\n{len(generated)} changes in {cpu_s:.0f} s of processor time: {counts[CAUGHT]} caught, "
        f"{counts[INVALID]} failed otherwise ({endless} without end), {counts[SURVIVED]} survived, "
        f"{len(untested)} in code that no test calls; "
        f"{len(accepted) - len(left)} accepted, {new} to judge, {len(stale)} stale"
    )
    return 1 if new or stale else 0


def _key(change: Change) -> tuple[str, str]:
    """What an accepted survivor has in common with the change."""
    return change.place.source.file, _plain(change.after())


def _show(root: Path, change: Change, *, called: bool) -> None:
    """A survivor as a patch, and as a table to accept it."""
    note = change.title if called else f"{change.title}; no test calls this function"
    say(f"\nSURVIVED: {change.place.where}:{change.place.line} {note}")
    say(Broken("", change.place.source.file, change.after(), ()).patch(root))
    say("\n[[survivor]]\n" + "\n".join(f"{key} = {as_toml(value)}" for key, value in change.anchor().items()))


if __name__ == "__main__":
    sys.exit(main())
