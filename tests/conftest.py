"""Which API server the tests run on: `pytest --cluster` starts a real control plane for those that need a server.

With pytest-xdist each worker has a control plane of its own.  Tests that only a real cluster can run take longest, and
go first.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests import patience, servers
from tests.serverneeds import can_ask_for_a_server

if TYPE_CHECKING:
    from tests.cluster.plane import TestPlane
    from tests.cluster.serveruse import ServerUse

_SPECS = Path(__file__).parent / "e2e"
#: of the tests on a server, so many in a hundred may need the embedded one
EMBEDDED_ONLY_LIMIT = 15

# The duration of an example depends on the load of the machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
# Nor do the limits of asyncio run while others have the processors.
patience.install()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster", action="store_true", help="run tests that need an API server on a real Kubernetes control plane"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from walking, again and again, what is imported and collected and stays anyway."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if not config.getoption("--cluster"):
        return None
    from tests.cluster.distribution import scheduling

    return scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    embedded_only = [item for item in items if item.get_closest_marker("embedded_only")]
    for item in embedded_only:
        if not (mark := item.get_closest_marker("embedded_only")) or not mark.args:
            raise pytest.UsageError(f"{item.nodeid}: embedded_only needs a reason")
    if not os.environ.get("KAI_PROMETHEUS"):
        _leave_out(config, items, [item for item in items if item.get_closest_marker("prometheus")])
    cluster_only = [item for item in items if item.get_closest_marker("cluster_only")]
    if not config.getoption("--cluster"):
        _leave_out(config, items, cluster_only)
        return
    _leave_out(config, items, embedded_only)
    config.stash[_LEFT_OUT] = len(embedded_only)
    longest = set(cluster_only)
    _leave_out(config, items, [each for each in items if each not in longest and not can_ask_for_a_server(each.path)])
    # The specs share an installation, which ends with the last of them.
    items.sort(key=lambda item: (_SPECS not in item.path.parents, item not in longest))


def _leave_out(config: pytest.Config, items: list[pytest.Item], unwanted: list[pytest.Item]) -> None:
    if unwanted:
        gone = set(unwanted)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=unwanted)


class _IllegalTransitions(logging.Handler):
    """Keeps the warnings of the state machine of assumptions."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture(autouse=True)
def _no_illegal_transitions(request: pytest.FixtureRequest) -> Iterator[None]:
    """A scheduler that loses track of its own writes fails the test, whatever else the test checks."""
    logger, kept = logging.getLogger("pykai.scheduler.intake.assumptions"), _IllegalTransitions()
    logger.addHandler(kept)
    try:
        yield
    finally:
        logger.removeHandler(kept)
    if request.node.get_closest_marker("illegal_transitions") is None:
        assert not kept.messages


#: how many tests need the embedded server
_LEFT_OUT = pytest.StashKey[int]()
#: of the workers that have ended
_USE: pytest.StashKey[ServerUse] = pytest.StashKey()
_RIGHTS_PROBLEMS = pytest.StashKey[list[str]]()
#: the tests that together use every right of our services
_USING_RIGHTS = ("services", "cluster")


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestPlane]:
    """The real control plane that the tests of this process share."""
    from tests.cluster.plane import running_plane

    with running_plane(tmp_path_factory.mktemp("plane")) as started:
        servers.REAL = started
        yield started
    servers.REAL = None


@pytest.fixture(autouse=True)
def _on_the_wanted_server(request: pytest.FixtureRequest) -> None:
    """Start the control plane before the first test that may ask for a server; others have their own, or none."""
    if request.config.getoption("--cluster") and not request.node.get_closest_marker("cluster_only"):
        request.getfixturevalue("plane")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended."""
    if node.config.getoption("--cluster"):
        from tests.cluster.serveruse import KEY, ServerUse

        if (sent := getattr(node, "workeroutput", {}).get(KEY)) is not None:
            node.config.stash.setdefault(_USE, ServerUse()).add(ServerUse.from_plain(sent))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Forbidden requests of services, unused rights and too many exceptions fail the run."""
    config = session.config
    if not config.getoption("--cluster"):
        return
    from pykai.services.table import account_rules
    from tests.cluster.rights import rights_problems
    from tests.cluster.serveruse import KEY, ServerUse, use_of_this_process

    use = config.stash.setdefault(_USE, ServerUse())
    use.add(use_of_this_process(config.stash.get(_LEFT_OUT, 0)))
    if (output := getattr(config, "workeroutput", None)) is not None:
        output[KEY] = use.plain()
        return
    is_complete_run = not session.testsfailed and _is_complete_run(config)
    problems = [
        f"RIGHTS: {each}" for each in rights_problems(use.requests(), account_rules(), is_complete_run=is_complete_run)
    ]
    if is_complete_run and use.embedded_only > EMBEDDED_ONLY_LIMIT:
        problems.append(
            f"more than {EMBEDDED_ONLY_LIMIT} % of the tests that need a server run on the embedded one only"
        )
    config.stash[_RIGHTS_PROBLEMS] = problems
    if problems and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_complete_run(config: pytest.Config) -> bool:
    """Whether all tests run that use rights, none of them left out on the command line."""
    if config.option.keyword or config.option.markexpr or config.getoption("lf", False):
        return False
    folder = Path(__file__).parent
    asked = [Path(argument).resolve() for argument in config.args]
    return all({folder / each, folder, folder.parent} & set(asked) for each in _USING_RIGHTS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if (use := config.stash.get(_USE, None)) is None:
        return
    terminalreporter.write_line(
        f"{use.opened} servers asked for, all of them real; {use.left_out} tests need the embedded one "
        f"({use.embedded_only:.1f} %, at most {EMBEDDED_ONLY_LIMIT} % may)"
    )
    for complaint in config.stash.get(_RIGHTS_PROBLEMS, []):
        terminalreporter.write_line(complaint, red=True)
