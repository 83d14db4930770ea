"""Flags of the admission service (gpu:14), as its counterpart in KAI spells them.

`read_admission` gives a server that is ready to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.kube.flags import (
    FEATURE_GATES,
    HEALTH_ADDRESS,
    METRICS_ADDRESS,
    Flag,
    OptionError,
    checked_values,
    read_bool,
    read_port,
    read_text,
    set_fields,
)
from pykai.kube.runtime import Runtime
from pykai.webhooks.gpusharing import SharingRules
from pykai.webhooks.server import AdmissionServer

#: where a Secret with `tls.crt` and `tls.key` is mounted, as controller-runtime has it
CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"
_RUNTIME_CLASS = "gpu-fraction-runtime-class-name"
_DEPRECATED_RUNTIME_CLASS = "gpu-pod-runtime-class-name"


def _unsupported(text: str) -> bool:
    if read_bool(text):
        raise ValueError("not supported yet")
    return False


def _webhook_port(text: str) -> int:
    return read_port(text.lstrip(":"))


#: gpu:14; the service sends no requests and elects no leader, so their flags have no effect
FLAGS: tuple[Flag, ...] = (
    Flag("scheduler-name", names.SCHEDULER_NAME, read_text, "pods that name it are checked", field="scheduler_name"),
    Flag("gpu-sharing-enabled", "false", read_bool, "allow pods to share GPUs", field="gpu_sharing_enabled"),
    Flag(
        "hami-core-enabled", "false", read_bool, "enforce GPU memory limits with HAMi-core", field="hami_core_enabled"
    ),
    Flag(
        "block-nvidia-visible-devices",
        "false",
        _unsupported,
        "refuse pods that set NVIDIA_VISIBLE_DEVICES; not supported yet",
    ),
    Flag(
        _RUNTIME_CLASS,
        names.GPU_RUNTIME_CLASS,
        read_text,
        "runtime class of pods that share GPUs",
        field="fraction_runtime_class",
    ),
    Flag(_DEPRECATED_RUNTIME_CLASS, "", read_text, "deprecated name of --gpu-fraction-runtime-class-name"),
    Flag("webhook-addr", "9443", _webhook_port, "port of the webhooks"),
    METRICS_ADDRESS,
    HEALTH_ADDRESS,
    Flag("leader-elect", "false", read_text, "one of several replicas is active", no_effect=True),
    Flag("qps", "50", read_text, "requests to the API server a second", no_effect=True),
    Flag("burst", "300", read_text, "requests at once beyond that", no_effect=True),
    Flag("rate-limiter-base-delay", "1", read_text, "first pause after a failure, seconds", no_effect=True),
    Flag("rate-limiter-max-delay", "60", read_text, "longest pause after failures, seconds", no_effect=True),
    Flag("fake-gpu-nodes", "false", read_text, "nodes without real GPUs", no_effect=True),
    FEATURE_GATES,
    Flag("host", "127.0.0.1", read_text, "address to listen on (not in KAI Scheduler)"),
    Flag("cert-dir", CERTIFICATES, read_text, "folder with tls.crt and tls.key (not in KAI Scheduler)"),
)


def read_rules(given: Mapping[str, object]) -> SharingRules:
    """The rules that flags ask for; raises `OptionError`."""
    return _rules(checked_values(FLAGS, given))


def read_admission(given: Mapping[str, object]) -> AdmissionServer:
    """The webhook server that flags ask for; raises `OptionError`."""
    given_values = checked_values(FLAGS, given)
    values = {flag.name: flag.read(flag.default) for flag in FLAGS} | given_values
    folder = Path(values["cert-dir"])
    try:
        return AdmissionServer(
            folder / "tls.crt",
            folder / "tls.key",
            rules=_rules(given_values),
            host=values["host"],
            port=values["webhook-addr"],
        )
    except OSError as error:
        raise OptionError(f"--cert-dir: no certificate can be loaded from {folder}: {error}") from None


def _rules(values: Mapping[str, Any]) -> SharingRules:
    if _DEPRECATED_RUNTIME_CLASS in values:
        values = {_RUNTIME_CLASS: values[_DEPRECATED_RUNTIME_CLASS], **values}
    return set_fields(SharingRules(gpu_sharing_enabled=False), FLAGS, values)


def from_flags(_: Runtime, given: Mapping[str, str], __: CollectorRegistry) -> list[AdmissionServer]:
    """The webhook server as `kai run admission` starts it; raises `OptionError`."""
    return [read_admission(given)]
