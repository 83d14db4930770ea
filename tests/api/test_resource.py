"""Claims and slices of resource.k8s.io/v1beta1 read like those of v1."""

import json
from typing import Any

import pytest

from pykai.api.decode import DecodeError, decode_list, decode_object
from pykai.api.resource import ResourceClaim, ResourceSlice

OLD = "resource.k8s.io/v1beta1"
REQUEST = {"deviceClassName": "gpu", "selectors": [], "allocationMode": "ExactCount", "count": 2, "adminAccess": False}
ALTERNATIVES = {"name": "s", "firstAvailable": [{"name": "t"}]}
FACTS = {"attributes": {"model": {"string": "A100"}}, "capacity": {"memory": {"value": "40Gi"}}}


def document(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (
            "ResourceClaim",
            {"devices": {"requests": [{"name": "r", **REQUEST}, ALTERNATIVES]}},
            {"devices": {"requests": [{"name": "r", "exactly": REQUEST}, ALTERNATIVES]}},
        ),
        (
            "ResourceSlice",
            {"driver": "gpu", "devices": [{"name": "0", "basic": FACTS}, {"name": "1"}]},
            {"driver": "gpu", "devices": [{"name": "0", **FACTS}, {"name": "1"}]},
        ),
        ("DeviceClass", {"extendedResourceName": "a/b"}, {"extendedResourceName": "a/b"}),
    ],
)
def test_old_shapes_read_as_new_ones(kind: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    expected = decode_object(document("resource.k8s.io/v1", kind, new))
    before = json.dumps(old)
    assert decode_object(document(OLD, kind, old)) == expected
    assert decode_object(json.dumps(document(OLD, kind, old)).encode()) == expected
    assert json.dumps(old) == before
    # A server may already have written the new shape under the old version's name.
    assert decode_object(document(OLD, kind, new)) == expected
    assert decode_object(document("resource.k8s.io/v1beta2", kind, new)) == expected


def test_items_of_an_old_list_are_upgraded_too() -> None:
    items = [{"spec": {"devices": {"requests": [{"name": "r", **REQUEST}]}}}]
    (claim,), problems = decode_list(ResourceClaim, items, OLD)
    exactly = claim.spec.devices.requests[0].exactly
    assert exactly is not None
    assert exactly.count == 2
    assert problems == []


def test_nulls_of_an_old_slice_are_normalised() -> None:
    item = b'{"spec":{"devices":[{"name":"0","basic":{"attributes":null}},{"name":"1","basic":null},null]}}'
    (slice_,), _ = decode_list(ResourceSlice, [item], OLD)
    assert [device.name for device in slice_.spec.devices] == ["0", "1", ""]


@pytest.mark.parametrize("spec", [5, {"devices": 5}, {"devices": {"requests": [5]}}, {"devices": [5]}])
def test_a_malformed_old_object_is_refused_with_its_path(spec: Any) -> None:
    with pytest.raises(DecodeError, match="ResourceClaim x: spec"):
        decode_object(document(OLD, "ResourceClaim", spec))
