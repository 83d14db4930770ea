"""A new service is a row of the table and one module: command line, help, roles, manifests and docs check follow."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykai.cli.manifests import manifests
from pykai.cli.run import run
from pykai.operator.install import installation
from pykai.services.definition import ServiceDefinition, ServicePort
from pykai.services.rights import LIST_WATCH, RoleRule
from pykai.services.table import SERVICES, services_in_all
from pykai.webhooks import table
from pykai.webhooks.handlers import object_handlers, pod_handlers, queue_handlers
from pykai.webhooks.queuelookups import QueueLookups
from pykai.webhooks.topologylookups import TopologyLookups
from tests.cli.test_run_flags import kubeconfig_of_nobody
from tests.docs.test_services_doc import DOC, unlisted_accounts, unlisted_services
from tests.webhooks.test_server import runtime_of_nothing

DUMMY = ServiceDefinition(
    "dummy",
    "tests.services.dummyservice:FLAGS",
    "tests.services.dummyservice:from_flags",
    page="dummy.md",
    ports=(ServicePort("metrics", "metrics-bind-address"),),
    account="dummy-controller",
    rights=(RoleRule("", ("pods",), LIST_WATCH), RoleRule("", ("secrets",), ("patch",), "kai-scheduler")),
    in_all=True,
)


@pytest.fixture
def dummy(monkeypatch: pytest.MonkeyPatch) -> ServiceDefinition:
    monkeypatch.setitem(SERVICES, DUMMY.name, DUMMY)
    return DUMMY


@pytest.mark.usefixtures("dummy")
def test_it_runs_with_its_flags(tmp_path: Path) -> None:
    kubeconfig = ["--kubeconfig", str(kubeconfig_of_nobody(tmp_path))]
    assert "hello hello" in CliRunner().invoke(run, ["dummy", "--loops=2", *kubeconfig]).output
    refused = CliRunner().invoke(run, ["dummy", "--loops=0", *kubeconfig])
    assert "--loops: '0': expected a whole number of at least 1" in refused.output
    assert refused.exit_code == 2
    assert services_in_all()[-1] == "dummy"


@pytest.mark.usefixtures("dummy")
def test_help_lists_it_and_its_flags() -> None:
    assert "dummy|all" in CliRunner().invoke(run, ["--help"]).output
    text = CliRunner().invoke(run, ["dummy", "--help"]).output
    assert re.search(r"--loops +how often it says hello \[1\]", text)


@pytest.mark.usefixtures("dummy")
def test_its_account_and_roles_are_installed() -> None:
    added = {
        (each["kind"], each["metadata"].get("namespace", ""))
        for each in installation()
        if each["metadata"]["name"] in ("dummy-controller", "kai-dummy-controller")
    }
    assert added == {
        ("ServiceAccount", "kai-scheduler"),
        ("ClusterRole", ""),
        ("ClusterRoleBinding", ""),
        ("Role", "kai-scheduler"),
        ("RoleBinding", "kai-scheduler"),
    }
    assert "name: kai-dummy-controller" in CliRunner().invoke(manifests).output


@pytest.mark.usefixtures("dummy")
def test_docs_must_name_it() -> None:
    assert unlisted_services(DOC) == ["dummy"]
    assert unlisted_accounts(DOC) == ["dummy-controller"]
    services = "| `machines` |"
    text = DOC.replace(services, f"| `dummy` | [dummy.md](dummy.md) | `--metrics-bind-address` |\n{services}")
    accounts = "| `admission` | `admission` |"
    text = text.replace(accounts, f"| `dummy-controller` | `dummy` | pods | `secrets` |\n{accounts}")
    assert unlisted_services(text) == []
    assert unlisted_accounts(text) == []


def test_a_port_is_served_for_the_service_unless_it_is_its_own() -> None:
    own = ServicePort("plugins", "plugin-server-port", own=True)
    assert replace(DUMMY, ports=(*DUMMY.ports, own)).addresses == ("metrics-bind-address",)


@pytest.mark.parametrize("name", SERVICES)
def test_a_row_names_what_exists(name: str) -> None:
    service = SERVICES[name]
    known = {flag.name for flag in service.flags()}
    assert {port.flag for port in service.ports} <= known
    assert (Path(__file__).parents[2] / "docs" / service.page).exists()
    assert not service.lease or "leader-elect" in known


async def test_the_webhooks_are_served_at_the_paths_of_the_table() -> None:
    (port,) = (port for port in SERVICES["admission"].ports if port.name == "webhooks")
    assert port.paths == table.PATHS
    runtime = runtime_of_nothing()
    handlers = {
        **pod_handlers(),
        **object_handlers(TopologyLookups(runtime)),
        **queue_handlers(QueueLookups(runtime)),
    }
    assert set(port.paths) == handlers.keys()
