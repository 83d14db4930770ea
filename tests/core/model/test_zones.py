"""A node's zones as in its NodeResourceTopology (gpu:N-1 to N-3)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.decode import decode_object
from pykai.api.numa import NodeResourceTopology
from pykai.core.cluster.tables import Tables
from pykai.core.model.problems import Problem
from pykai.core.model.zones import NodeZones, ZonePolicy, read_zones
from tests.core.numaclusters import GPU, zoned

SINGLE, RESTRICTED, BEST_EFFORT, NONE = (
    ZonePolicy.SINGLE,
    ZonePolicy.RESTRICTED,
    ZonePolicy.BEST_EFFORT,
    ZonePolicy.NONE,
)


def raw(*names: str, kind: str = "Node", **fields: Any) -> dict[str, Any]:
    """A NodeResourceTopology of node n with zones of a core each."""
    one = [{"name": "cpu", "allocatable": "1", "available": "1"}]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n"},
        "zones": [{"name": name, "type": kind, "resources": one} for name in names],
        **fields,
    }


def read(document: dict[str, Any], problems: list[Problem] | None = None) -> NodeZones | None:
    topology = decode_object(document)
    assert isinstance(topology, NodeResourceTopology)
    return read_zones(topology, (problems if problems is not None else []).append)


def attributes(**values: str) -> list[dict[str, str]]:
    return [{"name": f"topologyManager{name.title()}", "value": value} for name, value in values.items()]


def how(**fields: Any) -> tuple[ZonePolicy, bool]:
    found = read(raw("node-0", **fields))
    assert found is not None
    return found.layout.policy, found.layout.pod_scope


def test_n1_zones_are_in_the_order_of_their_numbers_and_those_without_one_come_last() -> None:
    found = read(raw("node-10", "spare", "node-2", "b-1", "extra", "a-1"))
    assert found is not None
    assert found.layout.zones == ("a-1", "b-1", "node-2", "node-10", "extra", "spare")


def test_n1_only_zones_of_type_node_count_and_without_any_there_is_no_topology() -> None:
    mixed = raw("node-0")
    mixed["zones"].append({"name": "socket-0", "type": "Socket"})
    found = read(mixed)
    assert found is not None
    assert found.layout.zones == ("node-0",)
    assert read(raw("socket-0", kind="Socket")) is None
    assert read(raw()) is None


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("single-numa-node", SINGLE),
        ("restricted", RESTRICTED),
        ("best-effort", BEST_EFFORT),
        ("none", NONE),
        ("unheard-of", NONE),
    ],
)
def test_n2_the_policy_is_an_attribute_and_an_unknown_one_is_none(policy: str, wanted: ZonePolicy) -> None:
    assert how(attributes=attributes(policy=policy)) == (wanted, False)


@pytest.mark.parametrize(("scope", "wanted"), [("pod", True), ("container", False), ("other", False)])
def test_n2_the_scope_is_the_container_unless_the_attribute_is_pod(scope: str, wanted: bool) -> None:
    assert how(attributes=attributes(policy="restricted", scope=scope)) == (RESTRICTED, wanted)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("SingleNUMANodePodLevel", (SINGLE, True)),
        ("SingleNUMANodeContainerLevel", (SINGLE, False)),
        ("RestrictedPodLevel", (RESTRICTED, True)),
        ("Restricted", (RESTRICTED, False)),
        ("RestrictedContainerLevel", (RESTRICTED, False)),
        ("BestEffortPodLevel", (BEST_EFFORT, True)),
        ("BestEffort", (BEST_EFFORT, False)),
        ("BestEffortContainerLevel", (BEST_EFFORT, False)),
        ("None", (NONE, False)),
    ],
)
def test_n2_without_the_attribute_the_first_legacy_policy_counts(name: str, wanted: tuple[ZonePolicy, bool]) -> None:
    assert how(topologyPolicies=[name, "BestEffortPodLevel"]) == wanted
    assert how(topologyPolicies=[name], attributes=attributes(policy="")) == wanted


def test_n2_the_attribute_beats_the_legacy_policy() -> None:
    assert how(topologyPolicies=["RestrictedPodLevel"], attributes=attributes(policy="best-effort")) == (
        BEST_EFFORT,
        False,
    )
    assert how() == (NONE, False)


def test_n3_a_resource_of_any_zone_is_a_resource_of_the_node_and_elsewhere_there_is_none_of_it() -> None:
    document = raw("node-0", "node-1")
    document["zones"][1]["resources"] = [
        {"name": GPU, "allocatable": "4", "available": "3"},
        {"name": "memory", "allocatable": "2Ki", "available": "1Ki"},
    ]
    found = read(document)
    assert found is not None
    assert found.layout.resources == ("cpu", "memory", GPU)
    assert found.layout.allocatable == ((1000, 0, 0), (0, 2048, 4))
    assert found.available == ((1000, 0, 0), (0, 1024, 3))


def test_unreadable_values_are_reported_and_count_as_zero() -> None:
    document = raw("node-0", "node-0")
    document["zones"][0]["resources"] = [{"name": "cpu", "allocatable": "a lot", "available": "-1"}]
    problems: list[Problem] = []
    found = read(document, problems)
    assert found is not None
    assert found.layout.allocatable == ((0,),)
    assert found.available == ((0,),)
    assert [problem.field for problem in problems] == ["zones[node-0].cpu.allocatable", "zones[node-0]"]
    assert all(problem.subject == "NodeResourceTopology/n" for problem in problems)


def test_equal_nodes_share_one_layout() -> None:
    one, other = read(raw("node-0", "node-1")), read(raw("node-0", "node-1"))
    assert one is not None
    assert other is not None
    assert one.layout is other.layout


def test_the_tables_keep_the_zones_of_a_node_until_they_change_or_go() -> None:
    tables = Tables(objects=[decode_object(raw("node-0", "node-1"))])
    assert list(tables.named.numa["n"].layout.zones) == ["node-0", "node-1"]
    before = tables.snapshot(0).change_tokens
    tables.apply(decode_object(raw("node-0")))
    assert list(tables.named.numa["n"].layout.zones) == ["node-0"]
    assert tables.snapshot(0).change_tokens is not before
    tables.apply(decode_object(raw()))
    assert not tables.named.numa
    tables.apply(decode_object(raw("node-0", "node-0")))
    assert [problem.subject for problem in tables.snapshot(0).problems] == ["NodeResourceTopology/n"]
    tables.remove("NodeResourceTopology", "", "n")
    assert not tables.named.numa
    assert not tables.snapshot(0).problems


def test_zones_of_a_missing_node_cost_nothing() -> None:
    found = zoned({"cpu": 4})
    found.objects = [item for item in found.objects if item["kind"] != "Node"]
    assert not found.cycle().state.discrete_ledgers
