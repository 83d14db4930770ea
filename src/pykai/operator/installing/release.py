"""The objects of an installation without Helm, in the order in which they are applied; pure.

They are the documents of the chart without its hooks, whose work `kai install` does itself, with the namespace before
and the Config behind them.  What OpenShift has to allow is a hook of the chart only to come early.

Statements: operations:10, O-51, OD-14; cases operations:OC-19.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pykai
from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.kube.resources import Resource
from pykai.operator.chart.configuration import config
from pykai.operator.chart.files import checks, release_documents, rendered_documents
from pykai.operator.chart.hooks import openshift_documents
from pykai.operator.chart.language import TemplateScope
from pykai.operator.chart.values import default_values, merged_values
from pykai.operator.installing.givenvalues import check_values

_KEEP: Final = "helm.sh/resource-policy"
#: API version, kind, namespace and name
Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Release:
    """What a user asks for."""

    #: the user's own, without the defaults
    values: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = names.DEFAULT_NAMESPACE
    #: default queues are made with a new one only
    is_install: bool = True
    #: (kind, namespace, name) -> object that a look at the cluster has found
    live: Mapping[tuple[str, str, str], Mapping[str, Any]] = field(default_factory=dict)

    def scope(self) -> TemplateScope:
        """What the chart's documents are rendered with; raises `ValueProblem`."""
        check_values(self.values)
        return TemplateScope(
            merged_values(default_values(), self.values),
            namespace=self.namespace,
            version=pykai.__version__,
            is_install=self.is_install,
            live=self.live,
        )


def release_objects(release: Release) -> list[JsonObject]:
    """Everything but definitions; raises `ValueProblem` and `TemplateFailure`."""
    scope = release.scope()
    rendered_documents(scope, checks())
    documents = [each for file in release_documents().values() for each in file]
    documents += openshift_documents(are_hooks=False)
    made = sorted(rendered_documents(scope, documents), key=_rank)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}}
    has_config = scope.values["kaiConfig"]["render"] or scope.values["kaiConfigDeployer"]["enabled"]
    return [namespace, *made, *(rendered_documents(scope, [config()]) if has_config else ())]


#: kinds that others need come first; the operator comes last, when all is there for it
_ORDER: Final = {"Namespace": 0, "ServiceAccount": 1, "Deployment": 3}


def _rank(obj: Mapping[str, Any]) -> int:
    return _ORDER.get(obj["kind"], 2)


def is_kept(obj: Mapping[str, Any]) -> bool:
    """Whether an object stays when an installation goes: work and settings of users are in it."""
    return obj["kind"] == "Namespace" or _KEEP in (obj["metadata"].get("annotations") or {})


def is_made_once(obj: Mapping[str, Any]) -> bool:
    """Whether an object that is there already is left as it is: users may have changed it."""
    return is_kept(obj) and obj["kind"] != "SchedulingShard"


def key_of(obj: Mapping[str, Any]) -> Key:
    """Version of the API, kind, namespace and name."""
    metadata = obj["metadata"]
    return obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), metadata["name"]


def resource_of(api_version: str, kind: str, namespace: str) -> Resource:
    """Where an API server has objects of a kind; true of every kind that is installed."""
    group, _, version = api_version.rpartition("/")
    word = kind.lower()
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word.endswith("s") else f"{word}s"
    # Constraints of OpenShift are called as many things already.
    return Resource(group, version, word if word.endswith("constraints") else plural, kind, bool(namespace))


def surplus(before: Iterable[Key], after: Iterable[JsonObject]) -> list[Key]:
    """What an earlier version installed and this one does not, to be deleted in reverse order."""
    objects = list(after)
    wanted = {key_of(each) for each in objects}
    return [key for key in reversed(list(before)) if key not in wanted and not is_handed_over(key, objects)]


def is_handed_over(key: Key, after: Iterable[JsonObject]) -> bool:
    """Whether this is a Config that values leave to the user from now on: all that runs belongs to it (O-62)."""
    return key[1] == "Config" and not any(each["kind"] == "Config" for each in after)
