"""`kai run`: services as processes of their own, against any API server.

    kai run scheduler --kubeconfig F --schedule-period 500ms
    kai run all

Each service has the flags of its counterpart in KAI, spelt the same way, so that an operator's command line works; they
are not listed here but read by the service's own table.  With `all`, a flag goes to every service that knows it.

Nothing starts with a flag that no service knows or a value that cannot be read: `--shadwo` must not schedule for real.
A flag of KAI that does nothing here is accepted, and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pykai.api import names
from pykai.api.suggestions import did_you_mean
from pykai.cli.processes import FRACTION, OFFSET_S, POSITIVE_NUMBER, run_until_signal

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from pykai.kube.lease import Fence
    from pykai.kube.runtime import Runtime, Service
    from pykai.kube.transport import Transport

_LOG = logging.getLogger(__name__)

FlagValues = Mapping[str, str]


def parse_flags(arguments: Sequence[str]) -> dict[str, str]:
    """`--name value`, `--name=value` and `--switch` as a mapping; raises `click.UsageError` for anything else."""
    given: dict[str, str] = {}
    pending_flag = ""
    for argument in arguments:
        if argument.startswith("-") and not _is_number(argument):
            if pending_flag:
                given[pending_flag] = "true"
            name, equals, value = argument.lstrip("-").partition("=")
            pending_flag = "" if equals else name
            if equals:
                given[name] = value
        elif pending_flag:
            given[pending_flag] = argument
            pending_flag = ""
        else:
            raise click.UsageError(f"{argument!r} is neither a flag nor the value of one")
    if pending_flag:
        given[pending_flag] = "true"
    return given


def _is_number(text: str) -> bool:
    return text[1:2].isdigit()


@dataclass(frozen=True, slots=True)
class RunnableService:
    """A service that can be run."""

    #: the flags it knows, and what they mean; "" where only its page in docs says so
    flags: Callable[[], Mapping[str, str]]
    make: Callable[[Runtime, FlagValues, CollectorRegistry], Sequence[Service]]
    #: the flags that are accepted without effect
    flags_without_effect: Callable[[], Collection[str]]
    #: name of its lease; empty where it elects for itself, or does not
    lease: str = ""
    #: the flags that say where to serve metrics and health; none where it serves them itself, or does not
    addresses: tuple[str, ...] = ()


def _with_default(meaning: str, default: str) -> str:
    return f"{meaning} [{default}]" if default else meaning


def _scheduler_flags() -> Mapping[str, str]:
    from pykai.scheduler.flags import FLAGS

    return {flag.name: _with_default(flag.meaning, flag.default) for flag in FLAGS}


def _scheduler(runtime: Runtime, given: FlagValues, registry: CollectorRegistry) -> Sequence[Service]:
    from pykai.kube.options import OptionError
    from pykai.scheduler.flags import read_flags
    from pykai.scheduler.service import make_scheduler

    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        # In a pod everybody may scrape, elsewhere only this machine.
        given = {"listen-address": "127.0.0.1:8080", **given}
    flags = read_flags(given)
    if flags.problems:
        # No default is used here, whatever the sentence says to readers of snapshots.
        raise OptionError(
            "; ".join(f"{each.field}: {each.text.partition('; the default')[0]}" for each in flags.problems)
        )
    return [make_scheduler(runtime, flags, registry=registry)]


def _scheduler_idle() -> Collection[str]:
    from pykai.scheduler.flags import WITHOUT_EFFECT

    return WITHOUT_EFFECT


def _binder_flags() -> Mapping[str, str]:
    from pykai.binder.options import FLAGS

    return {flag.name: _with_default(flag.meaning, flag.default) for flag in FLAGS}


def _binder(runtime: Runtime, given: FlagValues, registry: CollectorRegistry) -> Sequence[Service]:
    from pykai.binder.options import read_options
    from pykai.binder.service import make_binder

    return [make_binder(runtime, read_options(given), registry=registry)]


def _binder_idle() -> Collection[str]:
    from pykai.binder.options import WITHOUT_EFFECT

    return WITHOUT_EFFECT


def _podgrouper_flags() -> Mapping[str, str]:
    from pykai.podgrouper.options import FLAGS

    return dict.fromkeys(FLAGS, "")


def _podgrouper(runtime: Runtime, given: FlagValues, _: CollectorRegistry) -> Sequence[Service]:
    from pykai.podgrouper.options import read_options
    from pykai.podgrouper.service import make_podgrouper

    return [make_podgrouper(runtime, read_options(given))]


def _podgrouper_idle() -> Collection[str]:
    from pykai.podgrouper.options import FLAGS

    return _flags_without_field(FLAGS)


def _podgroups_flags() -> Mapping[str, str]:
    from pykai.podgroups.service import FLAGS

    return dict.fromkeys(FLAGS, "")


def _podgroups(runtime: Runtime, given: FlagValues, _: CollectorRegistry) -> Sequence[Service]:
    from pykai.podgroups.service import make_podgroups, read_options

    return [make_podgroups(runtime, read_options(given))]


def _podgroups_idle() -> Collection[str]:
    from pykai.podgroups.service import FLAGS

    return _flags_without_field(FLAGS)


def _queues_flags() -> Mapping[str, str]:
    from pykai.queues.service import FLAGS

    return dict.fromkeys(FLAGS, "")


def _queues(runtime: Runtime, given: FlagValues, registry: CollectorRegistry) -> Sequence[Service]:
    from pykai.queues.service import make_queues, read_options

    return [make_queues(runtime, read_options(given), registry)]


def _queues_idle() -> Collection[str]:
    from pykai.queues.service import FLAGS

    return _flags_without_field(FLAGS)


def _admission_flags() -> Mapping[str, str]:
    from pykai.webhooks.options import FLAGS

    return dict.fromkeys(FLAGS, "")


def _admission(_: Runtime, given: FlagValues, __: CollectorRegistry) -> Sequence[Service]:
    from pykai.webhooks.options import read_admission

    return [read_admission(given)]


def _admission_idle() -> Collection[str]:
    from pykai.webhooks.options import WITHOUT_EFFECT

    return {*WITHOUT_EFFECT, "namespace"}


def _machines_flags() -> Mapping[str, str]:
    from pykai.lab.machines.options import FLAGS

    return dict.fromkeys(FLAGS, "")


def _machines(runtime: Runtime, given: FlagValues, _: CollectorRegistry) -> Sequence[Service]:
    from pykai.lab.machines import machines
    from pykai.lab.machines.options import read_options
    from pykai.lab.samplenodes import sample_nodes

    options = read_options(given)
    return [*machines(runtime, options), *sample_nodes(runtime, options)]


def _machines_idle() -> Collection[str]:
    return ("leader-elect", "namespace")


def _flags_without_field(flags: Mapping[str, str]) -> Collection[str]:
    """The flags of a table that set nothing, without those that are read here."""
    return (
        {name for name, field in flags.items() if not field}
        - _COMMON.keys()
        - {*_DEFAULT_ADDRESS_FLAGS, *_QUEUE_ADDRESS_FLAGS}
    )


#: where most services of KAI serve metrics, and where they say whether they are well: both pages are on both here
_DEFAULT_ADDRESS_FLAGS = ("metrics-bind-address", "health-probe-bind-address")
_QUEUE_ADDRESS_FLAGS = ("metrics-listen-address", "health-probe-bind-address")
RUNNABLE_SERVICES: Mapping[str, RunnableService] = {
    "scheduler": RunnableService(_scheduler_flags, _scheduler, _scheduler_idle),
    "binder": RunnableService(_binder_flags, _binder, _binder_idle, addresses=_DEFAULT_ADDRESS_FLAGS),
    "podgrouper": RunnableService(
        _podgrouper_flags,
        _podgrouper,
        _podgrouper_idle,
        lease="54dff599.kai.scheduler",
        addresses=_DEFAULT_ADDRESS_FLAGS,
    ),
    "podgroups": RunnableService(
        _podgroups_flags, _podgroups, _podgroups_idle, lease="o1x22tjj.kai.scheduler", addresses=_DEFAULT_ADDRESS_FLAGS
    ),
    "queues": RunnableService(
        _queues_flags, _queues, _queues_idle, lease="ov3xj497.kai.scheduler", addresses=_QUEUE_ADDRESS_FLAGS
    ),
    "admission": RunnableService(_admission_flags, _admission, _admission_idle, addresses=_DEFAULT_ADDRESS_FLAGS),
    "machines": RunnableService(_machines_flags, _machines, _machines_idle),
}
#: what `all` stands for: everything a real cluster needs beside its own parts
ALL = ("scheduler", "binder", "podgrouper", "podgroups", "queues")


class LeaderElected:
    """A service that works only while this process holds the lease; its caches are filled all the time."""

    def __init__(self, service: Service, runtime: Runtime, *, namespace: str, lease: str, fence: Fence) -> None:
        from pykai.kube.lease import LeaderElection

        self._service = service
        self._caches = runtime.caches
        self._election = LeaderElection(
            runtime.client,
            namespace=namespace,
            name=lease,
            identity=f"{socket.gethostname()}_{uuid.uuid4()}",
            fence=fence,
        )

    @property
    def name(self) -> str:
        """The name of the service."""
        return self._service.name

    async def run(self, stop: asyncio.Event) -> None:
        """Wait for the lease, then run the service until `stop` is set or the lease is lost."""
        await self._election.lead(stop, self._service.run)

    def ready(self) -> bool:
        """A standby is ready once its caches are filled: it can take over at any moment."""
        return self._service.ready() if self._election.leading else self._caches.all_synced()


class EndpointService:
    """Metrics and health of the services that do not serve them themselves."""

    name = "endpoint"

    def __init__(self, address: str, registry: CollectorRegistry, services: Sequence[Service]) -> None:
        from pykai.observe.endpoint import Endpoint

        checks = {service.name: partial(_unready, service) for service in services}
        self._endpoint = Endpoint(address, registry=registry, health={"ping": str}, readiness=checks)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop."""
        await self._endpoint.start()
        try:
            await stop.wait()
        finally:
            await self._endpoint.stop()

    def ready(self) -> bool:
        """There is nothing to wait for."""
        return True


