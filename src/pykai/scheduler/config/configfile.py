"""The configuration file of a running scheduler, read again when it changes.

A file with errors stops the program at start-up; later the last good configuration stays in use.  Modification time and
size of the file are checked once a period, which also covers files that are replaced as a whole (ConfigMap volumes).

Skipped entries, and the reason why a changed file is not in use, are logged as errors and listed in `problems`, from
which the scheduler makes an event, a metric and a line in `/readyz`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import yaml

from pykai.core.plugins import DEFAULT_ACTIONS, DEFAULT_PROFILE, PROFILES
from pykai.scheduler.config.configuration import Configuration, ConfigurationError, LastGoodConfiguration

log = logging.getLogger(__name__)


class ConfigurationFile:
    """A file, or the built-in configuration where there is none."""

    def __init__(self, path: str = "", profile: str = "", *, strict: bool = False) -> None:
        self.path = Path(path) if path else None
        self.profile = profile
        self._text = self._read_initial_text()
        self._file_state = self._read_file_state()
        try:
            self._last_good = LastGoodConfiguration(self._text, profile, strict=strict)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}" if path else str(error)) from None
        #: why the current file is not in use; "" if it is
        self._rejection = ""
        #: a text from elsewhere, after which the file is not looked at any more
        self._offered: str | None = None
        #: the text that was rejected last, which need not be read again
        self._rejected: str | None = None
        self._source = str(self.path)
        self._log_problems()

    def _read_initial_text(self) -> str:
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
        return self._last_good.current

    @property
    def problems(self) -> tuple[str, ...]:
        """The parts of the file that are not in use, a sentence each; empty if all of it is."""
        skipped = tuple(map(str, self.current.problems))
        return (f"{self._source}: {self._rejection}", *skipped) if self._rejection else skipped

    def offer(self, text: str, source: str) -> None:
        """Take the text from elsewhere, at the next `refresh` and from then on: the file may be older."""
        self._offered, self._source = text, source

    def refresh(self) -> bool:
        """Check for another text; True if another configuration is in use now."""
        text = self._read_changed_file() if self._offered is None else self._offered
        if text is None or text == self._rejected:
            return False
        if text == self._text:
            self._rejection = ""
            self._rejected = None
            return False
        if not self._last_good.reload(text, self._reject):
            self._rejected = text
            return False
        self._rejection = ""
        self._rejected = None
        self._text = text
        log.info("%s was read again", self._source)
        self._log_problems()
        return True

    def _read_changed_file(self) -> str | None:
        file_state = self._read_file_state()
        if self.path is None or file_state == self._file_state:
            return None
        self._file_state = file_state
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._reject(f"cannot be read: {error}; the last good configuration stays in use")
            return None

    def _reject(self, why: str) -> None:
        self._rejection = why
        log.error("%s: %s", self._source, why)

    def content(self) -> dict[str, Any]:
        """The configuration as upstream's tools read it: the file, or the built-in one."""
        document = yaml.safe_load(self._text) if self._text else None
        if isinstance(document, dict) and document:
            return document
        plugins = PROFILES.get(self.profile or DEFAULT_PROFILE, PROFILES[DEFAULT_PROFILE])
        listed = [{"name": name, "arguments": dict(arguments)} for name, arguments in plugins]
        return {"actions": ", ".join(DEFAULT_ACTIONS), "tiers": [{"plugins": listed}]}

    def _read_file_state(self) -> tuple[int, int, int] | None:
        if self.path is None:
            return None
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _log_problems(self) -> None:
        for problem in self._last_good.current.problems:
            log.error("%s", problem)
