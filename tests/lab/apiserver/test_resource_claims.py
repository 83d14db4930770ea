"""ResourceClaims: what may be written into them, and when."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.apiserver.apiclient import Answer, Api, path_of

Object = dict[str, Any]


def claim(name: str = "gpus") -> Object:
    """Two GPUs, or one of another kind."""
    exactly = {"deviceClassName": "gpu", "count": 2}
    either = [{"name": "big", "deviceClassName": "big"}, {"name": "small", "deviceClassName": "small"}]
    requests = [{"name": "two", "exactly": exactly}, {"name": "one", "firstAvailable": either}]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}


def allocation(*requests: str) -> Object:
    results = [
        {"request": request, "driver": "gpu.example", "pool": "n1", "device": f"gpu-{number}"}
        for number, request in enumerate(requests)
    ]
    return {"devices": {"results": results}}


def consumer(number: int = 0) -> Object:
    return {"resource": "pods", "name": f"p{number}", "uid": f"uid-{number}"}


async def told(api: Api, status: Object) -> Answer:
    """Write a status of the claim."""
    found = (await api.get("resourceclaims", "gpus")).ok().body
    return await api.request("PUT", path_of("resourceclaims", "gpus", "status"), {**found, "status": status})


def refused(answer: Answer, field: str, text: str) -> bool:
    assert answer.code == 422, answer.body
    causes = answer.body["details"]["causes"]
    return [cause["field"] for cause in causes] == [field] and text in causes[0]["message"]


async def test_an_allocation_speaks_of_requests_of_the_claim(api: Api) -> None:
    await api.create("resourceclaims", claim())
    for wrong in ("three", "two/big", "one/other", "one/big/more"):
        answer = await told(api, {"allocation": allocation("two", wrong)})
        assert refused(answer, "status.allocation.devices.results[1].request", "must be the name of a request"), wrong
    given = {"allocation": allocation("two", "two", "one/small"), "reservedFor": [consumer()]}
    assert (await told(api, given)).ok().body["status"] == given


async def test_an_allocation_stays_until_it_is_taken_back(api: Api) -> None:
    await api.create("resourceclaims", claim())
    (await told(api, {"allocation": allocation("two", "two", "one/big")})).ok()
    other = {"allocation": allocation("two", "two", "one/small")}
    assert refused(await told(api, other), "status.allocation", "field is immutable")
    (await told(api, {})).ok()
    (await told(api, other)).ok()


@pytest.mark.parametrize("count", [256, 257])
async def test_a_claim_has_so_many_consumers(api: Api, count: int) -> None:
    await api.create("resourceclaims", claim())
    answer = await told(api, {"allocation": allocation("two"), "reservedFor": [consumer(n) for n in range(count)]})
    if count <= 256:
        answer.ok()
    else:
        assert refused(answer, "status.reservedFor", "must have at most 256 items")


async def test_only_what_is_allocated_is_reserved(api: Api) -> None:
    await api.create("resourceclaims", claim())
    answer = await told(api, {"reservedFor": [consumer()]})
    assert refused(answer, "status.reservedFor", "may not be specified when `allocated` is not set")


async def test_what_a_claim_asks_for_is_settled(api: Api) -> None:
    await api.create("resourceclaims", claim())
    patch = {"spec": {"devices": {"requests": [{"name": "two", "exactly": {"deviceClassName": "other"}}]}}}
    assert refused(await api.patch("resourceclaims", "gpus", patch), "spec", "field is immutable")
    (await api.patch("resourceclaims", "gpus", {"metadata": {"labels": {"a": "b"}}})).ok()
