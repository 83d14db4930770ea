"""Selectors of devices: CEL expressions over one device (gpu:D-20).

    device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].memory.isGreaterThan(quantity("40Gi"))

The library cel-expr-python parses and evaluates; it is an extra of the package (`pip install 'pykai[dra]'`).  Without
it, claims with selectors are refused and others work.  Kubernetes' own types are built on top: the library knows no
foreign types at run time, so a version and a quantity are maps of one entry whose key says which, in a canonical text.
Equal values are therefore equal maps, and member functions are declared on maps and look at the key.  What is not
there (other function libraries of Kubernetes) is a compile error that names the function; nothing is guessed.

Subtle: in Kubernetes `device.attributes["a.domain"]` of a domain without entries is an empty map, while
`"a.domain" in device.attributes` is false.  A plain map cannot be both, so before compiling, the indexing is rewritten
into a call of a function that falls back to an empty map.  The same walk over the tokens finds which attributes an
expression reads: if it is clear from the text, only these are handed over, and devices that agree in them share one
evaluation, whatever serial numbers they carry.

Statements: crowds:selectors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from pykai.api.quantity import SATURATED, nano_value
from pykai.api.resource import Device, DeviceAttribute, DeviceCapacity
from pykai.core.caching import Cache
from pykai.core.cluster.claims.celgrowth import growth_problem

#: Compiled expressions kept; a cluster has a handful of classes and a few selectors a team.
_MAX_COMPILED: Final = 512
#: Bytes of an expression; the API server takes no longer one.
MAX_EXPRESSION_BYTES: Final = 10 * 1024
#: Characters of an expression that a message shows.
_MAX_SHOWN: Final = 40
#: Answers kept for one expression.
_MAX_ANSWERS: Final = 1 << 16
_NANO: Final = 10**9

_QUANTITY: Final = "$quantity"
_VERSION: Final = "$version"
_DOMAIN: Final = "pykai_domain"

CelValue = str | int | bool | dict[str, str]
_DeviceEntry = DeviceAttribute | DeviceCapacity
EntryT = TypeVar("EntryT", DeviceAttribute, DeviceCapacity)


class SelectorError(ValueError):
    """An expression cannot be compiled, cannot be evaluated on a device, or says neither yes nor no."""

    def __init__(self, expression: str, problem: str) -> None:
        self.expression = expression
        self.problem = problem
        super().__init__(f"selector {expression}: {problem}")


class CompiledSelector(Protocol):
    """Says whether a device matches."""

    def matches(self, driver: str, device: Device) -> bool:
        """Whether the device matches; raises SelectorError when the expression fails on it."""


class EntryRead(NamedTuple):
    """An entry that an expression reads."""

    #: `attributes` or `capacity`
    table: str
    domain: str
    name: str


class ParsedExpression(NamedTuple):
    """An expression ready to compile."""

    text: str
    #: None: unknown from the text alone
    reads: tuple[EntryRead, ...] | None
    #: why it must not be evaluated, "" when it may
    problem: str = ""


@lru_cache(maxsize=_MAX_COMPILED)
def compile_selector(expression: str) -> CompiledSelector:
    """The selector of an expression; raises SelectorError when it does not compile."""
    if len(expression.encode(errors="replace")) > MAX_EXPRESSION_BYTES:
        raise SelectorError(_shown(expression), f"is longer than {MAX_EXPRESSION_BYTES} bytes")
    return _CelProgram(expression)


def _shown(expression: str) -> str:
    return expression if len(expression) <= _MAX_SHOWN else f"{expression[:_MAX_SHOWN]}..."


def find_entry(entries: Mapping[str, EntryT], driver: str, domain: str, name: str) -> EntryT | None:
    """The entry of a domain; a name without a domain belongs to the driver's."""
    entry = entries.get(f"{domain}/{name}")
    return entries.get(name) if entry is None and domain == driver else entry


def typed_value(attribute: DeviceAttribute) -> tuple[str, str | int | bool] | None:
    """The one value of an attribute and its type."""
    if attribute.string_value is not None:
        return ("string", attribute.string_value)
    if attribute.int_value is not None:
        return ("int", attribute.int_value)
    if attribute.bool_value is not None:
        return ("bool", attribute.bool_value)
    if attribute.version_value is not None:
        return ("version", attribute.version_value)
    return None


