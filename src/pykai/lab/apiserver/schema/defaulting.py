"""Defaults of built-in kinds that depend on other fields; the others are in the table.

Each function gets an object of one struct, its plain defaults already filled in, and returns the fields to add.
`validation.apply_defaults` calls it before it descends. The rules are those of
k8s.io/kubernetes/pkg/apis/*/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pykai.api.names import NAMESPACE_NAME_LABEL
from pykai.api.unstructured import JsonMapping

DefaultingRule = Callable[[JsonMapping], Mapping[str, Any]]

_NOTHING: Final[Mapping[str, Any]] = {}
_MAX_INT32: Final = (1 << 31) - 1


def _container(container: JsonMapping) -> Mapping[str, Any]:
    """Image pull policy: Always for the tag latest, else IfNotPresent."""
    if container.get("imagePullPolicy"):
        return _NOTHING
    added: dict[str, Any] = {"imagePullPolicy": _pull_policy(container.get("image"))}
    if "resources" not in container:
        added["resources"] = {}
    return added


def _pull_policy(image: Any) -> str:
    name, at, _ = str(image or "").partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or (not tag and not at) else "IfNotPresent"


def _image_volume(source: JsonMapping) -> Mapping[str, Any]:
    return _NOTHING if source.get("pullPolicy") else {"pullPolicy": _pull_policy(source.get("reference"))}


def _pod_spec(spec: JsonMapping) -> Mapping[str, Any]:
    """The service account name has two fields."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    return {"serviceAccount": account, "serviceAccountName": account} if account else _NOTHING


def _spec_of_pod(spec: JsonMapping) -> Mapping[str, Any]:
    added = dict(_pod_spec(spec))
    if spec.get("hostNetwork"):
        for place in ("containers", "initContainers"):
            if isinstance(spec.get(place), list):
                added[place] = [_with_host_ports(container) for container in spec[place]]
    return added


def _with_host_ports(container: Any) -> Any:
    ports = container.get("ports") if isinstance(container, dict) else None
    if not isinstance(ports, list):
        return container
    return {
        **container,
        "ports": [
            {**port, "hostPort": port["containerPort"]}
            if isinstance(port, dict) and not port.get("hostPort") and "containerPort" in port
            else port
            for port in ports
        ],
    }


def _volume(volume: JsonMapping) -> Mapping[str, Any]:
    return _NOTHING if any(name != "name" for name in volume) else {"emptyDir": {}}


def _service_spec(spec: JsonMapping) -> Mapping[str, Any]:
    added: dict[str, Any] = {}
    if spec.get("sessionAffinity") == "ClientIP" and "sessionAffinityConfig" not in spec:
        added["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    kind = spec.get("type")
    if kind in ("NodePort", "LoadBalancer") and not spec.get("externalTrafficPolicy"):
        added["externalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer" and "allocateLoadBalancerNodePorts" not in spec:
        added["allocateLoadBalancerNodePorts"] = True
    if kind in ("ClusterIP", "NodePort", "LoadBalancer") and "internalTrafficPolicy" not in spec:
        added["internalTrafficPolicy"] = "Cluster"
    return added


def _service_port(port: JsonMapping) -> Mapping[str, Any]:
    return {"targetPort": port["port"]} if not port.get("targetPort") and "port" in port else _NOTHING


def _rolling_update(strategy: JsonMapping) -> Mapping[str, Any]:
    missing = strategy.get("type") == "RollingUpdate" and strategy.get("rollingUpdate") is None
    return {"rollingUpdate": {}} if missing else _NOTHING


def _job_spec(spec: JsonMapping) -> Mapping[str, Any]:
    added: dict[str, Any] = {}
    if "completions" not in spec and "parallelism" not in spec:
        added["completions"] = added["parallelism"] = 1
    elif "parallelism" not in spec:
        added["parallelism"] = 1
    if "backoffLimit" not in spec:
        added["backoffLimit"] = _MAX_INT32 if "backoffLimitPerIndex" in spec else 6
    if "podReplacementPolicy" not in spec:
        added["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    return added


def _device_request(request: JsonMapping) -> Mapping[str, Any]:
    return {"count": 1} if request.get("allocationMode") == "ExactCount" and "count" not in request else _NOTHING


def _pending(volume: JsonMapping) -> Mapping[str, Any]:
    return _NOTHING if _phase(volume) else {"status": {**(volume.get("status") or {}), "phase": "Pending"}}


def _phase(obj: JsonMapping) -> str:
    status = obj.get("status")
    return str(status.get("phase") or "") if isinstance(status, dict) else ""


def _node(node: JsonMapping) -> Mapping[str, Any]:
    """Allocatable defaults to capacity."""
    status = node.get("status")
    if not isinstance(status, dict) or not status.get("capacity") or status.get("allocatable"):
        return _NOTHING
    return {"status": {**status, "allocatable": status["capacity"]}}


def _namespace(namespace: JsonMapping) -> Mapping[str, Any]:
    added: dict[str, Any] = {}
    if not _phase(namespace):
        added["status"] = {**(namespace.get("status") or {}), "phase": "Active"}
    metadata = namespace.get("metadata")
    if isinstance(metadata, dict) and metadata.get("name"):
        labels = metadata.get("labels") or {}
        if labels.get(NAMESPACE_NAME_LABEL) != metadata["name"]:
            added["metadata"] = {**metadata, "labels": {**labels, NAMESPACE_NAME_LABEL: metadata["name"]}}
    return added


def _definition_names(names: JsonMapping) -> Mapping[str, Any]:
    kind = str(names.get("kind") or "")
    added: dict[str, Any] = {}
    if kind and not names.get("singular"):
        added["singular"] = kind.lower()
    if kind and not names.get("listKind"):
        added["listKind"] = f"{kind}List"
    return added


#: By struct of the built-in table.
DEFAULTING_RULES: Final[Mapping[str, DefaultingRule]] = {
    "core.v1.Container": _container,
    "core.v1.EphemeralContainer": _container,
    "core.v1.PodSpec": _pod_spec,
    "core.v1.Pod.spec": _spec_of_pod,
    "core.v1.ImageVolumeSource": _image_volume,
    "core.v1.Volume": _volume,
    "core.v1.ServiceSpec": _service_spec,
    "core.v1.ServicePort": _service_port,
    "core.v1.PersistentVolumeClaim": _pending,
    "core.v1.PersistentVolume": _pending,
    "core.v1.Node": _node,
    "core.v1.Namespace": _namespace,
    "apps.v1.DeploymentStrategy": _rolling_update,
    "apps.v1.StatefulSetUpdateStrategy": _rolling_update,
    "apps.v1.DaemonSetUpdateStrategy": _rolling_update,
    "batch.v1.Job.spec": _job_spec,
    "resource.v1.ExactDeviceRequest": _device_request,
    "resource.v1.DeviceSubRequest": _device_request,
    "apiextensions.v1.CustomResourceDefinitionNames": _definition_names,
}
