"""The scheduler as a service: assembles its parts, starts and stops them, and serves their endpoints.

    Caches -> Intake -> Loop (engine) -> Dispatcher -> API server
                          |-> StatusTracker -> StatusEvents -> StatusWrites, EventRecorder -> API server

With `--leader-elect` several instances run and one leads.  The others keep caches and tables warm and take over within
a lease.  A new leader first resumes the gangs that are half bound, then runs cycles.

On shutdown the current cycle and its writes are finished, statuses are flushed, and the lease is released.

With `--shadow` a `Shadow` takes the place of Dispatcher and StatusEvents, and the client cannot write.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from aiohttp import web
from prometheus_client import CollectorRegistry

from pykai import __version__
from pykai.api import names
from pykai.api.keys import object_key
from pykai.kube.cachesync import wait_until_caught_up
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import KubeError
from pykai.kube.events import EventRecorder
from pykai.kube.lease import Fence, LeaderElection
from pykai.kube.ownpod import own_pod_key, own_pod_name
from pykai.kube.readonly import ReadOnlyTransport
from pykai.kube.runtime import Runtime
from pykai.observe.endpoint import CoalescedCall, Endpoint, HealthCheck, Notice, PageHandler
from pykai.scheduler.config.configfile import ConfigurationFile
from pykai.scheduler.config.shardconfigmap import ShardConfigMap
from pykai.scheduler.config.usagedb import BUILTIN, PROMETHEUS, UsageConfig
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.dispatch.dispatcher import Dispatcher
from pykai.scheduler.dispatch.forgedrequests import ForgedRequests
from pykai.scheduler.dispatch.records import HandoverRecords
from pykai.scheduler.flags import Flags
from pykai.scheduler.gccontrol import freeze_long_lived
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.intake.kinds import DRA_KINDS
from pykai.scheduler.joborder import job_order
from pykai.scheduler.loop import Loop
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.problemevents import ProblemEvents
from pykai.scheduler.shadow import Shadow
from pykai.scheduler.sinks import PlanSink, StatusSink
from pykai.scheduler.snapshotfile import snapshot_zip
from pykai.scheduler.status.fairshares import FairShares
from pykai.scheduler.status.statusevents import StatusEvents, now_ns
from pykai.scheduler.status.statuswrites import StatusWrites
from pykai.scheduler.succession import Succession, first_of
from pykai.scheduler.usage.feed import NoUsage, UsageFeed, UsageSource
from pykai.scheduler.usage.prometheus import PrometheusUsage
from pykai.scheduler.usage.recorder import BuiltInUsage, UsageRecorder

log = logging.getLogger(__name__)

#: newest first; the structs read all of them in the shape of v1
_DRA_VERSIONS = ("v1", "v1beta2", "v1beta1")
#: a leader without a successful cycle for this many periods, at least this many seconds, is not ready
_UNREADY_PERIODS = 30
_UNREADY_S = 60.0


def make_scheduler(
    runtime: Runtime,
    flags: Flags,
    *,
    fast_bind: bool | None = None,
    registry: CollectorRegistry | None = None,
    endpoints: bool = True,
) -> Scheduler:
    """A scheduler for this runtime; raises ConfigurationError if its configuration file is invalid.

    `fast_bind` overrides the flag; without `endpoints` nothing is listened on.
    """
    return Scheduler(runtime, flags, fast_bind=fast_bind, registry=registry, endpoints=endpoints)


class Scheduler:
    """The service."""

    name = "scheduler"

    def __init__(
        self,
        runtime: Runtime,
        flags: Flags,
        *,
        fast_bind: bool | None = None,
        registry: CollectorRegistry | None = None,
        endpoints: bool = True,
    ) -> None:
        for problem in flags.problems:
            log.warning("%s", problem)
        self._shadowing = flags.other["shadow"]
        if self._shadowing:
            runtime = replace(runtime, client=Client(ReadOnlyTransport(runtime.client.transport)))
        self._runtime = runtime
        self._flags = flags
        self._fence = Fence()
        self.succession = Succession(own_pod_key(flags.other["namespace"]))
        client, clock, shard = runtime.client.fenced(self._check_fences), runtime.clock, flags.shard
        self.metrics = SchedulerMetrics(flags.other["metrics-namespace"], registry)
        self.intake = Intake(runtime.caches, shard)
        # The source of events is the scheduler by name (cycle:PRC-11).
        self.recorder = EventRecorder(client, component=shard.scheduler_name, clock=clock)
        self.writes = StatusWrites(
            client, workers=flags.other["num-of-status-recording-workers"], busy=self._has_binds_in_flight
        )
        self.status_sink: StatusSink
        self.dispatcher: PlanSink
        #: a shadow accepts the requests of the active scheduler as they are
        self.forged_requests: ForgedRequests | None = None
        if self._shadowing:
            self.status_sink = self.dispatcher = Shadow(self.intake, self.metrics, shard, clock)
        else:
            self._make_writing_sinks(client, clock, flags, fast_bind)
        self.problem_events = ProblemEvents(self.status_sink, self.metrics, self._own_object)
        configuration = ConfigurationFile(flags.other["scheduler-conf"], flags.profile, strict=flags.other["strict"])
        self.usage_recorder = UsageRecorder(client, shard, flags.other["namespace"], clock, writes=not self._shadowing)
        self.usage = UsageFeed(self._usage_source, self.metrics.usage, clock)
        self.loop = self._make_loop(clock, flags, configuration)
        self._config_map = self._make_config_map(runtime, flags, configuration)
        self._follow_plans()
        self.leading = False
        #: seconds between two checks of a lease that another holds
        self.lease_retry_s: float = names.LEASE_RETRY_S
        self._endpoints = endpoints
        #: what its endpoints show, for a server that hosts several services
        self.readiness: Mapping[str, HealthCheck] = {"scheduler": self._why_not_ready}
        self.notices: Mapping[str, Notice] = {"configuration": lambda: self.loop.configuration.problems}
        self.pages: Mapping[str, PageHandler] = {
            "/get-snapshot": self._get_snapshot,
            "/get-job-order": self._get_job_order,
            "/get-shadow-report": self._get_shadow_report,
        }
        self._synced = False
        self._subscribe_to_decode_errors(self.intake.stores)
        self._snapshots = CoalescedCall(self.snapshot_file)
        self._job_orders = CoalescedCall(partial(self.loop.query_engine, job_order))

    def _make_loop(self, clock: Clock, flags: Flags, configuration: ConfigurationFile) -> Loop:
        return Loop(
            self.intake,
            self.dispatcher,
            self.status_sink,
            self.problem_events,
            self.metrics,
            clock,
            configuration,
            flags,
            self.usage,
            self.usage_recorder,
            may_decide=lambda: not self.succession.why,
        )

    def _make_config_map(
        self, runtime: Runtime, flags: Flags, configuration: ConfigurationFile
    ) -> ShardConfigMap | None:
        if not flags.other["scheduler-configmap"]:
            return None
        return ShardConfigMap(
            runtime.caches,
            flags,
            configuration,
            use=self.loop.use_flags,
            stop_deciding=self.succession.order,
        )

    def _follow_plans(self) -> None:
        if not self._shadowing:
            shares = FairShares(self.intake.queues, self.writes, self._flags.other["fair-share-status-interval"])
            self.loop.plan_listeners.append(shares.on_plan)
        if isinstance(self.dispatcher, Shadow):
            self.loop.on_plan_made = self.dispatcher.note_equal_nodes

    def _make_writing_sinks(self, client: Client, clock: Clock, flags: Flags, fast_bind: bool | None) -> None:
        shard, intake = flags.shard, self.intake
        self.status_sink = status_events = StatusEvents(
            intake.pods,
            intake.groups,
            intake.stores,
            intake.binds,
            intake.group_intake,
            self.writes,
            self.recorder,
            shard,
            clock,
        )
        self.dispatcher = Dispatcher(
            client,
            HandoverRecords(client, shard, flags.other["namespace"]),
            intake,
            status_events,
            self.metrics,
            shard,
            clock,
            fast_bind=flags.other["fast-bind"] if fast_bind is None else fast_bind,
            mark_evicted=flags.other["update-pod-eviction-condition"],
        )
        deletions = Deletions(client, intake.pods, intake.statuses, clock, mark_disruption=False, in_flight=20)
        self.forged_requests = ForgedRequests(
            intake.pods, intake.requests, intake.binds, intake.verifier, status_events, deletions
        )

    def _check_fences(self) -> None:
        self._fence.check()
        self.succession.check()

    def _usage_source(self, config: UsageConfig) -> UsageSource:
        if config.client_type == PROMETHEUS:
            return PrometheusUsage(config)
        return BuiltInUsage(self.usage_recorder, config.window) if config.client_type == BUILTIN else NoUsage()

    def _usage_write_interval_ns(self) -> int:
        config = self.usage.config
        return config.fetch_interval_ns if config is not None and config.client_type == BUILTIN else 0

    def _usage_kept_from_ns(self, at_ns: int) -> int:
        config = self.usage.config
        return at_ns if config is None else config.window.begin_ns(at_ns)

    def _subscribe_to_decode_errors(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            self.intake.stores[kind].on_problem(partial(self.problem_events.report_unreadable, kind))

    def _own_object(self) -> tuple[str, str]:
        """The object for events about this scheduler: its pod, else the namespace of its lease."""
        namespace = self._flags.other["namespace"]
        pod = object_key(namespace, own_pod_name())
        return ("Pod", pod) if pod in self.intake.pods else ("Namespace", namespace)

    def _has_binds_in_flight(self) -> bool:
        return self.dispatcher.has_binds_in_flight

    def ready(self) -> bool:
        """Whether the caches are filled and, for a leader, cycles come to an end."""
        return not self._why_not_ready()

    def _why_not_ready(self) -> str:
        if not self._synced:
            return "the caches are not filled yet"
        if self.succession.why:
            return f"it waits to be replaced: {self.succession.why}"
        if not self.succession.has_begun.is_set():
            return "its own pod has not been seen yet"
        if not self.leading:
            return "" if self._flags.other["leader-elect"] else "cycles have not begun yet"
        last_s = self.loop.last_cycle_s
        if last_s is None:
            return "no cycle has ended yet"
        late_s = max(_UNREADY_S, _UNREADY_PERIODS * self._flags.other["schedule-period"] / 1e9)
        age_s = asyncio.get_running_loop().time() - last_s
        return f"the last good cycle was {age_s:.0f} s ago" if age_s > late_s else ""

    async def run(self, stop: asyncio.Event) -> None:
        """Schedule until stopped."""
        if self._flags.other["version"]:
            log.info("scheduler %s of PyKAI %s", self._flags.shard.scheduler_name, __version__)
        quit_all = asyncio.Event()
        servers = self._servers() if self._endpoints else []
        background = [
            asyncio.create_task(self.recorder.run(quit_all), name="events"),
            asyncio.create_task(self.writes.run(quit_all), name="statuses"),
        ]
        usage_tasks = [
            asyncio.create_task(self.usage.run(), name="usage"),
            asyncio.create_task(
                self.usage_recorder.run(self._usage_write_interval_ns, self._usage_kept_from_ns), name="usage records"
            ),
        ]
        try:
            for server in servers:
                await server.start()
            await self._fill_caches(stop)
            if not stop.is_set():
                await self._work_until_replaced(stop)
        finally:
            self.leading = False
            self.dispatcher.stop()
            quit_all.set()
            for task in usage_tasks:
                task.cancel()
            await asyncio.gather(*background, *usage_tasks, return_exceptions=True)
            for server in servers:
                await server.stop()
            self.loop.close()

    async def _fill_caches(self, stop: asyncio.Event) -> None:
        """Follow every kind the server has, and wait for the first lists."""
        version = await self._dra_version()
        if version:
            self.intake.watch_claims(version)
            self._subscribe_to_decode_errors(resource.kind for resource, _ in DRA_KINDS)
        await self._runtime.caches.start()
        await first_of(self.intake.wait_for_sync(), stop.wait())
        if self._config_map is not None:
            await first_of(self._config_map.store.synced.wait(), stop.wait())
        if stop.is_set():
            return
        freeze_long_lived(len(self.intake.pods))
        self._synced = True
        self.succession.follow(self.intake.pods)
        if self._config_map is not None:
            self._config_map.follow()
            self.loop.refresh_policy()

    # operations:E-18
    async def _work_until_replaced(self, stop: asyncio.Event) -> None:
        """Lead or stand by until stopped; once a replacement is ordered, only wait for it.

        A process that ended by itself would be started again, with its old flags.
        """
        ordered, halt = self.succession.ordered, asyncio.Event()

        async def halt_at_the_end() -> None:
            await first_of(stop.wait(), ordered.wait())
            halt.set()

        halting = asyncio.create_task(halt_at_the_end(), name="halt")
        try:
            await first_of(self.succession.has_begun.wait(), halt.wait())
            if not halt.is_set():
                await self._lead_or_stand_by(halt)
            if ordered.is_set():
                await stop.wait()
        finally:
            halting.cancel()

    async def _dra_version(self) -> str:
        """The version of the claims' API group that the server has, "" when it has none (operations:O-56; gpu:D-1)."""
        for version in _DRA_VERSIONS:
            try:
                if await self._runtime.client.serves_group_version(names.DRA_GROUP, version):
                    return version
            except KubeError as error:
                log.warning("cannot tell whether the server has %s/%s: %s", names.DRA_GROUP, version, error)
                return _DRA_VERSIONS[0]
        return ""

    # A standby keeps its caches and tables warm (operations:O-42, OD-20).
    async def _lead_or_stand_by(self, stop: asyncio.Event) -> None:
        if self._shadowing:
            log.info("shadow mode: decisions are logged, nothing is written, no lease is taken")
        if self._shadowing or not self._flags.other["leader-elect"]:
            await self._lead(stop)
            return
        shard = self._flags.shard
        election = LeaderElection(
            self._runtime.client,
            namespace=self._flags.other["namespace"],
            name=f"{shard.scheduler_name}-{shard.node_pool}" if shard.node_pool else shard.scheduler_name,
            # The operator reads the name of the leader's pod before the underscore.
            identity=f"{own_pod_name()}_{uuid.uuid4()}",
            lease_duration_s=names.LEASE_DURATION_S,
            renew_deadline_s=names.LEASE_RENEW_DEADLINE_S,
            retry_period_s=self.lease_retry_s,
            fence=self._fence,
        )
        elected = asyncio.Event()
        standby = asyncio.create_task(self.loop.stand_by(elected), name="standby")

        async def lead_once_caught_up(told: asyncio.Event) -> None:
            elected.set()
            await standby
            intake = self.intake
            if await wait_until_caught_up(self._runtime.caches, (intake.pods, intake.groups, intake.requests), told):
                await self._lead(told)

        try:
            await election.lead(stop, lead_once_caught_up)
        finally:
            elected.set()
            standby.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await standby

    async def _lead(self, stop: asyncio.Event) -> None:
        """Finish what others began, then run cycles; on the way out finish writes in progress (cycle:PRC-8)."""
        self.leading = True
        try:
            self.intake.pod_intake.charge_ungrouped()
            if self.forged_requests is not None:
                self.forged_requests.take_over()
            await self.dispatcher.take_over(self.loop.query_engine_up_to_date)
            self.usage_recorder.lead()
            await self.usage.wait_for_first(stop)
            await self.loop.run(stop)
            if not await self.dispatcher.drain():
                log.warning("some writes were still going out; the next leader will find them")
            await self.writes.flush()
            await self.recorder.flush()
        finally:
            self.leading = False
            self.usage_recorder.stop()
            self.dispatcher.stop()
            if self.forged_requests is not None:
                self.forged_requests.stop()

    def _servers(self) -> list[Endpoint]:
        servers = []
        address = self._flags.other["listen-address"]
        if address:
            servers.append(self.metrics_endpoint(address))
        servers.append(self.plugin_endpoint(f"127.0.0.1:{self._flags.other['plugin-server-port']}"))
        return servers

    def metrics_endpoint(self, address: str) -> Endpoint:
        """`/metrics`, `/healthz` and `/readyz` (cycle:PRC-1; operations:OD-4)."""
        return Endpoint(
            address,
            registry=self.metrics.registry,
            health={"ping": lambda: ""},
            readiness=self.readiness,
            notices=self.notices,
        )

    def plugin_endpoint(self, address: str) -> Endpoint:
        """`/get-snapshot`, `/get-job-order` (cycle:PRC-2), `/get-shadow-report`; for this machine only, as the data
        is the cluster's.

        Statements: operations:O-58.
        """
        return Endpoint(address, pages=self.pages, unknown="plugin not found")

    async def snapshot_file(self) -> bytes:
        """The cluster as a file for `kai replay`: objects with our unseen writes, without assumed states of pods."""
        objects = list(self.intake.objects())
        content = self.loop.configuration.content()
        at_ns = now_ns(self._runtime.clock)
        try:
            version = await self._runtime.client.server_version()
        except KubeError as error:
            log.warning("the snapshot lacks the version of the server: %s", error)
            version = {}
        free_room_only, policy = dict(self.intake.group_intake.free_room_only), self.loop.effective_policy
        return await asyncio.to_thread(
            snapshot_zip,
            objects,
            self._flags,
            content,
            at_ns,
            version,
            free_room_only,
            policy.resume,
            policy.nominated_groups,
            policy.usage,
            policy.served_first,
        )

    async def _get_snapshot(self, _: web.Request) -> web.Response:
        if not self._synced:
            return web.Response(status=503, text="the caches are not filled yet")
        headers = {"Content-Type": "application/zip", "Content-Disposition": "attachment; filename=snapshot.zip"}
        return web.Response(body=await self._snapshots.get(), headers=headers)

    async def _get_job_order(self, _: web.Request) -> web.Response:
        if not self.loop.cycles:
            return web.Response(status=503, text="Job order data not ready")
        order = await self._job_orders.get()
        return web.Response(text=json.dumps(order), content_type="application/json")

    async def _get_shadow_report(self, _: web.Request) -> web.Response:
        if not isinstance(self.dispatcher, Shadow):
            return web.Response(status=404, text="This scheduler is no shadow; start one with --shadow.")
        return web.Response(text=json.dumps(self.dispatcher.report.as_document()), content_type="application/json")
