"""What a new command line means for a scheduler that runs (operations:OD-10)."""

from __future__ import annotations

from pykai.kube.flags import parse_command_line
from pykai.scheduler.config.reloading import compare_command_lines
from pykai.scheduler.flags import read_flags

RUNNING = ["--scheduler-conf=/mounted/elsewhere/config.yaml", "--listen-address=127.1.2.3:8080", "--namespace=kai"]


def stopping(*arguments: str) -> tuple[str, ...]:
    return compare_command_lines(read_flags(parse_command_line(RUNNING)), arguments).stopping


def test_where_the_file_is_and_where_metrics_are_decides_nothing() -> None:
    assert stopping("--scheduler-conf=/etc/config/config.yaml", "--listen-address=:8080", "--namespace=kai") == ()


def test_another_pool_needs_a_new_process() -> None:
    assert stopping(*RUNNING, "--partition-label-value=dra") == ("--partition-label-value",)
