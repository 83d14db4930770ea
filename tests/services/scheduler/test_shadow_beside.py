"""A shadow of `kai install --shadow` decides as the scheduler beside it is configured; its account only reads.

Statements: shadow:beside.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.installation import ConfigSpec, SchedulingShard
from pykai.core.plugins.minruntime import MinRuntime
from pykai.core.plugins.proportion import Proportion
from pykai.kube import resources
from pykai.kube.client import PatchKind
from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.desired.settings import Settings
from pykai.operator.desired.shards import shard_objects
from pykai.operator.installing.release import Release
from pykai.operator.installing.shadow import SHADOW, SHADOW_NAMESPACE, Observed, shadow_objects
from pykai.scheduler.service import Scheduler
from tests.cluster.plane import install
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster
from tests.services.scheduler.test_shadow import cycles
from tests.services.scheduler.test_shadow_report import chosen, until

NS = names.DEFAULT_NAMESPACE
MAP = "kai-scheduler-default"
#: operations:O-6 to O-8: what KAI's operator writes for a shard that spreads, with a plugin that only KAI has
OF_KAI = """
actions: "allocate, consolidation, reclaim, preempt, stalegangeviction"
tiers:
- plugins:
  - {name: predicates}
  - name: proportion
    arguments: {kValue: "0.5"}
  - {name: priority}
  - {name: nodeavailability}
  - {name: resourcetype}
  - {name: podaffinity}
  - {name: elastic}
  - {name: kubeflow}
  - {name: ray}
  - {name: subgrouporder}
  - {name: taskorder}
  - {name: nominatednode}
  - {name: dynamicresources}
  - name: minruntime
    arguments: {defaultPreemptMinRuntime: 10m}
  - {name: topology}
  - {name: snapshot}
  - {name: of-another-version}
  - {name: gpuspread}
  - name: nodeplacement
    arguments: {cpu: spread, gpu: spread}
  - {name: gpusharingorder}
queueDepthPerAction: {preempt: 3}
"""


def shard(**spec: Any) -> SchedulingShard:
    return decode_as(SchedulingShard, {"metadata": {"name": "default"}, "spec": spec})


def settings(replicas: int = 1) -> Settings:
    return Settings(decode_as(ConfigSpec, {"scheduler": {"replicas": replicas}}))


async def config_map(lab: SchedulerCluster, data: dict[str, str]) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP, "namespace": NS}, "data": data}
    await lab.client.patch(resources.CONFIG_MAPS, MAP, obj, NS, kind=PatchKind.APPLY, field_manager="test", force=True)


def of_our_operator(wanted: SchedulingShard) -> dict[str, str]:
    """What our operator writes for two replicas: the command line, too."""
    made, _ = shard_objects(settings(replicas=2), wanted, ClusterFacts())
    (data,) = (each["data"] for each in made if each["kind"] == "ConfigMap")
    assert "--leader-elect=true" in json.loads(data["args"])
    return dict(data)


@asynccontextmanager
async def beside(data: dict[str, str], wanted: SchedulingShard) -> AsyncIterator[tuple[SchedulerCluster, Scheduler]]:
    """Two nodes, a pod that waits, and the shadow as it is installed, with its flags and its role."""
    objects = shadow_objects(Release(namespace=SHADOW_NAMESPACE).scope(), Observed(settings(), (wanted,)))
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    flags = dict(each.removeprefix("--").split("=", 1) for each in container["args"])
    async with scheduler_cluster() as lab:
        await lab.node("large", gpus=8)
        await lab.node("small", gpus=2)
        await lab.gang("first", pods=1, gpu=1)
        await config_map(lab, data)
        await install(lab.server.transport(), [each for each in objects if each["kind"] != "Deployment"])
        lab.faults.inner = lab.server.account(SHADOW_NAMESPACE, SHADOW)
        async with lab.scheduler(**flags) as scheduler:
            yield lab, scheduler
        assert lab.faults.writes == []


async def test_it_follows_the_config_map_that_kais_operator_writes() -> None:
    async with beside({"config.yaml": OF_KAI}, shard()) as (lab, scheduler):
        assert await chosen(scheduler, "first-0") == "large"
        policy = scheduler.loop.policy
        (proportion,) = (each.plugin for each in policy.plugins if isinstance(each.plugin, Proportion))
        (min_runtime,) = (each.plugin for each in policy.plugins if isinstance(each.plugin, MinRuntime))
        assert (proportion.k_value, min_runtime.default_preempt_ns) == (0.5, 600 * 10**9)
        assert policy.queue_depth == {"preempt": 3}
        (problem,) = scheduler.loop.configuration.problems
        assert "of-another-version" in problem
        packing = OF_KAI.replace("cpu: spread, gpu: spread", "cpu: binpack, gpu: binpack")
        await config_map(lab, {"config.yaml": packing.replace("gpuspread", "gpupack")})
        await until(lambda: scheduler.loop.policy is not policy)
        await lab.gang("second", pods=1, gpu=1)
        assert await chosen(scheduler, "second-0") == "small"


async def test_it_goes_on_with_what_our_operator_writes_until_a_flag_that_decides_changes() -> None:
    spread = {"placementStrategy": {"gpu": "spread", "cpu": "spread"}}
    async with beside(of_our_operator(shard(**spread)), shard(**spread)) as (lab, scheduler):
        assert await chosen(scheduler, "first-0") == "large"
        await cycles(scheduler, 2)
        assert scheduler.leading
        await config_map(lab, of_our_operator(shard(**spread, partitionLabelValue="a100")))
        async with asyncio.timeout(20):
            await scheduler.succession.ordered.wait()
        assert scheduler.succession.why == (
            f"--partition-label-value changed in ConfigMap {NS}/{MAP}; run kai install --shadow again"
        )
