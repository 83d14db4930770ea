"""All devices of the cluster as columns, made from ResourceSlices (gpu:D-6, D-19).

A driver publishes a pool of devices as slices.  Only the newest generation of a pool counts, and only when all of its
slices are there; a pool that is incomplete or contradicts itself offers nothing and is reported (`broken_pools`).
Devices are in the order in which they are allocated: driver, pool, name of the slice, position in it (gpu:D-21).

A device can be reached from one node (`row` tells which), from all nodes, or from those that a node selector matches;
a slice may say so for each of its devices on its own.

Partitions of a larger device share counters: `limits[counter]` is what there is, `uses[device]` what a device takes
from it, both in billionths, because a quantity may be finer than a unit.

An inventory depends on slices and node labels alone.  Keep it as long as neither changes: results over all devices
(selectors, attributes) are kept in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pykai.api.core import NodeSelector, Toleration
from pykai.api.quantity import QuantityError, nano_value
from pykai.api.resource import Device, ResourceSlice, ResourceSliceSpec
from pykai.core.caching import Memo, Value
from pykai.core.cluster.claims.counting import names_gpu
from pykai.core.cluster.claims.selectors import SelectorError, compile_selector, find_entry, typed_value
from pykai.core.cluster.nodematching import matches_any_term, tolerates
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.claimrequests import ALL_FEATURES, Alternative, DraFeatures
from pykai.core.model.nodes import NodeTaint

#: What a selector says of a device.
SelectorResults = NDArray[np.int8]

#: Values of `row` besides the numbers of nodes.
REACHED_FROM_ALL: Final = -1
REACHED_FROM_SELECTED: Final = -2
REACHED_FROM_NONE: Final = -3

#: Results: not selected, selected, the selector failed (`DeviceSelection.failures` says why).
NOT_MATCHED: Final = 0
MATCHED: Final = 1
FAILED: Final = 2

_HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")
#: Values of the attribute `type` that mean a whole GPU; partitions and passed-through devices have others.
_WHOLE_GPU_TYPES: Final = ("gpu", "amdgpu")


class DeviceId(NamedTuple):
    """How claims name a device."""

    driver: str
    pool: str
    device: str


class BrokenPool(NamedTuple):
    """A pool whose devices are not used for now."""

    driver: str
    pool: str
    text: str
    #: slices are missing (they may still come), as opposed to contradicting each other
    incomplete: bool

    def __str__(self) -> str:
        return f"pool {self.pool} of {self.driver} {self.text}"


class DeviceSelection(NamedTuple):
    """What CEL expressions say of all devices."""

    #: [device] NOT_MATCHED, MATCHED or FAILED
    results: SelectorResults
    #: device -> why it FAILED
    failures: dict[int, str]


class SelectorNodes(NamedTuple):
    """Nodes that a selector matches, and the devices that are reached from them."""

    selector: NodeSelector
    rows: IntArray
    devices: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Inventory:
    """Devices in the order of allocation; columns are [device]."""

    node_names: Sequence[str]
    ids: list[DeviceId]
    devices: list[Device]
    #: the node it is reached from, or EVERYWHERE, SELECTED, NOWHERE
    node_row: IntArray
    #: for SELECTED: index in `sets`
    node_set_of: IntArray
    node_sets: list[SelectorNodes]
    #: numbers of devices with taints, none when these are ignored
    tainted: tuple[int, ...]
    #: can be used without waiting for a driver (`bindingConditions`)
    usable_at_once: BoolArray
    #: device -> (counter, billionths) it takes while in use
    counter_use: dict[int, tuple[tuple[int, int], ...]]
    #: [counter] billionths there are
    counter_limits: list[int]
    #: [counter] devices that take from it
    counter_users: list[list[int]]
    broken_pools: tuple[BrokenPool, ...]
    #: node row or EVERYWHERE -> broken pools with a slice for it
    broken_by_row: dict[int, list[BrokenPool]]
    #: devices reached from one node, by row: `_local[_start[row] : _start[row + 1]]`
    _local: IntArray
    _start: IntArray
    _on_all_nodes: IntArray
    #: node row -> sets it belongs to
    _node_sets_by_row: dict[int, list[int]]
    memo: Memo = field(default_factory=Memo)

    @classmethod
    def of(cls, slices: Iterable[ResourceSlice], nodes: NodeTable, features: DraFeatures = ALL_FEATURES) -> Inventory:
        """The devices these slices offer to these nodes."""
        return _InventoryBuilder(nodes, features).build(slices)

    def __len__(self) -> int:
        return len(self.ids)

    def remember(self, key: object, make: Callable[[], Value]) -> Value:
        """A value that depends on the inventory alone, made on first use."""
        return self.memo.remember(key, make)

    @property
    def index(self) -> dict[DeviceId, int]:
        """Device number by name, for allocations read from claims: `taken[inventory.index[id]] = True`."""
        return self.remember("index", lambda: {device: number for number, device in enumerate(self.ids)})

    def devices_at(self, row: int) -> IntArray:
        """Devices that can be reached from a node, in order."""
        local = self._local[self._start[row] : self._start[row + 1]]
        sets = self._node_sets_by_row.get(row)
        if sets is None and not len(self._on_all_nodes):
            return local
        return np.sort(
            np.concatenate([local, self._on_all_nodes, *(self.node_sets[number].devices for number in sets or ())])
        )

    def count_by_node(self, chosen: BoolArray) -> IntArray:
        """[node] how many of the chosen devices can be reached from each node."""
        local = self._local[chosen[self._local]]
        counts = np.bincount(self.node_row[local], minlength=len(self.node_names)).astype(np.int64)
        counts += int(chosen[self._on_all_nodes].sum())
        for nodes in self.node_sets:
            counts[nodes.rows] += int(chosen[nodes.devices].sum())
        return counts

    def selection(self, selectors: tuple[str, ...]) -> DeviceSelection:
        """What CEL expressions say, evaluated in order until one does not match (gpu:D-20)."""
        return self.remember(("selection", selectors), lambda: self._selection(selectors))

    def _selection(self, selectors: tuple[str, ...]) -> DeviceSelection:
        results = np.full(len(self), MATCHED, dtype=np.int8)
        failures: dict[int, str] = {}
        for expression in selectors:
            candidates = np.flatnonzero(results == MATCHED).tolist()
            try:
                selector = compile_selector(expression)
            except SelectorError as error:
                results[candidates] = FAILED
                failures.update(dict.fromkeys(candidates, str(error)))
                break
            for number in candidates:
                try:
                    results[number] = (
                        MATCHED if selector.matches(self.ids[number].driver, self.devices[number]) else NOT_MATCHED
                    )
                except SelectorError as error:
                    results[number] = FAILED
                    failures[number] = f"device {'/'.join(self.ids[number])}: {error}"
        return DeviceSelection(results, failures)

    def tolerable(self, alternative: Alternative) -> BoolArray:
        """[device] has no taint that keeps this request away."""

        def make() -> BoolArray:
            tolerations = [item.as_toleration() for item in alternative.tolerations]
            column = np.ones(len(self), dtype=np.bool_)
            for number in self.tainted:
                column[number] = _is_tolerated(self.devices[number], tolerations)
            return column

        return self.remember(("tolerated", alternative.tolerations), make)

    def attribute(self, name: str) -> IntArray:
        """[device] a number for the value of an attribute, equal for equal type and value; 0 = the device lacks it."""

        def make() -> IntArray:
            domain, slash, identifier = name.partition("/")
            codes: dict[object, int] = {None: 0}
            numbers = []
            for identity, device in zip(self.ids, self.devices, strict=True):
                driver = identity.driver
                value = (
                    _typed_attribute(device, driver, domain, identifier)
                    if slash
                    else _typed_attribute(device, driver, driver, name)
                )
                numbers.append(codes.setdefault(value, len(codes)))
            return np.array(numbers, dtype=np.int64)

        return self.remember(("attribute", name), make)

    def whole_gpus(self) -> BoolArray:
        """[device] a whole GPU of one node's own (gpu:D-6); a driver is one of GPUs when its name says so."""

        def make() -> BoolArray:
            kinds = [
                names_gpu(identity.driver) and _whole_gpu(device, identity.driver)
                for identity, device in zip(self.ids, self.devices, strict=True)
            ]
            return np.array(kinds, dtype=np.bool_) & (self.node_row >= 0)

        return self.remember("whole GPUs", make)

    def gpu_capacity(self) -> IntArray:
        """[node] whole GPUs of its own."""
        return np.bincount(self.node_row[self.whole_gpus()], minlength=len(self.node_names)).astype(np.int64)

    def broken_pools_at(self, row: int) -> list[BrokenPool]:
        """Pools with a slice for this node that are not used."""
        return [*self.broken_by_row.get(REACHED_FROM_ALL, ()), *self.broken_by_row.get(row, ())]

    def counters_left(self, counters: Iterable[int], taken: BoolArray) -> dict[int, int]:
        """What counters have left while the taken devices are in use."""
        remaining = {counter: self.counter_limits[counter] for counter in counters}
        users = np.array(
            sorted({number for counter in remaining for number in self.counter_users[counter]}), dtype=np.int64
        )
        for number in users[taken[users]].tolist():
            for counter, amount in self.counter_use[number]:
                if counter in remaining:
                    remaining[counter] -= amount
        return remaining


