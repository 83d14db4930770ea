"""Which NUMA node a core belongs to, from the kernel's `/sys/devices/system/node/node<N>/cpulist`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_NODES: Final = Path("devices/system/node")
_NODE: Final = re.compile(r"node([0-9]{1,9})")
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
#: far beyond any machine; a range is not trusted to be small
_MAX_CORES: Final = 1 << 16


def cores_of_nodes(sysfs: Path) -> dict[int, int]:
    """Core -> NUMA node; empty where the kernel tells none.  ValueError with the file that cannot be read."""
    nodes: dict[int, int] = {}
    for folder in sorted((sysfs / _NODES).glob("node*")):
        found = _NODE.fullmatch(folder.name)
        if found is None:
            continue
        path = folder / "cpulist"
        try:
            listed = path.read_text(encoding="ascii")
            nodes.update(dict.fromkeys(parse_cpulist(listed), int(found[1])))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
    return nodes


def parse_cpulist(text: str) -> Iterator[int]:
    """The cores of a list such as `0-3,8,12-13`; a node without cores has an empty one."""
    for part in text.strip().split(",") if text.strip() else ():
        found = _RANGE.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < _MAX_CORES:
            raise ValueError(f"{part!r} is no core and no range of cores below {_MAX_CORES}")
        yield from range(first, last + 1)
