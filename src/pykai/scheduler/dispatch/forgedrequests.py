"""BindRequests that we did not decide are deleted, while we lead.

`OwnRequests` keeps them from the engine; the binder would still carry them out.  So they go as soon as they are seen,
and an event on the pod says why.  The binder may be quicker.  Even then it cannot fill a node or a device beyond its
capacity, which it checks itself; the pod is charged to its queue like any other.

Only a request for a waiting pod of ours is deleted.  Any other has no effect, or belongs to another scheduler.
"""

from __future__ import annotations

import asyncio
import logging

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import BindRequest
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.store import Change
from pykai.scheduler.dispatch.deletions import Removals
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.sanitising.requestverifier import key_of
from pykai.scheduler.status.statusevents import WARNING, Announcer

log = logging.getLogger(__name__)


class Forgeries:
    """Deletes requests that are not ours.  Lives on the event loop."""

    def __init__(
        self, client: Client, intake: Intake, announcer: Announcer, clock: Clock, *, in_flight: int = 20
    ) -> None:
        self._intake = intake
        self._announcer = announcer
        self._removals = Removals(client, intake, clock, mark=False, in_flight=in_flight)
        self._leading = False
        #: uid of a request -> its deletion
        self._tasks: dict[str, asyncio.Task[bool]] = {}
        intake.requests.subscribe(self._on_request)
        intake.pods.subscribe(self._on_pod)

    def take_over(self) -> None:
        """From now on only what we decide counts."""
        self._leading = True
        self._intake.judge_requests()
        for request in self._intake.requests.values():
            self._look_at(request)

    def stop(self) -> None:
        """Others lead."""
        self._leading = False
        self._intake.trust_requests()
        for task in self._tasks.values():
            task.cancel()

    def _on_request(self, change: Change[BindRequest]) -> None:
        if self._leading and change.new is not None:
            self._look_at(change.new)

    def _on_pod(self, change: Change[Pod]) -> None:
        """A pod may come after the request that somebody wrote for it."""
        if self._leading and change.old is None:
            request = self._intake.requests.get(change.key)
            if request is not None:
                self._look_at(request)

    def _look_at(self, request: BindRequest) -> None:
        own, meta = self._intake.own, request.metadata
        why = own.objection(request)
        if not why or meta.uid in self._tasks or meta.deletion_timestamp is not None or not own.misleads(request):
            return
        pod = self._intake.pods.get(key_of(request))
        key = f"{meta.namespace}/{meta.name}"
        text = f"BindRequest {key} to node {request.spec.selected_node} is deleted: {why}"
        log.warning("%s", text)
        if pod is not None:
            self._announcer.pod_event(
                key_of(request), pod.metadata.uid, WARNING, names.EVENT_INVALID_BIND_REQUEST, text
            )
        task = asyncio.get_running_loop().create_task(self._removals.request(key, meta.uid), name=f"end of {key}")
        self._tasks[meta.uid] = task
        task.add_done_callback(lambda _: self._tasks.pop(meta.uid, None))
