"""A subset of the language jq, for expressions that say where an object holds its replicas, roles and names.

`compile_jq(text)` parses an expression, once; `Expression.outputs(value, budget)` gives its results for a JSON value.
Pure: an expression reads its input and nothing else, and changes nothing.

Part of the subset, with the meaning that jq 1.8 gives them:

- paths: `.`, `.a.b`, `."a b"`, `.["a/b"]`, `.[0]`, `.[]`, `.[EXPRESSION]`, each with `?` behind it;
- `|`, `,`, `//`, `and`, `or`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `+`, `-`, `*`, `/`, `%`, parentheses;
- numbers, text, `true`, `false`, `null`, `[...]`, `if ... then ... elif ... else ... end`, `... as $name | ...`;
- the functions of `functions.FUNCTIONS`.

Refused when an expression is parsed, by name: `..`, assignments, `def`, `reduce`, `foreach`, `try`, `label`, formats
(`@text`), text with `\\(...)`, slices, objects (`{...}`), patterns, and every function that is not listed.

Subtle: tenants write the values, so no work may depend on their size alone.  A `Budget` of steps is shared by all
expressions of one decision, and work on long text and long lists costs more steps; `JqLimit` ends the evaluation.
Values are never walked recursively, and an expression has a bounded length and depth, so the stack is bounded too.
"""

from __future__ import annotations

from pykai.podgrouper.jq.budget import Budget, JqError, JqLimit, JqSyntaxError, JqUnsupported
from pykai.podgrouper.jq.expression import JqExpression, compile_jq
from pykai.podgrouper.jq.values import Json

__all__ = ["Budget", "JqExpression", "Json", "JqError", "JqLimit", "JqSyntaxError", "JqUnsupported", "compile_jq"]
