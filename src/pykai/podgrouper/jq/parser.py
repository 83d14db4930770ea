"""From tokens to the parts of an expression, by precedence climbing; raises `JqSyntaxError`.

From loose to tight: `|` and `as`, `,`, `//`, `or`, `and`, comparisons, `+ -`, `* / %`, and what stands behind a term.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykai.podgrouper.jq import nodes, values
from pykai.podgrouper.jq.budget import MAX_DEPTH, JqError, JqSyntaxError
from pykai.podgrouper.jq.functions import FUNCTIONS
from pykai.podgrouper.jq.lexer import Token, tokens
from pykai.podgrouper.jq.nodes import JqNode


class _Level(NamedTuple):
    tightness: int
    associates: str


_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")
_LEVELS: Final[dict[str, _Level]] = {
    "|": _Level(1, "right"),
    ",": _Level(2, "left"),
    "//": _Level(3, "right"),
    "or": _Level(4, "left"),
    "and": _Level(5, "left"),
    **dict.fromkeys(_COMPARISONS, _Level(6, "none")),
    **dict.fromkeys(("+", "-"), _Level(7, "left")),
    **dict.fromkeys(("*", "/", "%"), _Level(8, "left")),
}
_KEYWORDS: Final = frozenset(
    ("__loc__", "def", "foreach", "import", "include", "label", "module", "reduce", "try", "catch", "break")
)
_PUNCTUATION: Final = frozenset(("as", "and", "or", "then", "elif", "else", "end"))


def parse(text: str) -> JqNode:
    """The parts of an expression."""
    parser = _Parser(text)
    try:
        node = parser.expression(0)
    except nodes.TooDeep as error:
        raise JqSyntaxError(text, error.position, f"the expression has more than {MAX_DEPTH} levels") from None
    parser.expect_end()
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._next = 0
        self._nesting = 0
        #: variables in scope, innermost last
        self._variables: list[str] = []

    def expression(self, tightness: int) -> JqNode:
        """An expression of operators that bind at least as tightly."""
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            raise nodes.TooDeep(self._peek().position)
        left = self._term()
        if self._is_word("as"):
            # Versions of jq differ in what is bound here.
            if tightness > _LEVELS["|"].tightness:
                raise self._error(self._peek(), "put all of `... as $name | ...` into parentheses")
            left = self._binding(left)
        while (level := _LEVELS.get(self._operator())) is not None and level.tightness >= tightness:
            token = self._take()
            right = self.expression(level.tightness + (level.associates != "right"))
            left = self._combined(token, left, right)
            if level.associates == "none" and self._operator() in _COMPARISONS:
                raise self._error(self._peek(), "comparisons cannot be chained; use parentheses")
        self._nesting -= 1
        return left

    def expect_end(self) -> None:
        """Nothing may follow."""
        if self._peek().kind != "end":
            raise self._unexpected("an operator or the end")

    def _combined(self, token: Token, left: JqNode, right: JqNode) -> JqNode:
        position = token.position
        match token.value:
            case "|":
                return nodes.Pipe(position, left, right)
            case ",":
                return nodes.Comma(position, left, right)
            case "//":
                return nodes.JqAlternative(position, left, right)
            case "or":
                return nodes.Logic(position, left, right, decisive=True)
            case "and":
                return nodes.Logic(position, left, right, decisive=False)
            case operator:
                return nodes.Operation(position, operator, left, right)

    def _binding(self, source: JqNode) -> JqNode:
        position = self._take().position
        name = self._take()
        if name.kind != "variable":
            raise self._error(name, "a pattern behind `as` is not part of the subset; write `as $name |`")
        self._expect("|")
        self._variables.append(name.value)
        body = self.expression(1)
        self._variables.pop()
        return nodes.JqBind(position, source, name.value, body)

    def _term(self) -> JqNode:
        token = self._take()
        node = self._simple_term(token)
        # Parentheses make a whole of what they hold.
        closed = token.value == "("
        while True:
            following = self._peek()
            if following.kind == "field":
                self._take()
                node = nodes.Index(following.position, node, nodes.Literal(following.position, following.value))
            elif following.value == "." and following.kind == "operator":
                self._take()
                if not self._is_operator("["):
                    node = nodes.Index(following.position, node, self._quoted_key())
            elif self._is_operator("["):
                node = self._brackets(node)
            elif self._is_operator("?"):
                position = self._take().position
                node = nodes.Suppress(position, node) if closed else self._optional(node, position)
                continue
            else:
                return node
            closed = False

    def _simple_term(self, token: Token) -> JqNode:
        position = token.position
        match token.kind, token.value:
            case "operator", ".":
                dot = nodes.Identity(position)
                if self._peek().kind == "text":
                    return nodes.Index(position, dot, self._quoted_key())
                return dot
            case "field", name:
                return nodes.Index(position, nodes.Identity(position), nodes.Literal(position, name))
            case "text", text:
                return nodes.Literal(position, text)
            case "number", digits:
                return nodes.Literal(position, self._number(token, digits))
            case "variable", name:
                if name not in self._variables:
                    raise self._error(token, f"the variable ${name} is not set")
                return nodes.Variable(position, name)
            case "operator", "(":
                node = self.expression(0)
                self._expect(")")
                return node
            case "operator", "[":
                if self._is_operator("]"):
                    self._take()
                    return nodes.Collect(position)
                node = nodes.Collect(position, self.expression(0))
                self._expect("]")
                return node
            case "operator", "-" if self._peek().kind == "number":
                absolute = self._take()
                return nodes.Literal(position, self._number(absolute, f"-{absolute.value}"))
            case "word", "if":
                return self._condition(position)
            case "word", name if name not in _PUNCTUATION:
                return self._call(token)
            case _:
                raise self._unexpected("a path, a value or a function", token)

    def _optional(self, node: JqNode, position: int) -> JqNode:
        """A `?` suppresses the errors of the last step of a path, not of the steps before it."""
        match node:
            case nodes.Index(base=base, key=key, optional=False):
                return nodes.Index(node.position, base, key, optional=True)
            case nodes.Iterate(base=base, optional=False):
                return nodes.Iterate(node.position, base, optional=True)
            case _:
                return nodes.Suppress(position, node)

    def _quoted_key(self) -> JqNode:
        token = self._take()
        if token.kind != "text":
            raise self._unexpected('a field, as in .name or ."name",', token)
        return nodes.Literal(token.position, token.value)

    def _brackets(self, base: JqNode) -> JqNode:
        position = self._take().position
        if self._is_operator("]"):
            self._take()
            return nodes.Iterate(position, base)
        if self._is_operator(":"):
            raise self._error(self._peek(), "a slice is not part of the subset")
        key = self.expression(0)
        if self._is_operator(":"):
            raise self._error(self._peek(), "a slice is not part of the subset")
        self._expect("]")
        return nodes.Index(position, base, key)

    def _condition(self, position: int) -> JqNode:
        condition = self.expression(0)
        self._expect("then")
        then = self.expression(0)
        following = self._take()
        if following.kind == "word" and following.value == "elif":
            self._nesting += 1
            if self._nesting > MAX_DEPTH:
                raise nodes.TooDeep(following.position)
            otherwise = self._condition(following.position)
            self._nesting -= 1
            return nodes.If(position, condition, then, otherwise)
        if following.kind == "word" and following.value == "else":
            otherwise = self.expression(0)
            self._expect("end")
            return nodes.If(position, condition, then, otherwise)
        if following.value != "end":
            raise self._unexpected("`elif`, `else` or `end`", following)
        return nodes.If(position, condition, then, nodes.Identity(position))

    def _call(self, token: Token) -> JqNode:
        name = token.value
        if name in _KEYWORDS:
            raise self._error(token, f"`{name}` is not part of the subset")
        arguments: list[JqNode] = []
        if self._is_operator("("):
            separator = "("
            while separator != ")":
                self._take()
                arguments.append(self.expression(0))
                separator = self._operator()
                if separator not in (";", ")"):
                    raise self._unexpected("`;` or `)`")
            self._take()
        function = FUNCTIONS.get((name, len(arguments)))
        if function is None:
            counts = sorted(count for known, count in FUNCTIONS if known == name)
            if counts:
                takes = " or ".join(map(str, counts))
                raise self._error(token, f"the function {name} takes {takes} arguments, not {len(arguments)}")
            raise self._error(token, f"the function {name} is not part of the subset")
        return nodes.JqCall(token.position, name, function, tuple(arguments))

    def _number(self, token: Token, digits: str) -> int | float:
        try:
            return values.number(float(digits))
        except JqError:
            raise self._error(token, "the number is too large") from None

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def _operator(self) -> str:
        token = self._peek()
        return token.value if token.kind in ("operator", "word") else ""

    def _is_operator(self, value: str) -> bool:
        token = self._peek()
        return token.kind == "operator" and token.value == value

    def _is_word(self, value: str) -> bool:
        token = self._peek()
        return token.kind == "word" and token.value == value

    def _expect(self, value: str) -> None:
        if self._operator() != value:
            raise self._unexpected(f"`{value}`")
        self._take()

    def _unexpected(self, wanted: str, token: Token | None = None) -> JqSyntaxError:
        token = token or self._peek()
        found = "the end" if token.kind == "end" else f"{token.value!r}"
        return self._error(token, f"{wanted} is expected, not {found}")

    def _error(self, token: Token, reason: str) -> JqSyntaxError:
        return JqSyntaxError(self._text, token.position, reason)
