"""Kubernetes' own gangs (scheduling.k8s.io): what is read of Workloads and of its PodGroups.

The API is young and changes from release to release.  In 1.35 (v1alpha1) a Workload lists groups of pods, and a pod
names one of them in `spec.workloadRef`.  Since 1.36 (v1alpha2, v1alpha3, v1beta1) a group is an object of its own, a
PodGroup, and a pod names it in `spec.schedulingGroup`; a Workload only holds templates, which nothing here reads.
"""

from typing import Any

from msgspec import field

from pykai.api.meta import Int64, ObjectMeta, Wire


class GangPolicy(Wire):
    min_count: Int64 = 0


class GroupPolicy(Wire):
    """Basic (pods start one by one) or gang; exactly one is set."""

    basic: Any = None
    gang: GangPolicy | None = None


class WorkloadGroup(Wire):
    """A group of pods in a Workload of v1alpha1."""

    name: str = ""
    policy: GroupPolicy = field(default_factory=GroupPolicy)


class KubernetesWorkloadSpec(Wire):
    pod_groups: list[WorkloadGroup] = field(default_factory=list)


class KubernetesWorkload(Wire):
    """A Workload of v1alpha1."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: KubernetesWorkloadSpec = field(default_factory=KubernetesWorkloadSpec)


class TopologyKey(Wire):
    """The pods of a group share the value of this node label."""

    key: str = ""


class SchedulingConstraints(Wire):
    topology: list[TopologyKey] = field(default_factory=list)


class KubernetesPodGroupSpec(Wire):
    scheduling_policy: GroupPolicy = field(default_factory=GroupPolicy)
    scheduling_constraints: SchedulingConstraints = field(default_factory=SchedulingConstraints)
    priority_class_name: str = ""
    parent_composite_pod_group_name: str = ""


class KubernetesPodGroup(Wire):
    """A PodGroup of scheduling.k8s.io, not to be confused with KAI's."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: KubernetesPodGroupSpec = field(default_factory=KubernetesPodGroupSpec)
