"""Keeps containers from taking GPUs that were not given to them (gpu:10.4), with `--block-nvidia-visible-devices`.

Nvidia's container runtime gives a container the devices that `NVIDIA_VISIBLE_DEVICES` lists, whatever it requests.
`hide_devices` sets it to `void` in every container that requests no GPU, so that values from `envFrom` or the image do
not count either.  `device_access_problem` refuses other values, and mounts that ask for devices.

The container that gets a part of a GPU is left alone: its variable points at the ConfigMap of the binder.  Containers
with claims are left alone too: their driver decides.  Pure.

Statements: gpu:A-8, A-9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykai.api import names
from pykai.api.quantity import QuantityError, parse_quantity
from pykai.api.sharing import NoSuchContainer, fraction_container, shares_gpu
from pykai.webhooks.fields import dicts_at, object_at, texts_at

_VARIABLE = names.VISIBLE_DEVICES_KEY
#: values that give no device
_NO_DEVICES = ("void", "none")
#: a volume mounted below it asks Nvidia's runtime for the device it is named after
_DEVICE_MOUNTS = "/var/run/nvidia-container-devices"
_FIELDS = ("initContainers", "containers", "ephemeralContainers")


def hide_devices(pod: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The pod with `void` for containers without a GPU; None if nothing is to be done.

    `old` is the pod before ephemeral containers were added: only new containers may still be changed.
    """
    spec = object_at(pod, "spec")
    target = _fraction_target(pod)
    existing = set(map(_name, _containers(old))) if old is not None else set()
    changed: dict[str, Any] = {}
    for field in _FIELDS:
        before = dicts_at(spec, field)
        after = [
            each if _name(each) in existing or _keeps_devices(each, target) else _with_void(each) for each in before
        ]
        if after != before:
            changed[field] = after
    return {**pod, "spec": {**spec, **changed}} if changed else None


def device_access_problem(pod: dict[str, Any]) -> str:
    """Why a container would reach devices that it was not given; "" if none does."""
    target = _fraction_target(pod)
    for container in _containers(pod):
        name = _name(container)
        for mount in dicts_at(container, "volumeMounts"):
            path = str(mount.get("mountPath", ""))
            if f"{path.rstrip('/')}/".startswith(f"{_DEVICE_MOUNTS}/"):
                return f"container {name} mounts {path}. This is forbidden due to conflicts with Nvidia's device plugin"
        if name == target:
            continue
        for entry in dicts_at(container, "env"):
            if entry.get("name") == _VARIABLE and (problem := _value_problem(name, entry)):
                return problem
    return ""


def _value_problem(container: str, entry: dict[str, Any]) -> str:
    value = entry.get("value")
    if value and value not in _NO_DEVICES:
        return (
            f"container {container} has an environment variable {_VARIABLE} defined with a value of {value}. "
            "This is forbidden due to conflicts with Nvidia's device plugin. "
            "The only values that are allowed are 'void' or 'none'"
        )
    if entry.get("valueFrom") is not None:
        return (
            f"container {container} has an environment variable {_VARIABLE} defined with a valueFrom reference. "
            "This is forbidden due to possible conflicts with Nvidia's device plugin"
        )
    return ""


def _containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec = object_at(pod, "spec")
    for field in _FIELDS:
        yield from dicts_at(spec, field)


def _name(container: dict[str, Any]) -> str:
    return str(container.get("name", ""))


def _fraction_target(pod: dict[str, Any]) -> str | None:
    """The name of the container that gets a part of a GPU; names are unique within a pod."""
    annotations = texts_at(object_at(pod, "metadata"), "annotations")
    if not shares_gpu(annotations):
        return None
    spec = object_at(pod, "spec")
    init = list(map(_name, dicts_at(spec, "initContainers")))
    regular = list(map(_name, dicts_at(spec, "containers")))
    try:
        is_init, index = fraction_container(annotations, init, regular)
    except NoSuchContainer:
        return None
    return (init if is_init else regular)[index]


def _keeps_devices(container: dict[str, Any], target: str | None) -> bool:
    """Whether the container gets devices by a request, a claim or a share, or hides them already."""
    resources = object_at(container, "resources")
    if _name(container) == target or dicts_at(resources, "claims"):
        return True
    # Limits are requests where these are absent; an API server fills them in before it calls a webhook.
    for field in ("requests", "limits"):
        for name, amount in object_at(resources, field).items():
            if (name == names.NVIDIA_GPU or name.startswith(names.MIG_PREFIX)) and _is_positive(amount):
                return True
    return False


def _is_positive(amount: object) -> bool:
    try:
        return parse_quantity(str(amount)) > 0
    except QuantityError:
        return True


def _with_void(container: dict[str, Any]) -> dict[str, Any]:
    entries = dicts_at(container, "env")
    void = {"name": _VARIABLE, "value": "void"}
    if any(entry.get("name") == _VARIABLE for entry in entries):
        after = [void if entry.get("name") == _VARIABLE else entry for entry in entries]
    else:
        after = [*entries, void]
    return {**container, "env": after}
