"""`kai run operators`: the operators against any API server, and the definitions that it lacks.

Definitions that exist stay as they are: an original may be installed, with more fields than ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from pykai.api.unstructured import JsonObject
from pykai.kube.backoff import Backoff
from pykai.kube.errors import AlreadyExists, ConnectionLost, ServerError
from pykai.kube.flags import Flag, read_options
from pykai.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from pykai.kube.runtime import Runtime, Service
from pykai.lab.operators.families import ALL, OperatorFamily, definitions, operators, read_families

_LOG = logging.getLogger(__name__)
_BACKOFF: Final = Backoff(0.1, 5.0)


@dataclass(frozen=True, slots=True)
class WorkloadOperatorOptions:
    """What `kai run operators` is asked for."""

    families: tuple[OperatorFamily, ...] = ()


def _read_chosen(text: str) -> tuple[OperatorFamily, ...]:
    families = read_families(text)
    if not families:
        raise ValueError(f"expected names of families, or {ALL}")
    return families


FLAGS: Final[tuple[Flag, ...]] = (
    Flag("kinds", ALL, _read_chosen, "families of kinds, separated by commas, or all", field="families"),
)


class DefinitionInstaller:
    """Creates missing definitions once."""

    name = "definitions"

    def __init__(self, runtime: Runtime, wanted: Sequence[JsonObject]) -> None:
        self._client = runtime.client
        self._wanted = wanted
        self._done = False

    async def run(self, stop: asyncio.Event) -> None:
        """Create what is missing, as soon as the server answers; raises `KubeError` where the server refuses it."""
        failures = 0
        while not self._done and not stop.is_set():
            try:
                for definition in self._wanted:
                    with suppress(AlreadyExists):
                        await self._client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
                self._done = True
            except (ConnectionLost, ServerError) as error:
                failures += 1
                delay_s = _BACKOFF.delay_s(failures)
                _LOG.warning("definitions are missing, the next attempt is in %.1f s: %s", delay_s, error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), delay_s)

    def ready(self) -> bool:
        """Whether the server has all definitions."""
        return self._done


def from_flags(runtime: Runtime, given: Mapping[str, str], _: CollectorRegistry) -> list[Service]:
    """Operators and their definitions as `kai run operators` starts them; raises `OptionError`."""
    families = read_options(WorkloadOperatorOptions(read_families(ALL)), FLAGS, given).families
    return [DefinitionInstaller(runtime, definitions(families)), *operators(runtime, families)]
