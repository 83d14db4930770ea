"""An installation in a namespace of its own: what its operator registers, and the admission service behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pykai.api import names
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden
from pykai.kube.flags import parse_command_line
from pykai.kube.resources import MUTATING_WEBHOOKS, POD_GROUPS, PODS, QUEUES, VALIDATING_WEBHOOKS
from pykai.operator.install import installation
from pykai.services.rights import Places
from tests.cluster.plane import install
from tests.operator.installations import args_of
from tests.operator.installations import objects as desired
from tests.servers import Server, api_server, ensure_namespace
from tests.webhooks.admissioncluster import Admission, Document, admitted
from tests.webhooks.test_gpusharing import HALF, a_pod
from tests.webhooks.test_queueaccess_service import group_for, listed, pod_for, until

PLACE = "gpu-platform"
NAMESPACE = "default"
GROUP = {"metadata": {"labels": {names.GPU_GROUP_LABEL: "g"}}}


def roles(namespace: str) -> list[Document]:
    """What gives accounts of an installation their rights; a cluster has one, so a second has other names."""
    kinds = ("ClusterRoleBinding", "Role", "RoleBinding")
    made = [each for each in installation(None, Places(namespace)) if each["kind"] in kinds]
    for each in made:
        if each["kind"] == "ClusterRoleBinding":
            each["metadata"]["name"] += f"-{namespace}"
    return made


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with api_server(Clock()) as found:
        await ensure_namespace(Client(found.transport()), PLACE)
        await install(found.transport(), roles(PLACE))
        yield found


@pytest.fixture
async def admission(server: Server) -> AsyncIterator[Admission]:
    wanted = desired({"namespace": PLACE, "admission": {"gpuSharing": True}})
    of_kinds = ("Secret", MUTATING_WEBHOOKS.kind, VALIDATING_WEBHOOKS.kind)
    registered = [
        {**each, "metadata": {**each["metadata"], "ownerReferences": []}}
        for (kind, _), each in wanted.items()
        if kind in of_kinds
    ]
    flags = {**parse_command_line(args_of(wanted, "admission")), "webhook-addr": "0"}
    async with admitted(server, wire=server.account(PLACE, "admission"), registered=registered, **flags) as found:
        yield found


async def test_every_registration_gets_the_authority(admission: Admission) -> None:
    """operations:O-28"""
    bundles = {
        webhook["name"]: webhook["clientConfig"].get("caBundle")
        for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        for each in await admission.admin.list_raw(kind)
        for webhook in each["webhooks"]
        if each["metadata"]["name"].startswith(("kai-", "mutating-kai", "validating-kai"))
    }
    assert bundles.keys() == {
        f"admission.{PLACE}.svc",
        f"topology.admission.{PLACE}.svc",
        "queue-validation.kai.scheduler",
        "podgroup-validation.kai.scheduler",
    }
    assert set(bundles.values()) == {(await admission.secret())["data"]["ca.crt"]}


async def test_pods_that_share_gpus_are_completed_and_the_binder_may_label_them(
    server: Server, admission: Admission
) -> None:
    """operations:O-28, O-29; gpu:A-1: the binder is that of this installation."""
    made = await admission.admin.create(PODS, a_pod(HALF), NAMESPACE)
    assert names.SHARED_GPU_CONFIGMAP_ANNOTATION in made["metadata"]["annotations"]
    with pytest.raises(Forbidden, match=f'admission webhook "admission.{PLACE}.svc" denied the request'):
        await Client(server.transport("binder")).patch(PODS, "p", GROUP, NAMESPACE)
    labelled = await Client(server.account(PLACE, "binder")).patch(PODS, "p", GROUP, NAMESPACE)
    assert labelled["metadata"]["labels"][names.GPU_GROUP_LABEL] == "g"


async def test_the_pod_grouper_is_only_warned_of_queues_of_others(server: Server, admission: Admission) -> None:
    """access:admission"""
    await admission.admin.create(QUEUES, listed("vision", "vision"))
    await until(admission, PODS, pod_for("vision"), refused=True)
    with pytest.raises(Forbidden, match="may not use queue 'vision'"):
        await Client(server.transport("pod-grouper")).create(POD_GROUPS, group_for("vision"), NAMESPACE)
    await Client(server.account(PLACE, "pod-grouper")).create(POD_GROUPS, group_for("vision"), NAMESPACE)


async def test_pods_of_the_namespace_itself_are_not_sent(admission: Admission) -> None:
    """operations:O-29: a service must start whatever happens; the default namespace is one like others here."""
    await ensure_namespace(admission.admin, names.DEFAULT_NAMESPACE)
    wrong = a_pod({names.GPU_FRACTION_ANNOTATION: "2"}, name="wrong")
    with pytest.raises(Forbidden, match="denied the request"):
        await admission.admin.create(PODS, wrong, names.DEFAULT_NAMESPACE, dry_run=True)
    await admission.admin.create(PODS, wrong, PLACE, dry_run=True)
