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

    def with_finding(self, text: str, *, is_error: bool) -> ValidationResult:
        """The same with one more error or warning, unless the text is empty."""
        if not text:
            return self
        if is_error:
            return ValidationResult((*self.errors, text), self.warnings)
        return ValidationResult(self.errors, (*self.warnings, text))

    @property
    def message(self) -> str:
        """All errors, a line each."""
        return "\n".join(self.errors)
