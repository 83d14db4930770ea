"""The cluster of a recorded case: what is read from the case, and how it moves on between cycles."""

from typing import Any

import pytest

from pykai.core.model.status import TaskStatus
from pykai.dev.cases import Case
from pykai.dev.conformance import CaseRun, run_case
from pykai.dev.settings import read_settings
from tests.core.builders import cluster
from tests.dev.small_cases import BINDING, PENDING, Raw, case, read


def test_a_bound_pod_runs_in_the_next_cycle_and_goes_on_running() -> None:
    running = {"podGroups": {"train": {"status": "Running", "node": "node-0"}}, "runningPods": {"train": 2}}
    idle = {"nodes": {"node-0": {"idleGPUs": 0, "releasingGPUs": 0}}}
    cycles = {"until_match": 1, "still_match_for": 2}
    assert run_case(read(case(1, running | idle, cycles=cycles)), validate=True) == []
    assert run_case(read(case(1, PENDING, cycles={"run": 3}))) == [
        "after cycle 3: group train: pod train-0: status Running, expected Pending",
        "after cycle 3: group train: pod train-1: status Running, expected Pending",
    ]


def releasing(expect: Raw, **more: Any) -> Case:
    """A pod that terminates on the only node while another waits for its two GPUs."""
    made = (
        cluster(nodes=1, gpus=2)
        .queue("q", quota=2)
        .gang("leaving", gpu=2, on="node-0", deleted=0)
        .gang("coming", gpu=2)
        .objects
    )
    return read(case(1, expect, podStates={"leaving-0": "Releasing"}, **more) | {"objects": made})


def test_what_a_terminating_pod_holds_is_promised_to_another() -> None:
    expect = {
        "podGroups": {
            "leaving": {"status": "Releasing", "node": "node-0"},
            "coming": {"status": "Pipelined", "node": "node-0"},
        },
        "nodes": {"node-0": {"idleGPUs": 0, "releasingGPUs": 0}},
    }
    assert run_case(releasing(expect), validate=True) == []


def test_pod_states_hold_where_the_object_says_otherwise() -> None:
    made = cluster(nodes=1, gpus=2).queue("q", quota=2).gang("train", gpu=2, on="node-0").objects
    expect = {
        "pods": {"train-0": {"status": "Releasing", "node": "node-0"}},
        "nodes": {"node-0": {"idleGPUs": 0, "releasingGPUs": 2}},
    }
    raw = case(1, expect) | {"objects": made, "podStates": {"train-0": "Releasing"}}
    assert run_case(read(raw)) == []


LEFT: Raw = {
    "podGroups": {"leaving": {"status": "Pending"}, "coming": {"status": "Pending"}},
    "nodes": {"node-0": {"idleGPUs": 2, "releasingGPUs": 0}},
}
BACK: Raw = {
    "podGroups": {"leaving": {"status": "Running", "node": "node-0"}, "coming": {"status": "Pending"}},
    "nodes": {"node-0": {"idleGPUs": 0, "releasingGPUs": 0}},
}


def test_a_releasing_pod_leaves_and_comes_back_as_a_pending_one() -> None:
    """The older group is served first, so the pod that left takes its place again."""
    assert run_case(releasing(LEFT, cycles={"run": 1})) == []
    assert run_case(releasing(BACK, cycles={"until_match": 2, "still_match_for": 2})) == []


def test_expectations_must_hold_after_the_first_comparison_and_after_each_later_one() -> None:
    too_early = run_case(releasing(BACK, cycles={"until_match": 1, "still_match_for": 1}))
    assert "after cycle 1: group leaving: pod leaving-0: status Pending, expected Running" in too_early
    too_short = run_case(releasing(LEFT, cycles={"until_match": 1, "still_match_for": 1}))
    assert "after cycle 2: group leaving: pod leaving-0: status Running, expected Pending" in too_short


def test_a_pipelined_pod_is_pending_again_also_one_that_ran_before() -> None:
    made = cluster(nodes=1, gpus=2).queue("q", quota=2).gang("moved", gpu=2, on="node-0").objects
    expect = {"pods": {"moved-0": {"status": "Pending"}}, "nodes": {"node-0": {"idleGPUs": 2, "releasingGPUs": 0}}}
    raw = case(1, expect, cycles={"run": 1}) | {"objects": made, "podStates": {"moved-0": "Pipelined"}}
    assert run_case(read(raw)) == []


