"""Attacks by volume: terms, subgroups, names and shares at 1,000 nodes (point 7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from pykai.api import names
from pykai.lab.story import MachineEntry
from tests.attack.target import AttackOutcome, Document, Target, pod, pod_group, target

#: how much longer a cycle of the others may take, in milliseconds
TOLERATED_MS = 100.0


@asynccontextmanager
async def thousand_nodes() -> AsyncIterator[Target]:
    """A thousand machines with eight GPUs each."""
    async with target(
        [MachineEntry(name="n", count=1000, gpus=8, model="NVIDIA-H100", per_rack=10)], speed=1
    ) as cluster:
        yield cluster


def _terms(number: int, required: bool) -> Document:
    terms: list[Document] = [
        {
            "labelSelector": {"matchLabels": {"none": f"{number}-{each}"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        for each in range(300)
    ]
    if required:
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    weighted = [{"weight": 1 + each % 100, "podAffinityTerm": term} for each, term in enumerate(terms)]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


def affinity() -> Iterator[Document]:
    """150 pods that fit nowhere, with 300 preferred terms each."""
    for number in range(150):
        yield pod(f"terms-{number}", gpus=9, affinity=_terms(number, required=False))


def anti_affinity() -> Iterator[Document]:
    """150 pods that fit, with 300 required anti-affinity terms each."""
    for number in range(150):
        yield pod(f"apart-{number}", affinity=_terms(number, required=True))


def unknown_topology() -> Iterator[Document]:
    """20 PodGroups of 2,000 subgroups with a topology that does not exist."""
    for number in range(20):
        subgroups = [{"name": f"s{each}", "minMember": 1, "topologyConstraint": _NOWHERE} for each in range(2000)]
        yield pod_group(f"wide-{number}", minimum=2000, subGroups=subgroups)
        yield pod(f"wide-{number}", group=f"wide-{number}", labels={names.SUBGROUP_LABEL: "s0"})


_NOWHERE = {"topology": "nowhere", "requiredTopologyLevel": "rack"}


def trees() -> Iterator[Document]:
    """10 PodGroups, each a tree of 16,382 subgroups."""
    for number in range(10):
        subgroups: list[Document] = []
        for each in range(1, 16383):
            parent = (each - 1) // 2
            subgroups.append({"name": f"t{each}", "minMember": 1, **({"parent": f"t{parent}"} if parent else {})})
        yield pod_group(f"tree-{number}", minimum=1, subGroups=subgroups)
        yield pod(f"tree-{number}", group=f"tree-{number}", labels={names.SUBGROUP_LABEL: "t16382"})


def invented_names() -> Iterator[Document]:
    """400 pods that request 100 resources each that no node offers: 40,000 names."""
    for number in range(400):
        each = pod(f"names-{number}")
        requests: dict[str, Any] = {f"example.com/r{number}-{k}": "1" for k in range(100)}
        each["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10m", **requests}, "limits": requests}
        yield each


def shares() -> Iterator[Document]:
    """600 pods that request 600 different shares of GPU memory."""
    for number in range(600):
        yield pod(f"share-{number}", annotations={names.GPU_MEMORY_ANNOTATION: str(1000 + 7 * number)})


async def crowd(cluster: Target, objects: Iterator[Document]) -> AttackOutcome:
    """Submit everything, 32 at a time, then measure the effect on others."""
    before = await cluster.probe()

    async def worker() -> None:
        for each in objects:
            await cluster.tenant.create(each)

    await asyncio.gather(*(worker() for _ in range(32)))
    during = await cluster.probe(10)
    longer = during.cycle_ms - before.cycle_ms
    refused = len(cluster.tenant.refusals)
    text = f"a cycle takes {longer:+.0f} ms" + (f"; {refused} objects were refused" if refused else "")
    return AttackOutcome(longer <= TOLERATED_MS, text)
