"""Deletion: grace, finalizers, preconditions, what goes along, namespaces, events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pykai.kube.clock import Clock
from pykai.lab.apiserver.server import ApiServer
from tests.lab.apiserver.apiclient import Api, config_map, deployment, owned_by, path_of, pod, running_server


async def test_a_deleted_object_is_gone_and_the_answer_names_it(api: Api) -> None:
    uid = (await api.create("configmaps", config_map("a"))).meta["uid"]
    answer = await api.delete("configmaps", "a")
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    assert (await api.get("configmaps", "a")).code == 404
    assert (await api.delete("configmaps", "a")).code == 404


async def test_an_unbound_pod_vanishes_at_once(api: Api) -> None:
    await api.create("pods", pod("a"))
    await api.delete("pods", "a")
    assert (await api.get("pods", "a")).code == 404


async def test_a_bound_pod_waits_for_its_kubelet(api: Api) -> None:
    await api.create("pods", pod("a", terminationGracePeriodSeconds=45))
    await api.bind("a", "n1")
    answer = await api.delete("pods", "a")
    assert answer.meta["deletionGracePeriodSeconds"] == 45
    assert "deletionTimestamp" in answer.meta
    assert (await api.get("pods", "a")).code == 200
    shorter = await api.delete("pods", "a", gracePeriodSeconds="5")
    assert shorter.meta["deletionGracePeriodSeconds"] == 5
    longer = await api.delete("pods", "a", gracePeriodSeconds="100")
    assert longer.meta["deletionGracePeriodSeconds"] == 5
    await api.delete("pods", "a", gracePeriodSeconds="0")
    assert (await api.get("pods", "a")).code == 404


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_vanishes_at_once(api: Api, phase: str) -> None:
    await api.create("pods", pod("a"))
    await api.bind("a", "n1")
    await api.patch("pods", "a", {"status": {"phase": phase}}, "status")
    await api.delete("pods", "a")
    assert (await api.get("pods", "a")).code == 404


async def test_the_end_of_the_grace_is_written_down() -> None:
    async with running_server(clock=Clock(speed=0.001, start=datetime(2026, 1, 1, tzinfo=UTC))) as (_, slow):
        await slow.create("pods", pod("a"))
        await slow.bind("a", "n1")
        answer = await slow.delete("pods", "a")
        assert answer.meta["deletionTimestamp"] == "2026-01-01T00:00:30Z"


async def test_finalizers_hold_an_object(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold", "example.com/too"]))
    assert "deletionTimestamp" in (await api.delete("configmaps", "a")).meta
    added = await api.patch("configmaps", "a", {"metadata": {"finalizers": ["example.com/hold", "example.com/new"]}})
    assert added.code == 422
    await api.patch("configmaps", "a", {"metadata": {"finalizers": ["example.com/hold"]}})
    assert (await api.get("configmaps", "a")).code == 200
    await api.patch("configmaps", "a", {"metadata": {"finalizers": None}})
    assert (await api.get("configmaps", "a")).code == 404


async def test_a_finalizer_of_a_bound_pod_outlives_its_kubelet(api: Api) -> None:
    await api.create("pods", pod("a", finalizers=["example.com/hold"]))
    await api.bind("a", "n1")
    await api.delete("pods", "a")
    await api.delete("pods", "a", gracePeriodSeconds="0")
    assert (await api.get("pods", "a")).meta["deletionGracePeriodSeconds"] == 0
    await api.patch("pods", "a", {"metadata": {"finalizers": None}})
    assert (await api.get("pods", "a")).code == 404


async def test_a_pod_without_finalizers_still_waits_out_its_grace(api: Api) -> None:
    await api.create("pods", pod("a", finalizers=["example.com/hold"]))
    await api.bind("a", "n1")
    await api.delete("pods", "a")
    await api.patch("pods", "a", {"metadata": {"finalizers": None}})
    assert (await api.get("pods", "a")).code == 200


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_preconditions(api: Api, field: str) -> None:
    created = await api.create("configmaps", config_map("a"))
    wrong = await api.delete("configmaps", "a", {"preconditions": {field: "other"}})
    assert wrong.code == 409
    assert (await api.delete("configmaps", "a", {"preconditions": {field: created.meta[field]}})).code == 200


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"propagationPolicy": "Sideways"}, 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"gracePeriodSeconds": "soon"}, 400),
    ],
)
async def test_options_that_mean_nothing(api: Api, options: dict[str, Any], code: int) -> None:
    await api.create("configmaps", config_map("a"))
    assert (await api.delete("configmaps", "a", options)).code == code


async def test_dependents_go_after_their_owner(api: Api) -> None:
    owner = (await api.create("deployments", deployment("web"))).body
    await api.create("pods", pod("a", owners=owned_by(owner)))
    await api.create("pods", pod("free"))
    await api.delete("deployments", "web")
    await api.gone("pods", "a")
    assert (await api.get("pods", "free")).code == 200


async def test_dependents_go_through_several_generations(api: Api) -> None:
    owner = (await api.create("configmaps", config_map("a"))).body
    child = (await api.create("configmaps", config_map("b", ownerReferences=owned_by(owner)))).body
    await api.create("configmaps", config_map("c", ownerReferences=owned_by(child)))
    await api.delete("configmaps", "a")
    await api.gone("configmaps", "c")


async def test_a_dependent_with_another_owner_stays_and_forgets(api: Api) -> None:
    first = (await api.create("configmaps", config_map("first"))).body
    second = (await api.create("configmaps", config_map("second"))).body
    await api.create("configmaps", config_map("child", ownerReferences=owned_by(first) + owned_by(second)))
    async with api.watch("configmaps", fieldSelector="metadata.name=child") as watch:
        await watch.next()
        await api.delete("configmaps", "first")
        type_, obj = await watch.next()
    assert type_ == "MODIFIED"
    assert [owner["name"] for owner in obj["metadata"]["ownerReferences"]] == ["second"]


async def test_a_dependent_of_an_owner_that_never_was_goes(api: Api) -> None:
    owner = (await api.create("configmaps", config_map("owner"))).body
    owner["metadata"]["uid"] = "another-life"
    await api.create("configmaps", config_map("child", ownerReferences=owned_by(owner)))
    await api.gone("configmaps", "child")


async def test_an_owner_of_an_unserved_kind_counts_as_present(api: Api) -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "Ghost", "metadata": {"name": "g", "uid": "u"}}
    await api.create("configmaps", config_map("child", ownerReferences=owned_by(owner)))
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "g", "uid": "u2"}}
    await api.create("configmaps", config_map("marker", ownerReferences=owned_by(gone)))
    await api.gone("configmaps", "marker")
    assert (await api.get("configmaps", "child")).code == 200


async def test_foreground_waits_for_those_that_block(api: Api) -> None:
    owner = (await api.create("configmaps", config_map("owner"))).body
    blocking = owned_by(owner, blockOwnerDeletion=True)
    await api.create("configmaps", config_map("child", ownerReferences=blocking, finalizers=["example.com/hold"]))
    answer = await api.delete("configmaps", "owner", propagationPolicy="Foreground")
    assert answer.meta["finalizers"] == ["foregroundDeletion"]
    async with api.watch("configmaps", fieldSelector="metadata.name=child") as watch:
        while True:
            _, child = await watch.next()
            if "deletionTimestamp" in child["metadata"]:
                break
    assert (await api.get("configmaps", "owner")).code == 200
    await api.patch("configmaps", "child", {"metadata": {"finalizers": None}})
    await api.gone("configmaps", "owner")


async def test_orphans_stay(api: Api) -> None:
    owner = (await api.create("configmaps", config_map("owner"))).body
    await api.create("configmaps", config_map("child", ownerReferences=owned_by(owner)))
    await api.delete("configmaps", "owner", {"propagationPolicy": "Orphan"})
    await api.gone("configmaps", "owner")
    assert "ownerReferences" not in (await api.get("configmaps", "child")).meta


async def test_a_namespace_is_emptied_and_then_goes(api: Api) -> None:
    await api.create("namespaces", {"metadata": {"name": "team-b"}})
    await api.create("pods", pod("a"), namespace="team-b")
    answer = await api.delete("namespaces", "team-b")
    assert answer.body["status"]["phase"] == "Terminating"
    await api.gone("namespaces", "team-b")
    assert (await api.list("pods", "team-b")).names == []


@pytest.mark.embedded_only("a real server looks again after what holds a namespace only every ten seconds")
async def test_a_namespace_waits_for_what_is_held(api: Api) -> None:
    await api.create("namespaces", {"metadata": {"name": "team"}})
    await api.create("pods", pod("a"), namespace="team")
    held = config_map("held", finalizers=["example.com/hold"])
    await api.create("configmaps", held, namespace="team")
    answer = await api.delete("namespaces", "team")
    assert answer.body["status"]["phase"] == "Terminating"
    await api.gone("pods", "a", "team")
    late = await api.create("pods", pod("b"), namespace="team")
    assert late.code == 403
    assert late.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert (await api.get("namespaces", "team")).code == 200
    release = {"metadata": {"finalizers": None}}
    path = path_of("configmaps", "held", namespace="team")
    await api.request("PATCH", path, release, content_type="application/merge-patch+json")
    await api.gone("namespaces", "team")


async def test_every_namespace_has_a_default_account(inside: ApiServer) -> None:
    """On a real server a controller makes it."""
    api = Api(inside.transport())
    await api.create("namespaces", {"metadata": {"name": "team"}})
    assert (await api.get("serviceaccounts", "default", "team")).code == 200
    assert (await api.get("serviceaccounts", "default", "default")).code == 200


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.create("configmaps", config_map(name, labels={"app": "x" if name != "c" else "y"}))
    answer = await api.request("DELETE", path_of("configmaps"), labelSelector="app=x")
    assert answer.names == ["a", "b"]
    assert (await api.list("configmaps")).names == ["c"]


async def test_events_live_for_an_hour_after_their_last_write() -> None:
    clock = Clock(speed=0.001, start=datetime(2026, 1, 1, tzinfo=UTC))
    async with running_server(clock=clock) as (server, api):
        for name in ("old", "renewed"):
            await api.create("events", {"metadata": {"name": name}, "involvedObject": {"kind": "Pod"}, "reason": "X"})
        _pass_time(clock, 3000)
        await api.patch("events", "renewed", {"count": 2})
        server.garbage_collector.expire_events()
        assert (await api.list("events")).names == ["old", "renewed"]
        _pass_time(clock, 700)
        server.garbage_collector.expire_events()
        assert (await api.list("events")).names == ["renewed"]


def _pass_time(clock: Clock, seconds: float) -> None:
    clock._origin_s -= seconds / clock.speed


async def test_a_deletion_in_a_list_of_owners_is_noticed_by_uid(inside: ApiServer) -> None:
    """Index of owners: an owner reference that is taken away no longer binds."""
    api = Api(inside.transport())
    owner = (await api.create("configmaps", config_map("owner"))).body
    await api.create("configmaps", config_map("child", ownerReferences=owned_by(owner)))
    await api.patch("configmaps", "child", {"metadata": {"ownerReferences": None}})
    assert owner["metadata"]["uid"] not in inside.storage.dependents
    await api.delete("configmaps", "owner")
    assert (await api.get("configmaps", "child")).code == 200
