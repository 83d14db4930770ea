"""The binder's plugins by name; `--plugins` says which run, and in which order (gpu:BI-7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pykai.binder.attempt import BinderPlugin
from pykai.binder.changewaiters import ChangeWaiters
from pykai.binder.claims import DynamicResourcesBinderPlugin
from pykai.binder.configmaps import GpuSharingBinderPlugin, HamiCoreBinderPlugin
from pykai.binder.deviceholders import DeviceHolders
from pykai.binder.options import DYNAMIC_RESOURCES, GPU_SHARING, HAMI_CORE, VOLUME_BINDING, BinderOptions
from pykai.binder.stores import BinderStores
from pykai.binder.volumes import VolumeBinderPlugin
from pykai.kube.client import Client
from pykai.kube.clock import Clock


class PluginInputs(NamedTuple):
    """What plugins are made from."""

    client: Client
    clock: Clock
    stores: BinderStores
    options: BinderOptions


def _volume_binding(inputs: PluginInputs) -> BinderPlugin:
    stores = inputs.stores
    return VolumeBinderPlugin(
        inputs.client,
        ChangeWaiters(stores.volume_claims),
        stores.volumes,
        clock=inputs.clock,
        timeout_s=inputs.options.volume_timeout_s(),
    )


def _dynamic_resources(inputs: PluginInputs) -> BinderPlugin:
    return DynamicResourcesBinderPlugin(inputs.client, DeviceHolders(inputs.client, inputs.stores.device_claims))


def _gpu_sharing(inputs: PluginInputs) -> BinderPlugin:
    return GpuSharingBinderPlugin(inputs.client, cdi=inputs.options.cdi_enabled())


def _hami_core(inputs: PluginInputs) -> BinderPlugin:
    return HamiCoreBinderPlugin(inputs.client)


PLUGINS: Mapping[str, Callable[[PluginInputs], BinderPlugin]] = {
    VOLUME_BINDING: _volume_binding,
    DYNAMIC_RESOURCES: _dynamic_resources,
    GPU_SHARING: _gpu_sharing,
    HAMI_CORE: _hami_core,
}


def enabled_plugins(client: Client, clock: Clock, stores: BinderStores, options: BinderOptions) -> list[BinderPlugin]:
    """The plugins that run, in their order."""
    inputs = PluginInputs(client, clock, stores, options)
    return [PLUGINS[plugin.name](inputs) for plugin in options.enabled_plugins()]
