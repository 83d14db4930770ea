"""A process that imports and collects once, and forks for each run of the tests.

Most of the cost of a short pytest run is importing pytest, Hypothesis, NumPy and the project, and collecting tests.
`tools/mutants.py` starts up to two of these for each copy of the tree:

    python tools/nursery.py                     has imported what pyproject.toml lists (`tool.mutants.imports`)
    python tools/nursery.py PYTEST-ARGUMENTS    has imported the project too, and collected these tests

A line of JSON with a run to make comes in, one with what became of it goes out: the exit status (null when the time was
up), the output and the tests that failed. The first takes pytest's arguments. The second takes the tests to run, the
statement whose tests go first and, if any, the change of a source file: the file on disk has been changed already, for
whatever is yet to be imported, and functions that live are changed in the fork (`tools/patches.py`); the answer is
`import`, with the reason, when that cannot be done. Each run is a fork in a session of its own, so nothing it imports
or changes stays, and whatever it started dies with it.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import re
import resource
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

# The project that this file belongs to, for this import only: the tests import the `tools` of the copy they are in.
sys.path[0] = str(Path(__file__).parents[1])
from tools.patches import Functions, Replacement, Unpatchable, Watch  # noqa: E402

del sys.path[0]

#: How much longer than its processor time a run may take.
_CLOCK = 10


def run(begin: Callable[[int, int], None], timeout_s: float) -> dict[str, object] | None:
    """Fork, and let the child begin with files for its output and its failed tests; the parent gets what became of it.

    The status is None when the child did not end within its processor time, so that a busy machine changes no result;
    one that waits without end is ended by the clock. The child gets nothing and goes on behind the call.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as failures:
        child = os.fork()
        if not child:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(timeout_s), resource.RLIM_INFINITY))
            begin(output.fileno(), failures.fileno())
            return None

        def end(*_: object) -> None:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os._exit(1)

        before = signal.signal(signal.SIGTERM, end)
        status, cpu_s = _wait(child, time.monotonic() + _CLOCK * timeout_s)
        signal.signal(signal.SIGTERM, before)
        for file in (output, failures):
            file.seek(0)
        failed = failures.read().decode().splitlines()
        return {"status": status, "output": output.read().decode(errors="replace"), "failed": failed, "cpu_s": cpu_s}


