"""Jobs that need not be tried because an equal or easier one has failed (cycle:SIG-1 to SIG-4, T-39).

`failed` is a job that was tried and got nothing; the question is whether `job` is skipped for it.
"""

from typing import Any

import pytest

from pykai.core.cycle.reuse import SignatureNumbers
from pykai.core.eviction.signatures import FailedGangs
from tests.core.builders import Cluster, Result, cluster, leaf
from tests.core.topologies import inside, keeping, racks

Pods = list[dict[str, Any]]


def ground() -> Cluster:
    built = cluster(nodes=1, gpus=4).queue("q").queue("other")
    return built.priority_class("high", 90).priority_class("low", 10)


def job(built: Cluster, name: str, pods: Pods, **group: Any) -> Cluster:
    """A waiting job with these pods."""
    spec = {"minMember": len(pods), "preemptibility": "preemptible", "queue": "q", **group}
    built.group(name, **spec)
    for index, pod in enumerate(pods):
        built.pod(f"{name}-{index}", group=name, **pod)
    return built


def skipped(built: Cluster, *failed: str, by_queue: bool = True) -> bool:
    """Whether `job` is skipped after these failed, one after the other."""
    cycle = built.cycle()
    memory = FailedGangs(cycle.state, cycle.gangs, by_queue=by_queue)
    groups = cycle.context.snapshot.group_entries
    for name in failed:
        memory.add(cycle.gangs.gang(groups[f"default/{name}"]))
    return memory.failed_alike(cycle.gangs.gang(groups["default/job"])) is not None


def covered(failed: Pods, new: Pods, *, failed_group: dict[str, Any] | None = None, **group: Any) -> bool:
    built = job(ground(), "failed", failed, **(failed_group or {}))
    return skipped(job(built, "job", new, **group), "failed")


def cpu(*amounts: str) -> Pods:
    return [{"cpu": amount} for amount in amounts]


# Easier or not


@pytest.mark.parametrize(
    ("failed", "new", "skip"),
    [
        (cpu("100m"), cpu("50m"), False),
        (cpu("100m"), cpu("100m"), True),
        (cpu("100m"), cpu("200m"), True),
        ([{"cpu": "100m", "memory": "1Gi"}], [{"cpu": "50m", "memory": "2Gi"}], True),
        (cpu("100m", "100m"), cpu("100m"), False),
        (cpu("100m"), cpu("100m", "100m"), False),
        (cpu("1000m", "100m", "100m"), cpu("500m", "500m", "500m"), False),
        (cpu("100m", "1000m"), cpu("1000m", "100m"), True),
        (cpu("100m", "100m"), cpu("200m", "200m", "50m"), False),
    ],
)
def test_t39_a_job_is_tried_when_it_is_easier(failed: Pods, new: Pods, skip: bool) -> None:
    """cycle:SIG-1, SIG-3, T-39: a pod that requests less than its counterpart, both sorted; another number of pods
    is another signature."""
    assert covered(failed, new) is skip


@pytest.mark.parametrize(
    ("failed", "new", "skip"),
    [
        ({"gpu": 2}, {"gpu": 1}, False),
        ({"gpu": 1}, {"gpu": 2}, True),
        ({"fraction": 0.5}, {"fraction": 0.4}, False),
        ({"fraction": 0.5}, {"fraction": 0.5}, True),
        ({"memory": "2Gi"}, {"memory": "1Gi"}, False),
        ({"extra": {"example.com/chip": 2}}, {"extra": {"example.com/chip": 1}}, False),
    ],
)
def test_sig3_every_resource_counts(failed: dict[str, Any], new: dict[str, Any], skip: bool) -> None:
    """cycle:SIG-3."""
    assert covered([failed], [new]) is skip


def test_sig3_only_pods_that_wait_are_compared() -> None:
    """cycle:SIG-3: the same job with one pod running already requests less."""
    built = job(ground(), "failed", cpu("1", "1"))
    assert not skipped(job(built, "job", [{"cpu": "1"}, {"cpu": "1", "on": "node-0"}]), "failed")


def test_nothing_is_skipped_before_anything_has_failed() -> None:
    """cycle:SIG-3."""
    assert not skipped(job(ground(), "job", cpu("1")))


def test_the_reason_names_the_gang_that_failed() -> None:
    """cycle:14: so that users see why a job was not tried."""
    cycle = job(job(ground(), "failed", cpu("1")), "job", cpu("1")).cycle()
    memory = FailedGangs(cycle.state, cycle.gangs, by_queue=True)
    gangs = [cycle.gangs.gang(cycle.context.snapshot.group_entries[f"default/{name}"]) for name in ("failed", "job")]
    memory.add(gangs[0])
    assert memory.failed_alike(gangs[1]) == "default/failed"


