"""Rotates the certificate of the webhooks while pods are created, and counts pods that were refused.

    python -m tests.webhooks.rotation                  # 20 rotations, 50 pods a second, on the embedded API server
    python -m tests.webhooks.rotation --cluster        # the same on a real control plane

Pods are created as a dry run, which calls the webhooks and stores nothing.  The exit status is 1 if a pod was refused.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from pykai.api import names
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import KubeError
from pykai.kube.resources import PODS, SECRETS
from pykai.webhooks.table import TLS_SECRET
from tests import servers
from tests.webhooks.admissioncluster import Admission, admitted
from tests.webhooks.test_gpusharing import HALF, a_pod

#: pods that are being created at a time
_WORKERS = 8


@dataclass
class Load:
    """Pods that were created during the rotations."""

    created: int = 0
    #: certificates that were served, oldest first
    certificates: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


async def rotate_under_load(admission: Admission, rotations: int, per_second: float = 0.0) -> Load:
    """Rotate while pods are created: so many a second, or, with 0, one after the other on a few connections."""
    load = Load(certificates=[(await admission.secret())["data"]["serving.crt"]])
    numbers = count()
    stop = asyncio.Event()
    workers = [asyncio.create_task(_create(admission.admin, load, stop, numbers, per_second)) for _ in range(_WORKERS)]
    try:
        for _ in range(rotations):
            load.certificates.append(await rotate(admission, load.certificates[-1]))
            created = load.created
            # The new certificate must have been asked for as well.
            while load.created < created + _WORKERS and not load.failures:
                await asyncio.sleep(0)
    finally:
        stop.set()
        await asyncio.gather(*workers)
    return load


async def rotate(admission: Admission, served: str) -> str:
    """Ask for a rotation as an administrator does; the certificate that is served afterwards."""
    annotate = {"metadata": {"annotations": {names.ROTATE_CERTIFICATE_ANNOTATION: "now"}}}
    await admission.admin.patch(SECRETS, TLS_SECRET, annotate, names.DEFAULT_NAMESPACE)
    return await admission.another_certificate(served)


async def _create(client: Client, load: Load, stop: asyncio.Event, numbers: count[int], per_second: float) -> None:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    while not stop.is_set():
        number = next(numbers)
        if per_second:
            await asyncio.sleep(max(0.0, started_s + number / per_second - loop.time()))
        try:
            made = await client.create(PODS, a_pod(HALF, name=f"load-{number}"), "default", dry_run=True)
            assert names.SHARED_GPU_CONFIGMAP_ANNOTATION in made["metadata"]["annotations"]
        except (KubeError, AssertionError) as error:
            load.failures.append(str(error))
        load.created += 1


async def _run(rotations: int, per_second: float, overlap: str) -> Load:
    async with (
        servers.api_server(Clock()) as server,
        admitted(server, certificate_overlap=overlap) as admission,
    ):
        return await rotate_under_load(admission, rotations, per_second)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rotations", type=int, default=20)
    parser.add_argument("--per-second", type=float, default=50.0)
    parser.add_argument("--overlap", default="2s", help="between trust in a certificate and its use")
    parser.add_argument("--cluster", action="store_true", help="on a real control plane; needs Go")
    given = parser.parse_args()
    with ExitStack() as stack:
        if given.cluster:
            from tests.cluster.plane import running_plane

            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            servers.REAL = stack.enter_context(running_plane(folder))
        load = asyncio.run(_run(given.rotations, given.per_second, given.overlap))
    rotated = len(set(load.certificates)) - 1
    print(f"{rotated} rotations, {load.created} pods, {len(load.failures)} refused")
    for failure in sorted(set(load.failures))[:10]:
        print(f"  {failure}")
    return 1 if load.failures or rotated < given.rotations else 0


if __name__ == "__main__":
    sys.exit(main())
