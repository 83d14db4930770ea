"""The result of a validation: errors and warnings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Errors refuse the object; warnings are shown to its author."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the object may be written."""
        return not self.errors

    @property
    def message(self) -> str:
        """All errors, a line each."""
        return "\n".join(self.errors)
