"""The command `kai`: one module a command, loaded when the command is run."""

from pykai.cli.main import main

__all__ = ["main"]
