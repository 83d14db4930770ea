"""How `kai run` reads the flags of services."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from pykai.cli.run import common_values, flags_without_effect, parse_flags, run
from pykai.cli.up import up
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.flags import OptionError, read_options
from pykai.kube.runtime import Runtime
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.machines.options import FLAGS, MachineOptions
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from pykai.services.table import SERVICES, services_in_all


def flag_names(service: str) -> set[str]:
    return {flag.name for flag in SERVICES[service].flags()}


def test_flags_are_read_in_every_spelling_go_knows() -> None:
    given = parse_flags(["--schedule-period", "1s", "-v=5", "--leader-elect", "--max-consolidation-preemptees", "-1"])
    assert given == {
        "schedule-period": "1s",
        "v": "5",
        "leader-elect": "true",
        "max-consolidation-preemptees": "-1",
    }


def test_a_switch_at_the_end_is_on() -> None:
    assert parse_flags(["--leader-elect"]) == {"leader-elect": "true"}


def test_a_value_without_a_flag_is_an_error() -> None:
    with pytest.raises(click.UsageError, match="'stray' is neither"):
        parse_flags(["--a", "1", "stray"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("scheduler --shadwo", "--shadwo is not a flag of scheduler; did you mean --shadow?"),
        ("scheduler --shadow-mode", "did you mean --shadow?"),
        ("all --shadow", "of the scheduler alone"),
        ("binder --shadow", "--shadow is not a flag of binder"),
        ("machines --shadow", "--shadow is not a flag of machines"),
        ("queues --metrics-bind-adress :1", "did you mean --"),
        ("scheduler --kubeconfg x", "did you mean --kubeconfig?"),
        ("podgrouper --frobnicate=1", "`kai run podgrouper --help` lists them"),
    ],
)
def test_nothing_starts_with_a_flag_that_is_not_known(arguments: str, says: str) -> None:
    result = CliRunner().invoke(run, [*arguments.split(), "--kubeconfig", "/dev/null"])
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())
    assert "Nothing was started." in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        "scheduler --shadow=maybe",
        "scheduler --schedule-period soon",
        "scheduler --profile=kubernets",
        "binder --max-concurrent-reconciles 0",
        "binder --plugins no",
        "podgrouper --search-legacy-pg perhaps",
        "podgroups --settle-seconds 0",
        "queues --queue-label-to-metric-label a",
        "machines --default-run-seconds soon",
        "admission --gpu-sharing-enabled maybe",
        "all --fast-bind ja",
        "queues --qps 0",
        "queues --v loud",
        "machines --speed nan",
        "machines --inject-faults nan",
        "machines --clock-ahead inf",
        "machines --speed 0",
    ],
)
def test_nothing_starts_with_a_value_that_cannot_be_read(arguments: str, tmp_path: Path) -> None:
    service, flag, *_ = arguments.replace("=", " ").split()
    # A service that starts all the same ends with this address, and not with the flag.
    address = {"machines": "", "scheduler": "--listen-address=x", "all": "--listen-address=x"}
    ending = address.get(service, "--health-probe-bind-address=x")
    given = [*arguments.split(), *filter(None, [ending]), "--kubeconfig", str(kubeconfig_of_nobody(tmp_path))]
    result = CliRunner().invoke(run, given)
    assert result.exit_code in (1, 2), service
    assert isinstance(result.exception, SystemExit)
    assert flag in result.output
    assert "the default" not in result.output


#: operations:9, what each program of KAI takes; those of the first row belong to all but the scheduler
EVERYWHERE = "leader-elect qps burst metrics-bind-address health-probe-bind-address"
PART_9 = {
    "scheduler": "scheduler-name namespace metrics-namespace resource-reservation-app-label restrict-node-scheduling"
    " nodepool-label-key queue-label-key partition-label-value scheduler-conf schedule-period leader-elect version"
    " listen-address enable-profiler profiler-port pyroscope-address pyroscope-mutex-profiler-rate"
    " pyroscope-block-profiler-rate v log-json log-flush-frequency max-consolidation-preemptees qps burst"
    " detailed-fit-errors update-pod-eviction-condition schedule-csi-storage use-scheduling-signatures"
    " full-hierarchy-fairness allow-consolidating-reclaim num-of-status-recording-workers"
    " default-staleness-grace-period stuck-in-releasing-threshold plugin-server-port feature-gates"
    " cpu-worker-node-label-key gpu-worker-node-label-key mig-worker-node-label-key",
    "binder": f"{EVERYWHERE} scheduler-name resource-reservation-namespace resource-reservation-service-account"
    " resource-reservation-app-label resource-reservation-pod-image resource-reservation-allocation-timeout"
    " resource-reservation-pod-resources resource-reservation-pod-security-context"
    " resource-reservation-container-security-context scale-adjust-namespace max-concurrent-reconciles"
    " rate-limiter-base-delay rate-limiter-max-delay fake-gpu-nodes plugins runtime-class-name feature-gates",
    "admission": f"{EVERYWHERE} scheduler-name rate-limiter-base-delay rate-limiter-max-delay webhook-addr"
    " fake-gpu-nodes gpu-sharing-enabled hami-core-enabled block-nvidia-visible-devices gpu-pod-runtime-class-name"
    " gpu-fraction-runtime-class-name feature-gates",
    "podgrouper": f"{EVERYWHERE} nodepool-label-key max-concurrent-reconciles search-legacy-pg knative-gang-schedule"
    " generic-karta-fallback scheduler-name queue-label-key default-priorities-configmap-name"
    " default-priorities-configmap-namespace pod-label-selector namespace-label-selector",
    "podgroups": f"{EVERYWHERE} max-concurrent-reconciles log-level scheduler-name enable-podgroup-webhook"
    " skip-controller-name-validation",
    "queues": "leader-elect qps burst health-probe-bind-address enable-webhook enable-quota-validation"
    " metrics-listen-address metrics-namespace queue-label-to-metric-label queue-label-to-default-metric-value"
    " skip-controller-name-validation",
}


@pytest.mark.parametrize("service", PART_9)
def test_every_flag_of_operations_part_9_is_accepted(service: str) -> None:
    """operations:9"""
    assert set(PART_9[service].split()) <= flag_names(service)


@pytest.mark.parametrize(
    ("service", "flag"),
    [
        ("scheduler", "feature-gates"),
        ("scheduler", "enable-profiler"),
        ("binder", "feature-gates"),
        ("admission", "fake-gpu-nodes"),
        ("podgroups", "log-level"),
        ("queues", "enable-webhook"),
        ("machines", "leader-elect"),
    ],
)
def test_a_flag_that_does_nothing_here_is_noted_in_the_log(service: str, flag: str, tmp_path: Path) -> None:
    """operations:9, O-57"""
    given = [service, f"--{flag}=true", "--webhook-addr=x", "--kubeconfig", str(tmp_path / "missing")]
    if service != "admission":
        given.remove("--webhook-addr=x")
    result = CliRunner().invoke(run, given)
    assert f"--{flag} is accepted and has no effect on {service}" in result.output


def test_flags_that_work_are_not_noted() -> None:
    given = {"leader-elect": "true", "qps": "1", "metrics-bind-address": ":1", "metrics-namespace": "m", "v": "3"}
    assert flags_without_effect(services_in_all(), given) == []
    assert flags_without_effect(
        services_in_all(), {"feature-gates": "", "scheduler-name": "x", "enable-webhook": ""}
    ) == [
        "enable-webhook",
        "feature-gates",
    ]


@pytest.mark.parametrize("service", SERVICES)
def test_an_unreadable_flag_starts_no_unelected_service(service: str) -> None:
    result = CliRunner().invoke(run, [service, "--leader-elect=yes", "--kubeconfig", "/dev/null"])
    assert result.exit_code == 2
    assert "--leader-elect: 'yes': expected true or false" in result.output


@pytest.mark.parametrize(("text", "on"), [("1", True), ("T", True), ("True", True), ("0", False), ("FALSE", False)])
def test_switches_are_read_in_every_spelling_go_knows(text: str, on: bool) -> None:
    result = CliRunner().invoke(run, ["queues", f"--log-json={text}", "--enable-webhook", "--kubeconfig", "/dev/null"])
    assert ('"message": "--enable-webhook is accepted and has no effect on queues"' in result.output) is on


@pytest.mark.parametrize("flag", ["scheduler --listen-address", "binder --metrics-bind-address"])
def test_an_invalid_address_is_reported_without_a_traceback(flag: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(run, [*flag.split(), ":99999", "--kubeconfig", str(kubeconfig_of_nobody(tmp_path))])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "':99999' is not an address to listen on" in result.output


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
    assert "health-probe-bind-address" in SERVICES[service].addresses


def test_all_stands_for_every_service_that_every_cluster_needs() -> None:
    assert set(services_in_all()) == set(SERVICES) - {
        "machines",
        "operator",
        "operators",
        "admission",
        "nodescale",
        "numa-exporter",
    }


def test_a_service_may_have_defaults_of_its_own_for_common_flags() -> None:
    """gpu:X-4"""
    ours = common_values({}, ["numa-exporter"])
    assert (ours["qps"], ours["burst"]) == (50, 100)
    assert common_values({"qps": "7"}, ["numa-exporter"])["qps"] == 7
    assert common_values({}, ["binder"])["qps"] is None


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_says_which_flags_it_knows(name: str) -> None:
    flags = flag_names(name)
    assert set(SERVICES[name].addresses) <= flags
    assert not SERVICES[name].lease or "leader-elect" in flags


@pytest.mark.parametrize("name", SERVICES)
def test_help_lists_the_flags_of_the_service(name: str) -> None:
    result = CliRunner().invoke(run, [name, "--help"])
    assert result.exit_code == 0
    listed = set(re.findall(r"^  --([a-z-]+)", result.output.partition(f"Flags of {name}:")[2], re.MULTILINE))
    assert listed == {*flag_names(name), "leader-elect", "namespace", "qps", "burst", "v", "log-json"}


def test_machine_flags_select_what_is_simulated() -> None:
    flags = ["--default-run-seconds", "5", "--controllers=false", "--all-nodes=false", "--default-scheduler=false"]
    processes = ["--processes=a,b", "--process-folder=/tmp/p"]
    given = parse_flags([*flags, "--nodes=none", "--refused-pods", "0.25", *processes])
    assert set(given) == flag_names("machines")
    assert read_options(MachineOptions(), FLAGS, given) == MachineOptions(
        BehaviourDefaults(run_s=5, refused=0.25),
        all_nodes=False,
        controllers=False,
        default_scheduler=False,
        nodes="none",
        processes=("a", "b"),
        process_folder="/tmp/p",
    )


def test_machines_simulate_everything_by_default() -> None:
    assert read_options(MachineOptions(), FLAGS, {}) == MachineOptions(
        BehaviourDefaults(), all_nodes=True, controllers=True, default_scheduler=True
    )


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
        return {service.name for service in SERVICES["machines"].make(runtime, flags, CollectorRegistry())}

    everything = services()
    assert {"machines", "default-scheduler"} < everything
    assert everything - services(default_scheduler="false") == {"default-scheduler"}
    assert everything - services(nodes="none") == {"nodes"}
    with pytest.raises(OptionError, match=r"--nodes: /nowhere\.yaml: cannot be read"):
        services(nodes="/nowhere.yaml")
    assert services(controllers="false") == {"machines", "default-scheduler"}
    await server.close()
