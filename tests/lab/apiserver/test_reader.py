"""Get and list: selectors, pages, revisions, forms."""

from __future__ import annotations

import pytest

from pykai.lab.apiserver import storage
from pykai.lab.apiserver.server import ApiServer
from tests.lab.apiserver.apiclient import Api, config_map, definition, deployment, pod, widget
from tests.servers import Server

METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


async def test_a_list_says_what_it_is(api: Api) -> None:
    await api.create("pods", pod("b"))
    last = await api.create("pods", pod("a"))
    answer = await api.list("pods")
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("PodList", "v1")
    assert answer.meta.keys() == {"resourceVersion"}
    assert int(answer.meta["resourceVersion"]) >= int(last.meta["resourceVersion"])
    assert answer.names == ["a", "b"]


async def test_items_of_kubernetes_own_kinds_do_not_say_what_they_are(api: Api) -> None:
    said = {"kind": "ConfigMap", "apiVersion": "v1"}
    await api.create("configmaps", {**said, **config_map("said-first")})
    await api.create("configmaps", {**config_map("said-last"), **said})
    await api.patch("configmaps", "said-last", {"data": {"a": "b"}})
    queue = {"kind": "Queue", "apiVersion": "scheduling.run.ai/v2", "metadata": {"name": "q"}, "spec": {}}
    (await api.create("queues", queue)).ok()
    maps, queues = (await api.list("configmaps")).body["items"], (await api.list("queues")).body["items"]
    own = [each for each in maps if each["metadata"]["name"].startswith("said")]
    assert [each.keys() & {"kind", "apiVersion"} for each in own] == [set(), set()]
    assert {(each["kind"], each["apiVersion"]) for each in queues} == {("Queue", "scheduling.run.ai/v2")}


async def test_an_absent_object_is_reported_by_name(api: Api) -> None:
    answer = await api.get("deployments", "web")
    assert (answer.code, answer.body["message"]) == (404, 'deployments.apps "web" not found')
    assert answer.body["details"] == {"name": "web", "group": "apps", "kind": "deployments"}


async def test_a_list_of_a_namespace_holds_nothing_of_others(api: Api) -> None:
    for namespace in ("default", "kube-system", "default-2", "default.x"):
        if namespace.startswith("default") and namespace != "default":
            name = namespace.replace(".", "-")
            await api.create("namespaces", {"metadata": {"name": name}})
            namespace = name
        await api.create("configmaps", config_map("a"), namespace=namespace)
    assert len((await api.list("configmaps")).names) == 1
    assert len((await api.list("configmaps", None, fieldSelector="metadata.name=a")).names) == 4


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", ["a", "b"]),
        ("app==web", ["a", "b"]),
        ("app!=web", ["c", "d"]),
        ("app=web,tier=2", ["b"]),
        ("app in (web, db)", ["a", "b", "c"]),
        ("app notin (web,db)", ["d"]),
        ("app", ["a", "b", "c"]),
        ("!app", ["d"]),
        ("tier>1", ["b"]),
        ("tier<2", ["a"]),
        ("", ["a", "b", "c", "d"]),
    ],
)
async def test_label_selectors(api: Api, selector: str, names: list[str]) -> None:
    await api.create("configmaps", config_map("a", labels={"app": "web", "tier": "1"}))
    await api.create("configmaps", config_map("b", labels={"app": "web", "tier": "2"}))
    await api.create("configmaps", config_map("c", labels={"app": "db"}))
    await api.create("configmaps", config_map("d"))
    assert (await api.list("configmaps", labelSelector=selector)).names == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.name!=a", ["b"]),
        ("metadata.namespace=default", ["a", "b"]),
        ("spec.nodeName=n1", ["a"]),
        ("spec.nodeName=", ["b"]),
        ("spec.nodeName!=,spec.schedulerName=default-scheduler", ["a"]),
        ("spec.schedulerName=kai-scheduler", ["b"]),
        ("status.phase=Pending", ["a", "b"]),
        ("status.phase!=Pending", []),
    ],
)
async def test_field_selectors(api: Api, selector: str, names: list[str]) -> None:
    await api.create("pods", pod("a"))
    await api.bind("a", "n1")
    await api.create("pods", pod("b", schedulerName="kai-scheduler"))
    assert (await api.list("pods", fieldSelector=selector)).names == names


async def test_events_are_selected_by_what_they_are_about(api: Api) -> None:
    for name, about in (("e1", "a"), ("e2", "b")):
        involved = {"kind": "Pod", "namespace": "default", "name": about, "uid": f"u-{about}"}
        event = {"metadata": {"name": name}, "involvedObject": involved, "reason": "Because", "type": "Normal"}
        (await api.create("events", event)).ok()
    found = await api.list("events", fieldSelector="involvedObject.name=a,involvedObject.uid=u-a,reason=Because")
    assert found.names == ["e1"]


@pytest.mark.parametrize(
    "query",
    [
        {"fieldSelector": "spec.colour=red"},
        {"fieldSelector": "nonsense"},
        {"labelSelector": "a b=c"},
        {"limit": "many"},
        {"continue_": "broken"},
        {"resourceVersion": "x"},
    ],
)
async def test_what_cannot_be_understood_is_400(api: Api, query: dict[str, str]) -> None:
    assert (await api.list("pods", **query)).code == 400


