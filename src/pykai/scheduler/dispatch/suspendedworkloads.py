"""The workloads that are suspended, being suspended, or being resumed.

    evicted --> SUSPENDING --the last pod is gone--> SUSPENDED --a plan places it--> RESUMING --pods are back--> ended

If the owner cannot be resumed, the workload is SUSPENDED again.

`suspension` brings workloads in, `resumption` brings them out.  This module holds them, their placeholders in the
tables, and their records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from msgspec.structs import replace

from pykai.api.core import Pod
from pykai.api.keys import object_key, split_key
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.heldplaces import HeldPlaces
from pykai.scheduler.dispatch.records import SUSPENDED_WORKLOAD, HandoverRecords
from pykai.scheduler.dispatch.suspendrecord import SuspendRecord, SuspendRecordError, SuspendState, placeholder_key
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.intake.placeholderpods import PlaceholderPods
from pykai.scheduler.intake.podintake import PodIntake
from pykai.scheduler.intake.statusassumptions import StatusAssumptions

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SuspendedWorkload:
    """A workload between its eviction and the return of its pods."""

    #: namespace/name of the PodGroup, and its uid
    group: str
    uid: str
    record: SuspendRecord
    #: uids of the pods that leave
    leaving: set[str] = field(default_factory=set)
    #: names of the placeholders in the tables -> the node that they hold, "" if they wait
    placeholders: dict[str, str] = field(default_factory=dict)
    #: while it is resumed: the places that are held, and the pods that have come back for them
    places: HeldPlaces = field(default_factory=HeldPlaces)
    #: uids of pods that came although it is suspended
    early: set[str] = field(default_factory=set)
    #: whether pods of it have taken the place of placeholders
    started: bool = False
    #: attempts to resume it that failed
    failures: int = 0
    #: the end of what it waits for
    timer: asyncio.TimerHandle | None = None

    @property
    def namespace(self) -> str:
        """Of the group, its pods and its owner."""
        return split_key(self.group)[0]

    @property
    def state(self) -> SuspendState:
        """How far it is."""
        return self.record.state

    def describe(self) -> str:
        """The owner, for messages."""
        return f"{self.record.owner.kind} {self.namespace}/{self.record.owner.name}"


class SuspendedWorkloads:
    """All of them.  Lives on the event loop."""

    def __init__(
        self,
        records: HandoverRecords,
        pods_of_group: Callable[[str], Collection[Pod]],
        placeholders: PlaceholderPods,
        binds: BindAssumptions,
        statuses: StatusAssumptions,
        pod_intake: PodIntake,
        tasks: BackgroundTasks,
    ) -> None:
        self._records = records
        self._pods_of_group = pods_of_group
        self._placeholders = placeholders
        self._binds = binds
        self._statuses = statuses
        self._pod_intake = pod_intake
        self._tasks = tasks
        self._workloads: dict[str, SuspendedWorkload] = {}
        #: uid of a PodGroup -> lock held while its record is written or deleted
        self._record_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._workloads)

    def __contains__(self, group: str) -> bool:
        return group in self._workloads

    def get(self, group: str) -> SuspendedWorkload | None:
        """The workload of a PodGroup, None if it is not suspended."""
        return self._workloads.get(group)

    def is_current(self, workload: SuspendedWorkload) -> bool:
        """Whether a workload has not ended while something was waited for."""
        return self._workloads.get(workload.group) is workload

    def add(self, workload: SuspendedWorkload) -> None:
        """Hold a workload."""
        self._workloads[workload.group] = workload

    async def persist(self, workload: SuspendedWorkload) -> str:
        """Write the record; returns why that failed, "" on success."""
        try:
            data = workload.record.encode()
        except SuspendRecordError as error:
            return str(error)
        async with self._record_locks.setdefault(workload.uid, asyncio.Lock()):
            if not self.is_current(workload):
                return "it has ended meanwhile"
            return await self._records.put(SUSPENDED_WORKLOAD, workload.group, workload.uid, data)

    def let_wait(self, workload: SuspendedWorkload) -> None:
        """Let placeholders of all its pods wait for a node, in place of those that have one."""
        self._clear_places(workload)
        workload.record = replace(workload.record, state=SuspendState.SUSPENDED, nodes={}, held_until_ns=0)
        self.add_placeholders(workload)

    def add_placeholders(self, workload: SuspendedWorkload, only: Collection[str] | None = None) -> None:
        """Add placeholders of its pods, or those with these names, to the tables."""
        pods = workload.record.placeholders(workload.group, workload.uid)
        wanted = [pod for pod in pods if only is None or pod.metadata.name in only]
        self._placeholders.add(wanted)
        workload.placeholders.update((pod.metadata.name, "") for pod in wanted)

    def hold_places(self, workload: SuspendedWorkload) -> None:
        """From now on pods that come back may take the places of its placeholders."""
        found = (self._placeholders.get(placeholder_key(workload.group, name)) for name in workload.placeholders)
        workload.places = HeldPlaces(pod for pod in found if pod is not None)

    def drop_placeholders(self, workload: SuspendedWorkload, dropped: Iterable[str]) -> None:
        """Remove placeholders from the tables, with the nodes that they hold."""
        for name in dropped:
            workload.placeholders.pop(name, None)
            key = placeholder_key(workload.group, name)
            self._binds.give_up(key, name, None)
            self._statuses.release_gated(key)
            self._placeholders.remove(key)

    def end(self, workload: SuspendedWorkload, why: str) -> None:
        """Forget a workload: from now on its pods count as they are."""
        if not self.is_current(workload):
            return
        del self._workloads[workload.group]
        log.info("%s is not held as suspended any more: %s", workload.describe(), why)
        self._clear(workload)
        self._tasks.start(self._remove_record(workload), f"end of the record of {workload.describe()}")

    def _clear(self, workload: SuspendedWorkload) -> None:
        if workload.timer is not None:
            workload.timer.cancel()
        self._clear_places(workload)

    def _clear_places(self, workload: SuspendedWorkload) -> None:
        """Hold nothing; pods that have come back count as they are."""
        self.drop_placeholders(workload, list(workload.placeholders))
        places, workload.places = workload.places, HeldPlaces()
        for key in places:
            self._pod_intake.show(key)

    async def _remove_record(self, workload: SuspendedWorkload) -> None:
        async with self._record_locks.setdefault(workload.uid, asyncio.Lock()):
            # The group may have been suspended again meanwhile: the record is that one's.
            current = self._workloads.get(workload.group)
            if current is not None and current.uid == workload.uid:
                return
            await self._records.remove(self._records.name_of(SUSPENDED_WORKLOAD, workload.uid))

    def stop(self) -> None:
        """Forget all: the next leader reads the records."""
        for workload in self._workloads.values():
            self._clear(workload)
        self._workloads.clear()

    def pods_left(self, workload: SuspendedWorkload) -> list[Pod]:
        """The pods that have to leave and have not."""
        return [pod for pod in self._pods_of_group(workload.group) if pod.metadata.uid in workload.leaving]


def key_of(pod: Pod) -> str:
    """namespace/name of a pod."""
    return object_key(pod.metadata.namespace, pod.metadata.name)
