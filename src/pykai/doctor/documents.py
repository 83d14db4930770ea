"""The kinds that only the doctor reads, as far as it reads them.

Of the Secret only certificates are decoded: its key is never read.
"""

from __future__ import annotations

from msgspec import field

from pykai.api.core import Condition
from pykai.api.meta import Int64, ObjectMeta, Wire
from pykai.api.workloads import ContainerStatus, DeploymentStatus


class ContainerImage(Wire):
    """A container: what runs, and with which flags."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class TemplateSpec(Wire):
    containers: tuple[ContainerImage, ...] = ()
    service_account_name: str = ""


class PodTemplateSpec(Wire):
    spec: TemplateSpec = field(default_factory=TemplateSpec)


class ComponentDeploymentSpec(Wire):
    replicas: Int64 = 1
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class ComponentDeployment(Wire):
    """A Deployment that may run a component: its containers, and how many of its pods there are."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ComponentDeploymentSpec = field(default_factory=ComponentDeploymentSpec)
    status: DeploymentStatus = field(default_factory=DeploymentStatus)


class DaemonSetSpec(Wire):
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class DaemonSetStatus(Wire):
    desired_number_scheduled: Int64 = 0
    number_available: Int64 = 0


class DaemonSet(Wire):
    """A DaemonSet."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: DaemonSetSpec = field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)


class StartingPodStatus(Wire):
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class StartingPod(Wire):
    """A pod, whether it is ready, and why its containers wait."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: StartingPodStatus = field(default_factory=StartingPodStatus)


class LeaseSpec(Wire):
    holder_identity: str = ""
    lease_duration_seconds: Int64 = 0
    renew_time: str | None = None


class Lease(Wire):
    """A lease."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: LeaseSpec = field(default_factory=LeaseSpec)


class ServiceReference(Wire):
    name: str = ""
    namespace: str = ""


class WebhookClientConfig(Wire):
    service: ServiceReference | None = None
    url: str = ""
    ca_bundle: str = ""


class WebhookRule(Wire):
    api_groups: tuple[str, ...] = ()


class RegisteredWebhook(Wire):
    name: str = ""
    failure_policy: str = "Fail"
    client_config: WebhookClientConfig = field(default_factory=WebhookClientConfig)
    rules: tuple[WebhookRule, ...] = ()


class WebhookRegistration(Wire):
    """A Mutating- or ValidatingWebhookConfiguration."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    webhooks: tuple[RegisteredWebhook, ...] = ()


class CertificateData(Wire):
    """The certificates in a Secret: ours, one that someone else has put there, and the authorities; not the keys."""

    own: str = field(default="", name="serving.crt")
    given: str = field(default="", name="tls.crt")
    authorities: str = field(default="", name="ca.crt")


class CertificateSecret(Wire):
    """A Secret with a certificate."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    data: CertificateData = field(default_factory=CertificateData)


class Named(Wire):
    """An object of which only the existence counts."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class EndpointConditions(Wire):
    #: absent means ready
    ready: bool | None = None


class ServiceEndpoint(Wire):
    conditions: EndpointConditions = field(default_factory=EndpointConditions)


class EndpointSlice(Wire):
    """Addresses behind a Service, which the label `kubernetes.io/service-name` names."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    endpoints: tuple[ServiceEndpoint, ...] = ()


class DeviceSliceSpec(Wire):
    driver: str = ""
    node_name: str = ""


class DeviceSlice(Wire):
    """A ResourceSlice: a driver offers devices of a node for claims."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: DeviceSliceSpec = field(default_factory=DeviceSliceSpec)


class KubernetesServiceSpec(Wire):
    type: str = "ClusterIP"


class KubernetesService(Wire):
    """A Service."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: KubernetesServiceSpec = field(default_factory=KubernetesServiceSpec)


class Rule(Wire):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


class Role(Wire):
    """A Role or ClusterRole."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    rules: tuple[Rule, ...] = ()


class Subject(Wire):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleReference(Wire):
    kind: str = ""
    name: str = ""


class RoleBinding(Wire):
    """A RoleBinding or ClusterRoleBinding."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    role_ref: RoleReference = field(default_factory=RoleReference)
    subjects: tuple[Subject, ...] = ()
