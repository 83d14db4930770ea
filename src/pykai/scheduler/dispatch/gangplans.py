"""Gangs on their way to their nodes, from the first write to the last: whole, or given back.

A `GangPlan` is open from the moment several pods of a group are to be bound until each of them is settled: seen on its
node, gone, or refused for good.  Its text is kept in a record all that time (`bindplan`), so that a scheduler that
takes over finds it.  When all are settled and the group has its minimum, the plan is done; if the minimum is missing,
what was bound is evicted again.

This module is bookkeeping only: what is open, who is settled, what is left.  `gangbinding` does the writing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.core.model.groups import build_subgroup_tree
from pykai.scheduler.dispatch.bindplan import Planned, encode_plan, whole


@dataclass(slots=True)
class GangPlan:
    """The pods of one group that are being bound."""

    #: namespace/name of the PodGroup, and its uid
    key: str
    uid: str
    #: pod name -> its place, while it is not settled
    open: dict[str, Planned] = field(default_factory=dict)
    #: names of open pods of which nothing has been written yet
    unwritten: set[str] = field(default_factory=set)
    #: pods on their nodes
    bound: dict[str, Planned] = field(default_factory=dict)
    #: pod name -> why it will not be bound
    lost: dict[str, str] = field(default_factory=dict)
    #: what the record says, as far as we know; "" = there is none
    text: str = ""
    #: whether there may be a record
    recorded: bool = False
    #: what binds of this plan have failed for, each counted once (`failedbinds`)
    causes: set[str] = field(default_factory=set)

    @property
    def namespace(self) -> str:
        """The namespace of the group and its pods."""
        return self.key.partition("/")[0]

    def add(self, entries: Iterable[Planned]) -> None:
        """More pods of the group."""
        for entry in entries:
            self.open[entry.pod] = entry
            self.unwritten.add(entry.pod)
            self.bound.pop(entry.pod, None)
            self.lost.pop(entry.pod, None)

    def encoded(self) -> str:
        """What the record should say."""
        return encode_plan(self.open.values())

    def placed(self, name: str) -> None:
        """A pod is on its node."""
        entry = self.open.pop(name, None)
        if entry is not None:
            self.bound[name] = entry

    def lose(self, entry: Planned, why: str) -> None:
        """A pod will not be bound as planned, unless it has another place by now."""
        if self.open.get(entry.pod) is entry:
            del self.open[entry.pod]
            self.lost[entry.pod] = why

    def saw_pod(self, name: str, pod: Pod | None) -> None:
        """News of a pod, None when it is gone."""
        entry = self.open.get(name)
        if entry is None:
            return
        if pod is None or pod.metadata.uid != entry.uid:
            self.lose(entry, "the pod is gone")
        elif pod.spec.node_name == entry.node:
            self.placed(name)
        elif pod.spec.node_name:
            self.lose(entry, f"the pod is on node {pod.spec.node_name}")

    def saw_request(self, request: BindRequest) -> None:
        """News of a BindRequest."""
        entry = self.open.get(request.spec.pod_name)
        if entry is not None and entry.request is not None and given_up(request):
            owners = {owner.uid for owner in request.metadata.owner_references}
            if entry.uid in owners and request.spec.selected_node == entry.node:
                self.lose(entry, request.status.reason or "the binder gave up")

    @property
    def settled(self) -> bool:
        """Whether nothing is open."""
        return not self.open


def given_up(request: BindRequest) -> bool:
    """Whether the binder has given up on a request (cycle:SNP-7)."""
    limit = request.spec.backoff_limit
    return request.status.phase == names.BIND_FAILED and (limit is None or request.status.failed_attempts >= limit)


def holds_node(pod: Pod) -> bool:
    """Whether a pod is on a node to stay."""
    return bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None and pod.status.phase != "Succeeded"


def is_whole(group: PodGroup, pods: Iterable[Pod], on_its_way: Callable[[Pod], bool] = lambda _: False) -> bool:
    """Whether the pods of a group that have a node reach its minimum; one that has finished part of its work does."""
    active: Counter[str] = Counter()
    for pod in pods:
        if pod.status.phase == "Succeeded":
            return True
        if holds_node(pod) or on_its_way(pod):
            active[pod.metadata.labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_SUBGROUP] += 1
    root, _ = build_subgroup_tree(group)
    return whole(root, active)
