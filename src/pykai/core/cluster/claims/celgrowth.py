"""How large the values of a selector could grow, estimated from its text before it is compiled.

The CEL library bounds most of what an expression costs: how deep it nests, how often its loops turn, and its regular
expressions are those of RE2, which do not backtrack.  It does not bound the size of strings and lists.  Sums inside
loops double them, and `replace` multiplies one by another, so an expression of forty bytes can exhaust the memory.
Kubernetes rejects such expressions by estimating their cost; here the operations that grow values are counted.

Device selectors compare attributes and hardly need any of these operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

#: Macros that bind a variable: a sum inside one doubles what the one around it made.
_BINDING_MACROS = frozenset(
    [
        "all",
        "bind",
        "exists",
        "exists_one",
        "existsOne",
        "filter",
        "map",
        "optFlatMap",
        "optMap",
        "transformList",
        "transformMap",
    ]
)
#: Functions that concatenate strings.
_MULTIPLYING_FUNCTIONS = frozenset(["format", "join", "quote", "replace"])

#: Sums and macros together, where there are both; and beside a function that multiplies.
MAX_GROWTH_STEPS = 16
_MAX_STEPS_MULTIPLYING = 4
#: Functions that multiply -> bytes of the expression they may be in.
_MAX_BYTES_BY_CALLS = {0: None, 1: 2048, 2: 256}


def growth_problem(tokens: Sequence[str], length: int) -> str:
    """What would make the values of an expression of so many bytes too large; empty when nothing does."""
    calls = [token for token, after in pairwise(tokens) if after == "("]
    binding = sum(token in _BINDING_MACROS for token in calls)
    multiplying = sum(token in _MULTIPLYING_FUNCTIONS for token in calls)
    steps = binding + tokens.count("+") if binding else 0
    max_steps = _MAX_STEPS_MULTIPLYING if multiplying else MAX_GROWTH_STEPS
    if steps > max_steps:
        return f"has {steps} sums and loops, at most {max_steps} are allowed; write it without loops over sums"
    if multiplying not in _MAX_BYTES_BY_CALLS:
        max_calls = max(_MAX_BYTES_BY_CALLS)
        return (
            f"calls {multiplying} functions that put texts together (replace, join, ...), "
            f"at most {max_calls} are allowed"
        )
    max_bytes = _MAX_BYTES_BY_CALLS[multiplying]
    if max_bytes is not None and length > max_bytes:
        return f"is longer than {max_bytes} bytes, the most for one that puts texts together (replace, join, ...)"
    return ""
