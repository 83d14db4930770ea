"""What all kinds of workloads share: name, queue, priority, preemptibility, delays, labels (workloads:DF-1 to DF-12).

A value is looked for on the owners, nearest first, then on the pod, then in the defaults of the owners' kinds, and the
first that can be used wins.  What cannot be used (a priority class that does not exist, a duration that is none) is
passed over, so a slip of the pen never keeps a pod from being grouped.

Subtle: which owners count depends on the grouper.  The default grouper looks at the whole chain; the groupers of known
kinds look at the top owner alone, because its author is who was asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.duration import DurationError, parse_duration
from pykai.api.guarded import TIMESTAMPS
from pykai.podgrouper.constraints import group_constraint
from pykai.podgrouper.metadata import KindDefaults, Metadata, Owner, Readers, Settings
from pykai.podgrouper.ownertext import top_owner_text

_PREEMPTIBILITIES: Final = frozenset(("", names.PREEMPTIBLE, names.NON_PREEMPTIBLE))
#: What belongs to the object it stands on and means nothing on a PodGroup, or would forge what schedulers write there.
_NOT_COPIED: Final = frozenset(
    (names.LAST_APPLIED_ANNOTATION, names.POD_GROUP_ANNOTATION, names.SUBGROUP_LABEL, *TIMESTAMPS)
)


def default_metadata(
    top: Owner,
    pod: Pod,
    owners: tuple[Owner, ...],
    settings: Settings,
    readers: Readers,
    *,
    priority_class: str = names.PRIORITY_CLASS_TRAIN,
) -> Metadata:
    """The group of the top owner; `owners` are those whose word counts, without any the top owner alone."""
    asked = owners or (top,)
    return Metadata(
        namespace=pod.metadata.namespace,
        name=f"pg-{top.metadata.name}-{top.metadata.uid}",
        owner=top.reference(),
        labels=_labels(top, pod),
        annotations=_annotations(top, pod),
        queue=_queue(top, pod, settings),
        priority_class=_priority_class(asked, pod, readers) or priority_class,
        preemptibility=_preemptibility(asked, pod, readers),
        preemption_delay_ns=_duration(asked, pod, names.PREEMPTION_DELAY_ANNOTATION, least_ns=0),
        staleness_grace_ns=_duration(asked, pod, names.STALENESS_GRACE_PERIOD_ANNOTATION, least_ns=None),
        topology=group_constraint(top.metadata.annotations),
    )


def pod_word(pod: Pod, settings: Settings) -> tuple[object, ...]:
    """Everything of a pod that its group may take over from it: pods of equal words make equal groups."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    return (
        labels.get(settings.queue_label),
        labels.get(settings.node_pool_label),
        labels.get(names.PROJECT_LABEL),
        labels.get(names.PRIORITY_CLASS_LABEL),
        labels.get(names.PREEMPTIBILITY_LABEL),
        labels.get(names.USER_LABEL),
        annotations.get(names.USER_ANNOTATION),
        annotations.get(names.PREEMPTION_DELAY_ANNOTATION),
        annotations.get(names.STALENESS_GRACE_PERIOD_ANNOTATION),
        pod.spec.priority_class_name,
    )


def _labels(top: Owner, pod: Pod) -> dict[str, str]:
    labels = {key: value for key, value in top.metadata.labels.items() if key not in _NOT_COPIED}
    user = pod.metadata.labels.get(names.USER_LABEL)
    if user is not None:
        labels.setdefault(names.USER_LABEL, user)
    return labels


def _annotations(top: Owner, pod: Pod) -> dict[str, str]:
    annotations = {names.TOP_OWNER_METADATA_ANNOTATION: top_owner_text(top)}
    user = pod.metadata.annotations.get(names.USER_ANNOTATION)
    if user is not None:
        annotations[names.USER_ANNOTATION] = user
    annotations.update((key, value) for key, value in top.metadata.annotations.items() if key not in _NOT_COPIED)
    return annotations


def _queue(top: Owner, pod: Pod, settings: Settings) -> str:
    for labels in (top.metadata.labels, pod.metadata.labels):
        if settings.queue_label in labels:
            return labels[settings.queue_label]
    project = top.metadata.labels.get(names.PROJECT_LABEL, pod.metadata.labels.get(names.PROJECT_LABEL, ""))
    if not project:
        return names.DEFAULT_QUEUE
    pool = pod.metadata.labels.get(settings.node_pool_label) if settings.node_pool_label else None
    return project if pool is None else f"{project}-{pool}"


def _priority_class(asked: Iterable[Owner], pod: Pod, readers: Readers) -> str:
    own = pod.metadata.labels.get(names.PRIORITY_CLASS_LABEL) or pod.spec.priority_class_name
    for owner in asked:
        candidate = owner.metadata.labels.get(names.PRIORITY_CLASS_LABEL) or own
        if candidate and readers.priority_class_exists(candidate):
            return candidate
    for owner in asked:
        candidate = _kind_defaults(owner, readers).priority_class
        if candidate and readers.priority_class_exists(candidate):
            return candidate
    return ""


def _preemptibility(asked: Iterable[Owner], pod: Pod, readers: Readers) -> str:
    for labels in (*(owner.metadata.labels for owner in asked), pod.metadata.labels):
        said = labels.get(names.PREEMPTIBILITY_LABEL)
        if said is not None and said in _PREEMPTIBILITIES:
            return said
    for owner in asked:
        said = _kind_defaults(owner, readers).preemptibility.lower()
        if said and said in _PREEMPTIBILITIES:
            return said
    return ""


def _kind_defaults(owner: Owner, readers: Readers) -> KindDefaults:
    known = readers.kind_defaults()
    if not known:
        return KindDefaults()
    full = f"{owner.kind}.{owner.group}" if owner.group else owner.kind
    return known.get(full) or known.get(owner.kind) or KindDefaults()


def _duration(asked: Iterable[Owner], pod: Pod, key: str, least_ns: int | None) -> int | None:
    for source in (*(owner.metadata.annotations for owner in asked), pod.metadata.annotations):
        text = source.get(key)
        if text is None:
            continue
        try:
            value = parse_duration(text)
        except DurationError:
            continue
        if least_ns is None or value >= least_ns:
            return value
    return None
