"""`kai server` as a process: it prints its address, serves, and stops on a signal."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.patience import PROGRAM_S


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pykai", "server", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_serves_until_stopped(tmp_path: Path) -> None:
    process = start("--data", str(tmp_path / "data"), "--kubeconfig", str(tmp_path / "config"))
    assert process.stdout is not None
    address = re.search(r"https://127\.0\.0\.1:\d+", process.stdout.readline())
    assert address is not None
    assert str(tmp_path / "config") in process.stdout.readline()
    config = yaml.safe_load((tmp_path / "config").read_text())
    assert config["clusters"][0]["cluster"]["server"] == address.group()
    context = ssl.create_default_context(cafile=str(tmp_path / "data" / "ca.crt"))
    asked = urllib.request.Request(
        f"{address.group()}/apis/scheduling.run.ai/v2/queues",
        headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
    )
    with urllib.request.urlopen(asked, context=context, timeout=PROGRAM_S) as answer:
        names = [item["metadata"]["name"] for item in json.load(answer)["items"]]
    assert "default-queue" in names
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PROGRAM_S)
    assert (process.returncode, err) == (0, "")


def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--bare", "--port", str(port))
        _, err = process.communicate(timeout=PROGRAM_S)
    assert process.returncode == 1
    assert err.startswith(f"Error: cannot listen on 127.0.0.1:{port}:")


@pytest.mark.parametrize("flag", ["--plugin-server-port", "--listen-address"])
def test_a_port_of_a_service_in_use_is_reported(tmp_path: Path, flag: str) -> None:
    server = start("--bare", "--port", "0", "--data", str(tmp_path))
    assert server.stdout is not None
    server.stdout.readline()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = {"--plugin-server-port": "0", "--listen-address": ""}
        flags[flag] = str(port) if flag == "--plugin-server-port" else f"127.0.0.1:{port}"
        given = [each for name, value in flags.items() for each in (name, value)]
        command = [sys.executable, "-m", "pykai", "run", "scheduler", "--kubeconfig", str(tmp_path / "kubeconfig")]
        found = subprocess.run([*command, *given], capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    server.terminate()
    server.communicate(timeout=PROGRAM_S)
    assert found.returncode == 1
    assert f"Error: cannot listen on 127.0.0.1:{port}:" in found.stderr
    assert "Traceback" not in found.stderr


def test_an_unreadable_state_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").write_text("no database at all" * 100)
    process = start("--data", str(tmp_path))
    _, err = process.communicate(timeout=PROGRAM_S)
    assert process.returncode == 1
    assert "move it away" in err
