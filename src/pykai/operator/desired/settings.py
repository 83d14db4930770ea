"""A Config with its defaults (operations:2), which are nowhere written back (operations:O-2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from pykai.api import names
from pykai.api.installation import (
    AdmissionSpec,
    BinderSpec,
    ComponentSpec,
    ConfigSpec,
    ContainerResources,
    GlobalSpec,
    ImageSpec,
    NodeScaleAdjusterArgs,
    NodeScaleAdjusterSpec,
    NumaPlacementExporterSpec,
    PodGroupControllerSpec,
    PodGrouperSpec,
    PrometheusSpec,
    QueueControllerSpec,
    ReservationSpec,
    SchedulerSpec,
    ServiceSpec,
    VerticalAutoscaling,
)
from pykai.api.meta import Wire
from pykai.services.rights import Places

T = TypeVar("T")
S = TypeVar("S", bound=Wire)

#: the one image that has all programs
IMAGE_NAME: Final = "pykai"
_SECURITY_CONTEXT: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["all"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 10000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def default(value: T | None, otherwise: T) -> T:
    """The value, or what holds where there is none; 0, False and empty texts are values."""
    return otherwise if value is None else value


def part(value: S | None, kind: type[S]) -> S:
    """A part of a spec, or an empty one."""
    return kind() if value is None else value


def as_document(value: Wire) -> dict[str, Any]:
    """A part of a spec as it was written."""
    document: dict[str, Any] = msgspec.to_builtins(value)
    return document


@dataclass(frozen=True, slots=True)
class ImageDefaults:
    """Where images are unless a Config says otherwise: the operator's own (operations:O-5)."""

    repository: str = ""
    tag: str = "latest"


OWN_IMAGES: Final = ImageDefaults()


@dataclass(frozen=True, slots=True)
class Settings:
    """A Config with its defaults."""

    spec: ConfigSpec
    images: ImageDefaults = OWN_IMAGES

    @property
    def namespace(self) -> str:
        """Where components run."""
        return default(self.spec.namespace, names.DEFAULT_NAMESPACE)

    @property
    def everywhere(self) -> GlobalSpec:
        """What holds for all components."""
        return part(self.spec.global_, GlobalSpec)

    @property
    def scheduler_name(self) -> str:
        """The name by which pods ask for our schedulers."""
        return default(self.everywhere.scheduler_name, names.SCHEDULER_NAME)

    @property
    def queue_label(self) -> str:
        """The label that names a queue."""
        return default(self.everywhere.queue_label_key, names.QUEUE_LABEL)

    @property
    def node_pool_label(self) -> str:
        """The label that names a node pool."""
        return default(self.everywhere.node_pool_label_key, names.NODE_POOL_LABEL)

    @property
    def pod_grouper(self) -> PodGrouperSpec:
        """The pod grouper."""
        return part(self.spec.pod_grouper, PodGrouperSpec)

    @property
    def binder(self) -> BinderSpec:
        """The binder."""
        return part(self.spec.binder, BinderSpec)

    @property
    def reservation(self) -> ReservationSpec:
        """Pods that reserve GPUs."""
        return part(self.binder.resource_reservation, ReservationSpec)

    @property
    def reservation_namespace(self) -> str:
        """Where they are."""
        return default(self.reservation.namespace, names.RESERVATION_NAMESPACE)

    @property
    def reservation_account(self) -> str:
        """Their account."""
        return default(self.reservation.service_account_name, names.RESERVATION_APP)

    @property
    def reservation_app(self) -> str:
        """Their label app."""
        return default(self.reservation.app_label, names.RESERVATION_APP)

    @property
    def scaling_namespace(self) -> str:
        """Where scaling pods are."""
        args = part(self.node_scale_adjuster.args, NodeScaleAdjusterArgs)
        return default(args.node_scale_namespace, names.SCALE_ADJUST_NAMESPACE)

    @property
    def places(self) -> Places:
        """All namespaces of the installation."""
        return Places(self.namespace, self.reservation_namespace, self.scaling_namespace)

    @property
    def admission(self) -> AdmissionSpec:
        """The admission service."""
        return part(self.spec.admission, AdmissionSpec)

    @property
    def scheduler(self) -> SchedulerSpec:
        """The schedulers of all shards."""
        return part(self.spec.scheduler, SchedulerSpec)

    @property
    def queue_controller(self) -> QueueControllerSpec:
        """The queue controller."""
        return part(self.spec.queue_controller, QueueControllerSpec)

    @property
    def pod_group_controller(self) -> PodGroupControllerSpec:
        """The pod group controller."""
        return part(self.spec.pod_group_controller, PodGroupControllerSpec)

    @property
    def node_scale_adjuster(self) -> NodeScaleAdjusterSpec:
        """The node scale adjuster."""
        return part(self.spec.node_scale_adjuster, NodeScaleAdjusterSpec)

    @property
    def prometheus(self) -> PrometheusSpec:
        """Prometheus, for usage over time."""
        return part(self.spec.prometheus, PrometheusSpec)

    @property
    def numa_exporter(self) -> NumaPlacementExporterSpec:
        """The exporter of NUMA placements."""
        return part(self.spec.numa_placement_exporter, NumaPlacementExporterSpec)

    def service_of(self, component: ComponentSpec | NumaPlacementExporterSpec) -> ServiceSpec:
        """What every component has."""
        return part(component.service, ServiceSpec)

    def is_enabled(self, component: ComponentSpec) -> bool:
        """Whether a component is deployed (operations:O-15)."""
        return default(self.service_of(component).enabled, True)

    def replicas_of(self, component: ComponentSpec) -> int:
        """How many pods a component has (operations:O-41)."""
        return default(component.replicas, default(self.everywhere.replica_count, 1))

    def image(self, given: ImageSpec | None) -> str:
        """The reference of an image (operations:O-5)."""
        image = part(given, ImageSpec)
        repository = default(image.repository, self.images.repository).rstrip("/")
        name = f"{default(image.name, IMAGE_NAME)}:{default(image.tag, self.images.tag)}"
        return f"{repository}/{name}" if repository else name

    def pull_policy(self, given: ImageSpec | None) -> str:
        """When an image is pulled."""
        return default(part(given, ImageSpec).pull_policy, "IfNotPresent")

    def pull_secrets(self) -> list[dict[str, str]]:
        """The pull secrets of all pods (operations:E-14)."""
        listed = [*(self.everywhere.additional_image_pull_secrets or ()), self.everywhere.images_pull_secret or ""]
        return [{"name": name} for name in dict.fromkeys(filter(None, listed))]

    def security_context(self) -> Mapping[str, Any] | None:
        """The security context of a container; None leaves it to OpenShift (operations:O-55, OD-22)."""
        if self.everywhere.openshift:
            return None
        return default(self.everywhere.security_context, dict(_SECURITY_CONTEXT))

    def autoscaling_of(self, component: ComponentSpec) -> VerticalAutoscaling:
        """Vertical autoscaling of a component, its own or that of all."""
        return part(component.vpa if component.vpa is not None else self.everywhere.vpa, VerticalAutoscaling)


def requirements(given: ContainerResources | None, otherwise: Mapping[str, Any]) -> Mapping[str, Any]:
    """The resources of a container."""
    return otherwise if given is None else as_document(given)
