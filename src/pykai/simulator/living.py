"""A whole cluster in one process: the embedded API server, simulated machines, and every service of the scheduler.

    cluster = await LivingCluster.start(LivingOptions(story=...))
    await cluster.run(stop)

Services talk to the server within the process; whoever else wants to, `kubectl` first, comes over HTTPS on loopback.
The services are the very ones that run against a real API server: they are given a transport and a clock.

Subtle: the order of starting does not matter, as on a real cluster; everybody waits for its own caches.  On the way
down the services stop first, the server last, so that what is in flight can be finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pykai.apiserver.server import ApiServer
from pykai.binder.options import BinderOptions
from pykai.binder.service import make_binder
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.runtime import Runtime, Service, run_together
from pykai.podgrouper.options import PodGrouperOptions
from pykai.podgrouper.service import make_podgrouper
from pykai.podgroups.service import PodGroupsOptions, make_podgroups
from pykai.queues.service import QueuesOptions, make_queues
from pykai.scheduler.flags import read_flags
from pykai.scheduler.service import make_scheduler
from pykai.simulator.machines import machines
from pykai.simulator.machines.course import Habits
from pykai.simulator.machines.options import MachineOptions
from pykai.simulator.playing import Player
from pykai.simulator.scenario import Story
from pykai.webhooks.admission import pod_mutator, pod_validator


@dataclass(frozen=True, slots=True)
class LivingOptions:
    """How the cluster is to be."""

    story: Story = field(default_factory=Story)
    #: cluster seconds per second
    speed: float = 1.0
    #: where state is kept; None: in memory
    data: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    #: objects to be there from the start
    objects: Iterable[dict[str, Any]] = ()
    #: flags of the scheduler, as on its command line
    scheduler_flags: Mapping[str, str] = field(default_factory=dict)
    #: of pods that declare nothing
    habits: Habits = field(default_factory=Habits)


class LivingCluster:
    """Server, machines and services; made by `start`."""

    def __init__(self, options: LivingOptions, server: ApiServer, runtime: Runtime, port: int) -> None:
        self.options = options
        self.server = server
        self.runtime = runtime
        self.port = port
        self.scheduler = make_scheduler(runtime, read_flags(options.scheduler_flags), endpoints=False)
        self.player = Player(runtime, options.story)
        self.services: list[Service] = [
            self.scheduler,
            make_binder(runtime, BinderOptions()),
            make_podgrouper(runtime, PodGrouperOptions(shared_cache=True)),
            make_podgroups(runtime, PodGroupsOptions(shared_cache=True)),
            make_queues(runtime, QueuesOptions()),
            *machines(runtime, MachineOptions(options.habits)),
            self.player,
        ]

    @classmethod
    async def start(cls, options: LivingOptions) -> LivingCluster:
        """Open the server, let it listen, and make the services (which do not run yet)."""
        clock = Clock(options.speed)
        server = await ApiServer.open(
            clock=clock,
            data=options.data,
            objects=options.objects,
            mutators=(pod_mutator(),),
            validators=(pod_validator(),),
        )
        port = await server.serve(options.host, options.port)
        client = Client(server.transport())
        return cls(options, server, Runtime(client, Caches(client), clock), port)

    async def run(self, stop: asyncio.Event) -> None:
        """Run everything until `stop` is set, then take it down in order."""
        try:
            await run_together(self.runtime, self.services, stop)
        finally:
            await self.server.close()
