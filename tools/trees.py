"""Private copies of the project in which tests run on changed code.

In: changes of one file each, with the tests that should notice (`Broken`). Out: the result of each (`Result`). A change
is *caught* when pytest reports failed tests (exit status 1), *survived* when all pass; anything else (the code no
longer imports, no tests, no end) makes it *invalid*. Recorded cases never count: the project's own tests must know its
rules. A test that failed runs on the code as it is too, once for all changes: if it fails there, it shows nothing, and
the run ends.

Importing the project and collecting tests would cost several times what the tests do. A process that has done both
forks for every change and replaces the functions that it touches (`tools/nursery.py`, `tools/patches.py`); where
that might not be the same as importing the changed file, the file is imported. There is one copy of the tree a worker,
restored after each change.

Subtle: Python trusts a cached .pyc of the same second and size, and changes are often as long as what they replace.
The copies are therefore compiled beforehand with caches that carry the hash of their source, and runs of changed code
write no caches.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import py_compile
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Job = TypeVar("Job")
Done = TypeVar("Done")

#: What a copy of the tree holds.
COPIED = ("src", "tests", "tools", "docs", "examples", "pyproject.toml")
#: Keep failures cheap: every change should fail a test, and the reason is not read.
_TERSE = ("-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=line")
PYTEST = (*_TERSE, "-o", "timeout=0", "--hypothesis-seed=0", "-x", "-n", "0")
CAUGHT, SURVIVED, INVALID = "caught", "survived", "invalid"
#: Meaning of pytest's exit statuses other than 0 and 1.
_STATUSES = {2: "the tests could not be collected", 3: "pytest failed", 4: "a test does not exist", 5: "no tests"}


@dataclass(frozen=True)
class Broken:
    """A change of one file, and the tests of which at least one must fail."""

    #: its name in messages
    name: str
    file: str
    #: the file's text with the change
    after: str
    tests: tuple[str, ...]
    #: statement whose tests go first
    statement: str = ""
    #: seconds that its tests may take, where that is less than the tree's limit
    timeout_s: float = math.inf

    def patch(self, root: Path) -> str:
        """The change for readers."""
        before = (root / self.file).read_text(encoding="utf-8").splitlines()
        lines = difflib.unified_diff(before, self.after.splitlines(), self.file, self.file, n=2, lineterm="")
        return "\n".join(lines)


@dataclass(frozen=True)
class Result:
    """The result of a change."""

    broken: Broken
    verdict: str
    seconds: float
    #: processor seconds, which are more exact than the clock under load
    cpu_s: float
    #: why the code was imported again instead of patched in the running process
    imported: str
    #: why it is invalid
    note: str = ""
    #: what pytest printed
    output: str = ""


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
        """The next answer."""
        told = self._process.stdout
        assert told is not None
        line = told.readline()
        if not line:
            raise RuntimeError("the process that runs the tests has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **request: object) -> dict[str, Any]:
        """Request a run; returns its result."""
        asked = self._process.stdin
        assert asked is not None
        asked.write(json.dumps(request) + "\n")
        asked.flush()
        return self.answer()

    def close(self) -> None:
        """End the process and its runs."""
        self._process.terminate()
        self._process.communicate()


class Tree:
    """A private copy of the project in which tests run."""

    def __init__(self, path: Path, tests: Sequence[str], timeout_s: float, passing: set[str] | None = None) -> None:
        #: tests that pass on the code as it is; shared by all copies of a tree
        self.passing: set[str] = set() if passing is None else passing
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

    def _must_pass(self, tests: Sequence[str]) -> None:
        """Run tests on the code as it is, unless they have passed already; raises RuntimeError when one fails."""
        if self.passing.issuperset(tests):
            return
        answer = self._ask_collected(10 * self.timeout_s, tests=tests, statement="", change=None)
        if "import" in answer:
            # Changed code may give a test parameters that it has not got otherwise.
            tests_only = [test.partition("[")[0] for test in tests]
            answer = self._ask_collected(10 * self.timeout_s, tests=tests_only, statement="", change=None)
        if answer.get("status") != 0:
            output = answer.get("output", answer.get("import", ""))
            raise RuntimeError(f"the tests must pass before anything is broken\n{tail(output, 40)}")
        self.passing.update(tests)

    def have_collected(self) -> None:
        """Import and collect before the first change."""
        if failed := self.collect():
            raise RuntimeError(f"the tests cannot be collected:\n{tail(failed)}")

    def _ask_collected(self, timeout_s: float, **request: object) -> dict[str, Any]:
        assert self._collected is not None, "nothing is collected"
        return self._collected.ask(timeout_s=timeout_s, **request)

    def run(self, broken: Broken) -> Result:
        """Make a change, run its tests, restore the tree."""
        self.have_collected()
        try:
            if broken.file.endswith(".py"):
                compile(broken.after, broken.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            return Result(broken, INVALID, 0.0, 0.0, "", f"is not Python: {error}")
        timeout_s = min(self.timeout_s, broken.timeout_s)
        target = self.path / broken.file
        original = target.read_bytes()
        began = time.monotonic()
        try:
            target.write_text(broken.after, encoding="utf-8", newline="")
            change = {"file": broken.file, "texts": {"before": original.decode(), "after": broken.after}}
            answer = self._ask_collected(timeout_s, tests=broken.tests, statement=broken.statement, change=change)
            imported = answer.get("import", "")
            if imported:
                if self._nursery is None:
                    self._nursery = Nursery(self.path, self.environment(write_caches=False))
                answer = self._nursery.ask(arguments=self.arguments(broken.tests), timeout_s=timeout_s)
        finally:
            target.write_bytes(original)
            shutil.rmtree(self.path / ".hypothesis", ignore_errors=True)
        seconds = time.monotonic() - began
        status = answer["status"]
        verdict, note = {0: SURVIVED, 1: CAUGHT}.get(status, INVALID), ""
        if verdict == CAUGHT:
            self._must_pass(answer["failed"] or broken.tests)
        if status is None:
            note = f"the tests had not ended after {timeout_s:g} s"
        elif verdict == INVALID:
            note = f"{_STATUSES.get(status, f'exit status {status}')}\n{tail(answer['output'])}"
        return Result(broken, verdict, seconds, answer["cpu_s"], imported, note, answer["output"])

    def close(self) -> None:
        """End everything that was started here."""
        for nursery in (self._nursery, self._collected):
            if nursery is not None:
                nursery.close()
        self._nursery = self._collected = None


def tail(output: str, lines: int = 12) -> str:
    """The last lines of an output."""
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


@contextmanager
def grown(first: Tree, workers: int) -> Iterator[list[Tree]]:
    """As many copies as there are workers, made from a first one whose tests are collected.

    Raises RuntimeError with the reason where they cannot be.
    """
    first.compile()
    if elsewhere := imports_elsewhere(first):
        raise RuntimeError(f"the copy is not what runs: {'; '.join(elsewhere)}")
    trees = [first]
    try:
        first.have_collected()
        for number in range(1, workers):
            path = first.path.with_name(str(number))
            shutil.copytree(first.path, path)
            trees.append(Tree(path, first.tests, first.timeout_s, first.passing))
        yield trees
    finally:
        for tree in trees:
            tree.close()


def shared_out(jobs: Iterable[Job], trees: Sequence[Tree], do: Callable[[Tree, Job], Done]) -> Iterator[Done]:
    """Run the jobs, one worker per tree; yields each result as it ends."""
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


def say(text: str = "") -> None:
    """Print and flush."""
    print(text, flush=True)
