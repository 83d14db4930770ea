"""Gangs being bound, from the first write to the last: complete, or evicted again.

A `GangPlan` is open from the moment several pods of a group are to be bound until each of them is settled: seen on its
node, gone, or refused for good.  Its text is kept in a record all that time (`bindplan`), so that a scheduler that
takes over finds it.  When all are settled and the group has its minimum, the plan is done; if the minimum is missing,
what was bound is evicted again.

This module only tracks what is open, settled and left; `gangbinding` writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key, split_key
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.core.model.groups import build_subgroup_tree
from pykai.scheduler.dispatch.bindplan import PendingBind, encode_plan, has_minimum


@dataclass(slots=True)
class GangPlan:
    """The pods of one group that are being bound."""

    #: namespace/name of the PodGroup, and its uid
    key: str
    uid: str
    #: pod name -> its place, while it is not settled
    in_flight: dict[str, PendingBind] = field(default_factory=dict)
    #: names of open pods of which nothing has been written yet
    unwritten: set[str] = field(default_factory=set)
    #: pods on their nodes
    bound: dict[str, PendingBind] = field(default_factory=dict)
    #: pod name -> why it will not be bound
    failed: dict[str, str] = field(default_factory=dict)
    #: the content of the record, as far as we know; "" = there is none
    recorded_text: str = ""
    #: whether there may be a record
    may_be_recorded: bool = False
    #: causes for which binds of this plan have failed, each counted once (`failedbinds`)
    counted_causes: set[str] = field(default_factory=set)

    @property
    def namespace(self) -> str:
        """The namespace of the group and its pods."""
        return split_key(self.key)[0]

    def add(self, entries: Iterable[PendingBind]) -> None:
        """Add pods of the group."""
        for entry in entries:
            self.in_flight[entry.pod] = entry
            self.unwritten.add(entry.pod)
            self.bound.pop(entry.pod, None)
            self.failed.pop(entry.pod, None)

    def encode(self) -> str:
        """The text for the record."""
        return encode_plan(self.in_flight.values())

    def mark_bound(self, name: str) -> None:
        """Record that a pod is on its node."""
        entry = self.in_flight.pop(name, None)
        if entry is not None:
            self.bound[name] = entry

    def mark_failed(self, entry: PendingBind, why: str) -> None:
        """Record that a pod will not be bound as planned, unless it has another place by now."""
        if self.in_flight.get(entry.pod) is entry:
            del self.in_flight[entry.pod]
            self.failed[entry.pod] = why

    def on_pod(self, name: str, pod: Pod | None) -> None:
        """Handle a change of a pod, None if it is deleted."""
        entry = self.in_flight.get(name)
        if entry is None:
            return
        if pod is None or pod.metadata.uid != entry.uid:
            self.mark_failed(entry, "the pod is gone")
        elif pod.spec.node_name == entry.node:
            self.mark_bound(name)
        elif pod.spec.node_name:
            self.mark_failed(entry, f"the pod is on node {pod.spec.node_name}")

    def on_request(self, request: BindRequest) -> None:
        """Handle a change of a BindRequest."""
        entry = self.in_flight.get(request.spec.pod_name)
        if entry is not None and entry.request is not None and binder_gave_up(request):
            owners = {owner.uid for owner in request.metadata.owner_references}
            if entry.uid in owners and request.spec.selected_node == entry.node:
                self.mark_failed(entry, request.status.reason or "the binder gave up")

    @property
    def is_settled(self) -> bool:
        """Whether nothing is open."""
        return not self.in_flight


def binder_gave_up(request: BindRequest) -> bool:
    """Whether the binder has given up on a request (cycle:SNP-7)."""
    limit = request.spec.backoff_limit
    return request.status.phase == names.BIND_FAILED and (limit is None or request.status.failed_attempts >= limit)


def is_bound_and_active(pod: Pod) -> bool:
    """Whether a pod is on a node and not terminating."""
    return bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None and pod.status.phase != "Succeeded"


def reaches_minimum(
    group: PodGroup, pods: Iterable[Pod], is_being_bound: Callable[[Pod], bool] = lambda _: False
) -> bool:
    """Whether the pods of a group that have a node reach its minimum; one with finished work does."""
    active: Counter[str] = Counter()
    for pod in pods:
        if pod.status.phase == "Succeeded":
            return True
        if is_bound_and_active(pod) or is_being_bound(pod):
            active[pod.metadata.labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_SUBGROUP] += 1
    root, _ = build_subgroup_tree(group)
    return has_minimum(root, active)


def group_key(pod: Pod) -> str:
    """namespace/name of the PodGroup of a pod, "" without one."""
    name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
    return object_key(pod.metadata.namespace, name) if name else ""
