"""upgrade (operations:17): from the chart of another version, while work runs.

There is no release yet to upgrade from: the chart before is this one under a lower version, and so with other images.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from pykai.kube.resources import CONFIGS
from tests.e2e.endtoend import EndToEnd, end_to_end, prepare
from tests.e2e.installation import CHART, OF_THE_RELEASE, RELEASE, SET, Installation

pytestmark = [
    pytest.mark.cluster_only,
    pytest.mark.skipif("KAI_HELM" not in os.environ, reason="make test-helm builds Helm"),
    pytest.mark.asyncio(loop_scope="module"),
]
BEFORE = "0.0.1"


@dataclass
class Upgrade:
    """A cluster with the version before, and what runs there."""

    e2e: EndToEnd
    installation: Installation
    queue: str
    pod: str

    async def generation(self) -> int:
        """Of the Config."""
        return int((await self.e2e.client.get_raw(CONFIGS, "kai-config"))["metadata"]["generation"])


def chart_before(folder: Path) -> Path:
    """The chart under a lower version."""
    shutil.copytree(CHART, folder)
    about = folder / "Chart.yaml"
    lines = [
        f'{name}: "{BEFORE}"' if (name := line.partition(":")[0]) in ("version", "appVersion") else line
        for line in about.read_text(encoding="utf-8").splitlines()
    ]
    about.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upgrade(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Upgrade]:
    old = chart_before(tmp_path_factory.mktemp("chart") / "kai-scheduler")
    installation.helm("upgrade", RELEASE, str(old), *OF_THE_RELEASE, *SET)
    await installation.available()
    await prepare(installation.kubeconfig)
    async with end_to_end(installation.kubeconfig) as e2e:
        (queue,) = await e2e.family("upgrade")
        pod = await e2e.pod(queue)
        await e2e.scheduled(pod)
        assert image_tags(e2e) == {BEFORE}
        made = Upgrade(e2e, installation, queue, pod)
        generation = await made.generation()
        installation.helm("upgrade", RELEASE, str(CHART), *OF_THE_RELEASE, *SET)
        await installation.available()
        assert await made.generation() > generation
        yield made


def image_tags(e2e: EndToEnd) -> set[str]:
    """Of the programs that run."""
    return {
        each["image"].rpartition(":")[2]
        for app in ("kai-scheduler-default", "binder", "pod-grouper")
        for pod in e2e.system_pods(app)
        for each in pod["spec"]["containers"]
    }


async def test_an_upgrade_is_carried_out(upgrade: Upgrade) -> None:
    """Config and shard are in force for what they say now, with the programs of the new version."""
    e2e = upgrade.e2e
    await e2e.until(lambda: bool(image_tags(e2e)) and BEFORE not in image_tags(e2e), "the new version runs", e2e.system)


async def test_a_pod_from_before_runs_on(upgrade: Upgrade) -> None:
    found = upgrade.e2e.get(upgrade.pod)
    assert found is not None
    assert found["status"]["phase"] == "Running"


async def test_a_new_pod_is_scheduled(upgrade: Upgrade) -> None:
    await upgrade.e2e.scheduled(await upgrade.e2e.pod(upgrade.queue))


async def test_a_new_queue_is_served(upgrade: Upgrade) -> None:
    added = await upgrade.e2e.queue("upgrade-added", parentQueue="upgrade")
    await upgrade.e2e.scheduled(await upgrade.e2e.pod(added))
