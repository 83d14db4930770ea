"""Command lines of the components (operations:O-13, O-19 to O-22), under KAI's names of flags.

Flags of ours follow KAI's: where metrics, health and leases are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pykai.api import names
from pykai.api.installation import (
    ClientConfig,
    ComponentSpec,
    ControllerServiceSpec,
    NodeScaleAdjusterArgs,
    PluginSpec,
    PodGrouperArgs,
    QueueAdmissionGating,
    ReservationSpec,
    SchedulerSpec,
    SchedulingShard,
    ServicePortSpec,
    WebhookPorts,
)
from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.desired.givenflags import GivenFlags, given_flags
from pykai.operator.desired.refusals import LeftOut
from pykai.operator.desired.settings import Settings, as_document, default, part

CONFIGURATION_FOLDER: Final = "/etc/config"
CONFIGURATION_KEY: Final = "config.yaml"
SCHEDULER_ARGS: Final = "spec.scheduler.service.args"
_QPS, _BURST = 20, 100
_METRICS, _HEALTH = 8080, 8081
_VOLUME_TIMEOUT: Final = "120"


class AdmissionPorts(NamedTuple):
    """Where the admission service listens."""

    service: int
    webhooks: int
    health: int
    metrics: int


def admission_ports(settings: Settings) -> AdmissionPorts:
    """The ports of the admission service."""
    given = part(settings.admission.webhook, WebhookPorts)
    return AdmissionPorts(
        default(given.port, 443),
        default(given.target_port, 9443),
        default(given.probe_port, _HEALTH),
        default(given.metrics_port, _METRICS),
    )


def binder_ports(settings: Settings) -> tuple[int, int]:
    """The binder's ports of metrics and health."""
    return default(settings.binder.metrics_port, _METRICS), default(settings.binder.probe_port, _HEALTH)


def queue_metrics(settings: Settings) -> ServicePortSpec:
    """The port of the queue controller's metrics."""
    service = part(settings.queue_controller.controller_service, ControllerServiceSpec)
    given = part(service.metrics, ServicePortSpec)
    return ServicePortSpec(
        port=default(given.port, _METRICS),
        target_port=default(given.target_port, _METRICS),
        name=default(given.name, "metrics"),
        type=given.type,
    )


def scheduler_port(settings: Settings) -> ServicePortSpec:
    """The port of the schedulers' metrics."""
    given = part(settings.scheduler.scheduler_service, ServicePortSpec)
    return ServicePortSpec(
        port=default(given.port, _METRICS),
        target_port=default(given.target_port, _METRICS),
        type=default(given.type, "ClusterIP"),
    )


def pod_grouper(settings: Settings, _: ClusterFacts) -> list[str]:
    """operations:O-21, O-64."""
    spec = settings.pod_grouper
    args = part(spec.args, PodGrouperArgs)
    everywhere = settings.everywhere
    return [
        f"--scheduler-name={settings.scheduler_name}",
        f"--queue-label-key={settings.queue_label}",
        f"--nodepool-label-key={settings.node_pool_label}",
        *_switch("knative-gang-schedule", args.gang_schedule_knative),
        f"--generic-karta-fallback={_text(default(args.generic_karta_fallback, True))}",
        *_labels("namespace-label-selector", everywhere.namespace_label_selector),
        *_labels("pod-label-selector", everywhere.pod_label_selector),
        *_given("default-priorities-configmap-name", args.default_priorities_config_map_name),
        *_given("default-priorities-configmap-namespace", args.default_priorities_config_map_namespace),
        *_given("max-concurrent-reconciles", spec.max_concurrent_reconciles),
        *_common(settings, spec, spec.k8s_client_config),
        *_addresses(),
    ]


def pod_group_controller(settings: Settings, _: ClusterFacts) -> list[str]:
    """operations:9."""
    spec = settings.pod_group_controller
    return [
        f"--scheduler-name={settings.scheduler_name}",
        f"--nodepool-label-key={settings.node_pool_label}",
        *_given("max-concurrent-reconciles", spec.max_concurrent_reconciles),
        *_common(settings, spec),
        *_addresses(),
    ]


def queue_controller(settings: Settings, _: ClusterFacts) -> list[str]:
    """operations:9."""
    spec = settings.queue_controller
    return [
        f"--metrics-listen-address=:{queue_metrics(settings).target_port}",
        *_given("metrics-namespace", spec.metrics_namespace),
        *_given("queue-label-to-metric-label", spec.queue_label_to_metric_label),
        *_given("queue-label-to-default-metric-value", spec.queue_label_to_default_metric_value),
        *_common(settings, spec),
        f"--health-probe-bind-address=:{_HEALTH}",
    ]


