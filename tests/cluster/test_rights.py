"""Reading audit documents against a table of roles."""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.api.suspension import SUSPEND_PATHS
from pykai.operator.install import installation, optional_role
from pykai.services.rights import RoleRule
from pykai.services.table import installed_services
from tests.cluster.rights import REFUSED_GROUP, allowed, forbidden, rights_problems, unused

TABLE = {
    "writer": (
        RoleRule("", ("pods", "pods/status"), ("patch",)),
        RoleRule("apps", ("deployments",), ("get",)),
        RoleRule("", ("secrets",), ("list",), "home"),
    ),
    "idler": (),
}


def asked(verb: str, resource: str, group: str = "", **more: Any) -> dict[str, Any]:
    """A request of the writer; `namespace`, `user`, `decision`, `code`."""
    plural, _, subresource = resource.partition("/")
    what = {"resource": plural, "apiGroup": group, "subresource": subresource, "namespace": more.get("namespace")}
    account = f"system:serviceaccount:{names.DEFAULT_NAMESPACE}:{more.get('user', 'writer')}"
    return {
        "verb": verb,
        "user": {"username": account},
        "requestURI": f"/api/v1/{resource}",
        "objectRef": {key: value for key, value in what.items() if value},
        "responseStatus": {"code": more.get("code", 200)},
        "annotations": {"authorization.k8s.io/decision": more.get("decision", "allow")},
    }


ENOUGH = [
    asked("patch", "pods", namespace="anywhere"),
    asked("patch", "pods/status", namespace="anywhere"),
    asked("get", "deployments", "apps"),
    asked("list", "secrets", namespace="home"),
]


def test_rights_in_use_are_not_reported() -> None:
    assert rights_problems(ENOUGH, TABLE, is_complete_run=True) == []


def test_an_unused_right_is_named_after_a_whole_run() -> None:
    assert unused(ENOUGH[1:-1], TABLE) == ["writer: patch pods", "writer: list secrets in home"]
    assert rights_problems(ENOUGH[1:], TABLE, is_complete_run=False) == []
    assert rights_problems(ENOUGH[1:], TABLE, is_complete_run=True) == [
        "never used, remove the rule or test its use: writer: patch pods"
    ]
    assert unused([*ENOUGH[:2], ENOUGH[3]], TABLE) == ["writer: get deployments.apps"]


def test_an_apply_that_creates_uses_both_rights() -> None:
    table = {"writer": (RoleRule("", ("pods",), ("create", "patch")),)}
    assert unused([asked("patch", "pods")], table) == ["writer: create pods"]
    assert unused([asked("patch", "pods", code=201)], table) == []


def test_requests_by_others_or_elsewhere_do_not_use_a_right() -> None:
    elsewhere = [asked("list", "secrets", namespace="away"), asked("list", "secrets", namespace="home", user="idler")]
    assert unused([*ENOUGH[:3], *elsewhere], TABLE) == ["writer: list secrets in home"]


def test_what_authorization_refused_is_named_once() -> None:
    refused = asked("delete", "pods", decision="forbid", code=403)
    assert rights_problems([*ENOUGH, refused, refused], TABLE, is_complete_run=False) == [
        "forbidden, add a rule or mend the service: writer: delete /api/v1/pods (2 times)"
    ]


def test_what_was_allowed_at_another_time_was_refused_by_a_server_that_had_just_started() -> None:
    here = asked("patch", "pods", namespace="anywhere", decision="forbid", code=403)
    assert forbidden([here, *ENOUGH], TABLE) == []
    assert forbidden([*ENOUGH, here], TABLE) == []
    elsewhere = asked("list", "secrets", namespace="away", decision="forbid", code=403)
    assert forbidden([*ENOUGH, elsewhere], TABLE) == ["writer: list /api/v1/secrets"]


def test_refusals_by_admission_and_of_other_users_are_not_reported() -> None:
    by_admission = asked("patch", "pods", code=403)
    stranger = asked("delete", "pods", decision="forbid", code=403, user="stranger")
    anonymous = {"verb": "get", "user": {"username": "system:anonymous"}, "requestURI": "/version"}
    assert forbidden([by_admission, stranger, anonymous, {}], TABLE) == []


def test_kinds_that_the_grouper_is_meant_not_to_know_are_not_reported() -> None:
    workload = asked("get", "workloads", REFUSED_GROUP, decision="forbid", code=403)
    assert forbidden([workload], TABLE) == []
    assert forbidden([{**workload, "verb": "list"}], TABLE) == ["writer: list /api/v1/workloads"]


def test_discovery_needs_no_rule() -> None:
    discovery = {**asked("get", "x"), "requestURI": "/apis/ray.io/v1"}
    del discovery["objectRef"]
    assert rights_problems([*ENOUGH, discovery], TABLE, is_complete_run=True) == []


def test_no_right_is_granted_twice_or_by_a_wildcard() -> None:
    for service in installed_services():
        rights = list(allowed({service.account: (*service.rules, *service.future_rules)}))
        assert len(rights) == len(set(rights))
        assert not [right for right in rights if "*" in (right.group, right.resource, right.verb)]
        everywhere = {right[:4] for right in rights if not right.namespace}
        assert not [right for right in rights if right.namespace and right[:4] in everywhere]


def test_an_optional_role_is_bound_to_its_service_and_grants_nothing_twice() -> None:
    """suspend:rights"""
    role, binding = optional_role("suspend")
    assert role["metadata"] == {"name": "kai-scheduler-suspend"}
    assert binding["roleRef"]["name"] == "kai-scheduler-suspend"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "scheduler", "namespace": "kai-scheduler"}]
    granted = {
        (group, resource): rule["verbs"]
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted.pop(("ray.io", "rayclusters")) == ["get"]
    assert set(granted) == {(group, f"{kind.lower()}s") for group, kind in SUSPEND_PATHS}
    assert all(verbs == ["get", "patch"] for verbs in granted.values())
    usual = {
        right[1:3]
        for service in installed_services()
        for right in allowed({"scheduler": service.rules})
        if service.account == "scheduler"
    }
    assert not usual & granted.keys()


def test_what_is_installed_is_the_table() -> None:
    granted = set()
    for role in (each for each in installation() if each["kind"] in ("Role", "ClusterRole")):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    place = role["metadata"].get("namespace", "")
                    granted.add((role["metadata"]["name"], *rule["apiGroups"], resource, verb, place))
    table = {service.account: (*service.rules, *service.future_rules) for service in installed_services()}
    ours = {(f"kai-{service}", *right) for service, *right in allowed(table)}
    assert ours == {each for each in granted if each[0] != names.RESERVATION_APP}
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"], each["metadata"].get("namespace", ""))
        for each in installation()
        if each["kind"] in ("RoleBinding", "ClusterRoleBinding")
    }
    made = {
        (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace", ""))
        for each in installation()
        if each["kind"] in ("Role", "ClusterRole")
    }
    assert bound == made
