"""Admission: functions in the process and webhooks over HTTPS."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from pykai.kube.errors import Forbidden
from pykai.lab.apiserver.admission import AdmissionRequest
from pykai.lab.apiserver.certificates import LOCAL_NAMES, load_authority, server_context
from tests.lab.apiserver.apiclient import Api, config_map, pod, running_server

Review = dict[str, Any]


def labelled(request: AdmissionRequest) -> dict[str, Any] | None:
    if request.resource != "pods" or request.object is None or request.operation != "CREATE":
        return None
    meta = request.object["metadata"]
    return request.object | {"metadata": meta | {"labels": {"admitted-by": "us"}}, "unknown": 1}


def only_small(request: AdmissionRequest) -> None:
    if request.object is not None and "huge" in request.name:
        raise Forbidden(403, "Forbidden", f"{request.operation} of {request.name}: too big")
    if request.operation == "DELETE" and request.name == "kept":
        raise Forbidden(403, "Forbidden", "kept is kept")


async def test_functions_in_the_process_change_and_refuse() -> None:
    async with running_server(mutators=[labelled], validators=[only_small]) as (_, api):
        created = await api.create("pods", pod("a"))
        assert created.meta["labels"] == {"admitted-by": "us"}
        assert "unknown" not in created.body
        assert "labels" not in (await api.create("configmaps", config_map("a"))).meta
        refused = await api.create("pods", pod("huge"))
        assert (refused.code, refused.body["message"]) == (403, "CREATE of huge: too big")
        await api.create("configmaps", config_map("kept"))
        assert (await api.delete("configmaps", "kept")).code == 403
        assert (await api.patch("pods", "a", {"status": {"message": "x"}}, "status")).code == 200


class Hook:
    """A webhook with configurable answers."""

    def __init__(self) -> None:
        self.answer: Callable[[Review], Any] = lambda request: {"allowed": True}
        self.asked: list[Review] = []
        self.authority = load_authority(None)
        self.port = 0
        self.known = asyncio.Event()
        self.before: Callable[[], Any] | None = None

    async def serve(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.asked.append(review["request"])
        if self.before is not None:
            await self.before()
        response = self.answer(review["request"])
        if isinstance(response, dict):
            response = {"uid": review["request"]["uid"], **response}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})

    async def probe(self, request: web.Request) -> web.Response:
        """The same configuration asks here about secrets, which tells that the server has read it."""
        review = await request.json()
        self.known.set()
        response = {"uid": review["request"]["uid"], "allowed": True}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})

    def client(self, path: str) -> dict[str, Any]:
        return {
            "url": f"https://127.0.0.1:{self.port}/{path}",
            "caBundle": base64.b64encode(self.authority.pem).decode(),
        }

    def entry(self, **more: Any) -> dict[str, Any]:
        rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
        return {
            "name": "hook.example.com",
            "clientConfig": self.client("admit"),
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }

    async def install(self, api: Api, kind: str = "mutating", **more: Any) -> None:
        secrets = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}
        probe = self.entry(name="probe.example.com", clientConfig=self.client("probe"), rules=[secrets])
        configuration = {"metadata": {"name": f"{kind}-hook"}, "webhooks": [probe, self.entry(**more)]}
        self.known.clear()
        (await api.create(f"{kind}webhookconfigurations", configuration)).ok()
        secret = {"metadata": {"name": "probe"}}
        await api.until(lambda: api.create("secrets", secret, dryRun="All"), lambda _: self.known.is_set())


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    hook = Hook()
    application = web.Application()
    application.router.add_post("/admit", hook.serve)
    application.router.add_post("/probe", hook.probe)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context(hook.authority, LOCAL_NAMES))
    await site.start()
    hook.port = runner.addresses[0][1]
    yield hook
    await runner.cleanup()


def patching(*operations: dict[str, Any], **more: Any) -> Callable[[Review], Any]:
    patch = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": patch, **more}


async def test_a_webhook_patches_and_warns(api: Api, hook: Hook) -> None:
    await hook.install(api)
    hook.answer = patching({"op": "add", "path": "/data", "value": {"added": "1"}}, warnings=["mind the gap"])
    created = await api.create("configmaps", config_map("a"))
    assert created.body["data"] == {"added": "1"}
    assert created.headers["Warning"] == '299 - "mind the gap"'
    (asked,) = hook.asked
    assert (asked["operation"], asked["resource"]["resource"], asked["namespace"]) == (
        "CREATE",
        "configmaps",
        "default",
    )
    assert asked["userInfo"]["username"] in ("kubernetes-admin", "admin")
    hook.answer = patching({"op": "add", "path": "/data/more", "value": "2"})
    changed = await api.patch("configmaps", "a", {"data": {"x": "y"}})
    assert changed.body["data"] == {"added": "1", "x": "y", "more": "2"}
    assert hook.asked[-1]["oldObject"]["data"] == {"added": "1"}


async def test_a_webhook_refuses(api: Api, hook: Hook) -> None:
    await hook.install(api, "validating")
    hook.answer = lambda request: {"allowed": False, "status": {"message": "not today"}}
    refused = await api.create("configmaps", config_map("a"))
    assert refused.code == 400
    assert refused.body["message"] == 'admission webhook "hook.example.com" denied the request: not today'
    hook.answer = lambda request: {"allowed": False, "status": {"code": 422, "message": "bad", "reason": "Invalid"}}
    assert (await api.create("configmaps", config_map("a"))).code == 422
    assert (await api.list("configmaps")).names == []


async def test_a_webhook_is_asked_about_deletions(api: Api, hook: Hook) -> None:
    await api.create("configmaps", config_map("a"))
    await hook.install(api, "validating")
    hook.answer = lambda request: {"allowed": request["operation"] != "DELETE"}
    assert (await api.delete("configmaps", "a")).code == 400
    assert hook.asked[-1]["object"] is None
    assert hook.asked[-1]["oldObject"]["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    "more",
    [
        {"rules": [{"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]},
        {"rules": [{"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["*"]}]},
        {
            "rules": [
                {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps/status"]}
            ]
        },
        {
            "rules": [
                {
                    "operations": ["*"],
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["*"],
                    "scope": "Cluster",
                }
            ]
        },
        {"namespaceSelector": {"matchLabels": {"guarded": "yes"}}},
        {"objectSelector": {"matchLabels": {"guarded": "yes"}}},
        {"matchConditions": [{"name": "guarded", "expression": "object.metadata.name == 'guarded'"}]},
    ],
)
async def test_a_webhook_is_asked_only_about_what_it_names(api: Api, hook: Hook, more: dict[str, Any]) -> None:
    await hook.install(api, **more)
    assert (await api.create("configmaps", config_map("a"))).code == 201
    assert hook.asked == []


async def test_a_webhook_is_asked_where_its_selectors_match(api: Api, hook: Hook) -> None:
    await hook.install(
        api,
        namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        objectSelector={"matchExpressions": [{"key": "guarded", "operator": "Exists"}]},
        matchConditions=[{"name": "ours", "expression": "request.operation == 'CREATE'"}],
    )
    await api.create("configmaps", config_map("a", labels={"guarded": "x"}))
    assert len(hook.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: None,
        lambda request: {"allowed": True, "uid": "another"},
        patching({"op": "remove", "path": "/nothing/there"}),
        lambda request: {"allowed": True, "patch": "no base64!"},
    ],
)
async def test_an_answer_that_makes_no_sense_is_a_failure(
    api: Api, hook: Hook, answer: Callable[[Review], Any]
) -> None:
    await hook.install(api)
    hook.answer = answer
    refused = await api.create("configmaps", config_map("a"))
    assert refused.code == 500
    assert refused.body["message"].startswith("Internal error occurred: ")


@pytest.mark.parametrize(
    "client",
    [
        {"url": "https://127.0.0.1:1/none"},
        {"service": {"name": "hook", "namespace": "default"}},
    ],
)
async def test_the_failure_policy_decides(api: Api, hook: Hook, client: dict[str, Any]) -> None:
    await hook.install(api, "mutating", clientConfig=client, failurePolicy="Ignore")
    assert (await api.create("configmaps", config_map("a"))).code == 201
    await hook.install(api, "validating", clientConfig=client, failurePolicy="Fail")
    assert (await api.create("configmaps", config_map("b"))).code == 500
    assert (await api.create("secrets", {"metadata": {"name": "other"}})).code == 201


async def test_a_stranger_behind_the_address_is_not_trusted(api: Api, hook: Hook) -> None:
    client = {**hook.client("admit"), "caBundle": base64.b64encode(load_authority(None).pem).decode()}
    await hook.install(api, clientConfig=client)
    assert (await api.create("configmaps", config_map("a"))).code == 500
    assert hook.asked == []


async def test_a_broken_configuration_can_be_removed(api: Api, hook: Hook) -> None:
    everything = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]
    await hook.install(api, "validating", clientConfig={"url": "https://127.0.0.1:1/none"}, rules=everything)
    assert (await api.create("configmaps", config_map("a"))).code == 500
    assert (await api.delete("validatingwebhookconfigurations", "validating-hook")).code == 200
    # An API server learns of the deletion through a watch of its own.
    while (answer := await api.create("configmaps", config_map("a"))).code == 500:
        await asyncio.sleep(0.01)
    assert answer.code == 201


async def test_a_patch_survives_a_write_while_the_webhook_thinks(api: Api, hook: Hook) -> None:
    await api.create("configmaps", config_map("a") | {"data": {"x": "1"}})
    await hook.install(api)

    async def meanwhile() -> None:
        hook.before = None
        await api.patch("configmaps", "a", {"data": {"y": "2"}})

    hook.before = meanwhile
    answer = await api.patch("configmaps", "a", {"data": {"z": "3"}})
    assert answer.body["data"] == {"x": "1", "y": "2", "z": "3"}


async def test_two_creates_of_one_name_while_the_webhook_thinks(api: Api, hook: Hook) -> None:
    await hook.install(api)
    answers = await asyncio.gather(*(api.create("configmaps", config_map("a")) for _ in range(3)))
    assert sorted(answer.code for answer in answers) == [201, 409, 409]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"sideEffects": "Some"}, "sideEffects"),
        ({"clientConfig": {"url": "http://127.0.0.1:1/plain"}}, "clientConfig.url"),
        (
            {"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*", "*"]}]},
            "rules[0].resources",
        ),
    ],
)
async def test_webhooks_that_cannot_be_asked(api: Api, hook: Hook, wrong: dict[str, Any], field: str) -> None:
    configuration = {"metadata": {"name": "wrong"}, "webhooks": [hook.entry(**wrong)]}
    refused = await api.create("validatingwebhookconfigurations", configuration)
    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (422, f"webhooks[0].{field}")
