"""`kai up` as a command: how it ends, what it serves, what it leaves behind, and what it says about wrong options."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykai.cli.main import main
from pykai.cli.server import server
from pykai.cli.soak import soak
from pykai.cli.up import up

MACHINES = "machines: [{name: h100, count: 2, gpus: 8}]\nqueues: [{name: team, gpu: {quota: 16}}]\n"


def story(folder: Path, steps: str) -> str:
    """A file with a story on sixteen GPUs."""
    path = folder / "story.yaml"
    path.write_text(f"{MACHINES}steps:\n{steps}")
    return str(path)


def kai(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command to its end, with temporary files in a folder of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pykai", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def told(folder: Path, steps: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`kai up --until-done` with a story, fast."""
    place = folder / "tmp"
    place.mkdir(exist_ok=True)
    given = ("--scenario", story(folder, steps), "--until-done", "--plain", "--speed", "40", *arguments)
    found = kai(place, "up", *given)
    assert list(place.iterdir()) == []
    assert "Traceback" not in found.stderr
    return found


def test_a_story_whose_jobs_are_done_ends_well(tmp_path: Path) -> None:
    done = told(tmp_path, "- {at: 1s, jobs: [{name: a, queue: team, pods: 2, gpus: 8, runs: 20s}]}")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_job_that_can_never_start_ends_it_with_the_reason(tmp_path: Path) -> None:
    """64 GPUs on 16, beside a service that runs on and a job that ends."""
    found = told(
        tmp_path,
        """
- at: 1s
  jobs:
  - {name: big, queue: team, pods: 8, gpus: 8, runs: 10s}
  - {name: small, queue: team, pods: 1, gpus: 8, runs: 30s}
  services: [{name: chat, queue: team, replicas: 2, fraction: 0.25}]
""",
    )
    assert found.returncode == 1
    assert found.stderr.startswith("Error: the story will never be done: job default/big waits: ")
    assert "while 8 are required for gang scheduling" in found.stderr
    assert "small" not in found.stderr


def test_a_job_that_waits_for_another_is_waited_for(tmp_path: Path) -> None:
    steps = """
- at: 1s
  jobs: [{name: first, queue: team, pods: 2, gpus: 8, runs: 30s}]
- at: 2s
  jobs: [{name: second, queue: team, pods: 2, gpus: 8, runs: 5s}]
"""
    assert told(tmp_path, steps).returncode == 0


def test_an_object_that_is_refused_ends_it_with_the_reason(tmp_path: Path) -> None:
    found = told(tmp_path, "- {at: 1s, apply: [{apiVersion: v1, kind: ConfigMap, metadata: {name: Not A Name}}]}")
    assert found.returncode == 1
    assert "Error: the story is not complete: ConfigMap Not A Name was refused: " in found.stderr


def test_a_job_whose_pods_are_refused_ends_it_after_a_while(tmp_path: Path) -> None:
    """No pod of it ever comes into a plan; ten minutes of the cluster's time are enough to see that."""
    pods = "metadata: {annotations: {gpu-fraction: '7'}}, spec: {schedulerName: kai-scheduler, restartPolicy: Never"
    template = f"template: {{{pods}, containers: [{{name: main, image: x}}]}}}}"
    job = f"{{apiVersion: batch/v1, kind: Job, metadata: {{name: odd}}, spec: {{{template}}}}}"
    found = told(tmp_path, f"- {{at: 1s, apply: [{job}]}}", "--speed", "600")
    assert found.returncode == 1
    assert "job default/odd: nothing has changed for 600 seconds of the cluster's time" in found.stderr


def test_an_unknown_queue_is_named_with_its_step(tmp_path: Path) -> None:
    file = story(tmp_path, "- {at: 1s, jobs: [{name: a, queue: taem, gpus: 1}]}")
    found = CliRunner().invoke(up, ["--until-done", "--scenario", file])
    assert found.exit_code == 1
    assert "steps[0].jobs[0].queue: there is no queue 'taem'; known are default-parent-queue, default-queue, team" in (
        found.output
    )


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A command that runs on, and the first two lines it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pykai", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        yield process, [process.stdout.readline(), process.stdout.readline()]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", [["up", "--scenario", "none", "--plain"], ["server"]], ids=["up", "server"])
def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path: Path, command: list[str], end: int) -> None:
    with running(tmp_path, *command) as (process, lines):
        assert any(str(tmp_path) in line for line in lines)
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(end)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_stopped_before_the_end_is_no_success(tmp_path: Path) -> None:
    file = story(tmp_path, "- {at: 1s, jobs: [{name: a, queue: team, gpus: 1, runs: 1000h}]}")
    with running(tmp_path, "up", "--scenario", file, "--until-done", "--plain") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped before the story was done" in err


