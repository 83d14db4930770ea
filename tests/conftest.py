"""Which API server the tests run on: `pytest --cluster` starts a real control plane for those that need a server."""

from __future__ import annotations

import gc
import logging
from collections.abc import Generator, Iterator
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import patience, servers

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("embedded_only")]
    for item in marked:
        if not (mark := item.get_closest_marker("embedded_only")) or not mark.args:
            raise pytest.UsageError(f"{item.nodeid}: embedded_only needs a reason")
    if config.getoption("--cluster"):
        items[:] = [item for item in items if item not in marked]
        config.hook.pytest_deselected(items=marked)
        config.stash[_LEFT_OUT] = marked
    elif real := [item for item in items if item.get_closest_marker("cluster_only")]:
        items[:] = [item for item in items if item not in real]
        config.hook.pytest_deselected(items=real)


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


_LEFT_OUT = pytest.StashKey[list[pytest.Item]]()
_RIGHTS_PROBLEMS = pytest.StashKey[list[str]]()
#: the tests that together use every right of our services
_USING_RIGHTS = ("services", "cluster")


@pytest.fixture(scope="session", autouse=True)
def _control_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    own_planes = all(item.get_closest_marker("cluster_only") for item in request.session.items)
    if own_planes or not request.config.getoption("--cluster"):
        yield
        return
    from tests.cluster.plane import running_plane

    folder: Path = tmp_path_factory.mktemp("plane")
    with running_plane(folder) as servers.REAL:
        yield
    servers.REAL = None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Forbidden requests of services, unused rights and too many exceptions fail the run."""
    if not session.config.getoption("--cluster"):
        return
    from pykai.services.table import account_rules
    from tests.cluster.controlplane import AUDIT_LOGS, requests_in
    from tests.cluster.rights import rights_problems

    requests = chain.from_iterable(requests_in(log) for log in AUDIT_LOGS if log.exists())
    is_complete_run = not session.testsfailed and _is_complete_run(session.config)
    problems = [
        f"RIGHTS: {each}" for each in rights_problems(requests, account_rules(), is_complete_run=is_complete_run)
    ]
    if is_complete_run and _embedded_only(session.config) > EMBEDDED_ONLY_LIMIT:
        problems.append(
            f"more than {EMBEDDED_ONLY_LIMIT} % of the tests that need a server run on the embedded one only"
        )
    session.config.stash[_RIGHTS_PROBLEMS] = problems
    if problems and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_complete_run(config: pytest.Config) -> bool:
    """Whether all tests run that use rights, none of them left out on the command line."""
    if config.option.keyword or config.option.markexpr or config.getoption("lf", False):
        return False
    folder = Path(__file__).parent
    asked = [Path(argument).resolve() for argument in config.args]
    return all({folder / each, folder, folder.parent} & set(asked) for each in _USING_RIGHTS)


def _embedded_only(config: pytest.Config) -> float:
    """Of a hundred tests that need a server, those that were left out."""
    left_out = len(config.stash.get(_LEFT_OUT, []))
    return 100 * left_out / max(1, servers.opened + left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--cluster"):
        return
    terminalreporter.write_line(
        f"{servers.opened} servers asked for, all of them real; {len(config.stash.get(_LEFT_OUT, []))} tests need the "
        f"embedded one ({_embedded_only(config):.1f} %, at most {EMBEDDED_ONLY_LIMIT} % may)"
    )
    for complaint in config.stash.get(_RIGHTS_PROBLEMS, []):
        terminalreporter.write_line(complaint, red=True)
