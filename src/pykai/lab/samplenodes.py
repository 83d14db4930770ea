"""Nodes for an empty cluster, so that work can run on `kai server` and `kai run machines`.

`sample_nodes` reads the flag `--nodes` and returns a service that creates nodes once: by default those of the built-in
lab if the cluster is empty, those of a story if its file is given, or none. Existing objects stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from pykai.kube.backoff import Backoff
from pykai.kube.errors import ConnectionLost, ServerError
from pykai.kube.flags import OptionError, read_options
from pykai.kube.http import HttpTransport
from pykai.kube.resources import NODES
from pykai.kube.runtime import Runtime, Service
from pykai.lab.machines import create_nodes, machines
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.machines.options import FLAGS, MachineOptions
from pykai.lab.processes.service import PodProcesses
from pykai.lab.story import DEFAULT_STORY, ScenarioError, machine_kind, read_story

NONE: Final = "none"
_LOG = logging.getLogger(__name__)
_BACKOFF = Backoff(0.1, 5.0)


class SampleNodes:
    """Creates nodes once."""

    name = "nodes"

    def __init__(self, runtime: Runtime, kinds: Sequence[MachineKind], *, only_if_empty: bool) -> None:
        self._client = runtime.client
        self._clock = runtime.clock
        self._kinds = kinds
        self._only_if_empty = only_if_empty
        self._done = False

    async def run(self, stop: asyncio.Event) -> None:
        """Create what is missing, as soon as the server answers; raises `KubeError` where the server refuses it."""
        failures = 0
        #: decided once: after half of the nodes were created the cluster is no longer empty
        wanted: bool | None = None if self._only_if_empty else True
        while not self._done and not stop.is_set():
            try:
                if wanted is None:
                    wanted = not await self._client.list_raw(NODES)
                if wanted:
                    made = await create_nodes(self._client, self._clock, self._kinds)
                    _LOG.info("%d nodes and what belongs to them were created", made)
                self._done = True
            except (ConnectionLost, ServerError) as error:
                failures += 1
                delay_s = _BACKOFF.delay_s(failures)
                _LOG.warning("no nodes created yet, the next attempt is in %.1f s: %s", delay_s, error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), delay_s)

    def ready(self) -> bool:
        """Whether the nodes are there."""
        return self._done


def sample_nodes(runtime: Runtime, options: MachineOptions) -> list[Service]:
    """The service that creates the requested nodes, if any; raises `OptionError`."""
    # Without controllers the process joins a cluster that brings its own nodes.
    if options.nodes == NONE or (not options.nodes and not options.controllers):
        return []
    try:
        story = read_story(Path(options.nodes) if options.nodes else DEFAULT_STORY)
    except ScenarioError as error:
        raise OptionError(f"--nodes: {error}; expected a story with machines, or {NONE}") from None
    return [SampleNodes(runtime, [machine_kind(each) for each in story.machines], only_if_empty=not options.nodes)]


def from_flags(runtime: Runtime, given: Mapping[str, str], _: CollectorRegistry) -> list[Service]:
    """Machines and their nodes as `kai run machines` starts them; raises `OptionError`."""
    options = read_options(MachineOptions(), FLAGS, given)
    return [*machines(runtime, options), *_processes(runtime, options), *sample_nodes(runtime, options)]


def _processes(runtime: Runtime, options: MachineOptions) -> list[Service]:
    if not options.processes:
        return []
    if not options.process_folder:
        raise OptionError("--processes needs --process-folder: where should logs and mounted files go?")
    if not isinstance(runtime.client.transport, HttpTransport):
        raise OptionError("--processes needs an API server that other processes can reach")
    server = runtime.client.transport.server
    return [PodProcesses(runtime, server, options.processes, Path(options.process_folder))]
