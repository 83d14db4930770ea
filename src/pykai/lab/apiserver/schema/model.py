"""One node of a schema: what a value may be, how it merges, what it defaults to, how protobuf writes it.

`table` makes graphs of these nodes from the built-in table and from the OpenAPI schemas of CRDs; validation, defaults,
pruning, patches, server-side apply, protobuf and the OpenAPI document all read the same graph. Nodes never change once
built; a built-in graph may have cycles (a JSON schema holds JSON schemas).

Subtle: properties of a field rather than of its type (list type, merge key, atomic) are in the field's own node;
`fields` of a struct that several fields refer to is one shared dict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

PythonType = type
_PLAIN: Final[dict[str, PythonType]] = {"string": str, "boolean": bool}

#: Adds problems of a value: (value, path, found).
ValueCheck = Callable[[Any, str, "list[FieldProblem]"], None]
#: Adds problems of a change: (old, new, path, found).
TransitionCheck = Callable[[Any, Any, str, "list[FieldProblem]"], None]


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A problem of one field; `kind` is the reason of a Status cause, such as `FieldValueInvalid`."""

    path: str
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(slots=True, eq=False, repr=False)
class SchemaNode:
    """A value's shape."""

    #: object (with `fields`, or a map with `values`), list, string, integer, number, boolean, or any
    type: str
    #: of scalars: quantity, int-or-string, time, microtime, duration, bytes, int32, int64, double; or an OpenAPI format
    format: str = ""
    #: a struct's name in the built-in table
    name: str = ""
    builtin: bool = False
    fields: dict[str, SchemaNode] = field(default_factory=dict)
    #: the values of a map
    values: SchemaNode | None = None
    #: the elements of a list
    items: SchemaNode | None = None
    #: atomic, set or map
    list_type: str = "atomic"
    #: keys of a list of type map
    keys: tuple[str, ...] = ()
    #: server-side apply replaces the object as a whole
    atomic: bool = False
    #: strategy of a strategic merge patch: empty, replace, merge, retainKeys or `merge,retainKeys`
    patch: str = ""
    patch_key: str = ""
    #: structs that Go holds by value, and lists it always writes: absent and empty are the same to it
    by_value: set[str] = field(default_factory=set)
    required: tuple[str, ...] = ()
    #: of built-ins: fields that must be present and not empty
    required_nonempty: tuple[str, ...] = ()
    #: values of absent fields
    defaults: dict[str, Any] = field(default_factory=dict)
    enum: tuple[Any, ...] = ()
    nullable: bool = False
    #: unknown fields are kept
    preserves_unknown: bool = False
    #: holds an object of its own, with apiVersion, kind and metadata
    embedded: bool = False
    #: protobuf: field number -> (name, a zero means absent); the name of an inlined struct is empty
    numbers: dict[int, tuple[str, bool]] = field(default_factory=dict)
    inline: dict[int, SchemaNode] = field(default_factory=dict)
    #: checks of the value beyond its type
    checks: tuple[ValueCheck, ...] = ()
    #: checks of a change of the value
    transitions: tuple[TransitionCheck, ...] = ()
    #: whether this node or one below it has such checks
    has_transition_checks: bool = False
    #: the OpenAPI schema from the CRD
    source: dict[str, Any] = field(default_factory=dict)
    #: fields that are no scalars, the only ones that pruning descends into; filled with `fields`
    container_fields: dict[str, SchemaNode] = field(default_factory=dict)
    #: fields whose values need nothing but this Python type; filled with `fields`
    plain_types: dict[str, PythonType] = field(default_factory=dict)
    #: fields below which something has a default; None until first used
    defaulting: dict[str, SchemaNode] | None = None

    def __repr__(self) -> str:
        return f"Schema({self.type}{' ' + self.name if self.name else ''})"

    def add_field(self, name: str, child: SchemaNode) -> None:
        """Add a field while the schema is being built."""
        self.fields[name] = child
        if not child.is_scalar:
            self.container_fields[name] = child
        elif child.type in _PLAIN and not (child.format or child.enum or child.checks):
            self.plain_types[name] = _PLAIN[child.type]

    @property
    def is_scalar(self) -> bool:
        """Whether values of this shape are scalars."""
        return self.type not in ("object", "list")

    def child(self, name: str) -> SchemaNode | None:
        """The shape of a field or of a map's value."""
        child = self.fields.get(name)
        return child if child is not None else self.values
