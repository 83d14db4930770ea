"""Cells of pods, nodes and workloads in the tables that `kubectl get` prints.

Each function turns an object and the time (seconds since the epoch) into the cells after the name. The status of a pod
sums up phase, reasons of containers and init containers, and deletion.

Statements: apiserver:printing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykai.api.names import NODE_ROLE_LABEL, NODE_ROLE_LABEL_PREFIX
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.api.unstructured import JsonMapping

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
UNSET: Final = "<unset>"


def human_duration(seconds: float) -> str:
    """A readable duration: `90s`, `5m12s`, `3h10m`, `12d`."""
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    total = int(seconds)
    if total < 120:
        return f"{total}s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return f"{days // 365}y{days % 365}d" if days % 365 else f"{days // 365}y"
    return f"{days // 365}y"


def time_since(text: Any, now: float) -> str:
    """How long ago a timestamp is."""
    moment = _timestamp_s(text)
    return UNKNOWN if moment is None else human_duration(now - moment)


def object_age(item: JsonMapping, now: float) -> str:
    """How old an object is."""
    return time_since(item["metadata"].get("creationTimestamp"), now)


def _timestamp_s(text: Any) -> float | None:
    if not isinstance(text, str) or not text:
        return None
    try:
        return parse_timestamp(text) / 1e9
    except TimestampError:
        return None


def spec_of(item: JsonMapping) -> JsonMapping:
    """The spec, empty when there is none."""
    return item.get("spec") or {}


def status_of(item: JsonMapping) -> JsonMapping:
    """The status, empty when there is none."""
    return item.get("status") or {}


def _is_true(item: JsonMapping, condition: str) -> bool:
    return _condition(item, condition).get("status") == "True"


def _condition(item: JsonMapping, kind: str) -> JsonMapping:
    for condition in status_of(item).get("conditions") or ():
        if condition.get("type") == kind:
            found: JsonMapping = condition
            return found
    return {}


def pod_cells(pod: JsonMapping, now: float) -> list[Any]:
    """The cells of a pod."""
    spec, status = spec_of(pod), status_of(pod)
    ready, restarts, last = _container_counts(pod)
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    total = len(spec.get("containers") or ()) + len(sidecars)
    restarted = f"{restarts} ({human_duration(now - last)} ago)" if restarts and last is not None else str(restarts)
    addresses = status.get("podIPs") or ()
    gates = spec.get("readinessGates") or ()
    passed = sum(_is_true(pod, gate.get("conditionType", "")) for gate in gates)
    return [
        f"{ready}/{total}",
        pod_status(pod),
        restarted,
        object_age(pod, now),
        (addresses[0].get("ip") if addresses else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _container_counts(pod: JsonMapping) -> tuple[int, int, float | None]:
    """Ready containers, restarts, and when the last restart was; sidecars count as containers."""
    status = status_of(pod)
    sidecars = {one["name"] for one in spec_of(pod).get("initContainers") or () if one.get("restartPolicy") == "Always"}
    inits = status.get("initContainerStatuses") or ()
    counted = [*(status.get("containerStatuses") or ()), *(one for one in inits if one.get("name") in sidecars)]
    initializing = _initializing(pod)
    ready = 0
    restarts = 0
    last: float | None = None
    for one in inits if initializing is not None else counted:
        restarts += one.get("restartCount") or 0
        finished = _timestamp_s(((one.get("lastState") or {}).get("terminated") or {}).get("finishedAt"))
        if finished is not None and (last is None or finished > last):
            last = finished
    for one in counted:
        if one.get("ready") and "running" in (one.get("state") or {}):
            ready += 1
    return ready, restarts, last


def _initializing(pod: JsonMapping) -> str | None:
    """The status while init containers run; None when they are done."""
    inits = spec_of(pod).get("initContainers") or ()
    sidecars = {one["name"] for one in inits if one.get("restartPolicy") == "Always"}
    for place, one in enumerate(status_of(pod).get("initContainerStatuses") or ()):
        state = one.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if one.get("name") in sidecars and one.get("started"):
            continue
        if terminated is not None:
            return "Init:" + _termination_reason(terminated)
        if waiting is not None and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{place}/{len(inits)}"
    return None


def _termination_reason(terminated: JsonMapping) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def pod_status(pod: JsonMapping) -> str:
    """The word in the STATUS column of a pod."""
    status = status_of(pod)
    status_text = str(status.get("reason") or status.get("phase") or "Unknown")
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("reason") == "SchedulingGated":
        status_text = "SchedulingGated"
    initializing = _initializing(pod)
    if initializing is not None and not _is_true(pod, "Initialized"):
        status_text = initializing
    else:
        running = False
        for one in reversed(status.get("containerStatuses") or ()):
            state = one.get("state") or {}
            if (state.get("waiting") or {}).get("reason"):
                status_text = str(state["waiting"]["reason"])
            elif state.get("terminated") is not None:
                status_text = _termination_reason(state["terminated"])
            elif one.get("ready") and "running" in state:
                running = True
        if status_text == "Completed" and running:
            status_text = "Running" if _is_true(pod, "Ready") else "NotReady"
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return status_text


def node_cells(node: JsonMapping, now: float) -> list[Any]:
    """The cells of a node."""
    status = status_of(node)
    ready = _condition(node, "Ready")
    status_texts = [
        {"True": "Ready", "False": "NotReady"}.get(str(ready.get("status")), "NotReady") if ready else "Unknown"
    ]
    if spec_of(node).get("unschedulable"):
        status_texts.append("SchedulingDisabled")
    labels = node["metadata"].get("labels") or {}
    prefix = NODE_ROLE_LABEL_PREFIX
    roles = sorted(
        [name.removeprefix(prefix) for name in labels if name.startswith(prefix) and name != prefix]
        + [value for name, value in labels.items() if name == NODE_ROLE_LABEL and value]
    )
    info = status.get("nodeInfo") or {}
    addresses = {one.get("type"): one.get("address") for one in reversed(status.get("addresses") or ())}
    return [
        ",".join(status_texts),
        ",".join(roles) or NONE,
        object_age(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def namespace_cells(namespace: JsonMapping, now: float) -> list[Any]:
    """The cells of a namespace."""
    return [status_of(namespace).get("phase", ""), object_age(namespace, now)]


def _containers(spec: JsonMapping) -> tuple[str, str]:
    """Names and images of a pod's containers."""
    containers = spec.get("containers") or ()
    return ",".join(one.get("name", "") for one in containers), ",".join(one.get("image", "") for one in containers)