def test_a_pod_that_comes_back_has_forgotten_its_shared_gpus() -> None:
    made = (
        cluster(nodes=1, gpus=4)
        .queue("q", quota=4)
        .gang("wide", fraction=0.5, devices=2, on="node-0", device=("a", "b"), deleted=0)
        .objects
    )
    expect = {"podGroups": {"wide": {"status": "Running"}}, "podsByDevice": [["wide-0"], ["wide-0"]]}
    raw = case(1, expect, cycles={"run": 2}) | {"objects": made}
    assert run_case(read(raw)) == []


def test_evicted_pods_that_never_leave_stay_releasing() -> None:
    stays = {"podGroups": {"leaving": {"status": "Releasing", "node": "node-0"}, "coming": {"status": "Pending"}}}
    never = {"evictedPodsNeverLeave": ["leaving"]}
    cycles = {"until_match": 2, "still_match_for": 3, "seconds_between": 300}
    assert run_case(releasing(stays, cycles=cycles, environment=never)) == []


def test_shared_gpus_stay_shared_after_the_cluster_has_moved_on() -> None:
    made = cluster(nodes=1, gpus=2).queue("q", quota=2).gang("half", pods=3, fraction=0.5, devices=1).objects
    expect = {
        "podGroups": {"half": {"status": "Running"}},
        "podsByDevice": [["half-0", "half-1"], ["half-2"]],
        "nodes": {"node-0": {"idleGPUs": 0}},
    }
    raw = case(1, expect, cycles={"until_match": 1, "still_match_for": 1}) | {"objects": made}
    assert run_case(read(raw), validate=True) == []


def test_several_shared_gpus_of_one_pod_are_remembered() -> None:
    made = cluster(nodes=1, gpus=2).queue("q", quota=2).gang("wide", pods=2, fraction=0.5, devices=2).objects
    expect = {"podsByDevice": [["wide-0", "wide-1"], ["wide-0", "wide-1"]], "runningPods": {"wide": 2}}
    raw = case(1, expect, cycles={"run": 2}) | {"objects": made}
    assert run_case(read(raw), validate=True) == []


def test_the_clock_moves_only_by_seconds_between() -> None:
    moving = CaseRun(read(case(1, PENDING, cycles={"run": 2, "seconds_between": 0.5})))
    standing = CaseRun(read(case(1, PENDING, cycles={"run": 2})))
    for case_run in (moving, standing):
        case_run.step()
        case_run.step()
    assert moving.now_ns - standing.now_ns == 1_000_000_000
    assert standing.now_ns == standing.case.now_ns


def test_the_clock_of_the_case_is_that_of_the_cycle() -> None:
    """A terminating pod is stuck after two minutes (cycle:TSK-3)."""
    made = cluster(nodes=1, gpus=2).queue("q", quota=2).gang("leaving", gpu=2, on="node-0", deleted=0).objects
    raw = case(1, {"podGroups": {"leaving": {"status": "Releasing"}}}) | {"objects": made}
    assert run_case(read(raw)) == []
    late = case(1, {"podGroups": {"leaving": {"status": "StuckInReleasing"}}}) | {
        "objects": made,
        "now": "2026-01-01T00:02:01Z",
    }
    assert run_case(read(late)) == []
    assert run_case(read(late | {"settings": {"stuck-in-releasing-threshold": "5m"}})) != []


def test_gpu_memory_not_synced_hides_the_label() -> None:
    made = cluster(nodes=1, gpus=2).queue("q", quota=2).gang("train", gpu_memory=100).objects
    raw = case(1, {"podGroups": {"train": {"status": "Binding"}}}) | {"objects": made}
    assert run_case(read(raw)) == []
    raw |= {"environment": {"gpuMemoryNotSynced": ["node-0"]}}
    assert run_case(read(raw)) == ["group train: pod train-0: status Pending, expected Binding"]


def test_the_predicates_plugin_can_be_off() -> None:
    on_the_moon = {"nodeSelector": {"zone": "moon"}}
    made = cluster(nodes=1, gpus=2).queue("q", quota=2).gang("train", gpu=1, spec=on_the_moon).objects
    raw = case(1, BINDING) | {"objects": made}
    assert run_case(read(raw)) != []
    assert run_case(read(raw | {"environment": {"predicatesPlugin": "off"}})) == []


