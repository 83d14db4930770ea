"""What each test costs: `pytest -p tools.testcosts` ends with the processor time of folders, modules and tests.

The processor time of a test is that of its process and of the processes it started and waited for, in setup, call and
teardown. `idle` is the time in which the test ran nothing although it could have: it waited by the clock, or for a
process that others kept from running. What one test pays for all, a shared fixture or an import, is charged to that
test; start and collection of each worker have rows of their own. `--costs-rows 0` prints a row for every test.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import astuple, dataclass
from typing import Any

import pytest

from tests.patience import waited_s

KEY = "testcosts"


@dataclass(slots=True)
class Cost:
    """Seconds of one test, or the sum of many."""

    own_s: float = 0.0
    children_s: float = 0.0
    idle_s: float = 0.0
    tests: int = 0

    @property
    def processor_s(self) -> float:
        return self.own_s + self.children_s

    def add(self, other: Cost) -> None:
        self.own_s += other.own_s
        self.children_s += other.children_s
        self.idle_s += other.idle_s
        self.tests += other.tests

    def row(self, name: str) -> str:
        return f"{self.processor_s:9.2f} {self.children_s:9.2f} {self.idle_s:9.2f} {self.tests:6d}  {name}"


@dataclass(slots=True, frozen=True)
class Counters:
    """What this process and its children have used since they began."""

    own_s: float
    children_s: float
    wall_s: float
    #: in which a thread wanted to run and others had the processors; falls when a thread ends
    waited_s: float

    def since(self, began: Counters) -> Cost:
        own_s, children_s = self.own_s - began.own_s, self.children_s - began.children_s
        waited_s = max(0.0, self.waited_s - began.waited_s)
        return Cost(own_s, children_s, max(0.0, self.wall_s - began.wall_s - own_s - children_s - waited_s))


HEADER = f"{'processor':>9} {'children':>9} {'idle':>9} {'tests':>6}  seconds of"


def counters() -> Counters:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    own_s, children_s = own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime
    return Counters(own_s, children_s, time.monotonic(), waited_s())


class Costs:
    """The plugin: measures where tests run, and sums where results are shown."""

    def __init__(self, rows: int | None) -> None:
        self.rows = rows
        self.began = self.mark = counters()
        self.by_test: dict[str, Cost] = defaultdict(Cost)
        #: start, collection and end of each process that ran tests
        self.around: list[tuple[str, Cost]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        began = counters()
        result = yield
        self.around.append(("collection", counters().since(began)))
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self.mark = counters()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = counters()
        report.user_properties.append((KEY, astuple(now.since(self.mark))))
        self.mark = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for key, value in report.user_properties:
            if key == KEY:
                self.by_test[report.nodeid].add(Cost(*value[:3]))  # type: ignore[index]
                self.by_test[report.nodeid].tests = 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[KEY] = [(name, astuple(cost)) for name, cost in self.around]
            output[KEY].append(("all of it", astuple(counters().since(self.began))))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for name, cost in getattr(node, "workeroutput", {}).get(KEY, []):
            self.around.append((f"{node.gateway.id}: {name}", Cost(*cost)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = ["", HEADER, *(cost.row(name) for name, cost in self.around)]
        for title, sums in (("folders", self.sums(2)), ("modules", self.sums(None)), ("tests", self.by_test)):
            lines += ["", f"{HEADER} {title}"]
            lines += [cost.row(name) for name, cost in dearest(sums.items(), self.rows)]
        for line in lines:
            terminalreporter.write_line(line)

    def sums(self, depth: int | None) -> dict[str, Cost]:
        """Costs by module, or by the first parts of its path."""
        found: dict[str, Cost] = defaultdict(Cost)
        for test, cost in self.by_test.items():
            module = test.partition("::")[0]
            found["/".join(module.split("/")[:depth])].add(cost)
        return found


def dearest(costs: Iterable[tuple[str, Cost]], count: int | None) -> list[tuple[str, Cost]]:
    return sorted(costs, key=lambda each: -each[1].processor_s)[:count]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs-rows", type=int, default=40, help="how many modules and tests tools.testcosts prints")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(config.getoption("--costs-rows") or None), "costs of tests")
