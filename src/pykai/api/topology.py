"""Topology (kai.scheduler/v1alpha1): the levels of the network between the nodes, coarsest first.

A level is a node label; nodes with equal values of it, and of all coarser levels, form a domain. An alias is a second
name of a level for constraints, and may be edited while workloads run, so it is resolved at every snapshot. The host is
a level only where its label is listed (topo:T-6).

A Topology is validated twice, and each validation has a function here with its exact texts: the schema of the resource
(`validate_topology`, topo:2) and the webhook, which checks aliases only (`alias_problems`, topo:2.1).
"""

import re
from collections import Counter
from typing import Final

from msgspec import field

from pykai.api import names
from pykai.api.meta import ObjectMeta, Wire

MOST_LEVELS: Final = 16
LONGEST_LABEL: Final = 316

STRUCTURE_IS_IMMUTABLE: Final = "nodeLabel structure is immutable; only aliases may be edited"
LABELS_ARE_UNIQUE: Final = "nodeLabel must be unique"
HOST_IS_LOWEST: Final = "the kubernetes.io/hostname label can only be used at the lowest level of topology"

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
#: A key of a label: a lower-case domain and a slash if any, then a name that starts and ends with a letter or digit.
_LABEL_KEY = re.compile(rf"({_DNS_LABEL}(\.{_DNS_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class TopologyLevel(Wire):
    node_label: str = ""
    alias: str = ""


class TopologySpec(Wire):
    levels: list[TopologyLevel] = field(default_factory=list)


class Topology(Wire):
    """Levels, coarsest first; cluster-scoped."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: TopologySpec = field(default_factory=TopologySpec)


def alias_problems(topology: Topology) -> str:
    """Why the webhook refuses the aliases, empty if it does not (topo:T-9).

    The old object does not matter: aliases may move from level to level (topo:T-10).

    Statements: gpu:A-11.
    """
    aliases = Counter(level.alias for level in topology.spec.levels if level.alias)
    labels = {level.node_label for level in topology.spec.levels}
    rules = (
        ("aliases must be unique within the topology; duplicated", {each for each in aliases if aliases[each] > 1}),
        ("an alias must not equal a nodeLabel; conflicting", aliases.keys() & labels),
    )
    broken = [f"{rule}: [{' '.join(sorted(found))}]" for rule, found in rules if found]
    return f"invalid topology aliases: {'; '.join(broken)}" if broken else ""


def validate_topology(new: Topology, old: Topology | None = None) -> list[str]:
    """What the schema refuses in the object, or in the update if `old` is given; empty if nothing (topo:2)."""
    levels = new.spec.levels
    labels = [level.node_label for level in levels]
    problems = []
    if not 1 <= len(levels) <= MOST_LEVELS:
        problems.append(f"spec.levels: expected 1 to {MOST_LEVELS} levels, got {len(levels)}")
    for index, level in enumerate(levels):
        problems += _key_problems(f"spec.levels[{index}].nodeLabel", level.node_label)
        if level.alias:
            problems += _key_problems(f"spec.levels[{index}].alias", level.alias)
    if old is not None and labels != [level.node_label for level in old.spec.levels]:
        problems.append(STRUCTURE_IS_IMMUTABLE)
    if len(set(labels)) < len(labels):
        problems.append(LABELS_ARE_UNIQUE)
    if names.HOSTNAME_LABEL in labels[:-1]:
        problems.append(HOST_IS_LOWEST)
    return problems


def _key_problems(path: str, key: str) -> list[str]:
    if not 1 <= len(key) <= LONGEST_LABEL:
        return [f"{path}: expected 1 to {LONGEST_LABEL} characters, got {len(key)}"]
    if not _LABEL_KEY.fullmatch(key):
        text = "expected the key of a label, such as topology.kubernetes.io/zone: an optional lower-case domain and a"
        return [f"{path}: {text} slash, then letters, digits, '-', '_' and '.' between letters or digits; got {key!r}"]
    return []
