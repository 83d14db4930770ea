"""The cluster in a file: written by `/get-snapshot`, read by `kai replay` (cycle:PRC-3).

The file is a zip with one `snapshot.json`, shaped as upstream's, so that the tools of both read the files of both.  It
holds the configuration, the flags that affect decisions, and every object the engine reads, pruned to the fields it
reads; ConfigMaps are there by name only.  The key `pykai` holds the time of the snapshot and other data that upstream's
files lack; for a file without them the newest time in any of its objects counts as the present.

A file may come from anywhere, so it is checked before it is unpacked: one that is encrypted, packed in an unusual way,
or that would unpack to more than any cluster needs is refused.

Subtle: files of Go programs say `null` for empty lists and maps, and their keys in `partitionParams` are capitalised.

Statements: kai:replay.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from pykai.api.core import ConfigMap, Namespace, Node, Pod, PriorityClass
from pykai.api.decode import DecodeError, WireObject, decode_list
from pykai.api.disruption import PodDisruptionBudget
from pykai.api.meta import ObjectMeta, Wire
from pykai.api.numa import NodeResourceTopology
from pykai.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from pykai.api.scheduling import BindRequest, PodGroup, Queue
from pykai.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.api.topology import Topology
from pykai.core.cluster.tables import Tables
from pykai.core.policy import Policy
from pykai.core.report.decisions import FreeRoomOnly, ResourceAmounts
from pykai.scheduler.config.configuration import Configuration, read_configuration
from pykai.scheduler.flags import Flags, read_flags

SNAPSHOT_ENTRY = "snapshot.json"
#: bytes of the file, and of what it unpacks to; 100,000 pods are some 400 MB
MAX_PACKED_BYTES = 256 << 20
_MAX_BYTES = 1 << 30
#: a file with one entry has others at most by accident; its directory takes some 50 bytes each
_MAX_ENTRIES = 100
_MAX_DIRECTORY_BYTES = 64 << 10
#: clusters of equal pods shrink to a fiftieth; above this many bytes, a file that shrinks further is no cluster
_MAX_RATIO, _RATIO_FROM = 400, 64 << 20

#: Key of `rawObjects` -> type; the last three are ours.
OBJECT_LISTS: Mapping[str, type[Wire]] = {
    "pods": Pod,
    "nodes": Node,
    "queues": Queue,
    "podGroups": PodGroup,
    "bindRequests": BindRequest,
    "priorityClasses": PriorityClass,
    "configMaps": ConfigMap,
    "persistentVolumes": PersistentVolume,
    "persistentVolumeClaims": PersistentVolumeClaim,
    "csiStorageCapacities": CSIStorageCapacity,
    "storageClasses": StorageClass,
    "csiDrivers": CSIDriver,
    "resourceClaims": ResourceClaim,
    "resourceSlices": ResourceSlice,
    "deviceClasses": DeviceClass,
    "topologies": Topology,
    "nodeResourceTopologies": NodeResourceTopology,
    "namespaces": Namespace,
    "csiNodes": CSINode,
    "podDisruptionBudgets": PodDisruptionBudget,
}

#: Key of `schedulerParams` -> flag; durations are nanoseconds in the file.
_FLAGS_BY_PARAM: Mapping[str, str] = {
    "schedulerName": "scheduler-name",
    "restrictSchedulingNodes": "restrict-node-scheduling",
    "maxNumberConsolidationPreemptees": "max-consolidation-preemptees",
    "scheduleCSIStorage": "schedule-csi-storage",
    "useSchedulingSignatures": "use-scheduling-signatures",
    "fullHierarchyFairness": "full-hierarchy-fairness",
    "allowConsolidatingReclaim": "allow-consolidating-reclaim",
    "numOfStatusRecordingWorkers": "num-of-status-recording-workers",
    "globalDefaultStalenessGracePeriod": "default-staleness-grace-period",
    "schedulePeriod": "schedule-period",
    "stuckInReleasingThreshold": "stuck-in-releasing-threshold",
    "detailedFitErrors": "detailed-fit-errors",
    "updatePodEvictionCondition": "update-pod-eviction-condition",
    "queueLabelKey": "queue-label-key",
}
_DURATIONS = frozenset(("default-staleness-grace-period", "schedule-period", "stuck-in-releasing-threshold"))
#: Flags that upstream's file lacks.
_OUR_FLAGS = (
    "profile",
    "honour-preemption-policy",
    "resource-reservation-app-label",
    "resource-reservation-namespace",
    "cpu-worker-node-label-key",
    "gpu-worker-node-label-key",
    "mig-worker-node-label-key",
    "queue-admission-gating",
    "queue-admission-reservation-timeout",
)


class SnapshotError(ValueError):
    """The file cannot be used; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class RecordedCluster:
    """A cluster read from a file."""

    objects: list[WireObject]
    flags: Flags
    configuration: Configuration
    now_ns: int
    #: objects that could not be read
    unreadable: list[DecodeError] = field(default_factory=list)
    #: groups that may use free resources only
    free_room_only: dict[str, FreeRoomOnly] = field(default_factory=dict)
    #: the groups to start with (`Policy.resume`)
    resume: dict[str, str] = field(default_factory=dict)
    #: pipelined groups (`Policy.nominated_groups`)
    nominated_groups: frozenset[str] = frozenset()
    #: historical usage (`Policy.usage`)
    usage: dict[str, ResourceAmounts] = field(default_factory=dict)
    #: groups to serve before all others (`Policy.served_first`)
    served_first: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        """The policy of its scheduler."""
        return replace(
            self.flags.apply_to(self.configuration.policy),
            resume=self.resume,
            nominated_groups=self.nominated_groups,
            usage=self.usage,
            served_first=self.served_first,
        )

    def tables(self) -> Tables:
        """The model of the cluster."""
        tables = Tables(self.flags.shard, self.objects)
        for key, why in self.free_room_only.items():
            tables.set_free_room_only(key, why)
        return tables


