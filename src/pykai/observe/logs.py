"""Log lines of the services, as text or as JSON, one line an entry.

Every module logs through `logging.getLogger(__name__)`; this module only says where lines go and how they look.  The
verbosity is that of KAI's flag `--v`: 0 to 2 warnings, 3 what an operator wants to read, 4 and more everything.

`context` attaches facts such as the id of a cycle to every line written inside a block, also in worker threads started
there, because context variables travel with `asyncio.to_thread`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TextIO

_NOTHING: Mapping[str, str] = MappingProxyType({})
_FACTS: ContextVar[Mapping[str, str]] = ContextVar("facts of the log", default=_NOTHING)


@contextmanager
def log_context(**facts: str) -> Iterator[None]:
    """Facts for every line written inside the block."""
    token = _FACTS.set({**_FACTS.get(), **facts})
    try:
        yield
    finally:
        _FACTS.reset(token)


def level_of(verbosity: int) -> int:
    """The logging level of a `--v`."""
    if verbosity < 3:
        return logging.WARNING
    return logging.INFO if verbosity == 3 else logging.DEBUG


class _FactsFilter(logging.Filter):
    """Puts the facts of the context on the record, where it is made: handlers may run elsewhere."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.facts = _FACTS.get()
        return True


class TextFormatter(logging.Formatter):
    """`12:00:00.123 INFO pykai.scheduler.loop: message  key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        clock = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"
        facts: Mapping[str, str] = getattr(record, "facts", {})
        line = f"{clock} {record.levelname} {record.name}: {record.getMessage()}"
        if facts:
            line += "  " + " ".join(f"{key}={value}" for key, value in facts.items())
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, object] = {
            "time": moment.isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up_logging(verbosity: int = 3, *, as_json: bool = False, stream: TextIO | None = None) -> None:
    """Send the log of this process to `stream` (standard error); calling it again replaces what was set up."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.addFilter(_FactsFilter())
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    for old in [each for each in root.handlers if getattr(each, "of_pykai", False)]:
        root.removeHandler(old)
    # An attribute of ours, by which a second call finds the handler of the first.
    handler.of_pykai = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("pykai").setLevel(level_of(verbosity))