class _CelProgram:
    __slots__ = ("_answers", "_expression", "_program", "_reads")

    def __init__(self, expression: str) -> None:
        self._expression = expression
        text, self._reads, problem = parse_expression(expression)
        if problem:
            raise SelectorError(_shown(expression), problem)
        environment = _environment()
        if environment is None:
            raise SelectorError(expression, "evaluating it needs a CEL library: pip install 'pykai[dra]'")
        try:
            self._program = environment.compile(text)
        except RuntimeError as error:
            raise SelectorError(expression, str(error).partition("\n")[0]) from None
        kind = self._program.return_type().name()
        if kind not in ("BOOL", "DYN"):
            raise SelectorError(expression, f"gives {kind.lower()}, not bool")
        self._answers: Cache[object, bool | str] = Cache(_MAX_ANSWERS)

    def matches(self, driver: str, device: Device) -> bool:
        key, entries = self._facts(driver, device)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers.store(key, self._evaluate(driver, entries))
        if isinstance(answer, str):
            raise SelectorError(self._expression, answer)
        return answer

    def _facts(self, driver: str, device: Device) -> tuple[object, list[tuple[EntryRead, _DeviceEntry]]]:
        """What the answer depends on, and the entries to hand over."""
        if self._reads is None:
            everything = (driver, tuple(device.attributes.items()), tuple(device.capacity.items()))
            return everything, [
                *_all_entries("attributes", device.attributes, driver),
                *_all_entries("capacity", device.capacity, driver),
            ]
        read_entries = [
            (
                item,
                find_entry(device.attributes, driver, item.domain, item.name)
                if item.table == "attributes"
                else find_entry(device.capacity, driver, item.domain, item.name),
            )
            for item in self._reads
        ]
        return (driver, *(entry for _, entry in read_entries)), [
            (item, entry) for item, entry in read_entries if entry is not None
        ]

    def _evaluate(self, driver: str, entries: list[tuple[EntryRead, _DeviceEntry]]) -> bool | str:
        """The result, or the error."""
        tables: dict[str, dict[str, dict[str, CelValue]]] = {"attributes": {}, "capacity": {}}
        try:
            for item, entry in entries:
                value = _cel_value(entry)
                if value is not None:
                    tables[item.table].setdefault(item.domain, {})[item.name] = value
        except ValueError as error:
            return str(error)
        facts = {"driver": driver, "allowMultipleAllocations": False, **tables}
        try:
            result = self._program.eval(data={"device": facts})
        except RuntimeError as error:
            # The library ends loops that take too long this way.
            return str(error)
        kind = result.type().name()
        if kind == "BOOL":
            return bool(result.value())
        try:
            return str(result.value()) if kind == "ERROR" else f"gives {kind.lower()}, not bool"
        except TypeError:
            # The library takes values it cannot turn into Python's (an optional) for errors without a text.
            return "gives a value that is not bool"


def _all_entries(table: str, entries: Mapping[str, EntryT], driver: str) -> list[tuple[EntryRead, _DeviceEntry]]:
    """Every entry of a device by its full name."""
    named_entries: list[tuple[EntryRead, _DeviceEntry]] = []
    for name, entry in entries.items():
        domain, slash, identifier = name.partition("/")
        named_entries.append((EntryRead(table, domain, identifier) if slash else EntryRead(table, driver, name), entry))
    return named_entries


def _cel_value(entry: _DeviceEntry) -> CelValue | None:
    if isinstance(entry, DeviceCapacity):
        return _quantity(entry.value)
    type_and_value = typed_value(entry)
    if type_and_value is None:
        return None
    return _semver(str(type_and_value[1])) if type_and_value[0] == "version" else type_and_value[1]


