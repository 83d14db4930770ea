"""Why a pod does not run, in the words of a kubelet."""

from __future__ import annotations


class CannotRun(Exception):
    """A container cannot be started as its pod asks; it may be once something else has changed."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
