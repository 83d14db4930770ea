"""Groups of Kubeflow's jobs and Notebooks (workloads:WK-KF, WK-MPI)."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.metadata import GroupingError, Owner
from tests.podgrouper.groupings import Raw, grouped, owner, pod

FIELDS = {
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}
ROLES: dict[str, dict[str, Any]] = {
    "TFJob": {"Chief": 1, "PS": 2, "Worker": 4},
    "XGBoostJob": {"Master": 1, "Worker": 3},
    "JAXJob": {"Worker": 3},
    "MPIJob": {"Launcher": 1, "Worker": 2},
}


def job(kind: str, roles: dict[str, Any] | None = None, minimum: Any = None, version: str = "v1", **spec: Any) -> Owner:
    """A job with these replicas; None for a role that does not say them."""
    if roles is not None:
        spec[FIELDS[kind]] = {name: {} if count is None else {"replicas": count} for name, count in roles.items()}
    if minimum is not None:
        spec["runPolicy"] = {"schedulingPolicy": {"minAvailable": minimum}}
    return owner(kind, "t", "U", api=f"kubeflow.org/{version}", spec=spec)


def minimum_of(top: Owner, *others: Pod) -> int:
    return grouped(pod(by=top), top, readers=RecordedReaders(cluster_pods=others)).min_available


@pytest.mark.parametrize(("kind", "total"), [("TFJob", 7), ("XGBoostJob", 4), ("JAXJob", 3), ("MPIJob", 3)])
def test_all_pods_of_a_job_start_together(kind: str, total: int) -> None:
    """workloads:T-65."""
    meta = grouped(pod(), job(kind, ROLES[kind]))
    assert (meta.name, meta.min_available, meta.min_sub_group, meta.sub_groups) == ("pg-t-U", total, None, ())
    assert (meta.priority_class, meta.owner.kind, meta.pod_sub_group) == ("train", kind, "")


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("roles", [None, {}, {"Worker": 0}])
def test_a_declared_minimum_needs_no_roles(kind: str, roles: dict[str, Any] | None) -> None:
    """workloads:T-65, T-66."""
    assert minimum_of(job(kind, roles, 3)) == 3
    assert minimum_of(job(kind, roles, 0)) == 0


@pytest.mark.parametrize("kind", FIELDS)
def test_a_role_without_pods_is_refused(kind: str) -> None:
    """workloads:T-65."""
    for count in (0, -1):
        with pytest.raises(GroupingError) as raised:
            minimum_of(job(kind, {**ROLES[kind], "Worker": count}))
        said = "the type of the job t doesn't allow for 0 Worker pods. Please fix the replica field"
        assert str(raised.value) == f"{kind} ns/t: spec.{FIELDS[kind]}.Worker.replicas: {said}"


@pytest.mark.parametrize("kind", FIELDS)
def test_absent_replicas_are_one(kind: str) -> None:
    """workloads:WK-KF, Do better: as the training operator takes them; KAI refuses the job (T-65)."""
    others = sum(count for name, count in ROLES[kind].items() if name != "Worker")
    assert minimum_of(job(kind, {**ROLES[kind], "Worker": None})) == others + 1


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("XGBoostJob", "Master"),
        ("XGBoostJob", "Worker"),
        ("JAXJob", "Worker"),
        ("MPIJob", "Launcher"),
        ("MPIJob", "Worker"),
    ],
)
def test_a_job_needs_its_roles(kind: str, missing: str) -> None:
    """workloads:T-66."""
    roles = {name: count for name, count in {**ROLES[kind], "Other": 1}.items() if name != missing}
    with pytest.raises(GroupingError, match=f"doesn't have a {missing} replica spec which is required"):
        minimum_of(job(kind, roles))


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("roles", [None, {}])
def test_a_job_without_roles_is_refused(kind: str, roles: dict[str, Any] | None) -> None:
    with pytest.raises(GroupingError, match=f"the type of the job t doesn't have a {FIELDS[kind]} field. Please fix"):
        minimum_of(job(kind, roles))


@pytest.mark.parametrize("count", ["3", 1.5, True, 1 << 31, 1 << 70])
def test_replicas_are_whole_numbers_of_pods_that_can_be(count: Any) -> None:
    with pytest.raises(GroupingError, match=r"TFJob ns/t: spec\.tfReplicaSpecs"):
        minimum_of(job("TFJob", {"Worker": count}))
    with pytest.raises(GroupingError, match=r"TFJob ns/t: spec\.runPolicy\.schedulingPolicy\.minAvailable"):
        minimum_of(job("TFJob", {"Worker": 1}, minimum=count))


def launcher(name: str = "t", role: str = "launcher", **metadata: Any) -> Pod:
    labels = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/job-role": role}
    return decode_as(Pod, {"metadata": {"name": "l", "namespace": "ns", "labels": labels, **metadata}})


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
class TestDelayedLauncher:
    """An MPIJob whose launcher is created when the workers are ready (workloads:WK-MPI)."""

    POLICY: ClassVar[Raw] = {"launcherCreationPolicy": "WaitForWorkersReady"}

    def test_workers_do_not_wait_for_it(self, version: str) -> None:
        """workloads:T-67."""
        top = job("MPIJob", ROLES["MPIJob"], version=version, **self.POLICY)
        leaving = launcher(deletionTimestamp="2026-01-01T00:00:00Z")
        others = (launcher("other"), launcher(role="worker"), launcher(namespace="elsewhere"))
        assert [minimum_of(top), minimum_of(top, leaving), minimum_of(top, *others)] == [2, 2, 2]
        assert [minimum_of(top, launcher()), minimum_of(top, leaving, launcher())] == [3, 3]

    def test_all_start_together_without_delay(self, version: str) -> None:
        for policy in ("AtStartup", ""):
            assert minimum_of(job("MPIJob", ROLES["MPIJob"], version=version, launcherCreationPolicy=policy)) == 3

    def test_a_declared_minimum_counts_it(self, version: str) -> None:
        assert minimum_of(job("MPIJob", ROLES["MPIJob"], 2, version, **self.POLICY)) == 1
        assert minimum_of(job("MPIJob", ROLES["MPIJob"], 0, version, **self.POLICY)) == 0
        assert minimum_of(job("MPIJob", None, 2, version, **self.POLICY)) == 2
        assert minimum_of(job("MPIJob", {"Launcher": None, "Worker": 4}, version=version, **self.POLICY)) == 4


def test_a_notebook_has_the_priority_of_interactive_work() -> None:
    """workloads:T-48."""
    top = owner("Notebook", "n", "U", api="kubeflow.org/v1beta1", labels={"priorityClassName": "unknown"})
    between = owner("StatefulSet", "n", "S", api="apps/v1", by=top, labels={"priorityClassName": "train"})
    meta = grouped(pod(by=between), between, top)
    assert (meta.name, meta.priority_class, meta.min_available) == ("pg-n-U", "build", 1)
    plain = owner("Notebook", "n", "U", api="kubeflow.org/v1beta1")
    assert grouped(pod(priority_class="inference"), plain).priority_class == "inference"


def test_a_scheduled_workflow_is_one_group() -> None:
    top = owner("ScheduledWorkflow", "s", "U", api="kubeflow.org/v1alpha1")
    meta = grouped(pod(by=top), top)
    assert (meta.name, meta.min_available, meta.priority_class) == ("pg-s-U", 1, "train")


@pytest.mark.parametrize(("kind", "version"), [("TFJob", "v2"), ("MPIJob", "v1alpha1")])
def test_other_versions_are_not_known(kind: str, version: str) -> None:
    """workloads:HB-1."""
    assert minimum_of(job(kind, ROLES[kind], version=version)) == 1
