"""Metrics: public names, figures that change together, series that end."""

from __future__ import annotations

import pytest

from pykai.observe.metrics import Metrics, exposition


def test_names_carry_the_prefix_once() -> None:
    make = Metrics("kai")
    make.gauge("depth", "how deep").set(3)
    make.counter("falls", "how often").inc()
    text = exposition(make.registry).decode()
    assert "kai_depth 3.0" in text
    assert "kai_falls_total 1.0" in text


def test_a_tally_keeps_its_name() -> None:
    make = Metrics("kai")
    tally = make.unsuffixed_counter("groups_by_action", "how many", ["action"])
    tally.inc("allocate", by=2)
    tally.inc("allocate")
    make.unsuffixed_counter("attempts", "how often")
    text = exposition(make.registry).decode()
    assert 'kai_groups_by_action{action="allocate"} 3.0' in text
    assert "kai_attempts 0.0" in text
    with pytest.raises(ValueError):
        tally.inc()


def test_a_tally_is_a_counter_to_those_who_read_it() -> None:
    """operations:8."""
    make = Metrics("kai")
    make.unsuffixed_counter("groups_by_action", "how many # TYPE x untyped", ["action"]).inc("allocate")
    make.gauge("depth", "how deep").set(3)
    lines = exposition(make.registry).decode().splitlines()
    assert lines == [
        "# HELP kai_groups_by_action how many # TYPE x untyped",
        "# TYPE kai_groups_by_action counter",
        'kai_groups_by_action{action="allocate"} 1.0',
        "# HELP kai_depth how deep",
        "# TYPE kai_depth gauge",
        "kai_depth 3.0",
    ]


def test_published_gauges_are_replaced_as_a_whole() -> None:
    make = Metrics("kai")
    queues = make.atomic_gauges({"share": "fair share", "usage": "in use"}, ["queue"])
    queues.publish([(("a",), {"share": 1.0, "usage": 2.0}), (("b",), {"share": 3.0})])
    queues.publish([(("b",), {"share": 4.0, "usage": 0.0})])
    text = exposition(make.registry).decode()
    assert 'kai_share{queue="b"} 4.0' in text
    assert 'kai_usage{queue="b"} 0.0' in text
    assert 'queue="a"' not in text


def test_services_do_not_share_metrics_unless_they_share_a_registry() -> None:
    Metrics("kai").gauge("depth", "how deep")
    Metrics("kai").gauge("depth", "how deep")
