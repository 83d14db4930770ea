"""Checks that a renaming changed nothing else, and lists what is left to do by hand.

The collected tests before and after map one to one; ruff, mypy and import-linter pass; every mutant's anchor resolves.
Old words that still stand in comments and documents are listed: sentences are for a person to rewrite.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.renaming.mutantfiles import repaired
from tools.renaming.planning import Plan, tracked
from tools.renaming.texts import leftovers
from tools.renaming.typed import CACHE

#: a word with more mentions than this is an English one too
_MANY_MENTIONS = 40
_COLLECT = ("-m", "pytest", "--collect-only", "--verbosity=-1", "-n0", "-p", "no:cacheprovider")


def python(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this Python in the tree."""
    return subprocess.run([sys.executable, *arguments], cwd=root, capture_output=True, text=True, check=False)


def collecting(root: Path) -> subprocess.Popen[str]:
    """Start to collect the tests."""
    return subprocess.Popen(
        [sys.executable, *_COLLECT], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def collected(process: subprocess.Popen[str]) -> tuple[Counter[str], str]:
    """The ids of the tests, and the end of the output when they could not be collected."""
    output = process.communicate()[0]
    tests = Counter(line for line in output.splitlines() if re.match(r"[\w./-]+\.py::", line))
    return tests, "" if process.returncode == 0 and tests else "\n".join(output.splitlines()[-15:])


def compare_tests(plan: Plan, before: Counter[str], after: Counter[str]) -> Iterator[str]:
    """Tests that came or went."""
    expected: Counter[str] = Counter()
    for test, count in before.items():
        name, bracket, parameters = test.partition("[")
        expected[plan.texts.path(name) + bracket + parameters] += count
    for test, count in (expected - after).items():
        yield f"{test} is gone" + (f" ({count} times)" if count > 1 else "")
    for test, count in (after - expected).items():
        yield f"{test} is new" + (f" ({count} times)" if count > 1 else "")


def tidy(root: Path) -> list[str]:
    """Sort imports and format; what ruff still complains about."""
    python(root, "-m", "ruff", "check", "--fix", "--quiet", "--select", "I", ".")
    python(root, "-m", "ruff", "format", "--quiet", ".")
    done = python(root, "-m", "ruff", "check", "--fix", "--output-format", "concise", ".")
    python(root, "-m", "ruff", "format", "--quiet", ".")
    return [] if done.returncode == 0 else done.stdout.splitlines()


def repair_mutants(root: Path) -> list[str]:
    """Update the lists of mutants; returns what does not fit."""
    tool = root / "tools" / "mutants.py"
    if not tool.exists():
        return []
    if "--repair" in tool.read_text(encoding="utf-8"):
        done = python(root, str(tool), "--repair")
        told = [line for line in done.stdout.splitlines() if line.startswith("error")]
        if done.returncode and not told:
            told = [f"mutants.py --repair: {line}" for line in (done.stdout + done.stderr).splitlines()[-5:]]
        return told
    files = {path: (root / path).read_text(encoding="utf-8") for path in tracked(root) if path.endswith(".py")}
    for path in sorted((root / "mutants").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        after = repaired(text, files)
        if after != text:
            path.write_text(after, encoding="utf-8")
    done = python(root, str(tool), "--list")
    return [line for line in done.stdout.splitlines() if line.startswith("error")]


def types(root: Path) -> list[str]:
    """Errors of mypy."""
    done = python(root, "-m", "mypy", "--no-error-summary", "--no-sqlite-cache", "--cache-dir", CACHE)
    return [] if done.returncode == 0 else done.stdout.splitlines()


def layers(root: Path) -> list[str]:
    """Errors of import-linter."""
    tool = Path(sys.executable).with_name("lint-imports")
    if "[tool.importlinter]" not in (root / "pyproject.toml").read_text(encoding="utf-8") or not tool.exists():
        return []
    done = subprocess.run([str(tool)], cwd=root, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else done.stdout.splitlines()[-25:]


def to_do(plan: Plan) -> list[str]:
    """Old words in comments, docstrings and documents; common ones only where they look like code."""
    members = {target.old for target in plan.mapping.targets if target.inner or "." in target.qualified}
    members -= {old.rpartition(".")[2] for old in plan.mapping.modules} | set(plan.mapping.names)
    touched = {plan.mapping.moved_path(path) for path, source in plan.sources.items() if source.edits}
    found: dict[str, list[str]] = {word: [] for word in plan.words}
    coded: dict[str, list[str]] = {word: [] for word in plan.words}
    for path in tracked(plan.root) if plan.words else ():
        if path.startswith(("CHANGELOG", "requirements", "tools/renaming/", "tools/rename.py", "tests/tools/")):
            continue
        if not (path.endswith((".py", ".md", ".toml")) or path in ("Makefile", ".ci/run")):
            continue
        text = (plan.root / path).read_text(encoding="utf-8")
        pieces = _prose(text) if path.endswith(".py") else [(1, text)]
        for first, piece in pieces:
            for line, word, like_code in leftovers(piece, sorted(plan.words)):
                told = f"{path}:{first + line - 1}: {word}"
                found[word].append(told)
                if like_code and (path in touched or path.endswith(".md")):
                    coded[word].append(told)
    lists = (
        coded[word] if word in members or len(found[word]) > _MANY_MENTIONS else found[word] for word in sorted(found)
    )
    return [told for each in lists for told in each]


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Comments and docstrings, with the line in which they begin."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and '"""' in token.string[:5]):
            yield token.start[0], token.string
