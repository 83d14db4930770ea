"""One installation for all specs of a process: a lab, or with `--cluster` a real control plane."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import servers
from tests.e2e.endtoend import EndToEnd, end_to_end, prepare
from tests.e2e.installation import Installation, add_machines, installation_on_a_control_plane, lab

#: the installation, while specs need it
_running = ExitStack()


@pytest.fixture(autouse=True)
def _on_the_wanted_server() -> None:
    """These tests have a control plane of their own: all of Kubernetes' controllers run beside it."""


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """On a real control plane, with Helm where there is one."""
    with _running:
        made = _running.enter_context(installation_on_a_control_plane(tmp_path_factory.mktemp("plane")))
        if "KAI_HELM" in os.environ:
            made.install_release()
        else:
            made.install()
        yield made


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the installation with the last spec: its programs need processors, even when there is nothing to do."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _running.close()


@pytest.fixture(scope="session")
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of the administrator; `KAI_E2E_KUBECONFIG` names that of an installation which runs already."""
    if running := os.environ.get("KAI_E2E_KUBECONFIG"):
        asyncio.run(prepare(Path(running)))
        yield Path(running)
        return
    if request.config.getoption("--cluster"):
        kubeconfig = request.getfixturevalue("installation").kubeconfig
        asyncio.run(prepare(kubeconfig))
        servers.opened += 1
        yield kubeconfig
        return
    with lab(tmp_path_factory.mktemp("e2e")) as kubeconfig:
        asyncio.run(add_machines(kubeconfig))
        asyncio.run(prepare(kubeconfig))
        yield kubeconfig


@pytest.fixture
async def e2e(installed: Path) -> AsyncIterator[EndToEnd]:
    """The cluster as a spec sees it."""
    async with end_to_end(installed) as found:
        yield found
