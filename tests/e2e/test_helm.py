"""The chart as users install it: `helm install`, `helm upgrade` and `helm uninstall` on a real control plane.

The pods of the chart's and the operator's Deployments, and those of its hooks, run as real processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykai.api import names
from tests.e2e.endtoend import end_to_end, prepare
from tests.e2e.installation import VALUES, Installation, installation_on_a_control_plane

pytestmark = [
    pytest.mark.cluster_only,
    pytest.mark.skipif("KAI_HELM" not in os.environ, reason="make test-helm builds Helm"),
]
CHART = Path(__file__).parents[2] / "charts" / "kai-scheduler"
RELEASE = "kai-scheduler"
SET = [f"--set={name}={value}" for name, value in VALUES.items()]


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Installation]:
    """A control plane on which nothing is installed yet."""
    with installation_on_a_control_plane(tmp_path) as made:
        yield made


async def test_a_release_is_installed_upgraded_and_removed_while_pods_run(bare: Installation) -> None:
    """operations:10: queues, definitions and what runs outlive the release."""
    chart = ("--namespace", names.DEFAULT_NAMESPACE, "--wait", "--timeout=5m")
    bare.helm("install", RELEASE, str(CHART), "--create-namespace", *chart, *SET)
    await bare.available()
    await prepare(bare.kubeconfig)
    async with end_to_end(bare.kubeconfig) as e2e:
        (queue,) = await e2e.family("helm")
        running = await e2e.pod(queue, gpus=1)
        await e2e.scheduled(running)

        bare.helm("upgrade", RELEASE, str(CHART), *chart, *SET, "--set=global.jsonLog=true")
        await bare.available()
        scheduler = json.loads(
            bare.kubectl("get", "deployment", "kai-scheduler-default", "-n", "kai-scheduler", "-ojson")
        )
        (container,) = scheduler["spec"]["template"]["spec"]["containers"]
        assert "--log-json" in container["args"]
        await e2e.scheduled(running, await e2e.pod(queue, gpus=1))

        bare.helm("uninstall", RELEASE, *chart)
        assert bare.kubectl("get", "deployments", "-n", "kai-scheduler", "-oname") == ""
        kept = bare.kubectl("get", "queues", "-oname").split()
        assert {"queue.scheduling.run.ai/helm", "queue.scheduling.run.ai/default-queue"} <= set(kept)
        definitions = bare.kubectl("get", "customresourcedefinitions", "-oname")
        assert "podgroups.scheduling.run.ai" in definitions
        await e2e.scheduled(running)

        bare.helm("install", RELEASE, str(CHART), *chart, *SET)
        await bare.available()
        await e2e.scheduled(running, await e2e.pod(queue, gpus=1))
