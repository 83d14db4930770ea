"""The shard of a lab.  A lab has no operator, so what one would make of the shard is a file that its scheduler reads
(operations:O-6), again before each cycle."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from pykai.api.installation import ConfigSpec, ShardSpec
from pykai.operator.desired.settings import OWN_IMAGES, Settings
from pykai.operator.desired.shardconfiguration import as_text, shard_configuration

_FILE = "scheduler.yaml"
#: zones count from the start, as no spec about them changes the shard of a lab
_SPEC: Mapping[str, Any] = {"plugins": {"numa": {"enabled": True}}}


class LabShard:
    """The configuration file beside the kubeconfig of a lab."""

    def __init__(self, kubeconfig: Path) -> None:
        self.path = kubeconfig.with_name(_FILE)

    @property
    def exists(self) -> bool:
        """Whether the kubeconfig is that of a lab."""
        return self.path.exists()

    def write(self, **fields: Any) -> None:
        """Put these fields of a SchedulingShard's spec in force; without any, those of the start."""
        shard = msgspec.convert({**_SPEC, **fields}, ShardSpec)
        new = self.path.with_suffix(".new")
        content, _ = shard_configuration(shard, Settings(ConfigSpec(), OWN_IMAGES))
        new.write_text(as_text(content), encoding="utf-8")
        # The scheduler may read at any moment.
        os.replace(new, self.path)

    @contextmanager
    def written(self, **fields: Any) -> Iterator[None]:
        """These fields in force; afterwards those of the start."""
        assert "args" not in fields, "the flags of a lab's scheduler cannot change"
        self.write(**fields)
        try:
            yield
        finally:
            self.write()