def snapshot_zip(
    objects: Iterable[WireObject],
    flags: Flags,
    configuration: Mapping[str, Any],
    now_ns: int,
    server_version: Mapping[str, Any] | None = None,
    free_room_only: Mapping[str, FreeRoomOnly] | None = None,
    resume: Mapping[str, str] | None = None,
    nominated_groups: Iterable[str] = (),
    usage: Mapping[str, ResourceAmounts] | None = None,
    served_first: Sequence[str] = (),
) -> bytes:
    """The file for a cluster; `resume`, `nominated_groups`, `usage` and `served_first` are those of its `Policy`."""
    kinds = {kind: key for key, kind in OBJECT_LISTS.items()}
    lists: dict[str, list[WireObject]] = {key: [] for key in OBJECT_LISTS}
    for item in objects:
        lists[kinds[type(item)]].append(_without_content(item) if isinstance(item, ConfigMap) else item)
    values = _flag_values(flags)
    content = {
        "config": configuration,
        "schedulerParams": {
            **{key: values[flag] for key, flag in _FLAGS_BY_PARAM.items()},
            "partitionParams": {
                "NodePoolLabelKey": flags.shard.node_pool_key,
                "NodePoolLabelValue": flags.shard.node_pool,
            },
        },
        "rawObjects": lists,
        "discovery": {"serverVersion": dict(server_version or {}), "resources": []},
        "pykai": {
            "nowNs": now_ns,
            "flags": {name: values[name] for name in _OUR_FLAGS},
            "freeRoomOnly": dict(free_room_only or {}),
            **({"resume": dict(resume)} if resume else {}),
            **({"promised": sorted(nominated_groups)} if nominated_groups else {}),
            **({"usage": dict(usage)} if usage else {}),
            **({"servedFirst": list(served_first)} if served_first else {}),
        },
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        archive.writestr(SNAPSHOT_ENTRY, msgspec.json.encode(content))
    return packed.getvalue()


def _without_content(config_map: ConfigMap) -> ConfigMap:
    """The existence of a ConfigMap; `kubectl apply` leaves its content in an annotation."""
    meta = config_map.metadata
    return ConfigMap(
        metadata=ObjectMeta(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, creation_timestamp=meta.creation_timestamp
        )
    )


def _flag_values(flags: Flags) -> dict[str, Any]:
    shard = flags.shard
    return {
        **flags.other,
        "scheduler-name": shard.scheduler_name,
        "restrict-node-scheduling": shard.restrict_nodes,
        "max-consolidation-preemptees": flags.max_consolidation_preemptees,
        "use-scheduling-signatures": flags.use_scheduling_signatures,
        "full-hierarchy-fairness": shard.full_hierarchy,
        "allow-consolidating-reclaim": flags.allow_consolidating_reclaim,
        "default-staleness-grace-period": flags.staleness_grace_ns,
        "stuck-in-releasing-threshold": shard.stuck_after_ns,
        "detailed-fit-errors": flags.detailed_fit_errors,
        "queue-label-key": shard.queue_label,
        "profile": flags.profile,
        "honour-preemption-policy": flags.honour_preemption_policy,
        "resource-reservation-app-label": shard.reservation_app,
        "resource-reservation-namespace": shard.reservation_namespace,
        "cpu-worker-node-label-key": shard.cpu_worker_label,
        "gpu-worker-node-label-key": shard.gpu_worker_label,
        "mig-worker-node-label-key": shard.mig_label,
        "queue-admission-gating": flags.admission_gating,
        "queue-admission-reservation-timeout": f"{flags.admission_reservation_ns}ns",
    }


def _read_resume(value: object) -> dict[str, str]:
    items = value.items() if isinstance(value, dict) else ()
    return {key: name for key, name in items if isinstance(key, str) and isinstance(name, str)}


def _read_names(value: object) -> tuple[str, ...]:
    return tuple(key for key in value if isinstance(key, str)) if isinstance(value, list) else ()


class _SnapshotDocument(msgspec.Struct, rename="camel"):
    config: dict[str, Any] | None = None
    scheduler_params: dict[str, Any] | None = None
    raw_objects: dict[str, list[msgspec.Raw] | None] | None = None
    pykai: dict[str, Any] | None = None


def read_snapshot(data: bytes) -> RecordedCluster:
    """The cluster in a file; raises SnapshotError."""
    text = _unpack(data)
    try:
        document = msgspec.json.decode(text, type=_SnapshotDocument)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"{SNAPSHOT_ENTRY}: {error}") from None
    objects: list[WireObject] = []
    unreadable: list[DecodeError] = []
    for key, kind in OBJECT_LISTS.items():
        items, problems = decode_list(kind, (document.raw_objects or {}).get(key) or ())
        # The kinds of the table are all objects; `Wire`, the base of nested types too, does not say so.
        objects += items  # type: ignore[arg-type]
        unreadable += problems
    own_section = document.pykai or {}
    own_flags = own_section.get("flags")
    flags = _read_flags(document.scheduler_params or {}, own_flags if isinstance(own_flags, dict) else {})
    config = {key: value for key, value in (document.config or {}).items() if value is not None}
    now_ns = own_section.get("nowNs")
    return RecordedCluster(
        objects,
        flags,
        read_configuration(config, flags.profile),
        now_ns if isinstance(now_ns, int) and 0 <= now_ns < 1 << 63 else newest_timestamp_ns(objects),
        unreadable,
        _read_free_room_only(own_section.get("freeRoomOnly")),
        _read_resume(own_section.get("resume")),
        frozenset(_read_names(own_section.get("promised"))),
        _read_usage(own_section.get("usage")),
        _read_names(own_section.get("servedFirst")),
    )


