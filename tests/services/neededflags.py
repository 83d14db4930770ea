"""The flags without which a service cannot be made, for tests that make every service of the table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.numaexporter.kubeletanswers import sysfs


@contextmanager
def needed_flags() -> Iterator[Mapping[str, Mapping[str, str]]]:
    """Service -> its flags; services that need none are left out."""
    with tempfile.TemporaryDirectory() as folder:
        sysfs(Path(folder), {0: "0"})
        yield {"numa-exporter": {"node-name": "n1", "sysfs-root": folder}}