def _whole_gpu(device: Device, driver: str) -> bool:
    kind = _typed_attribute(device, driver, driver, "type")
    return kind is None or str(kind[1]).lower() in _WHOLE_GPU_TYPES


def _is_tolerated(device: Device, tolerations: list[Toleration]) -> bool:
    return all(
        any(tolerates(toleration, NodeTaint(taint.key, taint.value, taint.effect)) for toleration in tolerations)
        for taint in device.taints
        if taint.effect in _HARD_EFFECTS
    )


def _typed_attribute(device: Device, driver: str, domain: str, name: str) -> tuple[str, object] | None:
    """Type and value of an attribute."""
    attribute = find_entry(device.attributes, driver, domain, name)
    return None if attribute is None else typed_value(attribute)


class _DevicePool(NamedTuple):
    """The slices of the newest generation."""

    driver: str
    name: str
    slices: list[ResourceSlice]

    def problem(self) -> tuple[str, bool] | None:
        """What is wrong with it, and whether it is only incomplete."""
        expected = self.slices[0].spec.pool.resource_slice_count
        if len(self.slices) != expected:
            return f"has {len(self.slices)} of {expected} slices", True
        seen: set[str] = set()
        for item in self.slices:
            for device in item.spec.devices:
                if device.name in seen:
                    return f"has two devices called {device.name}", False
                seen.add(device.name)
        return None


