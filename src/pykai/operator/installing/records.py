"""What `kai install` remembers of an installation: the ConfigMap `kai-install` of its namespace.

It has the values, so that an upgrade needs them no more, and what was applied, so that all of it is found again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pykai.api.unstructured import JsonObject
from pykai.kube.client import Client
from pykai.kube.errors import NotFound
from pykai.kube.resources import CONFIG_MAPS
from pykai.operator.hooks.steps import StepFailure
from pykai.operator.installing.release import Key

#: who applies the objects
MANAGER: Final = "kai-install"
RECORD: Final = "kai-install"


@dataclass(frozen=True, slots=True)
class Record:
    """What is installed in a namespace."""

    version: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    objects: tuple[Key, ...] = ()

    def config_map(self, namespace: str) -> JsonObject:
        """How it is kept."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": RECORD, "namespace": namespace},
            "data": {
                "version": self.version,
                "values": json.dumps(self.values, sort_keys=True),
                "objects": json.dumps(self.objects),
            },
        }


async def read_record(client: Client, namespace: str) -> Record | None:
    """The record of an installation by `kai install`; None if there is none."""
    try:
        found = await client.get_raw(CONFIG_MAPS, RECORD, namespace)
    except NotFound:
        return None
    try:
        data = found["data"]
        keys = [(api_version, kind, place, name) for api_version, kind, place, name in json.loads(data["objects"])]
        return Record(data["version"], dict(json.loads(data["values"])), tuple(keys))
    except (KeyError, TypeError, ValueError) as error:
        raise StepFailure(
            f"the record in ConfigMap {namespace}/{RECORD} cannot be read ({error}): delete it and install again"
        ) from None


def is_applied_by_us(found: Mapping[str, Any]) -> bool:
    """Whether `kai install` has applied an object and still owns a field of it."""
    return any(each.get("manager") == MANAGER for each in found["metadata"].get("managedFields") or ())
