"""Deletes BindRequests that we did not decide, while we lead.

`BindRequestVerifier` keeps them from the engine; the binder would still carry them out.  So they are deleted as soon as
they are seen, and an event on the pod says why.  The binder may be faster.  Even then it cannot fill a node or a device
beyond its capacity, which it checks itself; the pod is charged to its queue like any other.

Only a request for a waiting pod of ours is deleted.  Any other has no effect, or belongs to another scheduler.
"""

from __future__ import annotations

import asyncio
import logging

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import BindRequest
from pykai.kube.store import Change, Store
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.sanitising.requestverifier import BindRequestVerifier, pod_key_of
from pykai.scheduler.status.statusevents import WARNING, StatusEvents

log = logging.getLogger(__name__)


class ForgedRequests:
    """Deletes requests that are not ours.  Lives on the event loop."""

    def __init__(
        self,
        pods: Store[Pod],
        requests: Store[BindRequest],
        binds: BindAssumptions,
        verifier: BindRequestVerifier,
        status_events: StatusEvents,
        deletions: Deletions,
    ) -> None:
        self._pods = pods
        self._requests = requests
        self._binds = binds
        self._verifier = verifier
        self._status_events = status_events
        self._deletions = deletions
        self._leading = False
        #: uid of a request -> its deletion
        self._tasks: dict[str, asyncio.Task[bool]] = {}
        requests.subscribe(self._on_request)
        pods.subscribe(self._on_pod)

    def take_over(self) -> None:
        """Start to lead: from now on only our decisions count."""
        self._leading = True
        self._binds.start_verifying()
        for request in self._requests.values():
            self._delete_if_forged(request)

    def stop(self) -> None:
        """Stop leading."""
        self._leading = False
        self._verifier.stop()
        for task in self._tasks.values():
            task.cancel()

    def _on_request(self, change: Change[BindRequest]) -> None:
        if self._leading and change.new is not None:
            self._delete_if_forged(change.new)

    def _on_pod(self, change: Change[Pod]) -> None:
        """Check a pod that arrives after a request that was forged for it."""
        if self._leading and change.old is None:
            request = self._requests.get(change.key)
            if request is not None:
                self._delete_if_forged(request)

    def _delete_if_forged(self, request: BindRequest) -> None:
        verifier, meta = self._verifier, request.metadata
        why = verifier.objection(request)
        if (
            not why
            or meta.uid in self._tasks
            or meta.deletion_timestamp is not None
            or not verifier.would_bind_own_pod(request)
        ):
            return
        pod = self._pods.get(pod_key_of(request))
        key = object_key(meta.namespace, meta.name)
        text = f"BindRequest {key} to node {request.spec.selected_node} is deleted: {why}"
        log.warning("%s", text)
        if pod is not None:
            self._status_events.pod_event(
                pod_key_of(request), pod.metadata.uid, WARNING, names.EVENT_INVALID_BIND_REQUEST, text
            )
        task = asyncio.get_running_loop().create_task(
            self._deletions.delete_request(key, meta.uid), name=f"end of {key}"
        )
        self._tasks[meta.uid] = task
        task.add_done_callback(lambda _: self._tasks.pop(meta.uid, None))
