"""Checks before nodes are evaluated: what no node of the shard can satisfy (cycle:FLT-5).

They read nothing but the shape of a pod, so equal pods share one result (cycle:FLT-9).
"""

from __future__ import annotations

from collections.abc import Callable

from pykai.api.gpuvendors import is_gpu
from pykai.api.keys import object_key
from pykai.api.names import DRA_GPU
from pykai.core.caching import Cache
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import PreFailure
from pykai.core.ledgers.claims.feasible import minimum_devices
from pykai.core.model.axes import amount, is_mig
from pykai.core.model.shapes import Shape
from pykai.core.report.sentences import format_go_float, format_number


def _once_per_shape(
    find: Callable[[Shape], PreFailure | None],
) -> Callable[[State, PlacementRequest], PreFailure | None]:
    """A pre-check that reads only the shape, evaluated once for each (cycle:FLT-9)."""
    failures: Cache[int, tuple[PreFailure | None]] = Cache()

    def check(state: State, request: PlacementRequest) -> PreFailure | None:
        shape = request.shape
        failure = failures.get(shape.id)
        if failure is None:
            failure = failures.store(shape.id, (find(shape),))
        return failure[0]

    return check


#: The name of a resource, how many axis units make one of its units, and that unit.
_RESOURCE_WORDS = {
    "cpu": ("CPU", 1000.0, "cores"),
    "memory": ("memory", 1e9, "GB"),
    "ephemeral-storage": ("ephemeral-storage", 1e9, "GB"),
    "storage": ("storage", 1e9, "GB"),
}


#: Resources besides the usual ones that a sentence names; a pod may request any number.
_MAX_NAMED_RESOURCES = 32


def _resource_words(name: str) -> tuple[str, float, str]:
    return ("GPU", 1.0, "") if is_gpu(name) else _RESOURCE_WORDS.get(name, (name, float(amount(name, 1)), ""))


def max_node_resources_check(snapshot: Snapshot) -> Callable[[State, PlacementRequest], PreFailure | None]:
    """A request larger than any node of the shard (cycle:FLT-7; gpu:P-6)."""
    names = snapshot.axes.names
    max_by_resource = (
        dict(zip(names, snapshot.allocatable.max(axis=1).tolist(), strict=False)) if len(snapshot.nodes) else {}
    )
    max_gpus = max((max_by_resource.get(name, 0) for name in names if is_gpu(name)), default=0)
    pool = snapshot.shard.node_pool or "default"

    def find(shape: Shape) -> PreFailure | None:
        short: tuple[str, int] | None = None
        if shape.shared and shape.gpu_hundredths > 100 * max_gpus:
            short = ("/gpu", max_gpus)
        elif _claimed_gpus(snapshot, shape) > max_by_resource.get(DRA_GPU, 0):
            short = (DRA_GPU, max_by_resource.get(DRA_GPU, 0))
        else:
            for name, requested in sorted(shape.requests, key=_by_importance):
                if name != "pods" and requested > max_by_resource.get(name, 0):
                    short = (name, max_by_resource.get(name, 0))
                    break
        if short is None:
            return None
        word, scale, unit = _resource_words(short[0])
        text = f"The pod {{pod}} requires {_request_text(shape)}. "
        if short[1] <= 0:
            text += f"No node in the {pool} node-pool has {word} resources"
        else:
            text += f"Max {word} resources available in a single node in the {pool} node-pool is topped at "
            text += f"{format_number(short[1] / scale)} {unit}".rstrip()
        return PreFailure("MaxNodePoolResources", text, unresolvable=True)

    return _once_per_shape(find)


def _claimed_gpus(snapshot: Snapshot, shape: Shape) -> int:
    """Devices of claims that can be nothing but GPUs of one node (gpu:D-7)."""
    requests = [claim.request for claim in shape.claims if claim.gpus and claim.request is not None and not claim.key]
    if not requests:
        return 0
    inventory = snapshot.claims.inventory(snapshot.nodes)
    # A pool that is not complete yet may bring more.
    return 0 if inventory.broken_pools else minimum_devices(inventory, requests, inventory.whole_gpus())


def _by_importance(request: tuple[str, int]) -> tuple[bool, bool, bool, str]:
    name = request[0]
    return (not is_gpu(name), name != "cpu", name != "memory", name)


def _request_text(shape: Shape) -> str:
    """The request as a sentence shows it: GPUs, CPU and memory always, then other resources, then MIG slices."""
    requested = dict(shape.requests)
    whole = sum(value for name, value in (*shape.requests, *shape.dra_backed) if is_gpu(name))
    whole += sum(claim.gpus for claim in shape.claims)
    gpus = shape.gpu_hundredths / 100.0 if shape.shared else float(whole)
    parts = [
        f"GPU: {format_go_float(gpus)}",
        f"CPU: {format_number(requested.get('cpu', 0) / 1000.0)} (cores)",
        f"memory: {format_number(requested.get('memory', 0) / 1e9)} (GB)",
    ]
    others = [each for each in shape.requests if each[0] not in ("cpu", "memory", "pods") and not is_gpu(each[0])]
    slices = [each for each in others if is_mig(each[0])]
    for name, value in [each for each in others if not is_mig(each[0])][:_MAX_NAMED_RESOURCES]:
        _, scale, unit = _resource_words(name)
        parts.append(f"{name}: {format_number(value / scale)}" + (f" ({unit})" if unit else ""))
    parts.extend(f"mig {name}: {value}" for name, value in slices[:_MAX_NAMED_RESOURCES])
    more = max(0, len(others) - len(slices) - _MAX_NAMED_RESOURCES) + max(0, len(slices) - _MAX_NAMED_RESOURCES)
    return ", ".join(parts) + (f" and {more} more resources" if more else "")


def config_map_check(snapshot: Snapshot) -> Callable[[State, PlacementRequest], PreFailure | None]:
    """Config maps without which some container cannot start (cycle:FLT-8; gpu:P-8)."""

    def find(shape: Shape) -> PreFailure | None:
        missing = [name for name in shape.config_maps if object_key(shape.namespace, name) not in snapshot.config_maps]
        if not missing:
            return None
        return PreFailure("ConfigMap", f"Missing required configmaps: [{' '.join(missing)}]", unresolvable=True)

    return _once_per_shape(find)
