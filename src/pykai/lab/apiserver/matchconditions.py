"""Match conditions of webhooks: CEL expressions over `object`, `oldObject` and `request`.

The library cel-expr-python evaluates them (extra `dra`); without it every condition is an error, which the webhook's
failurePolicy handles.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any


def evaluate_condition(expression: str, variables: Mapping[str, Any]) -> bool:
    """Whether the condition is met; ValueError if it cannot be evaluated."""
    program = _compiled(expression)
    try:
        answer = program.eval(data=dict(variables))
        result = answer.value() if answer.type().name() == "BOOL" else None
    except (RuntimeError, TypeError) as error:
        raise ValueError(str(error).split("\n")[0]) from None
    if result is None:
        raise ValueError(str(answer.value()))
    return result is True


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:
    environment = _environment()
    if environment is None:
        raise ValueError("the CEL library is not installed (pip install 'pykai[dra]')")
    try:
        return environment.compile(expression)
    except RuntimeError as error:
        raise ValueError(str(error).split("\n")[0]) from None


@cache
def _environment() -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings
    except ImportError:
        return None
    return cel.NewEnv(
        variables=dict.fromkeys(("object", "oldObject", "request"), cel.Type.DYN),
        extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
    )
