"""Which of the listed mutants a run is about: those of what has changed, and a tenth of the others.

`tools/mutants.py --changed` takes

- mutants whose file, or a file of whose tests, differs from a revision, and those whose table is new or has changed;
  the revision is that of the main branch or, on it, the last commit but one;
- of all others every tenth. Which tenth, the hash of the last commit decides: the same commit gives the same tenth
  wherever it runs, and the commits of a day cover nearly all. A mutant stays in its tenth when others come or go.
"""

from __future__ import annotations

import fnmatch
import subprocess
import tempfile
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.listing import Mutant, read_mutants

#: of the mutants of what has not changed, one in so many
TENTHS = 10


class NoRevision(Exception):
    """Git does not know the revision, or there is no git; says why."""


@dataclass(frozen=True)
class Chosen:
    """Mutants to run, and the sentence that says which they are."""

    mutants: list[Mutant]
    text: str


def named(mutants: Iterable[Mutant], pattern: str | None) -> list[Mutant]:
    """Mutants whose id fits the pattern (with or without the name of the document), or whose title contains it."""
    if pattern is None:
        return list(mutants)
    return [
        mutant
        for mutant in mutants
        if fnmatch.fnmatchcase(mutant.id, pattern)
        or fnmatch.fnmatchcase(mutant.id.partition(":")[2], pattern)
        or pattern.lower() in mutant.title.lower()
    ]


def changed_and_a_tenth(root: Path, mutants: Collection[Mutant], files: dict[Mutant, str], base: str) -> Chosen:
    """See the module; `files` has the file that a mutant changes. Raises `NoRevision`."""
    head = _revision(root, "HEAD")
    base = _base(root, base, head)
    paths = set(_git(root, "diff", "--name-only", base, "--", "src", "tests", "tools").splitlines())
    known = _listed(root, base)
    changed = [
        mutant
        for mutant in mutants
        if _content(mutant) not in known or files.get(mutant) in paths or _is_tested_by(mutant, paths)
    ]
    tenth = int(head, 16) % TENTHS
    taken = set(changed)
    others = [mutant for mutant in mutants if mutant not in taken and tenth_of(mutant) == tenth]
    text = (
        f"{len(changed)} mutants of what differs from {base[:10]}, and {len(others)} of the other"
        f" {len(mutants) - len(changed)}: tenth {tenth} (0 to {TENTHS - 1}), from commit {head[:10]}"
    )
    taken.update(others)
    return Chosen([mutant for mutant in mutants if mutant in taken], text)


def tenth_of(mutant: Mutant) -> int:
    """The tenth that a mutant belongs to; it depends on nothing but its name."""
    return zlib.crc32(f"{mutant.id} {mutant.title}".encode()) % TENTHS


def _is_tested_by(mutant: Mutant, paths: Iterable[str]) -> bool:
    tests = [test.partition("::")[0] for test in mutant.tests]
    return any(path == test or path.startswith(f"{test.rstrip('/')}/") for path in paths for test in tests)


def _content(mutant: Mutant) -> tuple[object, ...]:
    """All that its table says, wherever it stands."""
    return mutant.id, mutant.title, mutant.old, mutant.new, mutant.tests, mutant.where, mutant.file, mutant.nth


def _listed(root: Path, revision: str) -> set[tuple[object, ...]]:
    """The tables of the lists as they were."""
    names = _git(root, "ls-tree", "--name-only", revision, "mutants/").splitlines()
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        folder = Path(temporary)
        for name in names:
            if name.endswith(".toml"):
                text = _git(root, "show", f"{revision}:{name}")
                (folder / Path(name).name).write_text(text, encoding="utf-8")
        mutants, _ = read_mutants(folder)
    return {_content(mutant) for mutant in mutants}


def _revision(root: Path, name: str) -> str:
    return _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()


def _base(root: Path, wanted: str, head: str) -> str:
    """The revision to compare with; where there is none, or it is the last commit itself, the one before that."""
    try:
        if (base := _revision(root, wanted)) != head:
            return base
    except NoRevision:
        pass
    return _revision(root, "HEAD~1")


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoRevision(f"git cannot be run: {error}") from error
    if done.returncode:
        raise NoRevision(done.stderr.strip() or f"git {' '.join(arguments)}: exit status {done.returncode}")
    return done.stdout
