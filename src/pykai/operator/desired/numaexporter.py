"""The exporter of NUMA placements: a DaemonSet, and a Service for its metrics.

Statements: operations:O-26, O-31, OD-17, E-16; gpu:X-1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pykai.api.installation import SchedulingShard
from pykai.api.unstructured import JsonObject
from pykai.operator.desired.checking import check_command_line
from pykai.operator.desired.givenflags import given_flags
from pykai.operator.desired.objects import (
    METRICS_PORT,
    account,
    labels_of,
    make_object,
    metrics_service,
    network_policy,
    pod_fields,
)
from pykai.operator.desired.refusals import LeftOut
from pykai.operator.desired.settings import Settings, default, requirements

OPERAND: Final = "NumaPlacementExporter"
NAME: Final = "numa-placement-exporter"
_FIELD: Final = "spec.numaPlacementExporter"
_POD_RESOURCES: Final = "/var/lib/kubelet/pod-resources"
_SYSFS_MOUNT: Final = "/host/sys"
_NODE_SELECTOR: Final = {"feature.node.kubernetes.io/memory-numa": "true"}
_FIELDS: Final = {
    "podresources-socket": "podResourcesSocket",
    "poll-interval": "pollInterval",
    "drift-resync-interval": "driftResyncInterval",
}
_RESOURCES: Final = {
    "requests": {"cpu": "50m", "memory": "128Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}


def is_wanted(settings: Settings, shards: Iterable[SchedulingShard]) -> bool:
    """Whether it runs: as the Config says, or where some shard asks for the plugin `numa`."""
    said = settings.service_of(settings.numa_exporter).enabled
    if said is not None:
        return said
    plugins = [(shard.spec.plugins or {}).get("numa") for shard in shards]
    return any(plugin is not None and plugin.enabled for plugin in plugins)


def check_exporter(settings: Settings) -> None:
    """Raise `Refused` for a command line with which it would not start."""
    check_command_line("numa-exporter", _arguments(settings), "numaPlacementExporter", _FIELDS)


def _folder(settings: Settings) -> str:
    """Where the kubelet's socket is."""
    return default(settings.numa_exporter.pod_resources_host_path, _POD_RESOURCES)


def _arguments(settings: Settings) -> list[str]:
    spec = settings.numa_exporter
    return [
        f"--podresources-socket={default(spec.pod_resources_socket, f'{_folder(settings)}/kubelet.sock')}",
        f"--sysfs-root={_SYSFS_MOUNT}",
        f"--poll-interval={default(spec.poll_interval, '1s')}",
        f"--drift-resync-interval={default(spec.drift_resync_interval, '60s')}",
        f"--metrics-bind-address=:{METRICS_PORT}",
    ]


def numa_objects(settings: Settings) -> tuple[list[JsonObject], list[LeftOut]]:
    """Its account, Service and DaemonSet, and which of its flags are left out; raises `Refused`.

    It reads the kubelet's socket and runs as root.
    """
    spec = settings.numa_exporter
    given = settings.service_of(spec)
    folder, computed = _folder(settings), _arguments(settings)
    flags = given_flags("numa-exporter", given.args, f"{_FIELD}.service.args", title=NAME, computed=computed)
    main: dict[str, Any] = {
        "name": NAME,
        "image": settings.image(given.image),
        "imagePullPolicy": settings.pull_policy(given.image),
        "command": ["kai", "run", "numa-exporter"],
        "args": [*computed, *flags.arguments()],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": dict(requirements(given.resources, _RESOURCES)),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["all"]},
            "readOnlyRootFilesystem": True,
            "runAsUser": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "pod-resources", "mountPath": folder, "readOnly": True},
            {"name": "sysfs", "mountPath": _SYSFS_MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    pod = {
        "serviceAccountName": NAME,
        "containers": [main],
        "volumes": [
            {"name": "pod-resources", "hostPath": {"path": folder, "type": "Directory"}},
            {"name": "sysfs", "hostPath": {"path": default(spec.sysfs_host_path, "/sys"), "type": "Directory"}},
            {"name": "tmp", "emptyDir": {}},
        ],
        **_pod_fields(settings),
    }
    workload = make_object(
        "apps/v1",
        "DaemonSet",
        NAME,
        settings.namespace,
        labels=labels_of(NAME),
        spec={
            "selector": {"matchLabels": {"app": NAME}},
            "template": {"metadata": {"labels": {"app": NAME}}, "spec": pod},
        },
    )
    return [
        account(NAME, settings.namespace),
        metrics_service(NAME, settings),
        workload,
        *network_policy(NAME, settings, (METRICS_PORT,)),
    ], flags.left_out


def _pod_fields(settings: Settings) -> JsonObject:
    spec, everywhere = settings.numa_exporter, settings.everywhere
    fields = pod_fields(settings, settings.service_of(spec).affinity)
    fields.pop("tolerations", None)
    fields["nodeSelector"] = default(spec.node_selector, dict(_NODE_SELECTOR))
    if tolerations := [*(everywhere.daemonsets_tolerations or ()), *(spec.tolerations or ())]:
        fields["tolerations"] = tolerations
    return fields
