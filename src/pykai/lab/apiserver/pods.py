"""Rules for pods: requests, priority, tolerations and phase of new ones, binding, eviction.

A pod's spec is immutable but for images, the deadline, more tolerations and fewer scheduling gates. Only a binding
assigns a node, once.

Defaults that are constants (restartPolicy, dnsPolicy, ...) come from the schema; this module sets those that depend on
other objects or fields.

Statements: apiserver:binding, apiserver:pods, apiserver:priority.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykai.api import names
from pykai.api.keys import split_key
from pykai.api.unstructured import JsonObject
from pykai.kube import errors
from pykai.lab.apiserver import apierrors
from pykai.lab.apiserver.apierrors import StatusCause, forbidden_field
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.metadata import validate_metadata
from pykai.lab.apiserver.selectors import selector_matches
from pykai.lab.apiserver.serverstate import ServerState
from pykai.lab.apiserver.storage import StoredObject

#: classes that every cluster has
_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_TOLERATION_S: Final = 300
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_EVICTION_RETRY_S: Final = 10


def prepare_create(state: ServerState, call: Call, obj: JsonObject) -> JsonObject:
    """Requests, priority, tolerations, service account, phase and quality of service of a new pod."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    spec = dict(spec)
    for field in ("containers", "initContainers"):
        if isinstance(spec.get(field), list):
            spec[field] = [_with_requests(container) for container in spec[field]]
    _resolve_priority(state, call, spec)
    _add_default_tolerations(spec)
    _apply_runtime_class(state, call, spec)
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec.get("serviceAccount") or "default"
    spec["serviceAccount"] = spec["serviceAccountName"]
    status: JsonObject = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": None,
                "lastTransitionTime": state.now(),
            }
        ]
    return {**obj, "spec": spec, "status": status}


def prepare_update(state: ServerState, call: Call, before: JsonObject, obj: JsonObject) -> JsonObject:
    """Keep fields that the server set and the default tolerations."""
    if call.subresource == "status":
        status, old = obj.get("status"), before.get("status") or {}
        if isinstance(status, dict) and "qosClass" not in status and "qosClass" in old:
            obj = {**obj, "status": {**status, "qosClass": old["qosClass"]}}
        return obj
    spec = obj.get("spec") or {}
    if spec.get("tolerations") != (before.get("spec") or {}).get("tolerations"):
        obj = {**obj, "spec": {**spec}}
        _add_default_tolerations(obj["spec"])
    return obj


def validate(state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None) -> list[StatusCause]:
    """Changes that an update of a pod must not make."""
    if before is None or call.subresource == "status":
        return []
    new, old = obj.get("spec") or {}, before.get("spec") or {}
    if new == old:
        return []
    causes = _validate_gates(new.get("schedulingGates"), old.get("schedulingGates"))
    causes += _validate_tolerations(new.get("tolerations"), old.get("tolerations"))
    immutable_spec = {**new}
    for field in ("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"):
        if field in old:
            immutable_spec[field] = old[field]
        else:
            immutable_spec.pop(field, None)
    if old.get("schedulingGates"):
        # Node selector and affinity of a gated pod may still change.
        for field in ("nodeSelector", "affinity"):
            if field in old:
                immutable_spec[field] = old[field]
            else:
                immutable_spec.pop(field, None)
    for field in ("containers", "initContainers"):
        if (
            field in old
            and isinstance(immutable_spec.get(field), list)
            and len(immutable_spec[field]) == len(old[field])
        ):
            immutable_spec[field] = [
                {**container, "image": past.get("image")} if "image" in past else container
                for container, past in zip(immutable_spec[field], old[field], strict=True)
            ]
    if immutable_spec != old:
        changed = sorted(f for f in immutable_spec.keys() | old.keys() if immutable_spec.get(f) != old.get(f))
        text = (
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
            " tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
            f" (changed: {', '.join(changed)})"
        )
        causes.append(forbidden_field("spec", text))
    return causes


