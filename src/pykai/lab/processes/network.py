"""The way from the API server to Services: an HTTP CONNECT proxy on a socket in a folder.

An API server calls webhooks at the address of a Service.  Here is no network of Services, so it is given this proxy
(`--egress-selector-config-file`): it finds the Service of an address, takes a ready endpoint, and connects to where the
process of that pod listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pykai.api.unstructured import JsonObject
from pykai.kube.caches import Caches
from pykai.kube.resources import ENDPOINT_SLICES, SERVICES
from pykai.lab.processes.addresses import PodAddresses, listening_address

log = logging.getLogger(__name__)
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
_HEADER_LIMIT: Final = 16_384
_CHUNK: Final = 65_536


def egress_configuration(socket: Path) -> str:
    """The file for the API server: what it sends into the cluster goes through the socket."""
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(socket)}}}
    return json.dumps(
        {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}],
        }
    )


def destination(
    host: str, port: int, services: Iterable[JsonObject], slices: Iterable[JsonObject], addresses: PodAddresses
) -> tuple[str, int] | None:
    """Where to connect for an address of a Service or a pod; None if nothing is ready there."""
    if host in addresses:
        return listening_address(host), port
    for service in services:
        if host not in (service["spec"].get("clusterIPs") or [service["spec"].get("clusterIP")]):
            continue
        name = next((each.get("name", "") for each in service["spec"]["ports"] if each["port"] == port), None)
        if name is not None:
            return _ready_endpoint(service["metadata"], name, slices, addresses)
    return None


def _ready_endpoint(
    service: JsonObject, port_name: str, slices: Iterable[JsonObject], addresses: PodAddresses
) -> tuple[str, int] | None:
    for each in slices:
        metadata = each["metadata"]
        if metadata["namespace"] != service["namespace"]:
            continue
        if (metadata.get("labels") or {}).get(_SERVICE_LABEL) != service["name"]:
            continue
        numbers = [entry["port"] for entry in each.get("ports") or () if (entry.get("name") or "") == port_name]
        for endpoint in each.get("endpoints") or ():
            ready = (endpoint.get("conditions") or {}).get("ready", True)
            for address in endpoint["addresses"]:
                if ready and numbers and address in addresses:
                    return listening_address(address), numbers[0]
    return None


class ServiceNetwork:
    """The proxy."""

    def __init__(self, caches: Caches, addresses: PodAddresses, socket: Path) -> None:
        self._services = caches.store(SERVICES, dict)
        self._slices = caches.store(ENDPOINT_SLICES, dict, optional=True)
        self._addresses = addresses
        self._socket = socket

    @property
    def stores(self) -> tuple[Any, ...]:
        """What must be filled before it is of use."""
        return self._services, self._slices

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop."""
        self._socket.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve, self._socket)
        try:
            await stop.wait()
        finally:
            server.close()
            self._socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, *_ = head.split(b"\r\n", 1)[0].decode("ascii", "replace").split(" ")
            host, _, port = target.rpartition(":")
            where = self._destination(host, port) if method == "CONNECT" and len(head) <= _HEADER_LIMIT else None
            if where is None:
                log.info("nothing is ready at %s", target)
                writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
                await writer.drain()
                return
            far_reader, far_writer = await asyncio.open_connection(*where)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, far_writer))
                group.create_task(_copy(far_reader, writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            log.info("a connection to a Service ended: %s", error)
        finally:
            with contextlib.suppress(OSError):
                writer.close()

    def _destination(self, host: str, port: str) -> tuple[str, int] | None:
        if not port.isdigit():
            return None
        services, slices = self._services.values(), self._slices.values()
        return destination(host.strip("[]"), int(port), services, slices, self._addresses)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        # One side hung up; the other learns it by the end of the stream.
        pass
    finally:
        with contextlib.suppress(OSError):
            writer.close()
