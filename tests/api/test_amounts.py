"""Resource lists: read with leniency, compared by value, written only where something changes."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.amounts import add_amounts, amounts_patch, format_amount, read_amounts

N = 10**9


@pytest.mark.parametrize("listed", [None, "x", 7, [], ["cpu"], {}])
def test_a_value_that_is_not_a_list_is_empty(listed: Any) -> None:
    assert read_amounts(listed) == {}


def test_what_can_be_read_is_read() -> None:
    listed = {"cpu": "500m", "memory": 1024, "bad": "lots", "worse": None, "flag": True, 3: "1", "half": 0.5}
    assert read_amounts(listed) == {"cpu": N // 2, "memory": 1024 * N, "half": N // 2}


def test_subtracting_leaves_no_zero_entries() -> None:
    total = {"cpu": N}
    add_amounts(total, {"cpu": 2 * N, "gpu": N})
    add_amounts(total, {"cpu": 2 * N, "gpu": N}, -1)
    assert total == {"cpu": N}


def test_equal_values_are_not_written() -> None:
    listed = {"cpu": "1000m", "memory": "1024Mi"}
    assert amounts_patch(listed, {"cpu": N, "memory": 2**30 * N}) == {}


def test_only_what_differs_is_written_and_what_is_gone_is_named() -> None:
    listed = {"cpu": "1", "gpu": "2", "bad": "lots"}
    assert amounts_patch(listed, {"cpu": 2 * N, "memory": 2**20 * N}) == {
        "cpu": "2",
        "memory": "1Mi",
        "gpu": None,
        "bad": None,
    }


def test_bytes_are_written_in_powers_of_1024() -> None:
    assert format_amount("memory", 2**30 * N) == "1Gi"
    assert format_amount("hugepages-2Mi", 2**21 * N) == "2Mi"
    assert format_amount("cpu", 1024 * N) == "1024"
