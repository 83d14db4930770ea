"""Queues that compete on one large node."""

from typing import Any

from tests.core.builders import Cluster, Result, cluster

GI = 1024**3
#: a block (quota, limit, weight) that gives nothing
NOTHING = (0.0, -1.0, 0.0)


def ground(gpus: int = 400, **node: Any) -> Cluster:
    return cluster(nodes=1, gpus=gpus, pods=1000, **node)


def rivals(*, late: dict[str, Any], early: dict[str, Any], gpus: int = 400) -> Cluster:
    """Two top-level queues."""
    return ground(gpus).queue("early", age=20, **early).queue("late", age=10, **late)


class QueueFiller:
    """Fills queues: `has` gives one running pod, `asks` a waiting job of one pod."""

    def __init__(self, built: Cluster) -> None:
        self.built = built
        self._count = 0

    def has(self, queue: str, gpu: int = 0, cpu: str | int = 0, memory: str | int = 0) -> "QueueFiller":
        self._count += 1
        self.built.gang(f"old-{self._count}", queue=queue, on="node-0", gpu=gpu, cpu=cpu, memory=memory)
        return self

    def asks(self, queue: str, name: str = "", pods: int = 1, **job: Any) -> "QueueFiller":
        self.built.gang(name or queue, pods=pods, queue=queue, **{"cpu": 0, "memory": 0, **job})
        return self

    def order(self) -> list[str]:
        """Names of the jobs in the order they were served; a job is called like its queue unless it has a name."""
        return self.built.schedule().order()


def share_of(result: Result, queue: str) -> tuple[float, float, float]:
    """Fair share: CPU milli, memory bytes, GPUs."""
    return next(figures.fair_share for figures in result.plan.queues if figures.name == queue)
