"""Reads fields of objects under review, which may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def object_at(parent: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object in a field; empty if the field holds anything else."""
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def dicts_at(parent: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects of a list in a field; other items are left out."""
    value = parent.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts_at(parent: Mapping[str, Any], key: str) -> dict[str, str]:
    """The texts of a map in a field, such as annotations; other values are left out."""
    return {name: value for name, value in object_at(parent, key).items() if isinstance(value, str)}
