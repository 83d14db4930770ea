"""However pods are created, deleted and kept from going: no start takes a queue beyond its limit (ADR 20).

What pods hold is added up here from the pods themselves, those that leave included.  Only the victims that were evicted
for the very group that starts do not count against it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from pykai.api.decode import decode_object
from pykai.core.cycle.memory import CycleMemory
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, Raw, cluster, timestamp_before

LEAVES = ("a", "b")
LIMITS = {"top": 5, "a": 2, "b": 4}
#: seconds: none, short, just the threshold for stuck pods, longer
GRACES = (0, 30, 120, 121, 600, 86_400)
PAUSES = (1.0, 20.0, 100.0, 150.0, 700.0)


@dataclass
class Job:
    """One pod in a group of its own."""

    raw: Raw
    queue: str
    gpus: int
    #: when its grace is over, None until it is deleted
    ends_s: float | None = None
    #: a finalizer that is never removed
    kept: bool = False
    evicted_for: str = ""

    @property
    def held(self) -> int:
        return self.gpus if self.raw["spec"].get("nodeName") else 0


class World:
    """A cluster with a limited queue, and a hostile tenant in it."""

    def __init__(self) -> None:
        self.built = cluster(nodes=3, gpus=4).priority_class("low", 10).priority_class("high", 20)
        self.built.queue("top", limit=LIMITS["top"])
        for leaf in LEAVES:
            self.built.queue(leaf, parent="top", limit=LIMITS[leaf])
        self.tables = self.built.tables()
        self.policy = replace(self.built.policy(), actions=("allocate", "consolidation", "reclaim", "preempt"))
        self.memory = CycleMemory()
        self.jobs: dict[str, Job] = {}
        self.made = 0
        self.now_s = 0.0

    def create(self, queue: str, gpus: int, priority: str) -> None:
        name = f"job{self.made}"
        self.made += 1
        group, pod = Cluster().gang(name, gpu=gpus, queue=queue, priority=priority).objects
        for raw in (group, pod):
            self.tables.apply(decode_object(raw))
        self.jobs[f"{name}-0"] = Job(pod, queue, gpus)

    def delete(self, name: str, grace_s: int, *, kept: bool) -> None:
        job = self.jobs[name]
        if job.ends_s is not None:
            return
        job.ends_s, job.kept = self.now_s + grace_s, kept
        job.raw["metadata"]["deletionTimestamp"] = timestamp_before(-job.ends_s)
        job.raw["metadata"]["deletionGracePeriodSeconds"] = grace_s
        self.tables.apply(decode_object(job.raw))

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        for name, job in list(self.jobs.items()):
            if job.ends_s is not None and job.ends_s <= self.now_s and not job.kept:
                del self.jobs[name]
                self.tables.remove("Pod", "default", name)

    def cycle(self) -> None:
        """Decide, and do it; at each start, in the order they were decided, no queue is beyond a limit."""
        at_ns = NOW_NS + int(self.now_s * 1e9)
        plan = schedule(self.tables.snapshot(at_ns), self.policy, self.memory)
        assert plan.encoded() == schedule(self.tables.snapshot(at_ns), self.policy).encoded()
        for bind in plan.binds:
            raw = self.jobs[bind.pod].raw
            raw["spec"]["nodeName"], raw["status"]["phase"] = bind.node, "Running"
            self.tables.apply(decode_object(raw))
            note(f"{bind.pod} starts at {self.now_s}")
            for queue in (self.jobs[bind.pod].queue, "top"):
                assert self.held(queue, bind.group) <= LIMITS[queue]
        for item in plan.evictions:
            job = self.jobs[item.pod]
            job.evicted_for = item.preemptor
            message = f"{item.preemptor}/{item.preemptor_uid}"
            condition = {"type": "kai.scheduler/EvictedFor", "status": "True", "message": message}
            job.raw["status"]["conditions"] = [condition]
            self.delete(item.pod, 600, kept=False)

    def held(self, queue: str, preemptor: str) -> int:
        """What the pods of a queue hold on nodes, less the victims of a group."""
        jobs = (job for job in self.jobs.values() if queue in (job.queue, "top") and job.evicted_for != preemptor)
        return sum(job.held for job in jobs)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_start_takes_a_queue_beyond_its_limit(data: Any) -> None:
    world = World()
    for _ in range(data.draw(st.integers(3, 25))):
        match data.draw(st.sampled_from(("create", "create", "delete", "delete", "wait"))):
            case "create":
                queue, gpus = data.draw(st.sampled_from(LEAVES)), data.draw(st.integers(1, 2))
                world.create(queue, gpus, data.draw(st.sampled_from(("low", "low", "high"))))
            case "delete" if world.jobs:
                name, grace_s = data.draw(st.sampled_from(sorted(world.jobs))), data.draw(st.sampled_from(GRACES))
                world.delete(name, grace_s, kept=data.draw(st.booleans()))
            case _:
                world.wait(data.draw(st.sampled_from(PAUSES)))
        world.cycle()
