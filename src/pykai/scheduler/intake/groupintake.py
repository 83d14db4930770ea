"""PodGroups on their way into the tables: with our unseen notes overlaid, and with the effective start time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pykai.api.scheduling import PodGroup, SchedulingCondition
from pykai.core.report.decisions import FreeRoomOnly
from pykai.kube.store import Change, Store
from pykai.scheduler.intake.assumptions import AssumptionEvent, AssumptionState
from pykai.scheduler.intake.changes import group_differs
from pykai.scheduler.intake.operationqueue import OperationQueue
from pykai.scheduler.intake.operations import ApplyObject, SetFreeRoomOnly, remove_by_key
from pykai.scheduler.intake.overlays import GroupOverlay, apply_overlay, overlay_is_observed
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
        self._overlays: dict[str, GroupOverlay] = {}

    def on_change(self, change: Change[PodGroup]) -> None:
        """Handle a change of a PodGroup."""
        key, group = change.key, change.new
        overlay = old_overlay = self._overlays.get(key)
        if group is None:
            if overlay is not None:
                self._end(overlay, AssumptionEvent.OBJECT_GONE)
            self._start_times.forget(key)
            self._problems.record(f"PodGroup/{key}", ())
            self._queue.add(remove_by_key("PodGroup", key))
            return
        if overlay is not None:
            if overlay.uid != group.metadata.uid:
                overlay = self._end(overlay, AssumptionEvent.OBJECT_GONE)
            elif overlay_is_observed(overlay, group.metadata):
                overlay = self._end(overlay, AssumptionEvent.OBSERVED)
        overlaid = apply_overlay(group, overlay)
        if change.old is None or group_differs(apply_overlay(change.old, old_overlay), overlaid):
            self._queue.add(ApplyObject(self._sanitise(overlaid)))

    def _end(self, overlay: GroupOverlay, event: AssumptionEvent) -> GroupOverlay | None:
        """Apply an event that ends an overlay; returns the rest of it."""
        if not overlay.advance(event):
            return overlay
        del self._overlays[overlay.key]
        return None

    def apply(self, key: str) -> None:
        """Apply a PodGroup again: the start times of its pods have changed."""
        if (group := self.overlaid(key)) is not None:
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
            yield self._sanitise(apply_overlay(group, self._overlays.get(key)))

    def overlaid(self, key: str) -> PodGroup | None:
        """A PodGroup with our own unseen writes overlaid."""
        group = self._groups.get(key)
        return None if group is None else apply_overlay(group, self._overlays.get(key))

    def overlay(
        self,
        key: str,
        part: str,
        annotations: Mapping[str, str | None] | None = None,
        conditions: list[SchedulingCondition] | None = None,
    ) -> bool:
        """Overlay a part of a PodGroup that is about to be written.  False if the group is gone."""
        group = self._groups.get(key)
        if group is None:
            return False
        overlay = self._overlays.get(key)
        if overlay is not None and overlay.uid != group.metadata.uid:
            overlay = self._end(overlay, AssumptionEvent.OBJECT_GONE)
        if overlay is None:
            overlay = self._overlays[key] = GroupOverlay(key, AssumptionState.DECIDED, group.metadata.uid)
        else:
            overlay.advance(AssumptionEvent.DECIDED_AGAIN)
        before = apply_overlay(group, overlay)
        overlay.annotations.update(annotations or {})
        if conditions is not None:
            overlay.conditions = conditions
        overlay.parts_in_flight.add(part)
        after = apply_overlay(group, overlay)
        if group_differs(before, after):
            # No new cycle: the cycle that decided this already used it.
            self._queue.add_quietly(ApplyObject(self._sanitise(after)))
        return True

    def on_overlay_written(self, key: str, uid: str, part: str, resource_version: str) -> None:
        """All writes on a part of a PodGroup were answered, the last with this version; "" if it failed for good."""
        overlay = self._overlays.get(key)
        if overlay is None or overlay.uid != uid:
            return
        overlay.parts_in_flight.discard(part)
        if resource_version.isdecimal():
            overlay.written_version = max(overlay.written_version, int(resource_version))
        group = self._groups.get(key)
        if group is None or overlay.parts_in_flight:
            return
        left = self._end(overlay, AssumptionEvent.ACCEPTED if overlay.written_version else AssumptionEvent.REFUSED)
        if left is not None and overlay_is_observed(overlay, group.metadata):
            left = self._end(overlay, AssumptionEvent.OBSERVED)
        if left is None and group_differs(apply_overlay(group, overlay), group):
            self._queue.add(ApplyObject(self._sanitise(group)))

    def set_free_room_only(self, key: str, why: FreeRoomOnly | None) -> None:
        """Make a group free room only; None ends that."""
        if why is not None:
            self.free_room_only[key] = why
        elif self.free_room_only.pop(key, None) is None:
            return
        self._queue.add(SetFreeRoomOnly(key, why))
