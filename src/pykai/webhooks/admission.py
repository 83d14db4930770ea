"""Admission of pods as callables for an API server in the same process, and for a webhook server.

The embedded API server calls mutators and validators with a request: what is about to be written, and by which user.
`pod_mutator` and `pod_validator` make such callables from the rules of `pods`; other kinds, and subresources of pods,
pass untouched.  A refusal is raised as the API error that the caller's client will see.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from typing import Any, Protocol

from pykai.api import names
from pykai.kube.errors import ApiError, Forbidden
from pykai.webhooks.gpusharing import ALPHABET, DEFAULT_RULES, AdmissionDenied, SharingRules
from pykai.webhooks.pods import mutate_pod, pod_problem
from pykai.webhooks.queuegating import GatingRules, add_gate


class AdmissionAttributes(Protocol):
    """An admission request."""

    @property
    def operation(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def subresource(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def object(self) -> dict[str, Any] | None: ...
    @property
    def old_object(self) -> dict[str, Any] | None: ...
    @property
    def user(self) -> str: ...
    @property
    def groups(self) -> Collection[str]: ...


def random_letters(count: int) -> str:
    """Random letters for names."""
    return "".join(secrets.choice(ALPHABET) for _ in range(count))


#: administrators of the cluster, by user name and by group
ADMINISTRATORS = frozenset({"kubernetes-admin", "admin"})
ADMINISTRATOR_GROUPS = frozenset({"system:masters"})


def is_privileged(user: str, groups: Collection[str], namespace: str) -> bool:
    """Whether a user may write what belongs to the services of a namespace: these, and administrators."""
    if user in ADMINISTRATORS or not ADMINISTRATOR_GROUPS.isdisjoint(groups):
        return True
    return is_service(user, namespace)


def is_service(user: str, namespace: str) -> bool:
    """Whether a user is one of the scheduler's services, which run in this namespace."""
    return user.startswith(f"system:serviceaccount:{namespace}:")


def pod_mutator(
    rules: SharingRules = DEFAULT_RULES, *, random: Callable[[int], str] = random_letters
) -> Callable[[AdmissionAttributes], dict[str, Any] | None]:
    """A mutator of new pods (gpu:A-1)."""

    def mutator(attributes: AdmissionAttributes) -> dict[str, Any] | None:
        if attributes.operation != "CREATE" or not _is_pod(attributes) or attributes.object is None:
            return None
        try:
            return mutate_pod(attributes.object, namespace=attributes.namespace, random=random, rules=rules)
        except AdmissionDenied as refused:
            raise _forbidden(str(refused)) from None

    return mutator


def gate_mutator(rules: GatingRules) -> Callable[[AdmissionAttributes], dict[str, Any] | None]:
    """A mutator that adds the gate of their queue to new pods (queues:Q-405)."""

    def mutator(attributes: AdmissionAttributes) -> dict[str, Any] | None:
        if attributes.operation != "CREATE" or not _is_pod(attributes) or attributes.object is None:
            return None
        return add_gate(attributes.object, attributes.namespace, rules)

    return mutator


def pod_validator(rules: SharingRules = DEFAULT_RULES) -> Callable[[AdmissionAttributes], None]:
    """A validator of new and changed pods."""

    def validator(attributes: AdmissionAttributes) -> None:
        if attributes.operation not in ("CREATE", "UPDATE") or not _is_pod(attributes) or attributes.object is None:
            return
        privileged = is_privileged(attributes.user, attributes.groups, names.DEFAULT_NAMESPACE)
        problem = pod_problem(attributes.object, attributes.old_object, privileged=privileged, rules=rules)
        if problem:
            raise _forbidden(problem)

    return validator


def _is_pod(attributes: AdmissionAttributes) -> bool:
    return attributes.resource == "pods" and not attributes.group and not attributes.subresource


def _forbidden(text: str) -> ApiError:
    return Forbidden(403, "Forbidden", text)
