"""Host ports: one holder per address, protocol and port of a node (cycle:FLT-2, FLT-3; cycle:9.1 step 11)."""

from typing import Any

import pytest

from pykai.core.model.status import TaskStatus
from tests.core.builders import Cluster, Raw, cluster

TAKEN = "node(s) didn't have free ports for the requested pod ports"


def port(number: int, protocol: str | None = None, ip: str | None = None) -> Raw:
    found: Raw = {"containerPort": 80, "hostPort": number}
    if protocol is not None:
        found["protocol"] = protocol
    if ip is not None:
        found["hostIP"] = ip
    return found


def serving(*ports: Raw, **more: Any) -> Raw:
    """The spec of a pod whose container has these ports."""
    return {"containers": [{"name": "main", "ports": list(ports)}], **more}


def held_by_another(*ports: Raw, **how: Any) -> Cluster:
    """One node on which a running pod of another scheduler has these ports."""
    return cluster(nodes=1).queue("q").pod("there", on="node-0", scheduler="other", spec=serving(*ports), **how)


@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [
        (port(80), port(80), False),
        (port(80), port(81), True),
        (port(80, "TCP"), port(80), False),
        (port(80, "TCP"), port(80, ""), False),
        (port(80, "TCP"), port(80, "UDP"), True),
        (port(80, "UDP"), port(80, "UDP"), False),
        (port(80, "SCTP"), port(80, "SCTP"), False),
        (port(80, ip="10.0.0.1"), port(80, ip="10.0.0.1"), False),
        (port(80, ip="10.0.0.1"), port(80, ip="10.0.0.2"), True),
        # The wildcard address clashes with every address, both ways.
        (port(80), port(80, ip="10.0.0.1"), False),
        (port(80, ip="10.0.0.1"), port(80), False),
        (port(80, ip="0.0.0.0"), port(80, ip="10.0.0.1"), False),
        (port(80, ip="10.0.0.1"), port(80, ip="0.0.0.0"), False),
        (port(80, ip="0.0.0.0"), port(80), False),
        (port(80, "UDP"), port(80, "TCP", "10.0.0.1"), True),
    ],
)
def test_a_port_has_one_holder_per_address_and_protocol(held: Raw, wanted: Raw, free: bool) -> None:
    result = held_by_another(held).gang("job", spec=serving(wanted)).schedule()
    assert result.bound("job") == free
    if not free:
        assert result.node_reasons("job") == {TAKEN: 1}


def test_one_taken_port_of_several_is_enough_to_refuse() -> None:
    assert held_by_another(port(80)).gang("job", spec=serving(port(79), port(80))).schedule().bound("job") == 0
    assert held_by_another(port(79), port(80)).gang("job", spec=serving(port(80))).schedule().bound("job") == 0


def test_a_port_without_a_host_port_takes_nothing() -> None:
    plain = {"containerPort": 80}
    result = held_by_another(port(80)).gang("job", pods=2, spec=serving(plain, {"hostPort": 0})).schedule()
    assert result.bound("job") == 2


def test_ports_of_all_containers_count() -> None:
    spec = {"containers": [{"name": "a", "ports": [port(79)]}, {"name": "b", "ports": [port(80)]}]}
    assert held_by_another(port(80)).gang("job", spec=spec).schedule().bound("job") == 0


def test_ports_of_sidecars_count_and_those_of_ordinary_init_containers_do_not() -> None:
    """An ordinary init container has ended when the pod runs."""
    init = {"name": "init", "ports": [port(80)]}
    ordinary = serving(initContainers=[init])
    sidecar = serving(initContainers=[{**init, "restartPolicy": "Always"}])
    assert held_by_another(port(80)).gang("job", spec=ordinary).schedule().bound("job") == 1
    assert held_by_another(port(80)).gang("job", spec=sidecar).schedule().bound("job") == 0


def test_a_pod_may_name_a_port_twice() -> None:
    assert cluster(nodes=1).queue("q").gang("job", spec=serving(port(80), port(80))).schedule().bound("job") == 1


def test_ports_taken_in_the_same_cycle_are_taken() -> None:
    """Two nodes hold two pods with the port, however much else they offer."""
    result = cluster(nodes=2).queue("q").gang("job", pods=3, min=1, spec=serving(port(80))).schedule()
    assert result.nodes_used("job") == {"node-0": 1, "node-1": 1}
    assert result.node_reasons("job") == {TAKEN: 2}


def test_ports_of_a_gang_that_was_rolled_back_are_free_again() -> None:
    result = (
        cluster(nodes=2)
        .queue("q")
        .gang("gang", pods=3, spec=serving(port(80)))
        .gang("pair", pods=2, spec=serving(port(80)))
        .schedule()
    )
    assert result.bound("gang") == 0
    assert result.nodes_used("pair") == {"node-0": 1, "node-1": 1}


def test_a_port_held_twice_stays_held_when_one_holder_leaves() -> None:
    """Two pods may have come to a node with one port without a scheduler's help; the count must not go wrong."""
    crowded = held_by_another(port(80)).pod("too", on="node-0", scheduler="other", spec=serving(port(80)))
    tables = crowded.gang("job", spec=serving(port(80))).tables()
    tables.remove("Pod", "default", "too")
    assert tables.snapshot(0).ports[0]
    tables.remove("Pod", "default", "there")
    assert 0 not in tables.snapshot(0).ports


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_holds_no_port(phase: str) -> None:
    assert held_by_another(port(80), phase=phase).gang("job", spec=serving(port(80))).schedule().bound("job") == 1


def test_a_terminating_pod_still_holds_its_port() -> None:
    ending = held_by_another(port(80), deleted=0).gang("job", spec=serving(port(80)))
    assert ending.schedule().node_reasons("job") == {TAKEN: 1}


def test_a_binding_pod_holds_its_port_on_its_node() -> None:
    coming = (
        cluster(nodes=1)
        .queue("q")
        .pod("coming", on="node-0", phase="Pending", spec=serving(port(80)))
        .gang("job", spec=serving(port(80)))
    )
    assert coming.cycle().context.snapshot.task_records["default/coming"].status is TaskStatus.BOUND
    assert coming.schedule().bound("job") == 0


def test_pods_without_host_ports_go_where_ports_are_taken() -> None:
    assert held_by_another(port(80)).gang("job", pods=3).schedule().bound("job") == 3
