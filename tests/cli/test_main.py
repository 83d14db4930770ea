"""The command `kai` itself: what it lists, and that listing is cheap."""

import subprocess
import sys
from collections.abc import Mapping
from typing import ClassVar

import click
import pytest
from click.testing import CliRunner

from pykai import __version__
from pykai.cli import main
from pykai.cli.main import COMMANDS, LazyCommand, LazyGroup
from tests.patience import PROGRAM_S


def run_python(code: str) -> str:
    """The output of a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PROGRAM_S)
    return done.stdout


def test_help_lists_every_command_with_its_line() -> None:
    result = CliRunner().invoke(main, ["--help"], terminal_width=200)
    assert result.exit_code == 0
    for name, lazy in COMMANDS.items():
        assert f"  {name}" in result.output
        assert lazy.short_help in result.output


def test_help_imports_neither_numpy_nor_a_command() -> None:
    heavy = ["numpy", "msgspec", "rich", "yaml", "pykai.core", "pykai.api"]
    heavy += [lazy.location.partition(":")[0] for lazy in COMMANDS.values()]
    loaded = run_python(
        "import sys\n"
        "from pykai.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        f"print('loaded:', [name for name in {heavy!r} if name in sys.modules])\n"
    )
    assert loaded.splitlines()[-1] == "loaded: []"


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"kai, version {__version__}\n"


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pykai", "--version"], capture_output=True, text=True, check=True, timeout=PROGRAM_S
    )
    assert done.stdout == f"kai, version {__version__}\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["frobnicate"])
    assert result.exit_code == 2
    assert "No such command 'frobnicate'" in result.output


def test_a_location_that_is_no_command_is_named() -> None:
    class OddGroup(LazyGroup):
        lazy_commands: ClassVar[Mapping[str, LazyCommand]] = {
            "odd": LazyCommand("pykai.cli.main:COMMANDS", "Not a command")
        }

    group = OddGroup("g")
    with pytest.raises(TypeError, match=r"pykai\.cli\.main:COMMANDS is not a click command"):
        group.get_command(click.Context(group), "odd")