def test_metrics_health_snapshot_and_job_order_are_served_on_loopback(tmp_path: Path) -> None:
    with running(tmp_path, "up", "--scenario", "none", "--plain") as (process, lines):
        address = re.match(r"(http://127\.0\.0\.1:\d+)/ serves metrics, healthz, readyz, get-snapshot", lines[1])
        assert address is not None

        def page(name: str) -> bytes:
            with urllib.request.urlopen(f"{address[1]}/{name}", timeout=30) as answer:
                assert answer.status == 200
                content: bytes = answer.read()
                return content

        assert page("healthz") == b"[+]ping ok\nok\n"
        metrics = page("metrics").decode()
        for name in ("kai_e2e_scheduling_latency_milliseconds", "kai_bind", "kai_queue_"):
            assert name in metrics, name
        with zipfile.ZipFile(BytesIO(page("get-snapshot"))) as archive:
            assert "rawObjects" in json.loads(archive.read("snapshot.json"))
        assert "global_order" in json.loads(page("get-job-order"))
        assert b"[+]scheduler ok" in page("readyz")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        (up, "--speed 0", "'--speed': 0.0 is not in the range x>0"),
        (up, "--speed nan", "'--speed': 'nan' is not a finite number"),
        (up, "--speed inf", "'--speed': 'inf' is not a finite number"),
        (up, "--port 65536", "'--port': 65536 is not in the range"),
        (up, "--default-run-seconds nan", "'--default-run-seconds'"),
        (up, "--data /proc/nowhere", "the state file /proc/nowhere/state.sqlite cannot be used"),
        (up, "--kubeconfig /dev/null/x", "the kubeconfig /dev/null/x cannot be written"),
        (up, "--scenario /nowhere.yaml", "/nowhere.yaml: cannot be read"),
        (up, "--host no.such.host.invalid", "cannot listen on no.such.host.invalid:0"),
        (server, "--speed 0", "'--speed': 0.0 is not in the range x>0"),
        (server, "--speed nan", "'--speed'"),
        (server, "--port -1", "'--port': -1 is not in the range"),
        (server, "--data /proc/nowhere", "the state file /proc/nowhere/state.sqlite cannot be used"),
        (server, "--kubeconfig /dev/null/x", "the kubeconfig /dev/null/x cannot be written"),
        (soak, "--kills -1", "'--kills': -1 is not in the range"),
        (soak, "--restarts -1", "'--restarts': -1 is not in the range"),
        (soak, "--minutes nan", "'--minutes'"),
        (soak, "--folder /proc/nowhere", "the folder /proc/nowhere cannot be made"),
        (main, "demo --picture /nowhere/x.svg", "the picture /nowhere/x.svg cannot be written"),
        (main, "upp", "No such command 'upp'; did you mean up?"),
        (main, "run scheduler --scheduler-conf /nowhere.yaml", "/nowhere.yaml cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_option_is_reported_in_a_sentence(command: object, arguments: str, says: str, tmp_path: Path) -> None:
    given = arguments.split()
    if "run" in given:
        given += ["--kubeconfig", str(kubeconfig(tmp_path))]
    found = CliRunner().invoke(command, given)  # type: ignore[arg-type]
    assert found.exit_code in (1, 2)
    assert isinstance(found.exception, SystemExit)
    assert says in " ".join(found.output.split())


def kubeconfig(folder: Path) -> Path:
    """A kubeconfig of a server that does not answer."""
    path = folder / "kubeconfig"
    cluster = {"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}
    lists = {"clusters": [cluster], "users": [{"name": "x", "user": {}}]}
    contexts = [{"name": "x", "context": {"cluster": "x", "user": "x"}}]
    path.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x", **lists, "contexts": contexts})
    )
    return path