def binder(settings: Settings, facts: ClusterFacts) -> list[str]:
    """operations:O-20; tests of KAI read the value after `--plugins` as JSON (operations:E-22)."""
    spec, reservation = settings.binder, settings.reservation
    metrics, health = binder_ports(settings)
    return [
        f"--scheduler-name={settings.scheduler_name}",
        f"--resource-reservation-namespace={settings.reservation_namespace}",
        f"--resource-reservation-service-account={settings.reservation_account}",
        f"--resource-reservation-app-label={settings.reservation_app}",
        f"--resource-reservation-pod-image={settings.image(reservation.image)}",
        f"--scale-adjust-namespace={settings.scaling_namespace}",
        f"--health-probe-bind-address=:{health}",
        f"--metrics-bind-address=:{metrics}",
        "--plugins",
        _json(binder_plugins(settings, facts)),
        *_switch("fake-gpu-nodes", facts.has_fake_gpus or None),
        *_given("runtime-class-name", reservation.runtime_class_name),
        *_given("resource-reservation-allocation-timeout", reservation.allocation_timeout),
        *_reservation_documents(reservation),
        *_given("max-concurrent-reconciles", spec.max_concurrent_reconciles),
        *_common(settings, spec),
    ]


def _reservation_documents(given: ReservationSpec) -> Iterator[str]:
    resources = None if given.pod_resources is None else as_document(given.pod_resources)
    for flag, document in (
        ("pod-resources", resources),
        ("pod-security-context", given.reservation_pod_security_context),
        ("container-security-context", given.reservation_container_security_context),
    ):
        if document:
            yield f"--resource-reservation-{flag}={_json(document)}"


def binder_plugins(settings: Settings, facts: ClusterFacts) -> dict[str, dict[str, Any]]:
    """The plugins of the binder, over their defaults (gpu:BI-7; operations:O-24, OC-2)."""
    spec = settings.binder
    timeout = {"bindTimeoutSeconds": str(default(spec.volume_binding_timeout_seconds, int(_VOLUME_TIMEOUT)))}
    cdi = default(spec.cdi_enabled, facts.uses_cdi)
    plugins: dict[str, dict[str, Any]] = {
        "volumebinding": {"enabled": True, "priority": 300, "arguments": timeout},
        "dynamicresources": {"enabled": True, "priority": 200, "arguments": {"bindTimeoutSeconds": _VOLUME_TIMEOUT}},
        "gpusharing": {"enabled": True, "priority": 100, "arguments": {"cdiEnabled": _text(cdi)}},
        "hamicore": {"enabled": False, "priority": 50},
    }
    for name, given in (spec.plugins or {}).items():
        plugins[name] = _override(plugins.get(name, {"enabled": True, "priority": 0}), given)
    return plugins


def _override(plugin: Mapping[str, Any], given: PluginSpec) -> dict[str, Any]:
    overrides = {"enabled": given.enabled, "priority": given.priority, "arguments": given.arguments}
    return {**plugin, **{key: value for key, value in overrides.items() if value is not None}}


def admission(settings: Settings, facts: ClusterFacts) -> list[str]:
    """operations:O-19."""
    spec, ports = settings.admission, admission_ports(settings)
    plugins = binder_plugins(settings, facts)
    runtime_class = spec.gpu_fraction_runtime_class_name
    if runtime_class is None and spec.gpu_pod_runtime_class_name is None:
        runtime_class = names.GPU_RUNTIME_CLASS
    return [
        f"--scheduler-name={settings.scheduler_name}",
        f"--webhook-addr={ports.webhooks}",
        f"--health-probe-bind-address=:{ports.health}",
        f"--metrics-bind-address=:{ports.metrics}",
        *_switch("gpu-sharing-enabled", spec.gpu_sharing or None),
        *_switch("hami-core-enabled", plugins["hamicore"]["enabled"] or None),
        # operations:E-15
        *_switch("block-nvidia-visible-devices", spec.block_nvidia_visible_devices or None),
        *_given("gpu-fraction-runtime-class-name", runtime_class),
        *_given("gpu-pod-runtime-class-name", spec.gpu_pod_runtime_class_name),
        *_switch("queue-admission-gating", gating(settings).enabled or None),
        f"--resource-reservation-namespace={settings.reservation_namespace}",
        f"--scale-adjust-namespace={settings.scaling_namespace}",
        f"--queue-label-key={settings.queue_label}",
        f"--nodepool-label-key={settings.node_pool_label}",
        *_common(settings, spec),
    ]


