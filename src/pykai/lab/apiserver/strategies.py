"""Rules of single kinds for writes: fields that a new object gets, changes that an update may make.

Each kind with rules of its own has an entry in the tables at the end; everything else follows the general rules here:
status belongs to the status subresource, and an update of the main resource leaves it alone.

Statements: apiserver:status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver import crds, pods, resourceclaims, workloads
from pykai.lab.apiserver.apierrors import (
    StatusCause,
    forbidden,
    forbidden_field,
    invalid_value,
    required_value,
    unsupported_value,
)
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.kinds import ResourceKind, StoreKey
from pykai.lab.apiserver.serverstate import ServerState

#: turns a sent object into the stored one; `metadata` is its own dict
PrepareCreate = Callable[[ServerState, Call, JsonObject], JsonObject]
#: the same for an update, with the present object
PrepareUpdate = Callable[[ServerState, Call, JsonObject, JsonObject], JsonObject]
#: problems of an object; the present one is None for a create
StrategyCheck = Callable[[ServerState, Call, JsonObject, JsonObject | None], list[StatusCause]]

#: kinds whose creator may set a status
_KEEP_STATUS: Final = frozenset({("", "nodes"), ("", "services"), ("", "persistentvolumes")})
#: initial status of new objects
_EMPTY_STATUS: Final[Mapping[StoreKey, JsonObject]] = {
    ("apps", "deployments"): {},
    ("apps", "replicasets"): {"replicas": 0},
    ("apps", "statefulsets"): {"availableReplicas": 0, "replicas": 0},
    ("batch", "jobs"): {},
}
#: fields of a volume that are not its source
_NON_SOURCE_VOLUME_FIELDS: Final = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
#: kinds whose status updates may also change labels and annotations
_STATUS_METADATA: Final = frozenset({("", "pods"), ("", "nodes")})


def prepare_create(state: ServerState, call: Call, obj: JsonObject) -> JsonObject:
    """Apply the kind's rules for a new object."""
    kind = call.kind
    if kind.status and kind.store not in _KEEP_STATUS and "status" in obj:
        del obj["status"]
    if kind.store in _EMPTY_STATUS:
        obj = {**obj, "status": _EMPTY_STATUS[kind.store]}
    prepare = _CREATE.get(kind.store)
    return prepare(state, call, obj) if prepare is not None else obj


def prepare_update(state: ServerState, call: Call, before: JsonObject, obj: JsonObject) -> JsonObject:
    """Apply the kind's rules for an update."""
    revise = _UPDATE.get(call.kind.store)
    return revise(state, call, before, obj) if revise is not None else obj


