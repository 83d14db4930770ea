"""How `kai run` reads the flags of services."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from pykai.apiserver.server import ApiServer
from pykai.cli.run import ALL, PARTS, parse_given, run
from pykai.cli.up import up
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.runtime import Runtime
from pykai.simulator.machines.course import Habits
from pykai.simulator.machines.options import MachineOptions, read_options


def test_flags_are_read_in_every_spelling_go_knows() -> None:
    given = parse_given(["--schedule-period", "1s", "-v=5", "--leader-elect", "--max-consolidation-preemptees", "-1"])
    assert given == {
        "schedule-period": "1s",
        "v": "5",
        "leader-elect": "true",
        "max-consolidation-preemptees": "-1",
    }


def test_a_switch_at_the_end_is_on() -> None:
    assert parse_given(["--leader-elect"]) == {"leader-elect": "true"}


def test_a_value_without_a_flag_is_an_error() -> None:
    with pytest.raises(click.UsageError, match="'stray' is neither"):
        parse_given(["--a", "1", "stray"])


@pytest.mark.parametrize(
    "arguments", [["scheduler", "--shadow-mode"], ["all", "--shadow"], ["binder", "--shadow"], ["machines", "--shadow"]]
)
def test_whoever_wants_a_shadow_gets_nothing_less(arguments: list[str]) -> None:
    result = CliRunner().invoke(run, [*arguments, "--kubeconfig", "/dev/null"])
    assert result.exit_code == 2
    assert "nothing was started" in result.output


@pytest.mark.parametrize("service", PARTS)
def test_nobody_works_unelected_because_of_a_slip(service: str) -> None:
    result = CliRunner().invoke(run, [service, "--leader-elect=yes", "--kubeconfig", "/dev/null"])
    assert result.exit_code == 2
    assert "--leader-elect: expected true or false, not 'yes'" in result.output


@pytest.mark.parametrize(("text", "on"), [("1", True), ("T", True), ("True", True), ("0", False), ("FALSE", False)])
def test_switches_are_read_in_every_spelling_go_knows(text: str, on: bool) -> None:
    result = CliRunner().invoke(run, ["queues", f"--log-json={text}", "--nonsense", "--kubeconfig", "/dev/null"])
    assert ('"message": "--nonsense is no flag of queues and is ignored"' in result.output) is on


@pytest.mark.parametrize("flag", ["scheduler --listen-address", "binder --metrics-bind-address"])
def test_an_address_that_is_none_is_told_without_a_traceback(flag: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(run, [*flag.split(), ":99999", "--kubeconfig", str(kubeconfig_of_nobody(tmp_path))])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "':99999' is no address to listen on" in result.output


def kubeconfig_of_nobody(folder: Path) -> Path:
    """A kubeconfig of a server that does not answer."""
    path = folder / "kubeconfig"
    cluster, context = {"server": "http://127.0.0.1:1"}, {"cluster": "nobody", "user": "nobody"}
    lists = {
        "clusters": [{"name": "nobody", "cluster": cluster}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "nobody", "context": context}],
    }
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "nobody", **lists}))
    return path


@pytest.mark.parametrize("service", ["binder", "podgrouper", "podgroups", "queues", "admission"])
def test_kais_flag_for_health_has_an_effect_wherever_it_is_known(service: str) -> None:
    assert "health-probe-bind-address" in PARTS[service].addresses


def test_all_stands_for_every_service_that_needs_nothing_but_a_cluster() -> None:
    assert set(ALL) == set(PARTS) - {"machines", "admission"}


@pytest.mark.parametrize("name", PARTS)
def test_every_service_says_which_flags_it_knows(name: str) -> None:
    flags = PARTS[name].flags()
    assert set(PARTS[name].addresses) <= set(flags)
    assert not PARTS[name].lease or "leader-elect" in flags


@pytest.mark.parametrize("name", PARTS)
def test_help_lists_the_flags_of_the_service(name: str) -> None:
    result = CliRunner().invoke(run, [name, "--help"])
    assert result.exit_code == 0
    listed = set(re.findall(r"^  --([a-z-]+)", result.output.partition(f"Flags of {name}:")[2], re.MULTILINE))
    assert listed == {*PARTS[name].flags(), "leader-elect", "namespace", "qps", "burst", "v", "log-json"}


def test_machines_are_told_what_they_are_to_play() -> None:
    flags = ["--default-run-seconds", "5", "--controllers=false", "--all-nodes=false", "--default-scheduler=false"]
    given = parse_given(flags)
    assert set(given) == set(PARTS["machines"].flags())
    assert read_options(given) == MachineOptions(
        Habits(run_s=5), all_nodes=False, controllers=False, default_scheduler=False
    )


def test_machines_play_everything_unless_told_otherwise() -> None:
    assert read_options({}) == MachineOptions(Habits(), all_nodes=True, controllers=True, default_scheduler=True)


def test_a_time_that_machines_cannot_read_leaves_the_default(caplog: pytest.LogCaptureFixture) -> None:
    assert read_options({"default-run-seconds": "soon", "controllers": "false"}).habits == Habits()
    assert "--default-run-seconds: 'soon'" in caplog.text


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_a_cluster_does_not_start_with_pods_that_run_for_no_time(seconds: str) -> None:
    result = CliRunner().invoke(up, ["--scenario", "none", "--default-run-seconds", seconds])
    assert result.exit_code == 2
    assert "--default-run-seconds" in result.output


async def test_the_services_that_run_are_the_ones_chosen() -> None:
    server = await ApiServer.open(clock=Clock())
    client = Client(server.transport())
    runtime = Runtime(client, Caches(client), Clock())

    def services(**given: str) -> set[str]:
        flags = {name.replace("_", "-"): value for name, value in given.items()}
        return {service.name for service in PARTS["machines"].make(runtime, flags, CollectorRegistry())}

    everything = services()
    assert {"machines", "default-scheduler"} < everything
    assert everything - services(default_scheduler="false") == {"default-scheduler"}
    assert services(controllers="false") == {"machines", "default-scheduler"}
    await server.close()
