"""Metadata of objects: names, labels, timestamps, and selectable fields.

The rules are Kubernetes': names are RFC 1123 subdomains (namespaces and services: labels), label keys and values have
their grammar, and uid, creation time and the like belong to the server. Label checks are cached, because all pods of a
workload have the same labels.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver.apierrors import StatusCause, invalid_value, required_value
from pykai.lab.apiserver.kinds import ResourceKind

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_MAX_NAME: Final = 253
_MAX_LABEL: Final = 63
#: kinds whose names are labels
_LABEL_NAMED: Final = frozenset({"namespaces", "services"})
#: kinds whose names may hold colons and the like
_PATH_NAMED: Final = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})

_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def format_rfc3339(at: datetime) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes it."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def new_uid() -> str:
    """A random UUID."""
    digits = f"{random.getrandbits(128):032x}"
    # Version 4, and the variant's two bits: `uuid.UUID` does the same in four times the time.
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def generated_name(prefix: str) -> str:
    """The prefix, shortened where needed, with five random letters."""
    return prefix[: _MAX_LABEL - _SUFFIX_LENGTH] + "".join(random.choices(_LETTERS, k=_SUFFIX_LENGTH))


def validate_name(kind: ResourceKind, name: str) -> list[StatusCause]:
    """Problems of the name of an object of this kind."""
    if not name:
        return [required_value("metadata.name", "name or generateName is required")]
    if kind.plural in _PATH_NAMED:
        bad = name in (".", "..") or "/" in name or "%" in name
        return [invalid_value("metadata.name", name, "may not be '.' or '..' or contain '/' or '%'")] if bad else []
    if kind.plural in _LABEL_NAMED and not kind.group:
        if not _LABEL.fullmatch(name):
            return [invalid_value("metadata.name", name, _LABEL_TEXT)]
        if len(name) > _MAX_LABEL:
            return [invalid_value("metadata.name", name, f"must be no more than {_MAX_LABEL} bytes")]
        return []
    if not _SUBDOMAIN.fullmatch(name):
        return [invalid_value("metadata.name", name, _SUBDOMAIN_TEXT)]
    if len(name) > _MAX_NAME:
        return [invalid_value("metadata.name", name, f"must be no more than {_MAX_NAME} bytes")]
    return []


@lru_cache(maxsize=1 << 14)
def _validate_label(key: str, value: str, value_is_label: bool, field: str) -> tuple[StatusCause, ...]:
    causes = []
    prefix, slash, rest = key.rpartition("/")
    if slash and (not _SUBDOMAIN.fullmatch(prefix) or len(prefix) > _MAX_NAME):
        causes.append(invalid_value(field, key, f"prefix part {_SUBDOMAIN_TEXT}"))
    if not _QUALIFIED.fullmatch(rest) or len(rest) > _MAX_LABEL:
        causes.append(invalid_value(field, key, _KEY_TEXT))
    if value_is_label and value and (not _QUALIFIED.fullmatch(value) or len(value) > _MAX_LABEL):
        text = f"must be no more than {_MAX_LABEL} bytes" if len(value) > _MAX_LABEL else _VALUE_TEXT
        causes.append(invalid_value(field, value, text))
    return tuple(causes)


def validate_labels(labels: Any, field: str = "metadata.labels") -> list[StatusCause]:
    """Problems of a map of labels."""
    if not labels:
        return []
    if not isinstance(labels, Mapping):
        return [invalid_value(field, labels, "must be a map of strings")]
    causes: list[StatusCause] = []
    for key, value in labels.items():
        if not isinstance(value, str):
            causes.append(invalid_value(field, value, f"the value of {key!r} must be a string"))
        else:
            causes += _validate_label(key, value, True, field)
    return causes


def validate_metadata(metadata: JsonObject, before: JsonObject) -> list[StatusCause]:
    """Problems of an object's metadata; parts that are identical to `before`'s are not checked."""
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    causes = validate_labels(labels) if labels is not before.get("labels") else []
    if annotations and annotations is not before.get("annotations"):
        if not isinstance(annotations, Mapping):
            causes.append(invalid_value("metadata.annotations", annotations, "must be a map of strings"))
        else:
            size = 0
            for key, value in annotations.items():
                if not isinstance(value, str):
                    causes.append(
                        invalid_value("metadata.annotations", value, f"the value of {key!r} must be a string")
                    )
                    continue
                size += len(key) + len(value)
                causes += _validate_label(key.lower(), "", False, "metadata.annotations")
            if size > 256 << 10:
                causes.append(
                    StatusCause(
                        "metadata.annotations", "FieldValueTooLong", "Too long: may not be more than 262144 bytes"
                    )
                )
    owners = metadata.get("ownerReferences")
    if owners:
        causes += _validate_owner_references(owners)
    finalizers = metadata.get("finalizers")
    if finalizers and not (isinstance(finalizers, list) and all(isinstance(f, str) and f for f in finalizers)):
        causes.append(invalid_value("metadata.finalizers", finalizers, "must be a list of names"))
    return causes


def _validate_owner_references(owners: Any) -> list[StatusCause]:
    if not isinstance(owners, list):
        return [invalid_value("metadata.ownerReferences", owners, "must be a list")]
    causes: list[StatusCause] = []
    controllers = 0
    for at, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{at}]"
        if not isinstance(owner, dict):
            causes.append(invalid_value(path, owner, "must be an object"))
            continue
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field) or not isinstance(owner[field], str):
                causes.append(required_value(f"{path}.{field}", "must not be empty"))
        controllers += owner.get("controller") is True
    if controllers > 1:
        causes.append(
            invalid_value(
                "metadata.ownerReferences", controllers, "Only one reference can have Controller set to true."
            )
        )
    return causes


_ALIASES: Final = {
    "status.successful": ("status", "succeeded"),
    "source": ("source", "component"),
}
_DEFAULTS: Final = {
    "spec.unschedulable": "false",
    "spec.hostNetwork": "false",
    "status.successful": "0",
    "status.replicas": "0",
}


def _field_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else ""


@lru_cache(maxsize=256)
def selectable_field_reader(kind: ResourceKind) -> Callable[[JsonObject], Mapping[str, str]]:
    """A function that reads the fields by which objects of this kind can be selected."""
    paths = [
        (path, _ALIASES.get(path) or tuple(path.split(".")), _DEFAULTS.get(path, "")) for path in kind.selectable_fields
    ]

    def read(obj: JsonObject) -> Mapping[str, str]:
        metadata = obj["metadata"]
        values = {"metadata.name": metadata["name"]}
        if "namespace" in metadata:
            values["metadata.namespace"] = metadata["namespace"]
        for path, steps, default in paths:
            value: Any = obj
            for step in steps:
                value = value.get(step) if isinstance(value, dict) else None
            values[path] = default if value is None else _field_text(value)
        return values

    return read
