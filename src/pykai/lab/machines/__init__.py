"""Simulated machines, with the controllers and the default scheduler of Kubernetes, as a list of services.

`kai up` starts `machines(runtime, options)` beside the scheduler; `create_nodes` creates the nodes of a lab and leaves
existing ones alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import AlreadyExists
from pykai.kube.resources import DEVICE_CLASSES, NODES, RESOURCE_SLICES, RUNTIME_CLASSES
from pykai.kube.runtime import Runtime, Service
from pykai.lab.controllers.cronjobs import cron_jobs
from pykai.lab.controllers.deployments import deployments
from pykai.lab.controllers.disruptionbudgets import disruption_budgets
from pykai.lab.controllers.jobs import jobs
from pykai.lab.controllers.nodelifecycle import node_lifecycle
from pykai.lab.controllers.podgc import pod_garbage_collector
from pykai.lab.controllers.replicasets import replica_sets
from pykai.lab.controllers.resourceclaims import resource_claims
from pykai.lab.controllers.statefulsets import stateful_sets
from pykai.lab.controllers.volumes import volumes
from pykai.lab.machines.defaultscheduler import default_scheduler
from pykai.lab.machines.kubelets import Kubelets
from pykai.lab.machines.nodes import MachineKind, machine_objects
from pykai.lab.machines.options import MachineOptions
from pykai.lab.timestamps import to_timestamp

_RESOURCES = {resource.kind: resource for resource in (NODES, RUNTIME_CLASSES, RESOURCE_SLICES, DEVICE_CLASSES)}


def machines(runtime: Runtime, options: MachineOptions | None = None) -> list[Service]:
    """The services of a simulated cluster; create them before the caches start, so that all watches start together."""
    options = options or MachineOptions()
    kubelets = Kubelets(runtime, options.behaviour, all_nodes=options.all_nodes, without=options.processes)
    services: list[Service] = [kubelets]
    if options.controllers:
        for controller in (
            jobs,
            cron_jobs,
            replica_sets,
            deployments,
            stateful_sets,
            resource_claims,
            volumes,
            node_lifecycle,
            pod_garbage_collector,
            disruption_budgets,
        ):
            services.append(controller(runtime))
    if options.default_scheduler:
        services.append(default_scheduler(runtime))
    return services


async def create_nodes(client: Client, clock: Clock, kinds: Iterable[MachineKind]) -> int:
    """Create the nodes of a lab; how many objects were new."""
    now = to_timestamp(clock.now().timestamp())
    created = 0
    for obj in machine_objects(kinds, now):
        try:
            await client.create(_RESOURCES[obj["kind"]], obj)
        except AlreadyExists:
            continue
        created += 1
    return created
