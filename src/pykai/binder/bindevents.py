"""What the binder reports to users: the condition `PodBound` and events (gpu:BR-7).

The condition is written only when it changes, and is True only for a bound pod.  If the pod of a request does not
exist, the event is about the request.
"""

from __future__ import annotations

import logging

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.decode import DecodeError
from pykai.api.keys import split_key
from pykai.api.scheduling import BindRequest
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import Conflict, NotFound
from pykai.kube.events import EventRecorder, InvolvedObject
from pykai.kube.resources import BIND_REQUESTS, PODS

log = logging.getLogger(__name__)


class BindEvents:
    """Publishes the outcome of binds."""

    def __init__(self, client: Client, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock

    async def publish_bound(self, pod: Pod, node: str) -> None:
        """The pod is on its node."""
        text = f"Pod bound successfully to node {node}"
        self._recorder.event(_pod_reference(pod), "Normal", names.EVENT_BOUND, text)
        await self._write_condition(pod, "True", names.CONDITION_REASON_BOUND, text)

    async def publish_failed(self, request: BindRequest, pod: Pod | None, why: str) -> None:
        """The attempt failed."""
        spec, metadata = request.spec, request.metadata
        text = f"Failed to bind pod {metadata.namespace}/{spec.pod_name} to node {spec.selected_node}: {why}"
        if pod is None:
            about = InvolvedObject(
                BIND_REQUESTS.api_version, BIND_REQUESTS.kind, metadata.namespace, metadata.name, metadata.uid
            )
            self._recorder.event(about, "Warning", names.EVENT_BINDING_ERROR, text)
            return
        self._recorder.event(_pod_reference(pod), "Warning", names.EVENT_BINDING_ERROR, text)
        await self._write_condition(pod, "False", names.CONDITION_REASON_BINDING_ERROR, text)

    def publish_unreadable(self, key: str, problem: DecodeError) -> None:
        """A BindRequest that cannot be read."""
        namespace, name = split_key(key)
        about = InvolvedObject(BIND_REQUESTS.api_version, BIND_REQUESTS.kind, namespace, name, problem.uid)
        self._recorder.event(about, "Warning", names.EVENT_INVALID_BIND_REQUEST, str(problem))

    async def _write_condition(self, pod: Pod, status: str, reason: str, message: str) -> None:
        for existing in pod.status.conditions:
            if existing.type == names.CONDITION_POD_BOUND:
                if (existing.status, existing.reason, existing.message) == (status, reason, message):
                    return
        condition = {
            "type": names.CONDITION_POD_BOUND,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                PODS,
                pod.metadata.name,
                patch,
                pod.metadata.namespace,
                kind=PatchKind.STRATEGIC,
                subresource="status",
                brief=True,
            )
        except (NotFound, Conflict):
            log.debug("pod %s/%s is gone", pod.metadata.namespace, pod.metadata.name)


def _pod_reference(pod: Pod) -> InvolvedObject:
    metadata = pod.metadata
    return InvolvedObject("v1", "Pod", metadata.namespace, metadata.name, metadata.uid)
