"""What all kinds of workloads share: name, queue, priority, preemptibility, delays, labels (workloads:DF-1 to DF-12).

A value is looked up on the owners, nearest first, then on the pod, then in the defaults of the owners' kinds; the first
usable one wins.  An unusable value (a priority class that does not exist, an invalid duration) is ignored, so a typo
never keeps a pod from being grouped; `Metadata.problems` lists it, with what is used instead.

Subtle: which owners count depends on the grouper.  The default grouper reads the whole chain; the groupers of known
kinds read the top owner alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.duration import DurationError, parse_duration
from pykai.api.guardedfields import TIMESTAMPS
from pykai.core.model.problems import Problem
from pykai.podgrouper.constraints import group_constraint
from pykai.podgrouper.metadata import GroupingSettings, KindDefaults, Metadata, Owner, Readers
from pykai.podgrouper.topowner import top_owner_text

PREEMPTIBILITIES: Final = frozenset(("", names.PREEMPTIBLE, names.NON_PREEMPTIBLE))
_CLASS: Final = "priority class"
#: Keys that concern only their own object and mean nothing on a PodGroup, or would forge what schedulers write there.
_NOT_COPIED: Final = frozenset(
    (
        names.LAST_APPLIED_ANNOTATION,
        names.POD_GROUP_ANNOTATION,
        names.SUBGROUP_LABEL,
        names.MADE_FROM_ANNOTATION,
        # Kueue stops the workload, not the group (kueue:stopping).
        names.KUEUE_STOPPING_ANNOTATION,
        # A scheduler says it of the workload (suspend:owner).
        names.SUSPENDED_BY_ANNOTATION,
        *TIMESTAMPS,
    )
)


_NO_POD: Final = Pod()


class _IgnoredValue(NamedTuple):
    """A value that was ignored."""

    #: the name of the field
    setting: str
    subject: str
    field: str
    reason: str


def default_metadata(
    top: Owner,
    pod: Pod,
    owners: tuple[Owner, ...],
    settings: GroupingSettings,
    readers: Readers,
    *,
    priority_class: str = names.PRIORITY_CLASS_TRAIN,
) -> Metadata:
    """The group of the top owner; values are looked up on `owners`, or on the top owner alone if there are none."""
    consulted_owners = owners or (top,)
    ignored: list[_IgnoredValue] = []
    used_class = _priority_class(consulted_owners, pod, settings, readers, ignored) or priority_class
    used_preemptibility = _preemptibility(consulted_owners, pod, readers, ignored)
    delay_ns = _duration(consulted_owners, pod, names.PREEMPTION_DELAY_ANNOTATION, 0, ignored)
    grace_ns = _duration(consulted_owners, pod, names.STALENESS_GRACE_PERIOD_ANNOTATION, None, ignored)
    return Metadata(
        namespace=pod.metadata.namespace,
        name=f"pg-{top.metadata.name}-{top.metadata.uid}",
        owner=top.reference(),
        labels=_labels(top, pod),
        annotations=_annotations(top, pod),
        queue=_queue(top, pod, settings, readers),
        priority_class=used_class,
        preemptibility=used_preemptibility,
        preemption_delay_ns=delay_ns,
        staleness_grace_ns=grace_ns,
        topology=group_constraint(top.metadata.annotations),
        problems=_problems(ignored, used_class, used_preemptibility, delay_ns, grace_ns) if ignored else (),
    )


def overridden_by(
    meta: Metadata, owner: Owner, priority_class: str, settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group with what one more object says, which wins over owners and pod (workloads:NW-2).

    `priority_class` is the one that its spec names.
    """
    ignored: list[_IgnoredValue] = []
    used_class = _priority_class((owner,), _NO_POD, settings, readers, ignored) or meta.priority_class
    if priority_class and readers.priority_class_exists(priority_class):
        used_class = priority_class
    elif priority_class:
        reason = f"priority class {priority_class!r} does not exist"
        ignored.append(_IgnoredValue(_CLASS, _owner_subject(owner), "spec.priorityClassName", reason))
    preemptibility = _preemptibility((owner,), _NO_POD, readers, ignored) or meta.preemptibility
    delay_ns = _duration((owner,), _NO_POD, names.PREEMPTION_DELAY_ANNOTATION, 0, ignored)
    grace_ns = _duration((owner,), _NO_POD, names.STALENESS_GRACE_PERIOD_ANNOTATION, None, ignored)
    delay_ns = meta.preemption_delay_ns if delay_ns is None else delay_ns
    grace_ns = meta.staleness_grace_ns if grace_ns is None else grace_ns
    topology = group_constraint(owner.metadata.annotations)
    return replace(
        meta,
        labels={**meta.labels, **_copied(owner.metadata.labels)},
        annotations={**meta.annotations, **_copied(owner.metadata.annotations)},
        queue=owner.metadata.labels.get(settings.queue_label, meta.queue),
        priority_class=used_class,
        preemptibility=preemptibility,
        preemption_delay_ns=delay_ns,
        staleness_grace_ns=grace_ns,
        topology=topology if topology.topology else meta.topology,
        problems=meta.problems + _problems(ignored, used_class, preemptibility, delay_ns, grace_ns),
    )


