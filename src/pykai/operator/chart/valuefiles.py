"""values.yaml, values.schema.json and docs/values.md, from the table of values.

The schema names what is wrong: a key that no value has, another type, a text that is none of the choices.  Helm applies
it to this chart inside of another one, too.

Statements: install:subchart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pykai.operator.chart.values import UNSET, VALUES, ChartValue, Kind, groups

_STEP: Final = "  "
#: what a chart around this one usually calls the switch of a dependency
WANTED: Final = "enabled"
_ANY_OBJECT: Final = {"type": "object"}
_SCHEMAS: Final[Mapping[Kind, dict[str, Any]]] = {
    Kind.TEXT: {"type": "string"},
    Kind.SWITCH: {"type": "boolean"},
    Kind.NUMBER: {"type": "number"},
    Kind.PORT: {"type": "integer", "minimum": 1, "maximum": 65535},
    Kind.COUNT: {"type": "integer", "minimum": 0},
    Kind.QUANTITY: {"type": ["string", "number"]},
    Kind.TEXTS: {"type": "object", "additionalProperties": {"type": "string"}},
    Kind.DOCUMENT: _ANY_OBJECT,
    Kind.DOCUMENTS: {"type": "array", "items": _ANY_OBJECT},
    Kind.NAMES: {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}},
            "additionalProperties": False,
        },
    },
}


def values_text() -> str:
    """values.yaml, with the meaning of each value above it."""
    lines = [
        "# Values of the chart kai-scheduler, with their defaults. docs/values.md has them as a table.",
        "# Written by tools/chart.py: change src/pykai/operator/chart/values.py instead.",
    ]
    open_path: list[str] = []
    for path, rows in _in_order():
        *parents, key = path
        common = 0
        while common < len(open_path) and open_path[common : common + 1] == parents[common : common + 1]:
            common += 1
        if not common:
            lines.append("")
        for depth in range(common, len(parents)):
            lines.append(f"{_STEP * depth}{parents[depth]}:")
        open_path = parents
        indent = _STEP * len(parents)
        lines.append(f"{indent}# {rows.meaning}")
        if rows.default is UNSET:
            lines.append(f"{indent}# {key}:")
        else:
            lines.append(f"{indent}{key}: {json.dumps(rows.default)}")
    return "\n".join(lines) + "\n"


def _in_order() -> list[tuple[list[str], ChartValue]]:
    """The values with those of a map together, in the order in which the maps first appear."""
    positions: dict[tuple[str, ...], int] = {}

    def order(row: ChartValue) -> list[int]:
        words = row.path.split(".")
        # Scalars of a map come before its maps, since a map ends where another begins.
        return [positions.setdefault(tuple(words[: depth + 1]), len(positions)) for depth in range(len(words))]

    return [(each.path.split("."), each) for each in sorted(VALUES, key=order)]


def values_schema() -> dict[str, Any]:
    """The schema of all values."""
    root = _map()
    for each in VALUES:
        *parents, key = each.path.split(".")
        place = root
        for parent in parents:
            place = place["properties"].setdefault(parent, _map())
        place["properties"][key] = _schema(each)
    # A chart around this one says whether it is wanted, and its globals are those of all its charts; where there is
    # none, a template looks for mistakes in them (`files`).
    root["properties"][WANTED] = {
        "description": "Whether a chart around this one wants it; that chart's condition reads it.",
        "type": "boolean",
    }
    del root["properties"]["global"]["additionalProperties"]
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of kai-scheduler", **root}


def _map() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _schema(value: ChartValue) -> dict[str, Any]:
    schema = {"description": value.meaning, **_SCHEMAS[value.kind]}
    if value.choices:
        schema["enum"] = list(value.choices)
    return schema


def schema_text() -> str:
    """values.schema.json."""
    return json.dumps(values_schema(), indent=2) + "\n"


def reference_text() -> str:
    """docs/values.md: all values as tables, by the first word of their path (operations:OD-18)."""
    parts = [
        "# Values of the chart\n\n"
        "Every value of `charts/kai-scheduler`, as `helm install --set` and `kai install --set` take it. The names\n"
        "are those of KAI Scheduler's chart. Written by `tools/chart.py` from the table of values.\n"
    ]
    for name, rows in groups().items():
        parts.append(f"\n## {name}\n\n| value | kind | default | |\n|---|---|---|---|\n")
        parts += [_row(each) for each in rows]
    return "".join(parts)


def _row(value: ChartValue) -> str:
    default = "unset" if value.default is UNSET else f"`{json.dumps(value.default)}`"
    kind = " or ".join(f"`{each}`" if each else "empty" for each in value.choices) or value.kind.value
    notes = "".join((" Not in KAI." if value.is_ours else "", f" In KAI: {value.differs}." if value.differs else ""))
    return f"| `{value.path}` | {kind} | {default} | {value.meaning}{notes} |\n"
