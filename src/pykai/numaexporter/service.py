"""Annotates the pods of one node with the NUMA zones that the kubelet gave them, for the scheduler's plugin `numa`.

In: the kubelet's answers, once a second; the annotations of the node's pods, once a minute.  Out: patches of pods
whose annotation differs.

What is believed to be written is kept per pod and refreshed from the pods themselves, at the start and then at
intervals.  So a restarted exporter writes nothing that is there already, and an annotation that another client changed
is repaired.

Subtle:
- A pod may be gone while the kubelet still lists it; that is no failure.
- A pod of the same name that comes within a poll, with the same placement, gets its annotation at the next comparison.

Statements: gpu:X-2, X-3, X-4; operations:O-31.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.api.core import Pod
from pykai.kube.backoff import Backoff
from pykai.kube.errors import ApiError, ConnectionLost, NotFound, Unauthorized
from pykai.kube.flags import OptionError, read_options
from pykai.kube.resources import PODS
from pykai.kube.runtime import Runtime, run_until_stopped
from pykai.numaexporter.kubelet import KubeletUnavailable, MissingGrpc, PodResourcesSocket
from pykai.numaexporter.metrics import NumaExporterMetrics
from pykai.numaexporter.options import FLAGS, NumaExporterOptions
from pykai.numaexporter.placement import observed_placements
from pykai.numaexporter.podresources import decode_pods
from pykai.numaexporter.sysfs import cores_of_nodes

log = logging.getLogger(__name__)

_LONGEST_PAUSE_S: Final = 60.0
PodKey = tuple[str, str]


class PodResourcesSource(Protocol):
    """Where the kubelet's answers come from."""

    async def list_pods(self) -> bytes:
        """The answer; raises `KubeletUnavailable`."""
        ...

    async def close(self) -> None:
        """Give up the connection."""
        ...


def from_flags(runtime: Runtime, given: Mapping[str, str], registry: CollectorRegistry) -> list[NumaExporter]:
    """The service that flags ask for; raises `OptionError`."""
    options = read_options(NumaExporterOptions(node_name=os.environ.get("NODE_NAME", "")), FLAGS, given)
    if not options.node_name:
        raise OptionError("--node-name: name the node, or set NODE_NAME in the environment")
    try:
        node_of_core = cores_of_nodes(Path(options.sysfs_root))
        source = PodResourcesSocket(Path(options.socket))
    except ValueError as error:
        raise OptionError(f"--sysfs-root: {error}") from error
    except MissingGrpc as error:
        raise OptionError(str(error)) from error
    if not node_of_core:
        raise OptionError(
            f"--sysfs-root: {options.sysfs_root}/devices/system/node lists no cores; mount the host's /sys"
        )
    return [NumaExporter(runtime, options, source, node_of_core, NumaExporterMetrics(registry))]


class NumaExporter:
    """See the module."""

    name = "numa-exporter"

    def __init__(
        self,
        runtime: Runtime,
        options: NumaExporterOptions,
        source: PodResourcesSource,
        node_of_core: Mapping[int, int],
        metrics: NumaExporterMetrics | None = None,
    ) -> None:
        self._client = runtime.client
        self._clock = runtime.clock
        self._options = options
        self._source = source
        self._node_of_core = node_of_core
        self._metrics = metrics or NumaExporterMetrics()
        self._backoff = Backoff(options.poll_s, max(options.poll_s, _LONGEST_PAUSE_S))
        #: the annotation that a pod is believed to have
        self._believed: dict[PodKey, str] = {}
        self._compared_s: float | None = None
        self._ready = False

    def ready(self) -> bool:
        """Whether the last round reached the kubelet and the API server."""
        return self._ready

    async def run(self, stop: asyncio.Event) -> None:
        """Export until told to stop; a round in progress is given up, the next process begins with a comparison."""
        try:
            await run_until_stopped(stop, self._rounds())
        finally:
            await self._source.close()

    async def _rounds(self) -> None:
        failures = 0
        while True:
            problems = await self._round()
            self._ready = not problems
            self._metrics.count_round(failed=bool(problems))
            failures = failures + 1 if problems else 0
            pause_s = self._backoff.delay_s(failures) if problems else self._options.poll_s
            for problem in problems:
                log.warning("%s; the next attempt follows in %g s", problem, pause_s)
            await self._clock.sleep(pause_s)

    async def _round(self) -> list[str]:
        """Ask, compare and write once; what went wrong, as sentences without an end."""
        try:
            placements = observed_placements(decode_pods(await self._source.list_pods()), self._node_of_core)
        except KubeletUnavailable as error:
            return [f"the kubelet does not say what pods were given: {error}"]
        except ValueError as error:
            return [f"the kubelet's answer cannot be read: {error}"]
        self._believed = {key: value for key, value in self._believed.items() if key in placements}
        try:
            if self._is_comparison_due():
                await self._compare()
            return await self._write(placements)
        except ConnectionLost as error:
            return [f"the API server does not answer: {error}"]
        except Unauthorized:
            raise
        except ApiError as error:
            return [f"the pods of node {self._options.node_name} cannot be listed: {error}"]

    def _is_comparison_due(self) -> bool:
        if self._compared_s is None:
            return True
        return 0 < self._options.resync_s <= self._clock.elapsed_s() - self._compared_s

    async def _compare(self) -> None:
        """Take over the annotations that the pods have (gpu:X-4)."""
        listed = await self._client.list(PODS, into=Pod, field_selector=f"spec.nodeName={self._options.node_name}")
        self._compared_s = self._clock.elapsed_s()
        self._believed = {
            (pod.metadata.namespace, pod.metadata.name): pod.metadata.annotations.get(
                names.NUMA_OBSERVED_ANNOTATION, ""
            )
            for pod in listed.items
        }

    async def _write(self, placements: Mapping[PodKey, str]) -> list[str]:
        """Patch the pods whose annotation differs (gpu:X-3)."""
        problems = []
        for key, annotation in placements.items():
            if self._believed.get(key) == annotation:
                continue
            namespace, name = key
            patch = {"metadata": {"annotations": {names.NUMA_OBSERVED_ANNOTATION: annotation}}}
            try:
                await self._client.patch(PODS, name, patch, namespace, brief=True)
                self._metrics.count_annotated_pod()
            except NotFound:
                log.debug("pod %s/%s is gone", namespace, name)
            except Unauthorized:
                raise
            except ApiError as error:
                problems.append(f"pod {namespace}/{name} cannot be annotated: {error}")
                continue
            self._believed[key] = annotation
        return problems
