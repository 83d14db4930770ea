"""The plugins, under the names upstream's configuration files use."""

from __future__ import annotations

from collections.abc import Mapping

from pykai.api import names
from pykai.core.hooks import Plugin
from pykai.core.model.groups import Report
from pykai.core.plugins.arguments import read_arguments
from pykai.core.plugins.dynamicresources import DynamicResources
from pykai.core.plugins.kubernetes import NodeAffinity, TaintToleration, TopologySpread
from pykai.core.plugins.minruntime import MinRuntime
from pykai.core.plugins.numa import Numa
from pykai.core.plugins.orders import ORDERS
from pykai.core.plugins.predicates import Predicates
from pykai.core.plugins.proportion import Proportion
from pykai.core.plugins.scores import (
    GpuPack,
    GpuSharingOrder,
    GpuSpread,
    NodeAvailability,
    NodePlacement,
    NominatedNode,
    PodAffinity,
    ResourceType,
)
from pykai.core.plugins.topology import TopologyPlugin
from pykai.core.plugins.volumes import VolumeLimits

CATALOGUE: Mapping[str, type] = {
    "predicates": Predicates,
    "dynamicresources": DynamicResources,
    "proportion": Proportion,
    "nodeavailability": NodeAvailability,
    "gpusharingorder": GpuSharingOrder,
    "gpupack": GpuPack,
    "gpuspread": GpuSpread,
    "resourcetype": ResourceType,
    "nominatednode": NominatedNode,
    "nodeplacement": NodePlacement,
    "podaffinity": PodAffinity,
    "minruntime": MinRuntime,
    "topology": TopologyPlugin,
    "numa": Numa,
    "topologyspread": TopologySpread,
    "nodeaffinity": NodeAffinity,
    "tainttoleration": TaintToleration,
    "volumelimits": VolumeLimits,
}

#: Names of upstream's plugins that decide nothing in this version; a configuration may name them.
PLANNED = (
    "reflectjoborder",
    "snapshot",
)

#: The built-in configuration (cycle:CFG-2): names in order, with their arguments.
DEFAULT_PLUGINS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("predicates", {}),
    ("proportion", {}),
    ("priority", {}),
    ("elastic", {}),
    ("kubeflow", {}),
    ("ray", {}),
    ("nodeavailability", {}),
    ("gpusharingorder", {}),
    ("gpupack", {}),
    ("resourcetype", {}),
    ("subgrouporder", {}),
    ("taskorder", {}),
    ("nominatednode", {}),
    ("dynamicresources", {}),
    ("nodeplacement", {"cpu": "binpack", "gpu": "binpack"}),
    ("minruntime", {}),
    ("topology", {}),
    ("snapshot", {}),
    ("sg-nodelocalgreedy", {}),
    ("sg-multinodegang", {}),
)

#: The built-in configurations by name, see docs/profiles.md: as KAI Scheduler decides, and with what only the default
#: scheduler of Kubernetes honours (cycle:FLT-4, Do better).
DEFAULT_PROFILE = "default"
PROFILES: Mapping[str, tuple[tuple[str, Mapping[str, str]], ...]] = {
    DEFAULT_PROFILE: DEFAULT_PLUGINS,
    "kubernetes": (
        *DEFAULT_PLUGINS,
        ("topologyspread", {}),
        ("nodeaffinity", {}),
        ("tainttoleration", {}),
        ("volumelimits", {}),
    ),
}

DEFAULT_ACTIONS = names.DEFAULT_ACTIONS


def known_plugins() -> list[str]:
    """Names a configuration may use without installing anything."""
    return sorted((*ORDERS, *CATALOGUE, *PLANNED))


def built_in(name: str, arguments: Mapping[str, str], path: str, report: Report) -> Plugin | None:
    """A built-in plugin with its arguments, None when there is none of that name."""
    subject = f"plugin {name}"
    order = ORDERS.get(name)
    if order is not None:
        read_arguments({}, arguments, subject, path, report)
        return order
    kind = CATALOGUE.get(name)
    if kind is None:
        return None
    plugin: Plugin = kind(**read_arguments(kind.ARGUMENTS, arguments, subject, path, report))  # type: ignore[attr-defined]
    return plugin
