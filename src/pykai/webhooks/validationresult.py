"""What a validation says of an object: why it is refused, and what its author should know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Errors refuse the object; warnings are shown to who wrote it."""

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
