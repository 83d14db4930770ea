"""The binder's command-line flags (gpu:14) and the configuration of its plugins (gpu:BI-7).

Plugins come as JSON, name -> {enabled, priority, arguments}, over the defaults; given arguments replace the default
arguments as a whole.  They run in descending priority, ties by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pykai.api import names
from pykai.api.suggestions import did_you_mean
from pykai.kube import flags
from pykai.kube.flags import (
    BURST,
    FEATURE_GATES,
    HEALTH_ADDRESS,
    LEADER_ELECT,
    METRICS_ADDRESS,
    NAMESPACE,
    QPS,
    SCHEDULER_NAME,
    Flag,
    OptionError,
    max_concurrent_reconciles,
    read_bool,
    read_positive,
    read_text,
)

VOLUME_BINDING = "volumebinding"
DYNAMIC_RESOURCES = "dynamicresources"
GPU_SHARING = "gpusharing"
HAMI_CORE = "hamicore"

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
    #: attempts at the same time; most of them wait for a kubelet, which costs nothing here
    max_concurrent_reconciles: int = 100
    base_delay_s: float = 1.0
    max_delay_s: float = 60.0
    leader_elect: bool = False
    #: nodes without real GPUs: the reservation program does not report the GPU
    fake_gpu_nodes: bool = False
    #: by name, as given; `enabled_plugins` are those that run
    plugins: Mapping[str, BinderPluginConfig] = field(default_factory=lambda: DEFAULT_PLUGINS)
    #: namespace of the lease
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


#: gpu:14, in its order; `--namespace` is ours. `kai run` reads `--qps`, `--burst` and the addresses.
FLAGS: tuple[Flag, ...] = (
    SCHEDULER_NAME,
    Flag(
        "resource-reservation-namespace",
        names.RESERVATION_NAMESPACE,
        read_text,
        "where reservation pods are",
        field="reservation_namespace",
    ),
    Flag(
        "resource-reservation-service-account",
        names.RESERVATION_APP,
        read_text,
        "who they are",
        field="reservation_service_account",
    ),
    Flag(
        "resource-reservation-app-label", names.RESERVATION_APP, read_text, "their label `app`", field="reservation_app"
    ),
    Flag(
        "resource-reservation-pod-image",
        "pykai/kai-scheduler/resource-reservation",
        read_text,
        "the program that reports the GPU",
        field="reservation_image",
    ),
    Flag(
        "resource-reservation-allocation-timeout",
        "40",
        read_positive,
        "seconds until a reservation pod must know its GPU",
        field="reservation_timeout_s",
    ),
    Flag(
        "resource-reservation-pod-resources",
        "",
        _resources,
        "requests and limits of reservation pods, JSON; a GPU in it is ignored",
        field="reservation_resources",
    ),
    Flag(
        "resource-reservation-pod-security-context",
        "",
        _json_object,
        "of reservation pods, JSON",
        field="reservation_pod_security_context",
    ),
    Flag(
        "resource-reservation-container-security-context",
        "",
        _json_object,
        "of their containers, JSON",
        field="reservation_container_security_context",
    ),
    Flag("runtime-class-name", "", read_text, "runtime class of reservation pods", field="reservation_runtime_class"),
    Flag(
        "scale-adjust-namespace",
        names.SCALE_ADJUST_NAMESPACE,
        read_text,
        "while a pod there waits for a new node, no GPU is reserved on nodes it could use",
        field="scale_adjust_namespace",
    ),
    QPS,
    BURST,
    max_concurrent_reconciles(
        100, "BindRequests carried out at the same time; most of them wait (10 in KAI Scheduler)"
    ),
    Flag("rate-limiter-base-delay", "1", read_positive, "first pause after a failure, seconds", field="base_delay_s"),
    Flag("rate-limiter-max-delay", "60", read_positive, "longest pause after failures, seconds", field="max_delay_s"),
    replace(LEADER_ELECT, field="leader_elect"),
    Flag("fake-gpu-nodes", "false", read_bool, "reservation pods only sleep", field="fake_gpu_nodes"),
    METRICS_ADDRESS,
    HEALTH_ADDRESS,
    Flag("plugins", "", _plugins, "JSON: name -> {enabled, priority, arguments}", field="plugins"),
    FEATURE_GATES,
    replace(NAMESPACE, field="namespace"),
)


def read_options(given: Mapping[str, object]) -> BinderOptions:
    """Options from flags; raises `OptionError`."""
    options = flags.read_options(BinderOptions(), FLAGS, given)
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
    try:
        return float(read_positive(text))
    except ValueError:
        raise OptionError(f"--plugins: {plugin.name}.arguments.{name}: {text!r} is not a number of seconds") from None


def _switch(plugin: BinderPluginConfig, name: str) -> bool:
    text = _argument(plugin, name)
    try:
        return read_bool(text)
    except ValueError:
        raise OptionError(f"--plugins: {plugin.name}.arguments.{name}: {text!r} is neither true nor false") from None
