"""Breaks the code on purpose, one rule at a time, and sees that the tests notice: `make mutants`.

`mutants/*.toml` list the mutants, one table each:

    [[mutant]]
    id = "cycle:PG-5"                       # the statement it switches off; several mutants may share one
    title = "a set needs no satisfied children"
    file = "src/pykai/core/gangs.py"
    old = '''text that occurs exactly once in the file'''
    new = '''what stands there instead'''
    tests = ["tests/core/test_gangs.py"]    # files or node ids of which at least one test must fail

`mutants/required.txt` lists the statements that must have at least one. Every mutant runs in a private copy of the
tree, one copy a worker, mended after each mutant. A mutant is *caught* when pytest reports failed tests (exit status
1), *survived* when all pass; anything else (the code no longer imports, no tests, no end) makes it *invalid*. The run
fails unless all are caught. Recorded cases never count: the project's own tests must know its rules.

Importing the project and collecting tests would cost several times what the tests do. A process that has done both
forks for every mutant and changes the functions that the mutant touches (`tools/nursery.py`, `tools/patches.py`); where
that might not be the same as importing the changed file, the file is imported.

Subtle: Python trusts a cached .pyc of the same second and size, and mutants are often as long as what they replace.
The copies are therefore compiled beforehand with caches that carry the hash of their source, and mutated runs write
no caches.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import json
import os
import py_compile
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Job = TypeVar("Job")
Done = TypeVar("Done")

#: What a copy of the tree holds.
COPIED = ("src", "tests", "tools", "pyproject.toml")
FIELDS = ("id", "title", "file", "old", "new", "tests")
#: What is spent on a failure is spent on every mutant: no one reads why a test failed that should.
_TERSE = ("-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=line")
PYTEST = (*_TERSE, "-o", "timeout=0", "--hypothesis-seed=0", "-x", "-n", "0")
CAUGHT, SURVIVED, INVALID = "caught", "survived", "invalid"
#: Meaning of pytest's exit statuses other than 0 and 1.
_STATUSES = {2: "the tests could not be collected", 3: "pytest failed", 4: "a test does not exist", 5: "no tests"}


@dataclass(frozen=True)
class Mutant:
    """One rule to switch off."""

    #: the file that lists it, without folder
    source: str
    id: str
    title: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"{self.source}: {self.id} ({self.title})"

    def applied(self, text: str) -> str:
        """The file's text with the rule switched off."""
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    mutant: Mutant
    verdict: str
    seconds: float
    #: of the processor, which tells more than the clock when others work too
    cpu_s: float
    #: why the code was imported anew, instead of functions changed in a process that has imported it
    imported: str
    #: why it is invalid, or the end of pytest's output
    note: str = ""


def read_mutants(folder: Path) -> tuple[list[Mutant], list[str]]:
    """The mutants of a folder, and what is wrong with the files."""
    mutants: list[Mutant] = []
    errors: list[str] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            errors.append(f"{path.name}: not TOML: {error}")
            continue
        for key in content:
            if key != "mutant":
                errors.append(f"{path.name}: unknown table {key!r}")
        tables = content.get("mutant", [])
        if not isinstance(tables, list):
            errors.append(f"{path.name}: write [[mutant]], not [mutant]")
            continue
        for number, table in enumerate(tables, 1):
            found = _read_table(path.name, number, table)
            if isinstance(found, Mutant):
                mutants.append(found)
            else:
                errors.append(found)
    return mutants, errors


def _read_table(source: str, number: int, table: object) -> Mutant | str:
    """The mutant of a table, or what is wrong with it."""
    where = f"{source}: mutant {number}"
    if not isinstance(table, dict):
        return f"{where}: not a table"
    where += f" ({table.get('id', 'without id')}, {table.get('title', 'without title')})"
    if unknown := sorted(set(table) - set(FIELDS)):
        return f"{where}: unknown field {', '.join(unknown)}"
    if missing := [name for name in FIELDS if name not in table]:
        return f"{where}: no {', '.join(missing)}"
    texts = {name: table[name] for name in FIELDS if name != "tests"}
    if wrong := [name for name, value in texts.items() if not isinstance(value, str) or (not value and name != "new")]:
        return f"{where}: {', '.join(wrong)}: expected text"
    tests = table["tests"]
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) for test in tests):
        return f"{where}: tests: expected a list of files or node ids"
    return Mutant(source=source, **texts, tests=tuple(tests))


