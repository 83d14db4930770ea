"""Which Topologies are admitted, and what their authors are warned of."""

from __future__ import annotations

from typing import Any

from pykai.api.scheduling import PodGroup, PodGroupSpec, SubGroup, TopologyConstraint
from pykai.webhooks.topologies import validate
from pykai.webhooks.topologylookups import levels_used


def topology(*levels: str) -> dict[str, Any]:
    """Levels as `label` or `label=alias`."""
    pairs = (level.partition("=") for level in levels)
    return {"spec": {"levels": [{"nodeLabel": label, "alias": alias} for label, _, alias in pairs]}}


USES = {"near": 2, "far": 1}


def warnings(new: dict[str, Any], old: dict[str, Any] | None) -> tuple[str, ...]:
    result = validate(new, old, lambda alias: USES.get(alias, 0))
    assert result.allowed
    return result.warnings


def test_an_alias_in_use_that_moves_to_another_level_is_a_warning() -> None:
    """topo:TD-21."""
    assert warnings(topology("zone=near", "rack=far"), topology("zone=far", "rack=near")) == (
        "alias far means rack instead of zone; PodGroups with a constraint of that name: 1; the constraint changes for"
        " pods that are not scheduled yet",
        "alias near means zone instead of rack; PodGroups with a constraint of that name: 2; the constraint changes for"
        " pods that are not scheduled yet",
    )


def test_an_alias_in_use_that_goes_away_is_a_warning() -> None:
    """topo:TD-21."""
    (text,) = warnings(topology("zone", "rack"), topology("zone", "rack=near"))
    assert text.startswith("alias near no longer means rack; PodGroups with a constraint of that name: 2;")


def test_aliases_that_stay_are_new_or_have_no_users_are_no_warning() -> None:
    """topo:TD-21."""
    old = topology("zone=near", "rack=r")
    assert warnings(old, None) == ()
    assert warnings(old, old) == ()
    assert warnings(topology("zone=near", "rack=other"), old) == ()
    assert warnings(topology("zone=near", "rack=far"), topology("zone=near", "rack")) == ()
    assert warnings(old, {"spec": 3}) == ()


def test_the_levels_of_a_group_are_those_of_all_its_constraints() -> None:
    """topo:TD-21."""
    whole = TopologyConstraint(topology="t", required_topology_level="near")
    part = TopologyConstraint(topology="u", required_topology_level="near", preferred_topology_level="far")
    sub_groups = [SubGroup(name="a", topology_constraint=part), SubGroup(name="b")]
    group = PodGroup(spec=PodGroupSpec(topology_constraint=whole, sub_groups=sub_groups))
    assert sorted(levels_used(group)) == ["t near", "u far", "u near"]
    assert levels_used(PodGroup()) == ()
