"""NodeResourceTopologies: their definition, as Kubernetes' own project publishes it in short, and objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykai.api import names
from pykai.kube.resources import NODE_RESOURCE_TOPOLOGIES

Document = dict[str, Any]

_QUANTITY = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_NAMED_VALUES = {
    "type": "array",
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}},
}
_ZONE = {
    "type": "object",
    "required": ["name", "type"],
    "properties": {
        "name": {"type": "string"},
        "type": {"type": "string"},
        "resources": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "capacity", "allocatable", "available"],
                "properties": {
                    "name": {"type": "string"},
                    "capacity": _QUANTITY,
                    "allocatable": _QUANTITY,
                    "available": _QUANTITY,
                },
            },
        },
    },
}
_SCHEMA = {
    "type": "object",
    "required": ["zones"],
    "properties": {
        "attributes": _NAMED_VALUES,
        "topologyPolicies": {"type": "array", "items": {"type": "string"}},
        "zones": {"type": "array", "items": _ZONE},
    },
}
DEFINITION: Document = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"{NODE_RESOURCE_TOPOLOGIES.plural}.{names.NUMA_GROUP}",
        # The group belongs to Kubernetes, where this says who has approved it.
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
    },
    "spec": {
        "group": names.NUMA_GROUP,
        "names": {
            "plural": NODE_RESOURCE_TOPOLOGIES.plural,
            "singular": "noderesourcetopology",
            "kind": NODE_RESOURCE_TOPOLOGIES.kind,
        },
        "scope": "Cluster",
        "versions": [
            {
                "name": NODE_RESOURCE_TOPOLOGIES.version,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": _SCHEMA},
            }
        ],
    },
}


def topology(node: str, policy: str, zones: Sequence[Mapping[str, str]], scope: str = "container") -> Document:
    """What a daemon publishes of an empty node with these zones."""
    return {
        "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version,
        "kind": NODE_RESOURCE_TOPOLOGIES.kind,
        "metadata": {"name": node},
        "attributes": [
            {"name": names.NUMA_POLICY_ATTRIBUTE, "value": policy},
            {"name": names.NUMA_SCOPE_ATTRIBUTE, "value": scope},
        ],
        "zones": [
            {
                "name": f"node-{number}",
                "type": names.NUMA_ZONE_TYPE_NODE,
                "resources": [
                    {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
                    for name, amount in zone.items()
                ],
            }
            for number, zone in enumerate(zones)
        ],
    }
