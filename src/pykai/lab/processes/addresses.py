"""Addresses of pods that run as processes.

Pods need addresses that an EndpointSlice takes, and Kubernetes refuses loopback ones there; processes must listen on
loopback only.  So a pod says `10.A.B.n`, and its process listens on `127.A.B.n`: on Linux all of 127.0.0.0/8 is there.
A and B are drawn at random, since several clusters may run on one machine.
"""

from __future__ import annotations

import ipaddress
import random

from pykai.lab.processes.failures import CannotRun

_FIRST, _LAST = 1, 254


class PodAddresses:
    """The addresses of one cluster's pods."""

    def __init__(self, network: tuple[int, int] | None = None) -> None:
        """`network`: the second and third number of all addresses."""
        second, third = network or (random.randint(128, 254), random.randint(0, 255))
        self._prefix = f"10.{second}.{third}."
        self._taken: set[int] = set()
        self._last = 0

    def take(self) -> str:
        """An address that no other pod has; those given back lately come last."""
        for step in range(1, _LAST + 1):
            number = (self._last + step - _FIRST) % _LAST + _FIRST
            if number not in self._taken:
                self._taken.add(number)
                self._last = number
                return f"{self._prefix}{number}"
        raise CannotRun("FailedCreatePodSandBox", f"all {_LAST} addresses of {self._prefix}0/24 are taken")

    def release(self, address: str) -> None:
        """The pod is gone."""
        self._taken.discard(int(address.rpartition(".")[2]))

    def __contains__(self, address: str) -> bool:
        return address.startswith(self._prefix)


def listening_address(address: str) -> str:
    """Where the process of the pod with this address listens."""
    return str(ipaddress.IPv4Address((127 << 24) | (int(ipaddress.IPv4Address(address)) & 0xFFFFFF)))
