"""Filtering and scoring of nodes for the default scheduler, without I/O.

In: nodes, the usage of their pods, and the requirements of a pod (`requirements_of`). Out, from
`SchedulerCache.choose_node`: a node, or a message in kube-scheduler's words.

A node is filtered out if it is not ready or unschedulable, if the pod does not tolerate its taints, if its labels do
not match node selector and required affinity, or if its free resources are insufficient. Of the others the one that is
least loaded with the pod wins; ties go to the first by name.

Subtle: the load is the mean of three fractions, cpu, memory and number of pods. Without the third, pods without
requests would weigh nothing and all go to one node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from operator import eq

import msgspec
import numpy as np

from pykai.api import names
from pykai.api.core import Node, NodeSelectorTerm, Toleration
from pykai.api.workloads import MachinePod
from pykai.core.cluster.nodematching import matches_any_term, tolerates
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.model.nodes import NodeFacts, NodeTaint, read_node
from pykai.core.model.problems import Problem
from pykai.lab.machines.machine import Machine
from pykai.lab.machines.requests import ResourceRequests, pod_requests

_HARD_EFFECTS = ("NoSchedule", "NoExecute")
_LOAD_RESOURCES = (names.CPU, names.MEMORY, names.PODS)

_NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
_NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True)
class PodRequirements:
    """The requirements of a pod; equal for pods that fit the same nodes."""

    #: all fields below as plain values, for comparison
    _key: tuple[object, ...]
    requests: ResourceRequests = field(compare=False)
    node_selector: dict[str, str] = field(compare=False)
    #: None: any node matches
    node_terms: tuple[NodeSelectorTerm, ...] | None = field(compare=False)
    tolerations: list[Toleration] = field(compare=False)

    @property
    def placement_key(self) -> object:
        """Identifies everything but the resources."""
        return self._key[1:]


@dataclass(frozen=True, slots=True)
class NoNodeFits:
    """Why no node fits now."""

    message: str


def requirements_of(pod: MachinePod) -> PodRequirements:
    """The requirements of this pod."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else None
    requests = pod_requests(pod)
    key = (
        tuple(sorted(requests.items())),
        tuple(sorted(spec.node_selector.items())),
        msgspec.json.encode(terms),
        msgspec.json.encode(spec.tolerations),
    )
    return PodRequirements(key, requests, spec.node_selector, terms, spec.tolerations)


