"""The configuration file of a running scheduler, read again when it changes.

A file with errors stops the program at start-up; later the last good configuration stays in use.  The file is looked at
by time of change and size once a period, which also serves files that are replaced as a whole (ConfigMap volumes).

What is skipped, and why a changed file is not in use, is logged as an error and listed in `complaints`, from which the
scheduler makes an event, a metric and a line in `/readyz`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import yaml

from pykai.core.plugins import DEFAULT_ACTIONS, DEFAULT_PROFILE, PROFILES
from pykai.scheduler.config.configuration import Configuration, ConfigurationError, LastGood

log = logging.getLogger(__name__)


class ConfigurationFile:
    """A file, or the built-in configuration where there is none."""

    def __init__(self, path: str = "", profile: str = "", *, strict: bool = False) -> None:
        self.path = Path(path) if path else None
        self.profile = profile
        self._text = self._first_text()
        self._mark = self._seen()
        try:
            self._good = LastGood(self._text, profile, strict=strict)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}" if path else str(error)) from None
        #: why the file as it is now is not in use; "" when it is
        self._refused = ""
        self._report()

    def _first_text(self) -> str:
        if self.path is None:
            return ""
        try:
            return self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"--scheduler-conf: {self.path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"--scheduler-conf: {self.path} is not a text in UTF-8: {error}") from None

    @property
    def current(self) -> Configuration:
        """The configuration in use; the same object as long as nothing changes."""
        return self._good.current

    @property
    def complaints(self) -> tuple[str, ...]:
        """What of the file is not in use, a sentence each; empty when all of it is."""
        found = tuple(map(str, self.current.problems))
        return (f"{self.path}: {self._refused}", *found) if self._refused else found

    def refresh(self) -> bool:
        """Look at the file; True when another configuration is in use now."""
        mark = self._seen()
        if self.path is None or mark == self._mark:
            return False
        self._mark = mark
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._refuse(f"cannot be read: {error}; the last good configuration stays in use")
            return False
        if text == self._text:
            self._refused = ""
            return False
        if not self._good.reload(text, self._refuse):
            return False
        self._refused = ""
        self._text = text
        log.info("%s was read again", self.path)
        self._report()
        return True

    def _refuse(self, why: str) -> None:
        self._refused = why
        log.error("%s: %s", self.path, why)

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
            log.error("%s", problem)
        if self._good.current.usage is not None:
            log.warning(
                "usageDBConfig: historical usage is not queried in this version; shares are those of the moment"
            )
