"""Reports workloads of unknown kinds that have several pods: nothing says that these pods belong together.

A kind without a grouper, that no administrator has described, gets a group of minimum 1, so its pods are scheduled one
by one.  The same happens to pods whose owner the pod grouper may not read.  Such an owner gets one event, and so does
the group if there is one for all pods; the event says how to change that (kinds:unknown).

Nothing is read for it: pods and groups are cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import PodGroup
from pykai.kube.events import NORMAL, EventRecorder, InvolvedObject
from pykai.kube.store import Store
from pykai.podgrouper.kinds import GrouperTable, known_grouper
from pykai.podgrouper.kinds.table import WORKLOAD_KINDS
from pykai.podgrouper.metadata import Metadata, Owner
from pykai.podgrouper.owners import controller_reference

#: Owners that are remembered as reported.
_MAX_REMEMBERED: Final = 10_000
#: API group and kind of owners that are not read and whose pods are scheduled one by one on purpose.
_ALONE_ON_PURPOSE: Final = frozenset(
    (("", "Node"), ("", "ReplicationController"), ("apps", "DaemonSet"), ("sparkoperator.k8s.io", "SparkApplication"))
)
_REMEDY: Final = (
    "To start them together, describe the kind in the workload kinds of the pod grouper or by a Karta "
    f"(docs/podgrouper.md), or make a PodGroup yourself and set the annotation {names.SKIP_POD_GROUPER_ANNOTATION}"
)


class UnknownOwner(NamedTuple):
    """An owner whose pods nothing holds together."""

    about: InvolvedObject
    #: why its pods are scheduled one by one
    reason: str


def unknown_owner(
    pod: Pod, owners: tuple[Owner, ...], meta: Metadata, tables: Sequence[GrouperTable]
) -> UnknownOwner | None:
    """The owner of an unknown kind that a pod was grouped by, or that could not be read; None for a known one."""
    if not owners:
        return _unreadable_owner(pod, meta)
    top = next((owner for owner in owners if owner.metadata.uid == meta.owner.uid), None)
    if top is None or is_known(top, tables):
        return None
    about = InvolvedObject(top.api_version, top.kind, top.metadata.namespace, top.metadata.name, top.metadata.uid)
    return UnknownOwner(about, f"the kind {top.kind} of {top.api_version} is unknown to the pod grouper")


def is_known(owner: Owner, tables: Sequence[GrouperTable]) -> bool:
    """Whether a kind has a grouper, or is grouped by default on purpose."""
    group, _, kind = owner.group_version_kind
    rows = (owner.group_version_kind, (group, "*", kind))
    return known_grouper(tables, owner.group_version_kind) is not None or any(row in WORKLOAD_KINDS for row in rows)


def _unreadable_owner(pod: Pod, meta: Metadata) -> UnknownOwner | None:
    reference = controller_reference(pod.metadata.owner_references)
    if reference is None or meta.name != f"pg-{pod.metadata.name}-{pod.metadata.uid}":
        return None
    group = reference.api_version.rpartition("/")[0]
    if (group, reference.kind) in _ALONE_ON_PURPOSE:
        return None
    which = f"{reference.kind} of {reference.api_version}"
    about = InvolvedObject(reference.api_version, reference.kind, pod.metadata.namespace, reference.name, reference.uid)
    return UnknownOwner(about, f"the pod grouper may not read objects of the kind {which}")


class UnknownKindReporter:
    """Reports each such owner once."""

    def __init__(
        self, recorder: EventRecorder, pods: Store[Pod], groups: Store[PodGroup], *, by_owner: str, by_group: str
    ) -> None:
        """`by_owner` and `by_group` are the indexes of pods by their controller's uid and by their group."""
        self._recorder = recorder
        self._pods, self._groups = pods, groups
        self._by_owner, self._by_group = by_owner, by_group
        self._reported: OrderedDict[str, None] = OrderedDict()

    def observe(self, pod: Pod, owners: tuple[Owner, ...], meta: Metadata, tables: Sequence[GrouperTable]) -> None:
        """Report the owner of a pod that was grouped, if its kind is unknown and it has other pods."""
        found = unknown_owner(pod, owners, meta, tables)
        if found is None or found.about.uid in self._reported:
            return
        group_key = object_key(meta.namespace, meta.name)
        if not self._has_other_pods(pod, group_key):
            return
        self._reported[found.about.uid] = None
        if len(self._reported) > _MAX_REMEMBERED:
            self._reported.popitem(last=False)
        text = f"{found.reason}, so its pods are scheduled one by one, without waiting for each other. {_REMEDY}"
        self._recorder.event(found.about, NORMAL, names.EVENT_UNKNOWN_KIND, text)
        group = self._groups.get(group_key)
        if owners and group is not None:
            about = InvolvedObject(
                names.POD_GROUP_API_VERSION, "PodGroup", meta.namespace, meta.name, group.metadata.uid
            )
            self._recorder.event(about, NORMAL, names.EVENT_UNKNOWN_KIND, text)

    def _has_other_pods(self, pod: Pod, group_key: str) -> bool:
        reference = controller_reference(pod.metadata.owner_references)
        near = self._pods.by_index(self._by_owner, reference.uid) if reference is not None else ()
        return any(
            each.metadata.uid != pod.metadata.uid for each in (*near, *self._pods.by_index(self._by_group, group_key))
        )
