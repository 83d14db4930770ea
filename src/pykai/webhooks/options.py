"""Flags of the admission service (gpu:14), as its counterpart in KAI spells them, and the service they ask for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.kube.flags import (
    BURST,
    FEATURE_GATES,
    HEALTH_ADDRESS,
    LEADER_ELECT,
    METRICS_ADDRESS,
    NAMESPACE,
    QPS,
    Flag,
    OptionError,
    checked_values,
    read_bool,
    read_duration,
    read_nonnegative_duration,
    read_port,
    read_text,
    set_fields,
)
from pykai.kube.runtime import Runtime, Service
from pykai.webhooks import table
from pykai.webhooks.gpusharing import SharingRules
from pykai.webhooks.handlers import object_handlers, pod_handlers, queue_handlers
from pykai.webhooks.metrics import AdmissionMetrics
from pykai.webhooks.protection import ProtectionCheck
from pykai.webhooks.queueaccess import QueueAccessCheck
from pykai.webhooks.queuegating import GatingRules
from pykai.webhooks.queuelookups import QueueLookups
from pykai.webhooks.rotator import CertificateRotator, RotatorOptions
from pykai.webhooks.server import AdmissionServer
from pykai.webhooks.servingcertificates import CertificateFiles, SecretCertificate, ServingCertificate
from pykai.webhooks.topologylookups import TopologyLookups

#: where a Secret with `tls.crt` and `tls.key` is mounted, as controller-runtime has it
CERTIFICATES: Final = "/tmp/k8s-webhook-server/serving-certs"
_RUNTIME_CLASS: Final = "gpu-fraction-runtime-class-name"
_DEPRECATED_RUNTIME_CLASS: Final = "gpu-pod-runtime-class-name"
_LOOPBACK: Final = "127.0.0.1"
_NANOSECONDS: Final = 1_000_000_000
#: a certificate that is replaced every minute is of no use
_SHORTEST_LIFETIME: Final = timedelta(hours=1)


def _webhook_port(text: str) -> int:
    return read_port(text.lstrip(":"))


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _lifetime(text: str) -> timedelta:
    lifetime = timedelta(seconds=read_duration(text) / _NANOSECONDS)
    if lifetime < _SHORTEST_LIFETIME:
        raise ValueError("expected at least 1h")
    return lifetime


def _seconds(text: str) -> float:
    return read_nonnegative_duration(text) / _NANOSECONDS


#: gpu:14
FLAGS: Final[tuple[Flag, ...]] = (
    Flag("scheduler-name", names.SCHEDULER_NAME, read_text, "pods that name it are checked", field="scheduler_name"),
    Flag("gpu-sharing-enabled", "false", read_bool, "allow pods to share GPUs", field="gpu_sharing_enabled"),
    Flag(
        "hami-core-enabled", "false", read_bool, "enforce GPU memory limits with HAMi-core", field="hami_core_enabled"
    ),
    Flag(
        "block-nvidia-visible-devices",
        "false",
        read_bool,
        "refuse pods that set NVIDIA_VISIBLE_DEVICES, and set it to void in containers without GPUs",
        field="visible_devices_blocked",
    ),
    Flag(
        _RUNTIME_CLASS,
        names.GPU_RUNTIME_CLASS,
        read_text,
        "runtime class of pods that share GPUs",
        field="fraction_runtime_class",
    ),
    Flag(_DEPRECATED_RUNTIME_CLASS, "", read_text, "deprecated name of --gpu-fraction-runtime-class-name"),
    Flag("enable-quota-validation", "true", read_bool, "warn about quotas above those of the parent queue"),
    Flag(
        "refuse-queues-with-children",
        "false",
        read_bool,
        "refuse to delete a queue that has child queues, even without pods (not in KAI Scheduler)",
    ),
    Flag(
        "queue-admission-gating",
        "false",
        read_bool,
        "add a gate to new pods of queues that ask for it (not in KAI Scheduler)",
    ),
    Flag(
        "queue-label-key",
        names.QUEUE_LABEL,
        read_text,
        "label of a pod that names its queue, as for the scheduler (not in KAI Scheduler)",
    ),
    Flag(
        "nodepool-label-key",
        names.NODE_POOL_LABEL,
        read_text,
        "label of a pod that names its node pool, as for the scheduler (not in KAI Scheduler)",
    ),
    Flag(
        "resource-reservation-namespace",
        names.RESERVATION_NAMESPACE,
        read_text,
        "where reservation pods are; pods there get no gate (not in KAI Scheduler)",
    ),
    Flag(
        "scale-adjust-namespace",
        names.SCALE_ADJUST_NAMESPACE,
        read_text,
        "where scaling pods are; pods there get no gate (not in KAI Scheduler)",
    ),
    Flag("webhook-addr", "9443", _webhook_port, "port of the webhooks"),
    METRICS_ADDRESS,
    HEALTH_ADDRESS,
    LEADER_ELECT,
    replace(NAMESPACE, meaning="where the services run, and the lease and the certificate are"),
    QPS,
    BURST,
    Flag("rate-limiter-base-delay", "1", read_text, "first pause after a failure, seconds", no_effect=True),
    Flag("rate-limiter-max-delay", "60", read_text, "longest pause after failures, seconds", no_effect=True),
    Flag("fake-gpu-nodes", "false", read_text, "nodes without real GPUs", no_effect=True),
    FEATURE_GATES,
    Flag("host", _LOOPBACK, read_text, "address to listen on; in a pod every address (not in KAI Scheduler)"),
    Flag(
        "cert-dir",
        CERTIFICATES,
        read_text,
        "folder with tls.crt and tls.key; without these files the certificate is in a Secret (not in KAI Scheduler)",
    ),
    Flag(
        "certificate-secret",
        table.TLS_SECRET,
        read_text,
        "Secret that holds the certificate; it is filled and rotated (not in KAI Scheduler)",
        field="secret",
    ),
    Flag(
        "certificate-hosts",
        "",
        _hosts,
        "further names and addresses of the service, separated by commas (not in KAI Scheduler)",
        field="hosts",
    ),
    Flag(
        "certificate-lifetime",
        "2160h",
        _lifetime,
        "how long a certificate is valid; it is replaced after three quarters of it (not in KAI Scheduler)",
        field="lifetime",
    ),
    Flag(
        "certificate-overlap",
        "2m",
        _seconds,
        "how long a new certificate is trusted before it is used (not in KAI Scheduler)",
        field="overlap_s",
    ),
)
_ROTATOR_FLAGS: Final = tuple(flag for flag in FLAGS if flag.name.startswith("certificate-"))
_RULE_FLAGS: Final = tuple(flag for flag in FLAGS if flag not in _ROTATOR_FLAGS)


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """What can be set about this service."""

    rules: SharingRules
    #: where the services run
    namespace: str
    certificates: RotatorOptions
    #: None: the certificate is in a Secret
    folder: Path | None
    host: str | None
    port: int
    quotas_checked: bool
    children_refused: bool
    queues_gated: bool
    queue_label: str
    node_pool_label: str
    #: where pods of our own services are
    service_namespaces: tuple[str, ...]


def read_options(given: Mapping[str, object]) -> AdmissionOptions:
    """Options from flags; raises `OptionError`."""
    given_values = checked_values(FLAGS, given)
    values: dict[str, Any] = {flag.name: flag.read(flag.default) for flag in FLAGS} | given_values
    certificates = RotatorOptions(namespace=values["namespace"], leader_elect=values["leader-elect"])
    folder = Path(values["cert-dir"])
    return AdmissionOptions(
        _rules(given_values),
        values["namespace"],
        set_fields(certificates, _ROTATOR_FLAGS, given_values),
        folder if "cert-dir" in given_values or (folder / "tls.crt").exists() else None,
        None if "host" not in given_values and "KUBERNETES_SERVICE_HOST" in os.environ else values["host"],
        values["webhook-addr"],
        values["enable-quota-validation"],
        values["refuse-queues-with-children"],
        values["queue-admission-gating"],
        values["queue-label-key"],
        values["nodepool-label-key"],
        (values["resource-reservation-namespace"], values["scale-adjust-namespace"]),
    )


def make_admission(
    runtime: Runtime, options: AdmissionOptions, registry: CollectorRegistry | None = None
) -> list[Service]:
    """The webhook server, and what keeps its certificate valid; raises `OptionError`."""
    metrics = AdmissionMetrics(registry)
    access = QueueAccessCheck(runtime, options.queue_label, options.node_pool_label)
    lookups = QueueLookups(runtime, options.rules.scheduler_name, access)
    gating = None
    if options.queues_gated:
        gating = GatingRules(
            lookups.is_gated, options.rules.scheduler_name, options.queue_label, options.service_namespaces
        )
    protection, services_in = ProtectionCheck(runtime), options.namespace
    handlers = {
        **pod_handlers(options.rules, access, gating=gating, protection=protection, services_namespace=services_in),
        **object_handlers(TopologyLookups(runtime), access, protection, services_namespace=services_in),
        **queue_handlers(lookups, quotas_checked=options.quotas_checked, children_refused=options.children_refused),
    }
    certificate: ServingCertificate
    services: list[Service] = []
    if options.folder is not None:
        certificate = _files(options.folder)
    else:
        place = options.certificates
        certificate = SecretCertificate(runtime, namespace=place.namespace, name=place.secret, metrics=metrics)
        services.append(CertificateRotator(runtime, place))
    server = AdmissionServer(certificate, handlers, host=options.host, port=options.port, metrics=metrics)
    return [server, *services]


def _files(folder: Path) -> CertificateFiles:
    try:
        return CertificateFiles(folder / "tls.crt", folder / "tls.key")
    except OSError as error:
        raise OptionError(f"--cert-dir: no certificate can be loaded from {folder}: {error}") from None


def _rules(values: Mapping[str, Any]) -> SharingRules:
    if _DEPRECATED_RUNTIME_CLASS in values:
        values = {_RUNTIME_CLASS: values[_DEPRECATED_RUNTIME_CLASS], **values}
    return set_fields(SharingRules(gpu_sharing_enabled=False), _RULE_FLAGS, values)


def from_flags(runtime: Runtime, given: Mapping[str, str], registry: CollectorRegistry) -> list[Service]:
    """The admission service as `kai run admission` starts it; raises `OptionError`."""
    return make_admission(runtime, read_options(given), registry)
