"""Bad volumes, claims, classes and drivers do not stop other work, and are reported."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.decode import decode_object
from tests.core.badinput import beside_haven, problems_of, schedules_haven
from tests.core.builders import Cluster, Raw

MAKER = "csi.example.com"


def stored() -> Cluster:
    """Classes of existing volumes (`fast`) and of provisioned ones with limited capacity (`made`)."""
    return beside_haven().storage_class("fast").storage_class("made", provisioner=MAKER).csi_driver(MAKER)


def using(built: Cluster, *claims: str, pods: int = 1) -> Cluster:
    """A gang that uses these claims."""
    return built.gang("odd", pods, claims=claims)


@pytest.mark.parametrize("size", ["-5Gi", "0", "", "x", "1e30", 10**40, -1, 1.5, "9" * 300])
@pytest.mark.parametrize("where", ["volume", "claim", "room"])
def test_an_absurd_size_is_harmless(where: str, size: Any) -> None:
    sizes: dict[str, Any] = {"volume": "10Gi", "claim": "5Gi", "room": "10Gi", where: size}
    built = stored().volume("v", size=sizes["volume"]).claim("there", size=sizes["claim"])
    built.claim("made", of="made", size=sizes["claim"])
    built.storage_capacity("c", of="made", room=sizes["room"], largest=sizes["room"])
    schedules_haven(using(built, "there", "made"))


def test_an_unreadable_size_is_reported_with_its_field() -> None:
    built = stored().volume("v", size="x").claim("c", size="y").storage_capacity("r", of="made", room="z", largest="w")
    result = schedules_haven(using(built, "c"))
    assert "spec.capacity[storage]: 'x' is not a quantity" in problems_of(result, "PersistentVolume/v")
    assert "'y' is not a quantity" in problems_of(result, "PersistentVolumeClaim/default/c")
    assert problems_of(result, "CSIStorageCapacity/csi/r").count("is not a quantity") == 2
    assert "requests a size that cannot be read" in result.why("odd")


def test_a_problem_is_dropped_when_its_object_is_deleted_or_fixed() -> None:
    tables = stored().volume("v", size="x").volume("w", size="x").tables()
    assert [problem.subject for problem in tables.snapshot(0).problems] == ["PersistentVolume/v", "PersistentVolume/w"]
    tables.remove("PersistentVolume", "", "v")
    assert [problem.subject for problem in tables.snapshot(0).problems] == ["PersistentVolume/w"]
    tables.apply(decode_object(Cluster().volume("w").objects[0]))
    assert not tables.snapshot(0).problems


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ({"of": "gone"}, "unbound immediate PersistentVolumeClaims"),
        ({"of": None}, "unbound immediate PersistentVolumeClaims"),
        ({"bound_to": "gone"}, "bound to non-existent pv"),
        ({"selected_node": "gone", "of": "made"}, "didn't find available persistent volumes"),
        ({"phase": "Lost"}, "bound to non-existent persistentvolume"),
        ({"deleted": True}, "is being deleted"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}, "didn't find available persistent"),
    ],
)
def test_a_claim_that_nothing_can_serve_waits_with_a_reason(claim: dict[str, Any], why: str) -> None:
    result = schedules_haven(using(stored().volume("v").claim("c", **claim), "c"))
    assert result.bound("odd") == 0
    assert why in result.why("odd")


@pytest.mark.parametrize("name", ["c", "", "a/b", "a#0"])
def test_a_missing_claim_is_reported(name: str) -> None:
    assert f'persistentvolumeclaim "{name}" not found' in schedules_haven(using(stored(), name)).why("odd")


@pytest.mark.parametrize(
    "terms",
    [
        [],
        [{}],
        [{"matchExpressions": [{"key": "", "operator": "Bogus", "values": [""]}]}],
        [{"matchExpressions": [{"key": "zone", "operator": "Gt", "values": []}]}],
        [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": []}]}],
    ],
    ids=str,
)
def test_a_volume_that_no_node_reaches_serves_no_pod(terms: list[Raw]) -> None:
    built = stored().volume("v", nodeAffinity={"required": {"nodeSelectorTerms": terms}}).claim("c")
    result = schedules_haven(using(built, "c"))
    assert result.node_reasons("odd")["node(s) didn't find available persistent volumes to bind"] == 2


def test_a_volume_that_two_claims_name_is_harmless() -> None:
    built = stored().volume("v", claim="c").claim("c", bound_to="v").claim("d", bound_to="v")
    schedules_haven(using(built, "c").gang("other", claims=("d",)))


def test_two_volumes_reserved_for_one_claim_count_once() -> None:
    built = stored().volume("v", claim="c").volume("w", claim="c").claim("c")
    assert len(schedules_haven(using(built, "c")).volumes_of("odd-0")) == 1


def test_an_ephemeral_claim_of_another_pod_is_not_used() -> None:
    for owner in ("", "fine-0"):
        result = schedules_haven(stored().claim("odd-0-v", owner=owner).gang("odd", ephemeral=("v",)))
        assert "was not created for pod" in result.why("odd")


def test_a_claim_named_five_hundred_times_is_one_claim() -> None:
    result = schedules_haven(using(stored().volume("v").claim("c"), *["c"] * 500))
    assert result.volumes_of("odd-0") == ["v"]


def test_absurd_claims_do_not_overflow_into_free_capacity() -> None:
    built = stored().storage_capacity("r", of="made", room="1e30")
    for number in range(20):
        built.claim(f"c{number}", of="made", size="1e30")
    result = schedules_haven(using(built, *(f"c{number}" for number in range(20))))
    assert "did not have enough free storage" in result.why("odd")


@pytest.mark.parametrize("count", [-5, 0, -(2**63)])
def test_a_negative_attach_limit_counts_as_zero(count: int) -> None:
    built = stored().volume("v", driver=MAKER, claim="c").claim("c", bound_to="v").csi_node("node-0", **{MAKER: count})
    assert schedules_haven(using(built, "c")).node_of("odd-0") == "node-1"


def test_an_absurd_attach_limit_counts_as_unlimited() -> None:
    built = stored().volume("v", driver=MAKER, claim="c").claim("c", bound_to="v")
    for node in ("node-0", "node-1"):
        built.csi_node(node, **{MAKER: 2**63 - 1})
    assert schedules_haven(using(built, "c")).bound("odd") == 1


@pytest.mark.parametrize("where", [[{}], [{"matchLabelExpressions": [{"key": "", "values": []}]}]], ids=str)
def test_a_class_whose_topology_allows_no_node_provisions_nothing(where: list[Raw]) -> None:
    built = stored().claim("c", of="made").storage_capacity("r", of="made")
    for item in built.objects:
        if item["kind"] == "StorageClass":
            item["allowedTopologies"] = where
    assert schedules_haven(using(built, "c")).bound("odd") == 0
