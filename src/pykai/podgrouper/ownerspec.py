"""The fields of a workload that its grouper reads, as a typed object.

Tenants write workloads, and the definitions of many kinds allow anything.  A field of the wrong type, and a number that
a PodGroup cannot hold, refuse the workload with the path of the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeVar

from pykai.api.decode import DecodeError, decode_as
from pykai.api.meta import Wire
from pykai.podgrouper.metadata import GroupingError, ObjectName, Owner, Readers
from pykai.podgrouper.owners import owner_from

MAX_INT32: Final = (1 << 31) - 1
#: As the definition of PodGroups has it; the label of a pod holds no more.
SUB_GROUP_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
#: Tenants write the names that are looked up; no object has another name, and `..` would lead elsewhere.
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_MAX_NAME_LENGTH: Final = 253
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
#: leading zeros included
_MAX_DIGITS: Final = 64

_Part = TypeVar("_Part", bound=Wire)


def describe_owner(owner: Owner) -> str:
    """Kind, namespace and name, for errors."""
    return f"{owner.kind} {owner.metadata.namespace}/{owner.metadata.name}"


def read_owner(wire_type: type[_Part], owner: Owner) -> _Part:
    """The workload as this type; raises `GroupingError` for a field of the wrong type."""
    try:
        return decode_as(wire_type, dict(owner.body))
    except DecodeError as error:
        raise _wrong_field(describe_owner(owner), error) from None


def look_up(which: ObjectName, owners: Iterable[Owner], readers: Readers) -> Owner | None:
    """An object that a workload names: one of the pod's owners, or else read by name; None if it does not exist.

    Raises `ObjectNotRead`, and `GroupingError` for invalid metadata.
    """
    for owner in owners:
        if (owner.kind, owner.group, owner.metadata.name) == (
            which.kind,
            which.api_version.rpartition("/")[0],
            which.name,
        ):
            return owner
    if not is_object_name(which.name):
        return None
    body = readers.object(which)
    if body is None:
        return None
    try:
        return owner_from(which, body)
    except DecodeError as error:
        raise _wrong_field(f"{which.kind} {which.namespace}/{which.name}", error) from None


def is_object_name(name: str) -> bool:
    """Whether an object can have this name: a DNS subdomain."""
    return len(name) <= _MAX_NAME_LENGTH and _OBJECT_NAME.fullmatch(name) is not None


def _wrong_field(subject: str, error: DecodeError) -> GroupingError:
    problem = ": ".join(part for part in (error.path, error.problem) if part)
    return GroupingError(f"{subject}: {problem}; fix the manifest")


def parse_int32(text: str) -> int | None:
    """A whole number as Go reads it: ASCII digits with an optional sign; None for anything else."""
    if len(text) > _MAX_DIGITS or not _WHOLE_NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if -MAX_INT32 - 1 <= number <= MAX_INT32 else None


def checked_minimum(owner: Owner, path: str, minimum: int) -> int:
    """A minimum that a PodGroup can hold; raises `GroupingError`."""
    if 0 <= minimum <= MAX_INT32:
        return minimum
    raise GroupingError(
        f"{describe_owner(owner)}: {path}: a minimum of {minimum} pods is not possible; "
        f"use a number from 0 to {MAX_INT32}"
    )
