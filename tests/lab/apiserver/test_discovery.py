"""Discovery of kinds, versions and health."""

from __future__ import annotations

from pykai.lab.apiserver.server import ApiServer
from tests.lab.apiserver.apiclient import Api, definition

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def test_the_version_is_that_of_a_recent_cluster(api: Api) -> None:
    version = (await api.request("GET", "/version")).body
    assert (version["major"], version["minor"]) == ("1", "35")
    assert version["gitVersion"].startswith("v1.35.")


async def test_health(api: Api) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        answer = await api.request("GET", path)
        assert (answer.code, answer.body) == (200, b"ok")


async def test_resources_with_short_names_categories_and_subresources(api: Api) -> None:
    core = (await api.request("GET", "/api/v1")).body
    found = {entry["name"]: entry for entry in core["resources"]}
    assert found["pods"]["shortNames"] == ["po"]
    assert found["pods"]["categories"] == ["all"]
    assert found["pods"]["singularName"] == "pod"
    assert found["pods/eviction"]["kind"] == "Eviction"
    assert found["pods/status"]["verbs"] == ["get", "patch", "update"]
    assert not found["nodes"]["namespaced"]
    apps = (await api.request("GET", "/apis/apps/v1")).body
    scale = next(entry for entry in apps["resources"] if entry["name"] == "deployments/scale")
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


async def test_groups(api: Api) -> None:
    groups = {group["name"]: group for group in (await api.request("GET", "/apis")).body["groups"]}
    assert groups["apps"]["preferredVersion"]["groupVersion"] == "apps/v1"
    ours = [version["version"] for version in groups["scheduling.run.ai"]["versions"]]
    assert ours == ["v2", "v2alpha2", "v1alpha2"]
    assert (await api.request("GET", "/apis/apps")).body["name"] == "apps"
    assert (await api.request("GET", "/apis/none.example")).code == 404


async def test_the_aggregated_form_holds_the_same(api: Api) -> None:
    answer = await api.request("GET", "/apis", accept=AGGREGATED)
    assert answer.headers["Content-Type"].startswith("application/json;g=apidiscovery.k8s.io")
    groups = {item["metadata"]["name"]: item for item in answer.body["items"]}
    (v1,) = groups["apps"]["versions"]
    found = {entry["resource"]: entry for entry in v1["resources"]}
    assert found["deployments"]["scope"] == "Namespaced"
    assert {below["subresource"] for below in found["deployments"]["subresources"]} == {"scale", "status"}
    core = (await api.request("GET", "/api", accept=AGGREGATED)).body
    assert [item["metadata"].get("name", "") for item in core["items"]] == [""]


async def test_a_custom_kind_comes_and_goes(api: Api) -> None:
    assert (await api.request("GET", "/apis/example.com/v1")).code == 404
    await api.define(definition())
    kinds = (await api.request("GET", "/apis/example.com/v1")).body["resources"]
    assert [(entry["name"], entry.get("shortNames")) for entry in kinds] == [("widgets", ["wd"])]
    await api.until(
        lambda: api.request("GET", "/openapi/v3"), lambda answer: "apis/example.com/v1" in answer.body["paths"]
    )
    await api.delete("customresourcedefinitions", "widgets.example.com")
    await api.until(lambda: api.request("GET", "/apis/example.com/v1"), lambda answer: answer.code == 404)


async def test_openapi_says_that_patches_can_be_validated(api: Api) -> None:
    document = (await api.request("GET", "/openapi/v3/api/v1")).body
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]


async def test_openapi_v2_is_not_there(inside: ApiServer) -> None:
    assert (await Api(inside.transport()).request("GET", "/openapi/v2")).code == 404


async def test_questions_about_oneself(api: Api) -> None:
    ask = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await api.request("POST", path, ask)).body["status"]["allowed"] is True
    whoami = await api.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert whoami.body["status"]["userInfo"]["username"] in ("kubernetes-admin", "admin")
    assert (await api.request("GET", path)).code == 405
