"""The way to Services, and addresses of pods (operations:OD-21)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pykai.lab.processes.addresses import PodAddresses, listening_address
from pykai.lab.processes.failures import CannotRun
from pykai.lab.processes.network import destination, egress_configuration

Document = dict[str, Any]
SERVICE = {
    "metadata": {"name": "admission", "namespace": "kai-scheduler"},
    "spec": {"clusterIPs": ["10.0.0.9"], "ports": [{"name": "webhook", "port": 443}, {"name": "other", "port": 80}]},
}


def endpoints(*addresses: str, ready: bool = True, service: str = "admission") -> Document:
    return {
        "metadata": {"namespace": "kai-scheduler", "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "webhook", "port": 9443}],
        "endpoints": [{"addresses": [each], "conditions": {"ready": ready}} for each in addresses],
    }


def to(host: str, port: int, *slices: Document) -> tuple[str, int] | None:
    return destination(host, port, [SERVICE], slices, PodAddresses((200, 1)))


def test_a_service_leads_to_a_ready_pod() -> None:
    unready = endpoints("10.200.1.4", ready=False)
    assert to("10.0.0.9", 443, unready, endpoints("10.200.1.5")) == ("127.200.1.5", 9443)
    assert to("10.0.0.9", 443, unready) is None


def test_nothing_else_is_reached_through_it() -> None:
    assert to("10.0.0.9", 443, endpoints("10.200.1.5", service="binder")) is None
    assert to("10.0.0.9", 444, endpoints("10.200.1.5")) is None
    assert to("10.0.0.9", 80, endpoints("10.200.1.5")) is None
    assert to("10.0.0.9", 443, endpoints("192.0.2.7")) is None
    assert to("192.0.2.7", 443, endpoints("10.200.1.5")) is None


def test_a_pod_is_reached_by_its_own_address() -> None:
    assert to("10.200.1.7", 8080) == ("127.200.1.7", 8080)


def test_each_pod_has_an_address_of_its_own_and_those_given_back_come_last() -> None:
    addresses = PodAddresses((200, 1))
    taken = [addresses.take() for _ in range(254)]
    assert len(set(taken)) == 254
    assert taken[0] == "10.200.1.1"
    assert listening_address(taken[0]) == "127.200.1.1"
    with pytest.raises(CannotRun, match=r"all 254 addresses of 10.200.1.0/24 are taken"):
        addresses.take()
    addresses.release(taken[7])
    assert addresses.take() == taken[7]


def test_the_api_server_is_pointed_to_the_socket() -> None:
    (selection,) = json.loads(egress_configuration(Path("/x/network.sock")))["egressSelections"]
    assert selection["name"] == "cluster"
    assert selection["connection"]["transport"]["uds"]["udsName"] == "/x/network.sock"
