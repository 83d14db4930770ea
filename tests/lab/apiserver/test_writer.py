"""Create, update and patch: what the server adds, keeps, refuses and leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.test_quantity import CANONICAL
from tests.lab.apiserver.apiclient import (
    APPLY,
    JSON_PATCH,
    STRATEGIC,
    Api,
    config_map,
    definition,
    deployment,
    pod,
    widget,
)


async def test_a_created_object_is_stamped_by_the_server(api: Api) -> None:
    sent = pod("web", labels={"app": "web"})
    sent["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
    answer = await api.create("pods", sent)
    assert answer.code == 201
    assert answer.meta["uid"] not in ("", "mine")
    assert not answer.meta["creationTimestamp"].startswith("2001")
    assert answer.meta["generation"] == 1
    assert answer.meta["namespace"] == "default"
    assert (await api.get("pods", "web")).body == answer.body


async def test_generated_names_begin_with_the_prefix_and_differ(api: Api) -> None:
    first = await api.create("pods", pod(generate_name="job-"))
    second = await api.create("pods", pod(generate_name="job-"))
    assert first.meta["name"].startswith("job-")
    assert len(first.meta["name"]) == len("job-") + 5
    assert first.meta["name"] != second.meta["name"]


async def test_a_taken_name_is_refused(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    answer = await api.create("configmaps", config_map("a"))
    assert (answer.code, answer.body["reason"]) == (409, "AlreadyExists")
    assert answer.body["message"] == 'configmaps "a" already exists'


@pytest.mark.parametrize("name", ["Upper", "a_b", "-a", "a" * 254, "a..b", ""])
async def test_names_follow_rfc_1123(api: Api, name: str) -> None:
    answer = await api.create("configmaps", config_map(name))
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "metadata.name"


@pytest.mark.parametrize(
    "labels", [{"a b": "x"}, {"a": "x y"}, {"a": "x" * 64}, {"UP.case/x": "y"}, {"a/b/c": "d"}, {"/a": "b"}]
)
async def test_labels_have_a_grammar(api: Api, labels: dict[str, str]) -> None:
    answer = await api.create("configmaps", config_map("a", labels=labels))
    assert answer.code == 422
    assert answer.body["details"]["causes"][0]["field"] == "metadata.labels"


async def test_the_namespace_must_exist(api: Api) -> None:
    answer = await api.create("pods", pod("web"), namespace="nowhere")
    assert (answer.code, answer.body["message"]) == (404, 'namespaces "nowhere" not found')


async def test_the_body_belongs_to_its_path(api: Api) -> None:
    elsewhere = pod("web")
    elsewhere["metadata"]["namespace"] = "other"
    assert (await api.create("pods", elsewhere)).code == 400
    assert (await api.create("configmaps", pod("web"))).code == 400
    assert (await api.request("POST", "/api/v1/namespaces/default/pods", b"{not json")).code == 400
    assert (await api.request("POST", "/api/v1/namespaces/default/pods", ["a", "list"])).code == 400


async def test_an_update_of_an_old_version_conflicts(api: Api) -> None:
    old = (await api.create("configmaps", config_map("a"))).body
    newer = await api.put("configmaps", old | {"data": {"x": "1"}})
    assert newer.code == 200
    answer = await api.put("configmaps", old | {"data": {"x": "2"}})
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert answer.body["details"]["name"] == "a"
    assert (await api.get("configmaps", "a")).body["data"] == {"x": "1"}


async def test_an_update_without_a_version_takes_what_is_there(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    assert (await api.put("configmaps", config_map("a") | {"data": {"x": "2"}})).code == 200


async def test_a_custom_object_is_only_replaced_with_its_version(api: Api) -> None:
    await api.define(definition())
    await api.create("widgets", widget("a", size=1))
    answer = await api.put("widgets", widget("a", size=2))
    assert (answer.code, answer.body["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


async def test_another_uid_means_another_object(api: Api) -> None:
    old = (await api.create("configmaps", config_map("a"))).body
    old["metadata"]["uid"] = "another"
    del old["metadata"]["resourceVersion"]
    assert (await api.put("configmaps", old)).code == 409


async def test_what_belongs_to_the_server_stays(api: Api) -> None:
    old = (await api.create("configmaps", config_map("a"))).body
    changed = old | {"data": {"x": "1"}}
    changed["metadata"] = old["metadata"] | {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9}
    answer = (await api.put("configmaps", changed)).ok()
    assert answer.meta["creationTimestamp"] == old["metadata"]["creationTimestamp"]
    assert "generation" not in answer.meta


@pytest.mark.parametrize(
    "change",
    [{"deletionTimestamp": "2001-01-01T00:00:00Z"}, {"deletionGracePeriodSeconds": 5}, {"uid": "another"}],
)
async def test_what_is_settled_cannot_be_patched(api: Api, change: dict[str, Any]) -> None:
    await api.create("configmaps", config_map("a"))
    answer = await api.patch("configmaps", "a", {"metadata": change})
    assert (answer.code, answer.body["details"]["causes"][0]["field"]) == (422, f"metadata.{next(iter(change))}")
    assert "field is immutable" in answer.body["message"]


async def test_a_deployment_that_is_recreated_is_not_rolled_out_too(api: Api) -> None:
    """An apply keeps what the server has filled in."""
    labels = {"app": "a"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}
    (await api.create("deployments", made)).ok()
    recreated = await api.patch("deployments", "a", {"spec": {"strategy": {"type": "Recreate"}}})
    assert (recreated.code, recreated.body["details"]["causes"][0]["field"]) == (422, "spec.strategy.rollingUpdate")
    both = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    assert (await api.patch("deployments", "a", both)).ok().body["spec"]["strategy"] == {"type": "Recreate"}


async def test_a_write_that_changes_nothing_is_no_write(api: Api) -> None:
    old = (await api.create("pods", pod("web", labels={"a": "b"}))).body
    assert (await api.put("pods", old)).body == old
    assert (await api.patch("pods", "web", {"metadata": {"labels": {"a": "b"}}})).body == old
    assert (await api.patch("pods", "web", {"status": {"phase": "Pending"}}, "status")).body == old
    assert (await api.get("pods", "web")).meta["resourceVersion"] == old["metadata"]["resourceVersion"]


async def test_the_rest_of_a_status_stays_when_a_part_of_it_changes(api: Api) -> None:
    await api.create("pods", pod("web"))
    first = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    before = (await api.patch("pods", "web", {"status": first}, "status")).body["status"]
    after = await api.patch("pods", "web", {"status": {"message": "hello"}}, "status")
    assert after.body["status"] == {**before, "message": "hello"}
    wrong = await api.patch("pods", "web", {"status": {"phase": 7}}, "status")
    assert wrong.code == 422
    assert "phase" in wrong.body["message"]
    unknown = await api.patch("pods", "web", {"status": {"nonsense": 1, "message": "bye"}}, "status")
    assert unknown.body["status"] == {**before, "message": "bye"}


async def test_status_changes_only_through_its_subresource(api: Api) -> None:
    created = await api.create("deployments", deployment("web") | {"status": {"replicas": 9}})
    assert created.body["status"] == {}
    main = await api.patch("deployments", "web", {"spec": {"replicas": 3}, "status": {"replicas": 9}})
    assert main.body["spec"]["replicas"] == 3
    assert main.body["status"] == {}
    status = await api.patch("deployments", "web", {"spec": {"replicas": 7}, "status": {"replicas": 3}}, "status")
    assert status.body["spec"]["replicas"] == 3
    assert status.body["status"]["replicas"] == 3
    assert (await api.patch("configmaps", "web", {}, "status")).code == 404


async def test_generation_counts_changes_of_the_spec_alone(api: Api) -> None:
    await api.create("deployments", deployment("web"))
    assert (await api.patch("deployments", "web", {"metadata": {"labels": {"a": "b"}}})).meta["generation"] == 1
    assert (await api.patch("deployments", "web", {"status": {"replicas": 1}}, "status")).meta["generation"] == 1
    assert (await api.patch("deployments", "web", {"spec": {"replicas": 5}})).meta["generation"] == 2


async def test_unknown_fields_are_reported_refused_or_ignored(api: Api) -> None:
    odd = pod("a")
    odd["spec"]["colour"] = "red"
    strict = await api.create("pods", odd, fieldValidation="Strict")
    said = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.colour"'
    assert (strict.code, strict.body["message"]) == (400, said)
    warned = await api.create("pods", odd, fieldValidation="Warn")
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.colour\\""'
    assert "colour" not in warned.body["spec"]
    odd["metadata"]["name"] = "b"
    ignored = await api.create("pods", odd, fieldValidation="Ignore")
    assert ignored.code == 201
    assert "Warning" not in ignored.headers
    assert "Warning" in (await api.create("pods", odd, dryRun="All")).headers
    assert (await api.create("pods", odd, fieldValidation="Maybe")).code == 422
    patched = await api.patch("pods", "b", {"spec": {"colour": "red"}}, fieldValidation="Strict")
    assert patched.code == 422
    assert 'strict decoding error: unknown field "spec.colour"' in patched.body["message"]


async def test_a_field_of_the_wrong_type_makes_no_object_of_the_kind(api: Api) -> None:
    for wrong in ({"priority": "high"}, {"tolerations": {"a": 1}}, {"containers": "none"}):
        answer = await api.create("pods", pod("a", **wrong))
        assert (answer.code, answer.body["reason"]) == (400, "BadRequest"), wrong
        assert answer.body["message"].startswith('Pod in version "v1" cannot be handled as a Pod: ')
        assert next(iter(wrong)) in answer.body["message"]
    quantity = pod("a", containers=[{"name": "c", "image": "x", "resources": {"limits": {"cpu": "much"}}}])
    answer = await api.create("pods", quantity)
    assert answer.code == 400
    assert "quantities must match the regular expression" in answer.body["message"]


async def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    assert (await api.create("pods", pod("web"), dryRun="All")).body["status"]["phase"] == "Pending"
    assert (await api.get("pods", "web")).code == 404
    created = await api.create("pods", pod("web"))
    assert (await api.patch("pods", "web", {"metadata": {"labels": {"a": "b"}}}, dryRun="All")).meta["labels"]
    assert (await api.delete("pods", "web", dryRun="All")).code == 200
    assert (await api.get("pods", "web")).body == created.body
    assert (await api.create("pods", pod("web"), dryRun="Some")).code == 422


async def test_json_patches(api: Api) -> None:
    await api.create("configmaps", config_map("a") | {"data": {"x": "1"}})
    ops = [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"}]
    assert (await api.patch("configmaps", "a", ops, kind=JSON_PATCH)).body["data"] == {"x": "2"}
    again = await api.patch("configmaps", "a", ops, kind=JSON_PATCH)
    assert again.code == 422


async def test_strategic_patches_merge_lists_by_key(api: Api) -> None:
    await api.create("deployments", deployment("web"))
    more = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "x"}]}}}}
    answer = (await api.patch("deployments", "web", more, kind=STRATEGIC)).ok()
    names = {c["name"] for c in answer.body["spec"]["template"]["spec"]["containers"]}
    assert names == {"main", "side"}


async def test_custom_kinds_have_no_strategic_patch(api: Api) -> None:
    await api.define(definition())
    await api.create("widgets", widget("a"))
    assert (await api.patch("widgets", "a", {}, kind=STRATEGIC)).code == 415


async def test_a_patch_with_a_version_conflicts_when_it_is_old(api: Api) -> None:
    old = (await api.create("configmaps", config_map("a"))).meta["resourceVersion"]
    assert (await api.patch("configmaps", "a", {"data": {"x": "1"}})).code == 200
    late = {"metadata": {"resourceVersion": old}, "data": {"x": "2"}}
    assert (await api.patch("configmaps", "a", late)).code == 409


async def test_a_patch_cannot_rename(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    assert (await api.patch("configmaps", "a", {"metadata": {"name": "b"}})).code == 400


async def test_an_unknown_patch_is_415_and_an_absent_object_404(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    assert (await api.patch("configmaps", "a", {}, kind="application/xml")).code == 415
    assert (await api.patch("configmaps", "b", {})).code == 404


async def test_apply_creates_and_owns(api: Api) -> None:
    mine = deployment("web", replicas=2)
    created = await api.patch("deployments", "web", mine, kind=APPLY, fieldManager="me")
    assert created.code == 201
    assert [(m["manager"], m["operation"]) for m in created.meta["managedFields"]] == [("me", "Apply")]
    theirs = deployment("web", replicas=3)
    refused = await api.patch("deployments", "web", theirs, kind=APPLY, fieldManager="them")
    assert refused.code == 409
    assert refused.body["details"]["causes"][0]["field"] == ".spec.replicas"
    forced = await api.patch("deployments", "web", theirs, kind=APPLY, fieldManager="them", force="true")
    assert forced.body["spec"]["replicas"] == 3
    assert (await api.patch("deployments", "web", mine, kind=APPLY)).code == 422


async def test_what_is_applied_must_be_in_the_schema(api: Api) -> None:
    odd = deployment("web")
    odd["spec"]["colour"] = "red"
    refused = await api.patch("deployments", "web", odd, kind=APPLY, fieldManager="me")
    assert refused.code == 500
    what = "failed to create typed patch object (/web; apps/v1, Kind=Deployment)"
    assert refused.body["message"] == f"{what}: .spec.colour: field not declared in schema"
    nameless = {"metadata": {"name": "web"}, "spec": {}}
    assert (await api.patch("deployments", "web", nameless, kind=APPLY, fieldManager="me")).code == 400


async def test_an_equal_apply_changes_nothing(api: Api) -> None:
    mine = deployment("web", replicas=2)
    first = await api.patch("deployments", "web", mine, kind=APPLY, fieldManager="me")
    second = await api.patch("deployments", "web", mine, kind=APPLY, fieldManager="me")
    assert (second.code, second.body) == (200, first.body)


@pytest.mark.parametrize(("given", "kept"), CANONICAL)
async def test_a_quantity_is_kept_as_it_is_in_the_canonical_form(api: Api, given: str | int | float, kept: str) -> None:
    container = {"name": "c", "image": "x", "resources": {"limits": {"memory": given}}}
    created = (await api.create("pods", pod("a", containers=[container]), dryRun="All")).ok()
    assert created.body["spec"]["containers"][0]["resources"]["limits"] == {"memory": kept}


async def test_quantities_come_back_in_their_shortest_form(api: Api) -> None:
    limits = {"cpu": 1, "memory": "1024Mi", "nvidia.com/gpu": "2", "ephemeral-storage": "1000"}
    given = deployment("web")
    given["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    mine = await api.patch("deployments", "web", given, kind=APPLY, fieldManager="me")
    (container,) = mine.ok().body["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {
        "cpu": "1",
        "memory": "1Gi",
        "nvidia.com/gpu": "2",
        "ephemeral-storage": "1k",
    }
    same = {"name": "main", "resources": {"limits": {"cpu": "1000m"}}}
    patch = {"spec": {"template": {"spec": {"containers": [same]}}}}
    unchanged = await api.patch("deployments", "web", patch, kind=STRATEGIC)
    assert unchanged.meta["resourceVersion"] == mine.meta["resourceVersion"]
    # Applied values are compared literally, so two appliers that write the same value differently conflict.
    refused = await api.patch("deployments", "web", given, kind=APPLY, fieldManager="them")
    fields = [cause["field"].rpartition(".")[2] for cause in refused.body["details"]["causes"]]
    assert (refused.code, fields) == (409, ["cpu", "ephemeral-storage", "memory"])


async def test_plain_writes_take_fields_from_an_applied_object(api: Api) -> None:
    await api.patch("deployments", "web", deployment("web", 2), kind=APPLY, fieldManager="me")
    await api.patch("deployments", "web", {"spec": {"replicas": 5}}, fieldManager="scaler")
    refused = await api.patch("deployments", "web", deployment("web", 2), kind=APPLY, fieldManager="me")
    assert refused.code == 409
    assert 'conflict with "scaler"' in refused.body["message"]


async def test_scale_reads_and_writes_the_replicas(api: Api) -> None:
    await api.create("deployments", deployment("web", replicas=2))
    path = "/apis/apps/v1/namespaces/default/deployments/web/scale"
    scale = (await api.request("GET", path)).body
    assert scale["kind"] == "Scale"
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"]["selector"] == "app=web"
    scale["spec"]["replicas"] = 4
    assert (await api.request("PUT", path, scale)).body["spec"] == {"replicas": 4}
    assert (await api.get("deployments", "web")).body["spec"]["replicas"] == 4
    assert (await api.patch("deployments", "web", {"spec": {"replicas": 6}}, "scale")).body["spec"] == {"replicas": 6}
    assert (await api.patch("deployments", "web", {"spec": {"replicas": -1}}, "scale")).code == 422
    assert (await api.request("PUT", path, scale)).code == 409


async def test_a_job_selects_its_own_pods(api: Api) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"template": {"spec": pod(restartPolicy="Never")["spec"]}},
    }
    created = (await api.create("jobs", job)).ok()
    uid = created.meta["uid"]
    assert created.body["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert created.body["spec"]["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "train",
        "controller-uid": uid,
        "job-name": "train",
    }
    assert created.meta["labels"] == created.body["spec"]["template"]["metadata"]["labels"]
    labelled = (await api.create("jobs", {**job, "metadata": {"name": "tune", "labels": {"team": "a"}}})).ok()
    assert labelled.meta["labels"] == {"team": "a"}
    assert (await api.patch("jobs", "train", {"spec": {"selector": None}})).code == 422
    job["metadata"] = {"name": "always"}
    job["spec"] = {"template": {"spec": pod(restartPolicy="Always")["spec"]}}
    assert (await api.create("jobs", job)).code == 422


async def test_a_selector_must_match_its_template_and_stay(api: Api) -> None:
    astray = deployment("web")
    astray["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    assert (await api.create("deployments", astray)).code == 422
    await api.create("deployments", deployment("web"))
    assert (await api.patch("deployments", "web", {"spec": {"selector": {"matchLabels": {"x": "y"}}}})).code == 422


async def test_text_of_secrets_is_encoded(api: Api) -> None:
    answer = await api.create("secrets", {"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}})
    assert answer.body["data"] == {"password": "aHVudGVyMg=="}
    assert "stringData" not in answer.body
    assert answer.body["type"] == "Opaque"


async def test_paths_and_verbs_that_do_not_exist(api: Api) -> None:
    assert (await api.request("GET", "/api/v1/gadgets")).code == 404
    assert (await api.request("GET", "/apis/none.example/v1/things")).code == 404
    assert (await api.request("POST", "/api/v1/pods", pod("web"))).code == 405
    assert (await api.request("POST", "/api/v1/namespaces/default/pods/web", pod("web"))).code == 405
    assert (await api.request("OPTIONS", "/api/v1/namespaces/default/pods/web")).code == 405
