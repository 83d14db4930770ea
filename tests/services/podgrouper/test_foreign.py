"""Pods of other operators' workloads: the grouper reads every kind that its role names."""

from __future__ import annotations

from pykai.podgrouper.kinds.table import read_kinds
from tests.services.podgrouper.grouped import assigned, definition, group_of, grouper
from tests.services.servicecluster import Document, ServiceCluster

#: one version of each, the usual
FOREIGN = list({(kind.resource.group, kind.resource.plural): kind.resource for kind in read_kinds()}.values())
#: what a kind needs to be grouped
SPECS: dict[str, Document] = {
    "JAXJob": {"jaxReplicaSpecs": {"Worker": {"replicas": 1}}},
    "JobSet": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {}}]},
    "LeaderWorkerSet": {"leaderWorkerTemplate": {"size": 2}},
    "MPIJob": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 1}}},
    "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}},
    "TFJob": {"tfReplicaSpecs": {"Worker": {"replicas": 1}}},
    "XGBoostJob": {"xgbReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}},
}
LABELS = {"jobset.sigs.k8s.io/replicatedjob-name": "w", "jobset.sigs.k8s.io/job-index": "0"}


async def test_every_foreign_kind_is_read_under_the_role(place: ServiceCluster) -> None:
    await place.ensure(*(definition(kind.group, kind.version, kind.plural, kind.kind) for kind in FOREIGN))
    owners = {kind: await place.create(kind, f"o-{kind.plural}", spec=SPECS.get(kind.kind, {})) for kind in FOREIGN}
    for kind, owner in owners.items():
        await place.pod(kind.plural, by=owner, labels=LABELS)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned(*(kind.plural for kind in FOREIGN)))
    for kind, owner in owners.items():
        assert group_of(place.pods, kind.plural) == f"pg-o-{kind.plural}-{owner['metadata']['uid']}"
