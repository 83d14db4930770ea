"""`kai run`: services as processes of their own, against any API server.

    kai run scheduler --kubeconfig F --schedule-period 500ms
    kai run all

Services and their flags come from the table of services (`pykai.services.table`).  Flags are spelt as KAI's, so that an
operator's command line works.  With `all`, a flag goes to every service that knows it.

Nothing starts with a flag that no service knows or a value that cannot be read: `--shadwo` must not schedule for real.
A flag of KAI that does nothing here is accepted, and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pykai.api.suggestions import did_you_mean
from pykai.cli.processes import FRACTION, OFFSET_S, POSITIVE_NUMBER, run_until_signal
from pykai.kube.flags import COMMON_FLAGS, OptionError, checked_values, parse_command_line, read_bool
from pykai.services.table import SERVICES, services_in_all

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from pykai.kube.client import Client
    from pykai.kube.runtime import Runtime, Service
    from pykai.kube.transport import Transport

_LOG = logging.getLogger(__name__)

FlagValues = Mapping[str, str]

#: options of the command itself, read by click
_COMMAND_OPTIONS = ("kubeconfig", "context", "speed", "inject-faults", "clock-ahead", "help")
#: a listen address that says "nowhere", as controller-runtime has it
_NOT_SERVED = ("", "0")
_COMMON_NAMES = frozenset(flag.name for flag in COMMON_FLAGS)


def parse_flags(arguments: Sequence[str]) -> dict[str, str]:
    """`--name value`, `--name=value` and `--switch` as a mapping; raises `click.UsageError` for anything else."""
    try:
        return parse_command_line(arguments)
    except OptionError as error:
        raise click.UsageError(str(error)) from None


class _ServiceChoice(click.Choice[str]):
    """The services of the table, and `all`."""

    def __init__(self) -> None:
        super().__init__(())

    @property
    def choices(self) -> tuple[str, ...]:
        return (*SERVICES, "all")

    @choices.setter
    def choices(self, _: tuple[str, ...]) -> None:
        """Ignored: the table decides."""


class _RunCommand(click.Command):
    """A command whose help lists the flags of the chosen service."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[__name__] = next((each for each in args if each in SERVICES), "")
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        service = ctx.meta.get(__name__)
        if service:
            known = {flag.name: flag for flag in (*COMMON_FLAGS, *SERVICES[service].flags())}
            with formatter.section(f"Flags of {service}"):
                formatter.write_dl([(f"--{name}", known[name].help()) for name in sorted(known)])


@dataclass(frozen=True, slots=True)
class _Connection:
    """How to reach the API server, and faults to inject on purpose."""

    kubeconfig: Path | None
    context: str
    speed: float
    inject_faults: float
    clock_ahead: float


