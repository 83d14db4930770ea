"""The ConfigMap of a shard, followed through the API: a change is in force long before the kubelet has written a file.

In: its keys `config.yaml` and `args`, the command line.  Out: a new text for the configuration file, flags to go on
with, or the flags for which this process must not decide any more (operations:E-18, OD-10).

Subtle: a mounted file may be a minute old, so nothing is decided before the ConfigMap has been seen once.  One that is
missing or cannot be read changes nothing.  A shadow follows the ConfigMap of the scheduler beside it, which KAI's
operator writes without `args`; it has no operator that would replace it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Final

from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.flags import OptionError
from pykai.kube.store import Change, Store
from pykai.scheduler.config.configfile import ConfigurationFile
from pykai.scheduler.config.reloading import compare_command_lines
from pykai.scheduler.flags import Flags

log = logging.getLogger(__name__)

CONFIGURATION_KEY: Final = "config.yaml"
ARGUMENTS_KEY: Final = "args"


class ShardConfigMap:
    """See the module."""

    def __init__(
        self,
        caches: Caches,
        flags: Flags,
        configuration: ConfigurationFile,
        *,
        use: Callable[[Flags], None],
        stop_deciding: Callable[[str], None],
    ) -> None:
        """`use` takes flags that are in force at once, `stop_deciding` why this process must not decide any more."""
        name, namespace = flags.other["scheduler-configmap"], flags.other["namespace"]
        self._flags = flags
        self._configuration = configuration
        self._use = use
        self._stop_deciding = stop_deciding
        self._source = f"ConfigMap {namespace}/{name}"
        #: what a shadow has otherwise than the scheduler beside it, on purpose
        self._own = ("--shadow=true", "--leader-elect=false") if flags.other["shadow"] else ()
        self.store: Store[dict[str, Any]] = caches.store(
            resources.CONFIG_MAPS, dict, namespace=namespace, field_selector=f"metadata.name={name}"
        )

    def follow(self) -> None:
        """Use what is there, and every change."""
        self.store.subscribe(self._on_change)
        for found in self.store.values():
            self._read(found)
        if not len(self.store):
            log.warning("%s does not exist; the configuration file is used", self._source)

    def _on_change(self, change: Change[dict[str, Any]]) -> None:
        if change.new is not None:
            self._read(change.new)

    def _read(self, found: dict[str, Any]) -> None:
        data = found.get("data") or {}
        if CONFIGURATION_KEY in data:
            self._configuration.offer(data[CONFIGURATION_KEY], self._source)
        flags = self._flags
        if ARGUMENTS_KEY in data:
            try:
                arguments = json.loads(data[ARGUMENTS_KEY])
                if not isinstance(arguments, list):
                    raise ValueError("expected a list of texts")
                new = compare_command_lines(self._flags, [*map(str, arguments), *self._own])
            except (ValueError, OptionError) as error:
                log.error("%s: %s: %s; the flags stay as they are", self._source, ARGUMENTS_KEY, error)
            else:
                flags = new.flags
                if new.stopping:
                    what_to_do = "; run kai install --shadow again" if self._own else ""
                    self._stop_deciding(f"{', '.join(new.stopping)} changed in {self._source}{what_to_do}")
        self._use(flags)