def test_a_configuration_of_the_case_is_the_whole_configuration() -> None:
    made = cluster(nodes=2, gpus=2).queue("q", quota=4).gang("old", gpu=1, on="node-0").gang("train", gpu=1).objects
    spread = {"tiers": [{"plugins": [{"name": "nodeplacement", "arguments": {"gpu": "spread"}}]}]}
    packed = case(1, BINDING) | {"objects": made}
    assert run_case(read(packed)) == []
    apart = case(1, {"podGroups": {"train": {"node": "node-1"}}}) | {"objects": made, "schedulerConf": spread}
    assert run_case(read(apart)) == []


def test_a_case_may_choose_a_profile() -> None:
    """By its settings or by its configuration (cycle:FLT-4)."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}
    listed = [{"weight": 1, "preference": term}]
    wish = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": listed}}}
    made = cluster(nodes=2, gpus=2).queue("q", quota=4).gang("train", gpu=1, spec=wish).objects
    raw = case(1, {"podGroups": {"train": {"node": "node-1"}}}) | {"objects": made}
    assert run_case(read(raw)) != []
    assert run_case(read(raw | {"settings": {"profile": "kubernetes"}})) == []
    assert run_case(read(raw | {"schedulerConf": {"profile": "kubernetes"}})) == []
    with pytest.raises(ValueError, match="unknown profile 'kube'"):
        run_case(read(raw | {"schedulerConf": {"profile": "kube"}}))


def test_settings_reach_the_shard_or_wait_for_their_action() -> None:
    settings = read_settings(
        {
            "restrict-node-scheduling": True,
            "full-hierarchy-fairness": "false",
            "stuck-in-releasing-threshold": "0s",
            "default-staleness-grace-period": "0s",
            "max-consolidation-preemptees": 3,
        }
    )
    assert settings.shard.restrict_nodes
    assert not settings.shard.full_hierarchy
    assert settings.shard.stuck_after_ns == 120_000_000_000
    assert settings.staleness_grace_ns == 0
    assert settings.max_consolidation_preemptees == 3
    with pytest.raises(ValueError, match=r"settings\.full-hierarchy-fairness: 'maybe': expected true or false"):
        read_settings({"full-hierarchy-fairness": "maybe"})


def test_the_message_of_a_group_is_its_detailed_fit_error() -> None:
    raw = case(1, {"podGroups": {"train": {"status": "Pending", "message": "?"}}}, pods=3)
    (line,) = run_case(read(raw))
    assert line.startswith(
        'group train: message "\\nPodSchedulingErrors.\\nResources were found for 2 pods while 3 are'
    )


def zoned_case(expect: Raw, **more: Any) -> Case:
    """Two Guaranteed pods of three cores, and a node with two zones of four."""
    zone = {"cpu": 4}
    made = cluster(nodes=1).queue("q").zones("node-0", zone, zone).gang("train", 2, cpu=3, qos="Guaranteed")
    return read(case(1, expect, **more) | {"objects": made.objects})


def test_a_started_pod_keeps_its_numa_zones_and_its_class() -> None:
    zones = {"pods": {f"train-{zone}": {"numaZones": [zone]} for zone in (0, 1)}}
    assert run_case(zoned_case(zones), validate=True) == []
    cycles = {"until_match": 1, "still_match_for": 2}
    assert run_case(zoned_case(zones, cycles=cycles), validate=True) == []
    wrong = {"pods": {"train-0": {"numaZones": [1]}}}
    assert run_case(zoned_case(wrong)) == ["pod train-0: NUMA zones [0], expected [1]"]


def test_a_pod_that_comes_back_has_its_class_but_no_zones() -> None:
    made = zoned_case({}, cycles={"run": 2})
    run = CaseRun(made)
    run.step()
    run.tables.assume("default/train-0", TaskStatus.RELEASING)
    run.apply_decisions(run.cycle())
    back, stayed = (run.tables.snapshot(run.now_ns).task_records[f"default/train-{index}"] for index in (0, 1))
    assert back.shape is stayed.shape
    assert back.numa_record == ()
    assert stayed.numa_record == (("zone-1", (("cpu", 3000),)),)
