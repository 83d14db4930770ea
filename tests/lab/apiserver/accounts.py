"""Service accounts with roles, on either server.

    accounts = Accounts(server)
    jane = await accounts.make("jane", "team", Grant("edit", "team"), Grant(rules=(rule("pods", "get"),)))

`rule("pods/status", "get", "patch")` is one of a role; one of another API group is `podgroups.scheduling.run.ai`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from pykai.kube.client import Client
from tests.lab.apiserver.apiclient import Api, Object
from tests.servers import Server, ensure_namespace

_GROUP = "rbac.authorization.k8s.io"
_ROOT = f"/apis/{_GROUP}/v1"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def rule(resource: str, *verbs: str, names: tuple[str, ...] = ()) -> Object:
    """One rule of a role."""
    plural, _, group = resource.partition(".")
    plural, slash, subresource = plural.partition("/")
    if "/" in group:
        group, slash, subresource = group.partition("/")
    made: Object = {"apiGroups": [group], "resources": [f"{plural}{slash}{subresource}"], "verbs": list(verbs)}
    return {**made, "resourceNames": list(names)} if names else made


@dataclass(frozen=True)
class Grant:
    """A ClusterRole that exists, or rules of a new role, in a namespace or everywhere."""

    role: str = ""
    namespace: str = ""
    rules: tuple[Object, ...] = field(default=())


class Accounts:
    """Accounts of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client = Client(server.transport())
        self.admin = Api(server.transport())

    async def make(self, name: str, home: str, *grants: Grant) -> Api:
        """An account and its roles; returns when the server knows them."""
        await ensure_namespace(self._client, home)
        api = Api(self._server.account(home, name))
        for number, grant in enumerate(grants):
            await self._grant(
                f"{home}-{name}-{number}", grant, {"kind": "ServiceAccount", "name": name, "namespace": home}
            )
        for grant in grants:
            for each in grant.rules[:1]:
                await self._wait_until_granted(api, each, grant.namespace)
        return api

    async def may(self, api: Api, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """What the server says about an account's own right."""
        asked = rule(resource)
        plural, _, subresource = asked["resources"][0].partition("/")
        attributes = {"verb": verb, "group": asked["apiGroups"][0], "resource": plural, "subresource": subresource}
        review = {"spec": {"resourceAttributes": {**attributes, "namespace": namespace, "name": name}}}
        return bool((await api.request("POST", _REVIEWS, review)).ok().body["status"]["allowed"])

    async def until_may(self, api: Api, verb: str, resource: str, namespace: str = "") -> None:
        """Wait until a right that was granted is known: a real server reads roles a moment later."""
        async with asyncio.timeout(30):
            while not await self.may(api, verb, resource, namespace):
                await asyncio.sleep(0.02)

    async def _wait_until_granted(self, api: Api, first: Object, namespace: str) -> None:
        group, resource = first["apiGroups"][0], first["resources"][0]
        name = (first.get("resourceNames") or [""])[0]
        plural, _, subresource = resource.partition("/")
        attributes = {"verb": first["verbs"][0], "group": group, "resource": plural, "subresource": subresource}
        review = {"spec": {"resourceAttributes": {**attributes, "namespace": namespace, "name": name}}}
        await api.until(
            lambda: api.request("POST", _REVIEWS, review), lambda answer: bool(answer.body["status"]["allowed"])
        )

    async def _grant(self, name: str, grant: Grant, subject: Object) -> None:
        kind = "Role" if grant.rules and grant.namespace else "ClusterRole"
        where = f"{_ROOT}/namespaces/{grant.namespace}" if grant.namespace else _ROOT
        if grant.namespace:
            await ensure_namespace(self._client, grant.namespace)
        if grant.rules:
            root = where if kind == "Role" else _ROOT
            await self._create(f"{root}/{kind.lower()}s", {"metadata": {"name": name}, "rules": list(grant.rules)})
        binding: dict[str, Any] = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": grant.role or name},
            "subjects": [subject],
        }
        await self._create(f"{where}/{'rolebindings' if grant.namespace else 'clusterrolebindings'}", binding)

    async def _create(self, path: str, obj: Object) -> None:
        (await self.admin.request("POST", path, obj)).ok()