def test_numbers_of_another_numbering_are_not_compared() -> None:
    """docs/caches.md: after many cycles constraints are numbered again; here each gang was the first once."""
    built = job(ground(), "failed", [{"spec": {"nodeSelector": {"zone": "a"}}}])
    cycle = job(built, "job", cpu("1")).cycle()
    gangs = [cycle.gangs.gang(cycle.context.snapshot.group_entries[f"default/{name}"]) for name in ("failed", "job")]
    FailedGangs(cycle.state, cycle.gangs, by_queue=True).add(gangs[0])
    cycle.gangs.reuse.signature_numbers = SignatureNumbers(count_zones=False)
    memory = FailedGangs(cycle.state, cycle.gangs, by_queue=True)
    memory.add(gangs[1])
    assert memory.failed_alike(gangs[0]) is None
    assert memory.failed_alike(gangs[1]) == "default/job"


# Which gang represents a signature


@pytest.mark.parametrize(
    ("second", "skip"),
    [
        (cpu("100m"), True),  # easier: it represents the signature from now on
        (cpu("300m"), False),  # harder: the first still does
    ],
)
def test_sig3_the_easiest_failed_gang_represents_its_signature(second: Pods, skip: bool) -> None:
    """cycle:SIG-3: after a failure it is replaced only if the new one is no harder anywhere."""
    built = job(job(ground(), "first", cpu("200m")), "second", second)
    assert skipped(job(built, "job", cpu("150m")), "first", "second") is skip


def test_sig3_a_job_that_requests_more_of_one_resource_does_not_replace() -> None:
    """cycle:SIG-3: every paired vector must be no larger."""
    built = job(ground(), "first", [{"cpu": "200m", "memory": "1Gi"}])
    job(built, "second", [{"cpu": "100m", "memory": "2Gi"}])
    assert not skipped(job(built, "job", [{"cpu": "150m", "memory": "1Gi"}]), "first", "second")


def test_sig3_a_pod_that_requests_what_its_counterpart_does_not_is_harder() -> None:
    """cycle:SIG-3: however little that is; sorted, the pod with a disk has another counterpart in each gang."""
    disk = {"cpu": "50m", "extra": {"ephemeral-storage": "1m"}}
    built = job(job(ground(), "first", [*cpu("100m"), disk]), "second", [*cpu("1m"), disk])
    assert not skipped(job(built, "job", [*cpu("1m"), disk]), "first", "second")


# Signatures


def test_sig2_queues_are_apart_in_reclaim_and_preempt_and_together_in_consolidation() -> None:
    """cycle:SIG-2."""
    built = job(job(ground(), "failed", cpu("1")), "job", cpu("1"), queue="other")
    assert not skipped(built, "failed", by_queue=True)
    assert skipped(built, "failed", by_queue=False)


TERM = {"key": "zone", "operator": "In", "values": ["a"]}


@pytest.mark.parametrize(
    ("case", "pod"),
    [
        ("node selector", {"spec": {"nodeSelector": {"zone": "a"}}}),
        ("tolerations", {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}),
        (
            "node affinity",
            {
                "spec": {
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [{"matchExpressions": [TERM]}]
                            }
                        }
                    }
                }
            },
        ),
        (
            "pod affinity",
            {
                "spec": {
                    "affinity": {
                        "podAntiAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": [
                                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
                            ]
                        }
                    }
                }
            },
        ),
        ("another resource", {"extra": {"example.com/chip": 1}}),
        ("a shared GPU", {"fraction": 0.5}),
    ],
)
def test_sig1_jobs_with_other_constraints_have_another_signature(case: str, pod: dict[str, Any]) -> None:
    """cycle:SIG-1: neither is skipped for the other; two with the same constraints are."""
    plain: dict[str, Any] = {"cpu": "1"}
    strict = {**plain, **pod}
    assert not covered([plain], [strict]), case
    assert not covered([strict], [plain]), case
    assert covered([strict], [strict]), case


@pytest.mark.parametrize(
    ("case", "container"),
    [
        ("host ports", {"ports": [{"containerPort": 80, "hostPort": 80}]}),
        ("config maps", {"envFrom": [{"configMapRef": {"name": "settings"}}]}),
    ],
)
def test_sig1_jobs_with_other_container_needs_have_another_signature(case: str, container: dict[str, Any]) -> None:
    """cycle:SIG-1."""
    plain: dict[str, Any] = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    strict, free = ([{"spec": {"containers": [each]}}] for each in ({**plain, **container}, plain))
    assert not covered(strict, free), case
    assert covered(strict, strict), case


