"""The webhooks: one row each.

What is served (`server`), what is registered (`pykai.operator.webhooks`), the rights of the service and its paths in
docs are read from this table.  Objects, webhooks and paths have the names of KAI Scheduler's, so that a cluster that
switches keeps no webhook without a server.

The rules are narrow, since an API server waits for a webhook: of pods only those of this scheduler are sent, and of
updates only those that change what is checked.

Statements: operations:O-27, O-28; workloads:WH-1; queues:Q-20, Q-21.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykai.api import names
from pykai.kube.resources import MUTATING_WEBHOOKS, POD_GROUPS, PODS, QUEUES, TOPOLOGIES, VALIDATING_WEBHOOKS, Resource
from pykai.webhooks.pods import EPHEMERAL_CONTAINERS

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"

#: the Service in front of the one server of all of them
ADMISSION_SERVICE: Final = "admission"
#: where the certificate of the server is
TLS_SECRET: Final = "kai-admission-webhook-tls-secret"
#: of the replica that renews it; that of KAI Scheduler's admission service
CERTIFICATES_LEASE: Final = "ojptxr84.kai.scheduler"

#: an update that leaves labels, annotations and containers alone needs no check
_POD_CHANGED: Final = "request.operation == 'CREATE' || " + " || ".join(
    f"object.{field}.orValue({none}) != oldObject.{field}.orValue({none})"
    for field, none in (
        ("metadata.?labels", "{}"),
        ("metadata.?annotations", "{}"),
        ("spec.?ephemeralContainers", "[]"),
    )
)
_SPEC_CHANGED: Final = "request.operation != 'UPDATE' || object.?spec != oldObject.?spec"
#: of a queue also annotations, which say which namespaces may use it
_QUEUE_CHANGED: Final = (
    _SPEC_CHANGED + " || object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({})"
)


@dataclass(frozen=True, slots=True)
class WebhookDefinition:
    """One webhook."""

    #: its name, with `{host}` for that of the Service
    name_form: str
    path: str
    #: kind and name of the object that registers it; several webhooks may share one
    registered_as: Resource
    configuration: str
    resource: Resource
    operations: tuple[str, ...]
    #: an update through this subresource is sent too
    subresource: str = ""
    #: CEL for: the request is to be sent
    condition: str = ""
    #: seconds that an API server waits
    timeout_s: int = 5

    def name_in(self, namespace: str) -> str:
        """Its name where the services run in a namespace."""
        return self.name_form.format(host=_host(namespace))

    @property
    def is_for_pods(self) -> bool:
        """Whether it is about pods, of which only those of this scheduler are sent."""
        return self.resource == PODS

    @property
    def is_mutating(self) -> bool:
        """Whether it may change objects."""
        return self.registered_as == MUTATING_WEBHOOKS


MUTATE_PODS: Final = WebhookDefinition(
    "{host}",
    "/mutate--v1-pod",
    MUTATING_WEBHOOKS,
    "mutating-kai-admission",
    PODS,
    (CREATE,),
    EPHEMERAL_CONTAINERS,
)
VALIDATE_PODS: Final = WebhookDefinition(
    "{host}",
    "/validate--v1-pod",
    VALIDATING_WEBHOOKS,
    "validating-kai-admission",
    PODS,
    (CREATE, UPDATE),
    EPHEMERAL_CONTAINERS,
    _POD_CHANGED,
)
VALIDATE_TOPOLOGIES: Final = WebhookDefinition(
    "topology.{host}",
    "/validate-kai-scheduler-v1alpha1-topology",
    VALIDATING_WEBHOOKS,
    "validating-kai-admission",
    TOPOLOGIES,
    (CREATE, UPDATE),
)
VALIDATE_QUEUES: Final = WebhookDefinition(
    "queue-validation.kai.scheduler",
    "/validate-scheduling-run-ai-v2-queue",
    VALIDATING_WEBHOOKS,
    "kai-queue-validation-v2",
    QUEUES,
    # KAI Scheduler registers no DELETE (queues:Q-39 a).
    (CREATE, UPDATE, DELETE),
    condition=_QUEUE_CHANGED,
    # A deletion reads pods.
    timeout_s=10,
)
VALIDATE_POD_GROUPS: Final = WebhookDefinition(
    "podgroup-validation.kai.scheduler",
    "/validate-scheduling-run-ai-v2alpha2-podgroup",
    VALIDATING_WEBHOOKS,
    "kai-podgroup-validation-v2alpha2",
    POD_GROUPS,
    (CREATE, UPDATE),
    condition=_SPEC_CHANGED,
)

WEBHOOKS: Final = (MUTATE_PODS, VALIDATE_PODS, VALIDATE_TOPOLOGIES, VALIDATE_QUEUES, VALIDATE_POD_GROUPS)
PATHS: Final = tuple(webhook.path for webhook in WEBHOOKS)


def configuration_names(kind: Resource) -> tuple[str, ...]:
    """The objects of a kind that register webhooks."""
    return tuple(dict.fromkeys(each.configuration for each in WEBHOOKS if each.registered_as == kind))


def service_hosts(namespace: str = names.DEFAULT_NAMESPACE) -> tuple[str, ...]:
    """The names by which API servers call the webhooks; a certificate must have all of them."""
    return (_host(namespace),)


def _host(namespace: str) -> str:
    return f"{ADMISSION_SERVICE}.{namespace}.svc"
