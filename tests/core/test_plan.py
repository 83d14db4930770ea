"""What comes out of a cycle: the content of binds and nominations, and a plan that is the same bytes every time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.hooks import Hooks
from pykai.core.model.tasks import Task
from pykai.core.policy import NamedPlugin
from pykai.core.report.decisions import Bind, Nominate, OrphanPod
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, Result, cluster

ROOT = Path(__file__).resolve().parents[2]
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}")


def bind_of(built: Cluster, pod: str = "job-0") -> Bind:
    return built.schedule().binds[f"default/{pod}"]


# Binds


def test_a_bind_names_the_pod_its_group_and_its_node() -> None:
    built = cluster(nodes=1, gpus=2).queue("q").group("job", minMember=1).pod("p", group="job", gpu=1, uid="a-uid")
    bind = bind_of(built, "p")
    assert (bind.namespace, bind.pod, bind.uid, bind.group, bind.node) == (
        "default",
        "p",
        "a-uid",
        "default/job",
        "node-0",
    )


def test_whole_gpus_are_received_as_regular() -> None:
    bind = bind_of(cluster(nodes=1, gpus=4).queue("q").gang("job", gpu=3))
    assert (bind.received_type, bind.gpu_count, bind.gpu_portion, bind.gpu_groups) == ("Regular", 3, "1.00", ())


def test_a_pod_without_gpus_receives_none() -> None:
    bind = bind_of(cluster(nodes=1).queue("q").gang("job"))
    assert (bind.received_type, bind.gpu_count, bind.gpu_portion, bind.gpu_groups) == ("Regular", 0, "0.00", ())


def test_a_slice_is_received_as_such() -> None:
    name = "nvidia.com/mig-1g.5gb"
    bind = bind_of(cluster().node(extra={name: 2}).queue("q").gang("job", extra={name: 1}))
    assert (bind.received_type, bind.gpu_count, bind.gpu_portion, bind.gpu_groups) == ("MigInstance", 0, "0.00", ())


def test_a_fraction_names_its_portion_and_a_device_of_its_own() -> None:
    bind = bind_of(cluster(nodes=1, gpus=1).queue("q").gang("job", fraction=0.5))
    assert (bind.received_type, bind.gpu_count, bind.gpu_portion) == ("Fraction", 1, "0.50")
    assert len(bind.gpu_groups) == 1
    assert UUID.fullmatch(bind.gpu_groups[0])


def test_several_devices_have_one_id_each() -> None:
    bind = bind_of(cluster(nodes=1, gpus=2).queue("q").gang("job", fraction="0.333", devices=2))
    assert (bind.received_type, bind.gpu_count, bind.gpu_portion) == ("Fraction", 2, "0.33")
    assert len(set(bind.gpu_groups)) == 2


def test_gpu_memory_is_received_as_the_portion_it_is_on_the_node() -> None:
    bind = bind_of(cluster(nodes=1, gpus=1, gpu_memory=1000).queue("q").gang("job", gpu_memory=335))
    assert (bind.received_type, bind.gpu_count, bind.gpu_portion) == ("Fraction", 1, "0.34")


def test_a_pod_that_joins_a_device_names_that_device() -> None:
    built = cluster(nodes=1, gpus=2).queue("q").group("old")
    built.pod("old", group="old", fraction=0.4, on="node-0", device="gpu-0")
    assert bind_of(built.gang("job", fraction=0.5)).gpu_groups == ("gpu-0",)


def test_pods_that_share_a_new_device_name_the_same_id() -> None:
    result = cluster(nodes=1, gpus=1).queue("q").gang("job", 2, fraction=0.5).schedule()
    assert result.devices_of("job-0") == result.devices_of("job-1") != ()


def test_the_ids_of_new_devices_differ_from_cycle_to_cycle() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").gang("job", fraction=0.5)
    tables, policy = built.tables(), built.policy()
    first, again, later = (
        schedule(tables.snapshot(now), policy).binds[0].gpu_groups for now in (NOW_NS, NOW_NS, NOW_NS + 1)
    )
    assert first == again
    assert first != later


@dataclass(frozen=True)
class Notes:
    """Annotates every bind."""

    notes: dict[str, str]

    def prepare(self, snapshot: Snapshot) -> Hooks:
        def annotate(task: Task, node: str) -> dict[str, str]:
            return {key: value.format(pod=task.name, node=node) for key, value in self.notes.items()}

        return Hooks(bind_annotations=annotate)


def test_plugins_annotate_binds_and_later_ones_win() -> None:
    built = cluster(nodes=1).queue("q").gang("job")
    plugins = [Notes({"a": "{pod} on {node}", "b": "first"}), Notes({"b": "second"})]
    named = tuple(NamedPlugin("notes", plugin) for plugin in plugins)
    built.with_policy(plugins=(*built.policy().plugins, *named))
    assert bind_of(built).annotations == {"a": "job-0 on node-0", "b": "second"}


# Nominations, starts and the rest


def test_a_nomination_names_the_node_and_the_devices() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").group("leaving")
    built.pod("leaving", group="leaving", gpu=1, on="node-0", deleted=1)
    result = built.gang("job", fraction=0.5).schedule()
    (nominated,) = result.plan.nominations
    assert nominated == Nominate("default", "job-0", "job-0", "default/job", "node-0", nominated.gpu_groups)
    assert UUID.fullmatch(nominated.gpu_groups[0])
    assert result.plan.binds == ()


def test_started_are_groups_that_begin_to_run_in_the_order_they_do() -> None:
    built = cluster(nodes=1, gpus=4).queue("q").gang("b", gpu=1).gang("a", gpu=1).gang("too-large", gpu=9)
    built.group("runs", minMember=1).pod("runs-0", group="runs", gpu=1, on="node-0").pod("runs-1", group="runs", gpu=1)
    result = built.schedule()
    assert result.bound("runs") == 1
    assert result.plan.started == ("default/b", "default/a")


def test_a_pod_is_an_orphan_until_its_group_appears() -> None:
    """workloads:EX-4."""
    built = cluster(nodes=1).queue("q").pod("a", group="late")
    assert built.schedule().plan.orphans == (OrphanPod("default", "a", "late"),)
    result = built.group("late").schedule()
    assert (result.plan.orphans, result.bound("late")) == ((), 1)


def test_orphans_are_pods_of_ours_without_a_group_by_name() -> None:
    """workloads:EX-4."""
    built = cluster(nodes=1).queue("q").pod("b").pod("a", namespace="z").pod("a", group="gone")
    built.pod("foreign", scheduler="default-scheduler").pod("runs", on="node-0")
    assert built.schedule().plan.orphans == (
        OrphanPod("default", "a", "gone"),
        OrphanPod("default", "b", ""),
        OrphanPod("z", "a", ""),
    )


def test_waiting_groups_are_listed_by_namespace_and_name_with_how_many_pods_wait() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").gang("b", 3, gpu=2).gang("a", gpu=2).gang("c", namespace="a", gpu=2)
    built.gang("elastic", 3, min=1, gpu=1)
    found = [(item.namespace, item.group, item.queue, item.pending) for item in built.schedule().plan.unscheduled]
    assert found == [
        ("a", "c", "q", 1),
        ("default", "a", "q", 1),
        ("default", "b", "q", 3),
        ("default", "elastic", "q", 2),
    ]


def test_problems_name_the_object_and_the_field() -> None:
    built = cluster(nodes=1).queue("q", weight=-2).group("job", preemptionDelay="soon").pod("p", group="job", cpu="x")
    assert built.schedule().plan.problems == (
        "Pod/default/p: spec.containers[0].resources.requests.cpu: 'x' is not a quantity: expected digits and then one "
        "of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent; the pod waits until this is fixed",
        "PodGroup/default/job: spec.preemptionDelay: 'soon' is not a duration: expected a number with a unit; "
        "no delay is used",
        "Queue/q: spec.resources.gpu.overQuotaWeight: -2 is negative; it counts as 0",
    )


def test_queues_are_listed_with_their_figures() -> None:
    built = cluster(nodes=1, gpus=4, cpu=8, memory="8G").queue("top", display_name="Top")
    built.queue("q", parent="top", quota=2, limit=3, cpu=(1000, 2000, 1), memory=(1, 2, 1))
    top, leaf = built.gang("job", gpu=1, cpu=1, memory="1M", preemptible=False).schedule().plan.queues
    assert (top.name, top.display_name, top.parent) == ("top", "Top", "")
    assert (leaf.name, leaf.display_name, leaf.parent) == ("q", "q", "top")
    assert leaf.quota == (1000, 1e6, 2)
    assert leaf.limit == (2000, 2e6, 3)
    assert leaf.request == leaf.allocated == leaf.allocated_non_preemptible == leaf.fair_share == (1000, 1e6, 1)


def test_work_is_counted_in_tasks_inspected() -> None:
    assert cluster(nodes=1, gpus=4).queue("q").gang("job", 3, gpu=1).schedule().plan.work == 3
    assert cluster(nodes=1).queue("q").schedule().plan.work == 0


# The plan as bytes


def mixed() -> Cluster:
    """Fractions, gangs, queues, affinity, and things that cannot be placed."""
    near = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    affinity = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}}
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    anti = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}}
    built = cluster()
    for index in range(6):
        built.node(gpus=4, cpu=16, gpu_memory=1000 * (1 + index % 2), labels={"zone": f"z{index % 3}"})
    for name, quota in (("a", 4.0), ("b", 2.0), ("c", -1.0)):
        built.queue(name, quota=quota).queue(f"{name}1", parent=name, quota=quota)
        built.queue(f"{name}2", parent=name, limit=6)
    built.group("db", queue="a1").pod("db-0", group="db", on="node-4", labels={"app": "db"})
    built.group("leaving", queue="b2").pod("leaving", group="leaving", gpu=3, on="node-0", deleted=5)
    built.group("old", queue="c1").pod("old", group="old", fraction=0.3, on="node-1", device="gpu-7")
    for index, queue in enumerate(("a1", "a2", "b1", "b2", "c1", "c2")):
        built.gang(f"train-{queue}", 3, queue=queue, gpu=1 + index % 3, age=100)
        built.gang(f"frac-{queue}", 3, min=1, queue=queue, fraction=0.4, age=100)
        built.gang(f"mem-{queue}", 2, queue=queue, gpu_memory=450, preemptible=False, age=100)
    built.gang("near", 2, queue="a2", spec=affinity).gang("apart", 3, queue="b1", labels={"app": "web"}, spec=anti)
    built.gang("huge", 40, queue="c2", gpu=1).gang("lost", queue="nowhere").pod("orphan").pod("stray", group="huge")
    return built


def test_a_plan_encodes_to_json() -> None:
    plan = mixed().schedule().plan
    read: dict[str, Any] = json.loads(plan.encoded())
    assert set(read) == {field.name for field in msgspec.structs.fields(plan)} - {"resume", "served_first", "ungates"}
    assert len(read["binds"]) == len(plan.binds) > 10
    assert read["binds"][0]["node"] == plan.binds[0].node
    assert {refusal["type"] for item in read["unscheduled"] for refusal in item["refusals"]} >= {"NoPlace", "NoQueue"}


def test_unlimited_is_null_in_json() -> None:
    read = json.loads(cluster().queue("q", quota=2).schedule().plan.encoded())
    assert read["queues"][0]["quota"] == [None, None, 2.0]


def test_two_runs_give_equal_bytes() -> None:
    built = mixed()
    first = built.schedule().plan.encoded()
    assert built.schedule().plan.encoded() == first
    tables, policy = built.tables(), built.policy()
    assert schedule(tables.snapshot(NOW_NS), policy).encoded() == first
    assert schedule(tables.snapshot(NOW_NS), policy).encoded() == first, "a cycle leaves the tables as they were"


def test_the_mixed_cluster_has_something_of_everything() -> None:
    result = mixed().schedule()
    kinds = {bind.received_type for bind in result.plan.binds}
    assert kinds == {"Regular", "Fraction"}
    assert result.plan.nominations
    assert result.plan.unscheduled
    assert result.plan.orphans
    assert result.bound("near") == 2
    assert _zones(result, "near") == {"z1"}
    assert len(result.nodes_used("apart")) == 3


def _zones(result: Result, group: str) -> set[str]:
    return {f"z{int(node.removeprefix('node-')) % 3}" for node in result.nodes_used(group)}


@pytest.fixture(scope="module")
def plans_of_other_processes() -> list[bytes]:
    """The plan of the mixed cluster, made by processes that hash texts differently."""
    code = "from tests.core.test_plan import mixed; print(mixed().schedule().plan.encoded().decode(), end='')"
    found = []
    for seed in ("1", "20"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT, env=environment)
        found.append(run.stdout)
    return found


def test_the_hash_seed_of_the_process_does_not_matter(plans_of_other_processes: list[bytes]) -> None:
    first, second = plans_of_other_processes
    assert first == second == mixed().schedule().plan.encoded()


def test_a_pod_without_gpus_received_none_of_a_gpu() -> None:
    """cycle:OUT-1: the portion is always written with two decimals."""
    (bind,) = cluster(nodes=1).queue("q").gang("job").schedule().plan.binds
    assert (bind.received_type, bind.gpu_count, bind.gpu_portion) == ("Regular", 0, "0.00")
