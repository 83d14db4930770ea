"""Configs and shards that read like sentences, and the objects that the operator wants for them."""

from __future__ import annotations

from typing import Any

from pykai.api.decode import decode_as
from pykai.api.installation import Config, SchedulingShard
from pykai.kube.client import Client
from pykai.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.desired.settings import ImageDefaults
from pykai.operator.desired.state import DesiredState, desired_state
from pykai.operator.installing import cluster
from pykai.operator.installing.previewing import CHANGES
from pykai.operator.installing.release import Release

IMAGES = ImageDefaults("images.test/kai", "v1")
Objects = dict[tuple[str, str], dict[str, Any]]


def config(spec: dict[str, Any] | None = None) -> Config:
    return decode_as(Config, {"metadata": {"name": "kai-config", "uid": "config-uid"}, "spec": spec or {}})


def shard(spec: dict[str, Any] | None = None, name: str = "default") -> SchedulingShard:
    return decode_as(SchedulingShard, {"metadata": {"name": name, "uid": f"{name}-uid"}, "spec": spec or {}})


def states(
    spec: dict[str, Any] | None = None, *shards: SchedulingShard, facts: ClusterFacts | None = None
) -> list[DesiredState]:
    return desired_state(config(spec), shards or (shard(),), facts or ClusterFacts(), IMAGES)


def objects(spec: dict[str, Any] | None = None, *shards: SchedulingShard, facts: ClusterFacts | None = None) -> Objects:
    """(kind, name) -> object, of all owners."""
    return {
        (each["kind"], each["metadata"]["name"]): each
        for state in states(spec, *shards, facts=facts)
        for operand in state.operands.values()
        for each in operand
    }


def args_of(found: Objects, deployment: str) -> list[str]:
    args: list[str] = main(found, deployment)["args"]
    return args


def main(found: Objects, name: str, kind: str = "Deployment") -> dict[str, Any]:
    """The one container."""
    (only,) = found[kind, name]["spec"]["template"]["spec"]["containers"]
    container: dict[str, Any] = only
    return container


def nested(path: str, value: Any) -> dict[str, Any]:
    """`a.b` and a value as a document."""
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Where two documents differ, a line each: `path: before -> after`."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after}, key=str)
        return [
            line
            for key in keys
            for line in differences(
                before.get(key, ...), after.get(key, ...), f"{path}.{_label(key)}" if path else _label(key)
            )
        ]
    if isinstance(before, list) and isinstance(after, list):
        if all(isinstance(each, str) for each in (*before, *after)):
            gone = [f"{path}: - {each}" for each in before if each not in after]
            new = [f"{path}: + {each}" for each in after if each not in before]
            moved = [] if gone or new or before == after else [f"{path}: another order: {' '.join(after)}"]
            return [*gone, *new, *moved]
        if len(before) == len(after):
            return [
                line
                for index, each in enumerate(before)
                for line in differences(each, after[index], f"{path}[{index}]")
            ]
    if isinstance(before, str) and isinstance(after, str) and "\n" in before:
        return differences(before.splitlines(), after.splitlines(), path)
    return [] if before == after else [f"{path}: {_shown(before)} -> {_shown(after)}"]


def _label(key: Any) -> str:
    return "/".join(key) if isinstance(key, tuple) else str(key)


def _shown(value: Any) -> str:
    if value is ...:
        return "none"
    return value["kind"] if isinstance(value, dict) and "kind" in value else str(value)


def config_manifest(**spec: Any) -> dict[str, Any]:
    """A Config as users write it."""
    return {
        "apiVersion": "kai.scheduler/v1",
        "kind": "Config",
        "metadata": {"name": "kai-config"},
        "spec": spec,
    }


async def kueue_topologies(client: Client, **topologies: list[str]) -> None:
    """Kueue's definition, and a Topology of it for each name, by the labels of its levels."""
    level = {"type": "object", "properties": {"nodeLabel": {"type": "string"}}}
    spec = {"type": "object", "properties": {"levels": {"type": "array", "items": level}}}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    names = {"plural": "topologies", "singular": "topology", "kind": "Topology", "listKind": "TopologyList"}
    definition = {
        "metadata": {"name": "topologies.kueue.x-k8s.io"},
        "spec": {"group": "kueue.x-k8s.io", "names": names, "scope": "Cluster", "versions": [version]},
    }
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    kind = Resource("kueue.x-k8s.io", "v1beta1", "topologies", "Topology", False)
    for name, labels in topologies.items():
        levels = [{"nodeLabel": each} for each in labels]
        await client.create(kind, {"metadata": {"name": name}, "spec": {"levels": levels}})


async def openshift_definitions(client: Client) -> None:
    """Kinds by which a cluster is known as OpenShift, and with which it limits pods; it keeps whatever they hold."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for group, kind, plural in (
        ("config.openshift.io", "ClusterVersion", "clusterversions"),
        ("security.openshift.io", "SecurityContextConstraints", "securitycontextconstraints"),
    ):
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        definition = {
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "names": names, "scope": "Cluster", "versions": [version]},
        }
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)


async def changes(client: Client, release: Release) -> list[str]:
    """What an installation would do, but for what stays as it is."""
    return [str(each) async for each in cluster.preview(client, release) if each.outcome in CHANGES]