def gating(settings: Settings) -> QueueAdmissionGating:
    """Gates of pods that are over the quota of their queue (queues:Q-405, Q-406)."""
    return part(settings.everywhere.queue_admission_gating, QueueAdmissionGating)


def node_scale_adjuster(settings: Settings, _: ClusterFacts) -> list[str]:
    """operations:9; the namespace is the namespace, not the image (operations:OD-13)."""
    args = part(settings.node_scale_adjuster.args, NodeScaleAdjusterArgs)
    return [
        f"--scaling-pod-image={settings.image(args.scaling_pod_image)}",
        f"--scale-adjust-namespace={settings.scaling_namespace}",
        f"--scheduler-name={settings.scheduler_name}",
        f"--scaling-pod-service-account={scaling_account(settings)}",
        *_given("gpu-memory-to-fraction-ratio", args.gpu_memory_to_fraction_ratio),
        *_common(settings, settings.node_scale_adjuster),
        *_addresses(),
    ]


def scaling_account(settings: Settings) -> str:
    """The account of scaling pods."""
    args = part(settings.node_scale_adjuster.args, NodeScaleAdjusterArgs)
    return default(args.node_scale_service_account, names.SCALE_ADJUST_NAMESPACE)


def shard_name(settings: Settings, shard: SchedulingShard) -> str:
    """The name of a shard's Deployment, ConfigMap and Service."""
    return f"{settings.scheduler_name}-{shard.metadata.name}"


def scheduler(settings: Settings, shard: SchedulingShard) -> tuple[list[str], list[LeftOut]]:
    """The command line of a shard's scheduler, and which of its `args` are left out (operations:O-13; install:args)."""
    spec: SchedulerSpec = settings.scheduler
    gates = gating(settings)
    common = given_flags("scheduler", settings.service_of(spec).args, SCHEDULER_ARGS)
    own = given_flags("scheduler", shard.spec.args, "spec.args", title="the scheduler")
    given = GivenFlags(dict(sorted({**common.values, **own.values}.items())), own.left_out)
    return [
        f"--scheduler-conf={CONFIGURATION_FOLDER}/{CONFIGURATION_KEY}",
        f"--scheduler-name={settings.scheduler_name}",
        f"--namespace={settings.namespace}",
        f"--nodepool-label-key={settings.node_pool_label}",
        f"--partition-label-value={shard.spec.partition_label_value or ''}",
        f"--resource-reservation-app-label={settings.reservation_app}",
        f"--queue-label-key={settings.queue_label}",
        f"--listen-address=:{scheduler_port(settings).target_port}",
        *_given("metrics-namespace", settings.queue_controller.metrics_namespace),
        f"--resource-reservation-namespace={settings.reservation_namespace}",
        *_switch("queue-admission-gating", gates.enabled or None),
        *_given("queue-admission-reservation-timeout", gates.reservation_timeout),
        f"--scheduler-configmap={shard_name(settings, shard)}",
        *given.arguments(),
        *_switch("leader-elect", settings.replicas_of(spec) > 1 or None),
        *(["--log-json"] if settings.everywhere.json_log else []),
    ], given.left_out


def _common(settings: Settings, spec: ComponentSpec, client: ClientConfig | None = None) -> list[str]:
    limits = part(client or settings.service_of(spec).k8s_client_config, ClientConfig)
    return [
        f"--namespace={settings.namespace}",
        *_switch("leader-elect", settings.replicas_of(spec) > 1 or None),
        f"--qps={default(limits.qps, _QPS)}",
        f"--burst={default(limits.burst, _BURST)}",
        *(["--log-json"] if settings.everywhere.json_log else []),
    ]


def _addresses() -> list[str]:
    return [f"--metrics-bind-address=:{_METRICS}", f"--health-probe-bind-address=:{_HEALTH}"]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _switch(flag: str, value: bool | None) -> Iterable[str]:
    return () if value is None else (f"--{flag}={_text(value)}",)


def _given(flag: str, value: object) -> Iterable[str]:
    return () if value is None or value == "" else (f"--{flag}={value}",)


def _labels(flag: str, labels: Mapping[str, str] | None) -> Iterable[str]:
    return _given(flag, ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
