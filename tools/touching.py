"""A pytest plugin that maps each test to the functions it calls and to its seconds.

    pytest -p tools.touching --touched=FILE writes the map of these tests to FILE (one per xdist worker)

In: folders or files of tests. Out: for every test the functions it calls, as (file, first line, name), and its seconds.
A generated change is shown only to the tests that call the changed function, the quickest first (`tools/mutate.py`).

The profiler records calls without running Python for each, so this costs little; it does not see other threads. The map
is kept for every file of tests in `.venv/touched`, under a hash of the file and of the sources, so that after a change
of the tests only those that changed are run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from cProfile import Profile
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import pytest

#: Recorded cases do not count; the others need programs that may be missing, or are programs themselves.
LEFT_OUT = ("tests/conformance", "tests/cluster", "tests/attack", "tests/docs", "tests/tools", "tests/living")


@dataclass(frozen=True)
class Touched:
    """What one test calls."""

    test: str
    seconds: float
    #: file below the root, and the first line of a function
    functions: frozenset[tuple[str, int]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file to write."""
    parser.addoption("--touched", help="write which functions each test calls to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Watch the tests if asked to."""
    target = config.getoption("--touched")
    if target and (hasattr(config, "workerinput") or not config.getoption("numprocesses", 0)):
        config.pluginmanager.register(_Watcher(Path(config.rootpath), Path(target)))


class _Watcher:
    def __init__(self, root: Path, target: Path) -> None:
        self._prefix = f"{root / 'src'}/"
        self._root = f"{root}/"
        self._target = target.with_name(f"{target.name}.{os.environ.get('PYTEST_XDIST_WORKER', 'gw')}")
        self._tests: dict[str, object] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watch a test with its fixtures."""
        profile = Profile(builtins=False)
        began = time.perf_counter()
        profile.enable()
        try:
            return (yield)
        finally:
            profile.disable()
            called = {
                (entry.code.co_filename.removeprefix(self._root), entry.code.co_firstlineno)
                for entry in profile.getstats()
                if isinstance(entry.code, CodeType) and entry.code.co_filename.startswith(self._prefix)
            }
            self._tests[item.nodeid] = [round(time.perf_counter() - began, 4), sorted(called)]

    def pytest_sessionfinish(self) -> None:
        """Write the map."""
        self._target.write_text(json.dumps(self._tests))


def touched(root: Path, wanted: Iterable[str], jobs: int, folder: Path) -> list[Touched]:
    """The map of the tests in folders or files; missing entries are measured. RuntimeError if tests fail."""
    files = sorted({file for name in wanted for file in _files(root, name)})
    sources = hashlib.sha256()
    shared = [path for path in sorted((root / "tests").rglob("*.py")) if not path.name.startswith("test_")]
    for path in [*sorted((root / "src").rglob("*.py")), *shared]:
        sources.update(path.read_bytes())
    keys = {file: hashlib.sha256(sources.digest() + (root / file).read_bytes()).hexdigest()[:32] for file in files}
    folder.mkdir(parents=True, exist_ok=True)
    if missing := [file for file in files if not (folder / keys[file]).exists()]:
        measured: dict[str, dict[str, object]] = {file: {} for file in missing}
        for test, called in _measured(root, missing, jobs).items():
            measured[test.partition("::")[0]][test] = called
        for file, tests in measured.items():
            (folder / keys[file]).write_text(json.dumps(tests))
    _forget(folder)
    found: list[Touched] = []
    for file in files:
        for test, (seconds, called) in json.loads((folder / keys[file]).read_text()).items():
            found.append(Touched(test, seconds, frozenset((name, line) for name, line in called)))
    return found


def _forget(folder: Path, most: int = 2000) -> None:
    """Remove the oldest entries."""
    for old in sorted(folder.iterdir(), key=lambda path: -path.stat().st_mtime)[most:]:
        old.unlink()


def _files(root: Path, name: str) -> list[str]:
    path = root / name
    found = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    names = [str(each.relative_to(root)) for each in found]
    return [each for each in names if name in LEFT_OUT or not each.startswith(tuple(f"{out}/" for out in LEFT_OUT))]


def _measured(root: Path, files: Sequence[str], jobs: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary) / "touched"
        environment = {name: value for name, value in os.environ.items() if name != "KAI_CONFORMANCE_DIR"}
        environment["PYTHONPATH"] = os.pathsep.join([str(root / "src"), str(Path(__file__).parents[1])])
        workers = str(jobs if jobs > 1 else 0)
        options = ["-q", "-p", "no:cacheprovider", "-p", "tools.touching", f"--touched={target}", "-n", workers]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the tests must pass before anything is broken\n{done.stdout[-3000:]}")
        found: dict[str, object] = {}
        for path in target.parent.iterdir():
            found |= json.loads(path.read_text())
        return found
