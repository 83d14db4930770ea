"""Roles and their bindings decide what a user may do, on the embedded server as on a real one."""

from __future__ import annotations

import pytest

from tests.lab.apiserver.accounts import Accounts, Grant, rule
from tests.lab.apiserver.apiclient import APPLY, MERGE, Api, config_map, deployment, path_of, pod
from tests.servers import Server

TEAM, OTHER = "team", "other-team"
ROLES = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def accounts(server: Server) -> Accounts:
    return Accounts(server)


async def codes(api: Api, *requests: tuple[str, str]) -> list[int]:
    """What each request without a body is answered with."""
    return [(await api.request(method, path)).code for method, path in requests]


async def test_an_account_without_roles_may_look_around_and_nothing_else(accounts: Accounts) -> None:
    nobody = await accounts.make("nobody", TEAM)
    await accounts.make("elsewhere", OTHER)
    answer = await nobody.create("pods", pod("a"), TEAM)
    assert answer.code == 403
    assert answer.body["message"] == (
        'pods is forbidden: User "system:serviceaccount:team:nobody" cannot create resource "pods" in API group ""'
        ' in the namespace "team"'
    )
    listed = await nobody.list("nodes")
    assert listed.body["message"].endswith('cannot list resource "nodes" in API group "" at the cluster scope')
    one = await nobody.get("queues", "a")
    assert one.body["message"] == (
        'queues.scheduling.run.ai "a" is forbidden: User "system:serviceaccount:team:nobody" cannot get resource'
        ' "queues" in API group "scheduling.run.ai" at the cluster scope'
    )
    assert await codes(nobody, ("GET", "/api"), ("GET", "/apis/apps/v1"), ("GET", "/version")) == [200, 200, 200]
    path = await nobody.request("GET", "/metrics/x")
    assert (path.code, path.body["message"]) == (
        403,
        'forbidden: User "system:serviceaccount:team:nobody" cannot get path "/metrics/x"',
    )
    assert (await nobody.request("GET", "/apis/example.com/v1/namespaces/team/unknowns")).code == 403


async def test_a_body_is_not_read_before_its_sender_is_authorised(accounts: Accounts) -> None:
    nobody = await accounts.make("nobody", TEAM)
    for body, kind in ((b"{", "application/json"), (b"a: [", "application/yaml"), (b"<x/>", "application/xml")):
        answer = await nobody.request("POST", path_of("pods", namespace=TEAM), body, content_type=kind)
        assert answer.code == 403


async def test_a_role_holds_in_its_namespace(accounts: Accounts) -> None:
    await accounts.make("elsewhere", OTHER)
    jane = await accounts.make("jane", TEAM, Grant("", TEAM, (rule("configmaps", "create", "get", "list"),)))
    (await jane.create("configmaps", config_map("a"), TEAM)).ok()
    here, there = path_of("configmaps", namespace=TEAM), path_of("configmaps", namespace=OTHER)
    everywhere = path_of("configmaps", namespace=None)
    assert await codes(jane, ("GET", here), ("GET", f"{here}/a"), ("DELETE", f"{here}/a")) == [200, 200, 403]
    assert await codes(jane, ("GET", there), ("GET", everywhere), ("DELETE", here)) == [403, 403, 403]
    assert (await jane.list("configmaps", TEAM, watch="true", timeoutSeconds="1")).code == 403
    assert (await jane.create("configmaps", config_map("a"), OTHER)).code == 403


async def test_a_cluster_role_holds_everywhere_or_where_it_is_bound(accounts: Accounts) -> None:
    await accounts.make("elsewhere", OTHER)
    reads = (rule("configmaps", "list"),)
    jane = await accounts.make("jane", TEAM, Grant(rules=reads))
    assert await codes(jane, ("GET", path_of("configmaps", namespace=None))) == [200]
    tenant = await accounts.make("tenant", TEAM, Grant("edit", TEAM))
    await accounts.until_may(tenant, "create", "deployments.apps", TEAM)
    assert (await tenant.create("deployments", deployment("d"), TEAM)).code == 201
    assert (await tenant.create("deployments", deployment("d"), OTHER)).code == 403
    assert (await tenant.get("namespaces", TEAM)).code == 200
    assert (await tenant.get("namespaces", OTHER)).code == 403
    assert (await tenant.list("namespaces")).code == 403


async def test_subresources_are_rights_of_their_own(accounts: Accounts) -> None:
    jane = await accounts.make("jane", TEAM, Grant("", TEAM, (rule("pods", "create", "patch"),)))
    (await jane.create("pods", pod("a"), TEAM)).ok()
    one, patch = path_of("pods", "a", namespace=TEAM), {"metadata": {"annotations": {"a": "b"}}}
    assert (await jane.request("PATCH", one, patch, content_type=MERGE)).code == 200
    status = await jane.request("PATCH", f"{one}/status", patch, content_type=MERGE)
    assert (status.code, 'cannot patch resource "pods/status"' in status.body["message"]) == (403, True)
    binding = {"metadata": {"name": "a"}, "target": {"name": "n"}}
    assert (await jane.request("POST", f"{one}/binding", binding)).code == 403
    keeper = await accounts.make("keeper", TEAM, Grant("", TEAM, (rule("*/status", "patch"),)))
    assert (await keeper.request("PATCH", f"{one}/status", patch, content_type=MERGE)).code == 200
    assert (await keeper.request("PATCH", one, patch, content_type=MERGE)).code == 403


