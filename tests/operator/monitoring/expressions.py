"""The metrics and labels that an expression names, found by a small tokenizer of PromQL."""

from __future__ import annotations

import re
from pathlib import Path

from pykai.operator.monitoring.alerts import ALERTS
from pykai.operator.monitoring.dashboards import DASHBOARDS

_LIST = Path(__file__).parents[2] / "frozen" / "metrics.txt"
_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\])|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<number>\d[\d.]*)
    |(?P<sign>=~|!~|!=|==|<=|>=|[-+*/^%(){},=<>])|(?P<space>\s+)|(?P<other>.)""",
    re.VERBOSE,
)
_WORDS = {"and", "or", "unless", "bool", "offset"}
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
#: what Prometheus adds to everything that it reads
TARGET_LABELS = {"job", "instance", "namespace", "pod", "service"}


def known_metrics() -> dict[str, set[str]]:
    """Every series that Prometheus stores -> its labels; from the list that is compared with the running program."""
    found: dict[str, set[str]] = {}
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        name, kind, _, labels = line.split()[:4]
        has = set() if labels == "-" else set(labels.split(","))
        match kind:
            case "counter":
                found[f"{name}_total"] = has
            case "histogram":
                found |= {f"{name}_bucket": has | {"le"}, f"{name}_sum": has, f"{name}_count": has}
            case "summary":
                found |= {f"{name}_sum": has, f"{name}_count": has}
            case _:
                found[name] = has
    return found


def all_expressions() -> dict[str, str]:
    """Panel or alert -> expression."""
    found = {f"alert {each.name}": each.expression for each in ALERTS}
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for number, (expression, _) in enumerate(panel.queries):
                found[f"{dashboard.name}: {panel.title} {number}"] = expression
    return found


def mistakes(expression: str, known: dict[str, set[str]]) -> list[str]:
    """What an expression names and no service has."""
    tokens = [(each.lastgroup or "", each.group()) for each in _TOKEN.finditer(expression) if not each.group("space")]
    wrong = [f"unreadable: {text}" for kind, text in tokens if kind == "other"]
    metrics, grouped = list[str](), list[str]()
    position = 0
    while position < len(tokens):
        kind, text = tokens[position]
        position += 1
        if kind != "name" or text in _WORDS:
            continue
        following = tokens[position][1] if position < len(tokens) else ""
        if text in _GROUPING:
            listed, position = _until(tokens, position, ")")
            grouped += listed
        elif following != "(" and following not in _GROUPING:
            metrics.append(text)
            if text not in known:
                wrong.append(f"no metric {text}")
            if following == "{":
                matched, position = _until(tokens, position, "}")
                labels = known.get(text, set()) | TARGET_LABELS
                wrong += [f"{text} has no label {label}" for label in matched if label not in labels]
    has = TARGET_LABELS.union(*(known.get(each, set()) for each in metrics))
    wrong += [f"no metric of it has the label {label}" for label in grouped if label not in has]
    return wrong


def _until(tokens: list[tuple[str, str]], position: int, end: str) -> tuple[list[str], int]:
    names = []
    while tokens[position][1] != end:
        if tokens[position][0] == "name":
            names.append(tokens[position][1])
        position += 1
    return names, position + 1
