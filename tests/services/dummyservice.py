"""A minimal service: flags, and a factory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import click
from prometheus_client import CollectorRegistry

from pykai.kube.flags import METRICS_ADDRESS, Flag, read_options, read_positive
from pykai.kube.runtime import Runtime


@dataclass(frozen=True)
class DummyOptions:
    loops: int = 1


FLAGS = (Flag("loops", "1", read_positive, "how often it says hello", field="loops"), METRICS_ADDRESS)


class DummyService:
    name = "dummy"

    def __init__(self, options: DummyOptions) -> None:
        self._options = options

    async def run(self, stop: asyncio.Event) -> None:
        click.echo("hello " * self._options.loops)

    def ready(self) -> bool:
        return True


def from_flags(_: Runtime, given: Mapping[str, str], __: CollectorRegistry) -> list[DummyService]:
    return [DummyService(read_options(DummyOptions(), FLAGS, given))]
