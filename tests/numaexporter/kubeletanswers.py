"""Answers of a kubelet's pod-resources API, written as protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def varint(number: int) -> bytes:
    out = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def entry(number: int, content: bytes | str) -> bytes:
    """A field of bytes."""
    raw = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def counted(number: int, value: int) -> bytes:
    """A number, which is left out where it is zero."""
    return varint(number << 3) + varint(value) if value else b""


def near(number: int, nodes: Iterable[int]) -> bytes:
    """A TopologyInfo."""
    return entry(number, b"".join(entry(1, counted(1, node)) for node in nodes))


def devices(resource: str, *ids: str, nodes: Iterable[int] = (0,)) -> bytes:
    """Devices of a container, near these NUMA nodes."""
    return entry(2, entry(1, resource) + b"".join(entry(2, each) for each in ids) + near(3, nodes))


def memory(size: int, *, nodes: Iterable[int] = (0,), kind: str = "memory") -> bytes:
    """A block of memory."""
    return entry(4, entry(1, kind) + counted(2, size) + near(3, nodes))


def cores(*ids: int) -> bytes:
    """Exclusive cores of a container."""
    return entry(3, b"".join(map(varint, ids)))


def pod(name: str, *containers: Sequence[bytes], namespace: str = "default") -> bytes:
    """A pod and what each container has."""
    return entry(
        1, entry(1, name) + entry(2, namespace) + b"".join(entry(3, entry(1, "c") + b"".join(c)) for c in containers)
    )


def sysfs(root: Path, nodes: Mapping[int, str]) -> None:
    """The kernel's folder of NUMA nodes."""
    for node, cpulist in nodes.items():
        folder = root / "devices" / "system" / "node" / f"node{node}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpulist").write_text(cpulist + "\n", encoding="ascii")