def _read_free_room_only(given: object) -> dict[str, FreeRoomOnly]:
    try:
        return msgspec.convert(given or {}, dict[str, FreeRoomOnly])
    except msgspec.ValidationError as error:
        raise SnapshotError(f"{SNAPSHOT_ENTRY}: pykai.freeRoomOnly: {error}") from None


def _read_usage(given: object) -> dict[str, ResourceAmounts]:
    try:
        return msgspec.convert(given or {}, dict[str, ResourceAmounts])
    except msgspec.ValidationError as error:
        raise SnapshotError(f"{SNAPSHOT_ENTRY}: pykai.usage: {error}") from None


def _unpack(data: bytes) -> bytes:
    """The one entry that counts; raises SnapshotError for an archive that should not be unpacked."""
    if len(data) > MAX_PACKED_BYTES:
        raise SnapshotError(f"the file has more than {MAX_PACKED_BYTES >> 20} MiB, which no snapshot has")
    _check_directory(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > _MAX_ENTRIES:
                raise SnapshotError(f"the zip file has {len(entries)} entries; expected {SNAPSHOT_ENTRY}")
            snapshot_entry = archive.getinfo(SNAPSHOT_ENTRY)
            if snapshot_entry.flag_bits & 1:
                raise SnapshotError(
                    f"{SNAPSHOT_ENTRY} is encrypted; unpack the file and pack it again without a password"
                )
            if snapshot_entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise SnapshotError(
                    f"{SNAPSHOT_ENTRY} is packed by method {snapshot_entry.compress_type}; expected deflate"
                )
            size, packed = sum(entry.file_size for entry in entries), snapshot_entry.compress_size
            if size > _MAX_BYTES:
                raise SnapshotError(f"the zip file unpacks to {size} bytes; no snapshot has more than {_MAX_BYTES}")
            if size > _RATIO_FROM and size > _MAX_RATIO * max(1, packed):
                raise SnapshotError(f"{SNAPSHOT_ENTRY} unpacks {packed} bytes to {size}: no cluster is that regular")
            return archive.read(snapshot_entry)
    except KeyError:
        raise SnapshotError(f"the zip file holds no {SNAPSHOT_ENTRY}") from None
    except zipfile.BadZipFile as error:
        raise SnapshotError(f"not a zip file: {error}") from None
    except SnapshotError:
        raise
    except (zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        raise SnapshotError(f"the zip file cannot be unpacked: {error}") from None


def _check_directory(data: bytes) -> None:
    """Refuse an archive whose directory alone would fill the memory, before it is read."""
    at = data.rfind(b"PK\x05\x06", max(0, len(data) - (1 << 16) - 22))
    if at < 0 or len(data) < at + 22:
        raise SnapshotError("not a zip file: it has no directory")
    (size,) = struct.unpack_from("<I", data, at + 12)
    if size > _MAX_DIRECTORY_BYTES or data[max(0, at - 20) : at][:4] == b"PK\x06\x07":
        raise SnapshotError(
            f"the zip file has a directory for more than {_MAX_ENTRIES} entries; expected {SNAPSHOT_ENTRY}"
        )


def _read_flags(params: Mapping[str, Any], own_flags: Mapping[str, Any]) -> Flags:
    given: dict[str, object] = {}
    for key, flag in _FLAGS_BY_PARAM.items():
        value = params.get(key)
        if value is not None and value != "":
            given[flag] = f"{value}ns" if flag in _DURATIONS and isinstance(value, int) else value
    partition = params.get("partitionParams")
    if isinstance(partition, dict):
        for key, flag in (("NodePoolLabelKey", "nodepool-label-key"), ("NodePoolLabelValue", "partition-label-value")):
            value = partition.get(key, partition.get(key[0].lower() + key[1:]))
            if value is not None:
                given[flag] = value
    given |= {name: own_flags[name] for name in _OUR_FLAGS if name in own_flags}
    return read_flags(given)


def newest_timestamp_ns(objects: Iterable[Any]) -> int:
    """The newest time in any of the objects; the beginning of time if there is none."""
    newest = 0
    for item in objects:
        timestamps = [item.metadata.creation_timestamp]
        for condition in getattr(getattr(item, "status", None), "conditions", None) or ():
            timestamps.append(condition.last_transition_time)
        for timestamp in timestamps:
            if timestamp:
                try:
                    newest = max(newest, parse_timestamp(timestamp))
                except TimestampError:
                    continue
    return newest
