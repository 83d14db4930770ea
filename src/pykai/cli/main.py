"""The group `kai` and the table of its commands.

Listing the commands must cost nothing: `kai --help` should answer at once, while a command may pull in NumPy and the
whole engine. So the table below holds, beside the place of each command, the line that help shows for it, and a
command's module is imported only when that command is run or asked for its own help.

The subtle part is that click asks a group for the command *objects* when it lists them, which would import them all;
`LazyGroup` therefore writes the list itself.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar, NamedTuple

import click

from pykai import __version__


class LazyCommand(NamedTuple):
    """Where a command is and what the list of commands says about it."""

    #: `module:attribute` of the click command
    location: str
    #: one line, without a full stop
    short_help: str


COMMANDS: Mapping[str, LazyCommand] = {
    "up": LazyCommand("pykai.cli.up:up", "Start a simulated GPU cluster with all services, and play a story in it"),
    "server": LazyCommand("pykai.cli.server:server", "Run the embedded API server on its own"),
    "run": LazyCommand("pykai.cli.run:run", "Run the scheduler or another service against an API server"),
    "reserve": LazyCommand("pykai.cli.reserve:reserve", "Report the GPU of a reservation pod, and hold it"),
    "replay": LazyCommand("pykai.cli.replay:replay", "Repeat a cycle from a snapshot file"),
    "soak": LazyCommand("pykai.cli.soak:soak", "Kill processes under load and check that nothing breaks"),
    "demo": LazyCommand("pykai.cli.demo:demo", "Schedule a small cluster and show what was decided and why"),
    "install": LazyCommand("pykai.cli.install:install", "Install PyKAI into a cluster, as the Helm chart does"),
    "upgrade": LazyCommand("pykai.cli.install:upgrade", "Bring an installation up to date, or say what would change"),
    "uninstall": LazyCommand("pykai.cli.install:uninstall", "Delete an installation; queues and running work stay"),
    "manifests": LazyCommand("pykai.cli.manifests:manifests", "Print what has to be installed into a cluster, as YAML"),
    "doctor": LazyCommand("pykai.cli.doctor:doctor", "Check an installation, and say what to fix"),
    "hook": LazyCommand("pykai.cli.hook:hook", "Run one step of an installation or deletion, as the Helm chart does"),
    "shadow": LazyCommand("pykai.cli.shadow:shadow", "Say how far a shadow agrees with the scheduler beside it"),
    "conformance": LazyCommand("pykai.cli.conformance:conformance", "Compare with KAI Scheduler's recorded decisions"),
    "bench": LazyCommand("pykai.cli.bench:bench", "Measure the engine on clusters of several shapes"),
}


class LazyGroup(click.Group):
    """A click group that imports a command when it is used, not when it is listed."""

    #: name -> command, in the order of the list
    lazy_commands: ClassVar[Mapping[str, LazyCommand]] = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        return list(self.lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command, or return nothing where the table does not name it."""
        lazy = self.lazy_commands.get(cmd_name)
        if lazy is None:
            return None
        module_name, _, attribute = lazy.location.partition(":")
        command = getattr(import_module(module_name), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{lazy.location} is not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the one that was probably meant."""
        name = args[0]
        if name not in self.lazy_commands and not name.startswith("-"):
            # Imported here: nothing but an error needs it.
            from pykai.api.suggestions import did_you_mean

            ctx.fail(f"No such command {name!r}{did_you_mean(name, self.lazy_commands) or '.'}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.short_help) for name, lazy in self.lazy_commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kai")
def main() -> None:
    """KAI Scheduler in Python: schedules GPU and AI workloads on Kubernetes."""
