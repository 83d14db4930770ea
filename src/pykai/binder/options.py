"""The binder's command-line flags (gpu:14) and the configuration of its plugins (gpu:BI-7).

`FLAGS` lists every flag upstream has, so that an operator's command line works unchanged; `read_options` turns a
mapping of flag to value into `BinderOptions`.  A binder with a wrong setting does not start: what it would write into
the cluster cannot be taken back, so a wrong flag raises `OptionError`, which names the flag.

Plugins come as JSON, name -> {enabled, priority, arguments}, over the defaults; given arguments replace the default
arguments as a whole.  They run in descending priority, ties by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pykai.api import names
from pykai.api.suggestions import did_you_mean
from pykai.kube.options import OptionError as OptionError

VOLUME_BINDING = "volumebinding"
DYNAMIC_RESOURCES = "dynamicresources"
GPU_SHARING = "gpusharing"
HAMI_CORE = "hamicore"

_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
_INTEGER = re.compile(r"[0-9]{1,9}")
_TIMEOUT = "bindTimeoutSeconds"
_CDI = "cdiEnabled"


@dataclass(frozen=True, slots=True)
class BinderPluginConfig:
    """One plugin as configured."""

    name: str
    enabled: bool = True
    priority: int = 0
    arguments: Mapping[str, str] = field(default_factory=dict)


DEFAULT_PLUGINS: Mapping[str, BinderPluginConfig] = MappingProxyType(
    {
        VOLUME_BINDING: BinderPluginConfig(VOLUME_BINDING, True, 300, MappingProxyType({_TIMEOUT: "120"})),
        DYNAMIC_RESOURCES: BinderPluginConfig(DYNAMIC_RESOURCES, True, 200, MappingProxyType({_TIMEOUT: "120"})),
        GPU_SHARING: BinderPluginConfig(GPU_SHARING, True, 100, MappingProxyType({_CDI: "false"})),
        HAMI_CORE: BinderPluginConfig(HAMI_CORE, False, 50),
    }
)


@dataclass(frozen=True, slots=True)
class BinderOptions:
    """The settings of a binder."""

    scheduler_name: str = names.SCHEDULER_NAME
    reservation_namespace: str = names.RESERVATION_NAMESPACE
    reservation_service_account: str = names.RESERVATION_APP
    reservation_app: str = names.RESERVATION_APP
    reservation_image: str = "pykai/kai-scheduler/resource-reservation"
    #: cluster seconds until a reservation pod must know its GPU
    reservation_timeout_s: float = 40.0
    #: `resources` of the container of reservation pods, as in a manifest
    reservation_resources: Mapping[str, Any] = field(default_factory=dict)
    reservation_pod_security_context: Mapping[str, Any] | None = None
    reservation_container_security_context: Mapping[str, Any] | None = None
    reservation_runtime_class: str = ""
    scale_adjust_namespace: str = names.SCALE_ADJUST_NAMESPACE
    #: requests a second, and at once; None = no limit but that of open requests
    qps: int | None = None
    burst: int | None = None
    #: attempts at the same time; most of them wait for a kubelet, which costs nothing here
    workers: int = 100
    base_delay_s: float = 1.0
    max_delay_s: float = 60.0
    leader_elect: bool = False
    #: nodes without real GPUs: something else than the reservation program tells the GPU
    fake_gpu_nodes: bool = False
    metrics_address: str = ""
    health_address: str = ""
    #: by name, as given; `enabled_plugins` are those that run
    plugins: Mapping[str, BinderPluginConfig] = field(default_factory=lambda: DEFAULT_PLUGINS)
    #: where the lease of the leader lies
    namespace: str = names.DEFAULT_NAMESPACE

    def enabled_plugins(self) -> list[BinderPluginConfig]:
        """The plugins that run, in their order."""
        return sorted(
            (plugin for plugin in self.plugins.values() if plugin.enabled), key=lambda p: (-p.priority, p.name)
        )

    def volume_timeout_s(self) -> float:
        """Cluster seconds until the volumes of a pod must be bound."""
        return _seconds(self.plugins[VOLUME_BINDING], _TIMEOUT)

    def cdi_enabled(self) -> bool:
        """Whether devices are named as CDI does."""
        return _switch(self.plugins[GPU_SHARING], _CDI)


def _text(text: str) -> str:
    return text


def _bool(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError("expected true or false")
    return _BOOLEANS[text.lower()]


def _positive(text: str) -> int:
    if not _INTEGER.fullmatch(text) or int(text) < 1:
        raise ValueError("expected a whole number of at least 1")
    return int(text)


def _limit(text: str) -> int | None:
    return _positive(text) if text else None


def _json_object(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"expected a JSON object ({error})") from None
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def _resources(text: str) -> dict[str, Any]:
    return _json_object(text) or {}


def _plugins(text: str) -> Mapping[str, BinderPluginConfig]:
    return read_plugins(_json_object(text) or {})


@dataclass(frozen=True, slots=True)
class BinderFlag:
    """One flag."""

    name: str
    #: as upstream prints it, unless the meaning says otherwise
    default: str
    read: Callable[[str], Any]
    #: field of `BinderOptions`; "" = accepted, without effect
    option_field: str
    meaning: str


#: gpu:14, in its order. `--qps` and `--burst` are limits only when given.
FLAGS: tuple[BinderFlag, ...] = (
    BinderFlag("scheduler-name", names.SCHEDULER_NAME, _text, "scheduler_name", "pods that name it are ours"),
    BinderFlag(
        "resource-reservation-namespace",
        names.RESERVATION_NAMESPACE,
        _text,
        "reservation_namespace",
        "where reservation pods are",
    ),
    BinderFlag(
        "resource-reservation-service-account",
        names.RESERVATION_APP,
        _text,
        "reservation_service_account",
        "who they are",
    ),
    BinderFlag("resource-reservation-app-label", names.RESERVATION_APP, _text, "reservation_app", "their label `app`"),
    BinderFlag(
        "resource-reservation-pod-image",
        "pykai/kai-scheduler/resource-reservation",
        _text,
        "reservation_image",
        "the program that tells the GPU",
    ),
    BinderFlag(
        "resource-reservation-allocation-timeout",
        "40",
        _positive,
        "reservation_timeout_s",
        "seconds until a reservation pod must know its GPU",
    ),
    BinderFlag(
        "resource-reservation-pod-resources",
        "",
        _resources,
        "reservation_resources",
        "requests and limits of reservation pods, JSON; a GPU in it is ignored",
    ),
    BinderFlag(
        "resource-reservation-pod-security-context",
        "",
        _json_object,
        "reservation_pod_security_context",
        "of reservation pods, JSON",
    ),
    BinderFlag(
        "resource-reservation-container-security-context",
        "",
        _json_object,
        "reservation_container_security_context",
        "of their containers, JSON",
    ),
    BinderFlag("runtime-class-name", "", _text, "reservation_runtime_class", "runtime class of reservation pods"),
    BinderFlag(
        "scale-adjust-namespace",
        names.SCALE_ADJUST_NAMESPACE,
        _text,
        "scale_adjust_namespace",
        "while a pod there waits for a new node, no GPU is reserved on nodes it could use",
    ),
    BinderFlag("qps", "", _limit, "qps", "API client: requests a second"),
    BinderFlag("burst", "", _limit, "burst", "API client: requests at once"),
    BinderFlag(
        "max-concurrent-reconciles",
        "100",
        _positive,
        "workers",
        "BindRequests carried out at the same time; most of them wait (10 in KAI Scheduler)",
    ),
    BinderFlag("rate-limiter-base-delay", "1", _positive, "base_delay_s", "first pause after a failure, seconds"),
    BinderFlag("rate-limiter-max-delay", "60", _positive, "max_delay_s", "longest pause after failures, seconds"),
    BinderFlag("leader-elect", "false", _bool, "leader_elect", "one of several replicas is active"),
    BinderFlag("fake-gpu-nodes", "false", _bool, "fake_gpu_nodes", "reservation pods only sleep"),
    BinderFlag("metrics-bind-address", "", _text, "metrics_address", "metrics and health; nowhere without it"),
    BinderFlag("health-probe-bind-address", "", _text, "health_address", "the same, for a second address"),
    BinderFlag("plugins", "", _plugins, "plugins", "JSON: name -> {enabled, priority, arguments}"),
    BinderFlag("feature-gates", "", _text, "", "accepted, without effect"),
    BinderFlag("namespace", names.DEFAULT_NAMESPACE, _text, "namespace", "lease namespace (not in KAI Scheduler)"),
)

_BY_NAME = {flag.name: flag for flag in FLAGS}
#: accepted, because operators pass them, and without effect here
WITHOUT_EFFECT = frozenset(flag.name for flag in FLAGS if not flag.option_field)


def read_options(given: Mapping[str, object]) -> BinderOptions:
    """Options from flags, with or without dashes in front; unset ones are None.  Raises `OptionError`."""
    values: dict[str, Any] = {}
    for spelled, value in given.items():
        name = spelled.lstrip("-")
        flag = _BY_NAME.get(name)
        if flag is None:
            raise OptionError(f"--{name}: unknown flag{did_you_mean(name, _BY_NAME, '--')}")
        if value is None or not flag.option_field:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        try:
            values[flag.option_field] = flag.read(text)
        except OptionError:
            raise
        except ValueError as error:
            raise OptionError(f"--{name}: {value!r}: {error}") from None
    options = BinderOptions(**values)
    check_plugins(options.plugins)
    return options


def read_plugins(given: Mapping[str, Any]) -> Mapping[str, BinderPluginConfig]:
    """The plugins as configured, over the defaults."""
    plugins = dict(DEFAULT_PLUGINS)
    for name, settings in given.items():
        default = DEFAULT_PLUGINS.get(name, BinderPluginConfig(name))
        if settings is None:
            settings = {}
        if not isinstance(settings, Mapping):
            raise OptionError(f"--plugins: {name}: expected an object")
        enabled = settings.get("enabled")
        priority = settings.get("priority")
        arguments = settings.get("arguments")
        if not (enabled is None or isinstance(enabled, bool)):
            raise OptionError(f"--plugins: {name}.enabled: expected true or false")
        if not (priority is None or (isinstance(priority, int) and not isinstance(priority, bool))):
            raise OptionError(f"--plugins: {name}.priority: expected a whole number")
        if not (arguments is None or isinstance(arguments, Mapping)):
            raise OptionError(f"--plugins: {name}.arguments: expected an object")
        plugins[name] = BinderPluginConfig(
            name,
            default.enabled if enabled is None else enabled,
            default.priority if priority is None else priority,
            default.arguments if arguments is None else {key: str(value) for key, value in arguments.items()},
        )
    return plugins


def check_plugins(plugins: Mapping[str, BinderPluginConfig]) -> None:
    """Whether these plugins can run together; raises `OptionError`."""
    for plugin in plugins.values():
        if not plugin.enabled:
            continue
        if plugin.name not in DEFAULT_PLUGINS:
            meant = did_you_mean(plugin.name, DEFAULT_PLUGINS)
            raise OptionError(f"failed to get binder plugin {plugin.name}: there is no such plugin{meant}")
        if plugin.name in (VOLUME_BINDING, DYNAMIC_RESOURCES):
            _seconds(plugin, _TIMEOUT)
        elif plugin.name == GPU_SHARING:
            _switch(plugin, _CDI)
    hami, sharing = plugins.get(HAMI_CORE), plugins.get(GPU_SHARING)
    if hami is not None and hami.enabled:
        if sharing is None or not sharing.enabled:
            raise OptionError(f"binder plugin {HAMI_CORE} needs plugin {GPU_SHARING} to be enabled")
        if sharing.priority <= hami.priority:
            raise OptionError(
                f"binder plugin {GPU_SHARING} must have a higher priority than {HAMI_CORE} "
                f"({sharing.priority} against {hami.priority})"
            )


def _argument(plugin: BinderPluginConfig, name: str) -> str:
    value = plugin.arguments.get(name)
    if value is None:
        raise OptionError(f"--plugins: {plugin.name}.arguments.{name} is missing")
    return value


def _seconds(plugin: BinderPluginConfig, name: str) -> float:
    text = _argument(plugin, name)
    if not _INTEGER.fullmatch(text) or int(text) < 1:
        raise OptionError(f"--plugins: {plugin.name}.arguments.{name}: {text!r} is no number of seconds")
    return float(text)


def _switch(plugin: BinderPluginConfig, name: str) -> bool:
    text = _argument(plugin, name)
    if text.lower() not in _BOOLEANS:
        raise OptionError(f"--plugins: {plugin.name}.arguments.{name}: {text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]
