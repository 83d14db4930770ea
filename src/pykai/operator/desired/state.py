"""`desired_state(Config, shards, facts)`: every object that should be in the cluster, by owner and operand.

Statements: operations:O-1 to O-5, O-15, O-23, O-25, O-37.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pykai.api.installation import Config, SchedulingShard, WebhookSwitch
from pykai.api.unstructured import JsonObject
from pykai.kube.resources import CONFIGS, SCHEDULING_SHARDS, Resource
from pykai.operator.desired import numaexporter, prometheus
from pykai.operator.desired.arguments import (
    SCHEDULER_ARGS,
    admission_ports,
    binder_ports,
    queue_metrics,
    scaling_account,
)
from pykai.operator.desired.checking import check_command_line, check_config
from pykai.operator.desired.components import COMPONENTS, Component
from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.desired.givenflags import given_flags
from pykai.operator.desired.objects import (
    METRICS_PORT,
    account,
    autoscaler,
    container,
    deployment,
    disruption_budget,
    metrics_service,
    network_policy,
    port,
    service,
)
from pykai.operator.desired.refusals import LeftOut, Refused
from pykai.operator.desired.settings import OWN_IMAGES, ImageDefaults, Settings, default, part
from pykai.operator.desired.shards import SCHEDULER_ACCOUNT, check_scheduler, shard_objects
from pykai.operator.webhooks import Registration, tls_secret, webhook_configurations
from pykai.services.rights import Places

CONFIG_NAME: Final = "kai-config"


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What one Config or SchedulingShard asks for."""

    kind: Resource
    name: str
    uid: str
    #: operand -> its objects, in the order in which they are applied
    operands: dict[str, list[JsonObject]] = field(default_factory=dict)
    #: operand -> what it needs and the cluster lacks
    missing: dict[str, str] = field(default_factory=dict)
    #: why nothing of it is changed; empty: it can work
    refusal: str = ""
    left_out: tuple[LeftOut, ...] = ()
    #: nothing of it was looked at, as its Config is refused
    is_waiting: bool = False


def desired_state(
    config: Config, shards: Sequence[SchedulingShard], facts: ClusterFacts, images: ImageDefaults = OWN_IMAGES
) -> list[DesiredState]:
    """The Config's objects first, then those of each shard by name; pure.

    Settings of a Config that is refused are in force nowhere, so its shards wait (install:refusals).
    """
    settings = Settings(config.spec, images)
    ordered = sorted(shards, key=lambda each: each.metadata.name)
    own = _config_state(config, settings, shards, facts)
    if own.refusal:
        text = f"Config {own.name}: {own.refusal}"
        return [own, *(_waiting_state(each, text) for each in ordered)]
    return [own, *(_shard_state(each, settings, facts) for each in ordered)]


def _config_state(
    config: Config, settings: Settings, shards: Sequence[SchedulingShard], facts: ClusterFacts
) -> DesiredState:
    name, uid = config.metadata.name, config.metadata.uid
    operands: dict[str, list[JsonObject]] = {}
    left_out: list[LeftOut] = []
    try:
        check_config(settings)
        for component in COMPONENTS:
            operands[component.operand], unused = _component(component, settings, facts)
            left_out += unused
        left_out += given_flags("scheduler", settings.service_of(settings.scheduler).args, SCHEDULER_ARGS).left_out
        check_scheduler(settings)
        exporter, unused = numaexporter.numa_objects(settings)
        left_out += unused
        if wants_numa := numaexporter.is_wanted(settings, shards):
            numaexporter.check_exporter(settings)
    except Refused as error:
        return DesiredState(CONFIGS, name, uid, refusal=str(error), left_out=tuple(left_out))
    operands["SchedulerForConfig"] = (
        [account(SCHEDULER_ACCOUNT, settings.namespace)] if settings.is_enabled(settings.scheduler) else []
    )
    operands[prometheus.OPERAND], lacks = prometheus.prometheus_objects(settings, facts, has_numa_exporter=wants_numa)
    operands[numaexporter.OPERAND] = exporter if wants_numa else []
    _add_owner(operands, CONFIGS, name, uid)
    missing = {prometheus.OPERAND: prometheus.DEPENDENCY} if lacks else {}
    return DesiredState(CONFIGS, name, uid, operands, missing, left_out=tuple(left_out))


