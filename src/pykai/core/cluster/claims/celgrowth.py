"""How large a value a selector could make, judged from its text before it is compiled.

The CEL library bounds most of what an expression costs: how deep it nests, how often its loops turn, and its regular
expressions are those of RE2, which never search back.  What it does not bound is the size of texts and lists.  Sums
inside loops double them, and `replace` multiplies one by another, so forty bytes of text can ask for all the memory
there is.  Kubernetes refuses such expressions by estimating their cost; here the things that grow are counted.

A device selector compares attributes, so honest ones hardly use any of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

#: Macros that bind a variable: a sum inside one doubles what the one around it made.
_BINDING = frozenset(
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
#: Functions that put texts together, each as long as the other.
_MULTIPLYING = frozenset(["format", "join", "quote", "replace"])

#: Sums and macros together, where there are both; and beside a function that multiplies.
MOST_STEPS = 16
_STEPS_BESIDE = 4
#: Functions that multiply -> bytes of the expression they may be in.
_LONGEST_WITH = {0: None, 1: 2048, 2: 256}


def growth_problem(tokens: Sequence[str], length: int) -> str:
    """What would make the values of an expression of so many bytes too large; empty when nothing does."""
    calls = [token for token, after in pairwise(tokens) if after == "("]
    binding = sum(token in _BINDING for token in calls)
    multiplying = sum(token in _MULTIPLYING for token in calls)
    steps = binding + tokens.count("+") if binding else 0
    most = _STEPS_BESIDE if multiplying else MOST_STEPS
    if steps > most:
        return f"has {steps} sums and loops, at most {most} are allowed; write it without loops over sums"
    if multiplying not in _LONGEST_WITH:
        known = max(_LONGEST_WITH)
        return (
            f"calls {multiplying} functions that put texts together (replace, join, ...), at most {known} are allowed"
        )
    longest = _LONGEST_WITH[multiplying]
    if longest is not None and length > longest:
        return f"is longer than {longest} bytes, the most for one that puts texts together (replace, join, ...)"
    return ""
