"""Jobs of Kubeflow's training operator, as far as groupers read them.

Each kind has a field of its own with the roles of the job, such as `tfReplicaSpecs`, and runs `replicas` pods of each.
"""

from msgspec import field

from pykai.api.meta import Int64, ObjectMeta, Wire


class PodTemplateMetadata(Wire):
    """A pod template as far as groupers read it."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class ReplicaSpec(Wire):
    """One role of a job."""

    replicas: Int64 | None = None
    template: PodTemplateMetadata = field(default_factory=PodTemplateMetadata)

    @property
    def count(self) -> int:
        """The training operator takes an absent number for 1."""
        return 1 if self.replicas is None else max(0, self.replicas)


class _SchedulingPolicy(Wire):
    min_available: Int64 | None = None


class _RunPolicy(Wire):
    scheduling_policy: _SchedulingPolicy = field(default_factory=_SchedulingPolicy)


class _ElasticPolicy(Wire):
    min_replicas: Int64 | None = None


class KubeflowJobSpec(Wire):
    """The fields of all kinds; a job has the roles of its own kind."""

    run_policy: _RunPolicy = field(default_factory=_RunPolicy)
    #: of a PyTorchJob
    elastic_policy: _ElasticPolicy = field(default_factory=_ElasticPolicy)
    #: of an MPIJob
    launcher_creation_policy: str = ""
    jax_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)
    mpi_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)
    pytorch_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)
    tf_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)
    xgb_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)

    @property
    def min_available(self) -> int | None:
        """The minimum that the run policy declares."""
        return self.run_policy.scheduling_policy.min_available


class KubeflowJob(Wire):
    """A job of any of these kinds."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: KubeflowJobSpec = field(default_factory=KubeflowJobSpec)