@pytest.mark.parametrize(
    "query", [{"resourceVersion": "1", "resourceVersionMatch": "Perhaps"}, {"resourceVersionMatch": "Exact"}]
)
async def test_a_match_that_makes_no_sense_is_invalid(api: Api, query: dict[str, str]) -> None:
    answer = await api.list("pods", **query)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["details"]["kind"] == "ListOptions"


async def test_pages_show_one_moment(api: Api) -> None:
    for number in range(5):
        await api.create("configmaps", config_map(f"c{number}"))
    first = await api.list("configmaps", limit="2")
    assert first.names == ["c0", "c1"]
    assert first.meta["remainingItemCount"] == 3
    await api.delete("configmaps", "c3")
    await api.create("configmaps", config_map("c2b"))
    await api.patch("configmaps", "c4", {"data": {"new": "1"}})
    second = await api.list("configmaps", limit="2", continue_=first.meta["continue"])
    third = await api.list("configmaps", limit="2", continue_=second.meta["continue"])
    assert second.names + third.names == ["c2", "c3", "c4"]
    assert "data" not in third.body["items"][-1]
    assert "continue" not in third.meta
    assert {first.meta["resourceVersion"]} == {second.meta["resourceVersion"], third.meta["resourceVersion"]}


async def test_a_page_of_a_forgotten_moment_is_410(api: Api, server: Server) -> None:
    for number in range(4):
        await api.create("secrets", {"metadata": {"name": f"s{number}"}})
    first = await api.list("secrets", limit="1")
    await api.patch("secrets", "s0", {"data": {"n": "MQ=="}})
    await api.patch("secrets", "s0", {"data": {"n": "Mg=="}})
    server.compact()
    answer = await api.list("secrets", limit="1", continue_=first.meta["continue"])
    assert (answer.code, answer.body["reason"]) == (410, "Expired")
    assert "consistent list" in answer.body["message"]


async def test_a_list_at_an_exact_revision(api: Api) -> None:
    then = (await api.create("configmaps", config_map("a"))).meta["resourceVersion"]
    await api.create("configmaps", config_map("b"))
    await api.delete("configmaps", "a")
    exact = await api.list("configmaps", resourceVersion=then, resourceVersionMatch="Exact")
    assert exact.names == ["a"]
    assert exact.meta["resourceVersion"] == then
    assert (await api.list("configmaps", resourceVersion=then)).names == ["b"]
    assert (await api.list("configmaps", resourceVersion="0")).names == ["b"]


async def test_a_revision_to_come_is_a_timeout(api: Api) -> None:
    answer = await api.list("configmaps", resourceVersion="1000000")
    assert (answer.code, answer.body["reason"]) == (504, "Timeout")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_metadata_alone(api: Api) -> None:
    await api.create("pods", pod("a", labels={"x": "y"}))
    one = await api.request("GET", "/api/v1/namespaces/default/pods/a", accept=METADATA)
    assert one.body["kind"] == "PartialObjectMetadata"
    assert "spec" not in one.body
    assert one.meta["labels"] == {"x": "y"}
    many = await api.request("GET", "/api/v1/pods", accept=METADATA_LIST)
    assert many.body["kind"] == "PartialObjectMetadataList"
    assert many.names == ["a"]
    assert "spec" not in many.body["items"][0]


async def test_a_client_that_does_not_accept_json_gets_406(inside: ApiServer) -> None:
    api = Api(inside.transport())
    protobuf = "application/vnd.kubernetes.protobuf"
    assert (await api.request("GET", "/api/v1/pods", accept=protobuf)).code == 406
    assert (await api.request("GET", "/api/v1/pods", accept=f"{protobuf},application/json")).code == 200


async def test_versions_of_one_kind_show_the_same_objects(api: Api) -> None:
    both = definition()
    first = both["spec"]["versions"][0]
    both["spec"]["versions"] = [first, first | {"name": "v2", "storage": False}]
    await api.define(both)
    await api.create("widgets", widget("a", size=3))
    newer = await api.request("GET", "/apis/example.com/v2/namespaces/default/widgets/a")
    assert newer.body["apiVersion"] == "example.com/v2"
    assert newer.body["spec"] == {"size": 3}
    changed = newer.body | {"spec": {"size": 4}}
    (await api.request("PUT", "/apis/example.com/v2/namespaces/default/widgets/a", changed)).ok()
    old = await api.get("widgets", "a")
    assert (old.body["apiVersion"], old.body["spec"]) == ("example.com/v1", {"size": 4})
    listed = await api.request("GET", "/apis/example.com/v2/widgets")
    assert [item["apiVersion"] for item in listed.body["items"]] == ["example.com/v2"]


async def test_what_is_read_is_never_what_is_stored(inside: ApiServer) -> None:
    """A record's object is shared by readers; writes make new ones."""
    api = Api(inside.transport())
    await api.create("deployments", deployment("web"))
    record = inside.storage.get(("apps", "deployments"), "default/web")
    assert record is not None
    before = storage.encode(record.object())
    await api.patch("deployments", "web", {"spec": {"replicas": 4}, "metadata": {"labels": {"a": "b"}}})
    await api.patch("deployments", "web", {"status": {"replicas": 4}}, "status")
    assert storage.encode(record.object()) == before
