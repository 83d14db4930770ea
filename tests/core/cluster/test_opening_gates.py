"""The demand of pods whose gate is being removed."""

from pykai.api import names
from pykai.core.model.gates import OPENING_GATE
from pykai.core.model.queuetree import GPU
from tests.core.builders import cluster


def requested_gpus(*gates: str, subgroup: str = "") -> float:
    spec = {"schedulingGates": [{"name": gate} for gate in gates]}
    labels = {names.SUBGROUP_LABEL: subgroup} if subgroup else {}
    built = cluster(nodes=1, gpus=8).queue("q").group("job").pod("job-0", group="job", gpu=2, spec=spec, labels=labels)
    groups = built.tables().snapshot(0).group_index.queues["q"]
    return groups.requested[GPU] / 100


def test_an_admitted_pod_is_demand_before_the_watch_shows_it() -> None:
    """queues:Q-407."""
    assert requested_gpus() == 2
    assert requested_gpus(OPENING_GATE) == 2
    assert requested_gpus("example.com/other") == 0


def test_a_stray_is_no_demand() -> None:
    """cycle:PG-4."""
    assert requested_gpus(subgroup="typo") == 0
    assert requested_gpus(OPENING_GATE, subgroup="typo") == 0
