"""Pods of other operators' workloads: the grouper reads every kind that its role names."""

from __future__ import annotations

from pykai.kube import resources
from pykai.kube.runtime import Runtime
from pykai.podgrouper.kinds.pod import group_pod
from pykai.podgrouper.kinds.table import read_kinds
from pykai.podgrouper.service import PodGrouper, make_podgrouper
from tests.services.podgrouper.grouped import assigned, definition, group_of
from tests.services.servicecluster import ServiceCluster

#: one version of each, the usual
FOREIGN = list({(kind.resource.group, kind.resource.plural): kind.resource for kind in read_kinds()}.values())


def plain_grouper(runtime: Runtime) -> PodGrouper:
    """One without groupers for these kinds: their objects are empty here."""
    pods = resources.PODS
    return make_podgrouper(runtime, groupers={(pods.group, pods.version, pods.kind): group_pod})


async def test_every_foreign_kind_is_read_under_the_role(place: ServiceCluster) -> None:
    await place.ensure(*(definition(kind.group, kind.version, kind.plural, kind.kind) for kind in FOREIGN))
    owners = {kind: await place.create(kind, f"o-{kind.plural}") for kind in FOREIGN}
    for kind, owner in owners.items():
        await place.pod(kind.plural, by=owner)
    async with place.running(plain_grouper):
        await place.pods.wait_until(assigned(*(kind.plural for kind in FOREIGN)))
    for kind, owner in owners.items():
        assert group_of(place.pods, kind.plural) == f"pg-o-{kind.plural}-{owner['metadata']['uid']}"
