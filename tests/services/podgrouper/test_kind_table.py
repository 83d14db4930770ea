"""A new workload kind is a row of the table and one module: grouping, watches, the role and the docs check follow."""

from __future__ import annotations

import pytest

from pykai.kube import resources
from pykai.kube.resources import Resource
from pykai.kube.transport import Response
from pykai.podgrouper.kinds.table import WORKLOAD_KINDS, WorkloadKind
from pykai.podgrouper.owners import ObjectMetadataOnly
from pykai.services.rights import RoleRule
from pykai.services.table import SERVICES
from tests.docs.test_grouping_docs import GROUPER, unlisted_kinds
from tests.podgrouper.dummykind import group_dummy
from tests.services.podgrouper.grouped import assigned, definition, group_of, grouper, permission
from tests.services.servicecluster import ServiceCluster

SWEEPS = Resource("example.com", "v1", "sweeps", "Sweep", True)
READ = WorkloadKind(SWEEPS, group_dummy)
WATCHED = WorkloadKind(SWEEPS, group_dummy, ObjectMetadataOnly, ("list", "watch", "get"))


@pytest.fixture
def read_kind(monkeypatch: pytest.MonkeyPatch) -> WorkloadKind:
    monkeypatch.setitem(WORKLOAD_KINDS, READ.group_version_kind, READ)
    return READ


@pytest.mark.usefixtures("read_kind")
async def test_its_pods_are_grouped_by_its_grouper(place: ServiceCluster) -> None:
    await place.ensure(
        definition(SWEEPS.group, SWEEPS.version, SWEEPS.plural, SWEEPS.kind), *permission(SWEEPS.group, SWEEPS.plural)
    )
    sweep = await place.create(SWEEPS, "s", spec={"trials": 3})
    await place.pod("trial", by=sweep)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("trial"))
    name = group_of(place.pods, "trial")
    group = await place.client.get_raw(resources.POD_GROUPS, name, "default")
    assert group["spec"]["minMember"] == 3


@pytest.mark.parametrize("kind", [READ, WATCHED])
def test_the_role_follows_the_row(kind: WorkloadKind, monkeypatch: pytest.MonkeyPatch) -> None:
    before = SERVICES["podgrouper"].rules
    monkeypatch.setitem(WORKLOAD_KINDS, kind.group_version_kind, kind)
    added = set(SERVICES["podgrouper"].rules) - set(before)
    assert added == {RoleRule("example.com", ("sweeps",), kind.verbs)}


async def test_a_kind_with_a_record_to_cache_is_watched(place: ServiceCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKLOAD_KINDS, WATCHED.group_version_kind, WATCHED)
    wire = place.wire()
    # The role of the cluster does not know the kind, and the kind need not be installed.
    wire.fault = lambda request: Response(404, b"{}") if request.path == SWEEPS.path() else None
    async with place.running(grouper(), transport=wire):
        pass
    assert f"GET {SWEEPS.path()}" in wire.reads


@pytest.mark.usefixtures("read_kind")
def test_docs_must_name_it() -> None:
    assert unlisted_kinds(GROUPER) == {"Sweep"}
    row = "| Sweep | `pg-<name>-<uid>` | its trials | train |\n"
    assert unlisted_kinds(GROUPER.replace("| Job |", f"{row}| Job |")) == set()
