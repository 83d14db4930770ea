"""What counts before the cluster shows it, and how that ends: one state machine for all of our writes.

The next cycle builds on the decisions of the last one, although the API server has not answered and no watch has shown
them.  Such an assumption is about one of five writes:

- a bind: the tables see a BindRequest for the pod, whether one is written or the pod is bound directly;
- a withdrawal: a BindRequest that we delete no longer counts, once it is known that its pod was not bound;
- an eviction: the pod counts as leaving (cycle:SNP-17, Do better), and names the group that it makes room for;
- an admission: the gate of its queue is removed from the pod, which holds a reservation (queues:Q-406);
- a patch: timestamps and conditions of a PodGroup count as written (cycle:EXP-16).

`TRANSITIONS` is the whole machine; docs/scheduler.md shows it.  The holders of assumptions (`bindassumptions`,
`pendingevictions`, `pendingadmissions`, `grouppatches`) find the assumption that an event is about by the uid of its
object, and a bind also by its node, so that stale events do not reach it.  An event that the table does not list is
logged as an error and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

log = logging.getLogger(__name__)


class AssumptionKind(Enum):
    """The write that an assumption is about."""

    BIND = "bind"
    WITHDRAWAL = "withdrawal"
    EVICTION = "eviction"
    ADMISSION = "admission"
    PATCH = "patch"


class AssumptionState(Enum):
    """How far a write is."""

    #: it counts; the server has not answered
    DECIDED = "decided"
    #: the server may have carried it out: the object has to be read
    IN_DOUBT = "in doubt"
    #: the server has accepted it; the watch does not show it yet
    WRITTEN = "written"
    #: the pod is in deletion
    LEAVING = "leaving"
    #: the watch shows it: the objects count again
    SEEN = "seen"
    #: it will not happen: the objects count as they are
    GIVEN_UP = "given up"


class AssumptionEvent(Enum):
    """An event about a write."""

    #: the server has carried it out
    ACCEPTED = "accepted"
    #: the server will not carry it out
    REFUSED = "refused"
    #: no answer, or one that leaves open whether it was carried out
    ANSWER_LOST = "answer lost"
    #: the object on the server shows that it was not carried out
    NOT_CARRIED_OUT = "not carried out"
    #: we no longer want it
    TAKEN_BACK = "taken back"
    #: a new decision replaces it
    DECIDED_AGAIN = "decided again"
    #: the watch shows it
    OBSERVED = "observed"
    #: the watch shows that the pod was bound, elsewhere or in spite of it
    OVERRULED = "overruled"
    #: the pod or PodGroup is gone, or another has its name
    OBJECT_GONE = "object gone"


_K, _S, _E = AssumptionKind, AssumptionState, AssumptionEvent

#: The last states: the assumption is dropped.
FINAL_STATES = frozenset((_S.SEEN, _S.GIVEN_UP))

#: kind, states, events, next state: in any of the states, each of the events leads to the next
_ROWS = (
    (_K.BIND, (_S.DECIDED, _S.IN_DOUBT), (_E.ACCEPTED,), _S.WRITTEN),
    (_K.BIND, (_S.DECIDED,), (_E.ANSWER_LOST,), _S.IN_DOUBT),
    (_K.BIND, (_S.IN_DOUBT,), (_E.NOT_CARRIED_OUT,), _S.DECIDED),
    (_K.BIND, (_S.DECIDED, _S.IN_DOUBT, _S.WRITTEN), (_E.DECIDED_AGAIN,), _S.DECIDED),
    (_K.BIND, (_S.DECIDED, _S.IN_DOUBT, _S.WRITTEN), (_E.OBSERVED,), _S.SEEN),
    # Refused when written: the late answer to an earlier write for the same pod and node.
    (
        _K.BIND,
        (_S.DECIDED, _S.IN_DOUBT, _S.WRITTEN),
        (_E.REFUSED, _E.TAKEN_BACK, _E.OVERRULED, _E.OBJECT_GONE),
        _S.GIVEN_UP,
    ),
    # The end of a request says nothing while its pod may have been bound.
    (_K.WITHDRAWAL, (_S.IN_DOUBT,), (_E.OBSERVED,), _S.IN_DOUBT),
    (_K.WITHDRAWAL, (_S.IN_DOUBT,), (_E.ACCEPTED,), _S.WRITTEN),
    (_K.WITHDRAWAL, (_S.IN_DOUBT,), (_E.REFUSED, _E.OVERRULED, _E.OBJECT_GONE), _S.GIVEN_UP),
    (_K.WITHDRAWAL, (_S.DECIDED, _S.WRITTEN), (_E.DECIDED_AGAIN,), _S.DECIDED),
    (_K.WITHDRAWAL, (_S.DECIDED, _S.WRITTEN), (_E.OBSERVED,), _S.SEEN),
    (_K.WITHDRAWAL, (_S.DECIDED, _S.WRITTEN), (_E.OBJECT_GONE,), _S.GIVEN_UP),
    # Accepted when written: an eviction, and the end of the pod's gang, are two deletions.
    (_K.EVICTION, (_S.DECIDED, _S.WRITTEN), (_E.ACCEPTED,), _S.WRITTEN),
    (_K.EVICTION, (_S.DECIDED, _S.WRITTEN, _S.LEAVING), (_E.DECIDED_AGAIN,), _S.DECIDED),
    (_K.EVICTION, (_S.DECIDED, _S.WRITTEN, _S.LEAVING), (_E.OBSERVED,), _S.LEAVING),
    (_K.EVICTION, (_S.DECIDED, _S.WRITTEN, _S.LEAVING), (_E.OBJECT_GONE,), _S.SEEN),
    (_K.EVICTION, (_S.DECIDED, _S.WRITTEN, _S.LEAVING), (_E.REFUSED, _E.TAKEN_BACK), _S.GIVEN_UP),
    (_K.ADMISSION, (_S.DECIDED,), (_E.ACCEPTED,), _S.WRITTEN),
    (_K.ADMISSION, (_S.DECIDED, _S.WRITTEN), (_E.OBSERVED,), _S.SEEN),
    (_K.ADMISSION, (_S.DECIDED, _S.WRITTEN), (_E.REFUSED, _E.OBJECT_GONE), _S.GIVEN_UP),
    # Accepted when written: annotations and conditions are two writes.
    (_K.PATCH, (_S.DECIDED, _S.WRITTEN), (_E.ACCEPTED,), _S.WRITTEN),
    (_K.PATCH, (_S.DECIDED, _S.WRITTEN), (_E.DECIDED_AGAIN,), _S.DECIDED),
    (_K.PATCH, (_S.WRITTEN,), (_E.OBSERVED,), _S.SEEN),
    (_K.PATCH, (_S.DECIDED,), (_E.REFUSED,), _S.GIVEN_UP),
    (_K.PATCH, (_S.DECIDED, _S.WRITTEN), (_E.OBJECT_GONE,), _S.GIVEN_UP),
)
#: kind, state, event -> the next state
TRANSITIONS: Mapping[tuple[AssumptionKind, AssumptionState, AssumptionEvent], AssumptionState] = {
    (kind, state, event): to for kind, states, events, to in _ROWS for state in states for event in events
}


class IllegalTransition(ValueError):
    """The table has no such event for an assumption in this state."""


def next_state(kind: AssumptionKind, state: AssumptionState, event: AssumptionEvent) -> AssumptionState:
    """The state after an event; raises IllegalTransition."""
    try:
        return TRANSITIONS[kind, state, event]
    except KeyError:
        raise IllegalTransition(f"{kind.value}: {event.value!r} does not happen when {state.value}") from None


@dataclass(slots=True)
class Assumption:
    """One write that counts although the cluster does not show it."""

    kind: ClassVar[AssumptionKind]
    #: namespace/name of the pod, BindRequest or PodGroup
    key: str
    state: AssumptionState

    def advance(self, event: AssumptionEvent) -> bool:
        """Apply an event; whether the assumption has ended."""
        try:
            self.state = next_state(self.kind, self.state, event)
        except IllegalTransition as error:
            log.error("illegal transition of an assumption about %s: %s", self.key, error)
        return self.state in FINAL_STATES
