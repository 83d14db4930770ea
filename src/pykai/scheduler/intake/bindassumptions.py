"""BindRequests as the engine sees them: those of the watch, with our own unseen binds and withdrawals.

An assumed bind replaces the BindRequest in the tables until the pod has a node, or the real request exists. Afterwards
the request that the watch shows counts, if it is effective: neither withdrawn nor forged.

Subtle: between our write and its echo the watch may still bring stale events, such as the deletion of an older
BindRequest of the same name.  Such events must not end an assumption; only the object we wrote does.  A withdrawn
request counts until it is known that its pod was not bound before; later events about it change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import BindRequest
from pykai.kube.store import Change, Store
from pykai.scheduler.intake.assumptions import Assumption, AssumptionEvent, AssumptionKind, AssumptionState
from pykai.scheduler.intake.changes import differs
from pykai.scheduler.intake.nodegenerations import NodeGenerations
from pykai.scheduler.intake.operationqueue import OperationQueue
from pykai.scheduler.intake.operations import ApplyObject, remove_by_key
from pykai.scheduler.sanitising.requestverifier import BindRequestVerifier, owner_uid, pod_key_of, same_placement


@dataclass(slots=True)
class AssumedBind(Assumption):
    """A bind that was decided and has not been seen."""

    kind = AssumptionKind.BIND
    #: the request for the tables, whether or not it is written
    request: BindRequest


@dataclass(slots=True)
class Withdrawal(Assumption):
    """A BindRequest that we delete."""

    kind = AssumptionKind.WITHDRAWAL
    #: of the request
    uid: str


class BindAssumptions:
    """Keeps the BindRequests of the tables current.  Lives on the event loop."""

    def __init__(
        self,
        pods: Store[Pod],
        requests: Store[BindRequest],
        verifier: BindRequestVerifier,
        generations: NodeGenerations,
        queue: OperationQueue,
    ) -> None:
        self._pods = pods
        self._requests = requests
        self._verifier = verifier
        self._generations = generations
        self._queue = queue
        #: pod key -> the bind we decided
        self._binds: dict[str, AssumedBind] = {}
        #: node -> pods with such a bind to it; a dict is an ordered set
        self._binds_by_node: dict[str, dict[str, None]] = {}
        #: request key -> its withdrawals, by uid: at most one that counts and one in doubt
        self._withdrawals: dict[str, dict[str, Withdrawal]] = {}

    def assume(self, request: BindRequest) -> None:
        """Assume a bind that was decided: the pod counts as being bound (gpu:B-2)."""
        key = pod_key_of(request)
        pod = self._pods.get(key)
        if pod is not None and (pod.spec.node_name or pod.metadata.uid != owner_uid(request)):
            return
        before = self._binds.get(key)
        if before is not None:
            before.advance(AssumptionEvent.DECIDED_AGAIN)
            self._drop(before)
        self._binds[key] = AssumedBind(key, AssumptionState.DECIDED, request)
        self._binds_by_node.setdefault(request.spec.selected_node, {})[key] = None
        self._verifier.record_decision(key, request.spec)
        self._queue.add_quietly(ApplyObject(request))

    def is_assumed(self, key: str) -> bool:
        """Whether a bind of this pod was decided and neither seen nor given up."""
        return key in self._binds

    def on_node(self, node: str) -> Collection[BindRequest]:
        """The assumed binds to a node."""
        return [self._binds[key].request for key in self._binds_by_node.get(node, ())]

    def follow_write(self, key: str, uid: str, node: str) -> Callable[[AssumptionEvent], None]:
        """Returns the callback for the write of a bind; it has no effect once the bind was decided again."""
        bind = self._find(key, uid, node)

        def report(event: AssumptionEvent) -> None:
            if bind is not None and self._binds.get(key) is bind:
                bind.advance(event)

        return report

    def give_up(
        self, key: str, uid: str, node: str | None, event: AssumptionEvent = AssumptionEvent.TAKEN_BACK
    ) -> None:
        """Drop the bind of a pod, so that it waits again, unless another node (None: any) was decided on meanwhile."""
        if (bind := self._find(key, uid, node)) is not None:
            self._end(bind, event)

    def _find(self, key: str, uid: str, node: str | None) -> AssumedBind | None:
        bind = self._binds.get(key)
        if bind is None or owner_uid(bind.request) != uid:
            return None
        return bind if node is None or bind.request.spec.selected_node == node else None

    def _end(self, bind: AssumedBind, event: AssumptionEvent) -> None:
        """Apply an event that ends a bind: from now on the request that the watch shows counts."""
        if not bind.advance(event):
            return
        self._drop(bind)
        observed = self._requests.get(bind.key)
        if observed is None:
            self._verifier.forget(bind.key)
        if observed is not None and self.is_effective(observed):
            self._queue.add(ApplyObject(observed))
        else:
            self._queue.add(remove_by_key("BindRequest", bind.key))

    def _drop(self, bind: AssumedBind) -> None:
        del self._binds[bind.key]
        node = bind.request.spec.selected_node
        del self._binds_by_node[node][bind.key]
        if not self._binds_by_node[node]:
            del self._binds_by_node[node]

    def begin_withdrawal(self, key: str, uid: str) -> None:
        """A BindRequest is being deleted and its pod may be bound: it counts until the outcome is known."""
        self._withdrawals.setdefault(key, {}).setdefault(uid, Withdrawal(key, AssumptionState.IN_DOUBT, uid))

    def withdraw(self, key: str, uid: str) -> None:
        """A BindRequest no longer counts, because its pod was not bound."""
        before = self._withdrawals.get(key, {}).get(uid)
        if before is None:
            # Also where the watch has not shown it yet: it may still do so, and that state is out of date.
            before = Withdrawal(key, AssumptionState.DECIDED, uid)
        elif before.state is AssumptionState.IN_DOUBT:
            before.advance(AssumptionEvent.ACCEPTED)
        else:
            before.advance(AssumptionEvent.DECIDED_AGAIN)
        self._withdrawals[key] = {uid: before}
        if key not in self._binds:
            self._queue.add(remove_by_key("BindRequest", key))

    def keep_request(self, key: str, uid: str) -> None:
        """A BindRequest could not be deleted: it counts again."""
        self._end_doubt(key, AssumptionEvent.REFUSED, uid)

    def _is_in_doubt(self, key: str) -> bool:
        withdrawals = self._withdrawals.get(key)
        return withdrawals is not None and any(each.state is AssumptionState.IN_DOUBT for each in withdrawals.values())

    def _end_doubt(self, key: str, event: AssumptionEvent, uid: str | None = None) -> None:
        """End the withdrawals in doubt, or the one of the request with this uid."""
        withdrawals = self._withdrawals.get(key, {}).values()
        in_doubt = [each for each in withdrawals if each.state is AssumptionState.IN_DOUBT and uid in (None, each.uid)]
        for each in in_doubt:
            self._end_withdrawal(each, event)
        if in_doubt and key not in self._binds and key not in self._requests:
            self._queue.add(remove_by_key("BindRequest", key))

    def _end_withdrawal(self, withdrawal: Withdrawal, event: AssumptionEvent) -> None:
        if withdrawal.advance(event):
            withdrawals = self._withdrawals[withdrawal.key]
            del withdrawals[withdrawal.uid]
            if not withdrawals:
                del self._withdrawals[withdrawal.key]

    def is_withdrawn(self, request: BindRequest) -> bool:
        """Whether we deleted this request and have not seen it go."""
        if not self._withdrawals:
            return False
        meta = request.metadata
        withdrawal = self._withdrawals.get(object_key(meta.namespace, meta.name), {}).get(meta.uid)
        return bool(meta.uid) and withdrawal is not None and withdrawal.state is not AssumptionState.IN_DOUBT

    def is_effective(self, request: BindRequest) -> bool:
        """Whether a BindRequest counts."""
        return not self.is_withdrawn(request) and not self._verifier.objection(request)

    def effective_requests(self) -> Iterator[BindRequest]:
        """The BindRequests of the tables."""
        for key, request in zip(self._requests.keys(), self._requests.values(), strict=True):
            if key not in self._binds and self.is_effective(request):
                yield request
        for bind in self._binds.values():
            yield bind.request

    def start_verifying(self) -> None:
        """Start to lead: from now on only BindRequests that match our decisions count."""
        self._verifier.start(self._requests.values())
        for key, request in zip(self._requests.keys(), self._requests.values(), strict=True):
            if self._verifier.objection(request):
                self._queue.add(remove_by_key("BindRequest", key))

    def on_request_change(self, change: Change[BindRequest]) -> None:
        """Handle a change of a BindRequest."""
        key, request = change.key, change.new
        if request is None:
            self._on_request_gone(key, change.old.metadata.uid if change.old is not None else "")
            return
        if self.is_withdrawn(request):
            return
        bind = self._binds.get(key)
        if self._verifier.objection(request):
            if change.old is not None and bind is None:
                self._queue.add(remove_by_key("BindRequest", key))
            return
        if bind is not None:
            if not same_placement(bind.request, request):
                return
            bind.advance(AssumptionEvent.OBSERVED)
            self._drop(bind)
        if change.old is None or bind is not None or differs(change.old, change.new):
            self._queue.add(ApplyObject(request))

    def _on_request_gone(self, key: str, uid: str) -> None:
        withdrawal = self._withdrawals.get(key, {}).get(uid)
        if withdrawal is not None:
            self._end_withdrawal(withdrawal, AssumptionEvent.OBSERVED)
        if key not in self._binds and not self._is_in_doubt(key):
            self._verifier.forget(key)
            self._queue.add(remove_by_key("BindRequest", key))

    def on_pod_change(self, change: Change[Pod]) -> None:
        """Handle a change of a pod: bound, deleted, or replaced by another of its name."""
        key, old, pod = change.key, change.old, change.new
        if pod is None:
            self._on_pod_gone(key)
            return
        if old is None and (early := self._requests.get(key)) is not None and self._verifier.objection(early):
            self._queue.add(remove_by_key("BindRequest", key))
        bind = self._binds.get(key)
        node = pod.spec.node_name
        if old is not None and old.metadata.uid != pod.metadata.uid:
            self._verifier.forget(key)
            self._end_doubt(key, AssumptionEvent.OBJECT_GONE)
        elif node:
            if key not in self._requests:
                self._verifier.forget(key)
            self._end_doubt(key, AssumptionEvent.OVERRULED)
        is_expected = bind is not None and bind.request.spec.selected_node == node
        if node and not is_expected and (old is None or old.spec.node_name != node):
            self._generations.bump(node)
        if bind is None:
            return
        if pod.metadata.uid != owner_uid(bind.request):
            self._end(bind, AssumptionEvent.OBJECT_GONE)
        elif node:
            self._end(bind, AssumptionEvent.OBSERVED if is_expected else AssumptionEvent.OVERRULED)

    def _on_pod_gone(self, key: str) -> None:
        self._verifier.forget(key)
        self._end_doubt(key, AssumptionEvent.OBJECT_GONE)
        if (bind := self._binds.get(key)) is not None:
            self._end(bind, AssumptionEvent.OBJECT_GONE)
        if key not in self._requests:
            for withdrawal in list(self._withdrawals.get(key, {}).values()):
                self._end_withdrawal(withdrawal, AssumptionEvent.OBJECT_GONE)