def _unready(service: Service) -> str:
    return "" if service.ready() else "is not ready yet"


#: read here, for every service
_COMMON = {
    "qps": "requests to the API server a second [no limit]",
    "burst": "requests at once beyond that",
    "v": "log verbosity: 2 warnings, 3 what an operator wants to read, 4 everything [3]",
    "log-json": "log as JSON [false]",
    "leader-elect": "one of several replicas is active [false]",
    "namespace": f"where the lease is [{names.DEFAULT_NAMESPACE}]",
}
#: options of the command itself, read by click
_COMMAND_OPTIONS = ("kubeconfig", "context", "speed", "inject-faults", "clock-ahead", "help")
#: a listen address that says "nowhere", as controller-runtime has it
_NOT_SERVED = ("", "0")
_SWITCHES = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class _RunCommand(click.Command):
    """A command whose help lists the flags of the service that is asked about."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[__name__] = next((each for each in args if each in RUNNABLE_SERVICES), "")
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        service = ctx.meta.get(__name__)
        if service:
            known = {**RUNNABLE_SERVICES[service].flags(), **_COMMON}
            with formatter.section(f"Flags of {service}"):
                formatter.write_dl([(f"--{name}", known[name]) for name in sorted(known)])


@click.command(cls=_RunCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("service", type=click.Choice([*RUNNABLE_SERVICES, "all"]))
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
    from prometheus_client import CollectorRegistry

    from pykai.kube.caches import Caches
    from pykai.kube.client import Client
    from pykai.kube.clock import Clock
    from pykai.kube.credentials import connect
    from pykai.kube.lease import Fence
    from pykai.kube.limits import Limits
    from pykai.kube.options import OptionError
    from pykai.kube.runtime import Runtime, run_services
    from pykai.observe.logs import set_up_logging
    from pykai.scheduler.config.configuration import ConfigurationError

    given = parse_flags(flags)
    chosen = ALL if service == "all" else (service,)
    known_flags = {name: set(RUNNABLE_SERVICES[name].flags()) for name in chosen}
    _check_flag_names(service, given, set().union(_COMMON, *known_flags.values()))
    set_up_logging(_number(given, "v", 3, least=0), as_json=_switch(given, "log-json"))
    elected = _switch(given, "leader-elect")
    qps, burst = (_number(given, name, 0, least=1) for name in ("qps", "burst"))
    for name in flags_without_effect(chosen, given):
        _LOG.warning("--%s is accepted and has no effect on %s", name, service)

    async def main(stop: asyncio.Event) -> None:
        transport: Transport = connect(kubeconfig, context=context)
        if inject_faults:
            from pykai.dev.faultytransport import FaultyTransport

            transport = FaultyTransport(transport, inject_faults)
        client = Client(transport, limits=Limits(qps=qps or None, burst=burst))
        ahead = timedelta(seconds=clock_ahead)
        try:
            runtime = Runtime(client, Caches(client), Clock(speed, wall=lambda: datetime.now(UTC) + ahead))
            registry = CollectorRegistry()
            services: list[Service] = []
            for name in chosen:
                part = RUNNABLE_SERVICES[name]
                own_flags = {key: value for key, value in given.items() if key in known_flags[name]}
                fence = Fence()
                try:
                    part_services = part.make(replace(runtime, client=client.fenced(fence.check)), own_flags, registry)
                except (OptionError, ConfigurationError) as error:
                    raise click.ClickException(str(error)) from error
                if part.lease and elected:
                    place = given.get("namespace", names.DEFAULT_NAMESPACE)
                    part_services = [
                        LeaderElected(each, runtime, namespace=place, lease=part.lease, fence=fence)
                        for each in part_services
                    ]
                services += part_services
            addresses = {given.get(flag, "") for name in chosen for flag in RUNNABLE_SERVICES[name].addresses}
            services += [
                EndpointService(address, registry, services) for address in sorted(addresses.difference(_NOT_SERVED))
            ]
            await run_services(runtime, services, stop)
        finally:
            await client.close()

    run_until_signal(main)


def _check_flag_names(service: str, given: FlagValues, known_flags: Collection[str]) -> None:
    """Nothing starts with a flag that no service knows, nor with others that would write beside a shadow."""
    for name in given:
        if name not in known_flags:
            meant = did_you_mean(name, {*known_flags, *_COMMAND_OPTIONS}, "--")
            text = f"--{name} is not a flag of {service}{meant or f'; `kai run {service} --help` lists them'}"
            raise click.UsageError(f"{text} Nothing was started." if meant else f"{text}. Nothing was started.")
    if service == "all" and _switch(given, "shadow"):
        text = "--shadow: shadow mode is `kai run scheduler --shadow`, of the scheduler alone. Nothing was started."
        raise click.UsageError(text)


def flags_without_effect(chosen: Sequence[str], given: FlagValues) -> list[str]:
    """The given flags that have no effect on any of the services that know them."""
    ineffective = []
    for name in sorted(given):
        services = [
            RUNNABLE_SERVICES[each] for each in chosen if name in RUNNABLE_SERVICES[each].flags() or name in _COMMON
        ]
        if all(name in part.flags_without_effect() for part in services):
            ineffective.append(name)
    return ineffective


def _switch(given: FlagValues, name: str) -> bool:
    text = given.get(name, "false")
    if text.lower() not in _SWITCHES:
        raise click.UsageError(f"--{name}: expected true or false, not {text!r}")
    return _SWITCHES[text.lower()]


def _number(given: FlagValues, name: str, otherwise: int, *, least: int) -> int:
    text = given.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least):
        raise click.UsageError(f"--{name}: expected a whole number of at least {least}, not {text!r}")
    return int(text)
