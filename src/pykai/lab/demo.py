"""A lab with a hundred GPUs on a busy morning: the built-in scenario of `kai demo`.

Three departments share 12 machines with 8 GPUs each and a workstation with 4. Some work runs, some is about to end, and
the queues hold one example of every decision a scheduler makes: gangs, elastic jobs, shared GPUs, jobs over their quota
or limit, jobs that need evictions, and jobs that cannot run at all. Jobs are named after what they show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykai.api.core import Taint, Toleration
from pykai.api.decode import WireObject
from pykai.api.timestamp import format_timestamp, parse_timestamp
from pykai.lab.objects import node, pod, pod_group, priority_class, queue

#: When the demo takes place.
NOW_NS = parse_timestamp("2026-03-02T09:00:00Z")

_SERVING_TAINT = Taint(key="dedicated", value="serving", effect="NoSchedule")
_SERVING_TOLERATION = Toleration(key="dedicated", operator="Equal", value="serving", effect="NoSchedule")
_SERVING_POD: dict[str, Any] = {"node_selector": {"dedicated": "serving"}, "tolerations": (_SERVING_TOLERATION,)}
_WORKSTATION_POD: dict[str, Any] = {"node_selector": {"gpu": "rtx4090"}}


def _minutes_ago(minutes: float) -> str:
    return format_timestamp(NOW_NS - int(minutes * 60) * 1_000_000_000)


def demo_objects() -> list[WireObject]:
    """All objects of the lab."""
    return [*_machines(), *_queues(), *_running(), *_waiting()]


def _machines() -> Iterator[WireObject]:
    for number in range(1, 4):
        yield node(f"h100-{number}", gpus=8, gpu_memory_mib=81559, labels={"gpu": "h100"})
    serving = {"gpu": "h100", "dedicated": "serving"}
    yield node("h100-4", gpus=8, gpu_memory_mib=81559, labels=serving, taints=(_SERVING_TAINT,))
    for number in range(1, 7):
        yield node(f"a100-{number}", gpus=8, gpu_memory_mib=40960, labels={"gpu": "a100"}, unschedulable=number == 6)
    for number in range(1, 3):
        yield node(f"l4-{number}", gpus=8, gpu_memory_mib=23034, labels={"gpu": "l4"})
    yield node("workstation", gpus=4, gpu_memory_mib=24564, cpu="16", memory="128Gi", labels={"gpu": "rtx4090"})
    yield node("cpu-1", cpu="96")


def _queues() -> Iterator[WireObject]:
    yield priority_class("train", 50)
    yield priority_class("inference", 125)
    yield queue("research", quota=56, weight=2)
    yield queue("vision", parent="research", quota=20, weight=1)
    yield queue("language", parent="research", quota=36, weight=3)
    yield queue("product", quota=24)
    yield queue("search", parent="product", quota=12, limit=20)
    yield queue("ads", parent="product", quota=8)
    yield queue("serving", parent="product", quota=4, priority=200)
    yield queue("students", quota=4, limit=12)
    yield queue("thesis", parent="students", quota=4)


def _job(
    name: str,
    pods: int,
    *,
    queue: str,
    age: float,
    minimum: int | None = None,
    preemptible: bool = True,
    priority: str = "train",
    on: tuple[str, ...] = (),
    devices: tuple[str, ...] = (),
    **each: Any,
) -> Iterator[WireObject]:
    """A job of equal pods, `age` minutes old; running pods are spread over the nodes and shared devices."""
    created = _minutes_ago(age)
    needed = pods if minimum is None else minimum
    yield pod_group(
        name,
        queue=queue,
        minimum=needed,
        namespace=queue,
        preemptible=preemptible,
        priority_class=priority,
        created=created,
    )
    for number in range(pods):
        node_name = on[number * len(on) // pods] if on else ""
        held = (devices[number * len(devices) // pods],) if devices else ()
        yield pod(f"{name}-{number}", group=name, namespace=queue, on=node_name, devices=held, created=created, **each)


def _running() -> Iterator[WireObject]:
    yield from _job("pretraining", 2, queue="language", age=900, gpus=8, on=("h100-1", "h100-2"))
    yield from _job("detector", 3, queue="vision", age=400, minimum=2, gpus=2, on=("a100-1",))
    # Blocks scaling-laws and can move elsewhere.
    yield from _job("probing", 1, queue="vision", age=380, gpus=2, on=("h100-3",))
    yield from _job("embeddings", 6, queue="search", age=300, gpus=1, on=("a100-2",))
    yield from _job("bidding", 6, queue="ads", age=250, preemptible=False, gpus=1, on=("l4-2",))
    yield from _job(
        "notebooks",
        3,
        queue="thesis",
        age=200,
        fraction=0.5,
        minimum=1,
        preemptible=False,
        on=("l4-1",),
        devices=("0", "1"),
    )
    # Over the students' share, while no other queue claims it.
    yield from _job("contest", 4, queue="thesis", age=150, minimum=1, gpus=1, on=("workstation",), **_WORKSTATION_POD)
    # Fills the serving machine while it has no other work.
    yield from _job("batch-scoring", 4, queue="serving", age=120, minimum=1, gpus=2, on=("h100-4",), **_SERVING_POD)
    # Ends right now: its GPUs are assigned before they are free.
    yield from _job(
        "nightly-index", 1, queue="search", age=600, gpus=8, on=("a100-3",), terminating=format_timestamp(NOW_NS)
    )


def _waiting() -> Iterator[WireObject]:
    yield from _job("finetuning", 4, queue="language", age=60, gpus=4, node_selector={"gpu": "a100"})
    # Starts with two pods and grows while there is room.
    yield from _job("sweep", 10, queue="vision", age=55, minimum=2, gpus=1, node_selector={"gpu": "l4"})
    # More urgent than batch-scoring in the same queue.
    yield from _job(
        "chat-model", 2, queue="serving", age=50, gpus=2, preemptible=False, priority="inference", **_SERVING_POD
    )
    yield from _job("preprocessing", 1, queue="vision", age=45, cpu="72", memory="256Gi")
    yield from _job("assignments", 5, queue="thesis", age=40, minimum=1, fraction=0.25)
    yield from _job("reranker", 3, queue="search", age=35, minimum=1, gpu_memory_mib=10000)
    # Waits for nightly-index to free its machine.
    yield from _job("evaluation", 1, queue="language", age=30, gpus=8, node_selector={"gpu": "a100"})
    # Within the quota of ads, which other queues use.
    yield from _job("creatives", 1, queue="ads", age=34, gpus=2, **_WORKSTATION_POD)
    # Fits on one machine once probing has moved.
    yield from _job("scaling-laws", 1, queue="language", age=31, gpus=8, node_selector={"gpu": "h100"})
    # Over the quota of ads and non-preemptible.
    yield from _job("auction", 4, queue="ads", age=29, preemptible=False, gpus=1)
    # Over the limit of search.
    yield from _job("reindexing", 16, queue="search", age=28, gpus=1)
    # No machine is that large.
    yield from _job("giant", 1, queue="vision", age=27, gpus=16)
    # Only some of its pods fit, so none starts.
    yield from _job("pretraining-2", 4, queue="language", age=26, gpus=4, node_selector={"gpu": "h100"})
    # Half of its pods do not exist yet.
    yield from _job("simulation", 2, queue="thesis", age=25, minimum=4, gpus=1)
    # Asks for a machine that does not exist.
    yield from _job("blackwell", 1, queue="vision", age=24, gpus=1, node_selector={"gpu": "b200"})
    # Names a queue that does not exist.
    yield from _job("robotics-demo", 1, queue="robotics", age=23, gpus=1)
