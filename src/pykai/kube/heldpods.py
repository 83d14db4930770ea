"""Which pods of a PodGroup have a node, or are about to get one, as the API server says now.

A cache may lag, and a decision whether a change of a group protects running pods must not be early: a BindRequest that
is on its way counts as the node.  Of pods only metadata is asked for.
"""

from __future__ import annotations

from collections import Counter

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.decode import DecodeError
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import BindRequest
from pykai.kube.client import Client
from pykai.kube.decoding import PartialObjectMetadata, ResourceDecoder
from pykai.kube.resources import BIND_REQUESTS, PODS

FINISHED = frozenset(("Succeeded", "Failed"))
_LIVE = ",".join(f"status.phase!={phase}" for phase in sorted(FINISHED))


async def held_pods(client: Client, namespace: str, group: str) -> Counter[str]:
    """Subgroup -> how many pods of a PodGroup have a node, or a BindRequest."""
    # In this order: a pod that is bound meanwhile is in one list at least.
    requests = await client.list(BIND_REQUESTS, into=BindRequest, namespace=namespace)
    awaited = {each.spec.pod_name for each in requests.items}
    found = await _pods(client, namespace, group, f"spec.nodeName=,{_LIVE}") if awaited else {}
    found = {name: subgroup for name, subgroup in found.items() if name in awaited}
    return Counter((found | await _pods(client, namespace, group, f"spec.nodeName!=,{_LIVE}")).values())


def subgroup_of(meta: ObjectMeta) -> str:
    """The subgroup that a pod names."""
    return meta.labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_SUBGROUP


def has_node(pod: Pod) -> bool:
    """Whether a pod holds a node."""
    return bool(pod.spec.node_name) and pod.status.phase not in FINISHED


async def _pods(client: Client, namespace: str, group: str, selector: str) -> dict[str, str]:
    """Pod of the group -> its subgroup."""
    decoder = ResourceDecoder(PODS, PartialObjectMetadata)
    found: dict[str, str] = {}
    async for page in client.pages(PODS, namespace=namespace, field_selector=selector, metadata_only=True):
        if page.first:
            found = {}
        for raw in page.items:
            try:
                meta = decoder.decode(raw).metadata
            except DecodeError:
                continue
            if meta.annotations.get(names.POD_GROUP_ANNOTATION) == group:
                found[meta.name] = subgroup_of(meta)
    return found