def _pod_template_spec(item: JsonMapping) -> JsonMapping:
    return (spec_of(item).get("template") or {}).get("spec") or {}


def format_selector(selector: Any) -> str:
    """A label selector in one line."""
    if not isinstance(selector, Mapping) or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        return NONE
    parts = [f"{name}={value}" for name, value in sorted((selector.get("matchLabels") or {}).items())]
    for one in selector.get("matchExpressions") or ():
        key, values = one.get("key"), ",".join(sorted(one.get("values") or ()))
        parts.append(
            {"Exists": f"{key}", "DoesNotExist": f"!{key}", "NotIn": f"{key} notin ({values})"}.get(
                str(one.get("operator")), f"{key} in ({values})"
            )
        )
    return ",".join(parts)


def job_cells(job: JsonMapping, now: float) -> list[Any]:
    """The cells of a job."""
    spec, status = spec_of(job), status_of(job)
    succeeded = status.get("succeeded") or 0
    parallelism = spec.get("parallelism") or 0
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    start, end = _timestamp_s(status.get("startTime")), _timestamp_s(status.get("completionTime"))
    duration = "" if start is None else human_duration((now if end is None else end) - start)
    return [
        _job_status(job),
        completions,
        duration,
        object_age(job, now),
        *_containers(_pod_template_spec(job)),
        format_selector(spec.get("selector")),
    ]


def _job_status(job: JsonMapping) -> str:
    if _is_true(job, "Complete"):
        return "Complete"
    if _is_true(job, "Failed"):
        return "Failed"
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if _is_true(job, condition):
            return condition
    return "Running"


def cron_job_cells(job: JsonMapping, now: float) -> list[Any]:
    """The cells of a cron job."""
    spec, status = spec_of(job), status_of(job)
    inner = (spec.get("jobTemplate") or {}).get("spec") or {}
    last = status.get("lastScheduleTime")
    return [
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        format_optional_bool(spec.get("suspend")),
        len(status.get("active") or ()),
        time_since(last, now) if last else NONE,
        object_age(job, now),
        *_containers((inner.get("template") or {}).get("spec") or {}),
        format_selector(inner.get("selector")),
    ]


def deployment_cells(deployment: JsonMapping, now: float) -> list[Any]:
    """The cells of a deployment."""
    status = status_of(deployment)
    return [
        f"{status.get('readyReplicas') or 0}/{_replicas(deployment)}",
        status.get("updatedReplicas") or 0,
        status.get("availableReplicas") or 0,
        object_age(deployment, now),
        *_containers(_pod_template_spec(deployment)),
        format_selector(spec_of(deployment).get("selector")),
    ]


def _replicas(item: JsonMapping) -> int:
    count = spec_of(item).get("replicas")
    return 1 if count is None else int(count)


def replica_set_cells(item: JsonMapping, now: float) -> list[Any]:
    """The cells of a replica set."""
    status = status_of(item)
    return [
        _replicas(item),
        status.get("replicas") or 0,
        status.get("readyReplicas") or 0,
        object_age(item, now),
        *_containers(_pod_template_spec(item)),
        format_selector(spec_of(item).get("selector")),
    ]


def stateful_set_cells(item: JsonMapping, now: float) -> list[Any]:
    """The cells of a stateful set."""
    return [
        f"{status_of(item).get('readyReplicas') or 0}/{_replicas(item)}",
        object_age(item, now),
        *_containers(_pod_template_spec(item)),
    ]


def daemon_set_cells(item: JsonMapping, now: float) -> list[Any]:
    """The cells of a daemon set."""
    status = status_of(item)
    counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
    return [
        *(status.get(name) or 0 for name in counts),
        status.get("numberAvailable") or 0,
        format_labels(_pod_template_spec(item).get("nodeSelector")),
        object_age(item, now),
        *_containers(_pod_template_spec(item)),
        format_selector(spec_of(item).get("selector")),
    ]


def controller_revision_cells(item: JsonMapping, now: float) -> list[Any]:
    """The cells of a controller revision."""
    owners = [one for one in item["metadata"].get("ownerReferences") or () if one.get("controller")]
    names = {"StatefulSet": "statefulset.apps", "DaemonSet": "daemonset.apps", "Deployment": "deployment.apps"}
    owner = owners[0] if owners else None
    shown = NONE if owner is None else f"{names.get(owner['kind'], owner['kind'].lower())}/{owner['name']}"
    return [shown, item.get("revision") or 0, object_age(item, now)]


def disruption_budget_cells(item: JsonMapping, now: float) -> list[Any]:
    """The cells of a disruption budget."""
    spec = spec_of(item)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    return [
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        status_of(item).get("disruptionsAllowed") or 0,
        object_age(item, now),
    ]


def format_labels(labels: Any) -> str:
    """Labels in one line."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) if labels else NONE


def format_optional_bool(value: Any) -> str:
    """A boolean that may be unset."""
    return UNSET if value is None else "True" if value else "False"
