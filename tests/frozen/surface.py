"""What users and programs call: flags, commands with their JSON, benchmarks, make targets, HTTP paths, metrics."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import distribution
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
import pytest
from aiohttp import web
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from tests.frozen import program
from tests.frozen.paths import of_document
from tests.services.neededflags import needed_flags

ROOT = Path(__file__).parents[2]
#: a pod that waits in a queue of its own, on nothing
_CLUSTER: Mapping[str, list[dict[str, Any]]] = {
    "queues": [{"metadata": {"name": "all"}, "spec": {}}, {"metadata": {"name": "q"}, "spec": {"parentQueue": "all"}}],
    "podGroups": [{"metadata": {"name": "g", "namespace": "n", "uid": "g"}, "spec": {"queue": "q", "minMember": 1}}],
    "pods": [
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "p", "annotations": {"pod-group-name": "g"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]},
            "status": {"phase": "Pending"},
        }
    ],
}


# Flags


def _default_of(options: Any, field: str) -> str:
    """The default of a flag that sets a field of some options, or of a record inside them."""
    return repr(attrgetter(field)(options)) if field else ""


def _defaults() -> dict[str, dict[str, str]]:
    """Service -> flag -> its default."""
    return {
        "scheduler": {flag.name: repr(flag.default) for flag in program.SCHEDULER_FLAGS},
        "binder": {flag.name: repr(flag.default) for flag in program.BINDER_FLAGS},
        "admission": {flag.name: repr(flag.default) for flag in program.ADMISSION_FLAGS},
        **{
            service: {flag.name: _default_of(options, flag.field) for flag in table}
            for service, options, table in (
                ("podgrouper", program.PodGrouperOptions(), program.PODGROUPER_FLAGS),
                ("podgroups", program.PodGroupsOptions(), program.PODGROUPS_FLAGS),
                ("queues", program.QueuesOptions(), program.QUEUES_FLAGS),
                ("machines", program.MachineOptions(), program.MACHINES_FLAGS),
            )
        },
    }


def flags() -> list[str]:
    """Flags of `kai run SERVICE` with defaults, which of them have no effect, leases, and where metrics are served."""
    lines = []
    defaults = _defaults()
    for service, part in program.SERVICES.items():
        known = defaults.get(service) or {flag.name: repr(flag.default) for flag in part.flags()}
        assert set(known) == {flag.name for flag in part.flags()}, (
            f"{service}: the table of defaults is not that of the flags"
        )
        lines += [f"{service} --{name} default {default}" for name, default in known.items()]
        lines += [f"{service} --{name} has no effect" for name in part.flags_without_effect() if name in known]
        lines += [f"{service} lease {part.lease}"] if part.lease else []
        lines += [f"{service} serves metrics at --{name}" for name in part.addresses]
    lines += [f"every service --{flag.name}" for flag in program.COMMON_FLAGS]
    lines += [f"all = {' '.join(program.services_in_all())}"]
    return lines


# Commands


def commands() -> list[str]:
    """Subcommands of `kai` with their arguments and options."""
    group = program.kai
    assert isinstance(group, click.Group)
    context = click.Context(group)
    lines = [f"kai {_parameter(each)}" for each in group.params]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        lines.append(f"kai {name}")
        lines += [f"kai {name} {_parameter(each)}" for each in command.params]
    return lines


def _parameter(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        switch = parameter.is_flag
        spelled = "/".join((*parameter.opts, *parameter.secondary_opts))
        text = f"option {spelled}"
    else:
        switch, text = False, f"argument {parameter.name}"
    kind = parameter.type
    if isinstance(kind, click.Choice):
        text += f" one of {', '.join(map(str, kind.choices))}"
    elif not switch:
        text += f" {kind.name}"
    text += " required" if parameter.required else ""
    text += f" nargs {parameter.nargs}" if parameter.nargs != 1 else ""
    text += " multiple" if getattr(parameter, "multiple", False) else ""
    text += f" env {parameter.envvar}" if parameter.envvar else ""
    default = parameter.default
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    return f"{text} default {default}" if plain and default != "" else text


def outputs() -> list[str]:
    """Keys of the output of `kai ... --json` and of the scheduler's pages; `plan.txt` has the plan."""
    lines = []
    run = CliRunner()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.zip"
        packed = _packed()
        path.write_bytes(packed)
        said = run.invoke(program.kai, ["replay", "--json", str(path)], catch_exceptions=False)
        content = json.loads(said.stdout)
        content["plan"] = {}
        maps = ("action_durations_ms", "durations_ms")
        lines += [f"kai replay --json {line}" for line in of_document(content, maps=maps)]
        case = {"id": "c", "now": "2026-01-01T00:00:00Z", "objects": [], "expect": {"evicted": ["n/p"]}}
        cases = Path(folder) / "cases"
        cases.mkdir()
        (cases / "a.jsonl").write_text(json.dumps({**case, "actions": ["allocate"]}) + "\n", encoding="utf-8")
        said = run.invoke(program.kai, ["conformance", "--json", str(cases)])
        found = json.loads(said.stdout.splitlines()[-1])
        lines += [f"kai conformance --json {line}" for line in of_document({"file": found["a.jsonl"]})]
        lines += [f"kai conformance exit status {said.exit_code} when something differs"]
    for shape in ("fill", "living"):
        said = run.invoke(program.kai, ["bench", shape, "--nodes", "8", "--quick", "--json"], catch_exceptions=False)
        lines += [f"kai bench {shape} --json {line}" for line in of_document(json.loads(said.stdout))]
    recording = program.read_snapshot(packed)
    order = program.job_order(recording.tables().snapshot(recording.now_ns), recording.policy)
    lines += [f"/get-job-order {line}" for line in of_document(order, maps=("queue_order",))]
    return lines


