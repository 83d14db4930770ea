"""The configuration file of a running scheduler, read again when it changes.

A broken file at start-up stops the program; later the last good configuration stays in use.  The file is looked at by
time of change and size once a period, which also serves files that are replaced as a whole (ConfigMap volumes).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import yaml

from pykai.core.plugins import DEFAULT_ACTIONS, DEFAULT_PROFILE, PROFILES
from pykai.scheduler.configuration import Configuration, LastGood

log = logging.getLogger(__name__)


class ConfigurationFile:
    """A file, or the built-in configuration where there is none."""

    def __init__(self, path: str = "", profile: str = "") -> None:
        self.path = Path(path) if path else None
        self.profile = profile
        self._text = self.path.read_text(encoding="utf-8") if self.path is not None else ""
        self._mark = self._seen()
        self._good = LastGood(self._text, profile)
        self._report()

    @property
    def current(self) -> Configuration:
        """The configuration in use; the same object as long as nothing changes."""
        return self._good.current

    def refresh(self) -> bool:
        """Look at the file; True when another configuration is in use now."""
        mark = self._seen()
        if self.path is None or mark is None or mark == self._mark:
            return False
        self._mark = mark
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            log.error("%s cannot be read: %s; the last good configuration stays in use", self.path, error)
            return False
        if text == self._text:
            return False
        if not self._good.reload(text, lambda problem: log.error("%s: %s", self.path, problem)):
            return False
        self._text = text
        log.info("%s was read again", self.path)
        self._report()
        return True

    def content(self) -> dict[str, Any]:
        """The configuration as upstream's tools read it: the file, or what is built in."""
        written = yaml.safe_load(self._text) if self._text else None
        if isinstance(written, dict) and written:
            return written
        plugins = PROFILES.get(self.profile or DEFAULT_PROFILE, PROFILES[DEFAULT_PROFILE])
        listed = [{"name": name, "arguments": dict(arguments)} for name, arguments in plugins]
        return {"actions": ", ".join(DEFAULT_ACTIONS), "tiers": [{"plugins": listed}]}

    def _seen(self) -> tuple[int, int, int] | None:
        if self.path is None:
            return None
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _report(self) -> None:
        for problem in self._good.current.problems:
            log.warning("%s", problem)
        if self._good.current.usage is not None:
            log.warning(
                "usageDBConfig: historical usage is not queried in this version; shares are those of the moment"
            )
