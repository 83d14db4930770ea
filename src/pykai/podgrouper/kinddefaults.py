"""The ConfigMap with priorities and preemptibility for kinds that say nothing themselves (workloads:DF-12).

Its key `types` holds a JSON array.  Administrators write it by hand, so what cannot be read is logged and counts as
absent: a typo must not keep pods from being grouped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from pykai.api.meta import ObjectMeta, Wire
from pykai.podgrouper.metadata import KindDefaults

_log = logging.getLogger(__name__)


class TextConfigMap(Wire):
    """A ConfigMap of an administrator, its data included."""

    metadata: ObjectMeta = ObjectMeta()
    data: Any = None

    def text(self, key: str) -> str:
        """The text under a key, "" for none."""
        text = self.data.get(key) if isinstance(self.data, dict) else None
        return text if isinstance(text, str) else ""


def read_kind_defaults(text: str | None) -> dict[str, KindDefaults]:
    """The key `types` of the defaults ConfigMap; `Kind.group`, or `Kind` where an entry names no group, is the key."""
    try:
        entries = json.loads(text) if text else []
    except (ValueError, RecursionError) as error:
        _log.warning("The default priorities are not JSON (%s); built-in defaults are used.", error)
        return {}
    if not isinstance(entries, list):
        _log.warning("The default priorities are not a JSON array; built-in defaults are used.")
        return {}
    defaults_by_kind: dict[str, KindDefaults] = {}
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        kind, group = _text(entry, "typeName"), _text(entry, "group")
        if kind:
            defaults_by_kind[f"{kind}.{group}" if group else kind] = KindDefaults(
                _text(entry, "priorityName"), _text(entry, "preemptibility")
            )
    return defaults_by_kind


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""
