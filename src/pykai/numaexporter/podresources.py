"""What the kubelet's pod-resources API answers: which devices, cores and memory each container was given.

The messages are those of `k8s.io/kubelet/pkg/apis/podresources/v1`, as far as they are needed; other fields are
skipped, so newer kubelets can be read too.  A message without a field means its zero: NUMA node 0 is an empty message.

Statements: gpu:X-2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pykai.api.protobufwire import BYTES, VARINT, packed_varints, signed, utf8, wire_fields


class NumaAmount(NamedTuple):
    """An amount of a resource, and the NUMA nodes that it may be spread over."""

    resource: str
    amount: int
    nodes: tuple[int, ...]


class PodResources(NamedTuple):
    """What the containers of a pod have."""

    namespace: str
    name: str
    #: devices and memory
    amounts: tuple[NumaAmount, ...]
    #: cores that no other container uses
    cores: tuple[int, ...]


def decode_pods(body: bytes) -> list[PodResources]:
    """The pods of a `ListPodResourcesResponse`; ValueError where it is damaged."""
    return [_pod(value) for value in _messages(body, 1)]


def _messages(body: bytes, number: int) -> Iterator[bytes]:
    for field, wire, value in wire_fields(body):
        if field == number and wire == BYTES:
            yield value


def _text(body: bytes, number: int) -> str:
    return utf8(next(_messages(body, number), b""))


def _pod(body: bytes) -> PodResources:
    amounts: list[NumaAmount] = []
    cores: list[int] = []
    for container in _messages(body, 3):
        amounts += (_devices(value) for value in _messages(container, 2))
        amounts += (_memory(value) for value in _messages(container, 4))
        cores += _numbers(container, 3)
    return PodResources(_text(body, 2), _text(body, 1), tuple(amounts), tuple(cores))


def _devices(body: bytes) -> NumaAmount:
    return NumaAmount(_text(body, 1), sum(1 for _ in _messages(body, 2)), _nodes(body, 3))


def _memory(body: bytes) -> NumaAmount:
    """A block: its type is the name of the resource, `memory` or `hugepages-2Mi`."""
    return NumaAmount(_text(body, 1), sum(_numbers(body, 2)), _nodes(body, 3))


def _nodes(body: bytes, number: int) -> tuple[int, ...]:
    """The nodes of a TopologyInfo."""
    return tuple(next(_numbers(node, 1), 0) for topology in _messages(body, number) for node in _messages(topology, 1))


def _numbers(body: bytes, number: int) -> Iterator[int]:
    """The numbers of a field, one by one or packed."""
    for field, wire, value in wire_fields(body):
        if field == number and wire == VARINT:
            yield signed(value)
        elif field == number and wire == BYTES:
            yield from map(signed, packed_varints(value))