async def test_rules_with_names_are_about_these_names(accounts: Accounts) -> None:
    grants = Grant("", TEAM, (rule("configmaps", "get", "list", "create", names=("mine",)),))
    jane = await accounts.make("jane", TEAM, grants)
    for name in ("mine", "yours"):
        (await accounts.admin.create("configmaps", config_map(name), TEAM)).ok()
    here = path_of("configmaps", namespace=TEAM)
    assert await codes(jane, ("GET", f"{here}/mine"), ("GET", f"{here}/yours"), ("GET", here)) == [200, 403, 403]
    assert (await jane.list("configmaps", TEAM, fieldSelector="metadata.name=mine")).names == ["mine"]
    assert (await jane.list("configmaps", TEAM, fieldSelector="metadata.name=yours")).code == 403
    assert (await jane.create("configmaps", config_map("new"), TEAM)).code == 403


async def test_an_apply_that_makes_something_new_takes_the_right_to_create(accounts: Accounts) -> None:
    jane = await accounts.make("jane", TEAM, Grant("", TEAM, (rule("configmaps", "patch"),)))
    one = path_of("configmaps", "a", namespace=TEAM)
    applied = await jane.request("PATCH", one, config_map("a"), content_type=APPLY, fieldManager="m")
    assert (applied.code, 'cannot create resource "configmaps"' in applied.body["message"]) == (403, True)
    (await accounts.admin.create("configmaps", config_map("a"), TEAM)).ok()
    assert (await jane.request("PATCH", one, config_map("a"), content_type=APPLY, fieldManager="m")).code == 200


async def test_reviews_say_what_requests_are_answered(accounts: Accounts) -> None:
    tenant = await accounts.make("tenant", TEAM, Grant("edit", TEAM), Grant("", TEAM, (rule("queues/status", "get"),)))
    await accounts.until_may(tenant, "create", "pods", TEAM)
    for verb, resource, namespace, allowed in (
        ("create", "pods", TEAM, True),
        ("patch", "pods/status", TEAM, False),
        ("create", "pods/binding", TEAM, False),
        ("get", "pods/status", TEAM, True),
        ("create", "pods/eviction", TEAM, True),
        ("create", "pods", OTHER, False),
        ("create", "pods", "", False),
        ("create", "jobs.batch", TEAM, True),
        ("create", "podgroups.scheduling.run.ai", TEAM, False),
        ("escalate", "roles.rbac.authorization.k8s.io", TEAM, False),
        ("*", "*", TEAM, False),
    ):
        assert await accounts.may(tenant, verb, resource, namespace) is allowed, (verb, resource, namespace)
    assert await accounts.may(accounts.admin, "*", "*") is True
    path = {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}}
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await tenant.request("POST", reviews, path)).body["status"]["allowed"] is False
    rules = await tenant.request(
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": TEAM}}
    )
    found = [each for each in rules.ok().body["status"]["resourceRules"] if "pods/eviction" in each["resources"]]
    assert [each["verbs"] for each in found] == [["create"]]


async def test_a_user_grants_only_rights_that_the_user_holds(accounts: Accounts) -> None:
    holds = rule("configmaps", "get"), rule("roles.rbac.authorization.k8s.io", "create")
    clerk = await accounts.make(
        "clerk", TEAM, Grant("", TEAM, (*holds, rule("rolebindings.rbac.authorization.k8s.io", "create")))
    )
    where = f"{ROLES}/namespaces/{TEAM}"
    small = {"metadata": {"name": "small"}, "rules": [rule("configmaps", "get")]}
    assert (await clerk.request("POST", f"{where}/roles", small)).code == 201
    large = {"metadata": {"name": "large"}, "rules": [rule("configmaps", "get", "*"), rule("secrets", "list")]}
    refused = await clerk.request("POST", f"{where}/roles", large)
    assert refused.code == 403
    assert "is attempting to grant RBAC permissions not currently held:" in refused.body["message"]
    assert '{APIGroups:[""], Resources:["secrets"], Verbs:["list"]}' in refused.body["message"]

    def binding(kind: str, role: str) -> dict[str, object]:
        return {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "clerk", "namespace": TEAM}],
        }

    assert (await clerk.request("POST", f"{where}/rolebindings", binding("Role", "small"))).code == 201
    assert (await clerk.request("POST", f"{where}/rolebindings", binding("ClusterRole", "cluster-admin"))).code == 403


async def test_rights_come_and_go_with_their_binding(accounts: Accounts) -> None:
    jane = await accounts.make("jane", TEAM, Grant("", TEAM, (rule("configmaps", "list"),)))
    here = path_of("configmaps", namespace=TEAM)
    assert await codes(jane, ("GET", here)) == [200]
    (await accounts.admin.request("DELETE", f"{ROLES}/namespaces/{TEAM}/rolebindings/team-jane-0")).ok()
    await jane.until(lambda: jane.request("GET", here), lambda answer: answer.code == 403)


async def test_no_controller_that_makes_pods_of_a_template_writes_their_status(accounts: Accounts) -> None:
    """`patch pods/status` tells services from tenants: creators of a tenant's pods must not hold it."""
    listed = await accounts.admin.request("GET", f"{ROLES}/clusterroles")
    makers, keepers = set(), set()
    for role in listed.ok().body["items"]:
        name = role["metadata"]["name"]
        if name.startswith(("system:controller:", "system:aggregate-to-")):
            for each in role.get("rules") or ():
                if "pods" in (each.get("resources") or ()) and "create" in each["verbs"]:
                    makers.add(name)
                if "pods/status" in (each.get("resources") or ()) and "patch" in each["verbs"]:
                    keepers.add(name)
    assert "system:aggregate-to-edit" in makers
    assert not makers & keepers