class SchedulerCache:
    """All nodes and their usage."""

    def __init__(self) -> None:
        #: includes missing nodes that still have pods
        self._machines: dict[str, Machine] = {}
        self._facts: dict[str, NodeFacts] = {}
        #: node -> why it takes no pods, "" if it does
        self._unschedulable_reasons: dict[str, str] = {}
        #: pod uid -> node
        self._node_of_pod: dict[str, str] = {}
        #: built from `_facts`; None: stale
        self._table: NodeTable | None = None

    def put_node(self, node: Node) -> bool:
        """Add or update a node; returns whether that matters to pods."""
        name = node.metadata.name
        facts, closed = read_node(node, names.MIG_ENABLED_NODE_LABEL, _ignore_problem), _unschedulable_reason(node)
        machine = self._machines.setdefault(name, Machine(name))
        before = (self._facts.get(name), self._unschedulable_reasons.get(name), machine.capacity)
        machine.update(node)
        if before == (facts, closed, machine.capacity):
            return False
        self._facts[name], self._unschedulable_reasons[name], self._table = facts, closed, None
        return True

    def drop_node(self, name: str) -> None:
        """Remove a node; the usage of its pods is kept, since it may come back."""
        self._facts.pop(name, None)
        self._unschedulable_reasons.pop(name, None)
        self._table = None
        self._drop_if_empty(name)

    def add_pod(self, uid: str, node: str, requests: ResourceRequests) -> None:
        """Put a pod on a node, and off the node it was on before."""
        held = self._node_of_pod.get(uid)
        if held == node:
            return
        if held is not None:
            self.remove_pod(uid)
        self._node_of_pod[uid] = node
        self._machines.setdefault(node, Machine(node)).admit_existing(uid, requests)

    def remove_pod(self, uid: str) -> bool:
        """Remove a pod; returns whether it was on a node."""
        node = self._node_of_pod.pop(uid, None)
        if node is None:
            return False
        self._machines[node].release(uid)
        self._drop_if_empty(node)
        return True

    def choose_node(self, requirements: PodRequirements) -> str | NoNodeFits:
        """The best node for a pod."""
        table = self._table
        if table is None:
            table = self._table = NodeTable.of(self._facts)
        if not len(table):
            return NoNodeFits(_NO_NODES)
        against = table.remember(requirements.placement_key, lambda: self._filter_reasons(table, requirements))
        reasons: Counter[str] = Counter()
        best, least = "", 0.0
        for name, reason in zip(table.names, against, strict=True):
            if reason:
                reasons[reason] += 1
                continue
            machine = self._machines[name]
            short = _insufficient_resources(machine, requirements.requests)
            if short:
                for each in short:
                    reasons[each] += 1
                continue
            load = _load_fraction(machine, requirements.requests)
            if not best or load < least:
                best, least = name, load
        return best or NoNodeFits(_unschedulable_message(len(table), reasons))

    def _filter_reasons(self, table: NodeTable, requirements: PodRequirements) -> list[str]:
        """Node -> lasting reason against it, "" for none."""
        selected = np.ones(len(table), dtype=np.bool_)
        for label, wanted in requirements.node_selector.items():
            selected &= table.per_label(label, partial(eq, wanted))
        if requirements.node_terms is not None:
            selected &= matches_any_term(table, requirements.node_terms)
        reasons: list[str] = []
        for facts, fits in zip(table.facts, selected, strict=True):
            reason = self._unschedulable_reasons[facts.name] or _untolerated_taint(
                facts.taints, requirements.tolerations
            )
            reasons.append(reason or ("" if fits else _NOT_SELECTED))
        return reasons

    def _drop_if_empty(self, node: str) -> None:
        if node not in self._facts and node in self._machines and not self._machines[node].pods():
            del self._machines[node]


def _ignore_problem(_: Problem) -> None:
    """Unreadable parts of a node count as absent; KAI's scheduler reads the same nodes and reports them."""


def _unschedulable_reason(node: Node) -> str:
    if node.spec.unschedulable:
        return "node(s) were unschedulable"
    if not any(c.type == names.NODE_READY and c.status == "True" for c in node.status.conditions):
        return "node(s) were not ready"
    return ""


def _untolerated_taint(taints: tuple[NodeTaint, ...], tolerations: list[Toleration]) -> str:
    for taint in taints:
        if taint.effect in _HARD_EFFECTS and not any(tolerates(toleration, taint) for toleration in tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return ""


def _insufficient_resources(machine: Machine, requests: ResourceRequests) -> list[str]:
    """Resources that the node has too little of."""
    used, capacity = machine.used, machine.capacity
    short = []
    for resource, asked in requests.items():
        if asked > 0 and used.get(resource, 0) + asked > capacity.get(resource, 0):
            short.append("Too many pods" if resource == names.PODS else f"Insufficient {resource}")
    return short


def _load_fraction(machine: Machine, requests: ResourceRequests) -> float:
    """How full the node would be, from 0 to 1."""
    used, capacity = machine.used, machine.capacity
    load = 0.0
    for resource in _LOAD_RESOURCES:
        total = capacity.get(resource)
        load += (used.get(resource, 0) + requests.get(resource, 0)) / total if total else 1.0
    return load / len(_LOAD_RESOURCES)


def _unschedulable_message(nodes: int, reasons: Counter[str]) -> str:
    counted = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{nodes} nodes are available: {', '.join(counted)}."