def _waiting_state(shard: SchedulingShard, text: str) -> DesiredState:
    return DesiredState(SCHEDULING_SHARDS, shard.metadata.name, shard.metadata.uid, refusal=text, is_waiting=True)


def _shard_state(shard: SchedulingShard, settings: Settings, facts: ClusterFacts) -> DesiredState:
    name, uid = shard.metadata.name, shard.metadata.uid
    try:
        objects, left_out = shard_objects(settings, shard, facts)
    except Refused as error:
        return DesiredState(SCHEDULING_SHARDS, name, uid, refusal=str(error))
    operands = {"SchedulerForShard": objects}
    _add_owner(operands, SCHEDULING_SHARDS, name, uid)
    return DesiredState(SCHEDULING_SHARDS, name, uid, operands, left_out=tuple(left_out))


def _component(component: Component, settings: Settings, facts: ClusterFacts) -> tuple[list[JsonObject], list[LeftOut]]:
    """Its objects, and which of its flags are left out; raises `Refused`."""
    spec = component.spec(settings)
    computed = component.arguments(settings, facts)
    path = f"spec.{component.config_field}.service.args"
    given = given_flags(
        component.service, settings.service_of(spec).args, path, title=component.name, computed=computed
    )
    if not settings.is_enabled(spec):
        return [], given.left_out
    arguments = [*computed, *given.arguments()]
    check_command_line(component.service, arguments, component.config_field, component.fields)
    main = container(
        component.name,
        settings,
        spec,
        command=("kai", "run", component.service),
        arguments=arguments,
        health_port=component.health_port(settings),
        resources=component.resources,
    )
    return [
        account(component.name, settings.namespace),
        *_OTHERS.get(component.name, _nothing)(settings, facts),
        deployment(component.name, component.name, settings, spec, main, is_recreated=component.is_recreated),
        *(disruption_budget(component.name, settings, spec) if component.has_budget else ()),
        *autoscaler(component.name, settings, spec, available=facts.has_autoscalers),
        *network_policy(component.name, settings, _served_ports(component, settings)),
    ], given.left_out


def _served_ports(component: Component, settings: Settings) -> list[int]:
    """The ports on which a component listens."""
    health = component.health_port(settings)
    if component.name == "admission":
        ports = admission_ports(settings)
        return [ports.webhooks, ports.metrics, health]
    if component.name == "binder":
        return [binder_ports(settings)[0], health]
    if component.name == "queue-controller":
        return [queue_metrics(settings).target_port or 0, health]
    return [METRICS_PORT, health]


def _nothing(_: Settings, __: ClusterFacts) -> list[JsonObject]:
    return []


def _queue_controller(settings: Settings, _: ClusterFacts) -> list[JsonObject]:
    metrics = queue_metrics(settings)
    listed = port(metrics.port or 0, metrics.target_port or 0, metrics.name or "")
    type_ = {} if metrics.type is None else {"type": metrics.type}
    return [service("queue-controller", settings, [listed], selected="queue-controller", **type_)]


def _binder(settings: Settings, facts: ClusterFacts) -> list[JsonObject]:
    metrics, _ = binder_ports(settings)
    reserving = account(settings.reservation_account, settings.reservation_namespace)
    secrets = dict.fromkeys([*facts.reservation_pull_secrets, *(each["name"] for each in settings.pull_secrets())])
    if secrets:
        reserving["imagePullSecrets"] = [{"name": name} for name in secrets]
    return [service("binder", settings, [port(metrics, metrics)], selected="binder"), reserving]


