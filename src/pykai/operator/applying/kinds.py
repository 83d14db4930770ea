"""The kinds that the operator makes, in the order in which they are applied.

Accounts and configuration come before the pods that need them, registrations of webhooks last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykai.kube import resources
from pykai.kube.resources import Resource


@dataclass(frozen=True, slots=True)
class OwnedKind:
    """A kind of object that the operator applies and prunes."""

    resource: Resource
    #: one that another operator made is replaced as a whole: what it lists beside ours would stay
    is_replaced: bool = False
    #: not every cluster has it
    is_optional: bool = False
    #: outside the operator's namespace too
    is_elsewhere: bool = False


OWNED_KINDS: Final = (
    OwnedKind(resources.SERVICE_ACCOUNTS, is_elsewhere=True),
    OwnedKind(resources.SECRETS),
    OwnedKind(resources.CONFIG_MAPS),
    OwnedKind(resources.SERVICES, is_replaced=True),
    OwnedKind(resources.ENDPOINT_SLICES),
    OwnedKind(resources.DEPLOYMENTS, is_replaced=True),
    OwnedKind(resources.DAEMON_SETS, is_replaced=True),
    OwnedKind(resources.POD_DISRUPTION_BUDGETS),
    OwnedKind(resources.NETWORK_POLICIES),
    OwnedKind(resources.VERTICAL_AUTOSCALERS, is_optional=True),
    OwnedKind(resources.PROMETHEUSES, is_optional=True),
    OwnedKind(resources.SERVICE_MONITORS, is_optional=True),
    OwnedKind(resources.MUTATING_WEBHOOKS),
    OwnedKind(resources.VALIDATING_WEBHOOKS),
)
BY_KIND: Final = {kind.resource.kind: kind for kind in OWNED_KINDS}
_RANK: Final = {kind.resource.kind: rank for rank, kind in enumerate(OWNED_KINDS)}


def rank_of(kind: str) -> int:
    """Where a kind comes in the order."""
    return _RANK[kind]
