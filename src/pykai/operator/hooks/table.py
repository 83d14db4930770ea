"""The table of hooks: command, account, when it runs, and what it may do.

The chart makes a Job with an account and roles of each row; `kai install` and `kai uninstall` call the same functions
with the rights of the user.

Statements: operations:O-51, OD-14.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykai.api import names
from pykai.api.crds import custom_resource_definitions
from pykai.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from pykai.services.rights import RoleRule
from pykai.webhooks import table as webhooks

PRE: Final = "pre-install,pre-upgrade"
POST: Final = "post-install,post-upgrade"
POST_DELETE: Final = "post-delete"

_DEFINITIONS: Final = "apiextensions.k8s.io"
_KUEUE: Final = "kueue.x-k8s.io"


@dataclass(frozen=True, slots=True)
class HookDefinition:
    """One hook."""

    #: `kai hook NAME`, and the name of its Job
    name: str
    #: the value of the chart that holds its image and resources
    value: str
    account: str
    #: Helm's name of the moment
    moment: str
    #: order within the moment; accounts come first
    weight: int
    rules: tuple[RoleRule, ...]
    #: the value that switches it; empty: it always runs
    switch: str = ""


CRD_UPGRADER: Final = HookDefinition(
    "crd-upgrader",
    "crdupgrader",
    "kai-scheduler-crd-manager",
    PRE,
    2,
    (
        RoleRule(
            _DEFINITIONS,
            ("customresourcedefinitions",),
            ("create", "get", "patch"),
            names=tuple(each["metadata"]["name"] for each in custom_resource_definitions()),
        ),
    ),
)
TOPOLOGY_MIGRATION: Final = HookDefinition(
    "topology-migration",
    "topologyMigration",
    "kai-topology-migration",
    PRE,
    4,
    (
        RoleRule(_KUEUE, ("topologies",), ("list",)),
        RoleRule(names.KAI_GROUP, ("topologies",), ("create",)),
    ),
    "topologyMigration.enabled",
)
CONFIG_DEPLOYER: Final = HookDefinition(
    "kai-config-deployer",
    "kaiConfigDeployer",
    "kai-config-deployer",
    POST,
    1,
    (RoleRule(names.KAI_GROUP, ("configs",), ("create", "get", "patch"), names=("kai-config",)),),
    "kaiConfigDeployer.enabled",
)
POST_CLEANUP: Final = HookDefinition(
    "post-delete-cleanup",
    "postCleanup",
    "post-delete-cleanup",
    POST_DELETE,
    1,
    (
        RoleRule("apps", ("daemonsets", "deployments"), ("delete", "list"), names.DEFAULT_NAMESPACE),
        *(
            RoleRule(kind.group, (kind.plural,), ("delete",), names=webhooks.configuration_names(kind))
            for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        ),
        RoleRule(names.KAI_GROUP, ("configs",), ("delete",), names=("kai-config",)),
    ),
    "postCleanup.enabled",
)

#: in the order in which they run
HOOKS: Final = (CRD_UPGRADER, TOPOLOGY_MIGRATION, CONFIG_DEPLOYER, POST_CLEANUP)