def _copied(entries: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in entries.items() if key not in _NOT_COPIED}


def _problems(
    ignored: Iterable[_IgnoredValue], used_class: str, preemptibility: str, delay_ns: int | None, grace_ns: int | None
) -> tuple[Problem, ...]:
    """What was ignored, and what is used instead."""
    instead = {
        _CLASS: f"class {used_class!r} is used",
        names.PREEMPTIBILITY_LABEL: f"{preemptibility!r} is used" if preemptibility else "the priority decides",
        names.PREEMPTION_DELAY_ANNOTATION: "no delay is used" if delay_ns is None else f"{_seconds(delay_ns)} are used",
        names.STALENESS_GRACE_PERIOD_ANNOTATION: (
            "the scheduler's default is used" if grace_ns is None else f"{_seconds(grace_ns)} are used"
        ),
    }
    return tuple(
        Problem(each.subject, each.field, f"{each.reason}; {instead[each.setting]}") for each in dict.fromkeys(ignored)
    )


def _seconds(span_ns: int) -> str:
    return f"{span_ns / 1e9:g} seconds"


def _owner_subject(owner: Owner) -> str:
    return f"{owner.kind}/{owner.metadata.namespace}/{owner.metadata.name}"


def _pod_subject(pod: Pod) -> str:
    return f"Pod/{pod.metadata.namespace}/{pod.metadata.name}"


