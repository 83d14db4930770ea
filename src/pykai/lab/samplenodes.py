"""Nodes for a cluster that has none, so that `kai server` and `kai run machines` make a cluster work can run on.

`furnisher` reads what the flag `--nodes` says and gives a service that creates the nodes once: those of the built-in
lab where nothing was said and the cluster is empty, those of a story where its file was named, whatever else is there,
or none.  What exists already stays as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from pykai.kube.flags import OptionError
from pykai.kube.resources import NODES
from pykai.kube.runtime import Runtime, Service
from pykai.lab.machines import create_nodes, machines
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.machines.options import MachineOptions, read_options
from pykai.lab.story import DEFAULT_STORY, ScenarioError, machine_kind, read_story

NONE: Final = "none"
_LOG = logging.getLogger(__name__)


class SampleNodes:
    """Creates nodes, then has nothing more to do."""

    name = "nodes"

    def __init__(self, runtime: Runtime, kinds: Sequence[MachineKind], *, only_if_empty: bool) -> None:
        self._client = runtime.client
        self._clock = runtime.clock
        self._kinds = kinds
        self._only_if_empty = only_if_empty
        self._done = False

    async def run(self, stop: asyncio.Event) -> None:
        """Create what is missing; raises `KubeError` where the server refuses it."""
        if not self._only_if_empty or not await self._client.list_raw(NODES):
            made = await create_nodes(self._client, self._clock, self._kinds)
            _LOG.info("%d nodes and what belongs to them were created", made)
        self._done = True

    def ready(self) -> bool:
        """Whether the nodes are there."""
        return self._done


def sample_nodes(runtime: Runtime, options: MachineOptions) -> list[Service]:
    """The service that creates the nodes that options ask for, if any; raises `OptionError`."""
    # A process that plays no controllers joins a cluster of others, which has nodes or waits for them.
    if options.nodes == NONE or (not options.nodes and not options.controllers):
        return []
    try:
        story = read_story(Path(options.nodes) if options.nodes else DEFAULT_STORY)
    except ScenarioError as error:
        raise OptionError(f"--nodes: {error}; expected a story with machines, or {NONE}") from None
    return [SampleNodes(runtime, [machine_kind(each) for each in story.machines], only_if_empty=not options.nodes)]


def from_flags(runtime: Runtime, given: Mapping[str, str], _: CollectorRegistry) -> list[Service]:
    """Machines and their nodes as `kai run machines` starts them; raises `OptionError`."""
    options = read_options(given)
    return [*machines(runtime, options), *sample_nodes(runtime, options)]
