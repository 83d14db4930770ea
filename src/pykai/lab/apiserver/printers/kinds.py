"""Columns of built-in kinds in `kubectl get`.

`printer_for` gives the columns of a kind and the function that fills them; pods, nodes and workloads are filled by
`lab.apiserver.printers.workloads`, the others here. `lab.apiserver.printers.tables` makes the Table. Words, order and
empty marks (`<none>`, `<unset>`) match a real server, because people and scripts read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pykai.api.names import DEFAULT_STORAGE_CLASS_ANNOTATION, STORAGE_CLASS_ANNOTATION
from pykai.api.unstructured import JsonMapping
from pykai.lab.apiserver.printers.workloads import (
    NONE,
    UNSET,
    controller_revision_cells,
    cron_job_cells,
    daemon_set_cells,
    deployment_cells,
    disruption_budget_cells,
    format_labels,
    job_cells,
    namespace_cells,
    node_cells,
    object_age,
    pod_cells,
    replica_set_cells,
    spec_of,
    stateful_set_cells,
    status_of,
    time_since,
)


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column; a priority above 0 shows it in wide output only."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def definition(self) -> dict[str, Any]:
        """As a Table lists it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns after the name, and the cells of an object."""

    columns: tuple[PrinterColumn, ...]
    cells: Callable[[JsonMapping, float], list[Any]]
    #: header of the first column; None: the name does not come first
    name: Callable[[JsonMapping], str] | None = lambda item: str(item["metadata"].get("name", ""))


def printer_for(group: str, kind: str) -> Printer | None:
    """The printer of a built-in kind; None if name and age suffice."""
    return _PRINTERS.get((group, kind))


def _service(service: JsonMapping, now: float) -> list[Any]:
    spec = spec_of(service)
    kind = spec.get("type") or "ClusterIP"
    external = ",".join(spec.get("externalIPs") or ()) or NONE
    if kind == "LoadBalancer":
        ingress = (status_of(service).get("loadBalancer") or {}).get("ingress") or ()
        names = [one.get("ip") or one.get("hostname") or "" for one in ingress]
        external = ",".join([*names, *(spec.get("externalIPs") or ())]) or "<pending>"
    elif kind == "ExternalName":
        external = spec.get("externalName") or NONE
    return [
        kind,
        spec.get("clusterIP") or NONE,
        external,
        ",".join(map(_port, spec.get("ports") or ())) or NONE,
        object_age(service, now),
        format_labels(spec.get("selector")),
    ]


def _port(port: JsonMapping) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol') or 'TCP'}"


def _config_map(item: JsonMapping, now: float) -> list[Any]:
    return [len(item.get("data") or ()) + len(item.get("binaryData") or ()), object_age(item, now)]


def _secret(item: JsonMapping, now: float) -> list[Any]:
    return [item.get("type") or "", len(item.get("data") or ()), object_age(item, now)]


def _service_account(item: JsonMapping, now: float) -> list[Any]:
    return [len(item.get("secrets") or ()), object_age(item, now)]


def _event(event: JsonMapping, now: float) -> list[Any]:
    about = event.get("involvedObject") or event.get("regarding") or {}
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or first
    source = event.get("source") or event.get("deprecatedSource") or {}
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return [
        time_since(last, now),
        event.get("type") or "",
        event.get("reason") or "",
        f"{str(about.get('kind') or '').lower()}/{about.get('name') or ''}",
        about.get("fieldPath") or "",
        f"{component}, {host}" if component and host else component or host,
        (event.get("message") or event.get("note") or "").strip(),
        time_since(first, now),
        series.get("count") or event.get("count") or event.get("deprecatedCount") or 1,
        event["metadata"].get("name", ""),
    ]


def _lease(item: JsonMapping, now: float) -> list[Any]:
    return [spec_of(item).get("holderIdentity") or "", object_age(item, now)]


def _runtime_class(item: JsonMapping, now: float) -> list[Any]:
    return [item.get("handler") or "", object_age(item, now)]


def _priority_class(item: JsonMapping, now: float) -> list[Any]:
    policy = item.get("preemptionPolicy") or ""
    return [item.get("value") or 0, bool(item.get("globalDefault")), object_age(item, now), policy]


_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _access_modes(modes: Iterable[str] | None) -> str:
    given = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)


def _claim(item: JsonMapping, now: float) -> list[Any]:
    spec, status = spec_of(item), status_of(item)
    bound = bool(spec.get("volumeName"))
    phase = "Terminating" if item["metadata"].get("deletionTimestamp") else status.get("phase") or ""
    return [
        phase,
        spec.get("volumeName") or "",
        str((status.get("capacity") or {}).get("storage", "")) if bound else "",
        _access_modes(status.get("accessModes")) if bound else "",
        _storage_class_of(item),
        spec.get("volumeAttributesClassName") or UNSET,
        object_age(item, now),
        spec.get("volumeMode") or UNSET,
    ]


def _storage_class_of(item: JsonMapping) -> str:
    annotations = item["metadata"].get("annotations") or {}
    return str(annotations.get(STORAGE_CLASS_ANNOTATION) or spec_of(item).get("storageClassName") or "")


def _volume(item: JsonMapping, now: float) -> list[Any]:
    spec, status = spec_of(item), status_of(item)
    claim = spec.get("claimRef")
    phase = "Terminating" if item["metadata"].get("deletionTimestamp") else status.get("phase") or ""
    return [
        str((spec.get("capacity") or {}).get("storage", "")),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        phase,
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        _storage_class_of(item),
        spec.get("volumeAttributesClassName") or UNSET,
        status.get("reason") or "",
        object_age(item, now),
        spec.get("volumeMode") or UNSET,
    ]


def _storage_class_name(item: JsonMapping) -> str:
    metadata = item["metadata"]
    default = (metadata.get("annotations") or {}).get(DEFAULT_STORAGE_CLASS_ANNOTATION) == "true"
    return f"{metadata.get('name', '')} (default)" if default else str(metadata.get("name", ""))


def _storage_class(item: JsonMapping, now: float) -> list[Any]:
    return [
        item.get("provisioner") or "",
        item.get("reclaimPolicy") or "Delete",
        item.get("volumeBindingMode") or "Immediate",
        bool(item.get("allowVolumeExpansion")),
        object_age(item, now),
    ]


def _csi_driver(item: JsonMapping, now: float) -> list[Any]:
    spec = spec_of(item)
    requests = [one.get("audience", "") for one in spec.get("tokenRequests") or ()]
    return [
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        ",".join(requests) or UNSET,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        object_age(item, now),
    ]


def _resource_claim(item: JsonMapping, now: float) -> list[Any]:
    status = status_of(item)
    words = [
        *(["deleted"] if item["metadata"].get("deletionTimestamp") else []),
        *(["allocated"] if status.get("allocation") else []),
        *(["reserved"] if status.get("reservedFor") else []),
    ]
    return [",".join(words) or "pending", object_age(item, now)]


def _resource_slice(item: JsonMapping, now: float) -> list[Any]:
    spec = spec_of(item)
    node = spec.get("nodeName") or (UNSET if not spec.get("allNodes") else "<all>")
    return [node, spec.get("driver") or "", (spec.get("pool") or {}).get("name") or "", object_age(item, now)]


def _webhooks(item: JsonMapping, now: float) -> list[Any]:
    return [len(item.get("webhooks") or ()), object_age(item, now)]


def _definition(item: JsonMapping, now: float) -> list[Any]:
    return [item["metadata"].get("creationTimestamp") or ""]


def _binding(item: JsonMapping, now: float) -> list[Any]:
    role = item.get("roleRef") or {}
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in item.get("subjects") or ():
        name = subject.get("name", "")
        full = f"{subject.get('namespace', '')}/{name}" if subject.get("kind") == "ServiceAccount" else name
        by_kind.setdefault(str(subject.get("kind")), []).append(full)
    shown = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [f"{role.get('kind')}/{role.get('name')}", object_age(item, now), *shown]


def _printer(columns: str, cells: Callable[[JsonMapping, float], list[Any]]) -> Printer:
    """Columns from a line `Ready, Status, Restarts, Age, IP+`; a plus marks wide ones, a hash whole numbers."""
    printer_columns = []
    for word in columns.split(", "):
        name = word.rstrip("+#!")
        kind = "integer" if "#" in word else "boolean" if "!" in word else "string"
        printer_columns.append(PrinterColumn(name, type=kind, priority=1 if "+" in word else 0))
    return Printer(tuple(printer_columns), cells)


_WORKLOAD: Final = "Containers+, Images+, Selector+"

_PRINTERS: Final[Mapping[tuple[str, str], Printer]] = {
    ("", "Pod"): _printer("Ready, Status, Restarts, Age, IP+, Node+, Nominated Node+, Readiness Gates+", pod_cells),
    ("", "Node"): _printer(
        "Status, Roles, Age, Version, Internal-IP+, External-IP+, OS-Image+, Kernel-Version+, Container-Runtime+",
        node_cells,
    ),
    ("", "Namespace"): _printer("Status, Age", namespace_cells),
    ("", "Service"): _printer("Type, Cluster-IP, External-IP, Port(s), Age, Selector+", _service),
    ("", "ConfigMap"): _printer("Data#, Age", _config_map),
    ("", "Secret"): _printer("Type, Data#, Age", _secret),
    ("", "ServiceAccount"): _printer("Secrets#, Age", _service_account),
    ("", "PersistentVolumeClaim"): _printer(
        "Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, VolumeMode+", _claim
    ),
    ("", "PersistentVolume"): _printer(
        "Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, Reason, Age, "
        "VolumeMode+",
        _volume,
    ),
    **{
        (group, "Event"): replace(
            _printer(
                "Last Seen, Type, Reason, Object, Subobject+, Source+, Message, First Seen+, Count#+, Name+", _event
            ),
            name=None,
        )
        for group in ("", "events.k8s.io")
    },
    ("batch", "Job"): _printer(f"Status, Completions, Duration, Age, {_WORKLOAD}", job_cells),
    ("batch", "CronJob"): _printer(
        f"Schedule, Timezone, Suspend, Active#, Last Schedule, Age, {_WORKLOAD}", cron_job_cells
    ),
    ("apps", "Deployment"): _printer(f"Ready, Up-to-date#, Available#, Age, {_WORKLOAD}", deployment_cells),
    ("apps", "ReplicaSet"): _printer(f"Desired#, Current#, Ready#, Age, {_WORKLOAD}", replica_set_cells),
    ("apps", "StatefulSet"): _printer("Ready, Age, Containers+, Images+", stateful_set_cells),
    ("apps", "DaemonSet"): _printer(
        f"Desired#, Current#, Ready#, Up-to-date#, Available#, Node Selector, Age, {_WORKLOAD}", daemon_set_cells
    ),
    ("apps", "ControllerRevision"): _printer("Controller, Revision#, Age", controller_revision_cells),
    ("coordination.k8s.io", "Lease"): _printer("Holder, Age", _lease),
    ("node.k8s.io", "RuntimeClass"): _printer("Handler, Age", _runtime_class),
    ("scheduling.k8s.io", "PriorityClass"): _printer("Value#, Global-Default!, Age, PreemptionPolicy", _priority_class),
    ("policy", "PodDisruptionBudget"): _printer(
        "Min Available, Max Unavailable, Allowed Disruptions#, Age", disruption_budget_cells
    ),
    ("storage.k8s.io", "StorageClass"): replace(
        _printer("Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion!, Age", _storage_class),
        name=_storage_class_name,
    ),
    ("storage.k8s.io", "CSINode"): _printer(
        "Drivers#, Age", lambda item, now: [len(spec_of(item).get("drivers") or ()), object_age(item, now)]
    ),
    ("storage.k8s.io", "CSIDriver"): _printer(
        "AttachRequired!, PodInfoOnMount!, StorageCapacity!, TokenRequests, RequiresRepublish!, Modes, Age", _csi_driver
    ),
    ("resource.k8s.io", "ResourceClaim"): _printer("State, Age", _resource_claim),
    ("resource.k8s.io", "ResourceSlice"): _printer("Node, Driver, Pool, Age", _resource_slice),
    **{
        ("admissionregistration.k8s.io", f"{kind}WebhookConfiguration"): _printer("Webhooks#, Age", _webhooks)
        for kind in ("Mutating", "Validating")
    },
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _printer("Created At", _definition),
    **{
        ("rbac.authorization.k8s.io", kind): _printer("Role, Age, Users+, Groups+, ServiceAccounts+", _binding)
        for kind in ("RoleBinding", "ClusterRoleBinding")
    },
}
