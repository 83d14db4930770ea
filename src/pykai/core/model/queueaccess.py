"""Which namespaces may use a queue, as annotations of the queue say.

    kai.scheduler/allowed-namespaces: "vision, speech"            names, or * alone for every namespace
    kai.scheduler/allowed-namespace-selector: "department=ml"     labels of the namespace, as in kubectl -l

A namespace may use the queue if either allows it.  A queue without them is open to every namespace, as in KAI
Scheduler.  A list that cannot be read allows none: an open queue would be the wrong guess about what an administrator
meant (access:broken).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pykai.api import names
from pykai.api.labelselectors import LabelSelectorError, read_label_selector
from pykai.api.meta import LabelSelector
from pykai.core.model.affinityterms import selector_matches

#: stands for every namespace
EVERY_NAMESPACE: Final = "*"
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAMESPACE: Final = 63
#: of a wrong name, as much as a message shows
_SHOWN: Final = 80


class QueueAccessError(ValueError):
    """An annotation of a queue cannot be read; the message says which, and what is wrong."""

    def __init__(self, annotation: str, text: str) -> None:
        self.annotation = annotation
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class QueueAccess:
    """The namespaces that may use a queue."""

    namespaces: frozenset[str] = frozenset()
    every_namespace: bool = False
    selector: LabelSelector | None = None
    #: the annotation that cannot be read, and why; both empty if all can
    broken_annotation: str = ""
    fault: str = ""

    def allows(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Whether a namespace may use the queue; `labels` are None where they are not known (access:lists)."""
        if self.fault:
            return False
        if self.every_namespace or namespace in self.namespaces:
            return True
        return labels is not None and selector_matches(self.selector, labels)


def access_texts(annotations: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The two annotations of a queue that decide about access, as they are."""
    return (
        annotations.get(names.ALLOWED_NAMESPACES_ANNOTATION),
        annotations.get(names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION),
    )


def parse_queue_access(annotations: Mapping[str, str]) -> QueueAccess | None:
    """The namespaces that may use a queue with these annotations, None if it is open; raises `QueueAccessError`."""
    listed, selector = access_texts(annotations)
    if listed is None and selector is None:
        return None
    allowed = _namespace_names(listed) if listed is not None else frozenset()
    return QueueAccess(
        allowed - {EVERY_NAMESPACE}, EVERY_NAMESPACE in allowed, _selector(selector) if selector is not None else None
    )


def read_queue_access(annotations: Mapping[str, str]) -> QueueAccess | None:
    """The same; an annotation that cannot be read closes the queue (access:broken)."""
    try:
        return parse_queue_access(annotations)
    except QueueAccessError as error:
        return QueueAccess(broken_annotation=error.annotation, fault=str(error))


def _namespace_names(text: str) -> frozenset[str]:
    listed = [each.strip() for each in text.split(",")]
    key = names.ALLOWED_NAMESPACES_ANNOTATION
    if listed == [""]:
        raise QueueAccessError(
            key, "the list is empty; name the namespaces, or remove the annotation to open the queue"
        )
    for each in listed:
        if each == EVERY_NAMESPACE:
            if len(listed) > 1:
                raise QueueAccessError(key, "* stands for every namespace and must be the only entry")
        elif len(each) > _LONGEST_NAMESPACE or _NAMESPACE.fullmatch(each) is None:
            shown = repr(each if len(each) <= _SHOWN else f"{each[:_SHOWN]}...")
            raise QueueAccessError(key, f"{shown} is not the name of a namespace; separate names by commas")
    return frozenset(listed)


def _selector(text: str) -> LabelSelector:
    try:
        return read_label_selector(text)
    except LabelSelectorError as error:
        raise QueueAccessError(
            names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION, f"{error}; write it as for kubectl -l"
        ) from None
