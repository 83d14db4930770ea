"""Dead BindRequests: the binder has given up on them, their node is gone, or they were deleted."""

from __future__ import annotations

from collections.abc import Iterable

from pykai.api.core import Pod
from pykai.api.scheduling import BindRequest
from pykai.core.model.shard import Shard
from pykai.kube.store import Change, Store
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.bindbackoff import BindBackoff
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.dispatch.failedbinds import FailedBinds
from pykai.scheduler.dispatch.gangbinding import GangBinding
from pykai.scheduler.dispatch.gangplans import binder_gave_up, group_key
from pykai.scheduler.dispatch.podbinding import PodBinding
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.sanitising.requestverifier import owner_uid, pod_key_of


class FailedRequests:
    """Counts and deletes them, and lets their pods back off.  Lives on the event loop."""

    def __init__(
        self,
        pods: Store[Pod],
        requests: Store[BindRequest],
        binds: BindAssumptions,
        shard: Shard,
        tasks: BackgroundTasks,
        deletions: Deletions,
        failed_binds: FailedBinds,
        backoff: BindBackoff,
        pod_binding: PodBinding,
        gang_binding: GangBinding,
    ) -> None:
        #: whether we handle what the watch brings
        self.leading = False
        self._pods = pods
        self._requests = requests
        self._binds = binds
        self._shard = shard
        self._tasks = tasks
        self._deletions = deletions
        self._failed_binds = failed_binds
        self._backoff = backoff
        self._pod_binding = pod_binding
        self._gang_binding = gang_binding

    def on_request_change(self, change: Change[BindRequest]) -> None:
        """Handle a change of any BindRequest."""
        request = change.new
        if request is not None:
            if self.leading and self._shard.covers(request.metadata) and not self._binds.is_withdrawn(request):
                # At once: the next cycle would decide about the pod again before it deletes the request.
                self._on_binder_gave_up(request)
            self._gang_binding.on_request_change(request)
        elif self._pod_binding.write_of(change.key) is None and not self._binds.is_assumed(change.key):
            # The end of an older request of the same name does not concern the one that we write or have written.
            if (pod := self._pods.get(change.key)) is not None:
                self._gang_binding.fail_pod(change.key, pod.metadata.uid, "its BindRequest was deleted")

    def _on_binder_gave_up(self, request: BindRequest) -> None:
        """If the binder has given up on a request, count that and let the pod pause, once for each request."""
        key = pod_key_of(request)
        pod = self._pods.get(key)
        if pod is None or pod.spec.node_name or not binder_gave_up(request):
            return
        uid = pod.metadata.uid
        if owner_uid(request) == uid:
            why, node = request.status.reason or "the binder gave up", request.spec.selected_node
            plan = self._gang_binding.plan_of_pod(key)
            counted_causes = plan.counted_causes if plan is not None else None
            self._failed_binds.count_failure(pod, group_key(pod), why, node, counted_causes, request.metadata.uid)
        if key not in self._backoff:
            self._backoff.start(key, uid)

    def delete_dead(self, keys: Iterable[str]) -> None:
        """Delete dead BindRequests (cycle:SNP-8); their pods back off before they are tried again.

        Statements: gpu:B-5.
        """
        for key in keys:
            request = self._requests.get(key)
            if request is None:
                continue
            self._binds.withdraw(key, request.metadata.uid)
            pod_key = pod_key_of(request)
            pod = self._pods.get(pod_key)
            if pod is not None and not pod.spec.node_name:
                why = request.status.reason or f"node {request.spec.selected_node} is gone"
                self._gang_binding.fail_pod(pod_key, pod.metadata.uid, why)
                self._on_binder_gave_up(request)
            self._tasks.start(self._deletions.delete_request(key, request.metadata.uid), f"end of BindRequest {key}")