# Tokens of CEL, as far as strings, comments and names must be told apart.
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<raw>(?i:r|rb|br)(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*'))
    |(?P<string>[bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_TABLES: Final = ("attributes", "capacity")


def parse_expression(expression: str) -> ParsedExpression:
    """The expression with its indexing of domains made safe, and what it reads."""
    tokens = [match.group() for match in _TOKEN.finditer(expression)]
    # The pattern has a last resort of any one character, so it matches every token it has found.
    significant = [place for place, token in enumerate(tokens) if not _TOKEN.fullmatch(token)["space"]]  # type: ignore[index]
    texts = [tokens[place] for place in significant] + [""] * 8
    closing = _closing_brackets(texts)
    reads: dict[EntryRead, None] = {}
    all_reads_known = True
    for position in range(len(significant)):
        if texts[position] != "device" or (position and texts[position - 1] == "."):
            continue
        if texts[position + 1] == "." and texts[position + 2] in ("driver", "allowMultipleAllocations"):
            continue
        if texts[position + 1] != "." or texts[position + 2] not in _TABLES or texts[position + 3] != "[":
            all_reads_known = False
            continue
        end = closing.get(position + 3)
        if end is None:
            all_reads_known = False
            continue
        optional = texts[position + 4] == "?"
        tokens[significant[position + 3]] = f".{_DOMAIN}("
        tokens[significant[end]] = "))" if optional else ")"
        if optional:
            # The map of a domain always exists, possibly empty.
            tokens[significant[position]] = "optional.of(device"
            tokens[significant[position + 4]] = ""
        domain = _literal(texts[end - 1]) if end == position + 5 + optional else None
        name = _entry_name(texts, end + 1)
        if domain is None or name is None:
            all_reads_known = False
        else:
            reads[EntryRead(texts[position + 2], domain, name)] = None
    problem = growth_problem(texts, len(expression.encode(errors="replace")))
    return ParsedExpression("".join(tokens), tuple(reads) if all_reads_known else None, problem)


def _closing_brackets(texts: list[str]) -> dict[int, int]:
    """Opening square brackets -> where they are closed, in one pass; those without an end are left out."""
    closings: dict[int, int] = {}
    opened: list[int] = []
    for position, text in enumerate(texts):
        if text in ("[", "(", "{"):
            opened.append(position)
        elif text in ("]", ")", "}") and opened:
            begin = opened.pop()
            if texts[begin] == "[" and text == "]":
                closings[begin] = position
    return closings


def _literal(text: str) -> str | None:
    """The content of a plain string literal."""
    plain = len(text) >= 2 and text[0] in "\"'" and "\\" not in text and not text.startswith(('"""', "'''"))
    return text[1:-1] if plain else None


def _entry_name(texts: list[str], at: int) -> str | None:
    """The entry taken from a domain: `.name`, `.?name`, `["name"]` or `[?"name"]`; None for anything else."""
    opening, optional = texts[at], texts[at + 1] == "?"
    name = texts[at + 1 + optional]
    if opening == "." and name.isidentifier() and texts[at + 2 + optional] != "(":
        return name
    return _literal(name) if opening == "[" and texts[at + 2 + optional] == "]" else None


@lru_cache(maxsize=1)
def _environment() -> Any:
    """The CEL environment of device selectors, None when the library is not installed."""
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings
    except ImportError:
        return None
    kinds = cel.Type
    values = {"str": kinds.STRING, "int": kinds.INT, "bool": kinds.BOOL, "map": kinds.MAP, "float": kinds.DOUBLE}

    def declare(name: str, overloads: list[tuple[str, str, Callable[..., Any]]], member: bool) -> Any:
        return cel.FunctionDecl(
            name,
            [
                cel.Overload(
                    f"{name}_{parameters.replace(' ', '_')}",
                    kinds.DYN if gives == "dyn" else values[gives],
                    [values[parameter] for parameter in parameters.split()],
                    member,
                    function,
                )
                for parameters, gives, function in overloads
            ],
        )

    return cel.NewEnv(
        variables={"device": kinds.DYN},
        extensions=[
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
            ext_bindings.ExtBindings(),
            ext_math.ExtMath(),
        ],
        functions=[
            *(declare(name, overloads, False) for name, overloads in _FUNCTIONS.items()),
            *(declare(name, overloads, True) for name, overloads in _MEMBERS.items()),
        ],
    )


_SEMVER: Final = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


def _semver(text: str, normalize: bool = False) -> dict[str, str]:
    """A version; build metadata behind `+` does not affect comparisons and is left out."""
    match = _SEMVER.fullmatch(_normalised_version(text) if normalize else text)
    if match is None:
        raise ValueError(f"{text!r} is not a semantic version")
    core = ".".join(match.group(1, 2, 3))
    return {_VERSION: f"{core}-{match[4]}" if match[4] else core}


def _normalised_version(text: str) -> str:
    """A version with a leading v, fewer than three numbers or leading zeros, written in full."""
    # Every part may be empty, so the pattern matches any text.
    numbers, mark, rest = re.fullmatch(r"v?([^-+]*)([-+]?)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    parts = [part.lstrip("0") or "0" if part.isdigit() else part for part in numbers.split(".")]
    return ".".join([*parts, *["0"] * (3 - len(parts))]) + mark + rest


def _quantity(value: str | int | float) -> dict[str, str]:
    return {_QUANTITY: str(nano_value(value))}


def _nanos(value: Mapping[str, str]) -> int:
    if _QUANTITY not in value:
        raise ValueError("expected a quantity")
    return int(value[_QUANTITY])


def _version(value: Mapping[str, str]) -> tuple[list[int], list[tuple[int, int, str]]]:
    """Numbers and pre-release of a version, ordered as semantic versions are."""
    if _VERSION not in value:
        raise ValueError("expected a version")
    core, dash, before = value[_VERSION].partition("-")
    # A release comes after all its pre-releases; numbers come before words.
    words = [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in before.split(".")]
    return [int(number) for number in core.split(".")], words if dash else [(2, 0, "")]


def _compare(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    if _VERSION in one:
        left, right = _version(one), _version(other)
        return (left > right) - (left < right)
    difference = _nanos(one) - _nanos(other)
    return (difference > 0) - (difference < 0)


def _as_integer(value: Mapping[str, str]) -> int:
    units, rest = divmod(_nanos(value), _NANO)
    if rest or abs(units) >= SATURATED:
        raise ValueError("the quantity is not a whole number of 64 bits")
    return units


def _parses(parse: Callable[..., object], *arguments: object) -> bool:
    try:
        parse(*arguments)
    except ValueError:
        return False
    return True


def _add_nanos(value: Mapping[str, str], nanos: int) -> dict[str, str]:
    return {_QUANTITY: str(_nanos(value) + nanos)}


#: name -> overloads: types of the parameters, type of the result, function
_FUNCTIONS: Final[dict[str, list[tuple[str, str, Callable[..., Any]]]]] = {
    "quantity": [("str", "map", _quantity)],
    "isQuantity": [("str", "bool", lambda text: _parses(_quantity, text))],
    "semver": [("str", "map", _semver), ("str bool", "map", _semver)],
    "isSemver": [
        ("str", "bool", lambda text: _parses(_semver, text)),
        ("str bool", "bool", lambda text, normalize: _parses(_semver, text, normalize)),
    ],
}
_MEMBERS: Final[dict[str, list[tuple[str, str, Callable[..., Any]]]]] = {
    _DOMAIN: [("map str", "dyn", lambda table, domain: table.get(domain, {}))],
    "compareTo": [("map map", "int", _compare)],
    "isGreaterThan": [("map map", "bool", lambda one, other: _compare(one, other) > 0)],
    "isLessThan": [("map map", "bool", lambda one, other: _compare(one, other) < 0)],
    "major": [("map", "int", lambda value: _version(value)[0][0])],
    "minor": [("map", "int", lambda value: _version(value)[0][1])],
    "patch": [("map", "int", lambda value: _version(value)[0][2])],
    "sign": [("map", "int", lambda value: (_nanos(value) > 0) - (_nanos(value) < 0))],
    "isInteger": [("map", "bool", lambda value: _parses(_as_integer, value))],
    "asInteger": [("map", "int", _as_integer)],
    "asApproximateFloat": [("map", "float", lambda value: _nanos(value) / _NANO)],
    "add": [
        ("map map", "map", lambda one, other: _add_nanos(one, _nanos(other))),
        ("map int", "map", lambda one, units: _add_nanos(one, units * _NANO)),
    ],
    "sub": [
        ("map map", "map", lambda one, other: _add_nanos(one, -_nanos(other))),
        ("map int", "map", lambda one, units: _add_nanos(one, -units * _NANO)),
    ],
}
