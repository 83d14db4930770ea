"""What all wire types share: the Struct base, object metadata and label selectors.

Structs carry only the fields a scheduler reads; unknown fields are skipped while decoding, so a newer API server does
no harm. Enumerations are plain text, so that newer values survive. Every field has a default. Structs are
frozen, because the same object is shared by caches, snapshots and threads; `msgspec.structs.replace` makes a changed
copy. They are pruned: never write one back over the object it came from.

Lists of pods and nodes are tuples: the garbage collector forgets a tuple of such Structs once it has seen it, while
it would walk over each list again and again (a full collection over 20,000 pods: 6 instead of 176 ms).

Nulls: Go writers emit `null` for empty maps, lists and objects, and Go readers take a null for "leave the zero value".
The types here are what code wants to read (`labels` is always a map) and allow null only where absence has a meaning of
its own. `decode` therefore retries an object that failed with its nulls replaced by `nulls`; the usual object without
nulls pays nothing. Timestamps allow null directly, because nearly every generated manifest says `creationTimestamp:
null`.
"""

from typing import Annotated, dataclass_transform

from msgspec import Meta, Struct, field

#: An integer that fits the columns of the tables; Kubernetes itself has no larger ones.
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Wire(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all wire types: camelCase on the wire, snake_case in Python, read-only.

    `gc=False` hides a hundred thousand pods from the garbage collector; frozen trees hold no cycles.
    """


class OwnerReference(Wire):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Wire):
    """Identity, labels and life dates; timestamps are RFC 3339 text for `timestamp.parse_timestamp`."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    resource_version: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


class LabelSelectorRequirement(Wire):
    """One expression of a label selector: In, NotIn, Exists, DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire):
    """Selects objects by labels; an empty selector matches everything, an absent one usually nothing."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
