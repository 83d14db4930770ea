"""Flags of the admission service (gpu:14), as its counterpart in KAI spells them.

`read_admission` gives a server that is ready to run.  A wrong flag raises `AdmissionOptionError`, which names it: a
webhook with other rules than meant would refuse or pass pods for all of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pykai.api import names
from pykai.api.suggestions import did_you_mean
from pykai.kube.options import OptionError
from pykai.webhooks.gpusharing import SharingRules
from pykai.webhooks.server import AdmissionServer

#: where a Secret with `tls.crt` and `tls.key` is mounted, as controller-runtime has it
CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"

#: flag -> default, as upstream prints it but for addresses: those are read by whoever runs the service, and without
#: them nothing is served; the last two are ours
FLAGS: Mapping[str, str] = {
    "scheduler-name": names.SCHEDULER_NAME,
    "gpu-sharing-enabled": "false",
    "hami-core-enabled": "false",
    "block-nvidia-visible-devices": "false",
    "gpu-fraction-runtime-class-name": names.GPU_RUNTIME_CLASS,
    "gpu-pod-runtime-class-name": "",
    "webhook-addr": "9443",
    "metrics-bind-address": "",
    "health-probe-bind-address": "",
    "leader-elect": "false",
    "qps": "50",
    "burst": "300",
    "rate-limiter-base-delay": "1",
    "rate-limiter-max-delay": "60",
    "fake-gpu-nodes": "false",
    "feature-gates": "",
    "host": "127.0.0.1",
    "cert-dir": CERTIFICATES,
}
#: accepted, because operators pass them, and without effect here: the service sends no requests and elects no leader
WITHOUT_EFFECT = frozenset(
    (
        "leader-elect",
        "qps",
        "burst",
        "rate-limiter-base-delay",
        "rate-limiter-max-delay",
        "fake-gpu-nodes",
        "feature-gates",
    )
)
_SWITCHES = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class AdmissionOptionError(OptionError):
    """A flag that cannot be used; the text names it."""


def read_rules(given: Mapping[str, object]) -> SharingRules:
    """The rules that flags ask for; names with or without dashes in front, unset ones None."""
    values, named = _values(given)
    if _switch(values, "block-nvidia-visible-devices"):
        raise AdmissionOptionError("--block-nvidia-visible-devices: not supported yet")
    runtime_class = values["gpu-fraction-runtime-class-name"]
    if "gpu-fraction-runtime-class-name" not in named and "gpu-pod-runtime-class-name" in named:
        runtime_class = values["gpu-pod-runtime-class-name"]
    return SharingRules(
        scheduler_name=values["scheduler-name"],
        gpu_sharing_enabled=_switch(values, "gpu-sharing-enabled"),
        hami_core_enabled=_switch(values, "hami-core-enabled"),
        fraction_runtime_class=runtime_class,
    )


def read_admission(given: Mapping[str, object]) -> AdmissionServer:
    """The webhook server that flags ask for."""
    rules = read_rules(given)
    values, _ = _values(given)
    port = values["webhook-addr"].lstrip(":")
    if not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise AdmissionOptionError(f"--webhook-addr: {values['webhook-addr']!r} is no port")
    folder = Path(values["cert-dir"])
    try:
        return AdmissionServer(folder / "tls.crt", folder / "tls.key", rules=rules, host=values["host"], port=int(port))
    except OSError as error:
        raise AdmissionOptionError(f"--cert-dir: no certificate can be loaded from {folder}: {error}") from None


def _values(given: Mapping[str, object]) -> tuple[dict[str, str], set[str]]:
    values, named = dict(FLAGS), set()
    for spelled, value in given.items():
        name = spelled.lstrip("-")
        if name not in FLAGS:
            raise AdmissionOptionError(f"--{name}: unknown flag{did_you_mean(name, FLAGS, '--')}")
        if value is not None:
            values[name] = str(value).lower() if isinstance(value, bool) else str(value)
            named.add(name)
    return values, named


def _switch(values: Mapping[str, str], name: str) -> bool:
    text = values[name].lower()
    if text not in _SWITCHES:
        raise AdmissionOptionError(f"--{name}: {values[name]!r} is neither true nor false")
    return _SWITCHES[text]