class _InventoryBuilder:
    def __init__(self, nodes: NodeTable, features: DraFeatures) -> None:
        self.nodes = nodes
        self.features = features
        self.ids: list[DeviceId] = []
        self.devices: list[Device] = []
        self.node_row: list[int] = []
        self.node_set_of: list[int] = []
        #: selectors with their nodes and devices, and their numbers by text
        self.node_sets: list[tuple[NodeSelector, IntArray, list[int]]] = []
        self.node_set_numbers: dict[str, int] = {}
        self.counter_use: dict[int, tuple[tuple[int, int], ...]] = {}
        self.counter_limits: list[int] = []
        self.broken_pools: list[BrokenPool] = []
        self.broken_by_row: dict[int, list[BrokenPool]] = defaultdict(list)

    def build(self, slices: Iterable[ResourceSlice]) -> Inventory:
        for pool in _newest_pools(slices):
            problem = pool.problem() or self.add_pool(pool)
            if problem is not None:
                self.mark_broken(pool, BrokenPool(pool.driver, pool.name, *problem))
        row = np.array(self.node_row, dtype=np.int64)
        on_one_node = np.flatnonzero(row >= 0)
        by_row = on_one_node[np.argsort(row[on_one_node], kind="stable")]
        start = np.searchsorted(row[by_row], np.arange(len(self.nodes) + 1)).astype(np.int64)
        users: list[list[int]] = [[] for _ in self.counter_limits]
        for number, uses in self.counter_use.items():
            for counter, _ in uses:
                users[counter].append(number)
        sets = [
            SelectorNodes(selector, rows, np.array(members, np.int64)) for selector, rows, members in self.node_sets
        ]
        sets_for: dict[int, list[int]] = defaultdict(list)
        for number, nodes in enumerate(sets):
            for node_row in nodes.rows.tolist():
                sets_for[node_row].append(number)
        taints = self.features.device_taints
        return Inventory(
            node_names=self.nodes.names,
            ids=self.ids,
            devices=self.devices,
            node_row=row,
            node_set_of=np.array(self.node_set_of, dtype=np.int64),
            node_sets=sets,
            tainted=tuple(number for number, device in enumerate(self.devices) if device.taints and taints),
            usable_at_once=np.array([not device.binding_conditions for device in self.devices], dtype=np.bool_),
            counter_use=self.counter_use,
            counter_limits=self.counter_limits,
            counter_users=users,
            broken_pools=tuple(self.broken_pools),
            broken_by_row=dict(self.broken_by_row),
            _local=by_row,
            _start=start,
            _on_all_nodes=np.flatnonzero(row == REACHED_FROM_ALL),
            _node_sets_by_row=dict(sets_for),
        )

    def add_pool(self, pool: _DevicePool) -> tuple[str, bool] | None:
        """Append the devices of a pool; what is wrong with their counters, if anything."""
        try:
            counters = self.counters(pool)
            shares = [
                [_counter_shares(device, counters) if device.consumes_counters else () for device in item.spec.devices]
                for item in pool.slices
            ]
        except (QuantityError, KeyError) as error:
            return (f"has counters that do not add up: {error.args[0]}", False)
        for item, item_shares in zip(pool.slices, shares, strict=True):
            spec = item.spec
            slice_reach = None if spec.per_device_node_selection else self.reach(spec)
            for device, share in zip(spec.devices, item_shares, strict=True):
                row, nodes = self.reach(device) if slice_reach is None else slice_reach
                if share:
                    self.counter_use[len(self.ids)] = share
                self.ids.append(DeviceId(pool.driver, pool.name, device.name))
                self.devices.append(device)
                self.node_row.append(row)
                self.node_set_of.append(nodes)
                if nodes >= 0:
                    self.node_sets[nodes][2].append(len(self.ids) - 1)
        return None

    def counters(self, pool: _DevicePool) -> dict[tuple[str, str], int]:
        numbers: dict[tuple[str, str], int] = {}
        for item in pool.slices:
            for counter_set in item.spec.shared_counters:
                for name, counter in counter_set.counters.items():
                    numbers[counter_set.name, name] = len(self.counter_limits)
                    self.counter_limits.append(nano_value(counter.value))
        return numbers

    def reach(self, node_selection: ResourceSliceSpec | Device) -> tuple[int, int]:
        """Row and node set of what a slice or device says about nodes."""
        if node_selection.node_name:
            return self.nodes.rows.get(node_selection.node_name, REACHED_FROM_NONE), -1
        if node_selection.all_nodes:
            return REACHED_FROM_ALL, -1
        if node_selection.node_selector is None:
            return REACHED_FROM_NONE, -1
        key = repr(node_selection.node_selector)
        number = self.node_set_numbers.setdefault(key, len(self.node_sets))
        if number == len(self.node_sets):
            rows = np.flatnonzero(matches_any_term(self.nodes, node_selection.node_selector.node_selector_terms))
            self.node_sets.append((node_selection.node_selector, rows, []))
        return REACHED_FROM_SELECTED, number

    def mark_broken(self, pool: _DevicePool, broken: BrokenPool) -> None:
        self.broken_pools.append(broken)
        rows: set[int] = set()
        for item in pool.slices:
            for node_selection in item.spec.devices if item.spec.per_device_node_selection else [item.spec]:
                row, number = self.reach(node_selection)
                rows.update(self.node_sets[number][1].tolist() if row == REACHED_FROM_SELECTED else [row])
        for row in [REACHED_FROM_ALL] if REACHED_FROM_ALL in rows else sorted(rows - {REACHED_FROM_NONE}):
            self.broken_by_row[row].append(broken)


def _newest_pools(slices: Iterable[ResourceSlice]) -> list[_DevicePool]:
    """Pools in order, each with the slices of its newest generation in order of their names."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
    for item in slices:
        pools[item.spec.driver, item.spec.pool.name].append(item)
    newest_pools = []
    for (driver, name), items in sorted(pools.items()):
        newest = max(item.spec.pool.generation for item in items)
        current = [item for item in items if item.spec.pool.generation == newest]
        newest_pools.append(_DevicePool(driver, name, sorted(current, key=lambda item: item.metadata.name)))
    return newest_pools


def _counter_shares(device: Device, counters: dict[tuple[str, str], int]) -> tuple[tuple[int, int], ...]:
    """What a partition takes, by number of the counter."""
    amounts: dict[int, int] = {}
    for consumed in device.consumes_counters:
        for name, counter in consumed.counters.items():
            try:
                number = counters[consumed.counter_set, name]
            except KeyError:
                raise KeyError(
                    f"device {device.name} takes from {consumed.counter_set}/{name}, which is not there"
                ) from None
            amounts[number] = amounts.get(number, 0) + nano_value(counter.value)
    return tuple(sorted(amounts.items()))
