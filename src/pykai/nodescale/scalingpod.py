"""A scaling pod: asks for whole GPUs where a pod that shares GPUs would run, and ends once it runs (gpu:SA-8).

Where the pod may run is copied from the pod.  What it runs as is not: image, account and security settings are ours,
and it has no priority, because the default scheduler would evict running pods for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from pykai.api import names
from pykai.api.gpuvendors import SHAREABLE_GPU
from pykai.api.quantity import format_quantity
from pykai.nodescale.demand import UnschedulableShare
from pykai.nodescale.options import NodeScaleOptions

#: Most characters of a label value, and of a pod's name that is used as its host name.
_LONGEST: Final = 63
_DIGEST: Final = 8
#: Fields of a pod's spec that say where it may run.
_PLACEMENT_FIELDS: Final = ("nodeSelector", "tolerations", "topologySpreadConstraints", "runtimeClassName")
_AFFINITY_LISTS: Final = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


def _shortened(text: str, longest: int) -> str:
    """Text of at most so many characters that ends in a letter or digit."""
    return text[:longest].rstrip("-_.")


def label_value(name: str) -> str:
    """A name as the value of a label; a long one keeps its beginning and gets a digest."""
    return name if len(name) <= _LONGEST else f"{_shortened(name, _LONGEST - _DIGEST - 1)}-{_digest(name)}"


def back_reference(namespace: str, name: str) -> tuple[str, str]:
    """The values of the labels by which a scaling pod names its pod: namespace and name."""
    return label_value(namespace), label_value(name)


def scaling_pod_name(namespace: str, name: str) -> str:
    """The name of the scaling pod of a pod; the digest keeps `a-b/c` and `a/b-c` apart."""
    begin = _shortened(f"{namespace}-{name}".replace(".", "-"), _LONGEST - _DIGEST - 1)
    return f"{begin}-{_digest(f'{namespace}/{name}')}"


def scaling_pod(share: UnschedulableShare, spec: Mapping[str, Any], options: NodeScaleOptions) -> dict[str, Any]:
    """The document of the scaling pod of a pod with this spec."""
    namespace, name = back_reference(share.namespace, share.name)
    gpus = {SHAREABLE_GPU: str(share.request.devices)}
    requests = dict(gpus)
    if share.cpu_milli > 0:
        requests["cpu"] = format_quantity(share.cpu_milli * 1_000_000)
    if share.memory_bytes > 0:
        requests["memory"] = format_quantity(share.memory_bytes * 1_000_000_000, binary=True)
    placement = {field: spec[field] for field in _PLACEMENT_FIELDS if spec.get(field)}
    affinity = spec.get("affinity")
    if isinstance(affinity, Mapping):
        placement["affinity"] = _in_namespace(affinity, share.namespace)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": scaling_pod_name(share.namespace, share.name),
            "namespace": options.namespace,
            "labels": {
                names.APP_LABEL: options.scaling_pod_app,
                names.SHARED_GPU_POD_NAME_LABEL: name,
                names.SHARED_GPU_POD_NAMESPACE_LABEL: namespace,
            },
        },
        "spec": {
            **placement,
            "restartPolicy": "OnFailure",
            "serviceAccountName": options.scaling_pod_service_account,
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": names.SCALING_POD_APP,
                    "image": options.scaling_pod_image,
                    "resources": {"requests": requests, "limits": gpus},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def _in_namespace(affinity: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Affinity whose terms about "the pod's own namespace" name the namespace of the copied pod."""
    copied = dict(affinity)
    for kind in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(kind)
        if isinstance(part, Mapping):
            copied[kind] = {
                field: [_term_in_namespace(term, namespace) for term in terms]
                if field in _AFFINITY_LISTS and isinstance(terms, list)
                else terms
                for field, terms in part.items()
            }
    return copied


def _term_in_namespace(term: Any, namespace: str) -> Any:
    if not isinstance(term, Mapping):
        return term
    inner = term.get("podAffinityTerm")
    if isinstance(inner, Mapping):
        return {**term, "podAffinityTerm": _term_in_namespace(inner, namespace)}
    if term.get("namespaces") or term.get("namespaceSelector") is not None:
        return term
    return {**term, "namespaces": [namespace]}
