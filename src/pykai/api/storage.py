"""Storage objects: PersistentVolume and PersistentVolumeClaim, and of storage.k8s.io StorageClass, CSIDriver, CSINode
and CSIStorageCapacity.

The fields are those that decide where a pod with volumes may run: the request of a claim, its volume, which nodes reach
a volume, which provisioner makes new ones and where, how much room is left, how many volumes a node can attach.  Of a
volume's source only CSI is read; the others attach without limits and state their needs in their node affinity.

A field is optional where absence has a meaning: a node without a count attaches any number of volumes, a capacity
without a topology is for no node.
"""

from msgspec import field

from pykai.api.core import NodeSelector, ResourceList
from pykai.api.meta import Int64, LabelSelector, ObjectMeta, Wire
from pykai.api.quantity import RawQuantity


class ClaimReference(Wire):
    """The claim a volume is bound to or kept for; without a uid it is kept for any claim of that name."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class CSIVolumeSource(Wire):
    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Wire):
    """Which nodes reach a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire):
    capacity: ResourceList = field(default_factory=dict)
    access_modes: list[str] = field(default_factory=list)
    storage_class_name: str = ""
    volume_mode: str = ""
    volume_attributes_class_name: str = ""
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None


class PersistentVolumeStatus(Wire):
    phase: str = ""


class PersistentVolume(Wire):
    """A piece of storage."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)


class ClaimResources(Wire):
    requests: ResourceList = field(default_factory=dict)


class PersistentVolumeClaimSpec(Wire):
    access_modes: list[str] = field(default_factory=list)
    selector: LabelSelector | None = None
    resources: ClaimResources = field(default_factory=ClaimResources)
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = ""
    volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(Wire):
    phase: str = ""


class PersistentVolumeClaim(Wire):
    """A request for storage."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


class TopologyLabelRequirement(Wire):
    """A node label that must have one of some values."""

    key: str = ""
    values: list[str] = field(default_factory=list)


class TopologySelectorTerm(Wire):
    match_label_expressions: list[TopologyLabelRequirement] = field(default_factory=list)


class StorageClass(Wire):
    """A kind of storage: its provisioner, and when and where it makes volumes."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[TopologySelectorTerm] = field(default_factory=list)


class CSIDriverSpec(Wire):
    storage_capacity: bool = False


class CSIDriver(Wire):
    """A storage driver, by its name; `storage_capacity`: whether it publishes how much room is left."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CSIDriverSpec = field(default_factory=CSIDriverSpec)


class VolumeNodeResources(Wire):
    count: Int64 | None = None


class CSINodeDriver(Wire):
    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Wire):
    drivers: list[CSINodeDriver] = field(default_factory=list)


class CSINode(Wire):
    """The drivers on the node of the same name and how many volumes each can attach there."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CSINodeSpec = field(default_factory=CSINodeSpec)


class CSIStorageCapacity(Wire):
    """How much room a storage class has for the nodes of a topology; no topology means no node.

    Its fields are at the top level.  `maximum_volume_size` is the largest single volume, where the driver publishes it.
    """

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: RawQuantity | None = None
    maximum_volume_size: RawQuantity | None = None
