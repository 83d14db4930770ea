"""PodGroups on their way into the tables: with our unseen patches applied, and with the effective start time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pykai.api.scheduling import PodGroup, SchedulingCondition
from pykai.core.report.decisions import FreeRoomOnly
from pykai.kube.store import Change, Store
from pykai.scheduler.intake.assumptions import AssumptionEvent, AssumptionState
from pykai.scheduler.intake.changes import group_differs
from pykai.scheduler.intake.grouppatches import AssumedGroupPatch, apply_patch, is_patch_observed
from pykai.scheduler.intake.operationqueue import OperationQueue
from pykai.scheduler.intake.operations import ApplyObject, SetFreeRoomOnly, remove_by_key
from pykai.scheduler.sanitising.problems import SanitisingProblems
from pykai.scheduler.sanitising.starttimes import StartTimeSanitiser


class GroupIntake:
    """Keeps the PodGroups of the tables current.  Lives on the event loop."""

    def __init__(
        self,
        groups: Store[PodGroup],
        start_times: StartTimeSanitiser,
        problems: SanitisingProblems,
        queue: OperationQueue,
    ) -> None:
        #: PodGroups that may use free resources only
        self.free_room_only: dict[str, FreeRoomOnly] = {}
        self._groups = groups
        self._start_times = start_times
        self._problems = problems
        self._queue = queue
        self._patches: dict[str, AssumedGroupPatch] = {}

    def on_change(self, change: Change[PodGroup]) -> None:
        """Handle a change of a PodGroup."""
        key, group = change.key, change.new
        patch = old_patch = self._patches.get(key)
        if group is None:
            if patch is not None:
                self._end(patch, AssumptionEvent.OBJECT_GONE)
            self._start_times.forget(key)
            self._problems.record(f"PodGroup/{key}", ())
            self._queue.add(remove_by_key("PodGroup", key))
            return
        if patch is not None:
            if patch.uid != group.metadata.uid:
                patch = self._end(patch, AssumptionEvent.OBJECT_GONE)
            elif is_patch_observed(patch, group.metadata):
                patch = self._end(patch, AssumptionEvent.OBSERVED)
        patched = apply_patch(group, patch)
        if change.old is None or group_differs(apply_patch(change.old, old_patch), patched):
            self._queue.add(ApplyObject(self._sanitise(patched)))

    def _end(self, patch: AssumedGroupPatch, event: AssumptionEvent) -> AssumedGroupPatch | None:
        """Apply an event that ends a patch; returns the rest of it."""
        if not patch.advance(event):
            return patch
        del self._patches[patch.key]
        return None

    def apply(self, key: str) -> None:
        """Apply a PodGroup again: the start times of its pods have changed."""
        if (group := self.with_patch(key)) is not None:
            self._queue.add(ApplyObject(self._sanitise(group)))

    def _sanitise(self, group: PodGroup) -> PodGroup:
        """A PodGroup with its effective start time."""
        sanitised, problems = self._start_times.sanitise(group)
        if problems or self._problems:
            self._problems.record(f"PodGroup/{group.metadata.namespace}/{group.metadata.name}", problems)
        return sanitised

    def objects(self) -> Iterator[PodGroup]:
        """The PodGroups of the tables, without stand-ins."""
        for key, group in zip(self._groups.keys(), self._groups.values(), strict=True):
            yield self._sanitise(apply_patch(group, self._patches.get(key)))

    def with_patch(self, key: str) -> PodGroup | None:
        """A PodGroup with our unseen patch applied."""
        group = self._groups.get(key)
        return None if group is None else apply_patch(group, self._patches.get(key))

    def assume_patch(
        self,
        key: str,
        part: str,
        annotations: Mapping[str, str | None] | None = None,
        conditions: list[SchedulingCondition] | None = None,
    ) -> bool:
        """Assume a patch of a part of a PodGroup that is about to be written.  False if the group is gone."""
        group = self._groups.get(key)
        if group is None:
            return False
        patch = self._patches.get(key)
        if patch is not None and patch.uid != group.metadata.uid:
            patch = self._end(patch, AssumptionEvent.OBJECT_GONE)
        if patch is None:
            patch = self._patches[key] = AssumedGroupPatch(key, AssumptionState.DECIDED, group.metadata.uid)
        else:
            patch.advance(AssumptionEvent.DECIDED_AGAIN)
        before = apply_patch(group, patch)
        patch.annotations.update(annotations or {})
        if conditions is not None:
            patch.conditions = conditions
        patch.parts_in_flight.add(part)
        after = apply_patch(group, patch)
        if group_differs(before, after):
            # No new cycle: the cycle that decided this already used it.
            self._queue.add_quietly(ApplyObject(self._sanitise(after)))
        return True

    def on_patch_written(self, key: str, uid: str, part: str, resource_version: str) -> None:
        """All writes on a part of a PodGroup were answered, the last with this version; "" if it failed for good."""
        patch = self._patches.get(key)
        if patch is None or patch.uid != uid:
            return
        patch.parts_in_flight.discard(part)
        if resource_version.isdecimal():
            patch.written_version = max(patch.written_version, int(resource_version))
        group = self._groups.get(key)
        if group is None or patch.parts_in_flight:
            return
        left = self._end(patch, AssumptionEvent.ACCEPTED if patch.written_version else AssumptionEvent.REFUSED)
        if left is not None and is_patch_observed(patch, group.metadata):
            left = self._end(patch, AssumptionEvent.OBSERVED)
        if left is None and group_differs(apply_patch(group, patch), group):
            self._queue.add(ApplyObject(self._sanitise(group)))

    def set_free_room_only(self, key: str, why: FreeRoomOnly | None) -> None:
        """Make a group free room only; None ends that."""
        if why is not None:
            self.free_room_only[key] = why
        elif self.free_room_only.pop(key, None) is None:
            return
        self._queue.add(SetFreeRoomOnly(key, why))
