"""The scheduler as `kai run scheduler` starts it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from pykai.kube.runtime import Runtime
from pykai.scheduler.flags import checked_flags
from pykai.scheduler.service import Scheduler, make_scheduler


def from_flags(runtime: Runtime, given: Mapping[str, str], registry: CollectorRegistry) -> list[Scheduler]:
    """The scheduler that flags ask for; raises `OptionError` or `ConfigurationError`."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        # In a pod any client may scrape; elsewhere only this machine.
        given = {"listen-address": "127.0.0.1:8080", **given}
    return [make_scheduler(runtime, checked_flags(given), registry=registry)]
