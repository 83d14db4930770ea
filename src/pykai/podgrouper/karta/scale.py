"""How many pods a component of a workload has, the components below it included (workloads:KT-6).

A component's own number is the sum over its instances of the minimum, or else of the replicas; the components below
multiply it.  A part that says nothing leaves the number to the other part.  If no component of the Karta says how many
pods it has, components with pods are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykai.podgrouper.jq import Budget, JqError, JqExpression, Json
from pykai.podgrouper.karta.compiled import CompiledComponent, CompiledKarta
from pykai.podgrouper.metadata import GroupingError
from pykai.podgrouper.ownerspec import MAX_INT32


class WorkloadScale:
    """The numbers of one workload; raises `GroupingError` with the component and the expression."""

    def __init__(self, karta: CompiledKarta, workload: Json) -> None:
        self._karta = karta
        self._workload = workload
        # A tenant chooses the size of the workload, so all its expressions share one budget.
        self._budget = Budget()

    def pods(self, name: str, instance: str | None = None) -> int:
        """The pods of a component and those below, or of one of its instances."""
        component = self._karta.components[name]
        if self._karta.has_scale():
            number = self._by_definition(component, instance)
        else:
            number = self._by_count(component, instance)
        if number > MAX_INT32:
            raise self._error(component, f"{number} pods are more than a PodGroup can ask for ({MAX_INT32})")
        return number

    def instance_ids(self, name: str) -> tuple[str, ...]:
        """The ids of a component's instances; none where it has one instance without an id."""
        component = self._karta.components[name]
        if component.instance_ids is None:
            return ()
        ids = self._outputs(component, component.instance_ids)
        texts = tuple(each for each in ids if isinstance(each, str) and each)
        if len(texts) != len(ids):
            text = component.instance_ids.text
            raise self._error(component, f"jq expression {text!r}: the ids of instances must be text and not empty")
        return texts

    def _by_definition(self, component: CompiledComponent, instance: str | None) -> int:
        own = self._own_scale(component, instance)
        below = sum(self._by_definition(self._karta.components[child], None) for child in component.children)
        return own * below if own and below else own or below

    def _own_scale(self, component: CompiledComponent, instance: str | None) -> int:
        if component.scale is None:
            return 0
        minimums, replicas, maximums = (self._numbers(component, each) for each in component.scale)
        ids = ("",) if component.instance_ids is None else self.instance_ids(component.name)
        count = max(len(minimums), len(replicas), len(maximums))
        if count != len(ids):
            raise self._error(component, f"its scaleDefinition has {count} results for {len(ids)} instances")
        numbers = {key: _at(minimums, row) or _at(replicas, row) for row, key in enumerate(ids)}
        if instance is None or len(numbers) == 1:
            return sum(numbers.values())
        if instance not in numbers:
            raise self._error(component, f"instance {instance!r} is not among {', '.join(ids[:10])}")
        return numbers[instance]

    def _by_count(self, component: CompiledComponent, instance: str | None) -> int:
        if not component.has_pods:
            return sum(self._by_count(self._karta.components[child], None) for child in component.children)
        if component.instance_ids is None or instance is not None:
            return 1
        return len(self.instance_ids(component.name))

    def _numbers(self, component: CompiledComponent, expression: JqExpression | None) -> list[int]:
        """One number for each result, 0 for null and what is negative."""
        if expression is None:
            return []
        numbers = []
        for output in self._outputs(component, expression):
            number = int(output) if isinstance(output, float) and output.is_integer() else output
            if number is None:
                number = 0
            if isinstance(number, bool) or not isinstance(number, int) or abs(number) > MAX_INT32:
                raise self._error(component, f"jq expression {expression.text!r}: {output!r:.60} is no number of pods")
            numbers.append(max(number, 0))
        return numbers

    def _outputs(self, component: CompiledComponent, expression: JqExpression) -> list[Json]:
        try:
            return expression.outputs(self._workload, self._budget)
        except JqError as error:
            raise self._error(component, str(error)) from None

    def _error(self, component: CompiledComponent, reason: str) -> GroupingError:
        return GroupingError(f"Karta {self._karta.name}, component {component.name}: {reason}")


def _at(numbers: Sequence[int], row: int) -> int:
    return numbers[row] if row < len(numbers) else 0
