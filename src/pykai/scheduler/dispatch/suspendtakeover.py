"""Suspended workloads that another scheduler left: read from their records before the first cycle (suspend:takeover).

| the record says | the owner | then |
|---|---|---|
| suspending or suspended | is suspended and marked | its placeholders wait, once its pods are gone |
| resuming | is suspended and marked | the same: it was not resumed yet |
| resuming | runs, without the mark | placeholders hold their nodes again, where every rule allows it, until the limit |
| anything | anything else | the record is deleted: the owner was not touched, or belongs to its user again |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from pykai.api.scheduling import PodGroup
from pykai.core.model.shard import Shard
from pykai.core.resume import UnfinishedBinds, resume
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.store import Store
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.records import HandoverRecord, HandoverRecords
from pykai.scheduler.dispatch.resumption import Resumption
from pykai.scheduler.dispatch.suspendedworkloads import SuspendedWorkload, SuspendedWorkloads
from pykai.scheduler.dispatch.suspendrecord import SuspendRecordError, SuspendState, decode_record
from pykai.scheduler.dispatch.suspension import Suspension
from pykai.scheduler.dispatch.workloadowner import OwnerError, OwnerGone, read_owner
from pykai.scheduler.enginequery import EngineQuery
from pykai.scheduler.status.statusevents import now_ns

log = logging.getLogger(__name__)

#: owners read at a time
_IN_FLIGHT = 20


class SuspendTakeover:
    """Reads records of suspended workloads, and continues."""

    def __init__(
        self,
        client: Client,
        records: HandoverRecords,
        groups: Store[PodGroup],
        shard: Shard,
        workloads: SuspendedWorkloads,
        suspension: Suspension,
        resumption: Resumption,
        tasks: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._client = client
        self._records = records
        self._groups = groups
        self._shard = shard
        self._workloads = workloads
        self._suspension = suspension
        self._resumption = resumption
        self._tasks = tasks
        self._clock = clock

    async def take_over(self, records: Iterable[HandoverRecord], query_engine: EngineQuery) -> None:
        """Continue with the workloads that another scheduler suspended."""
        self._resumption.lead(query_engine)
        slots = asyncio.Semaphore(_IN_FLIGHT)

        async def read(record: HandoverRecord) -> tuple[HandoverRecord, SuspendedWorkload | None]:
            async with slots:
                return record, await self._read(record)

        held: list[SuspendedWorkload] = []
        for record, workload in await asyncio.gather(*map(read, records)):
            if workload is None:
                self._tasks.start(self._records.remove(record.name), f"end of record {record.name}")
                continue
            self._workloads.add(workload)
            if workload.state is SuspendState.RESUMING:
                self._workloads.add_placeholders(workload, workload.record.nodes.keys())
                self._resumption.drop_taken(workload)
                held.append(workload)
            else:
                self._suspension.await_leaving(workload)
        if held:
            await self._hold_again(held, query_engine)

    async def _read(self, record: HandoverRecord) -> SuspendedWorkload | None:
        """The workload of a record; None if there is nothing to continue."""
        group = self._groups.get(record.group)
        if group is None or group.metadata.uid != record.uid or not self._shard.covers(group.metadata):
            log.info("the record %s is deleted: there is no PodGroup %s", record.name, record.group)
            return None
        try:
            content = decode_record(record.data)
        except SuspendRecordError as error:
            log.warning("the record %s is deleted: %s", record.name, error)
            return None
        workload = SuspendedWorkload(record.group, record.uid, content)
        try:
            state = await read_owner(self._client, workload.namespace, content.owner)
        except OwnerGone as error:
            log.info("the record %s is deleted: %s", record.name, error)
            return None
        except OwnerError as error:
            # It cannot be resumed either until it can be read; its demand counts all the same.
            log.warning("%s", error)
            suspended, mark = True, content.mark(record.uid)
        else:
            suspended, mark = state.suspended, state.mark
        if suspended and mark == content.mark(record.uid):
            workload.record = replace(content, state=SuspendState.SUSPENDING, nodes={}, held_until_ns=0)
            workload.leaving = set(content.leaving)
            return workload
        if content.state is SuspendState.RESUMING and not suspended and not mark:
            return workload if content.held_until_ns > now_ns(self._clock) else None
        log.info("the record %s is deleted: %s was changed by others", record.name, workload.describe())
        return None

    async def _hold_again(self, held: list[SuspendedWorkload], query_engine: EngineQuery) -> None:
        unfinished: list[UnfinishedBinds] = []
        for workload in held:
            binds = self._resumption.held_binds(workload)
            if binds is not None:
                unfinished.append(binds)
        resumed, _ = await query_engine(partial(resume, unfinished=unfinished))
        for bind in resumed.binds:
            owner = self._workloads.get(bind.group)
            if owner is not None:
                self._resumption.hold(owner, bind)
        for workload in held:
            lost = [name for name, node in workload.placeholders.items() if not node]
            self._workloads.drop_placeholders(workload, lost)
            self._workloads.hold_places(workload)
            if workload.placeholders:
                self._resumption.await_pods(workload)
            else:
                self._workloads.end(workload, "no place is left to hold for its pods")
