"""A fluent builder for clusters with NUMA zones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykai.core.cycle.journal import Placement
from pykai.core.opencycle import Cycle
from pykai.core.plugins import DEFAULT_PLUGINS
from tests.core.builders import Cluster, Raw, Result, cluster

GPU = "nvidia.com/gpu"
Amounts = Mapping[str, str | int]


def amounts_of(gpu: int = 0, cpu: str | int = 0, memory: str | int = 0, **more: str | int) -> dict[str, str | int]:
    """Amounts of a zone or container, without those that are 0."""
    return {name: value for name, value in {GPU: gpu, "cpu": cpu, "memory": memory, **more}.items() if value != 0}


def only_numa(**arguments: str) -> Raw:
    """A configuration in which no other plugin scores."""
    plugins = [{"name": "predicates"}, {"name": "proportion"}, {"name": "numa", "arguments": arguments}]
    return {"tiers": [{"plugins": plugins}]}


def built_in_and_numa() -> Raw:
    """The built-in configuration with the plugin added."""
    plugins: list[Raw] = [{"name": name, "arguments": dict(arguments)} for name, arguments in DEFAULT_PLUGINS]
    return {"tiers": [{"plugins": [*plugins, {"name": "numa"}]}]}


def numa(**arguments: str) -> Cluster:
    """A cluster with the plugin on and a queue, without nodes."""
    return cluster().queue("q").configured(only_numa(**arguments))


def zoned(*zones: Amounts, policy: str = "single-numa-node", scope: str = "pod", **more: Any) -> Cluster:
    """A cluster of one large node `n` with these zones."""
    return (
        numa(**more.pop("arguments", {}))
        .node("n", gpus=64, cpu=1000)
        .zones("n", *zones, policy=policy, scope=scope, **more)
    )


def containers(*regular: Amounts, init: tuple[Amounts, ...] = (), sidecars: tuple[Amounts, ...] = ()) -> Raw:
    """The spec of a pod with several containers; sidecars are declared before the other init containers."""

    def container(requests: Amounts, **more: Any) -> Raw:
        return {"name": "c", "resources": {"requests": {k: str(v) for k, v in requests.items()}}, **more}

    first = [container(requests, restartPolicy="Always") for requests in sidecars]
    return {
        "containers": [container(requests) for requests in regular],
        "initContainers": [*first, *(container(requests) for requests in init)],
    }


def given(built: Cluster, *regular: Amounts, qos: str = "Guaranteed", **spec: Any) -> dict[int, dict[str, int]] | None:
    """What a pod with these containers gets of which zone of its node, None when it has to wait.

    Cores are counted in thousandths.
    """
    result: Result = built.gang("j", qos=qos, spec=containers(*regular, **spec)).schedule()
    return dict(result.zones_of("j-0")) if result.bound("j") else None


def left_in(cycle: Cycle, name: str = "cpu", node: str = "n", *, idle: bool = True) -> list[int]:
    """What a pod could get of each zone of a node right now; cores in thousandths."""
    (ledger,) = cycle.state.discrete_ledgers
    row = cycle.context.snapshot.nodes.rows[node]
    left: Any = ledger.available([row], idle=idle)  # type: ignore[attr-defined]
    return [int(amount) for amount in left[0, :, ledger._index[name]]]  # type: ignore[attr-defined]


def zones_in(placement: Placement) -> list[int]:
    """Numbers of the zones of a placement."""
    contents: list[Any] = [grant.allocation for grant in placement.grants]
    return [zone for content in contents for zone, _ in content]
