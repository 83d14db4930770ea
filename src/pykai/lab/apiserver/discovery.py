"""Discovery for clients: versions, groups, kinds, health, OpenAPI.

There are two forms: the aggregated one (all groups in one document), which kubectl prefers, and one document per group
and version. Both are built from the registry and cached until a kind is added or removed.
"""

from __future__ import annotations

import hashlib
from typing import Final

from pykai import __version__
from pykai.api.unstructured import JsonObject
from pykai.kube.transport import Request, Response
from pykai.lab.apiserver import accessreviews, apierrors, openapi
from pykai.lab.apiserver.kinds import KindRegistry, ResourceKind
from pykai.lab.apiserver.negotiation import response_format
from pykai.lab.apiserver.storage import encode

_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
#: subresource -> kind of its bodies, and verbs
_SUBRESOURCES: Final[dict[str, tuple[str, str, str, list[str]]]] = {
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "log": ("", "v1", "Pod", ["get"]),
    "exec": ("", "v1", "PodExecOptions", ["create", "get"]),
    "attach": ("", "v1", "PodAttachOptions", ["create", "get"]),
    "portforward": ("", "v1", "PodPortForwardOptions", ["create", "get"]),
    "finalize": ("", "v1", "Namespace", ["update"]),
}
VERSION: Final = {
    "major": "1",
    "minor": "35",
    "gitVersion": f"v1.35.4+pykai-{__version__}",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "cpython",
    "platform": "any",
}