def inherited_fields(pod: Pod, settings: GroupingSettings) -> tuple[object, ...]:
    """Every field of a pod that its group may inherit: pods with equal fields make equal groups."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    return (
        labels.get(settings.queue_label),
        labels.get(settings.node_pool_label),
        labels.get(names.PROJECT_LABEL),
        labels.get(names.PRIORITY_CLASS_LABEL),
        labels.get(names.KUEUE_PRIORITY_CLASS_LABEL),
        labels.get(names.PREEMPTIBILITY_LABEL),
        labels.get(names.USER_LABEL),
        annotations.get(names.USER_ANNOTATION),
        annotations.get(names.PREEMPTION_DELAY_ANNOTATION),
        annotations.get(names.STALENESS_GRACE_PERIOD_ANNOTATION),
        pod.spec.priority_class_name,
    )


def _labels(top: Owner, pod: Pod) -> dict[str, str]:
    labels = _copied(top.metadata.labels)
    user = pod.metadata.labels.get(names.USER_LABEL)
    if user is not None:
        labels.setdefault(names.USER_LABEL, user)
    return labels


def _annotations(top: Owner, pod: Pod) -> dict[str, str]:
    annotations = {names.TOP_OWNER_METADATA_ANNOTATION: top_owner_text(top)}
    user = pod.metadata.annotations.get(names.USER_ANNOTATION)
    if user is not None:
        annotations[names.USER_ANNOTATION] = user
    annotations.update(_copied(top.metadata.annotations))
    return annotations


def _queue(top: Owner, pod: Pod, settings: GroupingSettings, readers: Readers) -> str:
    """The queue of a workload; one that names none gets that of its namespace (access:default-queue)."""
    for labels in (top.metadata.labels, pod.metadata.labels):
        if settings.queue_label in labels:
            return labels[settings.queue_label]
    project = top.metadata.labels.get(names.PROJECT_LABEL, pod.metadata.labels.get(names.PROJECT_LABEL, ""))
    if not project:
        return readers.default_queue(pod.metadata.namespace) or names.DEFAULT_QUEUE
    pool = pod.metadata.labels.get(settings.node_pool_label) if settings.node_pool_label else None
    return project if pool is None else f"{project}-{pool}"


def _class_label(labels: Mapping[str, str], settings: GroupingSettings) -> tuple[str, str]:
    """The priority class that labels name, and the field that does; empty for none."""
    for key in (names.PRIORITY_CLASS_LABEL, names.KUEUE_PRIORITY_CLASS_LABEL)[: 1 + settings.kueue_priority_classes]:
        if named := labels.get(key):
            return named, f"metadata.labels[{key}]"
    return "", ""


# Kueue's label counts where it is to be read (kueue:priority).
def _priority_class(
    consulted_owners: Iterable[Owner],
    pod: Pod,
    settings: GroupingSettings,
    readers: Readers,
    ignored: list[_IgnoredValue],
) -> str:
    own, own_field = _class_label(pod.metadata.labels, settings)
    if not own:
        own, own_field = pod.spec.priority_class_name, "spec.priorityClassName"
    for owner in consulted_owners:
        named, named_field = _class_label(owner.metadata.labels, settings)
        candidate = named or own
        if candidate and readers.priority_class_exists(candidate):
            return candidate
        if candidate:
            subject = _owner_subject(owner) if named else _pod_subject(pod)
            field = named_field or own_field
            ignored.append(_IgnoredValue(_CLASS, subject, field, f"priority class {candidate!r} does not exist"))
    for owner in consulted_owners:
        candidate = kind_defaults_of(owner, readers).priority_class
        if candidate and readers.priority_class_exists(candidate):
            return candidate
    return ""


# Owners first, then the pod, then the default of the kind (queues:Q-83).
def _preemptibility(consulted_owners: Iterable[Owner], pod: Pod, readers: Readers, ignored: list[_IgnoredValue]) -> str:
    key = names.PREEMPTIBILITY_LABEL
    for subject, labels in (
        *((_owner_subject(owner), owner.metadata.labels) for owner in consulted_owners),
        (_pod_subject(pod), pod.metadata.labels),
    ):
        value = labels.get(key)
        if value is not None and value in PREEMPTIBILITIES:
            return value
        if value is not None:
            wrong = f"{value!r} is neither {names.PREEMPTIBLE} nor {names.NON_PREEMPTIBLE}"
            ignored.append(_IgnoredValue(key, subject, f"metadata.labels[{key}]", wrong))
    for owner in consulted_owners:
        value = kind_defaults_of(owner, readers).preemptibility.lower()
        if value and value in PREEMPTIBILITIES:
            return value
    return ""


def kind_defaults_of(owner: Owner, readers: Readers) -> KindDefaults:
    """The entry of the owner's kind in the defaults ConfigMap."""
    defaults_by_kind = readers.kind_defaults()
    if not defaults_by_kind:
        return KindDefaults()
    full = f"{owner.kind}.{owner.group}" if owner.group else owner.kind
    return defaults_by_kind.get(full) or defaults_by_kind.get(owner.kind) or KindDefaults()


# The first owner with a usable value wins, then the pod (queues:Q-320).
def _duration(
    consulted_owners: Iterable[Owner], pod: Pod, key: str, lower_bound_ns: int | None, ignored: list[_IgnoredValue]
) -> int | None:
    for subject, source in (
        *((_owner_subject(owner), owner.metadata.annotations) for owner in consulted_owners),
        (_pod_subject(pod), pod.metadata.annotations),
    ):
        text = source.get(key)
        if text is None:
            continue
        try:
            value = parse_duration(text)
        except DurationError as error:
            ignored.append(_IgnoredValue(key, subject, f"metadata.annotations[{key}]", str(error)))
            continue
        if lower_bound_ns is None or value >= lower_bound_ns:
            return value
        ignored.append(_IgnoredValue(key, subject, f"metadata.annotations[{key}]", f"{text!r} is negative"))
    return None
