"""The binder as a service: BindRequests in, bound pods out.

    BindRequests ──watch──► bindrequests queue ──► BindRequestReconciler ──► reservation, plugins, Binding, status
    pods, requests ───────► gpugroups queue ─────► GpuGroupReconciler ─────► unused reservation pods

Caches fill at once, also in a standby; only the leader works.  When it starts to lead, all groups are reconciled, for
changes made while no leader watched; an error there is retried like any other.

On shutdown, attempts that bind are finished; those that still prepare are left open for the next process.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.decode import DecodeError
from pykai.api.scheduling import BindRequest
from pykai.binder.bindadmission import BindAdmission
from pykai.binder.bindevents import BindEvents
from pykai.binder.bindreconciler import BindRequestReconciler
from pykai.binder.changewaiters import ChangeWaiters, cancel_all
from pykai.binder.gpugroups import GpuGroupReconciler
from pykai.binder.metrics import BinderMetrics
from pykai.binder.options import BinderOptions, check_plugins, read_options
from pykai.binder.plugins import enabled_plugins
from pykai.binder.reservation import Reservations
from pykai.binder.stores import open_stores
from pykai.kube.cachesync import wait_for_sync, wait_until_caught_up
from pykai.kube.events import EventRecorder
from pykai.kube.lease import Fence, LeaderElection
from pykai.kube.ownpod import own_pod_name
from pykai.kube.reconcile import Reconciler
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change

log = logging.getLogger(__name__)


class BinderService:
    """See the module."""

    name = "binder"

    def __init__(self, runtime: Runtime, options: BinderOptions, registry: CollectorRegistry) -> None:
        check_plugins(options.plugins)
        self._runtime = runtime
        self._options = options
        #: whether this instance leads: a standby keeps no list of what the leader does
        self._leading = False
        self._fence = Fence()
        self._client = client = runtime.client.fenced(self._fence.check)
        caches, clock = runtime.caches, runtime.clock
        #: seconds between two checks of a lease that another holds
        self.lease_retry_s: float = names.LEASE_RETRY_S
        self.metrics = BinderMetrics(registry)
        self.recorder = EventRecorder(client, component="binder", clock=clock)
        self._stores = stores = open_stores(caches, options.reservation_namespace)
        self._requests, self._pods, self._nodes = stores.requests, stores.pods, stores.nodes
        # Both queues have the same workers and delays (gpu:BD-3).
        self._request_queue = self._queue("bindrequests", self._reconcile_request)
        self._group_queue = self._queue("gpugroups", self._reconcile_group)
        self._events = BindEvents(client, self.recorder, clock)
        reservations = Reservations(
            client,
            ChangeWaiters(self._pods),
            ChangeWaiters(self._nodes),
            options=options,
            clock=clock,
            metrics=self.metrics,
        )
        self._groups = GpuGroupReconciler(
            client,
            self._pods,
            self._requests,
            stores.failed_reservations,
            reservations,
            options=options,
            recorder=self.recorder,
            metrics=self.metrics,
            enqueue=self._enqueue_group,
        )
        self._binding = BindRequestReconciler(
            client,
            self._requests,
            self._pods,
            self._nodes,
            reservations=reservations,
            groups=self._groups,
            admission=BindAdmission(self._pods, options),
            plugins=enabled_plugins(client, clock, stores, options),
            events=self._events,
            clock=clock,
            metrics=self.metrics,
        )
        self._requests.subscribe(self._request_changed)
        self._requests.on_problem(self._request_unreadable)
        self._pods.subscribe(self._pod_changed)
        self._nodes.subscribe(self._node_changed)

    def _queue(self, name: str, reconcile: Callable[[str], Awaitable[float | None]]) -> Reconciler:
        options = self._options
        return Reconciler(
            name,
            reconcile,
            clock=self._runtime.clock,
            workers=options.max_concurrent_reconciles,
            base_delay_s=options.base_delay_s,
            max_delay_s=options.max_delay_s,
            metrics=self._runtime.controllers,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Work until shutdown, or while this instance leads (gpu:BD-1)."""
        recording_ends = asyncio.Event()
        recording = asyncio.ensure_future(self.recorder.run(recording_ends))
        try:
            if self._options.leader_elect:
                election = LeaderElection(
                    self._runtime.client,
                    namespace=self._options.namespace,
                    name=names.BINDER_LEASE,
                    identity=f"{own_pod_name()}_{uuid.uuid4()}",
                    retry_period_s=self.lease_retry_s,
                    fence=self._fence,
                )
                await election.lead(stop, self._take_over)
            else:
                await self._work(stop)
        finally:
            recording_ends.set()
            await asyncio.gather(recording, return_exceptions=True)

    def ready(self) -> bool:
        """Whether the caches are filled."""
        return all(store.synced.is_set() for store in self._stores)

    def idle(self) -> bool:
        """Whether no work is pending."""
        return self._request_queue.idle() and self._group_queue.idle()

    async def _take_over(self, stop: asyncio.Event) -> None:
        """Work once the caches show what the last leader wrote: unused reservations are deleted.

        Statements: gpu:BD-5.
        """
        if await wait_until_caught_up(self._runtime.caches, (self._requests, self._pods), stop):
            await self._work(stop)

    async def _work(self, stop: asyncio.Event) -> None:
        if not await wait_for_sync(self._stores, stop):
            return
        self._leading = True
        self._groups.enqueue_all()
        self._binding.start()
        for key in list(self._requests.keys()):
            self._request_queue.enqueue(key)
        ends = asyncio.Event()
        stopped = asyncio.ensure_future(stop.wait())
        queues = [asyncio.ensure_future(queue.run(ends)) for queue in (self._request_queue, self._group_queue)]
        try:
            await asyncio.wait((stopped, *queues), return_when=asyncio.FIRST_COMPLETED)
            self._binding.stop()
            ends.set()
            await asyncio.gather(*queues)
        finally:
            self._leading = False
            await cancel_all(stopped, *queues)

    async def _reconcile_request(self, key: str) -> float | None:
        return await self._binding.reconcile(key)

    async def _reconcile_group(self, group: str) -> float | None:
        return await self._groups.reconcile(group)

    def _request_changed(self, change: Change[BindRequest]) -> None:
        old, new = change.old, change.new
        replaced = old is not None and new is not None and old.metadata.uid != new.metadata.uid
        if new is None or replaced or new.metadata.deletion_timestamp is not None:
            self._binding.request_gone(change.key)
        if new is not None and self._leading:
            self._request_queue.enqueue(change.key)

    def _enqueue_group(self, group: str) -> None:
        if self._leading:
            self._group_queue.enqueue(group)

    def _request_unreadable(self, key: str, problem: DecodeError | None) -> None:
        if problem is not None:
            self._events.publish_unreadable(key, problem)

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is None or change.new.metadata.deletion_timestamp is not None:
            self._binding.pod_gone(change.key)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None:
            self.metrics.forget_node(change.key)


def make_binder(runtime: Runtime, options: BinderOptions, *, registry: CollectorRegistry | None = None) -> Service:
    """A binder that works on the runtime's API server; raises `OptionError`."""
    return BinderService(runtime, options, registry or CollectorRegistry())


def from_flags(runtime: Runtime, given: Mapping[str, str], registry: CollectorRegistry) -> list[Service]:
    """The binder that flags ask for; raises `OptionError`."""
    return [make_binder(runtime, read_options(given), registry=registry)]
