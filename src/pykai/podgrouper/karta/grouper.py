"""Makes the grouper of a Karta (workloads:KT-4, KT-5, KT-7).

`podGroup` makes one group of the whole workload, with a subgroup for each component that it names.  The older
`podGroups` make a group for each value of keys that the pods hold.  Queue, priority and labels are those of the default
grouper for the top owner alone.

Subtle:
- What is read of the workload is the same for all its pods, and is remembered by the workload's resource version: a
  hundred pods of a large object cost one evaluation.
- Expressions on pods see the cached pod if names, labels and annotations are all they read; otherwise the pod is read
  from the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from pykai.api.core import Pod
from pykai.api.scheduling import MOST_SUBGROUPS, SubGroup, TopologyConstraint
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.jq import Budget, JqError, JqExpression, Json
from pykai.podgrouper.karta.answers import Answer, RememberedAnswers
from pykai.podgrouper.karta.compiled import CACHED_POD_FIELDS, CompiledComponent, CompiledKarta, CompiledMember
from pykai.podgrouper.karta.definition import KartaPodGroup, KartaSubGroup, KartaTopology
from pykai.podgrouper.karta.scale import WorkloadScale
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, ObjectName, Owner, Readers
from pykai.podgrouper.ownerspec import SUB_GROUP_NAME, is_object_name


class KartaGrouper:
    """The grouper of one Karta."""

    def __init__(self, karta: CompiledKarta) -> None:
        self.karta = karta
        self._needs_whole_pod = not all(each.reads_only(CACHED_POD_FIELDS) for each in karta.pod_expressions())
        #: by the workload's uid and resource version, and by what was asked: the answer or the refusal
        self._remembered = RememberedAnswers()

    def __call__(
        self, top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
    ) -> Metadata:
        """The group of a pod; see `metadata.Grouper`."""
        metadata = default_metadata(top, pod, (), settings, readers)
        queried = _QueriedPod(self.karta, pod, self._document(pod, readers))
        if self.karta.pod_group is not None:
            return self._whole_group(self.karta.pod_group, metadata, top, queried)
        return self._keyed_group(metadata, top, queried)

    def _document(self, pod: Pod, readers: Readers) -> Json:
        meta = pod.metadata
        if not self._needs_whole_pod:
            fields = {"labels": meta.labels, "annotations": meta.annotations}
            held = {key: value for key, value in fields.items() if value}
            return cast("Json", {"metadata": {"name": meta.name, "namespace": meta.namespace, **held}})
        body = readers.object(ObjectName("v1", "Pod", meta.namespace, meta.name))
        if body is None or (body.get("metadata") or {}).get("uid") != meta.uid:
            raise GroupingError(f"pod {meta.namespace}/{meta.name} was deleted while it was being grouped")
        return cast("Json", body)

    def _whole_group(self, group: KartaPodGroup, metadata: Metadata, top: Owner, pod: _QueriedPod) -> Metadata:
        name = self._group_name(top, (group.name,))
        topology = metadata.topology if group.topology is None else self._constraint("podGroup", group.topology)
        found = replace(metadata, name=name, topology=topology)
        if not group.sub_groups:
            (minimum,) = self._numbers(top, "root", lambda scale: (scale.pods(self.karta.root),))
            return replace(found, min_available=minimum)
        self._check_sub_groups(group.sub_groups)
        minimums = self._numbers(
            top, "subgroups", lambda scale: tuple(scale.pods(each.component_name) for each in group.sub_groups)
        )
        sub_groups = tuple(
            self._sub_group(each, minimum) for each, minimum in zip(group.sub_groups, minimums, strict=True)
        )
        own = next((each.component_name for each in group.sub_groups if pod.is_below(each.component_name)), "")
        return replace(found, sub_groups=sub_groups, min_sub_group=len(sub_groups), pod_sub_group=own)

    def _check_sub_groups(self, sub_groups: tuple[KartaSubGroup, ...]) -> None:
        components = [each.component_name for each in sub_groups]
        for component in components:
            if component not in self.karta.components:
                raise self._error(f"podGroup.subGroups: there is no component {component!r}")
            if not SUB_GROUP_NAME.fullmatch(component):
                raise self._error(
                    f"podGroup.subGroups: {component!r} cannot name a subgroup; rename the component: "
                    "lower-case letters, digits and dashes, at most 63"
                )
        if len(components) != len(set(components)) or len(components) > MOST_SUBGROUPS:
            raise self._error(f"podGroup.subGroups: name each component once, and at most {MOST_SUBGROUPS}")

    def _sub_group(self, described: KartaSubGroup, minimum: int) -> SubGroup:
        if not minimum:
            raise self._error(f"component {described.component_name} must expose a replica scale definition")
        topology = None
        if described.topology is not None:
            topology = self._constraint(f"subgroup {described.component_name}", described.topology)
        return SubGroup(name=described.component_name, min_member=minimum, topology_constraint=topology)

    def _constraint(self, where: str, topology: KartaTopology) -> TopologyConstraint:
        levels = (topology.required_topology_level, topology.preferred_topology_level)
        if not topology.topology_name or not any(levels):
            raise self._error(f"{where}: topology needs topologyName and a required or preferred level")
        return TopologyConstraint(
            topology=topology.topology_name, required_topology_level=levels[0], preferred_topology_level=levels[1]
        )

    def _keyed_group(self, metadata: Metadata, top: Owner, pod: _QueriedPod) -> Metadata:
        component = pod.component()
        member = pod.member(component)
        instance = None
        if member.component == component.name:
            ids = self._instance_ids(top, component.name)
            instance = pod.instance(component, ids) if ids else None
        name = self._group_name(top, tuple(pod.key(member, each) for each in member.keys))
        (minimum,) = self._numbers(
            top, f"{member.component}/{instance or ''}", lambda scale: (scale.pods(member.component, instance),)
        )
        return replace(metadata, name=name, min_available=minimum)

    def _group_name(self, top: Owner, keys: tuple[str, ...]) -> str:
        name = "-".join(("pg", top.metadata.uid, *keys))
        if not is_object_name(name):
            raise self._error(
                f"{name[:300]!r} cannot name a PodGroup; use keys of lower-case letters, digits, dots and dashes"
            )
        return name

    def _numbers(self, top: Owner, asked: str, count: Callable[[WorkloadScale], tuple[int, ...]]) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self._recall(top, f"pods {asked}", count))

    def _instance_ids(self, top: Owner, component: str) -> tuple[str, ...]:
        found = self._recall(top, f"ids {component}", lambda scale: scale.instance_ids(component))
        return cast("tuple[str, ...]", found)

    def _recall(self, top: Owner, asked: str, answer: Callable[[WorkloadScale], Answer]) -> Answer:
        """What was asked of a workload, evaluated once for each version of it."""
        key = (top.metadata.uid, top.metadata.resource_version, asked)
        found = self._remembered.get(key)
        if found is not None:
            return found
        outcome: Answer | str
        try:
            outcome = answer(WorkloadScale(self.karta, _plain(top.body)))
        except GroupingError as error:
            outcome = str(error)
        if all(key):
            self._remembered.put(key, outcome)
        if isinstance(outcome, str):
            raise GroupingError(outcome)
        return outcome

    def _error(self, reason: str) -> GroupingError:
        return GroupingError(f"Karta {self.karta.name}: {reason}")


class _QueriedPod:
    """A pod, and what the expressions of a Karta say about it."""

    def __init__(self, karta: CompiledKarta, pod: Pod, document: Json) -> None:
        self._karta = karta
        self._name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        self._document = document
        self._budget = Budget()

    def is_below(self, name: str) -> bool:
        """Whether the pod belongs to a component or to one below it."""
        waiting = [self._karta.components[name]]
        while waiting:
            component = waiting.pop(0)
            if self._is_in(component):
                return True
            waiting.extend(self._karta.components[child] for child in component.children)
        return False

    def component(self) -> CompiledComponent:
        """The component with pods that it belongs to."""
        leaves = [component for component in self._karta.components.values() if component.has_pods]
        if len(leaves) == 1:
            return leaves[0]
        found = next((component for component in leaves if self._is_in(component)), None)
        if found is None:
            raise self._error(f"no component selects pod {self._name}")
        return found

    def member(self, component: CompiledComponent) -> CompiledMember:
        """The first member whose filters let the pod pass, of its component or else of those above."""
        above: CompiledComponent | None = component
        while above is not None:
            for member in self._karta.members:
                if member.component == above.name and all(self._passes(member, each) for each in member.filters):
                    return member
            above = self._karta.components.get(above.parent)
        raise GroupingError(
            f"pod {self._name} does not match any Karta pod group member definition of Karta {self._karta.name}"
        )

    def instance(self, component: CompiledComponent, ids: tuple[str, ...]) -> str:
        """The instance of a component that it belongs to."""
        expression = component.pod_instance
        assert expression is not None
        found = self._text(component.name, expression)
        if found not in ids:
            raise self._error(f"component {component.name}: instance {found!r} is not among {', '.join(ids[:10])}")
        return found

    def key(self, member: CompiledMember, expression: JqExpression) -> str:
        """One key of its group."""
        return self._text(member.component, expression)

    def _is_in(self, component: CompiledComponent) -> bool:
        if component.pod_key is None:
            return False
        outputs = self._outputs(component.name, component.pod_key)
        wanted = component.pod_value
        return any(output is not None if wanted is None else output == wanted for output in outputs)

    def _passes(self, member: CompiledMember, expression: JqExpression) -> bool:
        return self._single(member.component, expression) is True

    def _text(self, component: str, expression: JqExpression) -> str:
        value = self._single(component, expression)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int):
            return str(value)
        raise self._error(f"component {component}: jq expression {expression.text!r}: expected text")

    def _single(self, component: str, expression: JqExpression) -> Json:
        outputs = self._outputs(component, expression)
        if len(outputs) != 1 or outputs[0] is None or outputs[0] == "":
            count = f"{len(outputs)} results" if len(outputs) != 1 else "nothing"
            raise self._error(
                f"component {component}: jq expression {expression.text!r}: {count} for pod {self._name}; "
                "expected one value"
            )
        return outputs[0]

    def _outputs(self, component: str, expression: JqExpression) -> list[Json]:
        try:
            return expression.outputs(self._document, self._budget)
        except JqError as error:
            raise self._error(f"component {component}: {error}") from None

    def _error(self, reason: str) -> GroupingError:
        return GroupingError(f"Karta {self._karta.name}, {reason}")


def _plain(body: Mapping[str, Any]) -> Json:
    return cast("Json", dict(body))
