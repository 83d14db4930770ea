"""Admission of pods that share GPUs (gpu:10.2, 10.3, 10.5): what they may ask for, and what is added to them.

`mutate` points the environment of one container at the ConfigMaps that the binder will fill (gpu:A-6, E-2), adds the
memory limit of HAMi-core where that is switched on (gpu:A-7) and gives the pod a runtime class (gpu:A-10).  `validate`
refuses requests that contradict themselves (gpu:A-4, A-5), changes of GPU requests after creation, and labels or
annotations that only the scheduler and the binder may write: with them a user could join a foreign GPU group.

Both are pure and work on plain documents.  `mutate` shares what it does not change with its argument and returns None
when there is nothing to do, so a second call costs nothing.  The embedded API server calls them in process, `serve`
offers them to others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pykai.api import names
from pykai.api.gpuvendors import is_gpu, is_shareable
from pykai.api.quantity import QuantityError, parse_quantity
from pykai.api.sharing import NoSuchContainer, config_map_names, container_index, fraction_container, shares_gpu
from pykai.webhooks.fields import dicts_at, object_at, texts_at

#: Letters and digits of generated names; no vowels, so no words.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
#: Below this a portion is written as 0.00.
MIN_FRACTION = 0.01

_SUFFIX = "shared-gpu"
_UNSIGNED = re.compile(r"[0-9]+")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")
#: What Go's ParseFloat reads besides numbers that Python reads too.
_HEX_FLOAT = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity)|[+-]?nan", re.I)

#: The annotations that request shared GPUs; the scheduler reads them again and again, so they must not change.
_REQUEST_ANNOTATIONS = (
    names.GPU_FRACTION_ANNOTATION,
    names.GPU_MEMORY_ANNOTATION,
    names.GPU_NUM_DEVICES_ANNOTATION,
    names.GPU_FRACTION_CONTAINER_ANNOTATION,
    names.SHARED_GPU_CONFIGMAP_ANNOTATION,
    names.MPS_ANNOTATION,
)
#: What only the scheduler, the binder and the exporter write.
_SERVICE_ANNOTATIONS = (
    names.RECEIVED_TYPE_ANNOTATION,
    names.NUMA_PREDICTED_ANNOTATION,
    names.NUMA_OBSERVED_ANNOTATION,
    names.ADMITTED_TIMESTAMP_ANNOTATION,
)


class AdmissionDenied(ValueError):
    """The pod cannot be admitted; the text is the answer."""


@dataclass(frozen=True, slots=True)
class SharingRules:
    """The settings of admission (gpu:A-3)."""

    scheduler_name: str = names.SCHEDULER_NAME
    gpu_sharing_enabled: bool = True
    #: tell containers their memory limit for HAMi-core
    hami_core_enabled: bool = False
    #: of pods that share a GPU and name none; "" = leave them alone
    fraction_runtime_class: str = names.GPU_RUNTIME_CLASS
    #: keep containers from naming devices in NVIDIA_VISIBLE_DEVICES
    visible_devices_blocked: bool = False


DEFAULT_RULES = SharingRules()


def mutate(
    pod: dict[str, Any], *, namespace: str, random: Callable[[int], str], rules: SharingRules = DEFAULT_RULES
) -> dict[str, Any] | None:
    """The pod with what sharing a GPU needs, None when nothing is to be added; `random` draws letters of ALPHABET.

    Statements: gpu:A-2.
    """
    metadata, spec = object_at(pod, "metadata"), object_at(pod, "spec")
    if spec.get("schedulerName") != rules.scheduler_name:
        return None
    if metadata.get("namespace") and namespace and metadata["namespace"] != namespace:
        raise AdmissionDenied(
            f"error: the namespace from the provided object {metadata['namespace']} "
            f"does not match the namespace {namespace}"
        )
    annotations = texts_at(metadata, "annotations")
    if not shares_gpu(annotations) or not dicts_at(spec, "containers"):
        return None
    try:
        init, index = _fraction_container_of(pod)
    except NoSuchContainer as error:
        raise AdmissionDenied(f"failed to get fraction container ref: {error}") from None
    index_text = container_index(init, index)
    prefix = annotations.get(names.SHARED_GPU_CONFIGMAP_ANNOTATION) or _prefix(metadata, index_text, random)
    capabilities, environment = config_map_names(prefix, index_text)

    field = "initContainers" if init else "containers"
    containers = list(dicts_at(spec, field))
    containers[index] = _with_environment(containers[index], capabilities, environment, rules)
    changed_spec = {**spec, field: containers, "volumes": _with_volume(dicts_at(spec, "volumes"), capabilities)}
    if rules.fraction_runtime_class and not spec.get("runtimeClassName"):
        changed_spec["runtimeClassName"] = rules.fraction_runtime_class
    changed_annotations = {**annotations, names.SHARED_GPU_CONFIGMAP_ANNOTATION: prefix}
    if changed_spec == spec and changed_annotations == annotations:
        return None
    return {**pod, "metadata": {**metadata, "annotations": changed_annotations}, "spec": changed_spec}


def validate(
    pod: dict[str, Any],
    old: dict[str, Any] | None = None,
    *,
    privileged: bool = True,
    rules: SharingRules = DEFAULT_RULES,
) -> list[str]:
    """Why the pod cannot be admitted, the first reason alone; `old` is what an update replaces.

    `privileged` users may write what belongs to the scheduler and the binder.
    """
    if object_at(pod, "spec").get("schedulerName") != rules.scheduler_name:
        return []
    problem = _request_problem(pod, rules) or _change_problem(pod, old)
    if not problem and not privileged:
        problem = _service_field_change(pod, old)
    return [problem] if problem else []


# Also where `mps` is set without a share (gpu:G-15).
def _request_problem(pod: dict[str, Any], rules: SharingRules) -> str:
    annotations = texts_at(object_at(pod, "metadata"), "annotations")
    fraction = annotations.get(names.GPU_FRACTION_ANNOTATION)
    memory = annotations.get(names.GPU_MEMORY_ANNOTATION)
    devices = annotations.get(names.GPU_NUM_DEVICES_ANNOTATION)
    shares = shares_gpu(annotations)
    if shares and not rules.gpu_sharing_enabled:
        metadata = object_at(pod, "metadata")
        return (
            f"attempting to create a pod {metadata.get('namespace', '')}/{metadata.get('name', '')} "
            "with gpu sharing request, while GPU sharing is disabled"
        )
    if annotations.get(names.MPS_ANNOTATION) == "true" and not shares:
        return "MPS is only supported with GPU fraction request"
    whole = _limited_resource(pod, is_shareable)
    if fraction is not None and whole:
        return "cannot have both GPU fraction request and whole GPU resource request/limit"
    if memory is not None and (fraction is not None or whole):
        return "cannot request both GPU and GPU memory"
    if devices is not None and not shares:
        return "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
    if memory is not None and not _is_positive(memory):
        return "gpu-memory annotation value must be a positive integer greater than 0"
    if fraction is not None and (problem := _fraction_problem(fraction)):
        return problem
    if devices is not None and not _is_positive(devices):
        return "fraction count annotation value must be a positive integer greater than 0"
    if not shares:
        return ""
    # Of GPUs of other vendors there are no parts (ADR-37).
    other = _limited_resource(pod, lambda name: is_gpu(name) or name.startswith(names.MIG_PREFIX))
    if other:
        return f"cannot have both a GPU fraction or GPU memory request and a request for {other}"
    try:
        _fraction_container_of(pod)
    except NoSuchContainer as error:
        return str(error)
    return ""


def _fraction_problem(text: str) -> str:
    smaller = "gpu-fraction annotation value must be a positive number smaller than 1.0"
    written = (
        "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation "
        f".given value: {text}"
    )
    if _HEX_FLOAT.fullmatch(text):
        return written if 0 < float.fromhex(text) < 1 else smaller
    if not _DECIMAL.fullmatch(text):
        return smaller
    value = float(text)
    if value <= 0 or value >= 1:
        return smaller
    try:
        parse_quantity(text)
    except QuantityError:
        return written
    if value < MIN_FRACTION:
        return f"gpu-fraction annotation value must be at least {MIN_FRACTION}, not {text}"
    return ""


def _change_problem(pod: dict[str, Any], old: dict[str, Any] | None) -> str:
    if old is None:
        return ""
    now = texts_at(object_at(pod, "metadata"), "annotations")
    before = texts_at(object_at(old, "metadata"), "annotations")
    for key in _REQUEST_ANNOTATIONS:
        if now.get(key) != before.get(key):
            was, given = before.get(key, "nothing"), now.get(key, "nothing")
            return f"annotation {key} cannot be changed after the pod was created ({was} before, {given} now)"
    return ""


def _service_field_change(pod: dict[str, Any], old: dict[str, Any] | None) -> str:
    metadata, before = object_at(pod, "metadata"), object_at(old or {}, "metadata")
    labels, old_labels = texts_at(metadata, "labels"), texts_at(before, "labels")
    for key in {**labels, **old_labels}:
        if key == names.GPU_GROUP_LABEL or key.startswith(names.GPU_GROUP_LABEL_PREFIX):
            if labels.get(key) != old_labels.get(key):
                return f"label {key} is written by the binder only"
    annotations, old_annotations = texts_at(metadata, "annotations"), texts_at(before, "annotations")
    for key in _SERVICE_ANNOTATIONS:
        if annotations.get(key) != old_annotations.get(key):
            return f"annotation {key} is written by the scheduler's services only"
    return ""


def _names_of(containers: list[dict[str, Any]]) -> list[str]:
    return [str(container.get("name", "")) for container in containers]


def _fraction_container_of(pod: dict[str, Any]) -> tuple[bool, int]:
    spec = object_at(pod, "spec")
    annotations = texts_at(object_at(pod, "metadata"), "annotations")
    return fraction_container(
        annotations, _names_of(dicts_at(spec, "initContainers")), _names_of(dicts_at(spec, "containers"))
    )


def _limited_resource(pod: dict[str, Any], concerns: Callable[[str], bool]) -> str:
    """A resource of that sort that a container limits, whatever the amount; "" when there is none."""
    spec = object_at(pod, "spec")
    for container in dicts_at(spec, "initContainers") + dicts_at(spec, "containers"):
        for name in object_at(object_at(container, "resources"), "limits"):
            if concerns(name):
                return name
    return ""


def _is_positive(text: str) -> bool:
    return _UNSIGNED.fullmatch(text) is not None and int(text[:25]) > 0 and len(text) <= 20


def _prefix(metadata: Mapping[str, Any], index: str, random: Callable[[int], str]) -> str:
    """A name for ConfigMaps that leaves room for what is appended to it, in 63 characters."""
    owners = dicts_at(metadata, "ownerReferences")
    base = str(owners[0].get("name", "")) if owners else ""
    base = base or str(metadata.get("name") or metadata.get("generateName") or "")
    room = 63 - 13 - len(_SUFFIX) - len(index) - 1 - 5
    base = base[:room].rstrip(".-") or "pod"
    return f"{base}-{random(7)}-{_SUFFIX}"


def _with_environment(
    container: dict[str, Any], capabilities: str, environment: str, rules: SharingRules
) -> dict[str, Any]:
    entries = list(dicts_at(container, "env"))
    for key in (names.VISIBLE_DEVICES_KEY, names.NUM_OF_GPUS_KEY, names.GPU_PORTION_KEY):
        _set_variable(entries, key, {"name": capabilities, "key": key})
    if rules.hami_core_enabled:
        key = names.CUDA_MEMORY_LIMIT_KEY
        _set_variable(entries, key, {"name": capabilities, "key": key, "optional": True})
    sources = list(dicts_at(container, "envFrom"))
    if not any(object_at(source, "configMapRef").get("name") == environment for source in sources):
        sources.append({"configMapRef": {"name": environment, "optional": False}})
    return {**container, "env": entries, "envFrom": sources}


def _set_variable(entries: list[dict[str, Any]], name: str, reference: dict[str, Any]) -> None:
    entry = {"name": name, "valueFrom": {"configMapKeyRef": reference}}
    for number, there in enumerate(entries):
        if there.get("name") == name:
            entries[number] = entry
            return
    entries.append(entry)


def _with_volume(volumes: list[dict[str, Any]], capabilities: str) -> list[dict[str, Any]]:
    name = _NOT_IN_NAMES.sub("-", f"{capabilities}-vol".lower()).strip("-")
    if any(volume.get("name") == name for volume in volumes):
        return volumes
    return [*volumes, {"name": name, "configMap": {"name": capabilities}}]
