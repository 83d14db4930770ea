"""`kai run`: services as processes of their own, against any API server.

    kai run scheduler --kubeconfig F --schedule-period 500ms
    kai run all

Each service has the flags of its counterpart in KAI, spelt the same way, so that an operator's command line works; they
are not listed here but read by the service's own table.  With `all`, a flag goes to every service that knows it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pykai.kube.runtime import Runtime, Service

_LOG = logging.getLogger(__name__)

Given = Mapping[str, str]


def parse_given(arguments: Sequence[str]) -> dict[str, str]:
    """`--name value`, `--name=value` and `--switch` as a mapping; raises `click.UsageError` for anything else."""
    given: dict[str, str] = {}
    waiting = ""
    for argument in arguments:
        if argument.startswith("-") and not _is_number(argument):
            if waiting:
                given[waiting] = "true"
            name, equals, value = argument.lstrip("-").partition("=")
            waiting = "" if equals else name
            if equals:
                given[name] = value
        elif waiting:
            given[waiting] = argument
            waiting = ""
        else:
            raise click.UsageError(f"{argument!r} is neither a flag nor the value of one")
    if waiting:
        given[waiting] = "true"
    return given


def _is_number(text: str) -> bool:
    return text[1:2].isdigit()


@dataclass(frozen=True, slots=True)
class Part:
    """A service that can be run."""

    make: Callable[[Runtime, Given], Sequence[Service]]
    #: name of its lease; empty where it elects for itself, or does not
    lease: str = ""
    help: str = ""


def _scheduler(runtime: Runtime, given: Given) -> Sequence[Service]:
    from pykai.scheduler.flags import read_flags
    from pykai.scheduler.service import make_scheduler

    flags = read_flags(given)
    for problem in flags.problems:
        _LOG.warning("%s", problem)
    return [make_scheduler(runtime, flags)]


def _binder(runtime: Runtime, given: Given) -> Sequence[Service]:
    from pykai.binder.options import OptionError, read_options
    from pykai.binder.service import make_binder

    try:
        return [make_binder(runtime, read_options(given))]
    except OptionError as error:
        raise click.ClickException(str(error)) from error


def _podgrouper(runtime: Runtime, given: Given) -> Sequence[Service]:
    from pykai.podgrouper.options import read_options
    from pykai.podgrouper.service import make_podgrouper

    return [make_podgrouper(runtime, read_options(given))]


def _podgroups(runtime: Runtime, given: Given) -> Sequence[Service]:
    from pykai.podgroups.service import make_podgroups, read_options

    return [make_podgroups(runtime, read_options(given))]


def _queues(runtime: Runtime, given: Given) -> Sequence[Service]:
    from pykai.queues.service import make_queues, read_options

    return [make_queues(runtime, read_options(given))]


def _machines(runtime: Runtime, given: Given) -> Sequence[Service]:
    from pykai.simulator.machines import MachineOptions, machines

    return machines(runtime, MachineOptions())


PARTS: Mapping[str, Part] = {
    "scheduler": Part(_scheduler, help="decides which pods start where"),
    "binder": Part(_binder, lease="2ad35f9c.kai.scheduler", help="carries out BindRequests"),
    "podgrouper": Part(_podgrouper, lease="54dff599.kai.scheduler", help="makes PodGroups of workloads"),
    "podgroups": Part(_podgroups, lease="o1x22tjj.kai.scheduler", help="writes the status of PodGroups"),
    "queues": Part(_queues, lease="ov3xj497.kai.scheduler", help="writes the status of Queues"),
    "machines": Part(_machines, help="simulated nodes and the controllers of Kubernetes' own kinds"),
}
#: what `all` stands for: everything a real cluster needs beside its own parts
ALL = ("scheduler", "binder", "podgrouper", "podgroups", "queues")


class Led:
    """A service that works only while this process holds the lease; its caches are filled all the time."""

    def __init__(self, service: Service, runtime: Runtime, *, namespace: str, lease: str) -> None:
        from pykai.kube.lease import LeaderElection

        self._service = service
        self._election = LeaderElection(
            runtime.client, namespace=namespace, name=lease, identity=f"{socket.gethostname()}_{uuid.uuid4()}"
        )

    @property
    def name(self) -> str:
        """The name of the service."""
        return self._service.name

    async def run(self, stop: asyncio.Event) -> None:
        """Wait for the lease, then run the service until `stop` is set or the lease is lost."""
        await self._election.lead(stop, self._service.run)

    def ready(self) -> bool:
        """A standby is ready too: its caches are warm."""
        return not self._election.leading or self._service.ready()


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("services", nargs=1, type=click.Choice([*PARTS, "all"]))
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Which cluster; else $KUBECONFIG, or the own pod's."
)
@click.option("--context", default="", help="Which context of the kubeconfig.")
@click.option("--speed", default=1.0, help="Cluster seconds per second, for simulated clusters.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def run(services: str, kubeconfig: Path | None, context: str, speed: float, flags: tuple[str, ...]) -> None:
    """Run one service, or all, until stopped.

    Further flags are those of the service, as KAI spells them: see docs/services.md.
    """
    from pykai.cli.processes import run_until_signal
    from pykai.kube.caches import Caches
    from pykai.kube.client import Client
    from pykai.kube.clock import Clock
    from pykai.kube.credentials import connect
    from pykai.kube.limits import Limits
    from pykai.kube.runtime import Runtime, run_together
    from pykai.observe.logs import set_up_logging

    given = parse_given(flags)
    chosen = ALL if services == "all" else (services,)
    set_up_logging(_number(given, "v", 3), as_json=given.get("log-json", "false") == "true")

    async def main(stop: asyncio.Event) -> None:
        qps, burst = _number(given, "qps", 0), _number(given, "burst", 0)
        limits = Limits(qps=qps if qps > 0 else None, burst=max(0, burst))
        client = Client(connect(kubeconfig, context=context), limits=limits)
        runtime = Runtime(client, Caches(client), Clock(speed))
        made: list[Service] = []
        for name in chosen:
            part = PARTS[name]
            of_part = {key: value for key, value in given.items() if key not in _COMMON}
            for service in part.make(runtime, of_part):
                if part.lease and given.get("leader-elect", "false") == "true":
                    namespace = given.get("namespace", "kai-scheduler")
                    service = Led(service, runtime, namespace=namespace, lease=part.lease)
                made.append(service)
        try:
            await run_together(runtime, made, stop)
        finally:
            await client.close()

    run_until_signal(main)


#: read here, for every service
_COMMON = frozenset(("qps", "burst", "v", "log-json"))


def _number(given: Mapping[str, Any], name: str, otherwise: int) -> int:
    text = given.get(name)
    if text is None:
        return otherwise
    try:
        return int(text)
    except ValueError:
        raise click.UsageError(f"--{name}: expected a whole number, not {text!r}") from None