def _packed() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(program.SNAPSHOT_ENTRY, json.dumps({"rawObjects": _CLUSTER}))
    return packed.getvalue()


# Benchmarks and make


class _Parsed(BaseException):
    """A program was about to read its command line."""


@contextmanager
def _parsers() -> Iterator[list[argparse.ArgumentParser]]:
    """Keep the parsers of programs, and stop these before they do anything."""
    kept: list[argparse.ArgumentParser] = []

    def stop(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        kept.append(parser)
        raise _Parsed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        yield kept


def benchmarks() -> list[str]:
    """Programs `python -m bench.*` with their options."""
    lines = []
    for path in sorted((ROOT / "bench").glob("*.py")):
        if "__main__" not in path.read_text(encoding="utf-8"):
            continue
        name = f"bench.{path.stem}"
        module = import_module(name)
        with _parsers() as kept, pytest.raises(_Parsed):
            _called(module.main)
        (parser,) = kept
        lines.append(name)
        for action in parser._actions:
            if action.dest != "help":
                spelled = "/".join(action.option_strings) or f"argument {action.dest}"
                lines.append(f"{name} {spelled} default {action.default!r}")
    return lines


def _called(main: Callable[[], Any]) -> None:
    made = main()
    if asyncio.iscoroutine(made):
        asyncio.run(made)


def make_targets() -> list[str]:
    """Targets of the Makefile, and variables that a caller may set."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    listed = re.findall(r"^\.PHONY: (help .+)$", text, re.MULTILINE)[0]
    shown = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    lines = [f"target {name}{'' if name in shown else ' (not in `make help`)'}" for name in listed.split()]
    return lines + [f"variable {name}" for name in re.findall(r"^([A-Z_]+) \?=", text, re.MULTILINE)]


def entry_points() -> list[str]:
    """Programs that an installation brings, and groups through which others add to it."""
    found = distribution("pykai").entry_points
    return [f"{each.group} {each.name}" for each in found] + [
        f"group {group}" for group in (program.ENTRY_POINT_GROUP, program.ENTRY_POINTS)
    ]


# Services that run


async def _made(registry: CollectorRegistry) -> dict[str, Any]:
    """Every service, as `kai run` makes it."""
    server = await program.ApiServer.open(clock=program.Clock())
    client = program.Client(server.transport())
    runtime = program.Runtime(client, program.Caches(client), program.Clock(), program.ControllerMetrics(registry))
    made: dict[str, Any] = {"api server": server}
    with needed_flags() as needed:
        for name, part in program.SERVICES.items():
            made[name] = part.make(runtime, needed.get(name, {}), registry)[0]
    return made


def metrics() -> list[str]:
    """Metrics of all services: name, type, labels, buckets."""
    registry = CollectorRegistry()

    async def run() -> None:
        made = await _made(registry)
        await made["api server"].close()

    asyncio.run(run())
    lines = []
    for collector in registry._collector_to_names:
        described = list(collector.describe())  # type: ignore[attr-defined]
        own: tuple[str, ...] = getattr(collector, "_labelnames", ()) or getattr(collector, "_labels", ())
        bounds = getattr(collector, "_upper_bounds", None) or getattr(collector, "_kwargs", {}).get("buckets")
        for family in described:
            text = f"{family.name} {family.type} labels {','.join(own) or '-'}"
            lines.append(f"{text} buckets {','.join(f'{each:g}' for each in bounds)}" if bounds else text)
    return lines


def paths() -> list[str]:
    """HTTP paths of the scheduler, of admission, and what the embedded API server serves."""
    lines: list[str] = []

    async def run() -> None:
        made = await _made(CollectorRegistry())
        scheduler, server = made["scheduler"], made["api server"]
        for word, endpoint in (
            ("scheduler --listen-address", scheduler.metrics_endpoint("127.0.0.1:0")),
            ("scheduler --plugin-server-port", scheduler.plugin_endpoint("127.0.0.1:0")),
        ):
            with _routes() as routes:
                await endpoint.start()
            await endpoint.stop()
            lines.extend(f"{word} {route}" for route in routes)
        lines.extend(await _served(server))
        await server.close()

    asyncio.run(run())
    for configuration in program.webhook_configurations(program.Registration(address="https://host:1")):
        for hook in configuration["webhooks"]:
            lines.append(f"admission {hook['clientConfig']['url'].removeprefix('https://host:1')}")
    return lines


@contextmanager
def _routes() -> Iterator[list[str]]:
    """Keep the paths that are added to any web application."""
    kept: list[str] = []
    before = web.UrlDispatcher.add_resource

    def add(self: web.UrlDispatcher, path: str, *, name: str | None = None) -> Any:
        kept.append(path)
        return before(self, path, name=name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web.UrlDispatcher, "add_resource", add)
        yield kept


async def _served(server: Any) -> list[str]:
    """Resources and verbs, as discovery lists them."""
    wire = server.transport()

    async def read(path: str) -> Any:
        return json.loads((await wire.send(program.Request("GET", path))).body)

    places = ["/api/v1"]
    for group in (await read("/apis"))["groups"]:
        places += [f"/apis/{version['groupVersion']}" for version in group["versions"]]
    return [
        f"api server {place}/{each['name']} {','.join(sorted(each['verbs']))}"
        for place in places
        for each in (await read(place))["resources"]
    ]
