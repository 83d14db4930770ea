"""`kai doctor` on a server: its text fits a terminal, its JSON has fixed keys.

Statements: doctor:exit.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pykai.cli.doctor import doctor
from pykai.doctor.findings import Finding, Severity
from pykai.doctor.report import WIDTH, as_json, as_text
from pykai.doctor.table import examine
from tests.doctor.installedcluster import InstalledCluster


@pytest.fixture(scope="module")
def broken() -> InstalledCluster:
    cluster = InstalledCluster()
    cluster.remove("Service", "admission")
    cluster.remove("ClusterRoleBinding", "kai-binder")
    cluster.add(cluster.queue("a-queue-" + "with-a-name-that-is-longer-than-a-line-" * 3, "lost", quota=1))
    return cluster


def test_the_text_fits_a_terminal(broken: InstalledCluster) -> None:
    facts = broken.facts()
    text = as_text(facts, examine(facts))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.startswith("ERROR    ")
    assert text.splitlines()[-1].endswith("6 errors, 0 warnings, 1 note.")
    assert "-> kai manifests | kubectl apply -f -" in text


def test_the_json_has_all_of_it(broken: InstalledCluster) -> None:
    facts = broken.facts()
    content = json.loads(as_json(facts, examine(facts)))
    assert list(content) == ["version", "namespace", "serverVersion", "severity", "checks", "findings"]
    assert content["severity"] == "error"
    assert set(content["findings"][0]) == set(Finding.__struct_fields__)
    assert {each["severity"] for each in content["findings"]} == {"error", "info"}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(doctor, arguments)


def test_a_cluster_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    result = run("--kubeconfig", str(tmp_path / "none"))
    assert result.exit_code == int(Severity.ERROR)
    assert "the cluster cannot be reached" in result.output
