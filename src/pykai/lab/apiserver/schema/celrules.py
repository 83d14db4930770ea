"""Rules of a CRD written in CEL: `x-kubernetes-validations`.

    self.minAvailable <= self.replicas

The library cel-expr-python evaluates them; it is an extra of the package (`pip install 'pykai[dra]'`). Without it the
rules are not checked, and the server's documentation says so. A rule that uses `oldSelf` applies to updates only:
`transition_checks` returns these separately. A rule that cannot be compiled checks nothing, so that functions of
Kubernetes which the library lacks do not refuse every object; one that fails on a value refuses it, as a real server
does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pykai.lab.apiserver.schema.model import FieldProblem, TransitionCheck, ValueCheck

_log = logging.getLogger(__name__)
_INVALID: Final = "FieldValueInvalid"
_OLD: Final = re.compile(r"\boldSelf\b")


def expression_checks(source: Mapping[str, Any]) -> list[ValueCheck]:
    """One check per rule of this node that uses the value alone."""
    return [_value_check(holds) for holds in _compiled_rules(source, transitions=False)]


def transition_checks(source: Mapping[str, Any]) -> tuple[TransitionCheck, ...]:
    """One check per rule of this node that compares the value with the old one."""
    return tuple(_compiled_rules(source, transitions=True))


def _value_check(compare: TransitionCheck) -> ValueCheck:
    return lambda value, path, found: compare(None, value, path, found)


def _compiled_rules(source: Mapping[str, Any], *, transitions: bool) -> list[TransitionCheck]:
    checks: list[TransitionCheck] = []
    for entry in source.get("x-kubernetes-validations") or ():
        rule = str(entry.get("rule") or "")
        if rule and (_OLD.search(rule) is not None) is transitions:
            program = _compiled(rule)
            if program is not None:
                checks.append(_check(program, rule, entry, str(source.get("type") or "object")))
    return checks


def _check(program: Any, rule: str, entry: Mapping[str, Any], kind: str) -> TransitionCheck:
    message = str(entry.get("message") or f"failed rule: {' '.join(rule.split())}")
    reason = str(entry.get("reason") or _INVALID)
    suffix = str(entry.get("fieldPath") or "")

    def check(old: Any, value: Any, path: str, problems: list[FieldProblem]) -> None:
        try:
            answer = program.eval(data={"self": value, "oldSelf": old})
            holds = answer.value() if answer.type().name() == "BOOL" else None
            problem = None if holds is not None else f"{answer.value()} evaluating rule: {message}"
        except (RuntimeError, TypeError) as error:
            holds, problem = None, f"{error} evaluating rule: {message}"
        if holds is True:
            return
        at = f"{path}{suffix}".removeprefix(".")
        if reason == "FieldValueRequired":
            problems.append(FieldProblem(at, reason, f"Required value: {problem or message}"))
        else:
            shown = "" if kind in ("array", "object") else f'"{kind}": '
            problems.append(FieldProblem(at, reason, f"Invalid value: {shown}{problem or message}"))

    return check


@cache
def _compiled(rule: str) -> Any:
    environment = _environment()
    if environment is None:
        return None
    try:
        return environment.compile(rule)
    except RuntimeError as error:
        _log.warning("a validation rule does not compile and is not checked: %s: %s", rule, str(error).split("\n")[0])
        return None


@cache
def _environment() -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings
    except ImportError:
        return None
    return cel.NewEnv(
        variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN},
        extensions=[
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
            ext_bindings.ExtBindings(),
            ext_math.ExtMath(),
        ],
    )