def read_required(path: Path) -> list[str]:
    """Statements that must have a mutant; none when the file does not exist."""
    if not path.exists():
        return []
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def check_mutants(mutants: Sequence[Mutant], root: Path) -> list[str]:
    """Why mutants cannot be run on this tree, one line each."""
    errors: list[str] = []
    seen: dict[tuple[str, str], Mutant] = {}
    for mutant in mutants:
        for test in mutant.tests:
            path = Path(test.partition("::")[0])
            if not (root / path).exists():
                errors.append(f"{mutant.name}: {path} does not exist")
            elif path.parts[:2] == ("tests", "conformance"):
                errors.append(f"{mutant.name}: {path}: recorded cases do not count")
        target = root / mutant.file
        if not target.is_file():
            errors.append(f"{mutant.name}: {mutant.file} does not exist")
            continue
        text = target.read_text(encoding="utf-8")
        count = text.count(mutant.old)
        if count != 1:
            errors.append(f"{mutant.name}: does not apply: `old` occurs {count} times in {mutant.file}")
            continue
        changed = mutant.applied(text)
        if changed == text:
            errors.append(f"{mutant.name}: changes nothing")
            continue
        try:
            compile(changed, mutant.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            errors.append(f"{mutant.name}: is not Python: {error}")
        twin = seen.setdefault((mutant.file, changed), mutant)
        if twin is not mutant:
            errors.append(f"{mutant.name}: is the same as {twin.name}")
    return errors


def chosen(mutants: Iterable[Mutant], pattern: str | None) -> list[Mutant]:
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


class Nursery:
    """A process that forks for every run of the tests; see `tools/nursery.py`."""

    def __init__(self, folder: Path, environment: dict[str, str], *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py")), *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def answer(self) -> dict[str, Any]:
        """The next thing it tells."""
        told = self._process.stdout
        assert told is not None
        line = told.readline()
        if not line:
            raise RuntimeError("the process that runs the tests has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **request: object) -> dict[str, Any]:
        """Have a run made; what became of it."""
        asked = self._process.stdin
        assert asked is not None
        asked.write(json.dumps(request) + "\n")
        asked.flush()
        return self.answer()

    def close(self) -> None:
        """End it, and what it runs."""
        self._process.terminate()
        self._process.communicate()


class Tree:
    """A private copy of the project in which tests run."""

    def __init__(self, path: Path, tests: Sequence[str], timeout_s: float) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self.tests = tests
        self._nursery: Nursery | None = None
        self._collected: Nursery | None = None

    def environment(self, *, write_caches: bool) -> dict[str, str]:
        """The environment in which the copy's own code is imported, and no recorded case is found."""
        left_out = ("KAI_CONFORMANCE_DIR", "PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS")
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        environment["PYTHONPATH"] = str(self.path / "src")
        if not write_caches:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        return environment

    def compile(self) -> None:
        """Cache the compiled sources under the hash of their text."""
        for source in sorted((self.path / "src").rglob("*.py")):
            py_compile.compile(str(source), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)

    def arguments(self, tests: Sequence[str]) -> list[str]:
        """Pytest's command line: the first test that fails is enough, and what tests write does not outlive them."""
        return [*PYTEST, f"--basetemp={self.path.with_suffix('.tmp')}", *tests]

    def collect(self) -> str | None:
        """Import the code and collect the tests, before anything is broken; pytest's output if that fails."""
        if self._collected is not None:
            return None
        # Leaves pytest's caches of the tests for the others.
        files = sorted({test.partition("::")[0] for test in self.tests})
        self._collected = Nursery(self.path, self.environment(write_caches=True), *self.arguments(files))
        answer = self._collected.answer()
        return None if "collected" in answer else answer["output"]

    def run_unbroken(self, tests: Sequence[str]) -> tuple[int | None, str]:
        """Run tests on the code as it is; pytest's exit status (None: it did not end) and output."""
        self._have_collected()
        answer = self._ask_collected(10 * self.timeout_s, tests=tests, statement="", change=None)
        return answer.get("status", 4), answer.get("output", answer.get("import", ""))

    def _have_collected(self) -> None:
        """What is imported must not be broken, so this comes before the first mutant."""
        if failed := self.collect():
            raise RuntimeError(f"the tests cannot be collected:\n{_tail(failed)}")

    def _ask_collected(self, timeout_s: float, **request: object) -> dict[str, Any]:
        assert self._collected is not None, "nothing is collected"
        return self._collected.ask(timeout_s=timeout_s, **request)

    def run(self, mutant: Mutant) -> Result:
        """Apply a mutant, run its tests, mend the tree."""
        self._have_collected()
        target = self.path / mutant.file
        original = target.read_bytes()
        before = original.decode()
        after = mutant.applied(before)
        began = time.monotonic()
        try:
            target.write_text(after, encoding="utf-8", newline="")
            change = {"file": mutant.file, "texts": {"before": before, "after": after}}
            answer = self._ask_collected(self.timeout_s, tests=mutant.tests, statement=mutant.id, change=change)
            imported = answer.get("import", "")
            if imported:
                if self._nursery is None:
                    self._nursery = Nursery(self.path, self.environment(write_caches=False))
                answer = self._nursery.ask(arguments=self.arguments(mutant.tests), timeout_s=self.timeout_s)
        finally:
            target.write_bytes(original)
            shutil.rmtree(self.path / ".hypothesis", ignore_errors=True)
        seconds = time.monotonic() - began
        status = answer["status"]
        verdict, note = {0: SURVIVED, 1: CAUGHT}.get(status, INVALID), ""
        if status is None:
            note = f"the tests had not ended after {self.timeout_s:g} s"
        elif verdict == INVALID:
            note = f"{_STATUSES.get(status, f'exit status {status}')}\n{_tail(answer['output'])}"
        return Result(mutant, verdict, seconds, answer["cpu_s"], imported, note)

    def close(self) -> None:
        """End everything that was started here."""
        for nursery in (self._nursery, self._collected):
            if nursery is not None:
                nursery.close()
        self._nursery = self._collected = None


def _tail(output: str, lines: int = 12) -> str:
    return "\n".join(output.rstrip().splitlines()[-lines:])


def copy_tree(root: Path, target: Path) -> None:
    """Copy what tests need, without caches."""
    target.mkdir(parents=True)
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".*"))
        elif source.exists():
            shutil.copy2(source, target / name)


def imports_elsewhere(tree: Tree) -> list[str]:
    """Packages of the copy that Python would import from another place."""
    packages = sorted(path.name for path in (tree.path / "src").iterdir() if (path / "__init__.py").exists())
    code = (
        "import importlib.util, sys\n"
        "for name in sys.argv[1:]:\n"
        "    spec = importlib.util.find_spec(name)\n"
        "    print(name, spec.origin if spec else '-')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *packages],
        cwd=tree.path,
        env=tree.environment(write_caches=False),
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    return [f"{name} is imported from {origin}" for name, origin in found.items() if str(tree.path) not in origin]


def shared_out(jobs: Iterable[Job], trees: Sequence[Tree], do: Callable[[Tree, Job], Done]) -> Iterator[Done]:
    """Do the jobs, one worker a tree; what became of each as it ends."""
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)
    stop = threading.Event()

    def do_one(job: Job) -> Done | None:
        if stop.is_set():
            return None
        tree = free.get()
        try:
            return do(tree, job)
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as pool:
        try:
            for ended in as_completed([pool.submit(do_one, job) for job in jobs]):
                done = ended.result()
                if done is not None:
                    yield done
        except BaseException:
            stop.set()
            for tree in trees:
                tree.close()
            raise


def failing(trees: Sequence[Tree], tests: Sequence[str]) -> str | None:
    """The output of tests that fail on the code as it is, each file of tests in a process of its own."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    outputs = [output for status, output in shared_out(files.values(), trees, Tree.run_unbroken) if status != 0]
    return outputs[0] if outputs else None


def run_all(mutants: Sequence[Mutant], trees: Sequence[Tree]) -> list[Result]:
    """Run the mutants, and tell of each as it ends."""
    results: dict[Mutant, Result] = {}
    for result in shared_out(mutants, trees, Tree.run):
        results[result.mutant] = result
        say(line_of(result))
    return [results[mutant] for mutant in mutants if mutant in results]


def say(text: str = "") -> None:
    """Print at once, whatever reads us."""
    print(text, flush=True)


def line_of(result: Result) -> str:
    """One mutant in the progress."""
    verdict = result.verdict if result.verdict == CAUGHT else result.verdict.upper()
    return f"{verdict:<9} {result.mutant.id:<14} {result.mutant.title}  ({result.seconds:.1f} s)"


def patch_of(mutant: Mutant, root: Path) -> str:
    """What the mutant changes, as a patch."""
    text = (root / mutant.file).read_text(encoding="utf-8")
    lines = difflib.unified_diff(
        text.splitlines(), mutant.applied(text).splitlines(), mutant.file, mutant.file, n=2, lineterm=""
    )
    return "\n".join(lines)


def report(results: Sequence[Result], root: Path) -> None:
    """Those that were not caught, then the numbers."""
    for result in results:
        if result.verdict == CAUGHT:
            continue
        mutant = result.mutant
        say(f"\n{result.verdict.upper()}: {mutant.name}")
        say(patch_of(mutant, root))
        say(f"tests: {' '.join(mutant.tests)}")
        if result.note:
            say(result.note)
    say()
    sources = sorted({result.mutant.source for result in results})
    width = max(len(name) for name in (*sources, "total"))
    for name in (*sources, "total"):
        counts = Counter(result.verdict for result in results if name in ("total", result.mutant.source))
        rest = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (SURVIVED, INVALID) if counts[verdict])
        say(f"{name:<{width}}  {counts[CAUGHT]:>4} of {counts.total()} caught{', ' + rest if rest else ''}")


def write_json(path: Path, results: Sequence[Result]) -> None:
    """The results for programs."""
    counts = Counter(result.verdict for result in results)
    content = {
        "total": len(results),
        **{verdict: counts[verdict] for verdict in (CAUGHT, SURVIVED, INVALID)},
        "mutants": [
            {
                "source": result.mutant.source,
                "id": result.mutant.id,
                "title": result.mutant.title,
                "file": result.mutant.file,
                "verdict": result.verdict,
                "seconds": round(result.seconds, 2),
                "cpu_s": round(result.cpu_s, 3),
                "imported": result.imported,
                "note": result.note,
            }
            for result in results
        ],
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="mutants.py", description="Break the code; see that the tests notice.")
    parser.add_argument("--only", metavar="PATTERN", help="mutants with this id (* and ? allowed) or text in the title")
    parser.add_argument("--list", action="store_true", help="list the mutants and run nothing")
    # One more than there are processors: tests that wait in vain for what a mutant prevents need none.
    jobs = (os.cpu_count() or 1) + 1
    parser.add_argument("--jobs", metavar="N", type=int, default=jobs, help=f"workers ({jobs}: the CPUs and one more)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results here too")
    parser.add_argument("--timeout", metavar="S", type=float, default=120, help="seconds a mutant may take (120)")
    parser.add_argument("--root", metavar="DIR", type=Path, default=Path(__file__).parents[1], help="the project")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    options = arguments(given)
    root = options.root.resolve()
    mutants, errors = read_mutants(root / "mutants")
    selected = chosen(mutants, options.only)
    if options.only is None:
        known = {mutant.id for mutant in mutants}
        required = read_required(root / "mutants" / "required.txt")
        errors += [f"required.txt: {statement} has no mutant" for statement in required if statement not in known]
    if not selected:
        errors.append(f"no mutant fits {options.only!r}" if options.only else "no mutants are listed")
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        # Whoever edits the tree meanwhile disturbs nobody: everything from here on looks at the copy.
        tests = {test for mutant in selected for test in mutant.tests}
        first = Tree(Path(temporary).resolve() / "0", sorted(tests), options.timeout)
        copy_tree(root, first.path)
        errors += check_mutants(selected, first.path)
        if options.list:
            for mutant in selected:
                say(f"{mutant.id:<14} {mutant.title}  ({mutant.source}, {mutant.file})")
        for error in errors:
            say(f"error: {error}")
        if errors or options.list:
            return 1 if errors else 0
        return _run(selected, first, options)


def _run(mutants: Sequence[Mutant], first: Tree, options: argparse.Namespace) -> int:
    began = time.monotonic()
    first.compile()
    if elsewhere := imports_elsewhere(first):
        say(f"error: the copy is not what runs: {'; '.join(elsewhere)}")
        return 1
    workers = max(1, min(options.jobs, len(mutants)))
    trees = [first]
    try:
        say(f"Running the tests of {len(mutants)} mutants on the code as it is")
        failed = first.collect()
        if failed is None:
            for number in range(1, workers):
                path = first.path.with_name(str(number))
                shutil.copytree(first.path, path)
                trees.append(Tree(path, first.tests, options.timeout))
            failed = failing(trees, first.tests)
        if failed is not None:
            say(_tail(failed, 40))
            say("error: the tests must pass before anything is broken")
            return 1
        say(f"Running {len(mutants)} mutants with {workers} workers")
        results = run_all(mutants, trees)
    finally:
        for tree in trees:
            tree.close()
    report(results, first.path)
    say(f"{time.monotonic() - began:.0f} s")
    if options.json is not None:
        write_json(options.json, results)
    return 0 if len(results) == len(mutants) and all(result.verdict == CAUGHT for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
