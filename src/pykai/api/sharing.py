"""What the services agree on about a pod with a shared GPU: its container, ConfigMaps, groups and reservation.

Admission points the environment of one container at two ConfigMaps that do not exist yet; the binder creates them when
it knows the devices.  Both therefore derive the same container and the same names from the pod alone:

- the container is the one the pod names in an annotation, init containers first, else the first regular one;
- the ConfigMaps are `<prefix>-<index>` (capabilities) and `<prefix>-<index>-evar` (environment), where the prefix is an
  annotation of the pod and the index is `2` for the third regular and `i2` for the third init container.

A shared GPU is held by a reservation pod.  A tenant can put that pod's labels on a pod of its own, but cannot create
pods in the namespace of reservations; so `ReservationRule` requires the namespace, and the name that follows from node
and group.

Functions take names and maps, so that they serve typed pods and plain documents alike.

Statements: trust:reservation.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pykai.api import names


class NoSuchContainer(ValueError):
    """The pod names a container for its fraction that it does not have."""


def shares_gpu(annotations: Mapping[str, str]) -> bool:
    """Whether a pod asks for a part of a GPU, by portion or by memory."""
    return names.GPU_FRACTION_ANNOTATION in annotations or names.GPU_MEMORY_ANNOTATION in annotations


def fraction_container(
    annotations: Mapping[str, str], init_names: Sequence[str], regular_names: Sequence[str]
) -> tuple[bool, int]:
    """Which container gets the fraction: whether it is an init container, and its index among its kind (gpu:E-7)."""
    container_name = annotations.get(names.GPU_FRACTION_CONTAINER_ANNOTATION)
    if container_name is None:
        if not regular_names:
            raise NoSuchContainer("the pod has no containers")
        return False, 0
    if container_name in init_names:
        return True, init_names.index(container_name)
    if container_name in regular_names:
        return False, regular_names.index(container_name)
    raise NoSuchContainer(f"container with name {container_name} not found for fraction request")


def container_index(init: bool, index: int) -> str:
    """The index of a container in ConfigMap names."""
    return f"i{index}" if init else str(index)


def config_map_names(prefix: str, index: str) -> tuple[str, str]:
    """The ConfigMap with the capabilities of a container, and the one that is its environment as a whole (gpu:E-1)."""
    return f"{prefix}-{index}", f"{prefix}-{index}-evar"


def gpu_groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The GPU groups a pod is in or a reservation pod holds; several are in the order of their names."""
    if not labels:
        return ()
    groups = {value for key, value in labels.items() if key.startswith(names.GPU_GROUP_LABEL_PREFIX)}
    plain = labels.get(names.GPU_GROUP_LABEL)
    if plain is not None:
        groups.add(plain)
    return tuple(sorted(groups)) if groups else ()


def gpu_group_label_keys(labels: Mapping[str, str]) -> list[str]:
    """The keys among these labels that name the GPU groups of a pod."""
    return [key for key in labels if key == names.GPU_GROUP_LABEL or key.startswith(names.GPU_GROUP_LABEL_PREFIX)]


def reservation_name(node: str, group: str) -> str:
    """The name of the reservation pod of a group on a node (gpu:RV-3)."""
    return names.RESERVATION_NAME_PREFIX + hashlib.sha256(f"{node}/{group}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ReservationRule:
    """Which pods are reservations: their namespace and labels."""

    namespace: str = names.RESERVATION_NAMESPACE
    app: str = names.RESERVATION_APP

    def is_marked(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod is labelled as a reservation; any tenant can write that."""
        return labels.get(names.APP_LABEL) == self.app

    def group_held_by(self, namespace: str, name: str, labels: Mapping[str, str], node: str) -> str:
        """The group for which the pod of this name holds a GPU of its node, "" when it is no reservation (gpu:RV-3)."""
        if namespace != self.namespace or not node or not self.is_marked(labels):
            return ""
        group = labels.get(names.GPU_GROUP_LABEL, "")
        return group if group and name == reservation_name(node, group) else ""


def gpu_group_labels(groups: Sequence[str]) -> dict[str, str]:
    """The labels of a pod in these groups."""
    if len(groups) == 1:
        return {names.GPU_GROUP_LABEL: groups[0]}
    return {names.GPU_GROUP_LABEL_PREFIX + group: group for group in groups}
