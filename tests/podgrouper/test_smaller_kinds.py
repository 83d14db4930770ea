"""Kinds with a rule or two of their own (workloads:5), and those that the default grouper serves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykai.api.scheduling import PodGroup
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Owner
from tests.podgrouper.groupings import Raw, grouped, owner, pod


def aml_job(spec: Any) -> Owner:
    return replace(owner("AmlJob", "a", "U", api="amlarc.azureml.com/v1alpha1"), body={"spec": spec})


def with_nodes(count: Any) -> Raw:
    return {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": count}}}}


def test_all_nodes_of_an_aml_job_start_together() -> None:
    """workloads:T-112."""
    meta = grouped(pod(), aml_job(with_nodes(3)))
    assert (meta.name, meta.min_available, meta.priority_class) == ("pg-a-U", 3, "train")


@pytest.mark.parametrize("spec", [{}, None, {"job": None}, with_nodes(None), {"job": {"options": {"envs": {}}}}])
def test_an_aml_job_needs_a_number_of_nodes(spec: Any) -> None:
    """workloads:T-112."""
    with pytest.raises(GroupingError, match=r"AmlJob ns/a: spec\.job\.options\.envs\.AZUREML_NODE_COUNT: missing"):
        grouped(pod(), aml_job(spec))


@pytest.mark.parametrize("count", ["3", 2.5, True, -1, 1 << 31, 1 << 80, [], {}])
def test_the_number_of_nodes_is_a_number(count: Any) -> None:
    with pytest.raises(GroupingError, match=r"AmlJob ns/a: .*AZUREML_NODE_COUNT"):
        grouped(pod(), aml_job(with_nodes(count)))


def test_spot_requests_have_the_priority_of_inference() -> None:
    top = owner("SPOTRequest", "s", "U", api="egx.nvidia.io/v1")
    meta = grouped(pod(by=top), top)
    assert (meta.name, meta.min_available, meta.priority_class) == ("pg-s-U", 1, "inference")
    assert grouped(pod(by=top, priority_class="build"), top).priority_class == "build"


def runai_job(parallelism: Any = None) -> Owner:
    body = {"spec": {} if parallelism is None else {"parallelism": parallelism}}
    return replace(owner("RunaiJob", "name", "U", api="run.ai/v1"), body=body)


def test_the_pods_of_one_index_of_a_runai_job_are_a_group() -> None:
    """workloads:T-111."""
    names = [grouped(pod(name), runai_job()).name for name in ("name-0-0", "name-1-0", "name")]
    assert names == ["pg-name-0-U", "pg-name-1-U", "pg-name-U"]
    assert grouped(pod("name-0-0"), runai_job()).min_available == 1


@pytest.mark.parametrize(("parallelism", "legacy"), [(None, "pg-name-U"), (1, "pg-name-U"), (2, "pg-name-0-0-U")])
def test_a_runai_job_keeps_an_older_group(parallelism: int | None, legacy: str) -> None:
    """workloads:WK-RJ."""
    top = runai_job(parallelism)
    known = RecordedReaders(groups={f"ns/{legacy}": PodGroup()})
    assert grouped(pod("name-0-0"), top, readers=known).name == legacy
    off = GroupingSettings(search_legacy_groups=False)
    assert grouped(pod("name-0-0"), top, readers=known, settings=off).name == "pg-name-0-U"
    wrong = runai_job("many")
    with pytest.raises(GroupingError, match=r"RunaiJob ns/name: spec\.parallelism"):
        grouped(pod("name-0-0"), wrong)


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        ("machinelearning.seldon.io/v1alpha2", "SeldonDeployment"),
        ("machinelearning.seldon.io/v1", "SeldonDeployment"),
        ("kubevirt.io/v1", "VirtualMachineInstance"),
        ("kubevirt.io/v1", "VirtualMachine"),
        ("workspace.devfile.io/v1alpha2", "DevWorkspace"),
        ("tekton.dev/v1", "PipelineRun"),
        ("tekton.dev/v1", "TaskRun"),
    ],
)
def test_kinds_of_single_pods_are_one_group(api: str, kind: str) -> None:
    """workloads:5: the whole chain of owners counts."""
    top = owner(kind, "w", "U", api=api)
    between = owner("ReplicaSet", "r", "R", api="apps/v1", by=top, labels={"priorityClassName": "build"})
    meta = grouped(pod(by=between), between, top)
    assert (meta.name, meta.min_available, meta.sub_groups, meta.owner.kind) == ("pg-w-U", 1, (), kind)
    assert (meta.priority_class, grouped(pod(by=top), top).priority_class) == ("build", "train")
