"""Removing the gates of queues: one patch for each pod, by uid (queues:Q-406).

The patch names the gate, so a gate that another program holds is left alone, and it can be repeated.  It also says when
the pod was admitted: the reservation ends by that, and the next leader reads it.  A patch that fails is repeated after
a pause; if it keeps failing it is given up, and the next cycle decides again.

A patch that the server calls invalid would fail every time, for example because the annotations of the pod leave no
space for one more; so would one that a webhook of others forbids.  The pod then stays out of the cycles, longer after
every failure, and holds no quota meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pykai.api import names
from pykai.api.keys import object_key
from pykai.api.timestamp import format_timestamp
from pykai.core.report.decisions import Ungate
from pykai.kube import resources
from pykai.kube.backoff import Backoff
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden, Invalid, KubeError, NotFound
from pykai.kube.limits import FairSemaphore
from pykai.scheduler.dispatch.deletions import MAX_SERVER_FAILURES, retry_delay_s
from pykai.scheduler.intake.assumptions import AssumptionEvent
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.intake.pendingadmissions import has_queue_gate
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.status.statusevents import NORMAL, WARNING, StatusEvents

log = logging.getLogger(__name__)

_REFUSED_BACKOFF = Backoff(5.0, 300.0)
#: A server that has just started forbids what it allows later; after this many answers it means it.
_MAX_FORBIDDEN = 3


def ungating_patch(uid: str, admitted: str) -> dict[str, Any]:
    """Take the gate away, and note when the pod was admitted unless nothing gates it any more."""
    metadata: dict[str, Any] = {"uid": uid}
    if admitted:
        metadata["annotations"] = {names.ADMITTED_TIMESTAMP_ANNOTATION: admitted}
    return {"metadata": metadata, "spec": {"schedulingGates": [{"$patch": "delete", "name": names.ADMISSION_GATE}]}}


class Ungating:
    """Removes gates."""

    def __init__(
        self,
        client: Client,
        intake: Intake,
        status_events: StatusEvents,
        metrics: SchedulerMetrics,
        clock: Clock,
        *,
        in_flight: int,
    ) -> None:
        self._client = client
        self._pods, self._pod_intake = intake.pods, intake.pod_intake
        self._admissions = intake.admissions
        self._status_events = status_events
        self._metrics = metrics
        self._clock = clock
        self._slots = FairSemaphore(in_flight)
        #: (key, uid) of a pod -> the end of its pause
        self._pauses: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def stop(self) -> None:
        """End all pauses."""
        for (key, uid), timer in list(self._pauses.items()):
            timer.cancel()
            self._resume(key, uid)

    def assume(self, decision: Ungate, now_ns: int) -> str | None:
        """Count a pod as admitted; the time to write on it ("" = none), None if the pod or its gate is gone."""
        key = object_key(decision.namespace, decision.pod)
        pod = self._pods.get(key)
        if pod is None or pod.metadata.uid != decision.uid or not has_queue_gate(pod):
            return None
        admitted = format_timestamp(now_ns) if decision.queue else ""
        self._admissions.add(key, decision.uid, admitted)
        self._pod_intake.apply_quietly(pod)
        return admitted

    async def open(self, decision: Ungate, admitted: str) -> float | None:
        """Write it; returns after how many seconds to decide again if the gate is still there, else None."""
        key, uid = object_key(decision.namespace, decision.pod), decision.uid
        content = ungating_patch(uid, admitted)
        again_s: float | None = None
        for failures in range(1, MAX_SERVER_FAILURES + 1):
            try:
                async with self._slots.slot(decision.namespace):
                    await self._client.patch(
                        resources.PODS,
                        decision.pod,
                        content,
                        decision.namespace,
                        kind=PatchKind.STRATEGIC,
                        brief=True,
                    )
                self._on_opened(key, decision)
                return None
            except NotFound:
                break
            except Invalid as error:
                again_s = self._pause(key, decision, error)
                break
            except KubeError as error:
                pod = self._pods.get(key)
                if pod is None or pod.metadata.uid != uid:
                    break
                log.info("the gate of pod %s was not removed: %s", key, error)
                if isinstance(error, Forbidden) and failures >= _MAX_FORBIDDEN:
                    again_s = self._pause(key, decision, error)
                    break
            await asyncio.sleep(retry_delay_s(failures))
        else:
            log.warning("the gate of pod %s was not removed; the next cycle decides again", key)
            again_s = 0.0
        self._give_up(key, uid)
        return again_s

    def _on_opened(self, key: str, decision: Ungate) -> None:
        self._admissions.advance(key, decision.uid, AssumptionEvent.ACCEPTED)
        self._metrics.count_ungated_pod()
        if decision.queue:
            text = f"Pod {key} was admitted to queue {decision.queue}"
            self._status_events.pod_event(key, decision.uid, NORMAL, names.EVENT_ADMITTED, text)

    def _pause(self, key: str, decision: Ungate, error: KubeError) -> float | None:
        """Keep the pod out of the cycles for a while; for how many seconds, None if it is gone."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.uid != decision.uid:
            return None
        delay_s = _REFUSED_BACKOFF.delay_s(self._admissions.pause(key, decision.uid))
        self._pauses[key, decision.uid] = asyncio.get_running_loop().call_later(
            self._clock.wall_s(delay_s), self._resume, key, decision.uid
        )
        text = f"The API server refuses to remove the gate of pod {key}; next attempt in {delay_s:g} s: {error}"
        log.info("%s", text)
        self._status_events.pod_event(key, decision.uid, WARNING, names.EVENT_ADMISSION_REFUSED, text)
        return delay_s

    def _resume(self, key: str, uid: str) -> None:
        self._pauses.pop((key, uid), None)
        pod = self._pods.get(key)
        if self._admissions.resume(key, uid) and pod is not None:
            self._pod_intake.apply(pod)

    def _give_up(self, key: str, uid: str) -> None:
        """Count the pod as its object shows it."""
        if self._admissions.advance(key, uid, AssumptionEvent.REFUSED):
            pod = self._pods.get(key)
            if pod is not None:
                self._pod_intake.apply(pod)
