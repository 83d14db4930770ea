"""The tables of docs/metrics.md, from the running program.

python -m tests.docs.metricspage --write
"""

from __future__ import annotations

import argparse
import asyncio
import re
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.runtime import Runtime
from pykai.lab.apiserver.server import ApiServer
from pykai.observe.controllermetrics import ControllerMetrics
from pykai.services.table import SERVICES
from tests.services.neededflags import needed_flags

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
#: what all controllers have
CONTROLLERS = "controllers"


def tables() -> dict[str, list[str]]:
    """Service -> the rows of its table; services without metrics of their own have none."""
    found = asyncio.run(registries())
    return {name: _rows(registry) for name, registry in found.items() if list(registry.collect())}


async def registries() -> dict[str, CollectorRegistry]:
    """Service -> its metrics as it starts."""
    server = await ApiServer.open(clock=Clock())
    found = {CONTROLLERS: CollectorRegistry()}
    controllers = ControllerMetrics(found[CONTROLLERS])
    try:
        client = Client(server.transport())
        runtime = Runtime(client, Caches(client), Clock(), controllers)
        with needed_flags() as needed:
            for name, service in SERVICES.items():
                found[name] = CollectorRegistry()
                service.make(runtime, needed.get(name, {}), found[name])
    finally:
        await server.close()
    return found


def _rows(registry: CollectorRegistry) -> list[str]:
    rows = []
    for collector in registry._collector_to_names:
        labels = ", ".join(f"`{label}`" for label in _labels(collector)) or "–"
        for family in collector.describe():  # type: ignore[attr-defined]
            name = family.name + ("_total" if family.type == "counter" else "")
            # Prometheus' counters end in `_total`; some of KAI's do not.
            kind = "counter" if family.type == "unknown" else family.type
            rows.append(f"| `{name}` | {kind} | {labels} | {family.documentation} |")
    return sorted(rows)


def _labels(collector: Collector) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(collector, "_labelnames", ()) or getattr(collector, "_labels", ())
    return found


def written(page: str) -> dict[str, list[str]]:
    """Service -> the rows that the page has."""
    sections = re.findall(r"<!-- metrics of ([\w-]+) -->\n\n\|.*\n\|.*\n((?:\|.*\n)*)", page)
    return {name: rows.splitlines() for name, rows in sections}


def with_tables(page: str) -> str:
    """The page with the tables of the program."""
    for name, rows in tables().items():
        mark = f"<!-- metrics of {name} -->"
        before, _, after = page.partition(mark)
        rest = after.lstrip("\n").splitlines(keepends=True)
        while rest and rest[0].startswith("|"):
            del rest[0]
        table = ["| Name | Type | Labels | Meaning |", "|---|---|---|---|", *rows]
        page = "\n".join([f"{before}{mark}", "", *table, "", "".join(rest).lstrip("\n")])
    return page.rstrip() + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare or write the tables of docs/metrics.md.")
    parser.add_argument("--write", action="store_true", help="write them")
    if parser.parse_args().write:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
