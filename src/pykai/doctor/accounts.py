"""Has each installed service its account, and every right in `pykai.services.rights`?

Roles and bindings are read and added up as an API server does (RBAC only adds rights).  Rights that another authoriser
gives are not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pykai.doctor.components import components
from pykai.doctor.documents import RoleBinding, Rule
from pykai.doctor.facts import ACCOUNTS, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Facts
from pykai.doctor.findings import Finding, Severity, counted, listed
from pykai.operator.roles import role_name
from pykai.services.rights import RoleRule
from pykai.services.table import installed_services

_ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class _Granted:
    """Rules that an account has, by namespace; "" for everywhere."""

    rules: dict[str, list[Rule]]

    def allows(self, rule: RoleRule, resource: str, verb: str, namespace: str) -> bool:
        """Whether the account may do this, for all objects that the rule is about."""
        given = [*self.rules.get("", ()), *(self.rules.get(namespace, ()) if namespace else ())]
        wanted = rule.names or ("",)
        return all(any(_covers(each, rule.group, resource, verb, name) for each in given) for name in wanted)


def _covers(rule: Rule, group: str, resource: str, verb: str, name: str) -> bool:
    subresource = resource.partition("/")[2]
    resources = {resource, _ALL, f"*/{subresource}" if subresource else _ALL}
    return (
        not {verb, _ALL}.isdisjoint(rule.verbs)
        and not {group, _ALL}.isdisjoint(rule.api_groups)
        and not resources.isdisjoint(rule.resources)
        and (not rule.resource_names or name in rule.resource_names)
    )


def missing_accounts(facts: Facts) -> Iterator[Finding]:
    """A Deployment or DaemonSet whose ServiceAccount is missing starts no pods."""
    there = {(each.metadata.namespace, each.metadata.name) for each in facts.all(ACCOUNTS)}
    for each in facts.workloads:
        account = each.pod.service_account_name
        if each.metadata.namespace == facts.namespace and account and (facts.namespace, account) not in there:
            where = f"ServiceAccount {facts.namespace}/{account}"
            what = f"The account of {each.kind} {each.metadata.name} does not exist, so it starts no pods."
            yield Finding(Severity.ERROR, "account-missing", where, what, facts.manifests())


def missing_rights(facts: Facts) -> Iterator[Finding]:
    """Rights that a service uses and its account does not have; only of accounts that exist."""
    there = {each.metadata.name for each in facts.all(ACCOUNTS) if each.metadata.namespace == facts.namespace}
    # KAI Scheduler's components have accounts of the same names, and need other rights.
    places = facts.settings.places._replace(services=facts.namespace)
    theirs = {each.account for each in components(facts) if not each.service}
    for service in installed_services():
        if service.account not in there - theirs:
            continue
        granted = _granted(facts, service.account)
        lacking = [
            f"{verb} {resource}"
            for rule in service.rules
            for resource in rule.resources
            for verb in rule.verbs
            if not granted.allows(rule, resource, verb, places.of(rule.namespace))
        ]
        if lacking:
            where = f"ClusterRole {role_name(service.account)}"
            what = f"The account {service.account} may not: {listed(dict.fromkeys(lacking))}."
            figure = counted(len(lacking), "right")
            yield Finding(Severity.ERROR, "right-missing", where, what, facts.manifests(), figure)


def _granted(facts: Facts, account: str) -> _Granted:
    cluster_roles = {each.metadata.name: each.rules for each in facts.all(CLUSTER_ROLES)}
    roles = {(each.metadata.namespace, each.metadata.name): each.rules for each in facts.all(ROLES)}
    rules: dict[str, list[Rule]] = {}
    for binding in (*facts.all(CLUSTER_ROLE_BINDINGS), *facts.all(ROLE_BINDINGS)):
        if not _binds(binding, account, facts.namespace):
            continue
        place, name = binding.metadata.namespace, binding.role_ref.name
        is_cluster_role = binding.role_ref.kind == "ClusterRole"
        found: Sequence[Rule] = (cluster_roles.get(name) if is_cluster_role else roles.get((place, name))) or ()
        rules.setdefault(place, []).extend(found)
    return _Granted(rules)


def _binds(binding: RoleBinding, account: str, namespace: str) -> bool:
    """Whether a binding is about a service account, by its name or by a group that it is in."""
    groups = {"system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"}
    user = f"system:serviceaccount:{namespace}:{account}"
    return any(
        (each.kind == "ServiceAccount" and each.name == account and each.namespace == namespace)
        or (each.kind == "Group" and each.name in groups)
        or (each.kind == "User" and each.name == user)
        for each in binding.subjects
    )