def qos_class(spec: Mapping[str, Any]) -> str:
    """Guaranteed if limits equal requests for cpu and memory everywhere, BestEffort if there are neither."""
    has_requests, guaranteed = False, True
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") if isinstance(container, dict) else None
        resources = resources if isinstance(resources, dict) else {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = requests.get(name), limits.get(name)
            if not _is_zero(request) or not _is_zero(limit):
                has_requests = True
            if _is_zero(limit) or request != limit:
                guaranteed = False
    return "BestEffort" if not has_requests else "Guaranteed" if guaranteed else "Burstable"


def bind(state: ServerState, call: Call, binding: Mapping[str, Any]) -> StoredObject:
    """Assign a node to a pod: once, and only to the pod that is meant."""
    kind = call.kind
    record = state.storage.get(kind.store, call.key)
    if record is None:
        raise apierrors.not_found("", "pods", call.name)
    target, binding_metadata = binding.get("target") or {}, binding.get("metadata") or {}
    if not isinstance(target, dict) or not isinstance(binding_metadata, dict):
        raise apierrors.bad_request("target and metadata of a Binding must be objects")
    if binding_metadata.get("name") != call.name:
        raise apierrors.bad_request("name in URL does not match name in Binding object")
    causes = validate_metadata(binding_metadata, {})
    if causes:
        raise apierrors.invalid("", "Binding", call.name, causes)
    node = target.get("name")
    # A real server does not call these errors Invalid either.
    if not node or not isinstance(node, str):
        raise errors.ServerError(500, "", "target.name: Required value")
    if target.get("kind") not in (None, "", "Node"):
        cause = apierrors.unsupported_value("target.kind", target.get("kind"), "Node", "<empty>")
        raise errors.ServerError(500, "", f"{cause.field}: {cause.text}")
    pod = record.object()
    meta, spec = pod["metadata"], pod["spec"]

    def refuse(text: str) -> errors.Conflict:
        return apierrors.conflict("", "pods/binding", call.name, text)

    if binding_metadata.get("uid") and binding_metadata["uid"] != meta["uid"]:
        raise refuse(
            f"Precondition failed: UID in precondition: {binding_metadata['uid']}, UID in object meta: {meta['uid']}"
        )
    if binding_metadata.get("resourceVersion") and binding_metadata["resourceVersion"] != meta["resourceVersion"]:
        raise refuse("the object has been modified; please apply your changes to the latest version and try again")
    if "deletionTimestamp" in meta:
        raise refuse(f"pod {call.name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise refuse(f'pod {call.name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise refuse(f"pod {call.name} has non-empty .spec.schedulingGates")
    status = dict(pod.get("status") or {})
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": state.now(),
    }
    status["conditions"] = [
        *[c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"],
        condition,
    ]
    meta = dict(meta)
    for field in ("annotations", "labels"):
        if binding_metadata.get(field):
            meta[field] = {**(meta.get(field) or {}), **binding_metadata[field]}
    new = {**pod, "metadata": meta, "spec": {**spec, "nodeName": node}, "status": status}
    return record if call.dry_run else state.write(kind, new)


def check_eviction(state: ServerState, pod: StoredObject, *, dry_run: bool = False) -> None:
    """429 if a disruption budget allows no eviction; otherwise decrement what it allows."""
    budgets = state.storage.collection(("policy", "poddisruptionbudgets"))
    begin, end = budgets.namespace_range(pod.namespace)
    status = pod.object().get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed", "Pending"):
        return
    matching_budgets = []
    for key in budgets.keys[begin:end]:
        budget = budgets.records[key].object()
        if selector_matches((budget.get("spec") or {}).get("selector"), pod.labels):
            matching_budgets.append(budget)
    if len(matching_budgets) > 1:
        raise errors.ServerError(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    for budget in matching_budgets:
        allowed, desired_healthy, healthy = _budget_numbers(state, budget, pod.namespace)
        always = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if not _is_ready(pod.object()) and (always or healthy >= desired_healthy > 0):
            # An unready pod does not count as healthy, so evicting it loses nothing.
            continue
        meta = budget["metadata"]
        budget_status = budget.get("status") or {}
        is_outdated = "observedGeneration" in budget_status and int(budget_status["observedGeneration"]) < int(
            meta.get("generation") or 0
        )
        if is_outdated or allowed < 1:
            text = (
                f"The disruption budget {meta['name']} needs {desired_healthy} healthy pods and has {healthy} currently"
            )
            if is_outdated:
                text = f"The disruption budget {meta['name']} is still being processed by the server."
            cause = {"reason": "DisruptionBudget", "message": text}
            raise errors.TooManyRequests(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
                details={"causes": [cause]},
                retry_after_s=_EVICTION_RETRY_S,
            )
        if "observedGeneration" in budget_status and not dry_run:
            disrupted_pods = {**(budget_status.get("disruptedPods") or {}), split_key(pod.key)[1]: state.now()}
            budget_status = {**budget_status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted_pods}
            kind = state.registry.find("policy", "v1", "poddisruptionbudgets")
            if kind is not None:
                state.write(kind, {**budget, "metadata": dict(meta), "status": budget_status})


def _budget_numbers(state: ServerState, budget: JsonObject, namespace: str) -> tuple[int, int, int]:
    """Allowed disruptions, desired healthy pods and current healthy pods of a budget."""
    status, spec = budget.get("status") or {}, budget.get("spec") or {}
    if "observedGeneration" in status:
        return (
            int(status.get("disruptionsAllowed") or 0),
            int(status.get("desiredHealthy") or 0),
            int(status.get("currentHealthy") or 0),
        )
    pods = state.storage.collection(("", "pods"))
    begin, end = pods.namespace_range(namespace)
    members = [
        r.object()
        for key in pods.keys[begin:end]
        if selector_matches(spec.get("selector"), (r := pods.records[key]).labels)
    ]
    healthy = sum(_is_ready(pod) for pod in members)
    if spec.get("maxUnavailable") is not None:
        wanted = len(members) - _scaled_count(spec["maxUnavailable"], len(members))
    else:
        wanted = _scaled_count(spec.get("minAvailable", 1), len(members))
    return healthy - wanted, wanted, healthy


def _scaled_count(value: Any, total: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return -(-int(value[:-1]) * total // 100)
    return int(value)


def _is_ready(pod: JsonObject) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _with_requests(container: Any) -> Any:
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return container
    limits = resources.get("limits")
    if not isinstance(limits, dict) or not limits:
        return container
    requests = resources.get("requests") or {}
    if not isinstance(requests, dict) or limits.keys() <= requests.keys():
        return container
    return {**container, "resources": {**resources, "requests": {**limits, **requests}}}


def _resolve_priority(state: ServerState, call: Call, spec: JsonObject) -> None:
    name = spec.get("priorityClassName") or ""
    classes = state.storage.collection(("scheduling.k8s.io", "priorityclasses")).records
    value, policy = 0, "PreemptLowerPriority"
    if name in _SYSTEM_CLASSES and name not in classes:
        value = _SYSTEM_CLASSES[name]
    elif name:
        found = classes.get(name)
        if found is None:
            raise apierrors.forbidden("", "pods", call.name, f"no PriorityClass with name {name} was found")
        obj = found.object()
        value, policy = obj.get("value", 0), obj.get("preemptionPolicy") or policy
    else:
        for record in classes.values():
            obj = record.object()
            if obj.get("globalDefault") is True:
                spec["priorityClassName"] = record.key
                value, policy = obj.get("value", 0), obj.get("preemptionPolicy") or policy
                break
    given = spec.get("priority")
    if given is not None and given != value:
        raise apierrors.forbidden(
            "",
            "pods",
            call.name,
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission controller"
            f" computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", policy)


def _add_default_tolerations(spec: JsonObject) -> None:
    given = spec.get("tolerations")
    tolerations = list(given) if isinstance(given, list) else []
    for key in (names.NOT_READY_TAINT, _UNREACHABLE):
        if not any(
            isinstance(t, dict) and t.get("key") in (None, "", key) and t.get("effect") in (None, "", "NoExecute")
            for t in tolerations
        ):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_S}
            )
    spec["tolerations"] = tolerations


def _apply_runtime_class(state: ServerState, call: Call, spec: JsonObject) -> None:
    """Add overhead, node selector and tolerations of the pod's runtime class."""

    def refuse(why: str) -> errors.Forbidden:
        return apierrors.forbidden("", "pods", call.name, why)

    runtime_class: JsonObject = {}
    if name := spec.get("runtimeClassName"):
        record = state.storage.collection(("node.k8s.io", "runtimeclasses")).records.get(name)
        if record is None:
            raise refuse(f'pod rejected: RuntimeClass "{name}" not found')
        runtime_class = record.object()
    costs = (runtime_class.get("overhead") or {}).get("podFixed")
    given = spec.get("overhead") or {}
    if given and not costs:
        raise refuse("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if given and given != costs:
        raise refuse("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if costs:
        spec["overhead"] = costs
    scheduling = runtime_class.get("scheduling") or {}
    chosen = spec.get("nodeSelector") or {}
    for label, value in (scheduling.get("nodeSelector") or {}).items():
        if chosen.get(label, value) != value:
            raise refuse(
                f"conflict: runtimeClass.scheduling.nodeSelector[{label}] = {value};"
                f" pod.spec.nodeSelector[{label}] = {chosen[label]}"
            )
        spec["nodeSelector"] = chosen = {**chosen, label: value}
    tolerations = [each for each in scheduling.get("tolerations") or () if each not in spec["tolerations"]]
    spec["tolerations"] = [*spec["tolerations"], *tolerations]


def _validate_gates(new: Any, old: Any) -> list[StatusCause]:
    before = [gate.get("name") for gate in old or ()]
    added = [gate.get("name") for gate in new or () if gate.get("name") not in before]
    if not added:
        return []
    return [
        forbidden_field("spec.schedulingGates", f"only deletion is allowed, but found new scheduling gate '{added[0]}'")
    ]


def _validate_tolerations(new: Any, old: Any) -> list[StatusCause]:
    listed = list(new or ())
    for toleration in old or ():
        same = [t for t in listed if {**t, "tolerationSeconds": 0} == {**toleration, "tolerationSeconds": 0}]
        if not same:
            return [
                forbidden_field(
                    "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
                )
            ]
    return []


def _is_zero(quantity: Any) -> bool:
    return quantity in (None, "", 0, "0")
