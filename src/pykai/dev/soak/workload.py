"""Load for a soak: gangs, pods that share GPUs, services that grow and shrink.

Everything derives from a seed, so that a run can be repeated. Every job fits the machines of `machines()`, so at the
end every job that its user did not delete must have completed. Queues are served beyond their quota, and jobs differ in
priority, so there is always something to reclaim and to preempt.

A Job counts evicted pods as failed; these Jobs ignore such pods, as a user's should. The real controller still waits
before it replaces them, twice as long after each failure, and a gang of eight that was evicted once would wait ten
minutes. With a limit per index it waits ten seconds, as after one failure. Finished Jobs vanish after a while, so that
a long soak has a steady number of objects.
"""

from __future__ import annotations

import random
from typing import Any

from pykai.lab.story import JobEntry, MachineEntry, QueueEntry, ResourceShare, ServiceEntry, job_object, service_object

QUEUES = (
    QueueEntry(name="soak", gpu=ResourceShare(quota=32)),
    QueueEntry(name="gangs", parent="soak", gpu=ResourceShare(quota=16, weight=1)),
    QueueEntry(name="shared", parent="soak", gpu=ResourceShare(quota=8, weight=1)),
    QueueEntry(name="services", parent="soak", gpu=ResourceShare(quota=8, weight=1)),
)
#: seconds that a finished Job stays, so that a recorder that lost its connection still finds it
JOB_TTL_S = 30

_SHAPES = ((2, 4), (3, 2), (4, 1), (2, 8), (6, 1), (4, 2), (8, 1), (12, 1), (16, 1))
_PRIORITIES = ("", "", "", "", "", "", "train", "build-preemptible")
_SERVICES = (("chat", 0.5, 8), ("search", 0.25, 8), ("vision", 0.0, 4))


def machines() -> list[MachineEntry]:
    """Four nodes of eight GPUs."""
    return [MachineEntry(name="soak", count=4, gpus=8, memory_mib=40_960)]


def services() -> list[dict[str, Any]]:
    """The Deployments; they begin with one pod each."""
    return [
        service_object(ServiceEntry(name=name, queue="services", fraction=fraction, gpus=0 if fraction else 1))
        for name, fraction, _ in _SERVICES
    ]


class WorkloadGenerator:
    """Generates the next work of users."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        #: number of generated Jobs
        self.jobs = 0

    def job(self) -> dict[str, Any]:
        """One more Job: two of three are gangs of whole GPUs, some of them elastic, the third shares GPUs."""
        draw, number = self._random, self.jobs
        self.jobs += 1
        runs = f"{draw.randint(2, 6)}s..{draw.randint(7, 12)}s"
        if number % 3 == 2:
            pods, fraction = draw.randint(1, 4), draw.choice((0.25, 0.5, 0.6))
            priority = draw.choice((*_PRIORITIES, "build"))
            entry = JobEntry(
                name=f"share-{number}", queue="shared", pods=pods, fraction=fraction, runs=runs, priority=priority
            )
        else:
            pods, gpus = draw.choice(_SHAPES)
            minimum = pods // 2 if draw.random() < 0.25 else pods
            priority = draw.choice(_PRIORITIES)
            entry = JobEntry(
                name=f"gang-{number}",
                queue="gangs",
                pods=pods,
                gpus=gpus,
                runs=runs,
                minimum=minimum,
                priority=priority,
            )
        job = job_object(entry)
        evicted = {"type": "DisruptionTarget", "status": "True"}
        job["spec"]["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onPodConditions": [evicted]}]}
        job["spec"]["completionMode"] = "Indexed"
        job["spec"]["backoffLimitPerIndex"] = 100
        job["spec"]["ttlSecondsAfterFinished"] = JOB_TTL_S
        return job

    def scale(self) -> tuple[str, int]:
        """A service and its new number of pods."""
        name, _, most = self._random.choice(_SERVICES)
        return name, self._random.randint(0, most)

    def happens(self, chance: float) -> bool:
        """Whether an event with this probability happens now."""
        return self._random.random() < chance

    def one_of(self, names: list[str]) -> str:
        """A random element."""
        return self._random.choice(names)