def _beside(key: str) -> Pods:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    return [{"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}}]


def _with_settings(name: str) -> Pods:
    return [{"spec": {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": name}}]}]}}]


@pytest.mark.parametrize(
    ("failed", "new"), [(_beside("zone"), _beside("rack")), (_with_settings("a"), _with_settings("b"))]
)
def test_sig1_the_needed_amount_is_part_of_the_signature(failed: Pods, new: Pods) -> None:
    """cycle:SIG-1: two affinities, two config maps."""
    assert not covered(failed, new)
    assert covered(failed, failed)


def test_sig1_config_maps_of_another_namespace_are_others() -> None:
    """cycle:SIG-1: names are resolved per namespace."""
    container = {"name": "main", "envFrom": [{"configMapRef": {"name": "settings"}}]}
    built = job(ground(), "failed", [{"spec": {"containers": [container]}}])
    built.group("job", queue="q", minMember=1, preemptibility="preemptible", namespace="elsewhere")
    built.pod("job-0", group="job", namespace="elsewhere", spec={"containers": [container]})
    cycle = built.cycle()
    memory = FailedGangs(cycle.state, cycle.gangs, by_queue=True)
    memory.add(cycle.gangs.gang(cycle.context.snapshot.group_entries["default/failed"]))
    assert memory.failed_alike(cycle.gangs.gang(cycle.context.snapshot.group_entries["elsewhere/job"])) is None


def test_sig1_subgroups_are_compared_as_a_set() -> None:
    """cycle:SIG-1: the same pods over other leaves are another signature; the order of the leaves does not matter."""
    strict: dict[str, Any] = {"spec": {"nodeSelector": {"zone": "a"}}}

    def parted(built: Cluster, name: str, leaves: dict[str, Pods]) -> Cluster:
        entries = [{"name": leaf, "minMember": len(pods)} for leaf, pods in leaves.items()]
        built.group(name, queue="q", preemptibility="preemptible", subGroups=entries)
        for part, pods in leaves.items():
            for index, pod in enumerate(pods):
                built.pod(f"{name}-{part}-{index}", group=name, subgroup=part, **pod)
        return built

    built = parted(ground(), "failed", {"a": [{}, {}], "b": [strict]})
    assert skipped(parted(built, "job", {"x": [strict], "y": [{}, {}]}), "failed")
    built = parted(ground(), "failed", {"a": [{}, {}], "b": [strict]})
    assert not skipped(parted(built, "job", {"x": [{}], "y": [{}, strict]}), "failed")


def test_sig1_leaves_that_are_complete_do_not_count() -> None:
    """cycle:SIG-1: a leaf without waiting pods has no signature."""
    built = job(ground(), "failed", cpu("1"))
    entries = [{"name": "done", "minMember": 1}, {"name": "open", "minMember": 1}]
    built.group("job", queue="q", preemptibility="preemptible", subGroups=entries)
    built.pod("job-0", group="job", subgroup="done", cpu="1", on="node-0").pod("job-1", group="job", subgroup="open")
    assert skipped(built, "failed")


@pytest.mark.parametrize(
    ("case", "group"),
    [
        ("priority", {"priorityClassName": "high"}),
        ("preemptibility", {"preemptibility": "non-preemptible"}),
        ("semi-preemptible", {"preemptibility": "semi-preemptible"}),
    ],
)
def test_sig4_priority_and_preemptibility_are_part_of_the_signature(case: str, group: dict[str, Any]) -> None:
    """cycle:SIG-4, Do better."""
    assert not covered(cpu("1"), cpu("1"), **group), case
    assert covered(cpu("1"), cpu("1"), failed_group=group, **group), case


def test_sig4_semi_preemptible_work_is_not_non_preemptible_work() -> None:
    """cycle:SIG-4, Do better."""
    fixed = {"preemptibility": "non-preemptible"}
    assert not covered(cpu("1"), cpu("1"), failed_group=fixed, preemptibility="semi-preemptible")


@pytest.mark.parametrize(
    ("new", "skip"),
    [
        ({"gpu_memory": 500}, False),
        ({"gpu_memory": 800}, True),
        ({"gpu_memory": 800, "devices": 2}, False),
    ],
)
def test_sig4_gpu_memory_is_part_of_the_signature(new: dict[str, Any], skip: bool) -> None:
    """cycle:SIG-4, Do better: the MiB, and of how many devices."""
    assert covered([{"gpu_memory": 800}], [new]) is skip


# In an action


def full(**policy: Any) -> Cluster:
    """A node of four GPUs, three of which belong to work that stays."""
    built = cluster(nodes=1, gpus=4).with_actions("preempt").queue("q").priority_class("high", 90)
    built.gang("fixed", gpu=3, on="node-0", preemptible=False).gang("old", gpu=1, on="node-0")
    return built.with_policy(**policy)


def verdicts(result: Result, *names: str) -> list[str]:
    return [result.verdicts(name).get("preempt", "") for name in names]


def test_the_second_gang_of_a_signature_is_not_tried() -> None:
    """cycle:14: the verdict names the first."""
    built = full()
    for name in ("first", "second"):
        built.gang(name, gpu=2, priority="high")
    result = built.schedule()
    assert verdicts(result, "first", "second") == ["hopeless", "alike"]
    record = result.unscheduled("second")
    assert record is not None
    assert record.verdicts[0].other == "default/first"


def test_an_easier_one_is_tried_and_served() -> None:
    """cycle:SIG-3: in the action."""
    result = full().gang("large", gpu=2, priority="high").gang("small", gpu=1, priority="high").schedule()
    assert result.pipelined("small") == 1


def test_a_job_that_was_served_is_not_remembered_as_failed() -> None:
    """cycle:SIG-2: only failures count."""
    result = full().gang("first", gpu=1, priority="high").gang("second", gpu=1, priority="high").schedule()
    assert result.pipelined("first") == 1
    assert verdicts(result, "second") == ["hopeless"]


def test_without_signatures_every_gang_is_tried() -> None:
    """cycle:14: --use-scheduling-signatures=false."""
    built = full(reuse_failures=False)
    for name in ("first", "second"):
        built.gang(name, gpu=2, priority="high")
    assert verdicts(built.schedule(), "first", "second") == ["hopeless", "hopeless"]


def test_each_action_begins_with_an_empty_memory() -> None:
    """cycle:SIG-2: for the duration of the action."""
    built = full(actions=("reclaim", "preempt")).gang("first", gpu=1, priority="high")
    result = built.schedule()
    assert result.pipelined("first") == 1


def test_sig4_fractions_of_several_devices_are_not_one_larger_fraction() -> None:
    """cycle:SIG-4, Do better: 0.5 of one GPU is nowhere, 0.25 of two is."""
    assert not covered([{"fraction": 0.5}], [{"fraction": 0.25, "devices": 2}])


def test_sig4_a_gang_that_needs_fewer_pods_is_easier() -> None:
    """cycle:SIG-4, Do better: three pods wait in both; one needs all of them, the other only one."""
    built = full().gang("strict", 3, gpu=1, priority="high").gang("elastic", 3, min=1, gpu=1, priority="high")
    assert built.schedule().pipelined("elastic") == 1


def test_sig4_of_two_that_can_start_in_parts_the_one_that_needs_fewer_is_easier() -> None:
    """cycle:SIG-4, Do better: four pods wait in both; one needs two of them, the other one."""
    built = full().gang("strict", 4, min=2, gpu=1, priority="high").gang("elastic", 4, min=1, gpu=1, priority="high")
    assert built.schedule().pipelined("elastic") == 1


@pytest.mark.parametrize("level", ["rack", "zone"])
def test_sig1_topology_constraints_are_part_of_the_signature(level: str) -> None:
    """cycle:SIG-1: one without, or with another level, is another signature."""
    tight = {"topologyConstraint": {"topology": "net", "requiredTopologyLevel": "rack"}}
    other = {"topologyConstraint": {"topology": "net", "requiredTopologyLevel": level}} if level != "rack" else {}
    assert not covered(cpu("1"), cpu("1"), failed_group=tight, **other)


@pytest.mark.parametrize("other", ["n0", "n1"])
def test_t55_gangs_whose_running_pods_pin_them_are_each_on_their_own(other: str) -> None:
    """topo:T-25, T-55: the same constraint means another rack for a gang that runs elsewhere."""
    built = racks(("rack",), ("r1", 2), ("r2", 2))
    for name, node in (("failed", "n0"), ("job", other)):
        built.group(name, minMember=1, preemptibility="preemptible", **inside("rack"))
        built.pod(f"{name}-0", group=name, gpu=1, on=node).pod(f"{name}-1", group=name, gpu=1)
    assert not skipped(built, "failed")


def test_t55_gangs_that_start_with_other_subgroups_are_not_alike() -> None:
    """topo:T-55: of two subgroups one keeps to a rack; which of them is placed now matters."""
    built = racks(("rack",), ("r1", 2))
    narrow, wide = keeping(leaf("narrow", 1, pending=1), "rack"), leaf("wide", 1)
    built.tree("failed", narrow, wide, needs=1, gpu=1)
    built.tree("job", keeping(leaf("narrow", 1), "rack"), leaf("wide", 1, pending=1), needs=1, gpu=1)
    assert not skipped(built, "failed")
