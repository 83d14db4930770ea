"""Tables: the server renders what `kubectl get` prints.

    table(kind, group, items, columns=None, now=..., include_object="Metadata") -> a meta.k8s.io/v1 Table

Columns of built-in kinds are in `lab.apiserver.printers.kinds`; those of a custom kind are its
`additionalPrinterColumns`, read with the part of JSONPath that such columns use.  Columns of a priority above 0 are
shown by `-o wide` only.

Subtle: a cell that cannot be computed (from an unexpected object) is empty, or `<unknown>`; the rest of the list is
printed.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.lab.apiserver.printers.kinds import Printer, PrinterColumn, printer_for
from pykai.lab.apiserver.printers.workloads import human_duration, object_age

_log = logging.getLogger(__name__)

#: Takes one step into values.
_PathStep = Callable[[list[Any]], list[Any]]

_NAME: Final = PrinterColumn("Name", description="Name must be unique within a namespace.", format="name")
_AGE: Final = PrinterColumn("Age", description="How long ago the object was created.")


def make_table(
    kind: str,
    group: str,
    items: Iterable[Mapping[str, Any]],
    *,
    columns: Sequence[Mapping[str, Any]] | None = None,
    now: datetime,
    include_object: str = "Metadata",
) -> dict[str, Any]:
    """The objects as a Table; `include_object` is None, Metadata or Object."""
    printer = _custom_printer(columns) if columns else printer_for(group, kind) or _DEFAULT
    seconds = now.timestamp()
    rows = []
    for item in items:
        try:
            cells = printer.cells(item, seconds)
            if printer.name is not None:
                cells = [printer.name(item), *cells]
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            _log.debug("no row for %s %s: %r", kind, item.get("metadata"), error)
            first = [] if printer.name is None else [(item.get("metadata") or {}).get("name", "")]
            cells = [*first, *["<unknown>"] * len(printer.columns)]
        row: dict[str, Any] = {"cells": cells}
        if include_object == "Object":
            row["object"] = item
        elif include_object != "None":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": item.get("metadata") or {},
            }
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": _definitions(printer),
        "rows": rows,
    }


def column_definitions(
    kind: str, group: str, columns: Sequence[Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """The columnDefinitions of a kind."""
    printer = _custom_printer(columns) if columns else printer_for(group, kind) or _DEFAULT
    return _definitions(printer)


def _definitions(printer: Printer) -> list[dict[str, Any]]:
    shown = printer.columns if printer.name is None else (_NAME, *printer.columns)
    return [column.definition() for column in shown]


_DEFAULT: Final = Printer((_AGE,), lambda item, now: [object_age(item, now)])


def _custom_printer(columns: Sequence[Mapping[str, Any]]) -> Printer:
    shown = tuple(
        PrinterColumn(
            str(column.get("name") or ""),
            type=str(column.get("type") or "string"),
            format=str(column.get("format") or ""),
            description=str(column.get("description") or ""),
            priority=int(column.get("priority") or 0),
        )
        for column in columns
    )
    readers = [(json_path(str(column.get("jsonPath") or "")), str(column.get("type"))) for column in columns]

    def cells(item: Mapping[str, Any], now: float) -> list[Any]:
        return [_format_cell(read(item), kind, now) for read, kind in readers]

    return Printer(shown, cells)


def _format_cell(values: list[Any], kind: str, now: float) -> Any:
    values = [value for value in values if value is not None]
    if not values:
        return None
    value = values[0]
    if kind == "date":
        if not isinstance(value, str):
            return "<invalid>"
        try:
            return human_duration(now - parse_timestamp(value) / 1e9)
        except TimestampError:
            return "<invalid>"
    if kind == "integer":
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if kind == "number":
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    # A column shows the first of several values, as in Kubernetes.
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"))
    return str(value)


_TOKEN: Final = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\])+)
    |\[\?\(\s*@(?P<filter>(?:\.(?:\\.|[^.\s=!<>\\])+)+)\s*(?P<sign>==|!=)\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)\s*\)\]
    |\[(?P<index>-1(?=:)|-?[0-9]+):?\]
    |\[(?P<all>\*)\]|\.(?P<star>\*)
    |\[(?P<mark>["'])(?P<key>.*?)(?P=mark)\]""",
    re.VERBOSE,
)


@lru_cache(maxsize=512)
def json_path(path: str) -> Callable[[Any], list[Any]]:
    """Values of a simple JSONPath: names, `['a.b']`, indexes, `[-1:]`, `[*]` and filters of one comparison."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    text = text.removeprefix("$")
    steps: list[_PathStep] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return lambda _: []
        steps.append(_step(match))
        at = match.end()

    def read(item: Any) -> list[Any]:
        values = [item]
        for step in steps:
            values = step(values)
        return values

    return read


def _step(match: re.Match[str]) -> _PathStep:
    name = match["key"] if match["key"] is not None else match["name"]
    if match["all"] or match["star"] or name == "*":
        return lambda values: [
            inner
            for value in values
            if isinstance(value, (list, dict))
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
    if name is not None:
        field = re.sub(r"\\(.)", r"\1", name)
        return lambda values: [value[field] for value in values if isinstance(value, dict) and field in value]
    if match["index"]:
        index = int(match["index"])
        return lambda values: [
            value[index] for value in values if isinstance(value, list) and -len(value) <= index < len(value)
        ]
    inner = json_path(match["filter"])
    wanted, equal = match["value"], match["sign"] == "=="

    def keep(values: list[Any]) -> list[Any]:
        elements = [element for value in values if isinstance(value, list) for element in value]
        return [element for element in elements if (wanted in [_text(one) for one in inner(element)]) is equal]

    return keep
