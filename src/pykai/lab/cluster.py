"""A whole cluster in one process: the embedded API server, simulated machines, and every service of the scheduler.

    cluster = await LabCluster.start(LabOptions(story=...)) await cluster.run(stop)

Services talk to the server within the process; other clients such as `kubectl` use HTTPS on loopback. The services are
the same that run against a real API server: they get a transport and a clock.

Subtle: the start order does not matter, as on a real cluster: each service waits for its own caches. On shutdown the
services stop first and the server last, so that requests in flight finish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.binder.options import BinderOptions
from pykai.binder.service import make_binder
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.runtime import Runtime, Service, run_services
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.autoscaling.service import Autoscaler
from pykai.lab.machines import machines
from pykai.lab.machines.options import MachineOptions
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from pykai.lab.operators.families import OperatorFamily, definitions, operators
from pykai.lab.player import Player
from pykai.lab.story import Story, node_group
from pykai.nodescale.options import NodeScaleOptions
from pykai.nodescale.service import NodeScaleAdjuster
from pykai.observe.controllermetrics import ControllerMetrics, process_registry
from pykai.observe.endpoint import Endpoint
from pykai.podgrouper.options import PodGrouperOptions
from pykai.podgrouper.service import make_podgrouper
from pykai.podgroups.options import PodGroupsOptions
from pykai.podgroups.service import make_podgroups
from pykai.queues.options import QueuesOptions
from pykai.queues.service import make_queues
from pykai.scheduler.flags import read_flags
from pykai.scheduler.service import make_scheduler
from pykai.webhooks.admission import gate_mutator, pod_mutator, pod_validator
from pykai.webhooks.queuegating import GatingRules
from pykai.webhooks.queuelookups import QueueLookups


@dataclass(frozen=True, slots=True)
class LabOptions:
    """Options of the cluster."""

    story: Story = field(default_factory=Story)
    #: cluster seconds per second
    speed: float = 1.0
    #: where state is kept; None: in memory
    data: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    #: objects that exist from the start
    objects: Iterable[dict[str, Any]] = ()
    #: flags of the scheduler, as on its command line
    scheduler_flags: Mapping[str, str] = field(default_factory=dict)
    #: the cache is the cluster's, whatever these say
    podgrouper: PodGrouperOptions = field(default_factory=PodGrouperOptions)
    #: seconds that pods without a declared duration run
    behaviour: BehaviourDefaults = field(default_factory=BehaviourDefaults)
    #: kinds of other projects that are defined, and whose operators run
    families: Sequence[OperatorFamily] = ()
    #: address of metrics, health, snapshot and job order; "" to serve none
    endpoint_address: str = ""


class QueueGates:
    """Which queues gate their pods; the server asks before the caches that know it exist."""

    #: the flags that switch the feature on in the scheduler
    scheduler_flags: Mapping[str, str] = {"queue-admission-gating": "true"}

    def __init__(self) -> None:
        self.lookups: QueueLookups | None = None

    def is_gated(self, queue: str) -> bool:
        """Whether new pods of a queue get its gate."""
        return self.lookups is None or self.lookups.is_gated(queue)


class LabCluster:
    """Server, machines and services; created by `start`."""

    def __init__(
        self, options: LabOptions, server: ApiServer, runtime: Runtime, port: int, gates: QueueGates | None = None
    ) -> None:
        self.options = options
        self.server = server
        self.runtime = runtime
        self.port = port
        registry = runtime.controllers.registry
        flags = read_flags({**gates.scheduler_flags, **options.scheduler_flags} if gates else options.scheduler_flags)
        self.scheduler = make_scheduler(runtime, flags, registry=registry, endpoints=False)
        self.player = Player(runtime, options.story)
        #: what makes and deletes nodes, where the story has groups of them
        self.autoscaler = self._make_autoscaler() if options.story.node_groups else None
        if gates is not None:
            gates.lookups = QueueLookups(runtime)
        self.services: list[Service] = [
            self.scheduler,
            make_binder(runtime, BinderOptions(), registry=registry),
            # Under its own rights: which owners it may read decides what the top of a workload is.
            make_podgrouper(
                replace(runtime, client=Client(server.transport(names.POD_GROUPER))),
                replace(options.podgrouper, shared_cache=True),
            ),
            make_podgroups(runtime, PodGroupsOptions(shared_cache=True)),
            make_queues(runtime, QueuesOptions(), registry),
            *machines(runtime, MachineOptions(options.behaviour)),
            *operators(runtime, options.families),
            self.player,
        ]
        if self.autoscaler is not None:
            self.services += [self.autoscaler, NodeScaleAdjuster(runtime, NodeScaleOptions(shared_cache=True))]
        self.endpoint = self._make_endpoint(registry) if options.endpoint_address else None

    @classmethod
    async def start(cls, options: LabOptions) -> LabCluster:
        """Open the server, listen, and create the services, which do not run yet."""
        clock = Clock(options.speed)
        gates = QueueGates() if options.story.gates_queues else None
        server = await ApiServer.open(
            clock=clock,
            data=options.data,
            objects=[*options.objects, *definitions(options.families)],
            mutators=(pod_mutator(), *([gate_mutator(GatingRules(gates.is_gated))] if gates else [])),
            validators=(pod_validator(),),
        )
        try:
            port = await server.serve(options.host, options.port)
        except BaseException:
            # A cancelled start closes the state file, too.
            await server.close()
            raise
        client = Client(server.transport())
        runtime = Runtime(client, Caches(client), clock, ControllerMetrics(process_registry()))
        cluster = cls(options, server, runtime, port, gates)
        if cluster.endpoint is not None:
            await cluster.endpoint.start()
        return cluster

    def _make_autoscaler(self) -> Autoscaler:
        return Autoscaler(self.runtime, [node_group(entry) for entry in self.options.story.node_groups])

    def _make_endpoint(self, registry: CollectorRegistry) -> Endpoint:
        """One endpoint for what `kai run` serves on several addresses: everything here is one process."""
        scheduler = self.scheduler
        others = {each.name: partial(_unready, each) for each in self.services if each is not scheduler}
        return Endpoint(
            self.options.endpoint_address,
            registry=registry,
            health={"ping": str},
            readiness={**scheduler.readiness, **others},
            notices=scheduler.notices,
            pages=scheduler.pages,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run everything until `stop` is set, then shut down in order."""
        try:
            await run_services(self.runtime, self.services, stop)
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop listening; stored state is kept."""
        if self.endpoint is not None:
            await self.endpoint.stop()
        await self.server.close()


def _unready(service: Service) -> str:
    return "" if service.ready() else "is not ready yet"