def prepare_delete(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """Apply the kind's rules for an object whose deletion is pending."""
    if kind.store == ("", "namespaces"):
        return {**obj, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}
    return obj


def validate(state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None) -> list[StatusCause]:
    """Problems by the kind's rules."""
    check = _CHECKS.get(call.kind.store)
    return check(state, call, obj, before) if check is not None else []


def restrict(kind: ResourceKind, subresource: str, before: JsonObject, wanted: JsonObject) -> JsonObject:
    """The part of a wanted object that this subresource may write, over the present object."""
    if subresource == "status":
        meta = dict(before["metadata"])
        given = wanted["metadata"]
        passing = ["managedFields", "resourceVersion"]
        if kind.store in _STATUS_METADATA:
            passing += ["labels", "annotations"]
        for field in passing:
            if field in given:
                meta[field] = given[field]
        restricted = {**before, "metadata": meta, "apiVersion": wanted["apiVersion"]}
        if "status" in wanted:
            restricted["status"] = wanted["status"]
        else:
            restricted.pop("status", None)
        return restricted
    if kind.status and subresource == "" and wanted.get("status") is not before.get("status"):
        if "status" in before:
            wanted["status"] = before["status"]
        else:
            wanted.pop("status", None)
    return wanted


def _namespace(state: ServerState, call: Call, obj: JsonObject) -> JsonObject:
    meta = obj["metadata"]
    labels = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}
    return {
        **obj,
        "metadata": {**meta, "labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _namespace_update(state: ServerState, call: Call, before: JsonObject, obj: JsonObject) -> JsonObject:
    if call.subresource != "finalize":
        obj = {**obj, "spec": before.get("spec") or {}}
    return obj


def _node(state: ServerState, call: Call, obj: JsonObject) -> JsonObject:
    """Taint a new node not-ready until the node lifecycle controller sees its Ready condition."""
    spec = obj.get("spec") or {}
    taints = spec.get("taints") or []
    if any(each.get("key") == names.NOT_READY_TAINT and each.get("effect") == "NoSchedule" for each in taints):
        return obj
    closed = {"key": names.NOT_READY_TAINT, "effect": "NoSchedule"}
    return {**obj, "spec": {**spec, "taints": [*taints, closed]}}


def _claim(state: ServerState, call: Call, obj: JsonObject) -> JsonObject:
    return {**obj, "status": {"phase": "Pending"}}


def _volume(state: ServerState, call: Call, obj: JsonObject) -> JsonObject:
    status = {"phase": "Pending", **(obj.get("status") or {})}
    return {**obj, "status": {"lastPhaseTransitionTime": state.now(), **status}}


def _volume_update(state: ServerState, call: Call, before: JsonObject, obj: JsonObject) -> JsonObject:
    status, old = obj.get("status") or {}, before.get("status") or {}
    if call.subresource == "status" and status.get("phase") != old.get("phase"):
        if status.get("lastPhaseTransitionTime") in (None, old.get("lastPhaseTransitionTime")):
            obj = {**obj, "status": {**status, "lastPhaseTransitionTime": state.now()}}
    return obj


def _validate_volume(state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None) -> list[StatusCause]:
    spec = obj.get("spec") or {}
    return [] if spec.keys() - _NON_SOURCE_VOLUME_FIELDS else [required_value("spec", "must specify a volume type")]


def _secret(state: ServerState, call: Call, obj: JsonObject) -> JsonObject:
    texts = obj.pop("stringData", None)
    if isinstance(texts, Mapping) and texts:
        import base64

        coded = {name: base64.b64encode(str(text).encode()).decode() for name, text in texts.items()}
        obj = {**obj, "data": {**(obj.get("data") or {}), **coded}}
    obj.setdefault("type", "Opaque")
    return obj


def _secret_update(state: ServerState, call: Call, before: JsonObject, obj: JsonObject) -> JsonObject:
    return _secret(state, call, dict(obj))


def _validate_immutable_data(
    state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None
) -> list[StatusCause]:
    if before is None or before.get("immutable") is not True:
        return []
    same = all(obj.get(field) == before.get(field) for field in ("data", "binaryData")) and obj.get("immutable") is True
    return [] if same else [forbidden_field("data", "field is immutable when `immutable` is set")]


def _validate_priority_class(
    state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None
) -> list[StatusCause]:
    causes = []
    if before is not None:
        for field in ("value", "preemptionPolicy"):
            if obj.get(field) != before.get(field):
                causes.append(forbidden_field(field, "may not be changed in an update."))
    elif not str(obj["metadata"]["name"]).startswith("system-"):
        value = obj.get("value", 0)
        if isinstance(value, int) and value > 1_000_000_000:
            causes.append(
                invalid_value("value", value, "maximum allowed value of a user defined priority is 1000000000")
            )
    if obj.get("globalDefault") is True:
        for other in state.storage.collection(call.kind.store).records.values():
            if other.key != call.key and other.object().get("globalDefault") is True:
                text = f"PriorityClass {other.key} is already marked as default. Only one default can exist"
                raise forbidden(call.kind.group, call.kind.plural, call.name, text)
    return causes


def _validate_webhooks(state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None) -> list[StatusCause]:
    """Common mistakes in webhooks that a real server refuses."""
    causes = []
    for index, hook in enumerate(obj.get("webhooks") or ()):
        where = f"webhooks[{index}]"
        if hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            causes.append(unsupported_value(f"{where}.sideEffects", hook.get("sideEffects"), "None", "NoneOnDryRun"))
        scheme, separator, _ = str((hook.get("clientConfig") or {}).get("url") or "").partition("://")
        if separator and scheme != "https":
            text = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            causes.append(invalid_value(f"{where}.clientConfig.url", scheme, text))
        for number, rule in enumerate(hook.get("rules") or ()):
            resources = rule.get("resources") or ()
            if "*/*" in resources and len(resources) > 1:
                text = "if '*/*' is present, must not specify other resources"
                causes.append(invalid_value(f"{where}.rules[{number}].resources", list(resources), text))
    return causes


_CREATE: Final[Mapping[StoreKey, PrepareCreate]] = {
    ("", "pods"): pods.prepare_create,
    ("", "namespaces"): _namespace,
    ("", "nodes"): _node,
    ("", "persistentvolumeclaims"): _claim,
    ("", "persistentvolumes"): _volume,
    ("", "secrets"): _secret,
    ("batch", "jobs"): workloads.prepare_job,
    ("apiextensions.k8s.io", "customresourcedefinitions"): crds.prepare_create,
}
_UPDATE: Final[Mapping[StoreKey, PrepareUpdate]] = {
    ("", "namespaces"): _namespace_update,
    ("", "persistentvolumes"): _volume_update,
    ("", "pods"): pods.prepare_update,
    ("", "secrets"): _secret_update,
    ("apiextensions.k8s.io", "customresourcedefinitions"): crds.prepare_update,
}
_CHECKS: Final[Mapping[StoreKey, StrategyCheck]] = {
    ("", "pods"): pods.validate,
    ("", "configmaps"): _validate_immutable_data,
    ("", "persistentvolumes"): _validate_volume,
    ("", "secrets"): _validate_immutable_data,
    ("scheduling.k8s.io", "priorityclasses"): _validate_priority_class,
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _validate_webhooks,
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _validate_webhooks,
    ("batch", "jobs"): workloads.validate_job,
    (names.DRA_GROUP, "resourceclaims"): resourceclaims.validate,
    ("apps", "deployments"): workloads.validate_deployment,
    ("apps", "replicasets"): workloads.validate_selector,
    ("apps", "statefulsets"): workloads.validate_selector,
    ("apiextensions.k8s.io", "customresourcedefinitions"): crds.validate,
}