def _wait(child: int, end: float) -> tuple[int | None, float]:
    """The exit status of a child, None when the time was up, and the CPU seconds it took; its descendants are ended.

    A child that a signal ended counts as pytest's failure.
    """
    pause = 0.001
    done, status, usage = os.wait4(child, os.WNOHANG)
    while not done and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, 0.01)
        done, status, usage = os.wait4(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not done:
        _, _, usage = os.wait4(child, 0)
        return None, usage.ru_utime + usage.ru_stime
    cpu_s = usage.ru_utime + usage.ru_stime
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return None, cpu_s
    code = os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 3
    return code, cpu_s


def _write_to(output: int) -> None:
    for stream in (1, 2):
        os.dup2(output, stream)


class Unshrunk:
    """A pytest plugin that skips Hypothesis' shrinking: the first failing example is enough."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Leave the other settings of the project as they are."""
        from hypothesis import Phase, settings

        phases = [Phase.explicit, Phase.reuse, Phase.generate]
        settings.register_profile("unshrunk", settings(), phases=phases)
        settings.load_profile("unshrunk")


class Failures:
    """A pytest plugin that writes the name of each test that fails to the file of the run."""

    def __init__(self) -> None:
        self.file: int | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One line for each failed phase of a test."""
        if report.failed and self.file is not None:
            os.write(self.file, f"{report.nodeid}\n".encode())


def _be_pytest(arguments: Sequence[str], *plugins: object) -> int:
    """Run pytest; in a fork that was made meanwhile, the process ends here."""
    me = os.getpid()
    status = 3
    try:
        status = int(pytest.main(list(arguments), plugins=[Unshrunk(), *plugins]))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        if os.getpid() != me:
            os._exit(status)
    return status


class Collected:
    """A pytest plugin that, once tests are collected, forks a run of some of them for each request."""

    def __init__(self, asked: Iterable[str], tell: Callable[[object], None]) -> None:
        self.served = False
        self.failures = Failures()
        self._asked = asked
        self._tell = tell
        self._sources = Path.cwd() / "src"
        self._watch = Watch(self._sources)
        self._watch.start()
        self._functions: Functions | None = None
        self._choice: Choice | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """True after the last request; None in a fork that runs tests."""
        self._watch.stop()
        if session.testsfailed:
            return None
        # Bytecode caches of tests are fine so far; from here on they would be of changed sources.
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        # Held by the plugin: otherwise a fork would spend most of its time freeing them.
        self._functions = functions = Functions(self._sources, self._watch.called)
        self._choice = choice = Choice(session.items)
        gc.collect()
        gc.freeze()
        self.served = True
        self._tell({"collected": len(session.items)})
        for line in self._asked:
            request = json.loads(line)
            session.items = choice.of(request["tests"], request["statement"])
            if not session.items:
                self._tell({"import": "no collected test has this name"})
                continue
            try:
                change = request["change"]
                replacements = functions.replacements(Path.cwd() / change["file"], **change["texts"]) if change else []
            except Unpatchable as reason:
                self._tell({"import": str(reason)})
                continue
            done = run(partial(self._begin, session, replacements), request["timeout_s"])
            if done is None:
                return None
            self._tell(done)
        return True

    def _begin(self, session: pytest.Session, replacements: Iterable[Replacement], output: int, failures: int) -> None:
        """What the fork does before its tests: functions are changed, and the output of tests is kept apart."""
        capture = session.config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        _write_to(output)
        self.failures.file = os.dup(failures)
        # Files of its own: those of the parent may hold the output of a fork that was killed.
        capture.start_global_capturing()
        capture.suspend_global_capture()
        for replacement in replacements:
            replacement.make()


class Choice:
    """Which of the collected tests a run is about."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._items = items
        self._words = {item: _words(item) for item in items}
        self._by_id = {item.nodeid: item for item in items}

    def of(self, tests: Sequence[str], statement: str) -> list[pytest.Item]:
        """The items that pytest would run for these arguments; those that quote the statement go first.

        The first test that fails ends the run, and most likely it is one of these.
        """
        found: dict[pytest.Item, None] = {}
        for test in tests:
            if test in self._by_id:
                found[self._by_id[test]] = None
                continue
            within = tuple(f"{test}{sign}" for sign in ("::", "[", "/"))
            found |= dict.fromkeys(
                each for each in self._items if each.nodeid == test or each.nodeid.startswith(within)
            )
        word = _flat(statement.rpartition(":")[2])
        return sorted(found, key=lambda item: word not in self._words[item])


def _words(item: pytest.Item) -> set[str]:
    """The name and docstring of a test: both `test_alc4_...` and a docstring may quote ALC-4."""
    said = getattr(getattr(item, "function", None), "__doc__", None) or ""
    return {_flat(word) for word in re.findall(r"[\w.-]+", f"{item.name.replace('_', ' ')} {said}")}


def _flat(word: str) -> str:
    return word.lower().replace("-", "").replace(".", "")


def serve_collected(asked: Iterable[str], tell: Callable[[object], None], arguments: list[str]) -> None:
    """Collect tests, then serve requests until the input ends."""
    plugin = Collected(asked, tell)
    with tempfile.TemporaryFile() as log:
        _write_to(log.fileno())
        status = _be_pytest(arguments, plugin, plugin.failures)
        if not plugin.served:
            log.seek(0)
            tell({"status": status, "output": log.read().decode(errors="replace")})


def serve(asked: Iterable[str], tell: Callable[[object], None]) -> None:
    """Serve requests until the input ends."""
    failing = Failures()

    def begin(output: int, failures: int) -> None:
        _write_to(output)
        failing.file = os.dup(failures)

    for line in asked:
        request = json.loads(line)
        done = run(begin, request["timeout_s"])
        if done is None:
            status = 3
            try:
                status = _be_pytest(request["arguments"], failing)
            finally:
                os._exit(status)
        tell(done)


def foreign_modules(project: Path) -> list[str]:
    """Modules that the tests import from elsewhere, as the project lists them; missing ones are skipped."""
    settings = tomllib.loads(project.read_text(encoding="utf-8")) if project.exists() else {}
    found: list[str] = settings.get("tool", {}).get("mutants", {}).get("imports", [])
    return found


def main(arguments: list[str]) -> None:
    """Run the command; keeps the request pipes apart from the standard streams of tests."""
    asked = os.fdopen(os.dup(0), encoding="utf-8")
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def tell(answer: object) -> None:
        told.write(json.dumps(answer) + "\n")
        told.flush()

    for name in foreign_modules(Path("pyproject.toml")):
        with suppress(ImportError):
            importlib.import_module(name)
    if arguments:
        serve_collected(asked, tell, arguments)
    else:
        serve(asked, tell)


if __name__ == "__main__":
    main(sys.argv[1:])
