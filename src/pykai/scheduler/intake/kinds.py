"""The kinds of objects that scheduling reads, besides pods, PodGroups, BindRequests, nodes and ConfigMaps."""

from __future__ import annotations

from pykai.api.core import Namespace, PriorityClass
from pykai.api.disruption import PodDisruptionBudget
from pykai.api.meta import Wire
from pykai.api.numa import NodeResourceTopology
from pykai.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from pykai.api.scheduling import Queue
from pykai.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from pykai.api.topology import Topology
from pykai.kube import resources
from pykai.kube.resources import Resource

#: Kinds every server has.
REQUIRED_KINDS: tuple[tuple[Resource, type[Wire]], ...] = (
    (resources.QUEUES, Queue),
    (resources.PRIORITY_CLASSES, PriorityClass),
    (resources.NAMESPACES, Namespace),
    (resources.PERSISTENT_VOLUMES, PersistentVolume),
    (resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim),
    (resources.STORAGE_CLASSES, StorageClass),
    (resources.CSI_DRIVERS, CSIDriver),
    (resources.CSI_NODES, CSINode),
    (resources.CSI_STORAGE_CAPACITIES, CSIStorageCapacity),
)
#: Kinds a server may lack (operations:O-56).
OPTIONAL_KINDS: tuple[tuple[Resource, type[Wire]], ...] = (
    (resources.TOPOLOGIES, Topology),
    (resources.NODE_RESOURCE_TOPOLOGIES, NodeResourceTopology),
    (resources.POD_DISRUPTION_BUDGETS, PodDisruptionBudget),
)
#: Claims of devices, in the version of their API group that the server has.
DRA_KINDS: tuple[tuple[Resource, type[Wire]], ...] = (
    (resources.RESOURCE_CLAIMS, ResourceClaim),
    (resources.RESOURCE_SLICES, ResourceSlice),
    (resources.DEVICE_CLASSES, DeviceClass),
)
