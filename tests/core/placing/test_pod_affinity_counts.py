"""What pods prefer of each other, and that counts shared by several kinds of pods stay true (cycle:SCO-2, FLT-6)."""

from __future__ import annotations

import pytest

from pykai.core.placing.affinity import affinity_index
from tests.core.builders import Cluster, Raw, placement_request_of, scores_of
from tests.core.placing.test_gpu_sharing import plugins
from tests.core.placing.test_pod_affinity import HOST, WEB, apart, near, term, there, zones

DB = {"app": "db"}
#: nearly all pods: counted as those of a namespace less those with the label
NOT_DB: Raw = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}


def liking(one: Raw, weight: int = 10, kind: str = "podAffinity") -> Raw:
    """A pod's spec that prefers company, or with podAntiAffinity to be alone."""
    listed = [{"weight": weight, "podAffinityTerm": one}]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": listed}}}


def gain(built: Cluster) -> dict[str, float]:
    """Node -> what it is worth more to the job than to a pod that no affinity names and that has none."""
    cycle = built.gang("plain").configured(plugins("predicates", "proportion", "podaffinity")).cycle()
    plain = scores_of(cycle, "plain-0")
    return {node: score - plain[node] for node, score in scores_of(cycle, "job-0").items()}


@pytest.mark.parametrize(
    ("there_spec", "there_labels", "job_spec"),
    [
        ({}, WEB, liking(term())),
        (liking(term()), DB, {}),
        ({}, WEB, liking(term(labelSelector=NOT_DB))),
    ],
)
def test_company_is_preferred_from_either_side(there_spec: Raw, there_labels: dict[str, str], job_spec: Raw) -> None:
    """A node without the zone label is in no domain, though a pod is there."""
    built = zones(a=1, b=1).node("loose")
    for node in ("b0", "loose"):
        there(built, f"old-{node}", node, there_labels, spec=there_spec)
    found = gain(built.gang("job", labels=WEB, spec=job_spec))
    assert found["b0"] > found["a0"] == found["loose"] == 0.0


def test_pods_that_most_terms_select_are_counted_exactly() -> None:
    """Of two pods on a0 one is selected: its node is refused."""
    built = there(there(zones(a=1, b=1), "web", "a0", WEB), "db", "a0", DB)
    result = built.gang("job", labels=DB, spec=apart(term(HOST, labelSelector=NOT_DB))).schedule()
    assert result.node_of("job-0") == "b0"


@pytest.mark.parametrize("keys", [("nowhere",), ("zone", "nowhere")])
def test_no_eviction_helps_a_pod_near_others_in_a_domain_that_no_node_has(keys: tuple[str, ...]) -> None:
    built = there(zones(a=1), "web", "a0", WEB).gang("job", spec=near(*(term(key) for key in keys)))
    cycle = built.cycle()
    assert affinity_index(cycle.context.snapshot).is_unresolvable(placement_request_of(cycle, "job-0"), ())


def test_a_finished_pod_keeps_no_other_away() -> None:
    built = there(zones(a=1), "old", "a0", WEB, phase="Succeeded", spec=apart(term()))
    assert built.gang("job", labels=WEB).schedule().node_of("job-0") == "a0"


def test_a_count_that_another_kind_of_pod_has_read_is_new_to_this_one() -> None:
    """The second job is of the kind of the first and must be near it, though b0 is fuller; between them a larger one
    reads the same count and fails."""
    built = zones(a=1, b=1).gang("first", labels=WEB, spec=near(term(HOST)))
    built.gang("fill", cpu=50, spec={"nodeSelector": {HOST: "b0"}})
    built.gang("large", labels=WEB, cpu=90, memory="999Gi", pods=2, spec=near(term(HOST)))
    built.gang("second", labels=WEB, spec=near(term(HOST)))
    result = built.schedule()
    assert result.bound("large") == 0
    assert [result.node_of(f"{name}-0") for name in ("first", "fill", "second")] == ["a0", "b0", "a0"]
