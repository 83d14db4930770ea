"""CustomResourceDefinitions: a kind comes, changes and goes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.apiserver.apiclient import Api, definition, path_of, pod, widget


async def test_a_definition_is_served_at_once(api: Api) -> None:
    assert (await api.create("widgets", widget("a"))).code == 404
    created = await api.define(definition())
    assert created.code == 201
    created = await api.request("GET", path_of("customresourcedefinitions", "widgets.example.com"))
    assert {c["type"]: c["status"] for c in created.body["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert created.body["status"]["storedVersions"] == ["v1"]
    assert created.body["spec"]["names"]["listKind"] == "WidgetList"
    assert (await api.create("widgets", widget("a", size=1))).code == 201
    listed = await api.list("widgets")
    assert (listed.body["kind"], listed.names) == ("WidgetList", ["a"])


async def test_the_schema_prunes_validates_and_defaults(api: Api) -> None:
    properties = {"size": {"type": "integer", "minimum": 0}, "colour": {"type": "string", "default": "red"}}
    await api.define(definition(properties=properties))
    created = await api.create("widgets", widget("a", size=1, unknown="x"))
    assert created.body["spec"] == {"size": 1, "colour": "red"}
    refused = await api.create("widgets", widget("b", size=-1))
    assert refused.code == 422
    assert refused.body["details"]["causes"][0]["field"] == "spec.size"
    assert (await api.patch("widgets", "a", {"spec": {"size": "big"}})).code == 422
    assert (await api.patch("widgets", "a", {"spec": {"size": 2}})).body["spec"]["size"] == 2


async def test_status_is_separate_only_where_the_definition_says_so(api: Api) -> None:
    await api.define(definition())
    whole = await api.create("widgets", widget("a") | {"status": {"ready": True}})
    assert whole.body["status"] == {"ready": True}
    assert (await api.patch("widgets", "a", {"status": {"ready": False}})).meta["generation"] == 2
    assert (await api.patch("widgets", "a", {"status": {"ready": False}}, "status")).code == 404


async def test_the_status_subresource_of_a_custom_kind(api: Api) -> None:
    await api.define(definition(subresources={"status": {}}))
    assert "status" not in (await api.create("widgets", widget("a", size=1) | {"status": {"ready": True}})).body
    status = await api.patch(
        "widgets", "a", {"spec": {"size": 5}, "metadata": {"labels": {"x": "y"}}, "status": {"ready": True}}, "status"
    )
    assert status.body["status"] == {"ready": True}
    assert status.body["spec"] == {"size": 1}
    assert "labels" not in status.meta
    assert status.meta["generation"] == 1


async def test_the_scale_of_a_custom_kind(api: Api) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    await api.define(definition(subresources={"scale": scale}))
    await api.create("widgets", widget("a", size=1))
    assert (await api.patch("widgets", "a", {"spec": {"replicas": 3}}, "scale")).body["spec"] == {"replicas": 3}
    assert (await api.get("widgets", "a")).body["spec"] == {"size": 3}


async def test_a_changed_definition_counts_from_then_on(api: Api) -> None:
    await api.define(definition())
    newer = definition(properties={"size": {"type": "integer"}, "weight": {"type": "integer"}})
    spec = {"spec": {"versions": newer["spec"]["versions"]}}
    assert (await api.patch("customresourcedefinitions", "widgets.example.com", spec)).code == 200
    # In between the kind is not served at all for a moment.
    known = await api.until(
        lambda: api.create("widgets", widget("a", weight=3), dryRun="All"),
        lambda answer: answer.code == 201 and answer.body["spec"] != {},
    )
    assert known.body["spec"] == {"weight": 3}


async def test_a_definition_takes_its_objects_with_it(api: Api) -> None:
    await api.define(definition())
    await api.create("widgets", widget("a"))
    async with api.watch("widgets") as watch:
        assert await watch.take(1) == [("ADDED", "a")]
        await api.delete("customresourcedefinitions", "widgets.example.com")
        assert await watch.take(1) == [("DELETED", "a")]
    await api.until(lambda: api.list("widgets"), lambda answer: answer.code == 404)
    await api.gone("customresourcedefinitions", "widgets.example.com")
    await api.define(definition())
    assert (await api.list("widgets")).names == []


def _without(**changes: Any) -> dict[str, Any]:
    broken = definition()
    for path, value in changes.items():
        target = broken
        *steps, last = path.split("__")
        for step in steps:
            target = target[step]
        target[last] = value
    return broken


@pytest.mark.parametrize(
    "broken",
    [
        _without(metadata__name="other.example.com"),
        _without(spec__versions=[]),
        _without(spec__scope="Everywhere"),
        _without(spec__names={"plural": "widgets"}),
        _without(spec__versions=[{"name": "v1", "served": True, "storage": False, "schema": {}}]),
        {
            "metadata": {"name": "pods."},
            "spec": {**definition()["spec"], "group": "", "names": {"plural": "pods", "kind": "Pod"}},
        },
    ],
)
async def test_definitions_that_cannot_be_served(api: Api, broken: dict[str, Any]) -> None:
    assert (await api.create("customresourcedefinitions", broken)).code == 422
    assert (await api.create("pods", pod("still-works"))).code == 201


async def test_a_custom_object_says_what_it_is(api: Api) -> None:
    """A built-in one need not."""
    spec = {"queue": "q", "minMember": 1}
    refused = await api.create("podgroups", {"metadata": {"name": "g"}, "spec": spec})
    assert refused.code == 400
    assert "Object 'Kind' is missing" in refused.body["message"]
    what = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup"}
    assert (await api.create("podgroups", {**what, "metadata": {"name": "g"}, "spec": spec})).code == 201
    assert (await api.list("bindrequests")).names == []


async def test_nulls_are_dropped_where_there_may_be_none(api: Api) -> None:
    properties = {"size": {"type": "integer"}, "colour": {"type": "string", "nullable": True}}
    await api.define(definition(properties=properties))
    created = await api.create("widgets", widget("a", size=None, colour=None))
    assert created.body["spec"] == {"colour": None}
    assert (await api.create("widgets", widget("b", colour="red", size="big"))).code == 422


async def test_a_pattern_that_is_written_to_do_harm(api: Api) -> None:
    """A backtracking matcher would not come to an end; the regular expressions of Kubernetes are RE2."""
    await api.define(definition(properties={"word": {"type": "string", "pattern": "^(a+)+$"}}))
    refused = await api.create("widgets", widget("bad", word="a" * 200 + "!"))
    assert refused.code == 422
    assert "should match '^(a+)+$'" in refused.body["message"]
    assert (await api.create("widgets", widget("good", word="a" * 200))).code == 201


async def test_a_kind_in_a_group_of_kubernetes_says_whether_it_was_approved(api: Api) -> None:
    made = definition()
    made["metadata"]["name"], made["spec"]["group"] = "widgets.example.k8s.io", "example.k8s.io"
    refused = await api.request("POST", path_of("customresourcedefinitions"), made)
    assert refused.code == 422
    assert refused.body["details"]["causes"][0]["field"] == "metadata.annotations[api-approved.kubernetes.io]"
    made["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for tests"}
    assert (await api.request("POST", path_of("customresourcedefinitions"), made)).code == 201
