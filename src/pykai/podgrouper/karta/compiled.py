"""A Karta that was found valid, its expressions compiled (workloads:KT-3).

`compile_karta` refuses what KAI refuses, with the path of the field.  Expressions that grouping evaluates must be of
our subset of jq; those about pod specs and statuses, which it never evaluates, only must not be forbidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykai.api.decode import DecodeError, decode_as
from pykai.podgrouper.jq import JqExpression, JqSyntaxError, compile_jq
from pykai.podgrouper.karta.definition import (
    Karta,
    KartaComponent,
    KartaGangScheduling,
    KartaMember,
    KartaPodGroup,
    KartaSpec,
)
from pykai.podgrouper.metadata import GroupVersionKind

#: Components of a Karta; their depth is that of a recursion.
MAX_COMPONENTS: Final = 100
_STRUCTURE: Final = "spec.structureDefinition"
_GANG: Final = "spec.optimizationInstructions.gangScheduling"
#: The only kind of the core group that a Karta may describe.
_KINDS_WITHOUT_GROUP: Final = frozenset(("Pod",))
#: Fields of a pod that are cached; others are read from the server.
CACHED_POD_FIELDS: Final = (
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "labels"),
    ("metadata", "annotations"),
)
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_FORBIDDEN: Final = re.compile(
    r"\.\.|(?<![=!<>])=(?!=)|(?<![.$\w])(?:del|range|paths|recurse|walk|repeat)(?![\w:])",
)


class KartaError(Exception):
    """A Karta cannot be used; the text says where it is wrong."""


@dataclass(frozen=True, slots=True)
class CompiledComponent:
    """A component."""

    name: str
    #: name of the component above, "" for the root
    parent: str
    children: tuple[str, ...]
    #: whether it says what its pods are made of
    has_pods: bool
    #: minimum, replicas and maximum, each one result an instance; None where it does not say how many pods it has
    scale: tuple[JqExpression | None, ...] | None
    instance_ids: JqExpression | None
    #: what selects its pods, and the value that is wanted; any value for None
    pod_key: JqExpression | None
    pod_value: str | None
    #: where a pod holds the id of its instance
    pod_instance: JqExpression | None


@dataclass(frozen=True, slots=True)
class CompiledMember:
    """Which pods of a component form groups, and by which keys."""

    component: str
    keys: tuple[JqExpression, ...]
    filters: tuple[JqExpression, ...]


@dataclass(frozen=True, slots=True)
class CompiledKarta:
    """A valid Karta."""

    name: str
    kind: GroupVersionKind
    root: str
    #: by name, the root first
    components: Mapping[str, CompiledComponent]
    #: wins over members
    pod_group: KartaPodGroup | None
    members: tuple[CompiledMember, ...]

    def has_scale(self) -> bool:
        """Whether any component says how many pods it has."""
        return any(component.scale is not None for component in self.components.values())

    def pod_expressions(self) -> Iterator[JqExpression]:
        """All that is evaluated on pods."""
        for component in self.components.values():
            yield from (each for each in (component.pod_key, component.pod_instance) if each is not None)
        for member in self.members:
            yield from (*member.keys, *member.filters)


def compile_karta(karta: Karta) -> CompiledKarta | None:
    """The Karta, compiled; None for one that describes no gangs; raises `KartaError`."""
    try:
        spec = decode_as(KartaSpec, karta.spec if isinstance(karta.spec, dict) else {})
    except DecodeError as error:
        raise KartaError(f"spec.{error.path}: {error.problem}" if error.path else str(error)) from None
    gangs = spec.optimization_instructions.gang_scheduling
    if gangs is None or (gangs.pod_group is None and not gangs.pod_groups):
        return None
    structure = spec.structure_definition
    components = {f"{_STRUCTURE}.rootComponent": structure.root_component} | {
        f"{_STRUCTURE}.childComponents[{number}]": child for number, child in enumerate(structure.child_components)
    }
    _check_structure(components)
    compiled = _compiled_components(components)
    members = _members(gangs, compiled)
    kind = structure.root_component.kind
    assert kind is not None
    return CompiledKarta(
        name=karta.metadata.name,
        kind=(kind.group, kind.version, kind.kind),
        root=structure.root_component.name,
        components=compiled,
        pod_group=gangs.pod_group,
        members=members,
    )


def _check_structure(components: Mapping[str, KartaComponent]) -> None:
    if len(components) > MAX_COMPONENTS:
        raise KartaError(f"{_STRUCTURE}: {len(components)} components, more than {MAX_COMPONENTS}; use fewer")
    by_name: dict[str, KartaComponent] = {}
    for path, component in components.items():
        if not component.name:
            raise KartaError(f"{path}.name: missing; name the component")
        if component.name in by_name:
            raise KartaError(f"{path}.name: {component.name!r} is not unique; give each component its own name")
        by_name[component.name] = component
    for number, (path, component) in enumerate(components.items()):
        _check_owner(path, component, by_name) if number else _check_root(path, component)
        _check_component(path, component)
    for path, component in components.items():
        _check_no_cycle(path, component, by_name)


def _check_root(path: str, root: KartaComponent) -> None:
    kind = root.kind
    if kind is None or not kind.version or not kind.kind or not (kind.group or kind.kind in _KINDS_WITHOUT_GROUP):
        raise KartaError(f"{path}.kind: the root component needs group, version and kind")
    if root.owner_ref is not None:
        raise KartaError(f"{path}.ownerRef: the root component has no owner; remove it")
    if root.status_definition is None:
        raise KartaError(f"{path}.statusDefinition: missing; the root component needs one")


def _check_owner(path: str, child: KartaComponent, by_name: Mapping[str, KartaComponent]) -> None:
    if not child.owner_ref:
        raise KartaError(f"{path}.ownerRef: missing; name the component above {child.name!r}")
    if child.owner_ref not in by_name:
        raise KartaError(f"{path}.ownerRef: there is no component {child.owner_ref!r}")


def _check_component(path: str, component: KartaComponent) -> None:
    if component.spec_definition is not None and component.spec_definition.forms() > 1:
        raise KartaError(f"{path}.specDefinition: more than one form of pod spec; keep one")
    selector = component.pod_selector
    selects_instances = selector is not None and selector.component_instance_selector is not None
    if selects_instances != (component.instance_id_path is not None):
        raise KartaError(
            f"{path}: instanceIdPath and podSelector.componentInstanceSelector need each other; set both or neither"
        )
    for part in (component.status_definition, component.spec_definition, selector and selector.replica_selector):
        for text in _unevaluated(part):
            if _FORBIDDEN.search(_TEXT.sub('""', text)):
                raise KartaError(
                    f"{path}: jq expression {text[:200]!r}: no assignments, and none of "
                    "`..`, del, range, paths, recurse, walk, repeat"
                )


def _check_no_cycle(path: str, component: KartaComponent, by_name: Mapping[str, KartaComponent]) -> None:
    visited = {component.name}
    while component.owner_ref:
        component = by_name[component.owner_ref]
        if component.name in visited:
            raise KartaError(f"{path}.ownerRef: components own each other ({component.name!r}); the root must be above")
        visited.add(component.name)


def _unevaluated(part: Any) -> Iterator[str]:
    """The expressions below a part of a Karta that grouping does not evaluate."""
    waiting = [part]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list | tuple):
            waiting.extend(value)
            continue
        if not isinstance(value, dict):
            value = {name: getattr(value, name) for name in getattr(value, "__struct_fields__", ())}
        for key, inner in value.items():
            if isinstance(inner, str) and key.lower().endswith(("path", "expression")):
                yield inner
            elif not isinstance(inner, str):
                waiting.append(inner)


def _compiled_components(components: Mapping[str, KartaComponent]) -> dict[str, CompiledComponent]:
    children: dict[str, list[str]] = {}
    for component in components.values():
        if component.owner_ref:
            children.setdefault(component.owner_ref, []).append(component.name)
    return {
        component.name: _compiled_component(path, component, tuple(children.get(component.name, ())))
        for path, component in components.items()
    }


def _compiled_component(path: str, component: KartaComponent, children: tuple[str, ...]) -> CompiledComponent:
    scale, selector = component.scale_definition, component.pod_selector
    type_selector = selector.component_type_selector if selector is not None else None
    instance_selector = selector.component_instance_selector if selector is not None else None
    key_path = type_selector.key_path if type_selector is not None else None
    return CompiledComponent(
        name=component.name,
        parent=component.owner_ref or "",
        children=children,
        has_pods=component.spec_definition is not None and component.spec_definition.forms() == 1,
        scale=None
        if scale is None
        else (
            _expression(f"{path}.scaleDefinition.minReplicasPath", scale.min_replicas_path),
            _expression(f"{path}.scaleDefinition.replicasPath", scale.replicas_path),
            _expression(f"{path}.scaleDefinition.maxReplicasPath", scale.max_replicas_path),
        ),
        instance_ids=_expression(f"{path}.instanceIdPath", component.instance_id_path),
        pod_key=_expression(f"{path}.podSelector.componentTypeSelector.keyPath", key_path),
        pod_value=type_selector.value if type_selector is not None else None,
        pod_instance=_expression(
            f"{path}.podSelector.componentInstanceSelector.idPath",
            instance_selector.id_path if instance_selector is not None else None,
        ),
    )


def _members(gangs: KartaGangScheduling, components: Mapping[str, CompiledComponent]) -> tuple[CompiledMember, ...]:
    return tuple(
        _member(f"{_GANG}.podGroups[{number}].members[{index}]", member, components)
        for number, group in enumerate(gangs.pod_groups)
        for index, member in enumerate(group.members)
    )


def _member(path: str, member: KartaMember, components: Mapping[str, CompiledComponent]) -> CompiledMember:
    if member.component_name not in components:
        raise KartaError(f"{path}.componentName: there is no component {member.component_name!r}")
    return CompiledMember(
        member.component_name,
        _expressions(f"{path}.groupByKeyPaths", member.group_by_key_paths),
        _expressions(f"{path}.filters", member.filters),
    )


def _expressions(path: str, texts: tuple[str, ...]) -> tuple[JqExpression, ...]:
    compiled = (_expression(f"{path}[{number}]", text) for number, text in enumerate(texts))
    return tuple(each for each in compiled if each is not None)


def _expression(path: str, text: str | None) -> JqExpression | None:
    if not text:
        return None
    try:
        return compile_jq(text)
    except JqSyntaxError as error:
        raise KartaError(f"{path}: {error}") from None
