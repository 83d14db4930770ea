"""Writes a changed fragment into the text of a module, and leaves the rest of the text as it is.

In: a place that `tools/anchors.py` has found, and the nodes that are to stand there. Out: the text of the module, whose
syntax tree is that of the module with these nodes. The smallest possible piece of the text is rewritten: the fragment,
with or without parentheses, or the statement around it, or the one around that. Each attempt is parsed and compared
with the wanted tree, so what cannot be written in place (an `elif`, a part of an f-string, which has no position in
Python 3.11) is rewritten from further out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tools.anchors import EXACT, Binding, Freedom, Place, Source, Unanchored, same

_STATUS_ALIASES = Freedom(EXACT.names, EXACT.texts, bodies=False)


def spliced(place: Place, nodes: Sequence[ast.expr] | Sequence[ast.stmt]) -> str:
    """The text of the module with these nodes in place of the fragment."""
    parent, name, index = place.steps[-1]
    before = getattr(parent, name)
    if isinstance(nodes[0] if nodes else None, ast.expr):
        after = nodes[0] if index is None else [*before[:index], nodes[0], *before[index + 1 :]]
    else:
        assert index is not None, "statements stand in lists"
        after = [*before[:index], *nodes, *before[index + place.length :]]
        if not after and name == "body":
            after = nodes = [ast.Pass()]
    setattr(parent, name, after)
    try:
        for text in _attempts(place, nodes, before):
            if _is_wanted(text, place):
                return text
        text = ast.unparse(ast.fix_missing_locations(place.source.tree)) + "\n"
    except ValueError as error:
        raise Unanchored(f"cannot be written as Python: {error}") from None
    finally:
        setattr(parent, name, before)
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise Unanchored(f"is not Python: {error}") from None
    return text


def _is_wanted(text: str, place: Place) -> bool:
    """Whether the text is that of the changed tree; only the outermost statement with the change can differ."""
    try:
        is_so, wanted = ast.parse(text).body, place.source.tree.body
    except SyntaxError:
        return False
    if len(place.steps) > 1 and len(is_so) == len(wanted):
        index = place.steps[0][2]
        is_so, wanted = [is_so[index]], [wanted[index]]  # type: ignore[index]
    return same(wanted, is_so, _STATUS_ALIASES, Binding())


def _attempts(place: Place, nodes: Sequence[ast.AST], before: object) -> Iterator[str]:
    """Candidate texts, the smallest change first."""
    source, steps = place.source, place.steps
    if isinstance(nodes[0] if nodes else None, ast.expr):
        was: ast.expr = before[steps[-1][2]] if isinstance(before, list) else before  # type: ignore[assignment, index]
        if not any(isinstance(parent, ast.JoinedStr) for parent, _, _ in steps):
            text = ast.unparse(nodes[0])
            yield _replaced(source, was, text)
            yield _replaced(source, was, f"({text})")
    else:
        assert isinstance(before, list)
        index = steps[-1][2]
        assert index is not None
        yield from _written(source, before[index : index + place.length], nodes)  # type: ignore[arg-type]
    for depth in reversed(range(len(steps) - 1)):
        parent, name, index = steps[depth]
        if index is not None and isinstance(statement := getattr(parent, name)[index], ast.stmt):
            yield from _written(source, [statement], [statement])


def _written(source: Source, was: Sequence[ast.stmt], nodes: Sequence[ast.stmt]) -> Iterator[str]:
    """Statements in place of others; none where these do not begin a line."""
    first = was[0]
    decorators = getattr(first, "decorator_list", ())
    line = min([first.lineno, *(each.lineno for each in decorators)])
    lines = source.text.split("\n")
    indent = lines[first.lineno - 1].encode()[: first.col_offset].decode()
    if indent.strip():
        return
    # Within as many blocks as the indent is deep, so that texts of several lines are not indented.
    levels = len(indent) // 4
    block: list[ast.stmt] = list(nodes) or [ast.Pass()]
    for _ in range(levels):
        block = [ast.If(ast.Constant(True), block, [])]
    text = ast.unparse(ast.fix_missing_locations(ast.Module(block, [])))
    text = "\n".join(text.split("\n")[levels:]) if nodes else ""
    if lines[first.lineno - 1].startswith("elif", first.col_offset):
        text = text.replace("if", "elif", 1)
    # Blank lines and comments between definitions stay.
    end = was[-1].end_lineno
    assert end is not None
    rest = lines[end - 1].encode()[was[-1].end_col_offset :].decode()
    if rest.strip() and not rest.strip().startswith("#"):
        return
    yield "\n".join([*lines[: line - 1], *([text] if nodes else []), *lines[end:]])


def _replaced(source: Source, was: ast.expr, text: str) -> str:
    lines = source.text.split("\n")
    assert was.end_lineno is not None
    head = lines[was.lineno - 1].encode()[: was.col_offset].decode()
    tail = lines[was.end_lineno - 1].encode()[was.end_col_offset :].decode()
    return "\n".join([*lines[: was.lineno - 1], f"{head}{text}{tail}", *lines[was.end_lineno :]])
