"""Roles and their bindings, from the rules in the table of services."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykai.services.definition import ServiceDefinition
from pykai.services.rights import RoleRule


def role_name(account: str) -> str:
    """The ClusterRole of a service, and its Roles."""
    return f"kai-{account}"


def rules_by_namespace(service: ServiceDefinition) -> dict[str, list[RoleRule]]:
    """The rules of a service by namespace; "" for everywhere."""
    return by_namespace((*service.rules, *service.future_rules))


def by_namespace(rules: Iterable[RoleRule]) -> dict[str, list[RoleRule]]:
    """Rules by namespace; "" for everywhere."""
    grouped: dict[str, list[RoleRule]] = {}
    for rule in rules:
        grouped.setdefault(rule.namespace, []).append(rule)
    return grouped


def role_rules(table: Iterable[RoleRule]) -> list[dict[str, Any]]:
    """The rules as a role spells them."""
    return [
        {
            "apiGroups": [rule.group],
            "resources": sorted(rule.resources),
            "verbs": sorted(rule.verbs),
            **({"resourceNames": sorted(rule.names)} if rule.names else {}),
        }
        for rule in table
    ]
