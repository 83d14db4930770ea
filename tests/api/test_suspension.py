"""Which owners the scheduler may suspend (suspend:obeyed, suspend:kueue)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.suspension import PASSED_KINDS, SUSPEND_PATHS, foreign_manager, is_suspended, why_not_suspendable

OWN = {
    "batch": "kubernetes.io/job-controller",
    "jobset.x-k8s.io": "jobset.sigs.k8s.io/jobset-controller",
    "kubeflow.org": "kubeflow.org/training-operator",
    "ray.io": "ray.io/kuberay-operator",
    "trainer.kubeflow.org": "trainer.kubeflow.org/trainjob-controller",
}
RAY_JOB = ("ray.io", "RayJob")


def managed_by(group: str, manager: Any) -> dict[str, Any]:
    """An owner with this field where its kind has it."""
    fields = {"managedBy": manager}
    return {"spec": {"runPolicy": fields} if group == "kubeflow.org" else fields}


@pytest.mark.parametrize("group", sorted({group for group, _ in (*SUSPEND_PATHS, *PASSED_KINDS)}))
def test_only_its_own_controller_obeys(group: str) -> None:
    assert foreign_manager(group, {}) == ""
    for own in ("", None, OWN[group]):
        assert foreign_manager(group, managed_by(group, own)) == ""
    for other in ("kueue.x-k8s.io/multikueue", "example.com/mine"):
        assert foreign_manager(group, managed_by(group, other)) == other


def test_kubeflow_has_two_controllers() -> None:
    assert foreign_manager("kubeflow.org", managed_by("kubeflow.org", "kubeflow.org/mpi-operator")) == ""


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "without spec.shutdownAfterJobFinishes: true"),
        ({"shutdownAfterJobFinishes": False}, "without spec.shutdownAfterJobFinishes: true"),
        ({"shutdownAfterJobFinishes": True, "clusterSelector": {"ray.io/cluster": "x"}}, "with a spec.clusterSelector"),
        ({"shutdownAfterJobFinishes": True, "clusterSelector": {}}, ""),
    ],
)
def test_a_ray_job_comes_back_only_as_kuberay_says(spec: dict[str, Any], why: str) -> None:
    assert why_not_suspendable(*RAY_JOB, {"spec": spec}).endswith(why)
    assert bool(why_not_suspendable(*RAY_JOB, {"spec": spec})) == bool(why)
    assert why_not_suspendable("batch", "Job", {"spec": spec}) == ""


@pytest.mark.parametrize("spec", [None, [], "x", {"runPolicy": "x"}])
def test_what_a_tenant_wrote_instead_of_an_object_says_nothing(spec: Any) -> None:
    for group, kind in SUSPEND_PATHS:
        assert not is_suspended(group, kind, {"spec": spec})
        assert foreign_manager(group, {"spec": spec}) == ""
