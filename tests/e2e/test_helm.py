"""The chart as users install it: `helm install`, `helm upgrade` and `helm uninstall` on a real control plane.

The pods of the chart's and the operator's Deployments, and those of its hooks, run as real processes.  All
specs share the release: it is there again afterwards.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.e2e.endtoend import end_to_end, prepare
from tests.e2e.installation import CHART, OF_THE_RELEASE, RELEASE, SET, Installation

pytestmark = [
    pytest.mark.cluster_only,
    pytest.mark.skipif("KAI_HELM" not in os.environ, reason="make test-helm builds Helm"),
]


async def test_a_release_is_upgraded_and_removed_while_pods_run(installation: Installation) -> None:
    """operations:10: queues, definitions and what runs outlive the release."""
    await prepare(installation.kubeconfig)
    async with end_to_end(installation.kubeconfig) as e2e:
        (queue,) = await e2e.family("helm")
        running = await e2e.pod(queue, gpus=1)
        await e2e.scheduled(running)

        installation.helm("upgrade", RELEASE, str(CHART), *OF_THE_RELEASE, *SET, "--set=global.jsonLog=true")
        await installation.available()
        scheduler = json.loads(
            installation.kubectl("get", "deployment", "kai-scheduler-default", "-n", "kai-scheduler", "-ojson")
        )
        (container,) = scheduler["spec"]["template"]["spec"]["containers"]
        assert "--log-json" in container["args"]
        await e2e.scheduled(running, await e2e.pod(queue, gpus=1))

        installation.helm("uninstall", RELEASE, *OF_THE_RELEASE)
        assert installation.kubectl("get", "deployments", "-n", "kai-scheduler", "-oname") == ""
        kept = installation.kubectl("get", "queues", "-oname").split()
        assert {"queue.scheduling.run.ai/helm", "queue.scheduling.run.ai/default-queue"} <= set(kept)
        definitions = installation.kubectl("get", "customresourcedefinitions", "-oname")
        assert "podgroups.scheduling.run.ai" in definitions
        await e2e.scheduled(running)

        installation.helm("install", RELEASE, str(CHART), *OF_THE_RELEASE, *SET)
        await installation.available()
        await e2e.scheduled(running, await e2e.pod(queue, gpus=1))