class Discovery:
    """Answers paths that are not resources."""

    def __init__(self, registry: KindRegistry) -> None:
        self._registry = registry
        self._documents: dict[str, bytes] = {}
        self._generation = -1

    def answer(self, request: Request, parts: list[str]) -> Response:
        """The document at a path, or 404."""
        if request.method not in ("GET", "HEAD"):
            raise apierrors.method_not_allowed()
        if parts[0] in ("healthz", "livez", "readyz"):
            return Response(200, b"ok", {"Content-Type": "text/plain"})
        if self._generation != self._registry.generation:
            self._documents.clear()
            self._generation = self._registry.generation
        if parts == ["openapi", "v2"] and openapi.V2_ACCEPTED in request.accept:
            return Response(200, openapi.empty_v2_document(), {"Content-Type": openapi.V2_CONTENT_TYPE})
        aggregated = parts in (["api"], ["apis"]) and response_format(request.accept).kind == "APIGroupDiscoveryList"
        key = f"{'/'.join(parts)}{' aggregated' if aggregated else ''}"
        body = self._documents.get(key)
        if body is None:
            body = self._documents[key] = encode(self._document(parts, aggregated))
        return Response(200, body, {"Content-Type": _AGGREGATED if aggregated else "application/json"})

    def _document(self, parts: list[str], aggregated: bool) -> JsonObject:
        match parts:
            case ["version"]:
                return VERSION
            case ["api"] if aggregated:
                return self._aggregated(core=True)
            case ["apis"] if aggregated:
                return self._aggregated(core=False)
            case ["api"]:
                return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ["apis"]:
                groups = [_group(name, versions) for name, versions in self._groups().items() if name]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
            case ["apis", group] if group in self._groups():
                return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, self._groups()[group])}
            case ["api", "v1"]:
                return self._resources("", "v1")
            case ["apis", group, version] if version in self._groups().get(group, ()):
                return self._resources(group, version)
            case ["openapi", "v3"]:
                return openapi.index_document(self._openapi_paths(), self._openapi_digests())
            case ["openapi", "v3", "api", "v1"]:
                return self._openapi("", "v1")
            case ["openapi", "v3", "apis", group, version] if version in self._groups().get(group, ()):
                return self._openapi(group, version)
            case [""]:
                paths = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
                return {
                    "paths": sorted([*paths, *(f"/apis/{g}/{v}" for g, vs in self._groups().items() if g for v in vs)])
                }
        raise apierrors.no_such_path()

    def _groups(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for kind in self._registry:
            versions = groups.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        for group, _, _ in accessreviews.KINDS:
            groups.setdefault(group, ["v1"])
        return {group: sorted(versions, key=_version_order, reverse=True) for group, versions in groups.items()}

    def _kinds(self, group: str, version: str) -> list[ResourceKind]:
        return [kind for kind in self._registry if (kind.group, kind.version) == (group, version)]

    def _openapi_paths(self) -> list[str]:
        return [f"apis/{g}/{v}" if g else f"api/{v}" for g, versions in self._groups().items() for v in versions]

    def _openapi_digests(self) -> dict[str, str]:
        """Digests of documents that may change while the server runs or from one server to the next."""
        digests = {}
        for group, version in {(kind.group, kind.version) for kind in self._registry if kind.is_custom}:
            raw = encode(self._openapi(group, version))
            digests[f"apis/{group}/{version}"] = hashlib.sha256(raw).hexdigest()
        return digests

    def _openapi(self, group: str, version: str) -> JsonObject:
        return openapi.group_version_document(group, version, self._kinds(group, version))

    def _resources(self, group: str, version: str) -> JsonObject:
        resources: list[JsonObject] = []
        for kind in self._kinds(group, version):
            resources.append(
                {
                    "name": kind.plural,
                    "singularName": kind.singular or kind.kind.lower(),
                    "namespaced": kind.namespaced,
                    "kind": kind.kind,
                    "verbs": _VERBS,
                    **({"shortNames": list(kind.short_names)} if kind.short_names else {}),
                    **({"categories": list(kind.categories)} if kind.categories else {}),
                }
            )
            for name, (g, v, k, verbs) in _subresources(kind):
                entry: JsonObject = {
                    "name": f"{kind.plural}/{name}",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                    "kind": k,
                    "verbs": verbs,
                }
                if (g, v) != (kind.group, kind.version):
                    entry |= {"group": g, "version": v}
                resources.append(entry)
        for g, plural, name in accessreviews.KINDS:
            if (g, "v1") == (group, version):
                resources.append(
                    {
                        "name": plural,
                        "singularName": name.lower(),
                        "namespaced": False,
                        "kind": name,
                        "verbs": ["create"],
                    }
                )
        version_name = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version_name, "resources": resources}

    def _aggregated(self, core: bool) -> JsonObject:
        items = []
        for group, versions in self._groups().items():
            if (group == "") != core:
                continue
            listed = [
                {"version": version, "resources": self._aggregated_resources(group, version), "freshness": "Current"}
                for version in versions
            ]
            items.append({"metadata": {"name": group, "creationTimestamp": None}, "versions": listed})
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }

    def _aggregated_resources(self, group: str, version: str) -> list[JsonObject]:
        resources: list[JsonObject] = []
        for kind in self._kinds(group, version):
            entry: JsonObject = {
                "resource": kind.plural,
                "responseKind": {"group": group, "version": version, "kind": kind.kind},
                "scope": "Namespaced" if kind.namespaced else "Cluster",
                "singularResource": kind.singular or kind.kind.lower(),
                "verbs": _VERBS,
            }
            if kind.short_names:
                entry["shortNames"] = list(kind.short_names)
            if kind.categories:
                entry["categories"] = list(kind.categories)
            below = [
                {"subresource": name, "responseKind": {"group": g, "version": v, "kind": k}, "verbs": verbs}
                for name, (g, v, k, verbs) in _subresources(kind)
            ]
            if below:
                entry["subresources"] = below
            resources.append(entry)
        for g, plural, name in accessreviews.KINDS:
            if (g, "v1") == (group, version):
                resources.append(
                    {
                        "resource": plural,
                        "responseKind": {"group": g, "version": "v1", "kind": name},
                        "scope": "Cluster",
                        "singularResource": name.lower(),
                        "verbs": ["create"],
                    }
                )
        return resources


def _subresources(kind: ResourceKind) -> list[tuple[str, tuple[str, str, str, list[str]]]]:
    subresources = [(name, _SUBRESOURCES[name]) for name in kind.subresources if name in _SUBRESOURCES]
    if kind.status:
        subresources.append(("status", (kind.group, kind.version, kind.kind, ["get", "patch", "update"])))
    if kind.scale is not None:
        subresources.append(("scale", ("autoscaling", "v1", "Scale", ["get", "patch", "update"])))
    return sorted(subresources)


def _group(name: str, versions: list[str]) -> JsonObject:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _version_order(version: str) -> tuple[int, int, int]:
    """Kubernetes' order of versions: v2 before v1 before v1beta2 before v1alpha1."""
    stage = 2
    major, minor = version.lstrip("v"), "0"
    for word, rank in (("beta", 1), ("alpha", 0)):
        if word in version:
            stage = rank
            major, _, minor = version.lstrip("v").partition(word)
    try:
        return stage, int(major), int(minor or 0)
    except ValueError:
        return -1, 0, 0