@click.command(cls=_RunCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("service", type=_ServiceChoice())
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Which cluster; else $KUBECONFIG, or the own pod's."
)
@click.option("--context", default="", help="Which context of the kubeconfig.")
@click.option(
    "--speed",
    type=POSITIVE_NUMBER,
    default=1.0,
    help="Cluster seconds per second, for simulated clusters.",
)
@click.option(
    "--inject-faults",
    type=FRACTION,
    default=0.0,
    help="Part of all requests that fail on purpose; for soak tests only.",
)
@click.option(
    "--clock-ahead",
    type=OFFSET_S,
    default=0.0,
    help="Seconds that the clock is ahead on purpose; for soak tests only.",
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def run(
    service: str,
    kubeconfig: Path | None,
    context: str,
    speed: float,
    inject_faults: float,
    clock_ahead: float,
    flags: tuple[str, ...],
) -> None:
    """Run one service, or all, until stopped.

    Further flags are those of the service, as KAI spells them: `kai run SERVICE --help` lists them, docs/services.md
    says where they are explained.
    """
    given = parse_flags(flags)
    chosen = services_in_all() if service == "all" else (service,)
    _check_flag_names(service, given, _known_flags(chosen))
    try:
        common = common_values(given, chosen)
    except OptionError as error:
        raise _refusal(service, error) from error
    from pykai.observe.logs import set_up_logging

    set_up_logging(common["v"], as_json=common["log-json"])
    for name in flags_without_effect(chosen, given):
        _LOG.warning("--%s is accepted and has no effect on %s", name, service)
    connection = _Connection(kubeconfig, context, speed, inject_faults, clock_ahead)
    run_until_signal(lambda stop: _run_services(chosen, given, common, connection, stop))


async def _run_services(
    chosen: Sequence[str],
    given: FlagValues,
    common: Mapping[str, Any],
    connection: _Connection,
    stop: asyncio.Event,
) -> None:
    from pykai.kube.caches import Caches
    from pykai.kube.clock import Clock
    from pykai.kube.runtime import Runtime, run_services
    from pykai.observe.controllermetrics import ControllerMetrics, process_registry

    client = _connect(connection, common)
    ahead = timedelta(seconds=connection.clock_ahead)
    try:
        registry = process_registry()
        clock = Clock(connection.speed, wall=lambda: datetime.now(UTC) + ahead)
        runtime = Runtime(client, Caches(client), clock, ControllerMetrics(registry))
        services = [each for name in chosen for each in _make_services(name, runtime, given, common, registry)]
        services += _endpoints(chosen, given, registry, services)
        await run_services(runtime, services, stop)
    finally:
        await client.close()


def _connect(connection: _Connection, common: Mapping[str, Any]) -> Client:
    from pykai.kube.client import Client
    from pykai.kube.credentials import connect
    from pykai.kube.limits import Limits

    transport: Transport = connect(connection.kubeconfig, context=connection.context)
    if connection.inject_faults:
        from pykai.dev.faultytransport import FaultyTransport

        transport = FaultyTransport(transport, connection.inject_faults)
    return Client(transport, limits=Limits(qps=common["qps"], burst=common["burst"] or 0))


def _make_services(
    name: str, runtime: Runtime, given: FlagValues, common: Mapping[str, Any], registry: CollectorRegistry
) -> Sequence[Service]:
    """The services of one row, behind a lease where one is requested."""
    from pykai.kube.lease import Fence
    from pykai.scheduler.config.configuration import ConfigurationError
    from pykai.services.running import LeaderElected

    definition = SERVICES[name]
    own_names = {flag.name for flag in definition.flags()}
    own_flags = {key: value for key, value in given.items() if key in own_names}
    fence = Fence()
    try:
        made = definition.make(replace(runtime, client=runtime.client.fenced(fence.check)), own_flags, registry)
    except OptionError as error:
        raise _refusal(name, error) from error
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    if definition.lease and common["leader-elect"]:
        return [
            LeaderElected(each, runtime, namespace=common["namespace"], lease=definition.lease, fence=fence)
            for each in made
        ]
    return made


def _endpoints(
    chosen: Sequence[str], given: FlagValues, registry: CollectorRegistry, services: Sequence[Service]
) -> list[Service]:
    from pykai.services.running import EndpointService

    addresses = {given.get(flag, "") for name in chosen for flag in SERVICES[name].addresses}
    return [EndpointService(address, registry, services) for address in sorted(addresses.difference(_NOT_SERVED))]


def _known_flags(chosen: Sequence[str]) -> set[str]:
    return {flag.name for name in chosen for flag in SERVICES[name].flags()} | _COMMON_NAMES


def common_values(given: FlagValues, chosen: Sequence[str]) -> dict[str, Any]:
    """The flags that every service has, with the service's own default if it has one; raises `OptionError`."""
    own = {name: value for name, value in given.items() if name in _COMMON_NAMES}
    flags = {flag.name: flag for flag in COMMON_FLAGS}
    flags |= {flag.name: flag for name in chosen for flag in SERVICES[name].flags() if flag.name in _COMMON_NAMES}
    return {name: flag.read(flag.default) for name, flag in flags.items()} | checked_values(COMMON_FLAGS, own)


def _refusal(service: str, error: OptionError) -> click.UsageError:
    return click.UsageError(f"{error}. Nothing was started. `kai run {service} --help` lists the flags.")


def _check_flag_names(service: str, given: FlagValues, known_flags: Collection[str]) -> None:
    """Nothing starts with a flag that no service knows, nor with others that would write beside a shadow."""
    for name in given:
        if name not in known_flags:
            meant = did_you_mean(name, {*known_flags, *_COMMAND_OPTIONS}, "--")
            text = f"--{name} is not a flag of {service}{meant or f'; `kai run {service} --help` lists them'}"
            raise click.UsageError(f"{text} Nothing was started." if meant else f"{text}. Nothing was started.")
    if service == "all" and _is_on(given.get("shadow", "false")):
        text = "--shadow: shadow mode is `kai run scheduler --shadow`, of the scheduler alone. Nothing was started."
        raise click.UsageError(text)


def _is_on(text: str) -> bool:
    try:
        return read_bool(text)
    except ValueError:
        # The service refuses the value when it reads its flags.
        return False


def flags_without_effect(chosen: Sequence[str], given: FlagValues) -> list[str]:
    """The given flags that have no effect on any of the services that know them."""
    ineffective = []
    for name in sorted(given):
        knowing = [
            SERVICES[each]
            for each in chosen
            if name in _COMMON_NAMES or any(flag.name == name for flag in SERVICES[each].flags())
        ]
        if all(name in service.flags_without_effect() for service in knowing):
            ineffective.append(name)
    return ineffective