def _admission(settings: Settings, _: ClusterFacts) -> list[JsonObject]:
    ports = admission_ports(settings)
    listed = [port(ports.service, ports.webhooks, "webhook"), port(ports.metrics, ports.metrics)]
    return [
        service("admission", settings, listed, selected="admission"),
        tls_secret(settings.namespace),
        *webhook_configurations(registration(settings)),
    ]


def misplaced(settings: Settings, places: Places) -> str:
    """Why a Config cannot be carried out by an operator with roles in these namespaces; empty if it can.

    Rights come from the chart, or `kai manifests`, which were given the namespaces too (install:places).
    """
    if settings.namespace != places.services:
        return (
            f"spec.namespace: {settings.namespace!r}: this operator deploys to {places.services!r}, where it runs;"
            " install the chart there"
        )
    binder, adjuster = settings.binder, settings.node_scale_adjuster
    for component, path, given, known, value in (
        (
            binder,
            "binder.resourceReservation.namespace",
            settings.reservation_namespace,
            places.reservations,
            "global.resourceReservation.namespace",
        ),
        (
            adjuster,
            "nodeScaleAdjuster.args.nodeScaleNamespace",
            settings.scaling_namespace,
            places.scaling,
            "nodescaleadjuster.scalingPodNamespace",
        ),
    ):
        if given != known and settings.is_enabled(component):
            text = f"the roles of this installation are in {known!r}; set {value} of the chart instead"
            return f"spec.{path}: {given!r}: {text}"
    return ""


def registration(settings: Settings) -> Registration:
    """How the webhooks are registered (operations:O-27 to O-29)."""
    admission, everywhere = settings.admission, settings.everywhere
    queues = part(settings.queue_controller.webhooks, WebhookSwitch)
    groups = part(settings.pod_group_controller.webhooks, WebhookSwitch)
    return Registration(
        namespace=settings.namespace,
        scheduler_name=settings.scheduler_name,
        port=admission_ports(settings).service,
        queue_label=settings.queue_label if admission.queue_label_selector else "",
        namespace_labels=everywhere.namespace_label_selector or {},
        pod_labels=everywhere.pod_label_selector or {},
        left_out=tuple(
            name
            for name, switch, component in (
                ("kai-queue-validation-v2", queues, settings.queue_controller),
                ("kai-podgroup-validation-v2alpha2", groups, settings.pod_group_controller),
            )
            if not settings.is_enabled(component) or not default(switch.enable_validation, True)
        ),
    )


def _pod_grouper(settings: Settings, _: ClusterFacts) -> list[JsonObject]:
    return [metrics_service("pod-grouper", settings)]


def _pod_group_controller(settings: Settings, _: ClusterFacts) -> list[JsonObject]:
    return [metrics_service("podgroup-controller", settings)]


def _node_scale_adjuster(settings: Settings, _: ClusterFacts) -> list[JsonObject]:
    return [
        metrics_service("node-scale-adjuster", settings),
        account(scaling_account(settings), settings.scaling_namespace),
    ]


_OTHERS: Final = {
    "pod-grouper": _pod_grouper,
    "podgroup-controller": _pod_group_controller,
    "queue-controller": _queue_controller,
    "binder": _binder,
    "admission": _admission,
    "node-scale-adjuster": _node_scale_adjuster,
}


# operations:O-3
def _add_owner(operands: dict[str, list[JsonObject]], kind: Resource, name: str, uid: str) -> None:
    reference: dict[str, Any] = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": uid,
        "controller": True,
    }
    for objects in operands.values():
        for each in objects:
            each["metadata"]["ownerReferences"] = [reference]


def is_ours(config: Config) -> bool:
    """Whether a Config counts: only one name does (operations:O-1)."""
    return config.metadata.name == CONFIG_NAME
