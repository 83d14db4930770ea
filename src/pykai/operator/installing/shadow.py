"""Schedulers that decide beside those of KAI Scheduler and write nothing: what `kai install --shadow` installs.

One Deployment for each SchedulingShard, with the command line that the Config and the shard ask for.  Its configuration
is the ConfigMap of the scheduler beside it, which it follows, so both decide by the same rules (docs/migrate.md).  All
have a namespace and an account of their own, and the right to list and watch what a scheduler reads.  There are no
definitions, webhooks, queues or PodGroups in it: those of the installation beside it are read.

Subtle: the ConfigMap that is followed needs no rule of its own.  A scheduler must know which ConfigMaps pods may mount,
so it lists all of them, by name.

Statements: shadow:beside.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.installation import Config, SchedulingShard
from pykai.api.meta import ObjectMeta
from pykai.api.unstructured import JsonObject
from pykai.operator.chart.configuration import DEFAULT_SHARD, IS_OPENSHIFT, config, default_shard, pull_policy
from pykai.operator.chart.files import rendered_documents
from pykai.operator.chart.hooks import constraints
from pykai.operator.chart.language import Choice, ImageReference, TemplateScope, evaluated
from pykai.operator.chart.objects import STRICT_CONTEXT
from pykai.operator.desired import arguments
from pykai.operator.desired.settings import Settings
from pykai.operator.install import role_and_binding
from pykai.operator.installing.givenvalues import ValueProblem
from pykai.operator.installing.release import Release
from pykai.services.rights import LIST_WATCH, RoleRule
from pykai.services.table import SERVICES

SHADOW_NAMESPACE: Final = "kai-shadow"
SHADOW: Final = "kai-shadow"
_METRICS_PORT: Final = 8080
REPORT_PORT: Final = 8081
#: flags that a shadow has of its own
_OWN_FLAGS: Final = {
    "shadow": "true",
    "listen-address": f":{_METRICS_PORT}",
    "plugin-server-port": f"{REPORT_PORT}",
}
#: flags of the scheduler beside it that mean nothing here: its mounted file, and its lease
_LEFT_OUT: Final = frozenset({"scheduler-conf", "leader-elect"})


@dataclass(frozen=True, slots=True)
class Observed:
    """The installation beside a shadow."""

    settings: Settings
    shards: tuple[SchedulingShard, ...]

    def only(self, wanted: Collection[str]) -> Observed:
        """Some of its shards, or all of them; raises `ValueProblem` for one that is not there."""
        there = {each.metadata.name: each for each in self.shards}
        for name in wanted:
            if name not in there:
                raise ValueProblem(f"--shard {name}: there is no such SchedulingShard; known here: {', '.join(there)}")
        return replace(self, shards=tuple(there[name] for name in wanted or there))


def config_map_of(observed: Observed, shard: SchedulingShard) -> str:
    """The name of the ConfigMap that a shadow follows (operations:O-8)."""
    return arguments.shard_name(observed.settings, shard)


def expected(release: Release) -> Observed:
    """What is beside a shadow where no cluster says so: what the chart installs with these values."""
    scope = replace(release, namespace=names.DEFAULT_NAMESPACE).scope()
    (made,) = rendered_documents(scope, [config()])
    shards = [decode_as(SchedulingShard, each) for each in rendered_documents(scope, [default_shard()])]
    if not shards:
        shards = [SchedulingShard(metadata=ObjectMeta(name=DEFAULT_SHARD))]
    return Observed(Settings(decode_as(Config, made).spec), tuple(shards))


def shadow_name(shard: SchedulingShard) -> str:
    """The name of the Deployment of a shadow."""
    return f"{SHADOW}-{shard.metadata.name}"


def shadow_objects(scope: TemplateScope, observed: Observed) -> list[JsonObject]:
    """The objects of all shadows, with image, pull secrets and placement of the values; raises `Refused`."""
    account = (SHADOW, scope.namespace)
    user = f"system:serviceaccount:{scope.namespace}:{SHADOW}"
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scope.namespace}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            # `kai uninstall` knows its objects by the fields that it owns (install:uninstall).
            "metadata": {"name": SHADOW, "namespace": scope.namespace, "labels": {"app": SHADOW}},
        },
        *role_and_binding(SHADOW, "", reading_rules(), account),
        *rendered_documents(scope, [Choice(IS_OPENSHIFT, constraints(SHADOW, [user]))]),
        *(_deployment(scope, observed, shard) for shard in observed.shards),
    ]


def reading_rules() -> list[RoleRule]:
    """What a scheduler lists and watches, anywhere."""
    found: dict[str, set[str]] = {}
    for rule in SERVICES["scheduler"].rules:
        if not rule.namespace and set(LIST_WATCH) <= set(rule.verbs):
            found.setdefault(rule.group, set()).update(rule.resources)
    return [RoleRule(group, tuple(sorted(resources)), LIST_WATCH) for group, resources in found.items()]


def _deployment(scope: TemplateScope, observed: Observed, shard: SchedulingShard) -> JsonObject:
    name = shadow_name(shard)
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": scope.namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(scope, observed, shard)},
        },
    }


def _flags(scope: TemplateScope, observed: Observed, shard: SchedulingShard) -> dict[str, str]:
    """The command line of the scheduler beside it (operations:O-13), with what a shadow has of its own."""
    flags: dict[str, str] = {}
    for each in arguments.scheduler(observed.settings, shard)[0]:
        name, equals, value = each.removeprefix("--").partition("=")
        flags[name] = value if equals else "true"
    kept = {name: value for name, value in flags.items() if name not in _LEFT_OUT}
    return {**kept, **scope.values["scheduler"]["args"], **_OWN_FLAGS}


def _pod(scope: TemplateScope, observed: Observed, shard: SchedulingShard) -> dict[str, Any]:
    places = ("nodeSelector", "affinity", "tolerations", "imagePullSecrets", "priorityClassName")
    given = {key: scope.values["global"][key] for key in places if scope.values["global"][key]}
    return {
        "serviceAccountName": SHADOW,
        **given,
        "containers": [
            {
                "name": "scheduler",
                "image": evaluated(ImageReference("scheduler.image"), scope),
                "imagePullPolicy": evaluated(pull_policy("scheduler.image"), scope),
                "command": ["kai", "run", "scheduler"],
                "args": [f"--{name}={value}" for name, value in _flags(scope, observed, shard).items()],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": _METRICS_PORT}, "periodSeconds": 5},
                "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
                "securityContext": scope.values["global"]["securityContext"] or STRICT_CONTEXT,
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
    }
